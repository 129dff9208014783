"""Find the cheapest way to copy the games of an environment, and prove it by playing.

A game is copied in mid-episode. A first copy plays other actions to the end. Then the original and
two more copies play the same actions. All of them must agree in observations, masks, states,
rewards and ends. Otherwise the next way is tried.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.adapters.seats import random_actions
from corral.adapters.snapshots.forks import Fork
from corral.adapters.snapshots.games import Deepcopy, Game, Pickled, Replay, SnapshotError, Way
from corral.adapters.zoo.batch import ZooRules
from corral.adapters.zoo.copies import CopyStep, Observed
from corral.adapters.zoo.spec import leaves
from corral.envs.core import generator
from corral.envs.masks import MASK

__all__ = ["CHANCES", "WAYS", "Copied", "has_chance", "prove"]

WAYS: tuple[type[Pickled | Replay | Fork], ...] = (Pickled, Deepcopy, Replay, Fork)
"""From the cheapest to the dearest."""

LONGEST = 200
"""Maximum number of steps of an episode in the proof."""

SECONDS = 0.5
"""Approximate seconds for each part of an episode; slow environments get fewer steps."""

SEEDS = 2
"""Number of episodes that are played in the proof, with copies at a third and at two thirds."""

CHANCES = 20
"""Number of pairs of episodes in the search for chance."""

TIMED = 0.2
"""Seconds in which copies are counted."""


@dataclass(frozen=True)
class Copied:
    """The way in which an environment is copied, as proved by playing."""

    way: str  # "pickle", "deepcopy", "replay" or "fork"
    per_second: float  # copies per second in mid-episode
    redraws: bool  # copies draw new chance from global generators, which no seed covers
    repeats: bool  # the seed and the actions determine an episode
    refused: tuple[tuple[str, str], ...] = ()  # ways that failed, and the reason

    def text(self) -> str:
        """Return the way, its speed, and the reasons against the cheaper ways, as sentences."""
        lines = [f"States are copied by {self.way}, {self.per_second:,.0f} per second."]
        if self.redraws:
            lines.append(
                "The environment draws from global generators (random, numpy.random), which "
                "no seed covers: the copies of a state have different chance."
            )
        elif not self.repeats:
            lines.append("The seed does not cover all chance, but the copies of a state share it.")
        reasons: dict[str, list[str]] = {}
        for way, reason in self.refused:
            reasons.setdefault(reason, []).append(way)
        lines += [f"Not by {' or '.join(ways)}: {reason}." for reason, ways in reasons.items()]
        return " ".join(lines)


def prove(rules: ZooRules) -> tuple[Way, Copied]:
    """Return the cheapest way that copies games of ``rules`` exactly, and its report.

    Raises SnapshotError, with the reason for each way, if all of them fail.
    """
    refused: list[tuple[str, str]] = []
    chance = _global_chance()
    try:
        for make in WAYS:
            way = None
            try:
                way = make(rules)
                return way, _proved(way, rules, tuple(refused))
            except Exception as error:  # copies may raise any exception of the environment
                if way is not None:
                    way.close()
                kind = "" if isinstance(error, SnapshotError) else f"{type(error).__name__}: "
                refused.append((make.name, f"{kind}{error}"))
    finally:
        _set_global_chance(chance)
    reasons = "; ".join(f"{way}: {reason}" for way, reason in refused)
    raise SnapshotError(f"states of {rules.name} cannot be copied ({reasons})")


def has_chance(way: Way, rules: ZooRules) -> bool:
    """Return True if the seed changes one of ``CHANCES`` episodes with the same actions."""
    for number in range(CHANCES):
        pair = zip(
            _played(way, rules, number, 0), _played(way, rules, number, 1 + number), strict=False
        )
        if any(_difference(*both) is not None for both in itertools.islice(pair, LONGEST)):
            return True
    return False


def _proved(way: Way, rules: ZooRules, refused: tuple[tuple[str, str], ...]) -> Copied:
    """Return the report of a way. Raises SnapshotError with the first difference."""
    first = way.make()
    first.begin(generator(0, "env"))
    first.copy()  # many failures show at once
    chance, repeats = _global_chance(), True
    lengths = [_length(way, rules, seed) for seed in range(SEEDS)]
    redraws = not _same_chance(chance, _global_chance())
    if redraws and isinstance(way, Replay):
        raise SnapshotError("chance comes from global generators, which reset(seed) does not cover")
    game: Game | None = None
    for seed, length in enumerate(lengths):
        repeats &= _repeats(way, rules, seed)
        for at in sorted({length // 3, 2 * length // 3}):
            game = _Episode(way, rules, seed, at).compare(same_chance=redraws)
    assert game is not None
    return Copied(way.name, _speed(game), redraws, repeats, refused)


def _length(way: Way, rules: ZooRules, seed: int) -> int:
    """Return the number of steps of an episode, at most ``LONGEST``; fewer if steps are slow."""
    began = time.monotonic()
    for number, _ in enumerate(_played(way, rules, seed), 1):
        if number == LONGEST or time.monotonic() - began > SECONDS:
            break
    return number


def _played(
    way: Way, rules: ZooRules, seed: int, env_seed: int | None = None
) -> Iterator[CopyStep]:
    """Play an episode with random actions. ``env_seed`` is the environment's; None: ``seed``."""
    game = way.make()
    game.begin(generator(seed if env_seed is None else env_seed, "env"))
    rng, moved = generator(seed, "eval"), None
    while moved is None or moved.final is None:
        moved = game.play(_drawn(rules, game.look, rng))
        yield moved


