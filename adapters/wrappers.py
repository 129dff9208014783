"""Wrappers for PettingZoo environments, of corral or of others.

    vec_env = vectorize(homogenize(env), num_envs=8)

Vectorised learners want one shape for all agents and all of them in every step: ``homogenize`` pads
what differs and keeps agents that have ended in place.

    env = mask_in_info(dfaas_v0.parallel_env())
    observations, infos = env.reset(seed=0)
    infos["node_0"]["action_mask"]  # int8 [A]; observations["node_0"] is the features alone

Environments of corral keep the mask in the observation, where buffers, networks and wrappers carry
it along, and their infos hold plain numbers only: ``mask_in_info`` is for what reads infos.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import BaseParallelWrapper, BaseWrapper

from corral.adapters.spaces import count_actions
from corral.envs.core import Array
from corral.envs.masks import MASK, OBSERVATION, has_mask, masked_space, split, split_space
from corral.errors import IllegalActionError, ResetNeededError, UnsupportedSpaceError

__all__ = ["Homogenized", "homogenize", "mask_in_info"]


# --- Agents alike, and all of them to the end ----------------------------------------------------


def homogenize(parallel_env: Any) -> Homogenized:
    """Return ``parallel_env`` with one observation space and one action space for all agents.

    Every observation is a Dict of ``observation`` and ``action_mask``:

    * ``observation``, or each entry of it where it is a Dict: Box, zeros added at the end of every
      axis up to the largest; bounds, dtype and entries take in all agents';
    * ``action_mask``: int8 [A], A the largest number of actions; the added ones are illegal.

    An agent that ends before the others stays: its observation is zeros, its mask allows action 0
    alone, which the environment is not told of, its reward is 0. It counts as terminated when all
    have ended, so that what it is worth after its end is learned to be 0.

    Raises UnsupportedSpaceError where an environment is no ParallelEnv, an action space is not
    Discrete from 0, or observations differ in more than their sizes; and, when stepping, where
    time is up for some agents only: their values would go on, and here they cannot.
    """
    return Homogenized(parallel_env)


class Homogenized(ParallelEnv[str, Any, int]):  # type: ignore[misc]  # PettingZoo ships no types
    """A ParallelEnv around another one; see ``homogenize``."""

    def __init__(self, env: Any) -> None:
        name = str(getattr(env, "metadata", {}).get("name", env))
        if not isinstance(env, ParallelEnv):
            raise UnsupportedSpaceError(f"{name} is no ParallelEnv; give the parallel_env()")
        self.env = env
        self.name = name
        self.metadata = env.metadata
        self.render_mode = getattr(env, "render_mode", None)
        self.possible_agents = list(env.possible_agents)
        self.agents: list[str] = []
        self._sizes = {
            agent: count_actions(env.action_space(agent), f"{name}: ")
            for agent in env.possible_agents
        }
        self._actions = max(self._sizes.values())
        parts = [split_space(env.observation_space(agent))[0] for agent in self.possible_agents]
        self._space = masked_space(_common(name, parts), self._actions)
        self._action_space = spaces.Discrete(self._actions)

    @property
    def unwrapped(self) -> Any:
        return self.env.unwrapped

    def observation_space(self, agent: str) -> spaces.Dict:
        return self._space

    def action_space(self, agent: str) -> spaces.Discrete:
        return self._action_space

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begin an episode; all agents take part."""
        observations, infos = self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        self._keys = {agent: dict.fromkeys(infos.get(agent, {}), 0) for agent in self.agents}
        return self._padded(observations, self.env.agents), self._infos(infos)

    def step(
        self, actions: Mapping[str, int]
    ) -> tuple[
        dict[str, Any],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """Play one action per agent; those of agents that have ended must be 0.

        Raises IllegalActionError, before anything changes, for an action that was added, or any but
        0 of an agent that has ended. All other actions are the environment's to judge.
        """
        if not self.agents:
            raise ResetNeededError(f"{self.name}: the episode is over; call reset()")
        live = list(self.env.agents)
        for agent, action in actions.items():
            legal = self._sizes.get(agent, 1) if agent in live else 1
            if agent in self.agents and operator.index(action) >= legal:
                raise IllegalActionError(
                    f"{agent}: action {action} is illegal here; legal at most: 0..{legal - 1}. "
                    'Choose by observation["action_mask"].'
                )
        played = {a: action for a, action in actions.items() if a in live or a not in self.agents}
        observations, rewards, terminated, truncated, infos = self.env.step(played)

        over = not self.env.agents
        cut = [agent for agent in live if truncated[agent] and not terminated[agent]]
        if cut and not over:
            raise UnsupportedSpaceError(
                f"{self.name}: time is up for {', '.join(cut)}, but not for the others: their "
                "values go on after the cut, which agents kept in place cannot show. Step it with "
                "agents that end together"
            )
        everyone = self.agents
        if over:
            self.agents = []
        return (
            self._padded(observations, live if over else self.env.agents),
            {agent: float(rewards.get(agent, 0.0)) for agent in everyone},
            {agent: over and agent not in cut for agent in everyone},
            {agent: over and agent in cut for agent in everyone},
            self._infos(infos),
        )

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def state(self) -> Array:
        return np.asarray(self.env.state())

    # --- Parts -----------------------------------------------------------------------------------

    def _padded(self, observations: Mapping[str, Any], live: Sequence[str]) -> dict[str, Any]:
        """Return all agents' observations, padded; zeros for those that are not ``live``."""
        padded = {}
        for agent in self.possible_agents:
            observation, own_mask = split(observations[agent]) if agent in live else (None, None)
            mask = np.zeros(self._actions, dtype=np.int8)
            if agent not in live:
                mask[0] = 1
            else:
                mask[: self._sizes[agent]] = 1 if own_mask is None else own_mask
            padded[agent] = {OBSERVATION: _pad(self._space[OBSERVATION], observation), MASK: mask}
        return padded

    def _infos(self, infos: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return all agents' infos; where one has none, zeros under the keys of its first."""
        return {agent: dict(infos.get(agent, self._keys[agent])) for agent in self.possible_agents}


def _common(name: str, parts: Sequence[Any]) -> Any:
    """Return the least space that takes in all of ``parts``, padded with zeros."""
    same_entries = all(isinstance(part, spaces.Dict) for part in parts) and (
        len({frozenset(part.spaces) for part in parts}) == 1
    )
    if same_entries:
        return spaces.Dict({k: _common(name, [p[k] for p in parts]) for k in parts[0].spaces})
    same_axes = all(isinstance(part, spaces.Box) for part in parts) and (
        len({len(part.shape) for part in parts}) == 1
    )
    if not same_axes:
        raise UnsupportedSpaceError(
            f"{name}: the agents see {', '.join(map(str, parts))}; only Boxes of as many axes, or "
            "Dicts of such with the same entries, can be padded to one"
        )
    shape = tuple(np.max([part.shape for part in parts], axis=0).tolist())
    dtype = np.result_type(*(part.dtype for part in parts))
    # The zeros of the padding, and of ended agents, are inside of the bounds too.
    low, high = np.zeros(shape, dtype), np.zeros(shape, dtype)
    for part in parts:
        corner = tuple(slice(size) for size in part.shape)
        low[corner] = np.minimum(low[corner], part.low)
        high[corner] = np.maximum(high[corner], part.high)
    return spaces.Box(low, high, shape, dtype.type)


def _pad(space: Any, value: Any) -> Any:
    """Return ``value`` in the corner of zeros; None: zeros alone."""
    if isinstance(space, spaces.Dict):
        return {k: _pad(part, None if value is None else value[k]) for k, part in space.items()}
    padded = np.zeros(space.shape, space.dtype)
    if value is not None:
        padded[tuple(slice(size) for size in np.shape(value))] = value
    return padded


# --- Masks in infos ------------------------------------------------------------------------------


def mask_in_info(env: Any) -> Any:
    """Return the ParallelEnv or AECEnv ``env`` with masks in infos instead of observations.

    ``info["action_mask"]`` is the mask; the observation becomes what was under ``observation``,
    which may be a Dict itself, or where an observation has other entries beside it, the Dict of all
    but the mask. Masks are copies, int8 [A], of the observations that come with the infos: those of
    ``reset`` and ``step`` of a ParallelEnv, those of ``last()`` and ``infos`` of an AECEnv. Agents
    without a mask stay as they are; what else infos hold stays too.

    Raises UnsupportedSpaceError for what is no PettingZoo environment, and where no agent observes
    a mask.
    """
    name = str(getattr(env, "metadata", {}).get("name", type(env).__name__))
    if not isinstance(env, ParallelEnv | AECEnv):
        raise UnsupportedSpaceError(
            f"{type(env).__name__} is no PettingZoo environment; give a ParallelEnv or an AECEnv"
        )
    own = {agent: env.observation_space(agent) for agent in env.possible_agents}
    # A mask alone is an observation, and stays.
    masked = frozenset(a for a, space in own.items() if has_mask(space) and len(space.spaces) > 1)
    if not masked:
        raise UnsupportedSpaceError(
            f'{name}: no agent observes a Dict with "{MASK}"; there is no mask to move'
        )
    return (_ParallelInfo if isinstance(env, ParallelEnv) else _AECInfo)(env, masked)


class _MaskInInfo:
    """Base of both wrappers; ``masked`` are the agents whose masks move."""

    env: Any
    possible_agents: list[str]

    def __init__(self, env: Any, masked: frozenset[str]) -> None:
        super().__init__(env)  # type: ignore[call-arg]  # PettingZoo's wrapper, next in line
        self.masked = masked

    @property
    def observation_spaces(self) -> dict[str, spaces.Space[Any]]:
        return {agent: self.observation_space(agent) for agent in self.possible_agents}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        space = self.env.observation_space(agent)
        return split_space(space)[0] if agent in self.masked else space

    def _features(self, agent: str, observation: Any) -> Any:
        return split(observation)[0] if agent in self.masked else observation

    def _info(self, agent: str, info: Mapping[str, Any], observation: Any) -> dict[str, Any]:
        """Return ``info`` with a copy of the observed mask, int8 [A]; None: nothing is observed."""
        if agent not in self.masked or observation is None:
            return dict(info)
        return {**info, MASK: np.array(observation[MASK], dtype=np.int8)}


class _ParallelInfo(_MaskInInfo, BaseParallelWrapper):  # type: ignore[misc]  # no types
    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        return self._moved(*self.env.reset(seed=seed, options=options))

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        observations, infos = self._moved(observations, infos)
        return observations, rewards, terminated, truncated, infos

    def _moved(
        self, observations: Mapping[str, Any], infos: Mapping[str, Mapping[str, Any]]
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        return (
            {agent: self._features(agent, own) for agent, own in observations.items()},
            {
                agent: self._info(agent, own, observations.get(agent))
                for agent, own in infos.items()
            },
        )


class _AECInfo(_MaskInInfo, BaseWrapper):  # type: ignore[misc]
    def __init__(self, env: Any, masked: frozenset[str]) -> None:
        super().__init__(env, masked)
        self._turn_infos: dict[str, dict[str, Any]] = {}  # of this turn, made when asked for

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self._turn_infos = {}
        self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> None:
        self._turn_infos = {}
        self.env.step(action)

    def observe(self, agent: str) -> Any:
        return self._features(agent, self.env.observe(agent))

    @property
    def infos(self) -> dict[str, dict[str, Any]]:
        """Every agent's info, with the mask of what it would observe now."""
        return {agent: self._info_of(agent) for agent in self.env.infos}

    def last(self, observe: bool = True) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return observation (None without ``observe``), reward, ends and info of who acts."""
        _, reward, terminated, truncated, _ = self.env.last(observe=False)
        agent = self.env.agent_selection
        features = self.observe(agent) if observe else None
        return features, reward, terminated, truncated, self._info_of(agent)

    def _info_of(self, agent: str) -> dict[str, Any]:
        if agent not in self._turn_infos:  # PettingZoo: last() and infos give the same object
            observation = self.env.observe(agent) if agent in self.masked else None
            self._turn_infos[agent] = self._info(agent, self.env.infos[agent], observation)
        return self._turn_infos[agent]
