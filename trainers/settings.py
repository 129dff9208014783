"""Settings of trainers: each setting is declared once, as a field of a dataclass.

    @dataclass(frozen=True)
    class MySettings:
        depth: int = setting(3, "Search depth in moves.", least=1)
        gamma: float = setting(0.9)

        def __post_init__(self) -> None:
            check_settings(self)

The field's type, default and bounds define the validation, the option ``--depth`` of
``corral train``, and the text of ``--help`` and ``corral trainers``. A setting in ``SHARED`` needs
no help text here, because it has the same meaning in every trainer.
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
from corral.errors import MANY, ArgumentError, UnknownNameError
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
"""Kind of memory that a setting scales: environment copies, steps of a rollout, decisions kept in a
replay buffer, decisions drawn for a minibatch, actions tried per decision, processes, units of each
hidden layer, units of one layer."""


class OptionalSettings(Protocol):
    """Settings with the same meaning in every trainer that has them; all are optional."""

    unused: tuple[str, ...]
    """Inherited settings that are not options of this trainer."""
    unset_by_presets: tuple[str, ...]
    """Settings that presets of other trainers do not change."""
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
    """Return a dataclass field for one setting; without ``help``, ``SHARED`` has its metadata.

    Args:
        default: default value.
        help: a self-contained sentence.
        least: minimum value (inclusive); for a tuple, the minimum of each number.
        above: lower bound (exclusive).
        most: maximum value (inclusive).
        below: upper bound (exclusive).
        choices: allowed strings.
        unit: unit of the number.
        common: reason why all policies of a run need the same value; None: they may differ.
        sizes: kind of memory that the number scales, see ``corral.trainers.sizes``; None: the
            number does not scale memory.

    Raises ValueError if ``sizes`` is not a ``Size``.
    """
    if sizes is not None and sizes not in get_args(Size):
        raise ValueError(f"sizes={sizes!r}: pass one of {', '.join(get_args(Size))}")
    if help is None:
        return field(default=default)
    metadata: dict[str, Any] = {
        "help": help,
        "least": least,
        "above": above,
        "most": most,
        "below": below,
    }
    metadata |= {"choices": choices, "unit": unit, "common": common, "sizes": sizes}
    return field(default=default, metadata=metadata)


SHARED: dict[str, Mapping[str, Any]] = {
    name: shared.metadata
    for name, shared in {
        "num_envs": setting(
            None,
            "Number of environment copies that run at once, B.",
            least=1,
            unit="environments",
            common="all policies play in the same environments",
            sizes="copies",
        ),
        "n_steps": setting(
            None,
            "Rollout length per environment copy, T.",
            least=1,
            unit="env steps",
            common="all policies learn from the same rollouts",
            sizes="steps",
        ),
        "batch_size": setting(None, "Minibatch size.", least=1, unit="decisions", sizes="drawn"),
        "n_epochs": setting(None, "Number of passes over the rollout per update.", least=1),
        "learning_rate": setting(None, "Learning rate of the optimizer.", least=0),
        "anneal": setting(None, "Decay a constant learning rate linearly to 0 over the run."),
        "gamma": setting(
            None, "Discount factor between consecutive decisions of an agent.", least=0, most=1
        ),
        "gae_lambda": setting(
            None, "Lambda of generalized advantage estimation, per decision.", least=0, most=1
        ),
        "clip_range": setting(None, "Clipping range of the probability ratio.", above=0),
        "ent_coef": setting(
            None, "Initial weight of the entropy bonus over legal actions.", least=0
        ),
        "ent_coef_end": setting(
            None,
            "Final entropy weight, reached linearly; none: constant.",
            least=0,
        ),
        "vf_coef": setting(None, "Weight of the value loss.", least=0),
        "kl_coef": setting(None, "Initial weight of the penalty on the KL divergence.", least=0),
        "kl_target": setting(
            None,
            "Target KL divergence per update, reached by adapting kl_coef; none: constant kl_coef. "
            "To end the epochs of an update early, use target_kl instead.",
            above=0,
        ),
        "max_grad_norm": setting(
            None, "Maximum gradient norm; larger gradients are scaled down.", above=0
        ),
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
            "Append the agent's ID to its observation if a policy plays several agents.",
            common="all policies share one observation buffer",
        ),
    }.items()
}
"""Settings of several trainers, named as in Stable-Baselines3 if it has the same setting."""


def about(one: Field[Any]) -> Mapping[str, Any]:
    """Return the field's metadata: help, bounds, choices and unit."""
    return one.metadata or SHARED.get(one.name, {})


