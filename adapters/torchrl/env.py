"""Environments for TorchRL: its PettingZooWrapper, with corrections.

    from corral.adapters.torchrl.env import torchrl_env

    env = torchrl_env("dfaas_v0", trace="edge3", illegal="raise", seed=0)
    rollout = env.rollout(48)  # random legal actions

Agents with equal spaces form one group, with one tensor for all of them:

| key | shape and type |
|---|---|
| ``(group, "observation", "observation")`` | [N, F]; one more key for Dict observations |
| ``(group, "action_mask")`` | bool [N, A]: legal actions; all True for agents that do not act |
| ``(group, "mask")`` | bool [N]: acting agents; one in turn-based games, else all live agents |
| ``(group, "action")`` | int64 [N] |
| ``(group, "reward")``, ``done``, ``terminated``, ``truncated`` | [N, 1] of each agent |
| ``(group, "info", ...)`` | float32 [N] |
| ``done``, ``terminated``, ``truncated`` | [1] of the episode, which is done if all agents are |
| ``state`` | float32 [G], with ``return_state=True`` |

``torchrl_env`` corrects these errors of PettingZooWrapper:

- PettingZooWrapper passes actions of ended agents to the environment. ``torchrl_env`` leaves them
  out. Ended agents keep their flags, get reward 0 and observe zeros.
- In turn-based games, PettingZooWrapper plays an action for an ended agent, although only None is
  valid. ``torchrl_env`` makes these turns itself.
- PettingZooWrapper resets a seeded environment again before the first rollout, so it never plays
  the episode of the seed. With ``torchrl_env``, the first rollout after ``seed=s`` or
  ``set_seed(s)`` is the episode of ``reset(seed=s)`` in PettingZoo.
- PettingZooWrapper groups agents by the first part of their names, and fails if their spaces
  differ.

For several copies (SerialEnv, ParallelEnv), TorchRL draws random actions from one common spec
without the masks of the copies. TorchRL's ActionMask transform loses masks if only some copies are
reset. ``RandomLegal`` is a policy that reads the masks from the observations::

    env = SerialEnv(8, lambda: torchrl_env("dfaas_v0", trace="edge3", illegal="raise"))
    rollout = env.rollout(48, RandomLegal(env))
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.wrappers.base import BaseWrapper
from pettingzoo.utils.wrappers.base_parallel import BaseParallelWrapper

from corral.envs.core import Observation
from corral.envs.masks import MASK
from corral.envs.registry import make
from corral.extras import require

require("torchrl", extra="torchrl", purpose="make environments for TorchRL")

import torch  # noqa: E402
from tensordict import TensorDictBase  # noqa: E402
from tensordict.nn import TensorDictModuleBase  # noqa: E402
from torchrl.envs import EnvBase, PettingZooWrapper  # noqa: E402

__all__ = ["RandomLegal", "group_by_name", "torchrl_env"]

Groups = dict[str, list[str]]


def torchrl_env(
    env: str | ParallelEnv[str, Any, Any] | AECEnv[str, Any, Any],
    *,
    seed: int | None = None,
    group_map: Groups | None = None,
    return_state: bool = False,
    device: Any = None,
    **env_kwargs: Any,
) -> PettingZooWrapper:
    """Return an environment of corral, or another PettingZoo environment, as TorchRL's EnvBase.

    Args:
        env: an environment's name, or a PettingZoo environment.
        seed: seed of the first episode; later episodes continue its random stream.
        group_map: agents by group; default: agents with a common name ("node_0", "node_1") form a
            group. In turn-based games, or if spaces in a group differ, each agent is a group.
        return_state: whether ``state`` holds the global state.
        device: device of the tensors.
        env_kwargs: arguments of the environment, by name.

    Raises:
        UnknownNameError: no environment with that name.
        MissingExtraError: TorchRL is not installed.
    """
    base_env = make(env, **env_kwargs) if isinstance(env, str) else env
    agents = base_env.possible_agents
    if isinstance(base_env, ParallelEnv):
        wrapped, groups = _Parallel(base_env), group_by_name(agents, base_env)
    else:
        wrapped, groups = _Turns(base_env), _alone(agents)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PettingZoo in TorchRL is tested")
        return PettingZooWrapper(
            wrapped,
            return_state=return_state,
            group_map=groups if group_map is None else group_map,
            use_mask=True,
            categorical_actions=True,
            done_on_any=False,
            seed=seed,
            device=device,
        )


class RandomLegal(TensorDictModuleBase):
    """A policy for ``env`` that draws uniformly from the legal actions of every agent."""

    def __init__(self, env: EnvBase) -> None:
        super().__init__()
        self.out_keys = list(env.action_keys)
        self.in_keys = [(*key[:-1], MASK) for key in self.out_keys]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        for mask_key, action_key in zip(self.in_keys, self.out_keys, strict=True):
            mask = tensordict[mask_key]  # [..., N, A]
            drawn = torch.multinomial(mask.flatten(0, -2).float(), 1)
            tensordict[action_key] = drawn.view(mask.shape[:-1])
        return tensordict


def group_by_name(agents: Sequence[str], spaces: Any) -> Groups:
    """Group agents with a common name ("node_0", "node_1"). Group each alone if spaces differ.

    ``spaces`` has ``observation_space(agent)`` and ``action_space(agent)``.
    """
    groups: Groups = {}
    for agent in agents:
        name, _, number = agent.rpartition("_")
        groups.setdefault(name if name and number.isdigit() else agent, []).append(agent)
    spaces_of = {
        agent: (spaces.observation_space(agent), spaces.action_space(agent)) for agent in agents
    }
    if all(
        spaces_of[agent] == spaces_of[members[0]]
        for members in groups.values()
        for agent in members
    ):
        return groups
    return _alone(agents)


def _alone(agents: Sequence[str]) -> Groups:
    return {agent: [agent] for agent in agents}


# --- Environments for PettingZooWrapper -----------------------------------------------------------


class _Seeding:
    """Applies the seed of a reset also to the unseeded reset that follows it."""

    _pending: int | None = None

    def seed_for(self, seed: int | None) -> int | None:
        if seed is not None:
            self._pending = seed
            return seed
        pending, self._pending = self._pending, None
        return pending


class _Parallel(BaseParallelWrapper):
    """A ParallelEnv that takes actions and returns results for all agents, including ended ones."""

    def __init__(self, env: ParallelEnv[str, Any, Any]) -> None:
        super().__init__(env)
        self._seeding = _Seeding()

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        observations, infos = self.env.reset(seed=self._seeding.seed_for(seed), options=options)
        self._blank = _zeros(observations)
        self._no_info = _zeros(infos)
        self._terminated = dict.fromkeys(self.possible_agents, False)
        self._truncated = dict.fromkeys(self.possible_agents, False)
        return observations, infos

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[
        dict[str, Observation],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        self._seeding.seed_for(None)
        live = {agent: actions[agent] for agent in self.env.agents}
        observations, rewards, terminated, truncated, infos = self.env.step(live)
        self._terminated |= terminated
        self._truncated |= truncated
        return (
            self._blank | observations,
            dict.fromkeys(self.possible_agents, 0.0) | rewards,
            dict(self._terminated),
            dict(self._truncated),
            self._no_info | infos,
        )


class _Turns(BaseWrapper):
    """An AECEnv that makes the turns of ended agents, and returns results for all agents."""

    def __init__(self, env: AECEnv[str, Any, Any]) -> None:
        super().__init__(env)
        self._seeding = _Seeding()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        env = self.env
        env.reset(seed=self._seeding.seed_for(seed), options=options)
        self._blank = _zeros({agent: env.observe(agent) for agent in self.possible_agents})
        self._no_info = _zeros(env.infos)
        self.rewards = dict.fromkeys(self.possible_agents, 0.0)
        self.terminations = dict.fromkeys(self.possible_agents, False)
        self.truncations = dict.fromkeys(self.possible_agents, False)
        self.infos = dict(env.infos)

    def step(self, action: Any) -> None:
        self._seeding.seed_for(None)
        env = self.env
        env.step(action)
        # The rewards of this step, before the turns of ended agents clear them.
        self.rewards = dict.fromkeys(self.possible_agents, 0.0) | env.rewards
        self.terminations |= env.terminations
        self.truncations |= env.truncations
        self.infos = self._no_info | env.infos
        while env.agents and (
            env.terminations[env.agent_selection] or env.truncations[env.agent_selection]
        ):
            env.step(None)

    def observe(self, agent: str) -> Observation:
        """Return the agent's observation; zeros for an agent that has left."""
        has_left = agent not in self.env.agents
        obs: Observation = self._blank[agent] if has_left else self.env.observe(agent)
        return obs

    @property
    def agent_selection(self) -> str | None:
        """The acting agent; None at the end, when PettingZoo returns an agent that has left."""
        return self.env.agent_selection if self.env.agents else None


def _zeros(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _zeros(part) for key, part in value.items()}
    return np.zeros_like(value)
