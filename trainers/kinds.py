"""Detect the kind of a game, and choose default settings for it.

    kind = kind_of(rules, seed=0)
    presets(kind, trainer_class("mappo"))  # {"self-play": {"num_envs": 256, ...}}

Most properties are read from the rules: order of turns, number of agents, images, grids, time
limit, and replay of data. Episode length and reward timing are measured in 20 random episodes, with
at most 2,000 env steps in total. The random generators of other code are not affected.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from corral.adapters.spaces import grid_of, image_of
from corral.envs.batch import batch_for
from corral.envs.core import Array, Rules, generator, replays_data
from corral.envs.masks import split_space
from corral.envs.registry import REGISTERED
from corral.errors import UnknownNameError
from corral.trainers.arguments import have_equal_spaces
from corral.trainers.evaluation.zero_sum import constant_sum, is_zero_sum

__all__ = ["PRESETS", "Defaults", "Kind", "Preset", "defaults_for", "kind_of", "presets"]

EPISODES = 20
"""Random episodes played to detect a kind."""

MAX_STEPS = 2_000
"""Maximum env steps of these episodes, 2 % of a default run: an endless game must not hang."""

PAID_SHARE = 0.9
"""Share of env steps with a reward above which rewards count as "in every step"."""

LONG = 50
"""Env steps from which an episode counts as long."""

MEDIUM = (10, 100)
"""Env steps of the episodes for which the preset "team" was measured: 25 and 50."""

APART = 0.5
"""Difference of agents' mean returns, in standard deviations, above which their tasks differ: 0.05
for a team with a common reward, 0.8 and more for pursuers and an evader."""


SHORTEST_SIDE, LARGEST_BOARD = 6, 128
"""Limits of the boards that get a CNN by default. At equal CPU seconds it learned less on 5 x 5 and
17 x 17 fields, see benchmarks/LOG.md."""


# --- Kinds of games ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """Properties of a game that are available before training; all are JSON values."""

    agents: int
    in_turn: bool  # turn-based
    sides: tuple[int, ...]  # image sides in observations, in pixels, ascending
    grids: tuple[tuple[int, int], ...]  # height and width of grids in observations, ascending
    max_cycles: int | None  # time limit, if the rules have one
    data: bool  # replays data that actions do not change
    zero_sum: bool  # by the registry, or in all random episodes
    unlike: bool  # agents have different mean returns, so different tasks
    equal_spaces: bool  # of all agents, which then share a policy by default
    # Reward timing: "at the end", "after one move" (an agent moves at most once), "in every step",
    # "now and then"; None: not observed
    paid: str | None
    length: float | None  # mean length of the random episodes; None: none ended
    episodes: int  # random episodes that ended

    @property
    def long(self) -> bool:
        """True for long episodes, by time limit or measured length; endless episodes are long."""
        if self.max_cycles is not None and self.max_cycles < LONG:
            return False
        return self.length is None or self.length >= LONG

    @property
    def boards(self) -> bool:
        """True if there are grids, all within the limits for a CNN."""
        return bool(self.grids) and all(
            min(grid) >= SHORTEST_SIDE and math.prod(grid) <= LARGEST_BOARD for grid in self.grids
        )

    def words(self) -> str:
        """Return a description: "turn-based, 2 agents, zero-sum, rewards at the end"."""
        ended = f"episodes of {self.length:.0f} steps" if self.length is not None else ""
        order = "turn-based" if self.in_turn else "all act at once"
        parts = (
            "one agent" if self.agents == 1 else f"{order}, {self.agents} agents",
            "images of " + ", ".join(map(str, self.sides)) + " pixels" if self.sides else "",
            "grids of " + ", ".join(f"{h} x {w}" for h, w in self.grids) if self.grids else "",
            "replays data" if self.data else "",
            "zero-sum" if self.zero_sum else "different returns per agent" if self.unlike else "",
            ended or f"no episode ended in {MAX_STEPS:,} env steps",
            f"rewards {self.paid}" if self.paid else "reward timing unknown",
        )
        return ", ".join(filter(None, parts))


def kind_of(rules: Rules[Any], seed: int) -> Kind:
    """Detect the kind of a game; random episodes are played with ``seed``.

    Raises the exceptions of the environment, with a note about the random episodes.
    """
    played = _Played(last=1 if rules.simultaneous else len(rules.agents))
    try:
        with _seeded_global_generators(seed):
            _play(rules, seed, played)
    except Exception as error:
        error.add_note('raised in the random episodes that detect the kind; skip: preset="none"')
        raise
    parts = [part for agent in rules.agents for part in _parts(rules, agent)]
    return Kind(
        agents=len(rules.agents),
        in_turn=not rules.simultaneous,
        sides=tuple(sorted({side for part in parts for side in (image_of(part) or ())[1:]})),
        grids=tuple(sorted({grid.image[1:] for part in parts if (grid := grid_of(part))})),
        max_cycles=rules.max_cycles,
        data=replays_data(rules),
        zero_sum=is_zero_sum(rules) or played.constant_sum(),
        unlike=played.unlike(),
        equal_spaces=have_equal_spaces(rules, rules.agents),
        paid=played.paid(),
        length=float(np.mean(played.lengths)) if played.lengths else None,
        episodes=len(played.lengths),
    )


def _parts(rules: Rules[Any], agent: str) -> Iterable[spaces.Space[Any]]:
    """Return the entries of an agent's observation."""
    inner, _ = split_space(rules.observation_space(agent))
    return inner.spaces.values() if isinstance(inner, spaces.Dict) else (inner,)


