"""Move the action mask from observations to infos, for frameworks that look for it there.

    env = mask_in_info(dfaas_v0.parallel_env())
    observations, infos = env.reset(seed=0)
    infos["node_0"]["action_mask"]  # int8 [A]; observations["node_0"] is the features alone

Environments of corral keep the mask in the observation, where buffers, networks and wrappers carry
it along, and their infos hold plain numbers only. This wrapper is for what reads infos.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import BaseParallelWrapper, BaseWrapper

from corral.errors import UnsupportedSpaceError

__all__ = ["mask_in_info"]

MASK = "action_mask"


def mask_in_info(env: Any) -> Any:
    """The ParallelEnv or AECEnv ``env`` with ``info["action_mask"]`` instead of an observed mask.

    The observation becomes what was under ``observation``, which may be a Dict itself; where an
    observation has other entries beside it, the Dict of all but the mask. Masks are copies, int8
    [A], of the observations that come with the infos: those of ``reset`` and ``step`` of a
    ParallelEnv, those of ``last()`` and ``infos`` of an AECEnv. Agents without a mask stay as they
    are; what else infos hold stays too.

    Raises UnsupportedSpaceError for what is no PettingZoo environment, and where no agent observes
    a mask.
    """
    name = str(getattr(env, "metadata", {}).get("name", type(env).__name__))
    if not isinstance(env, ParallelEnv | AECEnv):
        raise UnsupportedSpaceError(
            f"{type(env).__name__} is no PettingZoo environment; give a ParallelEnv or an AECEnv"
        )
    views = {agent: env.observation_space(agent) for agent in env.possible_agents}
    masked = frozenset(agent for agent, space in views.items() if _has_mask(space))
    if not masked:
        raise UnsupportedSpaceError(
            f'{name}: no agent observes a Dict with "{MASK}"; there is no mask to move'
        )
    return (_Parallel if isinstance(env, ParallelEnv) else _Turns)(env, masked)


class _Parallel(BaseParallelWrapper):  # type: ignore[misc]  # PettingZoo ships no types
    def __init__(self, env: Any, masked: frozenset[str]) -> None:
        super().__init__(env)
        self.masked = masked

    @property
    def observation_spaces(self) -> dict[str, spaces.Space[Any]]:
        return {agent: self.observation_space(agent) for agent in self.possible_agents}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        space = self.env.observation_space(agent)
        return _space_without_mask(space) if agent in self.masked else space

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        observations, infos = self.env.reset(seed=seed, options=options)
        return self._features(observations), self._infos(observations, infos)

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        told = self._infos(observations, infos)
        return self._features(observations), rewards, terminated, truncated, told

    def _features(self, observations: Mapping[str, Any]) -> dict[str, Any]:
        return {
            agent: _without_mask(seen) if agent in self.masked else seen
            for agent, seen in observations.items()
        }

    def _infos(
        self, observations: Mapping[str, Any], infos: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        return {
            agent: _with_mask(info, observations.get(agent) if agent in self.masked else None)
            for agent, info in infos.items()
        }


class _Turns(BaseWrapper):  # type: ignore[misc]
    def __init__(self, env: Any, masked: frozenset[str]) -> None:
        super().__init__(env)
        self.masked = masked
        self._told: dict[str, dict[str, Any]] = {}  # infos of this turn, made when asked for

    @property
    def observation_spaces(self) -> dict[str, spaces.Space[Any]]:
        return {agent: self.observation_space(agent) for agent in self.possible_agents}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        space = self.env.observation_space(agent)
        return _space_without_mask(space) if agent in self.masked else space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self._told = {}
        self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> None:
        self._told = {}
        self.env.step(action)

    def observe(self, agent: str) -> Any:
        seen = self.env.observe(agent)
        return _without_mask(seen) if agent in self.masked and seen is not None else seen

    @property
    def infos(self) -> dict[str, dict[str, Any]]:
        """Every agent's info, with the mask of what it would observe now."""
        return {agent: self._info(agent) for agent in self.env.infos}

    def last(self, observe: bool = True) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Observation (None without ``observe``), reward, ends and info of whose turn it is."""
        _, reward, terminated, truncated, _ = self.env.last(observe=False)
        agent = self.env.agent_selection
        features = self.observe(agent) if observe else None
        return features, reward, terminated, truncated, self._info(agent)

    def _info(self, agent: str) -> dict[str, Any]:
        if agent not in self._told:  # PettingZoo wants last() and infos to give the same object
            seen = self.env.observe(agent) if agent in self.masked else None
            self._told[agent] = _with_mask(self.env.infos[agent], seen)
        return self._told[agent]


def _has_mask(space: Any) -> bool:
    return isinstance(space, spaces.Dict) and MASK in space.spaces and len(space.spaces) > 1


def _space_without_mask(space: Any) -> spaces.Space[Any]:
    rest = {key: part for key, part in space.spaces.items() if key != MASK}
    return rest["observation"] if set(rest) == {"observation"} else spaces.Dict(rest)


def _without_mask(seen: Mapping[str, Any]) -> Any:
    rest = {key: part for key, part in seen.items() if key != MASK}
    return rest["observation"] if set(rest) == {"observation"} else rest


def _with_mask(info: Mapping[str, Any], seen: Mapping[str, Any] | None) -> dict[str, Any]:
    if seen is None:
        return dict(info)
    return {**info, MASK: np.array(seen[MASK], dtype=np.int8)}
