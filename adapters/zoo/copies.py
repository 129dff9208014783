"""One third-party PettingZoo environment, parallel or AEC, as arrays: a copy of a ZooBatch.

Both kinds have the same interface. A step plays the actions of all live agents in a parallel
environment, and of the agent in turn in an AEC environment. The steps of ended agents
(``step(None)``) are made automatically. Agents keep the order of ``possible_agents``. An agent that
has not joined yet, or has ended, observes zeros and does not act. In the step in which an agent
ends, its last observation is returned.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces

from corral.adapters.zoo.bare import bare
from corral.adapters.zoo.spec import ZooSpec, leaves
from corral.envs.core import Array, Observation
from corral.envs.masks import MASK, OBSERVATION
from corral.envs.shells import ParallelShell, TurnShell
from corral.errors import EnvironmentFault

__all__ = ["Actions", "CopyStep", "Observed", "ZooCopy", "make_copy"]

Actions = Mapping[str, Any]
"""The actions of the acting agents, by name."""


@dataclass
class Observed:
    """The observations of one time step."""

    observations: list[Observation]  # one per agent
    acting: Array  # bool [N]
    state: Array  # float32 [G]
    info: dict[str, Array]  # at the start of an episode, as in Moved; else empty


@dataclass
class Final:
    """The results of an episode that ended."""

    look: Observed
    returns: Array  # float64 [N]
    length: int


@dataclass
class CopyStep:
    """The result of a step of one copy."""

    look: Observed  # for the next decision; of the new episode if one ended
    reward: Array  # float64 [N]
    terminated: Array  # bool [N]
    truncated: Array  # bool [N]
    info: dict[str, Array]  # numbers by name, float64 [N]; 0 for agents without one
    final: Final | None


def make_copy(env: Any, spec: ZooSpec, *, checked: bool = False) -> ZooCopy:
    """Return ``env`` as a copy. ``checked``: the caller checks all actions by ``spec.checked``."""
    stepped = env
    if checked:
        stepped = bare(env, masked=all(map(spec.masked, range(len(spec.agents)))))
    return TurnCopy(env, spec, stepped) if spec.turns else ParallelCopy(env, spec, stepped)


# --- Copies --------------------------------------------------------------------------------------


class ZooCopy(ABC):
    """An environment with time limit, autoreset and returns.

    ``stepped`` is ``bare(env)``, or ``env`` itself. Only ``reset`` and ``close`` use ``env``.
    """

    def __init__(self, env: Any, spec: ZooSpec, stepped: Any) -> None:
        self.env, self.spec, self._stepped = env, spec, stepped
        self._index = {agent: i for i, agent in enumerate(spec.agents)}
        self._starts = [  # of Discrete actions
            int(space.start) if isinstance(space, spaces.Discrete) else None
            for space in spec.own_actions
        ]

    def reset(self, rng: np.random.Generator | None) -> Observed:
        """Begin an episode. ``rng`` seeds the environment; None continues its random stream.

        Environments of corral draw from ``rng`` itself, as a row of a Batch does. Third-party
        environments get a seed from it.
        """
        env_seed = None
        if rng is not None:
            unwrapped = self.env.unwrapped
            if isinstance(unwrapped, ParallelShell | TurnShell):
                unwrapped.np_random = rng
            else:
                env_seed = int(rng.integers(2**31))
        return self.begin(env_seed)

    def begin(self, seed: int | None) -> Observed:
        """Begin an episode with the environment's ``reset(seed=seed)``."""
        self._last_state: Array = np.zeros(0, dtype=np.float32)
        count = len(self.spec.agents)
        self._elapsed = 0
        self._returns = np.zeros(count)
        self._ended = np.zeros(count, dtype=bool)
        return self._begin(seed)

    def step(self, actions: Mapping[str, Any]) -> CopyStep:
        """Play the actions of the acting agents. If the episode ends, begin the next one."""
        moved = self.play(actions)
        if moved.final is not None:
            moved.look = self.reset(None)
        return moved

    def play(self, actions: Mapping[str, Any]) -> CopyStep:
        """Play the actions of the acting agents. ``final`` is set if the episode is over."""
        moved, over = self._play(actions)
        self._elapsed += 1
        limit = self.spec.max_cycles
        if not over and limit is not None and self._elapsed >= limit:
            self._cut(moved)
            over = True
        if over:
            moved.final = Final(moved.look, self._returns, self._elapsed)
        return moved

    def take_early(self) -> Array:
        """Return the rewards of agents before the first step, float64 [N].

        Without this call, they are added to the reward of the first step.
        """
        return np.zeros(len(self._index))

    def without_sums(self) -> ZooCopy:
        """Return this copy without the return and the length of the episode so far."""
        other = copy.copy(self)
        other._returns, other._elapsed = np.zeros(len(self._index)), 0
        return other

    def close(self) -> None:
        self.env.close()

    @abstractmethod
    def _begin(self, seed: int | None) -> Observed:
        """Begin an episode. None continues the random streams."""

    @abstractmethod
    def _play(self, actions: Mapping[str, Any]) -> tuple[CopyStep, bool]:
        """Return the result of the step, and whether the episode is over."""

    @abstractmethod
    def _cut(self, moved: CopyStep) -> None:
        """End the episode of all live agents at the time limit."""

    # --- Parts -----------------------------------------------------------------------------------

    def _look(
        self,
        observations: Mapping[str, Any],
        infos: Mapping[str, Any],
        acts: Callable[[str], bool],
        state: Array | None = None,
        over: bool = False,
        first: bool = False,
    ) -> Observed:
        """Return the Look of the agents in ``observations``; other agents observe zeros.

        Agents that do not act have a zero mask. Last observations (``over``) keep their masks.
        ``first`` marks the start of an episode, which has an info.
        """
        spec = self.spec
        encoded, acting = [], np.zeros(len(spec.agents), dtype=bool)
        for i, agent in enumerate(spec.agents):
            if agent not in observations:
                encoded.append(spec.blank(i))
                continue
            encoded_one = spec.encode(i, observations[agent], infos.get(agent) or {})
            encoded.append(encoded_one)
            mask = encoded_one.get(MASK)
            if acts(agent) and (mask is None or mask.any()):
                acting[i] = True
            elif mask is not None and not over:
                mask[...] = 0
        if spec.state_size is None:
            parts = [leaf for encoded_one in encoded for leaf in leaves(encoded_one[OBSERVATION])]
            state = np.concatenate([part.ravel().astype(np.float32) for part in parts])
        elif state is None:
            state = self._state()
        return Observed(encoded, acting, state, self._info(infos) if first else {})

    def _state(self) -> Array:
        """Return the environment's state; after an agent's end, the last one if ``state`` fails."""
        if self.spec.state_size == 0:
            return np.zeros(0, dtype=np.float32)
        try:
            state = np.array(self._stepped.state(), dtype=np.float32).ravel()
        except Exception:  # for example if a simulated body no longer exists
            if not self._some_ended():
                raise
            return self._last_state
        if len(state) != self.spec.state_size:
            self._fault(f"the size of state() is {len(state)}, at first {self.spec.state_size}")
        self._last_state = state
        return state

    def _some_ended(self) -> bool:
        """Return True if the episode of any agent has ended."""
        return bool(self._ended.any())

    def _info(self, infos: Mapping[str, Any]) -> dict[str, Array]:
        """Return the numbers among the infos, by name: float64 [N]."""
        numbers: dict[str, Array] = {}
        for agent, info in infos.items():
            if agent not in self._index:
                continue
            for key, value in (info or {}).items():
                if isinstance(value, int | float | np.number | np.bool_):
                    column = numbers.setdefault(str(key), np.zeros(len(self._index)))
                    column[self._index[agent]] = value
        return numbers

    def _find(self, agent: str) -> int:
        if agent not in self._index:
            self._fault(f"agent {agent!r} is not in possible_agents {self.spec.agents}")
        return self._index[agent]

    def _action(self, index: int, action: Any) -> Any:
        """Return an action in the form of the environment."""
        start = self._starts[index]
        return action if start is None else int(action) + start

    def _fault(self, what: str) -> NoReturn:
        raise EnvironmentFault(f"{self.spec.name}: {what}")

    def _number(self, agent: str, value: Any) -> float:
        """Return a reward as a float, also from an array with one element."""
        if isinstance(value, float | int):
            return float(value)
        try:
            return float(np.asarray(value).item())
        except (TypeError, ValueError):
            self._fault(f"the reward {value!r} for {agent} is not a number")


