"""Configuration of a pool of frozen snapshots for self-play, and sampling from the pool.

corral.train("tictactoe_v0", self_play=corral.Pool(past=0.2, draw="pfsp"))
corral train tictactoe_v0 --self-play past=0.2,every=20000,keep=20,draw=pfsp
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corral.envs.arguments import nonnegative_float, nonnegative_int, one_of
from corral.envs.core import Array
from corral.errors import ArgumentError
from corral.hints import hint

__all__ = ["DRAWS", "Pool", "Results", "draw_weights", "to_drop"]

DRAWS = ("pfsp", "uniform", "latest")


@dataclass(frozen=True)
class Pool:
    """Self-play against frozen snapshots of the trained policies.

    In a share ``past`` of the episodes one seat learns, and snapshots play the other seats. In the
    other episodes the current policies play all seats. The players are drawn per environment copy
    and episode. Snapshots never change, and their decisions are not trained on. Twenty snapshots
    cost little more than one: see ``corral.trainers.on_policy.frozen``, also for networks of which
    few are drawn in a rollout.

    Args:
        past: share of the episodes against snapshots: 0 to 1.
        every: env steps between snapshots; the first is taken at the start.
        keep: maximum number of snapshots per policy. Beyond it, the snapshots closest to their
            neighbors in time are dropped, so that the rest stay spread over the training.
        draw: "pfsp": sample snapshots in proportion to (1 - p)^2, with p the learner's share of
            points against them (prioritized fictitious self-play; Vinyals et al., Grandmaster level
            in StarCraft II, 2019); "uniform"; or "latest", only the newest.
        seat: the agent that learns in episodes against snapshots; None: drawn at random among the
            agents with trained policies.
        also: additional opponents, name -> probability of being drawn: reference players, or runs
            ("runs/a@best"). Snapshots get the remaining probability.
        best: maximum episodes per seat and opponent for comparing checkpoints; fewer if they would
            take more than about 5 % of the time. 0: the latest checkpoint is the best.

    Raises ValueError for values out of range.
    """

    past: float = 0.2
    every: int = 20_000
    keep: int = 20
    draw: str = "pfsp"
    seat: str | None = None
    also: Mapping[str, float] = field(default_factory=dict)
    best: int = 20

    def __post_init__(self) -> None:
        if not isinstance(self.also, Mapping):
            raise ValueError(f"self_play: also={self.also!r:.80}: pass a mapping, name -> share")
        if not isinstance(self.seat, str | None):
            raise ValueError(f"self_play: seat={self.seat!r:.80}: pass the name of an agent")
        for name, value in (("past", self.past), *self.also.items()):
            if nonnegative_float(f"self_play: {name}", value) > 1:
                raise ValueError(f"self_play: {name}={value}: pass a share, 0 to 1")
        object.__setattr__(self, "every", _whole("every", self.every, 1))
        object.__setattr__(self, "keep", _whole("keep", self.keep, 1))
        object.__setattr__(self, "best", _whole("best", self.best, 0))
        object.__setattr__(self, "also", dict(self.also))
        one_of("self_play: draw", self.draw, DRAWS)
        if sum(self.also.values()) > 1 + 1e-9:
            raise ValueError(f"self_play: also={self.also}: the shares sum to more than 1")

    @classmethod
    def of(cls, given: Any) -> Pool:
        """Return a pool from a pool, a mapping, or text such as "past=0.2,draw=uniform".

        In text, ``also`` is "perfect:0.1+runs/a@best:0.2". Raises ArgumentError, ValueError.
        """
        if isinstance(given, Pool):
            return given
        values: Any = _parsed(given) if isinstance(given, str) else given
        names = [part.name for part in dataclasses.fields(cls)]
        if not isinstance(values, Mapping) or not values:
            raise ArgumentError(
                f"self_play={given!r:.80}: pass a corral.Pool, or text such as past=0.2,every=20000"
            )
        for name in values:
            if name not in names:
                raise ArgumentError(
                    f"self_play has no field {name!r}{hint(str(name), names)} Known: "
                    f"{', '.join(names)}"
                )
        if values.get("seat") == "none":  # None in configuration files
            values = {**values, "seat": None}
        return cls(**values)

    def as_json(self) -> dict[str, Any]:
        """Return the pool as JSON values, for config.json."""
        return {**vars(self), "also": dict(self.also)}

    def notes(self, steps: int, policies: Mapping[str, str]) -> list[str]:
        """Return warnings about an ineffective pool, in a run of ``steps`` env steps; ``policies``
        are the trained policies by agent."""
        notes = []
        if not self.past:
            notes.append("past is 0: the pool is never used")
        elif self.every >= steps:
            notes.append(
                f"a snapshot every {self.every:,} of {steps:,} env steps: the pool keeps only its "
                "first snapshot; use a smaller every, such as a twentieth of the steps"
            )
        idle = set(policies.values()) - {policies.get(str(self.seat))}
        if self.past == 1 and self.seat is not None and idle:
            notes.append(
                f"past is 1 and {self.seat} learns in every episode, so these policies never "
                f"learn: {', '.join(sorted(idle))}"
            )
        return [f"--self-play (self_play=): {note}" for note in notes]

    def require_seats(self, agents: Sequence[str], learners: Sequence[str]) -> None:
        """Raise ValueError if no agent can play against a snapshot."""
        if len(agents) < 2:
            raise ValueError(
                f"self_play: {agents[0]} is the only agent of its game; self-play needs another one"
            )
        if self.seat is not None and self.seat not in learners:
            allowed = ", ".join(learners)
            raise ValueError(
                f"self_play: seat={self.seat} has no trained policy; pass one of {allowed}"
            )
        if len(learners) < 2 and not self.also:
            raise ValueError(
                f"self_play: only {learners[0]} is trained, so no other agent has snapshots; pass "
                "opponents instead (--opponent)"
            )


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        return nonnegative_int(name, value, least)
    except ValueError:  # "keep=0" would read as the option --keep
        raise ValueError(
            f"self_play: {name} is {value!r}: pass a whole number, {least} or more"
        ) from None


def _parsed(text: str) -> dict[str, Any]:
    """Parse text such as "past=0.2,every=20000" to a dict."""
    values: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise ArgumentError(
                f"self_play={text}: {part!r} is not name=value; pass text such as "
                "past=0.2,every=20000,draw=pfsp"
            )
        name = name.strip()
        if name in values:
            raise ArgumentError(f"self_play={text}: {name} is set twice")
        if name == "also":
            shares = [_share_of(text, share) for share in value.split("+")]
            if len(also := dict(shares)) < len(shares):
                raise ArgumentError(f"self_play={text}: also={value} contains a player twice")
            values[name] = also
        elif name in ("draw", "seat"):
            values[name] = value.strip()
        else:
            values[name] = _number(text, name, value)
    return values


def _share_of(text: str, part: str) -> tuple[str, float]:
    name, colon, share = part.rpartition(":")
    if not colon or not name:
        raise ArgumentError(
            f"self_play={text}: also={part}: pass name:share, such as perfect:0.1+random:0.1"
        )
    return name, _number(text, name, share)


def _number(text: str, name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ArgumentError(f"self_play={text}: {name}={value} is not a number") from None


# --- Sampling and dropping snapshots --------------------------------------------------------------

FORGETTING = 0.98
"""Factor by which each further game reduces the weight of earlier games."""


class Results(dict[tuple[str, str], list[float]]):
    """(learner, player) -> weighted games and points; recent games have more weight."""

    def add(self, learner: str, player: str, won: Array) -> None:
        """Add games with the points ``won`` [E], oldest first."""
        games, points = self.get((learner, player), (0.0, 0.0))
        weights = FORGETTING ** np.arange(len(won))[::-1]
        kept = FORGETTING ** len(won)
        updated = [games * kept + weights.sum(), points * kept + weights @ won]
        self[learner, player] = [float(number) for number in updated]

    def points(self, learner: str, players: Iterable[str]) -> Array:
        """Return the learner's share of points against each player: float64 [K].

        One virtual game with half a point is added to each count.
        """
        results = [self.get((learner, player), (0.0, 0.0)) for player in players]
        return np.array([(points + 0.5) / (games + 1.0) for games, points in results])


def draw_weights(draw: str, points: Array) -> Array:
    """Return the sampling probabilities float64 [K] of K snapshots, oldest first.

    ``points`` float64 [K] is the learner's share of points against each."""
    weights = np.ones(len(points))
    if draw == "latest":
        weights[:-1] = 0.0
    elif draw == "pfsp":
        weights = (1.0 - points) ** 2
        if weights.sum() < 1e-12:  # the learner wins every game
            weights = np.ones(len(points))
    return np.asarray(weights / weights.sum())


def to_drop(steps: Sequence[int]) -> int:
    """Return the index of the snapshot to drop, given ``steps`` in order: the one with the closest
    neighbors in time, except the oldest and the newest; the older one in a tie."""
    if len(steps) < 3:
        return 0
    at = np.asarray(steps)
    return int(np.argmin(at[2:] - at[:-2])) + 1