def limits(one: Field[Any]) -> str:
    """Return the allowed values of a setting as text; "" if the type allows every value."""
    metadata = about(one)
    if metadata.get("choices"):
        return "one of " + ", ".join(metadata["choices"])
    low, high = _interval(metadata)
    text = f"{low} to {high}" if low and high else low
    if low and not high and not low.startswith("above"):
        text = f"{low} or more"
    if is_schedule(one):
        text += ", or a schedule: linear, linear:NUMBER, STEPS:VALUE,STEPS:VALUE"
    return " ".join(part for part in (text, metadata.get("unit")) if part)


def type_of(one: Field[Any]) -> str:
    """Return the type of a setting as source text: "int", "float | None", ..."""
    return one.type.__name__ if isinstance(one.type, type) else str(one.type)


def is_schedule(one: Field[Any]) -> bool:
    """Return True if the setting accepts a schedule: see ``corral.trainers.schedules``."""
    return type_of(one) == "float | str"


def _interval(metadata: Mapping[str, Any]) -> tuple[str, str]:
    """Return the lower and the upper bound as text; "" for a missing bound."""
    least, above, most, below = (metadata.get(name) for name in ("least", "above", "most", "below"))
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
    """Return the error message for a setting that ``trainer`` does not have.

    ``known`` are the candidate names; ``spell`` formats a name the way the user types it.
    """
    names = [spell(candidate) for candidate in known]
    typed = spell(name)
    if not spelled_otherwise(typed, names) and (owners := _trainers_with(name)):
        has = f"{listed(owners)} {'have it' if len(owners) > 1 else 'has it'}"
        note = answer(typed, [], spell)
        return f"trainer {trainer} has no {typed}; {has}{note}"
    kind = "option" if typed.startswith("--") else "setting"
    return f"no {kind} named {typed!r}{answer(typed, names, spell)}"


def _trainers_with(name: str) -> list[str]:
    """Return the trainers that have a setting, skipping trainers that are not installed."""
    matches = []
    for trainer in BUILT_IN:
        with contextlib.suppress(ImportError):
            names = {field.name for field in fields(trainer_class(trainer).Settings)}
            if name in names and (name == "teacher" or "teacher" not in names):
                matches.append(trainer)  # cloning trainers are no alternative for other settings
    return matches


