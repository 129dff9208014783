"""What a pool of frozen snapshots is: how often it is played against, and who is drawn from it.

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
    """Self-play against frozen snapshots of the policies that learn.

    In a share ``past`` of the episodes one seat learns, and a snapshot plays each other one; in the
    rest all play as they are now, as without a pool. Who plays is drawn per environment and
    episode. A snapshot never changes, and nothing is learned from what it plays. Twenty cost little
    more than one: see ``corral.trainers.on_policy.frozen``, also for networks of which few are
    drawn in a rollout.

    Args:
        past: share of the episodes against snapshots: 0 to 1.
        every: env steps from one snapshot to the next; the first is of the beginning.
        keep: snapshots of each policy that are drawn from. Beyond it those go that are nearest to
            others in time, so that the rest stay spread over the training.
        draw: "pfsp": the more often the worse the learner does against them, by (1 - p)^2 of its
            share of points p (prioritized fictitious self-play; Vinyals et al., Grandmaster level
            in StarCraft II, 2019); "uniform"; or "latest", the newest alone.
        seat: the agent that learns in those episodes; None: drawn among those that learn.
        also: other players among the opponents, name -> share of what is drawn: reference players,
            or runs ("runs/a@best"). Snapshots have the rest.
        best: most episodes in each seat against each opponent, by which checkpoints are compared;
            fewer where they would take more than about 5 % of the time. 0: the latest is the best.

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
            raise ValueError(f"self_play: also={self.also!r:.80}: give a mapping, name -> share")
        if not isinstance(self.seat, str | None):
            raise ValueError(f"self_play: seat={self.seat!r:.80}: give the name of an agent")
        for name, value in (("past", self.past), *self.also.items()):
            if nonnegative_float(f"self_play: {name}", value) > 1:
                raise ValueError(f"self_play: {name}={value}: give a share, 0 to 1")
        object.__setattr__(self, "every", _whole("every", self.every, 1))
        object.__setattr__(self, "keep", _whole("keep", self.keep, 1))
        object.__setattr__(self, "best", _whole("best", self.best, 0))
        object.__setattr__(self, "also", dict(self.also))
        one_of("self_play: draw", self.draw, DRAWS)
        if sum(self.also.values()) > 1 + 1e-9:
            raise ValueError(f"self_play: also={self.also}: the shares add up to more than 1")

    @classmethod
    def of(cls, given: Any) -> Pool:
        """Return a pool as it is ``given``: one, a mapping, or text "past=0.2,draw=uniform".

        In text, ``also`` is "perfect:0.1+runs/a@best:0.2". Raises ArgumentError, ValueError.
        """
        if isinstance(given, Pool):
            return given
        values: Any = _parsed(given) if isinstance(given, str) else given
        known = [each.name for each in dataclasses.fields(cls)]
        if not isinstance(values, Mapping) or not values:
            raise ArgumentError(
                f"self_play={given!r:.80}: give a corral.Pool, or text such as past=0.2,every=20000"
            )
        for name in values:
            if name not in known:
                raise ArgumentError(
                    f"self_play has no part {name!r}{hint(str(name), known)} Known: "
                    f"{', '.join(known)}"
                )
        if values.get("seat") == "none":  # as files of settings say it
            values = {**values, "seat": None}
        return cls(**values)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values, for config.json."""
        return {**vars(self), "also": dict(self.also)}

    def notes(self, steps: int, policies: Mapping[str, str]) -> list[str]:
        """Return what to say of a pool that does not do what it is for, in a run of so many env
        ``steps``; ``policies`` are those that learn, by agent."""
        found = []
        if not self.past:
            found.append("past is 0: nobody plays against the pool")
        elif self.every >= steps:
            found.append(
                f"a snapshot every {self.every:,} of {steps:,} env steps: its pool stays what it "
                "began as; give a smaller every, such as a twentieth of the steps"
            )
        idle = set(policies.values()) - {policies.get(str(self.seat))}
        if self.past == 1 and self.seat is not None and idle:
            found.append(
                f"past is 1 and {self.seat} learns in every episode: {', '.join(sorted(idle))} "
                "never learns"
            )
        return [f"--self-play (self_play=): {each}" for each in found]

    def require_seats(self, agents: Sequence[str], learners: Sequence[str]) -> None:
        """Raise ValueError where nobody could play against anybody."""
        if len(agents) < 2:
            raise ValueError(
                f"self_play: {agents[0]} is alone in its game; self-play needs another agent"
            )
        if self.seat is not None and self.seat not in learners:
            known = ", ".join(learners)
            raise ValueError(
                f"self_play: seat={self.seat}: no policy learns there; give one of {known}"
            )
        if len(learners) < 2 and not self.also:
            raise ValueError(
                f"self_play: {learners[0]} alone learns, and nobody else has snapshots; give "
                "opponents instead (--opponent)"
            )


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        return nonnegative_int(name, value, least)
    except ValueError:  # "keep=0" would be taken for the option --keep
        raise ValueError(
            f"self_play: {name} is {value!r}: give a whole number, {least} or more"
        ) from None


def _parsed(text: str) -> dict[str, Any]:
    """Return the parts of "past=0.2,every=20000"."""
    found: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise ArgumentError(
                f"self_play={text}: {part!r} is no name=value; give text such as "
                "past=0.2,every=20000,draw=pfsp"
            )
        name = name.strip()
        if name in found:
            raise ArgumentError(f"self_play={text}: {name} is given twice")
        if name == "also":
            shares = [_share_of(text, each) for each in value.split("+")]
            if len(also := dict(shares)) < len(shares):
                raise ArgumentError(f"self_play={text}: also={value} names a player twice")
            found[name] = also
        elif name in ("draw", "seat"):
            found[name] = value.strip()
        else:
            found[name] = _number(text, name, value)
    return found


def _share_of(text: str, part: str) -> tuple[str, float]:
    name, colon, share = part.rpartition(":")
    if not colon or not name:
        raise ArgumentError(
            f"self_play={text}: also={part}: give name:share, such as perfect:0.1+random:0.1"
        )
    return name, _number(text, name, share)


def _number(text: str, name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ArgumentError(f"self_play={text}: {name}={value} is no number") from None


# --- Who is drawn, and who goes -------------------------------------------------------------------

FORGETTING = 0.98
"""What a game counts for after one more."""


class Results(dict[tuple[str, str], list[float]]):
    """(learner, player) -> games and points of those games; recent ones count for more."""

    def add(self, learner: str, player: str, won: Array) -> None:
        """Add games with the points ``won`` [E], the oldest first."""
        games, points = self.get((learner, player), (0.0, 0.0))
        weights = FORGETTING ** np.arange(len(won))[::-1]
        kept = FORGETTING ** len(won)
        found = [games * kept + weights.sum(), points * kept + weights @ won]
        self[learner, player] = [float(each) for each in found]

    def points(self, learner: str, players: Iterable[str]) -> Array:
        """Return the share of points that a policy has won against each player: float64 [K].

        Half a point of one game stands beside what was played.
        """
        found = [self.get((learner, player), (0.0, 0.0)) for player in players]
        return np.array([(points + 0.5) / (games + 1.0) for games, points in found])


def draw_weights(draw: str, points: Array) -> Array:
    """Return the probabilities float64 [K] of K snapshots, the oldest first, of which the learner
    has won a share of ``points`` float64 [K] each."""
    weights = np.ones(len(points))
    if draw == "latest":
        weights[:-1] = 0.0
    elif draw == "pfsp":
        weights = (1.0 - points) ** 2
        if weights.sum() < 1e-12:  # it wins every game against all of them
            weights = np.ones(len(points))
    return np.asarray(weights / weights.sum())


def to_drop(steps: Sequence[int]) -> int:
    """Return which of the snapshots at ``steps``, in order, is to go: one whose neighbours in time
    are nearest, neither the oldest nor the newest; of two the oldest goes."""
    if len(steps) < 3:
        return 0
    at = np.asarray(steps)
    return int(np.argmin(at[2:] - at[:-2])) + 1