@dataclass
class _Played:
    """Statistics of the random episodes; the final ``last`` steps of an episode are its end."""

    last: int  # in turn-based games each agent may get its final reward in a separate step
    # step -> any agent got a reward, this episode
    rewarded: list[bool] = field(default_factory=list)
    early: bool = False  # any agent got a reward before the end of an episode
    paid_steps: int = 0
    steps: int = 0
    returns: list[Array] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    def add(self, step: Any) -> None:
        """Record a step of one environment copy."""
        self.steps += 1
        self.rewarded.append(bool(np.any(step.reward)))
        self.paid_steps += self.rewarded[-1]
        self.early |= len(self.rewarded) > self.last and self.rewarded[-self.last - 1]
        if step.finished is not None:
            if np.isfinite(step.finished.returns[0]).all():  # training reports non-finite rewards
                self.returns.append(step.finished.returns[0])
            self.lengths.append(len(self.rewarded))
            self.rewarded = []

    def paid(self) -> str | None:
        """Return the reward timing; None if it was not observed."""
        if not self.paid_steps:
            return None
        if self.paid_steps >= PAID_SHARE * self.steps:
            return "in every step"
        if self.early:
            return "now and then"
        if not self.lengths:
            return None
        return "at the end" if max(self.lengths) > self.last else "after one move"

    def constant_sum(self) -> bool:
        """Return True if the agents' returns sum to a constant over several episodes."""
        return len(self.returns) > 1 and constant_sum(np.array(self.returns)) is not None

    def unlike(self) -> bool:
        """Return True if agents' mean returns differ by more than APART; False for few episodes."""
        if len(self.returns) < EPISODES // 2:
            return False
        returns = np.array(self.returns)
        deviation = float(np.sqrt(returns.var(axis=0).mean()))
        return bool(np.ptp(returns.mean(axis=0)) > APART * deviation)


def _play(rules: Rules[Any], seed: int, played: _Played) -> None:
    """Play random episodes sequentially, and record each step in ``played``."""
    rng = generator(seed, "policy")
    with batch_for(rules, 1, seed) as batch:
        batch.reset()
        while len(played.lengths) < EPISODES and played.steps < MAX_STEPS:
            played.add(batch.step(batch.sample_actions(rng)))


@contextlib.contextmanager
def _seeded_global_generators(seed: int) -> Iterator[None]:
    """Seed the global generators that third-party environments may use; restore them at exit."""
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


# --- Presets -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Preset:
    """Settings for a kind of game, each with its reason."""

    in_turn: bool
    about: str  # further properties of the game, as text
    fits: Callable[[Kind], bool]  # the same as a condition on a kind
    settings: Mapping[str, tuple[Any, str]]  # setting -> value, why
    whole: bool = False  # only for trainers that have all of these settings
    separate: bool = False  # agents with different mean returns get separate policies

    def suits(self, kind: Kind) -> bool:
        """Return True if this preset is for games of this kind."""
        return kind.in_turn == self.in_turn and self.fits(kind)

    def words(self) -> str:
        """Return a description of the games that this preset is for."""
        return f"{'turn-based' if self.in_turn else 'all act at once'}, {self.about}"

    def of(self, trainer: Any) -> dict[str, Any]:
        """Return those settings of the preset that the class ``trainer`` has."""
        allowed = settable_by_presets(trainer)
        values = {name: value for name, (value, _) in self.settings.items() if name in allowed}
        return {} if self.whole and len(values) < len(self.settings) else values


