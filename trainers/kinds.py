"""Defaults for a kind of game: what kind it is, and the settings that suit that kind.

    kind = kind_of(rules, seed=0)
    presets(kind, trainer_class("mappo"))  # {"self-play": {"num_envs": 256, ...}}

A kind is read off the rules where it can be: who acts, how many, images, the time limit, data that
is replayed. How long episodes are and when agents are paid is found by playing 20 random episodes,
2,000 env steps at the most, one after the other. Nobody else's generator is drawn from.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from corral.adapters.spaces import image_of
from corral.envs.batch import batch_for
from corral.envs.core import Array, Rules, generator, replays_data
from corral.envs.masks import split_space
from corral.envs.registry import REGISTERED
from corral.errors import UnknownNameError
from corral.trainers.evaluation.zero_sum import constant_sum, is_zero_sum

__all__ = ["PRESETS", "Defaults", "Kind", "Preset", "defaults_for", "kind_of", "presets"]

EPISODES = 20
"""Random episodes that a kind is found from."""

MOST_STEPS = 2_000
"""Env steps of them together, 2 % of a run's default: a game that never ends must not hang."""

MOST_PAID = 0.9
"""Share of env steps that pay somebody from which a game is paid in every step."""

LONG = 50
"""Env steps from which episodes are long."""

APART = 0.5
"""Distance between agents' mean returns, in deviations, from which they are paid unlike: a team
paid together has 0.05, chasers and who flees 0.8 and more."""


# --- What kind of game it is ---------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """What is known of a game before anything is learned; all of it can be kept as JSON."""

    agents: int
    in_turn: bool  # they act one after the other
    sides: tuple[int, ...]  # of the images that are observed, in pixels, smallest first
    max_cycles: int | None  # a time limit that the rules name
    data: bool  # it replays data, which nobody's actions change
    zero_sum: bool  # as the registry says, or as all random episodes had it
    unlike: bool  # agents have other mean returns: other tasks, though their spaces may be equal
    # "at the end", "after one move" (nobody moves twice), "in every step", "now and then"; None: it
    # was not seen
    paid: str | None
    length: float | None  # mean steps of the random episodes; None: none ended
    episodes: int  # random episodes that ended

    @property
    def long(self) -> bool:
        """Whether episodes are long: by their limit, else as they were played; endless is long."""
        if self.max_cycles is not None and self.max_cycles < LONG:
            return False
        return self.length is None or self.length >= LONG

    def words(self) -> str:
        """Return it in words: "turn-based, 2 agents, zero-sum, paid at the end"."""
        ended = f"episodes of {self.length:.0f} steps" if self.length is not None else ""
        order = "turn-based" if self.in_turn else "all act at once"
        parts = (
            "one agent" if self.agents == 1 else f"{order}, {self.agents} agents",
            "images of " + ", ".join(map(str, self.sides)) + " pixels" if self.sides else "",
            "data is replayed" if self.data else "",
            "zero-sum" if self.zero_sum else "paid unlike" if self.unlike else "",
            ended or f"no episode ended in {MOST_STEPS:,} env steps",
            f"paid {self.paid}" if self.paid else "when it is paid stays unknown",
        )
        return ", ".join(filter(None, parts))


def kind_of(rules: Rules[Any], seed: int) -> Kind:
    """Return the kind of a game; random episodes are played with ``seed``.

    Raises what the environment raises, with a note of what was done.
    """
    played = _Played(last=1 if rules.simultaneous else len(rules.agents))
    try:
        with _own_global_generators(seed):
            _play(rules, seed, played)
    except Exception as error:
        error.add_note('in random episodes that find its kind; preset="none" leaves them out')
        raise
    return Kind(
        agents=len(rules.agents),
        in_turn=not rules.simultaneous,
        sides=tuple(sorted({side for agent in rules.agents for side in _sides(rules, agent)})),
        max_cycles=rules.max_cycles,
        data=replays_data(rules),
        zero_sum=is_zero_sum(rules) or played.constant_sum(),
        unlike=played.unlike(),
        paid=played.paid(),
        length=float(np.mean(played.lengths)) if played.lengths else None,
        episodes=len(played.lengths),
    )


def _sides(rules: Rules[Any], agent: str) -> Iterator[int]:
    """Yield height and width of each image that an agent observes."""
    inner, _ = split_space(rules.observation_space(agent))
    for part in inner.spaces.values() if isinstance(inner, spaces.Dict) else (inner,):
        if (image := image_of(part)) is not None:
            yield from image[1:]