class ParallelCopy(ZooCopy):
    """A ParallelEnv. A live agent with a zero mask does not act."""

    def _begin(self, seed: int | None) -> Observed:
        observations, infos = self.env.reset(seed=seed)
        self._live = list(self.env.agents)
        if not self._live:
            self._fault("no agents after reset()")
        self._require(observations, self._live, "observation")
        present = {agent: observations[agent] for agent in self._live}
        return self._look(present, infos, self._acts(), first=True)

    def _play(self, actions: Mapping[str, Any]) -> tuple[CopyStep, bool]:
        played = {a: self._action(self._find(a), actions.get(a, 0)) for a in self._live}
        observations, rewards, terminations, truncations, infos = self._stepped.step(played)
        for answers, what in (
            (observations, "observation"),
            (rewards, "reward"),
            (terminations, "termination"),
            (truncations, "truncation"),
        ):
            self._require(answers, self._live, what)
        count = len(self._index)
        reward = np.zeros(count)
        terminated, truncated = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
        for agent, value in rewards.items():
            i = self._find(agent)
            if self._ended[i] and value:
                self._fault(f"a reward of {value} for {agent} after its episode ended")
            reward[i] = self._number(agent, value)
        self._returns = self._returns + reward

        before, listed = self._live, list(self._stepped.agents)
        ends = [agent for agent in before if terminations[agent] or truncations[agent]]
        self._live = [agent for agent in listed if agent not in ends]
        for agent in self._live:
            if self._ended[self._find(agent)]:
                self._fault(f"{agent} is in agents again after its episode ended")
        for agent in before:
            if agent not in listed and agent not in ends:
                self._fault(f"{agent} left without termination or truncation")
        for agent in ends:
            i = self._find(agent)
            terminated[i] = bool(terminations[agent])
            truncated[i] = not terminated[i]
        if ends:
            self._ended = self._ended | terminated | truncated
        self._require(observations, self._live, "observation")
        present = {agent: observations[agent] for agent in dict.fromkeys([*before, *self._live])}
        over = not self._live
        look = self._look(present, infos, self._acts(), over=over)
        moved = CopyStep(look, reward, terminated, truncated, self._info(infos), None)
        return moved, over

    def _acts(self) -> Callable[[str], bool]:
        """Return a test for acting agents: all live agents except the environment's ``waiting``."""
        acting = set(self._live) - set(getattr(self._stepped.unwrapped, "waiting", ()))
        return lambda agent: agent in acting

    def _cut(self, moved: CopyStep) -> None:
        for agent in self._live:
            moved.truncated[self._find(agent)] = True

    def _require(self, answers: Mapping[str, Any], agents: Iterable[str], what: str) -> None:
        for agent in agents:
            if agent not in answers:
                self._fault(f"no {what} for {agent}, which is in agents")


