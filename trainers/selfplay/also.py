"""Additional opponents in a pool of snapshots: reference players and runs, by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from corral.adapters.seats import Seat
from corral.envs.core import Array, Rules, generator
from corral.envs.policy import Policy
from corral.errors import RunError, UnknownNameError
from corral.trainers.content import require_arrays, shapes_of
from corral.trainers.opponents.resolve import Players, RunPlayer, pinned
from corral.trainers.pool import Pool
from corral.trainers.trees import filled_tree, named_arrays

__all__ = ["OtherSeats", "players_of", "pooled"]


def pooled(
    spec: Any,
    rules: Rules[Any],
    policies: Mapping[str, str],
    trained: Sequence[str],
    steps: int,
) -> tuple[Pool, dict[str, dict[str, Any]], list[str]]:
    """Return the pool, the pins of its runs, and notes for the user.

    ``spec`` is an argument of ``Pool.of``. In the pool, checkpoints of runs in ``also`` are named
    by their env steps. For pins see ``corral.trainers.opponents``. The notes are about a run of
    ``steps`` env steps.

    ``policies`` maps agents to policies; the policies in ``trained`` learn. Raises ValueError,
    UnknownNameError if a name is a player of no learner, and RunError and CheckpointError for
    unsuitable runs.
    """
    pool = Pool.of(spec)
    learners = [agent for agent, policy in policies.items() if policy in trained]
    pool.require_seats(rules.agents, learners)
    also: dict[str, float] = {}
    pins: dict[str, dict[str, Any]] = {}
    for name, share in pool.also.items():
        agents = _playable(name, rules, learners, Players(rules))
        texts, run_pins = pinned({agents[0]: name}, rules)
        named = next(iter(run_pins), texts[agents[0]])
        also[named] = also.get(named, 0.0) + share
        pins |= run_pins
    notes = pool.notes(steps, {agent: policies[agent] for agent in learners})
    return dataclasses.replace(pool, also=also), pins, notes


def players_of(
    pool: Pool, rules: Rules[Any], learners: Sequence[str], pins: Mapping[str, Any]
) -> dict[str, dict[str, Policy]]:
    """Return the players of ``pool.also``: name -> agent -> policy."""
    players = Players(rules, pins)
    return {
        name: {agent: players.find(name, agent) for agent in learners if _finds(name, agent, rules)}
        for name in pool.also
    }


def _finds(name: str, agent: str, rules: Rules[Any]) -> bool:
    try:
        Players(rules).find(name, agent)
    except UnknownNameError:
        return False
    except RunError:
        return True  # a missing run: its first use raises
    return True


def _playable(name: str, rules: Rules[Any], agents: Sequence[str], players: Players) -> list[str]:
    """Return the agents that a player can play. If none, raise the first error."""
    playable: list[str] = []
    faults: list[UnknownNameError | RunError] = []
    for agent in agents:
        try:
            if isinstance(players.find(name, agent), RunPlayer):
                players.run(name, agent)
            playable.append(agent)
        except (UnknownNameError, RunError) as error:
            faults.append(error)
    if not playable:
        raise faults[0]
    return playable


class OtherSeats:
    """The seats of additional players, each with a generator and states for B environments.

    They are created at first use: playing or evaluating a run does not need them.
    """

    def __init__(
        self,
        also: Mapping[str, Mapping[str, Policy]],
        rules: Rules[Any],
        *,
        num_envs: int,
        seed: int,
        last_row: int,
    ) -> None:
        """The seats draw from the rows of purpose "opponent" up to ``last_row``."""
        self.also, self.names = also, list(also)
        self.rules, self.num_envs = rules, num_envs
        self.seed, self.last_row = seed, last_row
        self._seats: dict[tuple[str, str], Seat] | None = None
        self._saved: tuple[Sequence[Any], Mapping[str, Array]] | None = None

    def seats(self) -> dict[tuple[str, str], Seat]:
        """Return the seats by (name, agent), created at the first call. Raises the errors of their
        runs."""
        if self._seats is not None:
            return self._seats
        pairs = [(name, agent) for name, team in self.also.items() for agent in team]
        seats = {
            (name, agent): Seat(
                agent,
                self.also[name][agent],
                num_envs=self.num_envs,
                actions=self.rules.action_space(agent),
                rng=generator(self.seed, "opponent", self.last_row - i),
                deterministic=False,
            )
            for i, (name, agent) in enumerate(pairs)
        }
        if self._saved is not None:
            generators, arrays = self._saved
            expected = shapes_of(_states(seats))
            require_arrays("casting_others", arrays, expected)
            for i, (seat, state) in enumerate(zip(seats.values(), generators, strict=True)):
                seat.rng.bit_generator.state = state
                seat.memory = filled_tree(seat.memory, f"{i}", arrays)
        self._seats = seats
        return seats

    def forget(self, env_rows: Array) -> None:
        """Start a new episode in ``env_rows``."""
        for seat in self.seats().values():
            seat.forget(env_rows)

    def restart(self) -> None:
        """Start new episodes in all rows."""
        self._seats, self._saved = None, None

    def save(self) -> tuple[list[Any], dict[str, Array]]:
        """Return the generators, and the states as named arrays."""
        seats = self.seats()
        generators = [seat.rng.bit_generator.state for seat in seats.values()]
        return generators, {key: np.array(array) for key, array in _states(seats).items()}

    def load(self, generators: Sequence[Any], arrays: Mapping[str, Array]) -> None:
        """Continue from the result of ``save`` at the next use."""
        self._seats, self._saved = None, (generators, arrays)


def _states(seats: Mapping[tuple[str, str], Seat]) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for i, seat in enumerate(seats.values()):
        arrays |= named_arrays(seat.memory, f"{i}")
    return arrays
