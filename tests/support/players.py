"""Players that try out an environment: random legal actions, and checks of all that is shown.

``player_of(env, seed)`` gives the one for a ParallelEnv or for an AECEnv.
"""

from __future__ import annotations

import math
import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from pettingzoo import ParallelEnv

__all__ = ["ContractViolation", "Player", "plain", "player_of", "require"]


class ContractViolation(AssertionError):
    """An environment breaks the contract; the message names the rule and the place."""


def require(condition: object, message: str) -> None:
    """Raise ContractViolation unless ``condition``: ``assert`` would vanish under -O."""
    if not condition:
        raise ContractViolation(message)


class Player(ABC):
    """Plays an environment, checks all that it shows and keeps that in ``record``.

    ``masks`` holds the action mask of every agent that is asked to act now, ``chosen`` a legal
    random action for each.
    """

    reward_types: tuple[type, ...] = (float,)

    def __init__(self, env: Any, seed: int | None) -> None:
        self.env = env
        self.spoils = False  # overwrite what was handed out, once it has been used
        self.begin(seed)

    def begin(self, seed: int | None) -> None:
        """Reset the environment, and oneself: the same actions wherever the masks are the same."""
        self.steps = 0
        self.record: list[Any] = []
        self.masks: dict[str, np.ndarray] = {}
        self.chosen: dict[str, int] = {}
        self._rng = np.random.default_rng(5)
        self._kept: list[tuple[Any, Any]] = []  # what was handed out, and what it was then
        self._info_keys: dict[str, list[str]] = {}
        self._gone: set[str] = set()
        self._reset(seed)
        require(self.env.agents == self.env.possible_agents, "all agents begin")

    @property
    def over(self) -> bool:
        return not self.env.agents

    @abstractmethod
    def step(self, actions: Mapping[str, int] | None = None) -> None:
        """Play what is chosen, except for the given ``actions``."""

    @abstractmethod
    def illegal_count(self, agent: str, action: int) -> Any:
        """Play ``action`` and what completes the turn; the agent's ``illegal_actions`` in info."""

    @abstractmethod
    def _reset(self, seed: int | None) -> None: ...

    def clone(self) -> Player:
        """A pickled copy, with an empty record, that goes on from here."""
        parts = {**self.__dict__, "record": [], "_kept": []}
        twin = object.__new__(type(self))
        twin.__dict__.update(pickle.loads(pickle.dumps(parts)))
        return twin

    # --- Taking down what is shown ---------------------------------------------------------------

    def _take_down(
        self, agent: str, observation: Any, reward: Any, ended: tuple[Any, Any], info: Any
    ) -> None:
        where = f"{agent}, step {self.steps}"
        _check_observation(self.env.observation_space(agent), observation, where)
        require(type(reward) in self.reward_types, f"{where}: reward is a {type(reward).__name__}")
        require(math.isfinite(reward), f"{where}: reward is finite, not {reward}")
        require(all(type(end) is bool for end in ended), f"{where}: ends are bool, not {ended}")
        require(ended != (True, True), f"{where}: both terminated and truncated")
        keys = self._info_keys.setdefault(agent, list(info))
        require(keys == list(info), f"{where}: info has the keys {list(info)}, at reset {keys}")
        require(
            all(type(value) in (int, float) and math.isfinite(value) for value in info.values()),
            f"{where}: info is numeric and finite: {info}",
        )
        require(agent not in self._gone, f"{where}: shown again after its end")
        self._keep(observation)
        self.record.append((agent, plain(observation), reward, ended, dict(info)))

    def _take_down_state(self) -> None:
        state, space = self.env.state(), self.env.state_space
        require(isinstance(state, np.ndarray), "state() is an array")
        require(state.dtype == space.dtype and space.contains(state), "state() is in state_space")
        self._keep(state)
        self.record.append(plain(state))

    def _ask(self, agent: str, observation: Mapping[str, Any]) -> None:
        """Remember the mask of an agent that has to act, and choose its action."""
        mask = observation["action_mask"].copy()
        require(mask.any(), f"{agent}, step {self.steps}: it has to act, but its mask is empty")
        self.masks[agent] = mask
        self.chosen[agent] = int(self._rng.choice(np.flatnonzero(mask)))

    def _keep(self, given: Any) -> None:
        self._kept.append((given, plain(given)))

    def _after_step(self) -> None:
        """See that nothing handed out earlier has changed since; or spoil it oneself."""
        if self.spoils:
            for given, _ in self._kept:
                _spoil(given)
            self._kept.clear()
        for given, was in self._kept:
            require(plain(given) == was, "what was handed out does not change later")
        del self._kept[:-20]  # the last few will do


