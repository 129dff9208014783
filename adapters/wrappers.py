"""Wrappers for PettingZoo environments, both of corral and of third parties.

    vec_env = vectorize(homogenize(env), num_envs=8)

Vectorized learners require the same shape for all agents, and all agents in every step.
``homogenize`` pads different spaces, and keeps ended agents in place.

    env = mask_in_info(dfaas_v0.parallel_env())
    observations, infos = env.reset(seed=0)
    infos["node_0"]["action_mask"]  # int8 [A]; observations["node_0"] holds only features

Environments of corral keep the mask in the observation, so that buffers, networks and wrappers
preserve it. Their infos hold only plain numbers. ``mask_in_info`` is for code that reads masks from
infos.
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


# --- Equal spaces, and all agents until the end --------------------------------------------------


def homogenize(parallel_env: Any) -> Homogenized:
    """Return ``parallel_env`` with one observation space and one action space for all agents.

    Every observation is a Dict of ``observation`` and ``action_mask``:

    * ``observation``, or each of its entries for a Dict: a Box, padded with zeros at the end of
      every axis up to the largest size; bounds, dtype and entries cover all agents;
    * ``action_mask``: int8 [A], with the largest number of actions A; added actions are illegal.

    An agent that ends before other agents stays. Its observation is zero, its reward is 0, and its
    mask allows only action 0, which does not reach the environment. It counts as terminated when
    all agents have ended, so a critic learns a value of 0 after its end.

    Raises UnsupportedSpaceError if the environment is not a ParallelEnv, an action space is not
    Discrete from 0, or observations differ in more than their sizes. When stepping, raises it if
    only some agents are truncated: their values continue, which agents in place cannot represent.
    """
    return Homogenized(parallel_env)


class Homogenized(ParallelEnv[str, Any, int]):  # type: ignore[misc]  # PettingZoo ships no types
    """A ParallelEnv around another one; see ``homogenize``."""

    def __init__(self, env: Any) -> None:
        name = str(getattr(env, "metadata", {}).get("name", env))
        if not isinstance(env, ParallelEnv):
            raise UnsupportedSpaceError(f"{name} is not a ParallelEnv; pass the parallel_env()")
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
        """Begin an episode with all agents."""
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
        """Play one action per agent. The actions of ended agents must be 0.

        Raises IllegalActionError, before anything changes, for an added action, or for an action
        other than 0 of an ended agent. The environment checks all other actions.
        """
        if not self.agents:
            raise ResetNeededError(f"{self.name}: the episode is over; call reset()")
        live = list(self.env.agents)
        for agent, action in actions.items():
            legal = self._sizes.get(agent, 1) if agent in live else 1
            if agent in self.agents and operator.index(action) >= legal:
                raise IllegalActionError(
                    f"{agent}: action {action} is illegal; at most 0..{legal - 1} are legal. "
                    'Choose an action that observation["action_mask"] allows.'
                )
        played = {a: action for a, action in actions.items() if a in live or a not in self.agents}
        observations, rewards, terminated, truncated, infos = self.env.step(played)

        over = not self.env.agents
        truncated_agents = [agent for agent in live if truncated[agent] and not terminated[agent]]
        if truncated_agents and not over:
            raise UnsupportedSpaceError(
                f"{self.name}: the time limit cut {', '.join(truncated_agents)}, but not the other "
                "agents. Their values continue after the cut, which agents in place cannot "
                "represent. Use an environment with one time limit for all agents"
            )
        all_agents = self.agents
        if over:
            self.agents = []
        return (
            self._padded(observations, live if over else self.env.agents),
            {agent: float(rewards.get(agent, 0.0)) for agent in all_agents},
            {agent: over and agent not in truncated_agents for agent in all_agents},
            {agent: over and agent in truncated_agents for agent in all_agents},
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
        """Return the padded observations of all agents; zeros for agents that are not ``live``."""
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
        """Return the infos of all agents; a missing info has zeros under the keys of its first."""
        return {agent: dict(infos.get(agent, self._keys[agent])) for agent in self.possible_agents}


def _common(name: str, parts: Sequence[Any]) -> Any:
    """Return the smallest space that contains all of ``parts``, padded with zeros."""
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
            f"{name}: the agents observe {', '.join(map(str, parts))}. Only Boxes with the same "
            "number of axes, or Dicts of such Boxes with the same entries, can be padded"
        )
    shape = tuple(np.max([part.shape for part in parts], axis=0).tolist())
    dtype = np.result_type(*(part.dtype for part in parts))
    # The bounds also include the zeros of the padding and of ended agents.
    low, high = np.zeros(shape, dtype), np.zeros(shape, dtype)
    for part in parts:
        corner = tuple(slice(size) for size in part.shape)
        low[corner] = np.minimum(low[corner], part.low)
        high[corner] = np.maximum(high[corner], part.high)
    return spaces.Box(low, high, shape, dtype.type)


def _pad(space: Any, value: Any) -> Any:
    """Return zeros with ``value`` in the corner; None: only zeros."""
    if isinstance(space, spaces.Dict):
        return {k: _pad(part, None if value is None else value[k]) for k, part in space.items()}
    padded = np.zeros(space.shape, space.dtype)
    if value is not None:
        padded[tuple(slice(size) for size in np.shape(value))] = value
    return padded


# --- Masks in infos ------------------------------------------------------------------------------


def mask_in_info(env: Any) -> Any:
    """Return the ParallelEnv or AECEnv ``env`` with masks in infos instead of observations.

    ``info["action_mask"]`` is the mask. The new observation is the former entry ``observation``,
    which may itself be a Dict. If there are more entries, it is the Dict of all entries except the
    mask. Masks are copies, int8 [A], from the observations that belong to the infos: those of
    ``reset`` and ``step`` in a ParallelEnv, those of ``last()`` and ``infos`` in an AECEnv. Agents
    without a mask and all other entries of infos stay unchanged.

    Raises UnsupportedSpaceError if ``env`` is not a PettingZoo environment, or no agent observes a
    mask.
    """
    name = str(getattr(env, "metadata", {}).get("name", type(env).__name__))
    if not isinstance(env, ParallelEnv | AECEnv):
        raise UnsupportedSpaceError(
            f"{type(env).__name__} is not a PettingZoo environment; pass a ParallelEnv or an AECEnv"
        )
    observation_spaces = {agent: env.observation_space(agent) for agent in env.possible_agents}
    # An observation with only a mask keeps it.
    masked = frozenset(
        a for a, space in observation_spaces.items() if has_mask(space) and len(space.spaces) > 1
    )
    if not masked:
        raise UnsupportedSpaceError(
            f'{name}: no agent observes a Dict with "{MASK}"; use the environment without this '
            "wrapper"
        )
    return (_ParallelInfo if isinstance(env, ParallelEnv) else _AECInfo)(env, masked)


class _MaskInInfo:
    """Base of both wrappers. ``masked`` are the agents with masks."""

    env: Any
    possible_agents: list[str]

    def __init__(self, env: Any, masked: frozenset[str]) -> None:
        super().__init__(env)  # type: ignore[call-arg]  # PettingZoo's wrapper, next in the MRO
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
        """Return ``info`` with a copy of the observed mask, int8 [A]; unchanged without one."""
        if agent not in self.masked or observation is None:
            return dict(info)
        return {**info, MASK: np.array(observation[MASK], dtype=np.int8)}


class _ParallelInfo(_MaskInInfo, BaseParallelWrapper):  # type: ignore[misc]  # no types
    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        return self._with_masks_moved(*self.env.reset(seed=seed, options=options))

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        observations, infos = self._with_masks_moved(observations, infos)
        return observations, rewards, terminated, truncated, infos

    def _with_masks_moved(
        self, observations: Mapping[str, Any], infos: Mapping[str, Mapping[str, Any]]
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        return (
            {agent: self._features(agent, value) for agent, value in observations.items()},
            {
                agent: self._info(agent, value, observations.get(agent))
                for agent, value in infos.items()
            },
        )


class _AECInfo(_MaskInInfo, BaseWrapper):  # type: ignore[misc]
    def __init__(self, env: Any, masked: frozenset[str]) -> None:
        super().__init__(env, masked)
        self._turn_infos: dict[str, dict[str, Any]] = {}  # of this turn, made on first access

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
        """The infos of all agents, with the masks of their current observations."""
        return {agent: self._info_of(agent) for agent in self.env.infos}

    def last(self, observe: bool = True) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return observation, reward, terminated, truncated and info of the acting agent.

        The observation is None without ``observe``.
        """
        _, reward, terminated, truncated, _ = self.env.last(observe=False)
        agent = self.env.agent_selection
        features = self.observe(agent) if observe else None
        return features, reward, terminated, truncated, self._info_of(agent)

    def _info_of(self, agent: str) -> dict[str, Any]:
        if (
            agent not in self._turn_infos
        ):  # as in PettingZoo, last() and infos return the same object
            observation = self.env.observe(agent) if agent in self.masked else None
            self._turn_infos[agent] = self._info(agent, self.env.infos[agent], observation)
        return self._turn_infos[agent]