@dataclass
class _Played:
    """What was seen of random episodes; ``last`` of an episode's steps are its end."""

    last: int  # in turns each agent may be paid in a step of its own
    rewarded: list[bool] = field(default_factory=list)  # step -> somebody was paid, this episode
    early: bool = False  # somebody was paid before the end of an episode
    paid_steps: int = 0
    steps: int = 0
    returns: list[Array] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    def add(self, step: Any) -> None:
        """Take in a step of one environment."""
        self.steps += 1
        self.rewarded.append(bool(np.any(step.reward)))
        self.paid_steps += self.rewarded[-1]
        self.early |= len(self.rewarded) > self.last and self.rewarded[-self.last - 1]
        if step.finished is not None:
            if np.isfinite(step.finished.returns[0]).all():  # training says what is wrong there
                self.returns.append(step.finished.returns[0])
            self.lengths.append(len(self.rewarded))
            self.rewarded = []

    def paid(self) -> str | None:
        """Return when agents are paid; None where that cannot be said."""
        if not self.paid_steps:
            return None
        if self.paid_steps >= MOST_PAID * self.steps:
            return "in every step"
        if self.early:
            return "now and then"
        if not self.lengths:
            return None
        return "at the end" if max(self.lengths) > self.last else "after one move"

    def constant_sum(self) -> bool:
        """Return whether what one agent gained others lost, in every episode of several."""
        return len(self.returns) > 1 and constant_sum(np.array(self.returns)) is not None

    def unlike(self) -> bool:
        """Return whether agents' mean returns are APART; not where few episodes were seen."""
        if len(self.returns) < EPISODES // 2:
            return False
        returns = np.array(self.returns)
        deviation = float(np.sqrt(returns.var(axis=0).mean()))
        return bool(np.ptp(returns.mean(axis=0)) > APART * deviation)


def _play(rules: Rules[Any], seed: int, played: _Played) -> None:
    """Play random episodes, one after the other; ``played`` takes in each step."""
    rng = generator(seed, "policy")
    with batch_for(rules, 1, seed) as batch:
        batch.reset()
        while len(played.lengths) < EPISODES and played.steps < MOST_STEPS:
            played.add(batch.step(batch.sample_actions(rng)))


@contextlib.contextmanager
def _own_global_generators(seed: int) -> Iterator[None]:
    """Seed the generators that environments of others may draw from; put them back at the end."""
    torch = sys.modules.get("torch")
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    of_torch = None if torch is None else torch.get_rng_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        if torch is not None:
            torch.set_rng_state(of_torch)


# --- What suits it -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Preset:
    """Settings that suit a kind of game, each with the reason for it."""

    in_turn: bool
    about: str  # what else the game is, in words
    fits: Callable[[Kind], bool]  # the same, of a kind
    settings: Mapping[str, tuple[Any, str]]  # setting -> value, why
    whole: bool = False  # a part of them is of no use: for trainers that have all of them
    separate: bool = False  # agents that are paid unlike get policies of their own

    def suits(self, kind: Kind) -> bool:
        """Return whether this is for such a game."""
        return kind.in_turn == self.in_turn and self.fits(kind)

    def words(self) -> str:
        """Return in words which games it is for."""
        return f"{'turn-based' if self.in_turn else 'all act at once'}, {self.about}"

    def of(self, trainer: Any) -> dict[str, Any]:
        """Return the settings among them that the class ``trainer`` has."""
        known = settable_by_presets(trainer)
        found = {name: value for name, (value, _) in self.settings.items() if name in known}
        return {} if self.whole and len(found) < len(self.settings) else found


PRESETS: dict[str, Preset] = {
    "images": Preset(
        True,
        "images whose sides are multiples of 8 pixels, 32 and more",
        lambda kind: bool(kind.sides) and all(n % 8 == 0 and n >= 32 for n in kind.sides),
        {
            "num_envs": (64, "only one agent decides in a step: more steps at once"),
            "n_steps": (32, "rollouts as large as with 32 environments"),
            "n_minibatches": (4, "fewer, larger ones: what a CNN costs is mostly calls"),
            "gamma": (0.95, "below 1 rewards to be done soon"),
            "ent_coef": (0.01, "keeps a team from settling early for what costs more"),
            "ent_coef_end": (0.0, "so that in the end it is sure of its choice"),
            "cnn_patch": (8, "squares of 8 x 8 take a tenth of the time of layers of 3 x 3"),
            "cnn_arch": ((8, 16), "learned as well as larger ones"),
        },
    ),
    "self-play": Preset(
        True,
        "zero-sum, paid at the end",
        lambda kind: kind.zero_sum and kind.paid == "at the end",
        {
            "num_envs": (256, "games are long beside what they pay: many at once"),
            "n_steps": (32, "whole games fit in"),
            "gamma": (1.0, "the reward comes at the end, which is certain: nothing to discount"),
            "ent_coef": (0.3, "keeps self-play in all positions"),
            "ent_coef_end": (0.1, "at 0 greedy play is beaten in games that it no longer meets"),
            "net_arch": ((128, 128), "boards have more positions than what 64 units tell apart"),
        },
    ),
    "every-step": Preset(
        False,
        "long episodes, paid in every step, no data replayed",
        lambda kind: kind.long and kind.paid == "in every step" and not kind.data,
        {
            "num_envs": (16, "pay in every step shows in few steps: update sooner"),
            "n_minibatches": (4, "minibatches as large as with 32 environments"),
            "learning_rate": (2e-3, "smaller steps, since there are twice as many"),
            "gae_lambda": (0.9, "leans on the critic, which learns from every step"),
            "activation": ("tanh", "learned sooner than relu, see benchmarks/LOG.md"),
        },
        whole=True,
        separate=True,  # one network for two tasks needs up to twice the env steps in arena_v0
    ),
}
"""By name; of several that suit a game, a later one goes before."""


