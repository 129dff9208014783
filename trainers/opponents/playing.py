"""Opponents at play: those who play some agents in every episode, and never learn."""

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
    """Plays the agents of ``named`` in B environments: agent -> a policy, or the text of a player
    or a mix (``corral.trainers.opponents.mix``); ``pins`` are of the runs among them.

    Agent i draws from ``generator(seed, "policy", 1 + i)``: row 0 is the learners'. Who of a mix
    plays an episode is drawn apart from that, see ``EpisodeDraws``. The players' states, who plays
    where, and those generators are saved, so that a run goes on bit for bit.

    Runs are loaded by ``begin``, or by what is first asked of them: what was learned against a run
    is played and judged without it. Raises what ``Players.find`` raises, and UnsupportedSpaceError
    where an agent's actions are not Discrete.
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
        for agent, given in named.items():
            self.policies[agent] = players.cast(given, agent) if isinstance(given, str) else given
            actions = rules.action_space(agent)
            if not isinstance(actions, spaces.Discrete):
                raise UnsupportedSpaceError(
                    f"{agent} plays {actions}: opponents play Discrete actions; let the agent "
                    "learn instead"
                )
            if not isinstance(self.policies[agent], MixPolicy):
                self._seat(agent)

    def __contains__(self, agent: str) -> bool:
        return agent in self.policies

    def begin(self) -> None:
        """Load the runs that play. Raises RunError and CheckpointError, which name them."""
        for agent in self.policies:
            self._seat(agent)

    def _seat(self, agent: str) -> Seat:
        """Return the seat of ``agent``, where it went on from; it is made when it is first asked
        for."""
        if agent in self._seats:
            return self._seats[agent]
        i, policy = self.rules.agents.index(agent), self.policies[agent]
        given: dict[str, Any] = {
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
            seat: Seat = MixSeat(agent, policy, **given, **drawn)
        else:
            seat = Seat(agent, policy, **given)
        if self._saved is not None:
            _load_seat(seat, *self._saved)
        self._seats[agent] = seat
        return seat

    def act(self, agent: str, observation: Observation, wanted: Array) -> Array:
        """Return actions int64 [B] of ``agent``; 0 where it is not ``wanted``, bool [B]."""
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
        """Sample actions for a moment that is not played on: no state changes.

        ``observation`` and ``wanted`` are of ``env_rows`` [D]; None: of all.
        """
        seat = self._seat(agent)
        actions = np.zeros(len(wanted), dtype=np.int64)
        rows = np.flatnonzero(wanted)
        if len(rows):
            state = take_tree(seat.memory, rows if env_rows is None else env_rows[rows])
            actions[rows] = seat.policy.act(take_tree(observation, rows), state, seat.rng).action
        return actions

    def states(self, agent: str, env_rows: Array) -> Any:
        """Return a player's hidden state in ``env_rows`` [R]."""
        return take_tree(self._seat(agent).memory, env_rows)

    def reset(self, agent: str, env_rows: Array) -> None:
        """Let a player begin anew in ``env_rows``, whose episodes are over."""
        self._seat(agent).forget(env_rows)

    # --- Saving ----------------------------------------------------------------------------------

    def save(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return their generators by agent, and their states as named arrays."""
        self.begin()
        generators = {agent: seat.rng.bit_generator.state for agent, seat in self._seats.items()}
        return {agent: generators[agent] for agent in self.policies}, self._states()

    def load(self, generators: Mapping[str, Any], states: Mapping[str, Array]) -> None:
        """Go on from what ``save`` gave. Raises CheckpointError, KeyError, TypeError, ValueError
        where it does not fit: of runs that are not loaded yet, when they are."""
        self.require(states)
        self._saved = generators, states
        for seat in self._seats.values():
            _load_seat(seat, generators, states)

    def require(self, states: Mapping[str, Array]) -> None:
        """Raise CheckpointError where they are no states of these players, as far as they are
        loaded."""
        later = tuple(f"{agent}." for agent in self.policies if agent not in self._seats)
        found = {key: each for key, each in states.items() if not key.startswith(later)}
        require_arrays("opponents", found, shapes_of(self._states()))

    def restart(self, first_episode: int = 0) -> None:
        """Begin anew everywhere, with episodes that count from ``first_episode``."""
        self._saved, self._first_episode = None, first_episode
        for agent in list(self._seats):
            rng = self._seats.pop(agent).rng
            self._seat(agent).rng = rng

    def _states(self) -> dict[str, Array]:
        found: dict[str, Array] = {}
        for seat in self._seats.values():
            found |= named_arrays(_tree(seat), seat.agent)
        return found


def _load_seat(seat: Seat, generators: Mapping[str, Any], states: Mapping[str, Array]) -> None:
    """Let a seat go on from what was saved. Raises CheckpointError where it does not fit."""
    tree, agent = _tree(seat), seat.agent
    expected = shapes_of(named_arrays(tree, agent))
    found = {key: states[key] for key in expected if key in states}
    require_arrays("opponents", found, expected)
    seat.rng.bit_generator.state = generators[agent]
    tree = filled_tree(tree, agent, states)
    if isinstance(seat, MixSeat):
        seat.episodes = tree.pop("episodes")
    seat.memory = tree


def _tree(seat: Seat) -> Any:
    """Return all that changes while a seat is played, but for its generator."""
    if isinstance(seat, MixSeat):
        return {**seat.memory, "episodes": seat.episodes}
    return seat.memory