class ParallelPlayer(Player):
    """Plays a ParallelEnv; a step is a step of the game."""

    def _reset(self, seed: int | None) -> None:
        observations, infos = self.env.reset(seed=seed)
        everyone = self.env.possible_agents
        require(set(observations) == set(infos) == set(everyone), "reset shows every agent")
        for agent in everyone:
            self._take_down(agent, observations[agent], 0.0, (False, False), infos[agent])
        self._look(observations)

    def step(self, actions: Mapping[str, int] | None = None) -> None:
        live = list(self.env.agents)
        given = self.env.step({**self.chosen, **(actions or {})})
        self.steps += 1
        for name, part in zip(
            ("observations", "rewards", "terminations", "truncations", "infos"), given, strict=True
        ):
            require(set(part) == set(live), f"{name} are for {sorted(part)}; live are {live}")
        observations, rewards, terminated, truncated, self._infos = given
        for agent in live:
            ended = (terminated[agent], truncated[agent])
            self._take_down(agent, observations[agent], rewards[agent], ended, self._infos[agent])
            if any(ended):
                self._gone.add(agent)
        remain = [agent for agent in live if agent not in self._gone]
        require(self.env.agents == remain, f"agents are {self.env.agents}; not ended: {remain}")
        self._look(observations)

    def illegal_count(self, agent: str, action: int) -> Any:
        self.step({agent: action})
        return self._infos[agent].get("illegal_actions")

    def _look(self, observations: Mapping[str, Any]) -> None:
        self.masks, self.chosen = {}, {}
        for agent in self.env.agents:
            self._ask(agent, observations[agent])
        self._take_down_state()
        self._after_step()


class TurnPlayer(Player):
    """Plays an AECEnv; a step is one agent's action. Ended agents are stepped over at once."""

    reward_types = (int, float)  # PettingZoo's own methods fill in integer zeros

    def _reset(self, seed: int | None) -> None:
        self.env.reset(seed=seed)
        require(not any(self.env.terminations.values()), "nobody is terminated after reset")
        require(not any(self.env.truncations.values()), "nobody is truncated after reset")
        self._look()

    def step(self, actions: Mapping[str, int] | None = None) -> None:
        agent = self.env.agent_selection
        self.env.step({**self.chosen, **(actions or {})}[agent])
        self.steps += 1
        self._counts = {a: info.get("illegal_actions") for a, info in self.env.infos.items()}
        self._look()

    def illegal_count(self, agent: str, action: int) -> Any:
        self.step({agent: action})
        if self.env.metadata["is_parallelizable"]:  # the game moves once the last has acted
            while self.env.agents and self.env.agent_selection != self.env.agents[0]:
                self.step()
        return self._counts[agent]

    def _look(self) -> None:
        """Take down what the selected agent is shown."""
        env = self.env
        self.masks, self.chosen = {}, {}
        while env.agents:
            for name in ("rewards", "terminations", "truncations", "infos"):
                part = getattr(env, name)
                require(set(part) == set(env.agents), f"{name} are for {list(part)}: {env.agents}")
            agent = env.agent_selection
            observation, reward, terminated, truncated, info = env.last()
            self._take_down(agent, observation, reward, (terminated, truncated), info)
            self._take_down_state()
            if not (terminated or truncated):
                self._ask(agent, observation)
                break
            env.step(None)
            self._gone.add(agent)
            require(agent not in env.agents, f"{agent} has ended, but is still among agents")
        self._after_step()


def player_of(env: Any, seed: int | None) -> Player:
    return ParallelPlayer(env, seed) if isinstance(env, ParallelEnv) else TurnPlayer(env, seed)


def plain(value: Any) -> Any:
    """Nested dicts of arrays as plain data that can be compared and hashed."""
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    return (value.dtype.str, value.shape, value.tobytes())


def _spoil(value: Any) -> None:
    if isinstance(value, dict):
        for part in value.values():
            _spoil(part)
        value.clear()
    else:
        value[...] = 0


def _check_observation(space: Any, observation: Any, where: str) -> None:
    for path, part, value in _leaves(space, observation, where):
        require(isinstance(value, np.ndarray), f"{path} is an array, not {type(value).__name__}")
        require(value.dtype == part.dtype, f"{path} is {value.dtype}, its space {part.dtype}")
        require(value.shape == part.shape, f"{path} is {value.shape}, its space {part.shape}")
        if not part.contains(value):  # formatting an array takes long: only where it is wrong
            raise ContractViolation(f"{path} is outside of its space: {value}")


def _leaves(space: Any, value: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(space, gymnasium.spaces.Dict):
        require(isinstance(value, dict), f"{path} is a dict")
        require(set(value) == set(space), f"{path} has the keys {sorted(value)}")
        for key in space:
            yield from _leaves(space[key], value[key], f"{path}, {key}")
    else:
        yield path, space, value
