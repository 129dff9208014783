"""Settings of trainers: a setting is said once, as a field of a dataclass.

    @dataclass(frozen=True)
    class MySettings:
        depth: int = setting(3, "Number of moves that are searched ahead.", least=1)
        gamma: float = setting(0.9)

        def __post_init__(self) -> None:
            check_settings(self)

The field's type, default and bounds make the check, the option ``--depth`` of ``corral train``, and
what ``--help`` and ``corral trainers`` print of it. A setting of ``SHARED`` needs no words of its
own: it means the same in every trainer that has it.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, field, fields
from numbers import Real
from typing import Any, Literal, Protocol, get_args

from corral.envs.arguments import (
    known_arguments,
    nonnegative_int,
    one_of,
    plain_numbers,
)
from corral.errors import ArgumentError, UnknownNameError
from corral.hints import answer, listed, spelled_otherwise
from corral.text import shortened
from corral.trainers import schedules
from corral.trainers.base import BUILT_IN, trainer_class

__all__ = [
    "Size",
    "about",
    "check_settings",
    "is_schedule",
    "limits",
    "make_settings",
    "require_known",
    "setting",
    "settings_by_policy",
    "type_of",
    "unknown_setting",
]


Size = Literal["copies", "steps", "kept", "drawn", "tried", "processes", "layers", "units"]
"""Memory that a number scales: copies of the environment, steps of a rollout, decisions that a
replay buffer keeps or a minibatch draws, actions tried for each decision, processes, units of each
hidden layer, units of one layer."""


class OptionalSettings(Protocol):
    """Names that mean the same in every trainer that has them; other trainers do without."""

    unused: tuple[str, ...]
    """Settings that a trainer inherits and that are no options of it."""
    unset_by_presets: tuple[str, ...]
    """Settings that presets of other trainers leave alone."""
    num_envs: int
    n_epochs: int
    n_minibatches: int
    batch_size: int | None
    learning_rate: float | str
    anneal: bool
    gamma: float
    critic_input: str
    own_action: bool
    clip_range_vf: float | None
    kl_coef: float
    stay_coef: float
    stay_target: float | None


def setting(
    default: Any,
    help: str | None = None,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] | None = None,
    unit: str | None = None,
    common: str | None = None,
    sizes: Size | None = None,
) -> Any:
    """Return a dataclass field of one setting; without ``help`` it is one of ``SHARED``.

    Args:
        default: its value where none is given.
        help: a sentence that can be read alone.
        least: the smallest number allowed, and of units in a tuple the smallest.
        above: a number that it must exceed.
        most: the largest number allowed.
        below: a number that it must stay below.
        choices: the texts allowed.
        unit: what a number counts.
        common: why all policies of a run have the same value, where they must.
        sizes: the memory that a number scales, see ``corral.trainers.sizes``; None: it is counted
            to, and scales none.

    Raises ValueError for ``sizes`` that are no ``Size``.
    """
    if sizes is not None and sizes not in get_args(Size):
        raise ValueError(f"sizes={sizes!r}: give one of {', '.join(get_args(Size))}")
    if help is None:
        return field(default=default)
    words: dict[str, Any] = {
        "help": help,
        "least": least,
        "above": above,
        "most": most,
        "below": below,
    }
    words |= {"choices": choices, "unit": unit, "common": common, "sizes": sizes}
    return field(default=default, metadata=words)


SHARED: dict[str, Mapping[str, Any]] = {
    name: shared.metadata
    for name, shared in {
        "num_envs": setting(
            None,
            "Number of environments that are played at once, B.",
            least=1,
            unit="environments",
            common="all policies play in the same environments",
            sizes="copies",
        ),
        "n_steps": setting(
            None,
            "Length of a rollout in each environment, T.",
            least=1,
            unit="env steps",
            common="all policies learn from the same rollouts",
            sizes="steps",
        ),
        "batch_size": setting(
            None, "Size of a minibatch.", least=1, unit="decisions", sizes="drawn"
        ),
        "n_epochs": setting(None, "Number of passes over a rollout in an update.", least=1),
        "learning_rate": setting(None, "Step size of the optimizer.", least=0),
        "anneal": setting(
            None, "Lower a learning rate that is a number linearly to 0 over the run."
        ),
        "gamma": setting(
            None, "Discount from one decision of an agent to its next.", least=0, most=1
        ),
        "gae_lambda": setting(
            None, "Decay of generalized advantage estimation per decision.", least=0, most=1
        ),
        "clip_range": setting(None, "Bound on the change of a probability ratio.", above=0),
        "ent_coef": setting(
            None, "Weight of the bonus for entropy over legal actions, at first.", least=0
        ),
        "ent_coef_end": setting(
            None,
            "Weight of the bonus for entropy at the end, linear between; none: it stays.",
            least=0,
        ),
        "vf_coef": setting(None, "Weight of the value loss.", least=0),
        "kl_coef": setting(None, "Weight of a penalty on the KL divergence, at first.", least=0),
        "kl_target": setting(
            None,
            "KL divergence of an update that kl_coef is adapted to reach; none: kl_coef stays. "
            "target_kl ends the epochs of an update instead.",
            above=0,
        ),
        "max_grad_norm": setting(None, "Longest gradient; longer ones are scaled down.", above=0),
        "net_arch": setting(
            None,
            "Units of each hidden layer of actor and critic.",
            least=1,
            unit="units",
            sizes="layers",
        ),
        "activation": setting(
            None, "Activation function of the hidden layers.", choices=("relu", "tanh")
        ),
        "agent_id": setting(
            None,
            "Add to an observation which agent it is of, where a policy has several.",
            common="observations are stored once, for all policies",
        ),
    }.items()
}
"""Settings that several trainers have, under the names of Stable-Baselines3 where it has them."""


def about(one: Field[Any]) -> Mapping[str, Any]:
    """Return what ``setting`` was told of a field: ``help``, bounds, ``choices``, ``unit``."""
    return one.metadata or SHARED.get(one.name, {})


def limits(one: Field[Any]) -> str:
    """Return in words what a setting may be; "" where its type says it all."""
    words = about(one)
    if words.get("choices"):
        return "one of " + ", ".join(words["choices"])
    low, high = _interval(words)
    text = f"{low} to {high}" if low and high else low
    if low and not high and not low.startswith("above"):
        text = f"{low} or more"
    if is_schedule(one):
        text += ", or a schedule: linear, linear:NUMBER, STEPS:VALUE,STEPS:VALUE"
    return " ".join(part for part in (text, words.get("unit")) if part)


def type_of(one: Field[Any]) -> str:
    """Return the type of a setting as it is written: "int", "float | None", ..."""
    return one.type.__name__ if isinstance(one.type, type) else str(one.type)


def is_schedule(one: Field[Any]) -> bool:
    """Return whether a setting may change over a run: see ``corral.trainers.schedules``."""
    return type_of(one) == "float | str"


def _interval(words: Mapping[str, Any]) -> tuple[str, str]:
    """Return the lower and the upper bound in words, "" where there is none."""
    least, above, most, below = (words.get(name) for name in ("least", "above", "most", "below"))
    low = "" if least is None else f"{least:g}"
    high = "" if most is None else f"{most:g}"
    return (
        low if above is None else f"above {above:g}",
        high if below is None else f"below {below:g}",
    )


# --- Names ---------------------------------------------------------------------------------------


def unknown_setting(
    name: str, trainer: str, known: Iterable[str], spell: Callable[[str], str] = str
) -> str:
    """Return what to say of a setting that ``trainer`` does not have.

    ``known`` are the names that may be meant; ``spell`` writes a name as the reader types it.
    """
    names = [spell(each) for each in known]
    word = spell(name)
    if not spelled_otherwise(word, names) and (others := _trainers_with(name)):
        has = f"{listed(others)} {'have it' if len(others) > 1 else 'has it'}"
        about_it = answer(word, [], spell)
        return f"trainer {trainer} has no {word}; {has}{about_it}"
    kind = "option" if word.startswith("--") else "setting"
    return f"no {kind} named {word!r}{answer(word, names, spell)}"


def _trainers_with(name: str) -> list[str]:
    """Return the trainers that have a setting, as far as what they stand on is installed."""
    found = []
    for trainer in BUILT_IN:
        with contextlib.suppress(ImportError):
            known = {field.name for field in fields(trainer_class(trainer).Settings)}
            if name in known and (name == "teacher" or "teacher" not in known):
                found.append(trainer)  # one that is taught is no other choice of who learns
    return found


def require_known(
    train: Callable[..., Any],
    trainer: Any,
    arguments: Iterable[str],
    env_kwargs: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> None:
    """Raise TypeError for a name given in the wrong place, or known nowhere.

    ``trainer`` is a class; ``arguments`` are those of the environment, if they are known; ``train``
    has some of its own.
    """
    own = [field.name for field in fields(trainer.Settings)]
    of_train = [name for name in inspect.signature(train).parameters if name != "settings"]
    arguments = set(arguments)
    for name, value in settings.items():
        if name in own:
            continue
        if name in arguments:
            raise TypeError(
                f"{name} is an argument of the environment: give env_kwargs={{{name!r}: "
                f"{shortened(repr(value), 80)}}}"
            )
        if near := difflib.get_close_matches(name, of_train, n=1, cutoff=0.85):
            raise TypeError(f"no argument named {name!r}; did you mean {near[0]!r}?")
        message = unknown_setting(name, trainer.name, [*own, *of_train])
        if name == "policy":
            message += " A network's layers are net_arch; no class of policies is named."
        if not arguments:
            given = f"{{{name!r}: {shortened(repr(value), 80)}}}"
            message += f" An argument of the environment is given as env_kwargs={given}."
        raise TypeError(f"{message} Known: {', '.join(own)}")
    for name in env_kwargs if arguments else ():
        if name not in arguments and name in {*own, *of_train}:
            raise TypeError(
                f"env_kwargs holds {name!r}, which is no argument of the environment: give "
                f"{name}={shortened(repr(env_kwargs[name]), 80)} to corral.train itself"
            )


# --- Values --------------------------------------------------------------------------------------


def make_settings(trainer: Any, values: Mapping[str, Any]) -> Any:
    """Return the settings of a class of trainers, with these ``values``.

    Raises TypeError with the nearest name for one that it does not have, ValueError for a value
    that is out of range.
    """
    known_arguments(trainer.Settings, list(values))
    types = {one.name: type_of(one) for one in fields(trainer.Settings)}
    tidy = {  # JSON knows lists only
        name: tuple(value) if types[name].startswith("tuple") and isinstance(value, list) else value
        for name, value in plain_numbers(dict(values)).items()
    }
    return trainer.Settings(**tidy)


def settings_by_policy(
    trainer: Any,
    settings: Mapping[str, Any],
    settings_of: Mapping[str, Mapping[str, Any]],
    policies: Iterable[str],
) -> dict[str, dict[str, Any]]:
    """Return the settings that single ``policies`` have for themselves, checked.

    ``settings`` are those of all. Raises UnknownNameError, ArgumentError or ValueError for a
    policy or a setting that is not there, for one that all policies have in common, and for its
    value.
    """
    names, found = list(dict.fromkeys(policies)), {}
    fields_of = {one.name: one for one in fields(trainer.Settings)}
    if settings_of and not trainer.capabilities.settings_of:
        raise ValueError(
            f"trainer {trainer.name} has the same settings for all policies; settings_of is for "
            "in-house trainers, such as mappo"
        )
    for policy, own in settings_of.items():
        if policy not in names:
            raise UnknownNameError.of("policy", policy, names)
        if not isinstance(own, Mapping):
            raise ArgumentError(f"settings_of[{policy!r}]={own!r}: give setting -> value")
        for name in own:
            if name not in fields_of:
                known = list(fields_of)
                raise ArgumentError(f"{policy}: {unknown_setting(name, trainer.name, known)}")
            if reason := about(fields_of[name]).get("common"):
                raise ValueError(
                    f"{policy}.{name}: {reason}, so that {name} is one for all: give {name}= itself"
                )
        try:
            made = make_settings(trainer, {**settings, **own})
        except ValueError as error:
            raise ValueError(f"policy {policy}: {error}") from error
        found[policy] = {name: getattr(made, name) for name in own}
    return found


def check_settings(settings: Any) -> None:
    """Raise ValueError, naming value and bounds, where a setting is out of range."""
    for one in fields(settings):
        value, words = getattr(settings, one.name), about(one)
        kind, _, other = type_of(one).partition(" | ")
        if value is None and other == "None":
            continue
        if words["choices"]:
            one_of(one.name, value, words["choices"])
        elif kind == "bool":
            if not isinstance(value, bool):
                raise ValueError(f"{one.name}={value!r}: give True or False")
        elif kind == "int":
            nonnegative_int(one.name, value, least=words["least"])
        elif kind == "float":
            scheduled = is_schedule(one) and isinstance(value, str)
            for number in schedules.values_of(settings, one.name) if scheduled else [value]:
                if not _within(number, words):
                    raise ValueError(_out_of_range(one, number))
        elif kind.startswith("tuple"):
            if not isinstance(value, tuple):
                raise ValueError(f"{one.name}={value!r}: give a tuple of numbers of units")
            for each in value:
                nonnegative_int(one.name, each, least=words["least"])


def _within(value: Any, words: Mapping[str, Any]) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        return False
    least, above, most, below = (words[name] for name in ("least", "above", "most", "below"))
    return not (
        (least is not None and value < least)
        or (above is not None and value <= above)
        or (most is not None and value > most)
        or (below is not None and value >= below)
    )


def _out_of_range(one: Field[Any], value: Any) -> str:
    low, high = _interval(about(one))
    allowed = f" of {low} to {high}" if high else f", {low} or more"
    if low.startswith("above") and not high:
        allowed = f" {low}"
    known = not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    other = type_of(one).partition(" | ")[2]
    also = {"None": ", or None", "str": ", or a schedule"}.get(other, "")
    return f"{one.name}={value!r}: give a {'' if known else 'finite '}number{allowed}{also}"