def presets(kind: Kind, trainer: Any) -> dict[str, dict[str, Any]]:
    """Return the presets that suit a kind of game: name -> settings that ``trainer`` has."""
    suiting = {name: each.of(trainer) for name, each in PRESETS.items() if each.suits(kind)}
    return {name: settings for name, settings in suiting.items() if settings}


# --- What a run begins with ----------------------------------------------------------------------


@dataclass(frozen=True)
class Defaults:
    """The settings that a run takes from its kind of game, and how to say so."""

    settings: dict[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()  # of presets, and of the environment whose entry had some
    policies: Literal["separate"] | None = None  # None: by the spaces alone
    kind: Kind | None = None  # None: it was not asked for
    found_in: str = ""  # what it cost, in words
    nothing: str = ""  # why a preset that was named gives nothing

    def without(self, given: Mapping[str, Any]) -> Defaults:
        """Return them without those that somebody has ``given``, or whose course starts there."""
        policies = self.policies if given.get("policies") is None else None
        taken = {*given, *(["ent_coef_end"] if "ent_coef" in given else [])}
        left = {name: value for name, value in self.settings.items() if name not in taken}
        return dataclasses.replace(self, settings=left, policies=policies)

    def saved(self) -> dict[str, Any]:
        """Return what config.json keeps: the kind, the presets, and what they gave."""
        kind = None if self.kind is None else dataclasses.asdict(self.kind)
        return {"kind": kind, "presets": list(self.names), "settings": self.given()}

    def given(self) -> dict[str, Any]:
        """Return the settings, with ``policies`` among them where it is given."""
        return {**self.settings, **({"policies": self.policies} if self.policies else {})}

    def words(self) -> str:
        """Return what is said of them when training starts; "" where there is nothing to say."""
        kind = "" if self.kind is None else f"Kind of game: {self.kind.words()} ({self.found_in}). "
        if self.nothing:
            return f"Preset {' and '.join(self.names)} changes nothing: {self.nothing}"
        if not self.given():
            return kind and f"{kind}No preset is for it"
        values = ", ".join(f"{name}={value}" for name, value in self.given().items())
        given = f"{kind}Preset {' and '.join(self.names)}: {values}"
        return f'{given}; --preset none (preset="none") leaves them out'


def settable_by_presets(trainer: Any) -> set[str]:
    """Return the names of the settings of a class of trainers that presets may set."""
    names = {field.name for field in dataclasses.fields(trainer.Settings)}
    for others in ("unused", "unset_by_presets"):
        names -= set(getattr(trainer.Settings, others, ()))
    return names


def defaults_for(rules: Rules[Any], trainer: Any, seed: int, preset: str = "auto") -> Defaults:
    """Return the defaults of a run in a game.

    Args:
        rules: of the game.
        trainer: a class; settings that it does not have are left out.
        seed: of the random episodes that find the kind.
        preset: "auto": by the kind of game, and what its entry in ``corral.envs.registry`` says;
            "none"; or the name of one of PRESETS, for which nothing is played.

    Raises UnknownNameError for an unknown preset, and what the environment raises.
    """
    if preset in PRESETS:
        settings = PRESETS[preset].of(trainer)
        which = "lacks some" if PRESETS[preset].whole else "has none"
        nothing = "" if settings else f"trainer {trainer.name} {which} of its settings"
        return Defaults(settings, (preset,), nothing=nothing)
    if preset == "none":
        return Defaults()
    if preset != "auto":
        raise UnknownNameError.of("preset", str(preset), [*PRESETS, "auto", "none"])
    began = time.perf_counter()
    kind = kind_of(rules, seed)
    spent = f"{kind.episodes} random episodes, {time.perf_counter() - began:.2f} s"
    found = presets(kind, trainer)
    known = settable_by_presets(trainer)
    entry = REGISTERED[rules.name].settings if rules.name in REGISTERED else {}
    if own := {name: value for name, value in entry.items() if name in known}:
        found[rules.name] = own
    settings = {name: value for each in found.values() for name, value in each.items()}
    separate = kind.unlike and any(PRESETS[name].separate for name in found if name in PRESETS)
    return Defaults(settings, tuple(found), "separate" if separate else None, kind, spent)
