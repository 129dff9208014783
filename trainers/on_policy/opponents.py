"""Reference players in the seats of agents that do not learn: what the others train against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.envs.core import Array, Observation, Rules, generator
from corral.envs.policy import Policy
from corral.envs.reference import reference_player
from corral.errors import UnsupportedSpaceError
from corral.trainers.evaluation.players import Seat, put_tree, take_tree
from corral.trainers.runs.checkpoint import require_arrays

__all__ = ["Opponents"]


class Opponents:
    """Plays the agents of ``named`` (agent -> name of a reference player) in B copies.

    Agent i draws from ``generator(seed, "policy", 1 + i)``: row 0 is the learners'. What the
    players remember, and those generators, are saved, so that a run goes on bit for bit.

    Raises what ``reference_player`` raises, and UnsupportedSpaceError where an agent's actions are
    not Discrete.
    """

    def __init__(
        self, rules: Rules[Any], named: Mapping[str, str], *, num_envs: int, seed: int
    ) -> None:
        self.num_envs = num_envs
        self._seats: dict[str, Seat] = {}
        for agent, name in named.items():
            player = reference_player(name, rules, agent)
            actions = rules.action_space(agent)
            if not isinstance(actions, spaces.Discrete):
                raise UnsupportedSpaceError(
                    f"{agent} plays {actions}: reference players play Discrete actions; let the "
                    "agent learn instead"
                )
            self._seats[agent] = Seat(
                agent,
                player,
                num_envs=num_envs,
                actions=actions,
                rng=generator(seed, "policy", 1 + rules.agents.index(agent)),
                deterministic=False,
            )

    def __contains__(self, agent: str) -> bool:
        return agent in self._seats

    @property
    def policies(self) -> dict[str, Policy]:
        return {agent: seat.policy for agent, seat in self._seats.items()}

    def act(self, agent: str, observation: Observation, wanted: Array) -> Array:
        """Actions int64 [B] of ``agent``; 0 where it is not ``wanted``, bool [B]."""
        actions = np.zeros(len(wanted), dtype=np.int64)
        rows = np.flatnonzero(wanted)
        if len(rows):
            actions[rows] = self._seats[agent].act(observation, rows)
        return actions

    def would_play(
        self, agent: str, observation: Observation, wanted: Array, env_rows: Array | None = None
    ) -> Array:
        """The same for a moment that is not played on: nothing is remembered of it.

        ``observation`` and ``wanted`` are of ``env_rows`` [D]; None: of all.
        """
        seat = self._seats[agent]
        actions = np.zeros(len(wanted), dtype=np.int64)
        rows = np.flatnonzero(wanted)
        if len(rows):
            memory = take_tree(seat.memory, rows if env_rows is None else env_rows[rows])
            actions[rows] = seat.policy.act(take_tree(observation, rows), memory, seat.rng).action
        return actions

    def forget(self, env_rows: Array) -> None:
        """Begin anew in ``env_rows``, whose episodes are over."""
        for seat in self._seats.values():
            seat.forget(env_rows)

    # --- Saving ----------------------------------------------------------------------------------

    def save(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Their generators by agent, and what they remember as named arrays."""
        generators = {agent: seat.rng.bit_generator.state for agent, seat in self._seats.items()}
        return generators, self._memories()

    def load(self, generators: Mapping[str, Any], memories: Mapping[str, Array]) -> None:
        """Go on from what ``save`` gave. Raises CheckpointError, KeyError, TypeError, ValueError
        where it does not fit."""
        self.require(memories)
        for agent, seat in self._seats.items():
            seat.rng.bit_generator.state = generators[agent]
            everyone = np.arange(self.num_envs)
            own = _filled(seat.memory, agent, memories)
            seat.memory = put_tree(seat.memory, everyone, own)

    def require(self, memories: Mapping[str, Array]) -> None:
        """Raise CheckpointError where they are not what these players remember."""
        expected = {name: (a.shape, a.dtype) for name, a in self._memories().items()}
        require_arrays("opponents", memories, expected)

    def restart(self) -> None:
        """Remember nothing: all episodes begin anew."""
        self.forget(np.arange(self.num_envs))

    def _memories(self) -> dict[str, Array]:
        found: dict[str, Array] = {}
        for agent, seat in self._seats.items():
            found |= _arrays(seat.memory, agent)
        return found


def _arrays(tree: Any, name: str) -> dict[str, Array]:
    """The arrays of a policy's state, named by where they are."""
    if tree is None:
        return {}
    if isinstance(tree, Mapping | tuple | list):
        found: dict[str, Array] = {}
        for key, part in _parts(tree):
            found |= _arrays(part, f"{name}.{key}")
        return found
    return {name: np.array(tree)}


def _filled(tree: Any, name: str, arrays: Mapping[str, Array]) -> Any:
    """A tree built like ``tree`` with the ``arrays`` that ``_arrays`` named."""
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return {key: _filled(part, f"{name}.{key}", arrays) for key, part in tree.items()}
    if isinstance(tree, tuple | list):
        parts = [_filled(part, f"{name}.{key}", arrays) for key, part in _parts(tree)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return arrays[name]


def _parts(tree: Any) -> list[tuple[Any, Any]]:
    return list(tree.items() if isinstance(tree, Mapping) else enumerate(tree))