def _repeats(way: Way, rules: ZooRules, seed: int) -> bool:
    """Return True if two games with the same seed play the same episode."""
    ends = time.monotonic() + 2 * SECONDS
    pairs = zip(*(_played(way, rules, seed) for _ in range(2)), strict=False)
    for pair in itertools.islice(pairs, LONGEST):
        if _difference(*pair) is not None:
            return False
        if time.monotonic() > ends:
            break
    return True


def _drawn(rules: ZooRules, look: Observed, rng: np.random.Generator) -> dict[str, Any]:
    """Return random legal actions of the acting agents."""
    return {
        agent: random_actions(
            rules.action_space(agent), _row(look.observations[i].get(MASK)), 1, rng
        )[0]
        for i, agent in enumerate(rules.agents)
        if look.acting[i]
    }


def _row(mask: Any) -> Any:
    return None if mask is None else mask[None]


class _Episode:
    """An episode in which a game is copied before step ``at``."""

    def __init__(self, way: Way, rules: ZooRules, seed: int, at: int) -> None:
        self.way, self.rules, self.seed, self.at = way, rules, seed, at

    def compare(self, *, same_chance: bool = False) -> Game:
        """Return a copy of the game. Raises SnapshotError at the first difference.

        With ``same_chance``, the games draw the same numbers from the global generators.
        """
        game, rng = self.way.make(), generator(self.seed, "eval")
        game.begin(generator(self.seed, "env"))
        for _ in range(self.at):
            if game.play(_drawn(self.rules, game.look, rng)).final is not None:
                raise SnapshotError("the seed and the actions do not determine an episode")
        self.way.require(game)
        kept = game.copy()
        self._spoil(kept.copy())
        try:
            self._compare(game, kept, rng, same_chance)
        except SnapshotError:
            raise
        except Exception as error:  # legal actions, which raise nothing without copies
            raise SnapshotError(
                f"the copies share state: after one of step {self.at} was played on, the original "
                f"or another copy raises {type(error).__name__}: {error}"
            ) from error
        return kept

    def _compare(self, game: Game, kept: Game, rng: np.random.Generator, same_chance: bool) -> None:
        """Play ``game`` and copies of ``kept``. Raises SnapshotError at the first difference."""
        one = kept.copy()
        for twin in (kept, one):
            if (difference := _difference(game.look, twin.look)) is not None:
                raise SnapshotError(f"a copy of step {self.at} differs at once in {difference}")
        steps: list[tuple[dict[str, Any], CopyStep, Any]] = []
        ends = time.monotonic() + 2 * SECONDS
        while len(steps) < LONGEST and (not steps or time.monotonic() < ends):
            actions, chance = _drawn(self.rules, game.look, rng), _global_chance()
            moved = game.play(actions)
            steps.append((actions, moved, chance))
            self._require_same(one, len(steps), steps[-1], same_chance)
            if moved.final is not None:
                break
        two = kept.copy()
        for number, step in enumerate(steps, 1):
            self._require_same(two, number, step, same_chance)

    def _spoil(self, game: Game) -> None:
        """Play other actions to the end, which must not change the other copies."""
        rng, ends = generator(self.seed, "policy"), time.monotonic() + SECONDS
        for _ in range(LONGEST):
            over = game.play(_drawn(self.rules, game.look, rng)).final is not None
            if over or time.monotonic() > ends:
                break

    def _require_same(
        self, twin: Game, number: int, step: tuple[dict[str, Any], CopyStep, Any], same: bool
    ) -> None:
        actions, moved, chance = step
        now = _global_chance()
        if same:
            _set_global_chance(chance)
        try:
            difference = _difference(moved, twin.play(actions))
        finally:
            if same:
                _set_global_chance(now)
        if difference is not None:
            raise SnapshotError(
                f"a copy of step {self.at} differs from the original in {difference}, "
                f"{number} step{'s' * (number != 1)} later"
            )


def _difference(one: Any, two: Any) -> str | None:
    """Return the name of a value that differs between two looks or two steps, or None."""
    for name, value in vars(one).items():
        other = vars(two)[name]
        if isinstance(value, Observed):
            if (part := _difference(value, other)) is not None:
                return part
        elif name in ("info", "final"):  # infos may hold times; an end shows in the flags
            continue
        elif not all(map(_equal, _arrays(value), _arrays(other))):
            return str(name)
    if isinstance(one, CopyStep) and (one.final is None) != (two.final is None):
        return "the end of the episode"
    return None


def _arrays(value: Any) -> list[Any]:
    parts = value if isinstance(value, list) else [value]
    return [leaf for part in parts for leaf in leaves(part)]


def _equal(one: Any, two: Any) -> bool:
    return bool(np.array_equal(one, two, equal_nan=one.dtype.kind in "fc"))


def _global_chance() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()  # noqa: NPY002  (environments may use it)


def _same_chance(one: tuple[Any, Any], two: tuple[Any, Any]) -> bool:
    return one[0] == two[0] and all(map(np.array_equal, one[1], two[1]))


def _set_global_chance(state: tuple[Any, Any]) -> None:
    random.setstate(state[0])
    np.random.set_state(state[1])  # noqa: NPY002


def _speed(game: Game) -> float:
    """Return the number of copies of ``game`` per second."""
    began, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < TIMED or count < 3:
        game.copy()
        count += 1
    return count / passed
