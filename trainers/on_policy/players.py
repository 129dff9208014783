"""Who plays in training: what learns, and the players that it trains against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from corral.adapters.masked_distribution import Distribution
from corral.adapters.seats import Seat
from corral.envs.core import Array, Observation, Rules, generator
from corral.envs.policy import Decision, Policy, take_tree
from corral.errors import UnsupportedSpaceError
from corral.trainers.base import require_arrays
from corral.trainers.on_policy.buffer import GroupBuffer, ObservationBuffer
from corral.trainers.on_policy.learner import HiddenState, Learner
from corral.trainers.on_policy.saving import shapes_of
from corral.trainers.opponents.draws import EpisodeDraws
from corral.trainers.opponents.resolve import Players
from corral.trainers.opponents.seats import FIRST_ROW, MixPolicy, MixSeat

__all__ = ["LearnedPlayer", "OpponentPlayer", "Opponents", "filled_tree", "named_arrays"]

Extras = Callable[[Distribution], Mapping[str, torch.Tensor]]


class LearnedPlayer:
    """Plays the agents of one group with its actor, and moves the actor's hidden state."""

    def __init__(
        self,
        learner: Learner,
        hidden: HiddenState,
        rng: torch.Generator,
        extras: Extras | None = None,
    ) -> None:
        """``extras`` tells what is kept of the distribution for the loss."""
        self.learner, self.hidden, self.rng, self.extras = learner, hidden, rng, extras

    def act(self, buffer: GroupBuffer, t: int, observations: Mapping[str, Observation]) -> None:
        """Sample the actions of step ``t``, with their log-probabilities, where agents act."""
        acting = buffer.decides(t)  # [C]
        rows = None if acting.all() else np.flatnonzero(acting)
        action, log_prob = buffer.action[t], buffer.log_prob[t]  # views [B, P, ...]
        if rows is not None:
            action[...] = 0
            log_prob[...] = 0
            if not len(rows):
                return
        at: Any = slice(None) if rows is None else rows
        hidden = self.hidden.actor
        with torch.inference_mode():
            distribution, sampled, after = self._sample(buffer, t, rows, hidden[at])
            action.reshape(len(acting), *action.shape[2:])[at] = sampled.cpu().numpy()
            log_prob.reshape(-1)[at] = distribution.log_prob(sampled).cpu().numpy()
            if self.extras is not None:
                buffer.store_extras(t, at, self.extras(distribution))
            if hidden.shape[1]:
                hidden[at] = after.cpu().numpy()
            if (start := self.learner.start) is not None:
                seen = buffer.tensors(t, rows, self.learner.device)
                buffer.store_extras(t, at, start.extras(self.learner, *seen, at))

    def sample_unplayed(
        self,
        buffer: ObservationBuffer,
        at: Any,
        observations: Mapping[str, Observation],
        env_rows: Array | None = None,
    ) -> None:
        """Sample actions for moment ``at``, which is not played on: no hidden state moves.

        It is one of ``env_rows`` [D]; None: of all environments.
        """
        action, rows = buffer.action[at], np.flatnonzero(buffer.acting[at])
        action[...] = 0
        if not len(rows):
            return
        agents, columns = buffer.acting.shape[-1], rows
        if env_rows is not None:
            columns = env_rows[rows // agents] * agents + rows % agents
        with torch.inference_mode():
            _, sampled, _ = self._sample(buffer, at, rows, self.hidden.actor[columns])
        action.reshape(-1, *action.shape[2:])[rows] = sampled.cpu().numpy()

    def reset(self, env_rows: Array) -> None:
        """Begin anew in ``env_rows``, whose episodes are over."""
        self.hidden.reset(env_rows)
        if self.learner.start is not None:
            self.learner.start.hidden.reset(env_rows)

    def _sample(
        self, buffer: ObservationBuffer, at: Any, rows: Array | None, hidden: Array
    ) -> tuple[Distribution, torch.Tensor, torch.Tensor]:
        """Return the distribution of actions, those drawn [R, ...], and the hidden states after."""
        learner = self.learner
        parts, mask = buffer.tensors(at, rows, learner.device)
        outputs, after = learner.actor.step(parts, learner.tensor(hidden))
        distribution = learner.distribution(outputs, mask)
        return distribution, distribution.sample(self.rng), after


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


class OpponentPlayer:
    """One of the ``opponents``, as the trainer asks those who play: see ``LearnedPlayer``."""

    def __init__(self, opponents: Opponents, agent: str) -> None:
        self.opponents, self.agent = opponents, agent

    def act(self, buffer: GroupBuffer, t: int, observations: Mapping[str, Observation]) -> None:
        wanted = buffer.acting[t][:, 0]
        buffer.action[t][:, 0] = self.opponents.act(self.agent, observations[self.agent], wanted)

    def sample_unplayed(
        self,
        buffer: ObservationBuffer,
        at: Any,
        observations: Mapping[str, Observation],
        env_rows: Array | None = None,
    ) -> None:
        obs, wanted = observations[self.agent], buffer.acting[at][:, 0]
        actions = self.opponents.sample_unplayed(self.agent, obs, wanted, env_rows)
        buffer.action[at][:, 0] = actions

    def reset(self, env_rows: Array) -> None:
        self.opponents.reset(self.agent, env_rows)


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


def named_arrays(tree: Any, name: str) -> dict[str, Array]:
    """Return the arrays of a policy's state, named by where they are."""
    if tree is None:
        return {}
    if isinstance(tree, Mapping | tuple | list):
        found: dict[str, Array] = {}
        for key, part in _parts(tree):
            found |= named_arrays(part, f"{name}.{key}")
        return found
    return {name: np.array(tree)}


def filled_tree(tree: Any, name: str, arrays: Mapping[str, Array]) -> Any:
    """Return a tree built like ``tree`` with the ``arrays`` that ``named_arrays`` named."""
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return {key: filled_tree(part, f"{name}.{key}", arrays) for key, part in tree.items()}
    if isinstance(tree, tuple | list):
        parts = [filled_tree(part, f"{name}.{key}", arrays) for key, part in _parts(tree)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return arrays[name].copy()


def _parts(tree: Any) -> list[tuple[Any, Any]]:
    return list(tree.items() if isinstance(tree, Mapping) else enumerate(tree))