class TurnCopy(ZooCopy):
    """An AECEnv, in which one agent acts per turn.

    A reward (``env.rewards``) belongs to the step that causes it, for every agent. At an agent's
    turn, PettingZoo's ``last()`` returns its rewards since its last turn. A difference to the
    rewards so far is added in that step. Returns are the sums of the rewards of ``last()``, equal
    to the last bit to a loop over ``agent_iter()``.
    """

    def _begin(self, seed: int | None) -> Observed:
        self.env.reset(seed=seed)
        self._rewards = np.zeros(len(self._index))  # sums since each agent's last turn
        self._corrections = np.zeros(len(self._index))  # to add to the next step's rewards
        if not (agents := self._stepped.agents):
            self._fault("no agents after reset()")
        self._turn(agents)
        return self._observe_all(agents, {}, dict(self._stepped.infos), None, first=True)

    def take_early(self) -> Array:
        early, self._corrections = self._corrections, np.zeros(len(self._index))
        return early

    def _play(self, actions: Mapping[str, Any]) -> tuple[CopyStep, bool]:
        env, count = self._stepped, len(self._index)
        env.step(self._action(self._find(self._mover), actions[self._mover]))
        reward = np.zeros(count)
        for agent, value in env.rewards.items():
            i = self._find(agent)
            if not self._ended[i]:
                reward[i] = self._number(agent, value)
        self._rewards += reward
        infos = dict(env.infos)
        state = None if self.spec.state_size is None else self._state()

        terminated, truncated = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
        last: dict[str, Any] = {}
        # Attribute access through nested wrappers is slow, so each attribute is read once.
        while agents := env.agents:
            agent, terminations = env.agent_selection, env.terminations
            ended = terminations[agent]
            if not (ended or env.truncations[agent]):
                break
            i = self._find(agent)
            if self._ended[i]:
                self._fault(f"{agent} has a turn after its episode ended")
            last[agent] = env.observe(agent)
            terminated[i], truncated[i] = ended, not ended
            self._correct(agent)
            self._ended[i] = True
            env.step(None)
        if agents:
            self._turn(agents)
        look = self._observe_all(agents, last, infos, state)
        reward, self._corrections = reward + self._corrections, np.zeros(count)
        return CopyStep(look, reward, terminated, truncated, self._info(infos), None), not agents

    def _cut(self, moved: CopyStep) -> None:
        for agent in self._stepped.agents:
            i = self._find(agent)
            self._returns[i] += self._rewards[i]
            # The agent may have ended without a turn since then.
            ended = bool(self._stepped.terminations[agent])
            moved.terminated[i], moved.truncated[i] = ended, not ended

    def _some_ended(self) -> bool:
        ends = [*self._stepped.terminations.values(), *self._stepped.truncations.values()]
        return super()._some_ended() or any(ends)

    def _turn(self, agents: Sequence[str]) -> None:
        self._mover = self._stepped.agent_selection
        if self._mover not in agents:
            self._fault(f"agent_selection is {self._mover!r}, which is not in agents")
        self._correct(self._mover)

    def _correct(self, agent: str) -> None:
        """Correct the rewards since the agent's last turn to the value of ``last()``."""
        i = self._find(agent)
        earned = self._number(agent, self._stepped.last(observe=False)[1])
        if not math.isclose(earned, self._rewards[i], rel_tol=1e-9, abs_tol=1e-12):
            self._corrections[i] += earned - self._rewards[i]
        self._returns[i] += earned
        self._rewards[i] = 0.0

    def _observe_all(
        self,
        agents: Sequence[str],
        last: Mapping[str, Any],
        infos: Mapping[str, Any],
        state: Array | None,
        first: bool = False,
    ) -> Observed:
        """Return the Look of live ``agents``, with the ``last`` observations of ended agents."""
        observations = dict(last)
        for agent in agents:
            self._find(agent)
            observations[agent] = self._stepped.observe(agent)
        now = self._stepped.infos if agents else {}
        infos = {**infos, **{agent: now.get(agent) for agent in agents}}
        mover = self._mover if agents else None
        look = self._look(
            observations, infos, lambda agent: agent == mover, state, mover is None, first
        )
        if mover is not None and not look.acting.any():
            self._fault(f"it is the turn of {mover}, but its action_mask allows no action")
        return look
