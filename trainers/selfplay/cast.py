"""Assign players to seats, for each environment and episode: learners, snapshots, other players.

A trainer with a ``Cast`` works as without one, except in the assigned seats: there a frozen player
acts and nothing is learned. Each episode names its players (``Episode.players``), so that the
returns of a policy only count the seats that it played itself.

Players are drawn by ``EpisodeDraws`` from numbers that belong to a row and an episode. The
assignment and the snapshots are part of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from corral.envs.core import Array, Rules, generator
from corral.envs.episode_stats import EndedEpisodes, Episode
from corral.envs.policy import Policy
from corral.errors import CheckpointError
from corral.trainers.content import require_arrays, shapes_of
from corral.trainers.opponents.draws import EpisodeDraws
from corral.trainers.pool import Pool, Results, draw_weights, to_drop
from corral.trainers.selfplay.also import OtherSeats, players_of

__all__ = ["LEARNS", "STREAM", "Cast", "Frozen", "Snapshot"]

LEARNS = -1
"""Code of a player in a seat: -1 is the current policy; 0 .. K - 1 are the K snapshots of the
policy; -2, -3, ... are the players of ``Pool.also``."""

STREAM = 10**9
"""First row of random numbers for pools; mixes of fixed opponents use smaller rows."""

FEW = 8
"""Maximum number of snapshots drawn for a rollout if each needs a separate forward pass."""


class Snapshot(Protocol):
    """A policy frozen after a number of env steps."""

    name: str  # <policy>@<env steps>
    env_steps: int
    digest: str  # SHA-256 of ``encoded``
    drawn: bool  # False: it is removed after its current episodes

    def encoded(self) -> bytes:
        """Return the snapshot as the bytes of a safetensors file."""
        ...


class Frozen(Protocol):
    """The snapshots of one policy, in the order of creation."""

    @property
    def snapshots(self) -> Sequence[Snapshot]: ...

    @property
    def stacks(self) -> bool:
        """Return True if many snapshots act in one forward pass, at little extra cost."""
        ...

    def add(self, env_steps: int) -> Any:
        """Freeze the current policy."""
        ...

    def remove(self, chosen: Sequence[int]) -> None:
        """Remove the snapshots at these indices."""
        ...

    def policy(self, number: int, agent: str) -> Policy:
        """Return the policy of ``agent`` from snapshot ``number``."""
        ...

    def save(self) -> tuple[Any, dict[str, Array]]:
        """Return a JSON value and arrays by name."""
        ...

    def load(self, document: Any, arrays: Mapping[str, Array]) -> None:
        """Continue from the result of ``save``. Raises CheckpointError if it does not fit."""
        ...


class Cast:
    """Draws the players of the seats of B environments, and counts the results of learners."""

    def __init__(
        self,
        pool: Pool,
        rules: Rules[Any],
        *,
        num_envs: int,
        seed: int,
        policy_of: Mapping[str, str],
        frozen: Mapping[str, Frozen],
        runs: Mapping[str, Any],
        clock: Callable[[], int],
    ) -> None:
        """``policy_of``: learning agent -> its policy. ``frozen``: policy -> its snapshots.
        ``runs``: see ``Seats.runs``. ``clock`` returns the env steps so far."""
        self.pool, self.frozen, self._clock = pool, frozen, clock
        self.agents: tuple[str, ...] = tuple(rules.agents)
        self.num_envs, self.seed = num_envs, seed
        self.policy_of = {agent: policy_of[agent] for agent in self.agents if agent in policy_of}
        self.also = players_of(pool, rules, list(self.policy_of), runs)
        self.seats = [pool.seat] if pool.seat is not None else list(self.policy_of)
        self.seat_index = np.array([self.agents.index(agent) for agent in self.seats])
        self.draws = EpisodeDraws(seed, num_envs, 2 + len(self.agents), first_row=STREAM)
        self.episode = np.zeros(num_envs, dtype=np.int64)  # number of the next episode of each row
        self.cast = np.full((num_envs, len(self.agents)), LEARNS)  # see ``LEARNS``
        self.learner_at = np.full(num_envs, -1)  # the learning agent, in rows with assigned players
        self.results = Results()  # results of learners against players
        self._played: list[tuple[Array, Array, Array]] = []  # games not yet in ``results``
        self._drawn_from: dict[tuple[str, str], tuple[Array, Array]] = {}  # see ``_chances``
        self.others = OtherSeats(
            self.also, rules, num_envs=num_envs, seed=seed, last_row=STREAM - 2
        )
        self._taken = -1  # multiple of ``every`` of the latest snapshot

    # --- Snapshots -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Take the first snapshots and assign the first episodes, unless already done."""
        if self._taken < 0:
            self.take()
            self._draw(np.arange(self.num_envs))

    def take(self) -> None:
        """Count the games of an update for later draws, and take snapshots if they are due."""
        self._count()
        self._drawn_from.clear()
        now = self._clock()
        due = now // self.pool.every
        if due <= self._taken:
            return
        self._taken = due
        for frozen in self.frozen.values():
            frozen.add(now)
            drawn = [i for i, snapshot in enumerate(frozen.snapshots) if snapshot.drawn]
            if len(drawn) > self.pool.keep:
                one = drawn[to_drop([frozen.snapshots[i].env_steps for i in drawn])]
                frozen.snapshots[one].drawn = False
        self._remove_unused()

    def _remove_unused(self) -> None:
        """Remove snapshots that are no longer drawn and play in no current episode."""
        for name, frozen in self.frozen.items():
            own = [i for i, agent in enumerate(self.agents) if self.policy_of.get(agent) == name]
            cast = self.cast[:, own]
            unused = [
                i
                for i, snapshot in enumerate(frozen.snapshots)
                if not snapshot.drawn and not (cast == i).any()
            ]
            if unused:
                for i in unused:
                    for learner in self.frozen:
                        self.results.pop((learner, frozen.snapshots[i].name), None)
                frozen.remove(unused)
                for i in reversed(unused):
                    cast[cast > i] -= 1
                self.cast[:, own] = cast

    # --- Episodes --------------------------------------------------------------------------------

    def ended(self, episodes: EndedEpisodes) -> list[Episode]:
        """Return the episodes with their players, and assign the next episodes of their rows."""
        listed, rows = list(episodes), episodes.rows
        if not listed:
            return listed
        cast, learner_at = self.cast[rows], self.learner_at[rows]
        against = np.flatnonzero(learner_at >= 0)
        if len(against):
            self._played.append((learner_at[against], cast[against], episodes.returns[against]))
            for d, row in zip(against.tolist(), rows[against].tolist(), strict=True):
                listed[d].players.update(self.players_in(row))
        self._draw(rows)
        return listed

    def restart(self) -> None:
        """Assign new players in all rows, for newly started episodes."""
        self._drawn_from.clear()
        self._draw(np.arange(self.num_envs))
        self.begin_rows(np.arange(self.num_envs))

    def players_in(self, row: int) -> dict[str, str]:
        """Return the assigned players of a row's current episode, by agent, except learners."""
        cast = self.cast[row].tolist()
        return {
            agent: self._name(agent, number)
            for agent, number in zip(self.agents, cast, strict=True)
            if number != LEARNS
        }

    def _name(self, agent: str, number: int) -> str:
        if number >= 0:
            return self.frozen[self.policy_of[agent]].snapshots[number].name
        return list(self.also)[-2 - number]

    def _count(self) -> None:
        """Count the games since the last call."""
        if not self._played:
            return
        learner_at, cast, returns = map(np.concatenate, zip(*self._played, strict=True))
        self._played = []
        ahead = returns[np.arange(len(returns)), learner_at, None] - returns  # [E, N]
        points = np.where(abs(ahead) < 1e-9, 0.5, ahead > 0)
        for seat, at in zip(self.seats, self.seat_index, strict=True):
            for i, agent in enumerate(self.agents):
                numbers = np.where(learner_at == at, cast[:, i], LEARNS)
                for number in np.unique(numbers[numbers != LEARNS]).tolist():
                    won = points[numbers == number, i]
                    self.results.add(self.policy_of[seat], self._name(agent, number), won)

    def _draw(self, rows: Array) -> None:
        """Draw the players of the next episodes of ``rows`` [R]."""
        chance = self.draws(rows, self.episode[rows])  # [R, 2 + N]
        self.episode[rows] += 1
        self.cast[rows] = LEARNS
        self.learner_at[rows] = -1
        against = np.flatnonzero(chance[:, 0] < self.pool.past)
        if not len(against):
            return
        seat = (chance[against, 1] * len(self.seats)).astype(np.int64)
        for number in np.unique(seat):
            learner, at = self.seats[number], self.seat_index[number]
            own = against[seat == number]
            self.learner_at[rows[own]] = at
            for i, agent in enumerate(self.agents):
                if i != at and agent in self.policy_of:
                    pair = self.policy_of[learner], agent
                    if pair not in self._drawn_from:
                        self._drawn_from[pair] = self._chances(learner, agent)
                    numbers, sums = self._drawn_from[pair]
                    drawn = np.searchsorted(sums, chance[own, 2 + i], side="right")
                    self.cast[rows[own], i] = numbers[np.minimum(drawn, len(numbers) - 1)]

    def _chances(self, learner: str, agent: str) -> tuple[Array, Array]:
        """Return the codes of possible players of ``agent`` while ``learner`` learns, int64 [K],
        and the cumulative sums of their probabilities, float64 [K]."""
        frozen = self.frozen[self.policy_of[agent]].snapshots
        drawn = [i for i, snapshot in enumerate(frozen) if snapshot.drawn]
        extra = [(-2 - i, name) for i, name in enumerate(self.also) if agent in self.also[name]]
        shares = [self.pool.also[name] for _, name in extra]
        names = [frozen[i].name for i in drawn]
        points = self.results.points(self.policy_of[learner], names)
        weights = draw_weights(self.pool.draw, points)
        if len(drawn) > FEW and not self.frozen[self.policy_of[agent]].stacks:
            at = self._clock() * len(self.agents) + self.agents.index(agent)
            rng = generator(self.seed, "opponent", 2 * STREAM + at)
            weights = rng.multinomial(FEW, weights) / FEW  # the expectation is unchanged
        weights = weights * (1.0 - sum(shares))
        numbers = np.array([*drawn, *(number for number, _ in extra)])
        sums = np.cumsum([*weights, *shares])
        return numbers, sums / sums[-1]

    def figures(self) -> dict[str, float]:
        """Return the metrics of an update."""
        sizes = [sum(one.drawn for one in f.snapshots) for f in self.frozen.values()]
        return {"pool_size": float(max(sizes))}

    def begin_rows(self, env_rows: Array) -> None:
        """Start a new episode for all assignable players in ``env_rows``."""
        self.others.forget(env_rows)

    # --- Saving ----------------------------------------------------------------------------------

    def save(self) -> tuple[dict[str, Any], dict[str, dict[str, Array]]]:
        """Return a JSON value and arrays by file: snapshots, assigned players and their states."""
        listed, files = {}, {}
        for name, frozen in self.frozen.items():
            listed[name], files[f"pool_{name}"] = frozen.save()
        document = {
            "snapshots": listed,
            "taken": self._taken,
            "results": [[*pair, *games] for pair, games in self.results.items()],
        }
        if self.also:
            document["others"], files["casting_others"] = self.others.save()
        files["casting"] = {key: array.copy() for key, array in self._arrays().items()}
        return document, files

    def load(
        self, document: Mapping[str, Any], files: Mapping[str, dict[str, Array]], *, exact: bool
    ) -> None:
        """Continue from the result of ``save``. Unless ``exact``, start new episodes.

        Raises CheckpointError, KeyError, TypeError or ValueError if it does not fit.
        """
        arrays = files["casting"]
        require_arrays("casting", arrays, shapes_of(self._arrays()))
        for name, frozen in self.frozen.items():
            frozen.load(document["snapshots"][name], files[f"pool_{name}"])
        self._taken = int(document["taken"])
        self._played, self._drawn_from = [], {}
        self.results = Results(
            {(str(a), str(b)): [float(n), float(points)] for a, b, n, points in document["results"]}
        )
        for key, values in self._arrays().items():
            values[...] = arrays[key]
        if self.also:
            self.others.load(document["others"], files["casting_others"])
        self._require_cast()
        if not exact:
            self.others.restart()
            self.restart()

    def _require_cast(self) -> None:
        """Raise CheckpointError if the loaded assignment of players is inconsistent."""
        against = self.learner_at >= 0
        if (self.cast[~against] != LEARNS).any() or self.episode.min() < 0:
            raise CheckpointError("casting: the learning agent of some episodes is missing")
        if not set(self.learner_at[against].tolist()) <= set(self.seat_index.tolist()):
            raise CheckpointError("casting: the learning agent of an episode has no trained policy")
        for i, agent in enumerate(self.agents):
            maximum = -1
            if agent in self.policy_of:
                maximum += len(self.frozen[self.policy_of[agent]].snapshots)
            if self.cast[:, i].max() > maximum or self.cast[:, i].min() < LEARNS - len(self.also):
                raise CheckpointError(f"casting: {agent} is played by a missing snapshot")

    def _arrays(self) -> dict[str, Array]:
        """Return the arrays that are changed in place, by name."""
        return {"episode": self.episode, "cast": self.cast, "learner_at": self.learner_at}