PRESETS: dict[str, Preset] = {
    "images": Preset(
        True,
        "images with sides of 32 or more pixels, in multiples of 8",
        lambda kind: bool(kind.sides) and all(n % 8 == 0 and n >= 32 for n in kind.sides),
        {
            "num_envs": (64, "only one agent decides per step, so collect more steps at once"),
            "n_steps": (32, "the same rollout size as with 32 environments"),
            "n_minibatches": (4, "fewer, larger minibatches: a CNN's cost is mostly per call"),
            "gamma": (0.95, "below 1, so that finishing early is rewarded"),
            "ent_coef": (0.01, "prevents early convergence to a costlier strategy"),
            "ent_coef_end": (0.0, "so that the final policy is nearly deterministic"),
            "cnn_patch": (8, "patches of 8 x 8 take a tenth of the time of 3 x 3 layers"),
            "cnn_arch": ((8, 16), "learned as well as larger networks"),
        },
    ),
    "self-play": Preset(
        True,
        "zero-sum, rewards at the end",
        lambda kind: kind.zero_sum and kind.paid == "at the end",
        {
            "num_envs": (256, "long games with a single reward: play many at once"),
            "n_steps": (32, "long enough for whole games"),
            "gamma": (1.0, "the reward comes at the end, which is always reached"),
            "ent_coef": (0.3, "keeps self-play visiting many positions"),
            "ent_coef_end": (
                0.1,
                "at 0, greedy play loses in positions that self-play no longer visits",
            ),
            "net_arch": ((128, 128), "64 units cannot distinguish all board positions"),
        },
    ),
    "boards": Preset(
        True,
        "zero-sum, rewards at the end, short episodes, boards of 6 x 6 to 128 fields",
        lambda kind: kind.zero_sum and kind.paid == "at the end" and kind.boards and not kind.long,
        {
            "grid_arch": ((16, 16), "the same lines of stones occur everywhere on a board"),
            "net_arch": ((128,), "the CNN already combines neighboring fields"),
            "gamma": (0.8, "the moves after a mistake reveal more about it than the end"),
            "gae_lambda": (0.5, "for the same reason, see benchmarks/LOG.md"),
        },
        whole=True,
    ),
    "every-step": Preset(
        False,
        "long episodes, rewards in every step, no replayed data",
        lambda kind: kind.long and kind.paid == "in every step" and not kind.data,
        {
            "num_envs": (16, "frequent rewards need few steps per update"),
            "n_minibatches": (4, "the same minibatch size as with 32 environments"),
            "learning_rate": (2e-3, "smaller steps, because there are twice as many updates"),
            "gae_lambda": (0.9, "relies more on the critic, which learns from every step"),
            "activation": ("tanh", "learned faster than relu, see benchmarks/LOG.md"),
        },
        whole=True,
        separate=True,  # in arena_v0 a shared network needs up to twice the env steps
    ),
    "team": Preset(
        False,
        "several agents with equal spaces and similar returns, episodes of 10 to 100 steps, no "
        "replayed data, not for every-step",
        lambda kind: (
            kind.agents > 1
            and kind.equal_spaces
            and not (kind.unlike or kind.zero_sum or kind.data)
            and not (kind.long and kind.paid == "in every step")
            and kind.length is not None
            and MEDIUM[0] <= kind.length <= MEDIUM[1]
        ),
        {
            "n_steps": (50, "smaller rollouts, because each is used for more epochs"),
            "n_minibatches": (4, "the same number of optimizer steps per rollout"),
            "n_epochs": (8, "learns more from each rollout, with smaller steps"),
            "learning_rate": (1e-3, "larger steps lead to a poor joint strategy"),
            "anneal": (False, "with a falling rate the team learned less"),
            "gamma": (0.97, "a wasted step costs more"),
            "ent_coef": (0.01, "prevents early convergence to a poor joint strategy"),
        },
        whole=True,
    ),
}
"""Presets by name; if several suit a game, later ones override earlier ones."""


