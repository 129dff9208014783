"""Fixed opponents in training: they play some agents in every episode and do not learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.adapters.seats import Seat
from corral.envs.core import Array, Observation, Rules, generator
from corral.envs.policy import Decision, Policy, take_tree
from corral.errors import UnsupportedSpaceError
from corral.trainers.content import require_arrays, shapes_of
from corral.trainers.opponents.draws import EpisodeDraws
from corral.trainers.opponents.resolve import Players
from corral.trainers.opponents.seats import FIRST_ROW, MixPolicy, MixSeat
from corral.trainers.trees import filled_tree, named_arrays

__all__ = ["Opponents"]


class Opponents:
    """Plays the agents of ``named`` in B environments.

    ``named`` maps an agent to a policy, or to the text of a player or a mix
    (``corral.trainers.opponents.mix``). ``pins`` are the pinned checkpoints of runs among them.

    Agent i draws from ``generator(seed, "policy", 1 + i)``; row 0 belongs to the learners. The
    players of a mix are drawn from separate numbers, see ``EpisodeDraws``. The states of players,
    the drawn players and the generators are saved, so that a resumed run is bit-identical.

    Runs are loaded by ``begin`` or at their first decision. A team trained against a run can
    therefore be played and evaluated without that run. Raises the errors of ``Players.find``, and
    UnsupportedSpaceError if an agent's actions are not Discrete.
    """

    def __init__(
        self,
        rules: Rules[Any],
        named: Mapping[str, str | Policy],
        *,
        num_envs: int,
        seed: int,
        deterministic: bool = False,
        pins: Mapping[str, Any] | None = None,
    ) -> None:
        self.rules, self.num_envs, self.seed = rules, num_envs, seed
        self.deterministic = deterministic
        self.policies: dict[str, Policy] = {}
        self._seats: dict[str, Seat] = {}
        self._saved: tuple[Mapping[str, Any], Mapping[str, Array]] | None = None
        self._first_episode = 0
        self._draws = EpisodeDraws(seed, num_envs, len(rules.agents), FIRST_ROW)
        players = Players(rules, pins)
        for agent, entry in named.items():
            self.policies[agent] = players.cast(entry, agent) if isinstance(entry, str) else entry
            actions = rules.action_space(agent)
            if not isinstance(actions, spaces.Discrete):
                raise UnsupportedSpaceError(
                    f"{agent} plays {actions}, but opponents can only play Discrete actions. Let "
                    f"{agent} learn instead"
                )
            if not isinstance(self.policies[agent], MixPolicy):
                self._seat(agent)

    def __contains__(self, agent: str) -> bool:
        return agent in self.policies

    def begin(self) -> None:
        """Load all runs. Raises RunError and CheckpointError, which name the opponent."""
        for agent in self.policies:
            self._seat(agent)

    def _seat(self, agent: str) -> Seat:
        """Return the seat of ``agent``, in its saved state; create it at the first call."""
        if agent in self._seats:
            return self._seats[agent]
        i, policy = self.rules.agents.index(agent), self.policies[agent]
        common: dict[str, Any] = {
            "num_envs": self.num_envs,
            "actions": self.rules.action_space(agent),
            "rng": generator(self.seed, "policy", 1 + i),
            "deterministic": self.deterministic,
        }
        if isinstance(policy, MixPolicy):
            drawn: dict[str, Any] = {
                "draws": self._draws,
                "column": i,
                "first_episode": self._first_episode,
            }
            seat: Seat = MixSeat(agent, policy, **common, **drawn)
        else:
            seat = Seat(agent, policy, **common)
        if self._saved is not None:
            _load_seat(seat, *self._saved)
        self._seats[agent] = seat
        return seat

    def act(self, agent: str, observation: Observation, wanted: Array) -> Array:
        """Return actions int64 [B] of ``agent`` in ``wanted`` rows (bool [B]), otherwise 0."""
        actions = np.zeros(len(wanted), dtype=np.int64)
        rows = np.flatnonzero(wanted)
        if len(rows):
            actions[rows] = self.decide(agent, observation, rows).action
        return actions

    def decide(self, agent: str, observation: Observation, rows: Array) -> Decision:
        """Return the decision of ``agent`` for ``rows`` [R] of ``observation`` [B, ...]."""
        return self._seat(agent).decide(observation, rows)

    def sample_unplayed(
        self, agent: str, observation: Observation, wanted: Array, env_rows: Array | None = None
    ) -> Array:
        """Sample actions that will not be played: the player's state does not change.

        ``observation`` and ``wanted`` belong to ``env_rows`` [D]; None: to all rows.
        """
        seat = self._seat(agent)
        actions = np.zeros(len(wanted), dtype=np.int64)
        rows = np.flatnonzero(wanted)
        if len(rows):
            state = take_tree(seat.memory, rows if env_rows is None else env_rows[rows])
            actions[rows] = seat.policy.act(take_tree(observation, rows), state, seat.rng).action
        return actions

    def states(self, agent: str, env_rows: Array) -> Any:
        """Return the recurrent state of a player in ``env_rows`` [R]."""
        return take_tree(self._seat(agent).memory, env_rows)

    def reset(self, agent: str, env_rows: Array) -> None:
        """Start a new episode for a player in ``env_rows``."""
        self._seat(agent).forget(env_rows)

    # --- Saving ----------------------------------------------------------------------------------

    def save(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the generators by agent, and the states as named arrays."""
        self.begin()
        generators = {agent: seat.rng.bit_generator.state for agent, seat in self._seats.items()}
        return {agent: generators[agent] for agent in self.policies}, self._states()

    def load(self, generators: Mapping[str, Any], states: Mapping[str, Array]) -> None:
        """Continue from the result of ``save``.

        Raises CheckpointError, KeyError, TypeError or ValueError if it does not fit. Runs that are
        not loaded yet are checked when they are loaded.
        """
        self.require(states)
        self._saved = generators, states
        for seat in self._seats.values():
            _load_seat(seat, generators, states)

    def require(self, states: Mapping[str, Array]) -> None:
        """Raise CheckpointError if ``states`` do not fit the players that are loaded."""
        later = tuple(f"{agent}." for agent in self.policies if agent not in self._seats)
        loaded = {key: array for key, array in states.items() if not key.startswith(later)}
        require_arrays("opponents", loaded, shapes_of(self._states()))

    def restart(self, first_episode: int = 0) -> None:
        """Start new episodes in all rows; episodes are counted from ``first_episode``."""
        self._saved, self._first_episode = None, first_episode
        for agent in list(self._seats):
            rng = self._seats.pop(agent).rng
            self._seat(agent).rng = rng

    def _states(self) -> dict[str, Array]:
        arrays: dict[str, Array] = {}
        for seat in self._seats.values():
            arrays |= named_arrays(_tree(seat), seat.agent)
        return arrays


def _load_seat(seat: Seat, generators: Mapping[str, Any], states: Mapping[str, Array]) -> None:
    """Restore the saved state of a seat. Raises CheckpointError if it does not fit."""
    tree, agent = _tree(seat), seat.agent
    expected = shapes_of(named_arrays(tree, agent))
    present = {key: states[key] for key in expected if key in states}
    require_arrays("opponents", present, expected)
    seat.rng.bit_generator.state = generators[agent]
    tree = filled_tree(tree, agent, states)
    if isinstance(seat, MixSeat):
        seat.episodes = tree.pop("episodes")
    seat.memory = tree


def _tree(seat: Seat) -> Any:
    """Return the state of a seat that changes during play, without its generator."""
    if isinstance(seat, MixSeat):
        return {**seat.memory, "episodes": seat.episodes}
    return seat.memory