def require_known(
    train: Callable[..., Any],
    trainer: Any,
    arguments: Iterable[str],
    env_kwargs: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> None:
    """Raise TypeError for an unknown name, or a name that belongs to another argument.

    ``trainer`` is a class. ``arguments`` are the environment's arguments, empty if unknown.
    ``train`` is the function whose own parameters are valid names as well.
    """
    setting_names = [field.name for field in fields(trainer.Settings)]
    of_train = [name for name in inspect.signature(train).parameters if name != "settings"]
    arguments = list(arguments)
    for name, value in settings.items():
        if name in setting_names:
            continue
        if name in arguments:
            raise TypeError(
                f"{name} is an argument of the environment: pass env_kwargs={{{name!r}: "
                f"{shortened(repr(value), 80)}}}"
            )
        if near := difflib.get_close_matches(name, of_train, n=1, cutoff=0.85):
            raise TypeError(f"no argument named {name!r}; did you mean {near[0]!r}?")
        if not spelled_otherwise(name, [*setting_names, *of_train]) and (
            same := spelled_otherwise(name, arguments)
        ):
            raise TypeError(
                f"no setting named {name!r}; did you mean the argument of the environment "
                f"env_kwargs={{{same[0]!r}: {shortened(repr(value), 80)}}}?"
            )
        message = unknown_setting(name, trainer.name, [*setting_names, *of_train])
        if name == "policy":
            message += " Layers are set with net_arch; policy classes cannot be selected."
        if not arguments:
            example = f"{{{name!r}: {shortened(repr(value), 80)}}}"
            message += f" For an argument of the environment, pass env_kwargs={example}."
        else:
            more = ", ..." * (len(arguments) > MANY)
            message += f" Arguments for env_kwargs: {', '.join(arguments[:MANY])}{more}."
        raise TypeError(f"{message} Known: {', '.join(setting_names)}")
    for name in env_kwargs if arguments else ():
        if name not in arguments and name in {*setting_names, *of_train}:
            raise TypeError(
                f"env_kwargs contains {name!r}, which is not an argument of the environment: pass "
                f"{name}={shortened(repr(env_kwargs[name]), 80)} to corral.train instead"
            )


# --- Values --------------------------------------------------------------------------------------


def make_settings(trainer: Any, values: Mapping[str, Any]) -> Any:
    """Return the settings of a trainer class with these ``values``.

    Raises TypeError, with the closest name, for an unknown setting, and ValueError for a value out
    of range.
    """
    known_arguments(trainer.Settings, list(values))
    types = {one.name: type_of(one) for one in fields(trainer.Settings)}
    tidy = {  # JSON has no tuples, only lists
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
    """Return the validated settings of single policies: policy -> setting -> value.

    ``settings`` are the settings of all policies. Raises UnknownNameError for an unknown policy,
    ArgumentError for an unknown setting, and ValueError for a value out of range or a setting that
    all policies must share.
    """
    names, checked = list(dict.fromkeys(policies)), {}
    fields_of = {one.name: one for one in fields(trainer.Settings)}
    if settings_of and not trainer.capabilities.settings_of:
        raise ValueError(
            f"trainer {trainer.name} uses the same settings for all policies; settings_of is for "
            "the in-house trainers, such as mappo"
        )
    for policy, values in settings_of.items():
        if policy not in names:
            raise UnknownNameError.of("policy", policy, names)
        if not isinstance(values, Mapping):
            raise ArgumentError(
                f"settings_of[{policy!r}]={values!r}: pass a mapping, setting -> value"
            )
        for name in values:
            if name not in fields_of:
                setting_names = list(fields_of)
                raise ArgumentError(
                    f"{policy}: {unknown_setting(name, trainer.name, setting_names)}"
                )
            if reason := about(fields_of[name]).get("common"):
                raise ValueError(
                    f"{policy}.{name}: {reason}. Set {name}= once for all policies instead"
                )
        try:
            made = make_settings(trainer, {**settings, **values})
        except ValueError as error:
            raise ValueError(f"policy {policy}: {error}") from error
        checked[policy] = {name: getattr(made, name) for name in values}
    return checked


def check_settings(settings: Any) -> None:
    """Raise ValueError with value and bounds if a setting is out of range."""
    for one in fields(settings):
        value, metadata = getattr(settings, one.name), about(one)
        kind, _, alternative = type_of(one).partition(" | ")
        if value is None and alternative == "None":
            continue
        if metadata["choices"]:
            one_of(one.name, value, metadata["choices"])
        elif kind == "bool":
            if not isinstance(value, bool):
                raise ValueError(f"{one.name}={value!r}: pass True or False")
        elif kind == "int":
            nonnegative_int(one.name, value, least=metadata["least"])
        elif kind == "float":
            scheduled = is_schedule(one) and isinstance(value, str)
            for number in schedules.values_of(settings, one.name) if scheduled else [value]:
                if not _within(number, metadata):
                    raise ValueError(_out_of_range(one, number))
        elif kind.startswith("tuple"):
            if not isinstance(value, tuple):
                raise ValueError(
                    f"{one.name}={value!r}: pass a tuple of whole numbers, such as (64, 64)"
                )
            for number in value:
                nonnegative_int(one.name, number, least=metadata["least"])


def _within(value: Any, metadata: Mapping[str, Any]) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        return False
    least, above, most, below = (metadata[name] for name in ("least", "above", "most", "below"))
    return not (
        (least is not None and value < least)
        or (above is not None and value <= above)
        or (most is not None and value > most)
        or (below is not None and value >= below)
    )


SCHEDULE = ', or a schedule as text: "linear:NUMBER", or "0:0.1,20000:0" (env steps:value)'


def _out_of_range(one: Field[Any], value: Any) -> str:
    low, high = _interval(about(one))
    allowed = f" from {low} to {high}" if high else f", {low} or more"
    if low.startswith("above") and not high:
        allowed = f" {low}"
    is_finite = not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    alternative = type_of(one).partition(" | ")[2]
    extra = {"None": ", or None", "str": SCHEDULE}.get(alternative, "")
    if alternative == "str" and isinstance(value, list | tuple):
        extra = f", or a schedule as text: {_points(value) or '0:0.1,20000:0'} (env steps:value)"
    return f"{one.name}={value!r}: pass a {'' if is_finite else 'finite '}number{allowed}{extra}"


def _points(value: Any) -> str:
    """Return pairs such as [[0, 0.1], [20000, 0]] as the text of a schedule; "" for other values.

    The pairs are RLlib's schedules.
    """
    try:
        return ",".join(f"{float(at):.10g}:{float(number):.10g}" for at, number in value)
    except (TypeError, ValueError):
        return ""
