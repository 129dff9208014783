"""Who else plays among a pool's snapshots: reference players and runs, by name."""

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
    given: Any,
    rules: Rules[Any],
    policies: Mapping[str, str],
    trained: Sequence[str],
    steps: int,
) -> tuple[Pool, dict[str, dict[str, Any]], list[str]]:
    """Return the pool that is ``given`` (see ``Pool.of``), the checkpoints of runs in ``also``
    named by their env steps; the pins of those runs, see ``corral.trainers.opponents``; and what
    there is to say of the pool in a run of so many env ``steps``.

    ``policies`` are those of agents, of which ``trained`` ones learn. Raises ValueError,
    UnknownNameError where a name stands for no player of any of them, RunError and CheckpointError
    for runs that do not fit.
    """
    pool = Pool.of(given)
    learners = [agent for agent, policy in policies.items() if policy in trained]
    pool.require_seats(rules.agents, learners)
    also: dict[str, float] = {}
    pins: dict[str, dict[str, Any]] = {}
    for name, share in pool.also.items():
        agents = _played(name, rules, learners, Players(rules))
        texts, own = pinned({agents[0]: name}, rules)
        named = next(iter(own), texts[agents[0]])
        also[named] = also.get(named, 0.0) + share
        pins |= own
    notes = pool.notes(steps, {agent: policies[agent] for agent in learners})
    return dataclasses.replace(pool, also=also), pins, notes


def players_of(
    pool: Pool, rules: Rules[Any], learners: Sequence[str], pins: Mapping[str, Any]
) -> dict[str, dict[str, Policy]]:
    """Return name -> agent -> who plays it, of ``pool.also``."""
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
        return True  # a run that is gone: who asks for it is told
    return True


def _played(name: str, rules: Rules[Any], agents: Sequence[str], players: Players) -> list[str]:
    """Return which of ``agents`` a name can play. Raises what is wrong where it is none."""
    found: list[str] = []
    faults: list[UnknownNameError | RunError] = []
    for agent in agents:
        try:
            if isinstance(players.find(name, agent), RunPlayer):
                players.run(name, agent)
            found.append(agent)
        except (UnknownNameError, RunError) as error:
            faults.append(error)
    if not found:
        raise faults[0]
    return found


class OtherSeats:
    """The seats of those players, each with its generator and its states in B environments.

    They are made when they are first asked for: a run that is played or judged needs none of them.
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
        """They draw from the rows of the purpose "opponent" that end at ``last_row``."""
        self.also, self.names = also, list(also)
        self.rules, self.num_envs = rules, num_envs
        self.seed, self.last_row = seed, last_row
        self._seats: dict[tuple[str, str], Seat] | None = None
        self._saved: tuple[Sequence[Any], Mapping[str, Array]] | None = None

    def seats(self) -> dict[tuple[str, str], Seat]:
        """Return the seats by name and agent. Raises what their runs raise."""
        if self._seats is not None:
            return self._seats
        pairs = [(name, agent) for name, team in self.also.items() for agent in team]
        found = {
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
            expected = shapes_of(_states(found))
            require_arrays("casting_others", arrays, expected)
            for i, (seat, state) in enumerate(zip(found.values(), generators, strict=True)):
                seat.rng.bit_generator.state = state
                seat.memory = filled_tree(seat.memory, f"{i}", arrays)
        self._seats = found
        return found

    def forget(self, env_rows: Array) -> None:
        """Let them begin anew in ``env_rows``, whose episodes are over."""
        for seat in self.seats().values():
            seat.forget(env_rows)

    def restart(self) -> None:
        """Begin anew everywhere."""
        self._seats, self._saved = None, None

    def save(self) -> tuple[list[Any], dict[str, Array]]:
        """Return their generators, and their states as named arrays."""
        seats = self.seats()
        generators = [seat.rng.bit_generator.state for seat in seats.values()]
        return generators, {key: np.array(each) for key, each in _states(seats).items()}

    def load(self, generators: Sequence[Any], arrays: Mapping[str, Array]) -> None:
        """Go on from what ``save`` gave, when they are asked for."""
        self._seats, self._saved = None, (generators, arrays)


def _states(seats: Mapping[tuple[str, str], Seat]) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for i, seat in enumerate(seats.values()):
        found |= named_arrays(seat.memory, f"{i}")
    return found