def presets(kind: Kind, trainer: Any) -> dict[str, dict[str, Any]]:
    """Return the presets that suit a kind of game: name -> settings that ``trainer`` has."""
    matching = {name: preset.of(trainer) for name, preset in PRESETS.items() if preset.suits(kind)}
    return {name: settings for name, settings in matching.items() if settings}


# --- Defaults of a run ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Defaults:
    """Default settings of a run for its kind of game, and the message about them."""

    settings: dict[str, Any] = field(default_factory=dict)
    names: tuple[
        str, ...
    ] = ()  # names of presets, and of the environment if its registry entry has settings
    policies: Literal["separate"] | None = None  # None: depends on the spaces only
    kind: Kind | None = None  # None: not detected
    cost: str = ""  # effort of the detection, as text
    no_effect: str = ""  # reason why a named preset has no effect

    def without(self, explicit: Mapping[str, Any]) -> Defaults:
        """Return the defaults without settings that the user set ``explicit``ly.

        An explicit ``ent_coef`` also removes ``ent_coef_end``."""
        policies = self.policies if explicit.get("policies") is None else None
        taken = {*explicit, *(["ent_coef_end"] if "ent_coef" in explicit else [])}
        remaining = {name: value for name, value in self.settings.items() if name not in taken}
        return dataclasses.replace(self, settings=remaining, policies=policies)

    def saved(self) -> dict[str, Any]:
        """Return the entry of config.json: the kind, the presets, and their settings."""
        kind = None if self.kind is None else dataclasses.asdict(self.kind)
        return {"kind": kind, "presets": list(self.names), "settings": self.given()}

    def given(self) -> dict[str, Any]:
        """Return the settings, including ``policies`` if it has a default."""
        return {**self.settings, **({"policies": self.policies} if self.policies else {})}

    def words(self) -> str:
        """Return the message when training starts; "" for no message."""
        kind = "" if self.kind is None else f"Kind of game: {self.kind.words()} ({self.cost}). "
        if self.no_effect:
            return f"Preset {' and '.join(self.names)} changes nothing: {self.no_effect}"
        if not self.given():
            return kind and f"{kind}No preset matches"
        values = ", ".join(f"{name}={value}" for name, value in self.given().items())
        text = f"{kind}Preset {' and '.join(self.names)}: {values}"
        return f'{text}; --preset none (preset="none") disables them'


def settable_by_presets(trainer: Any) -> set[str]:
    """Return the names of the settings that presets may set for a trainer class."""
    names = {field.name for field in dataclasses.fields(trainer.Settings)}
    for attribute in ("unused", "unset_by_presets"):
        names -= set(getattr(trainer.Settings, attribute, ()))
    return names


def defaults_for(rules: Rules[Any], trainer: Any, seed: int, preset: str = "auto") -> Defaults:
    """Return the defaults of a run in a game.

    Args:
        rules: rules of the game.
        trainer: a trainer class, or the result of ``corral.trainers.base.settings_source``;
            settings that it lacks are skipped.
        seed: seed of the random episodes that detect the kind.
        preset: "auto": by the kind of game and its entry in ``corral.envs.registry``; "none"; or
            the name of one of PRESETS, which needs no random episodes.

    Raises UnknownNameError for an unknown preset, and the exceptions of the environment.
    """
    if preset in PRESETS:
        settings = PRESETS[preset].of(trainer)
        which = "lacks some" if PRESETS[preset].whole else "has none"
        no_effect = "" if settings else f"trainer {trainer.name} {which} of its settings"
        return Defaults(settings, (preset,), no_effect=no_effect)
    if preset == "none":
        return Defaults()
    if preset != "auto":
        raise UnknownNameError.of("preset", str(preset), [*PRESETS, "auto", "none"])
    began = time.perf_counter()
    kind = kind_of(rules, seed)
    spent = f"{kind.episodes} random episodes, {time.perf_counter() - began:.2f} s"
    matching = presets(kind, trainer)
    allowed = settable_by_presets(trainer)
    entry = REGISTERED[rules.name].settings if rules.name in REGISTERED else {}
    if of_env := {name: value for name, value in entry.items() if name in allowed}:
        matching[rules.name] = of_env
    settings = {name: value for group in matching.values() for name, value in group.items()}
    separate = kind.unlike and any(PRESETS[name].separate for name in matching if name in PRESETS)
    return Defaults(settings, tuple(matching), "separate" if separate else None, kind, spent)
