"""The environments for TorchRL: its PettingZooWrapper, and what that loses put back.

    from corral.adapters.torchrl.env import torchrl_env

    env = torchrl_env("dfaas_v0", trace="edge3", illegal="raise", seed=0)
    rollout = env.rollout(48)  # random legal actions

Agents that are alike stand in one group, with a tensor for all of them:

| key | shape and type |
|---|---|
| ``(group, "observation", "observation")`` | [N, F]; one more name where observations are Dicts |
| ``(group, "action_mask")`` | bool [N, A]: what is legal; all true where an agent does not act |
| ``(group, "mask")`` | bool [N]: who acts; in turn-based games one agent, else all that live |
| ``(group, "action")`` | int64 [N] |
| ``(group, "reward")``, ``done``, ``terminated``, ``truncated`` | [N, 1] of each agent |
| ``(group, "info", ...)`` | float32 [N] |
| ``done``, ``terminated``, ``truncated`` | [1] of the episode: it is done when all agents are |
| ``state`` | float32 [G], with ``return_state=True`` |

What PettingZooWrapper alone gets wrong, and ``torchrl_env`` does not:

- It gives actions of agents that have ended to the environment. Here they are left out; the ended
  keep their own flags, get reward 0 and observe zeros.
- In turn-based games it takes no notice of who has ended, and plays an action where only None will
  do. Here those turns are taken for it.
- It resets a seeded environment once more before the first rollout, and so never plays the episode
  of that seed. Here the first rollout after ``seed=s`` or ``set_seed(s)`` is the episode that
  ``reset(seed=s)`` begins in PettingZoo.
- It stacks agents by the beginning of their names, and fails where these are unlike.

Random actions in many copies at once (SerialEnv, ParallelEnv) are drawn from the spec of the whole,
which knows nothing of the copies' masks; TorchRL's ActionMask transform loses them where only some
copies are reset. ``RandomLegal`` is a policy that reads the masks themselves::

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

__all__ = ["RandomLegal", "alike_by_name", "torchrl_env"]

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
        seed: of the first episode and, through its generator, of all that follow.
        group_map: agents by group; default: like agents of one name ("node_0", "node_1") together
            where all act at once, each by itself in turn-based games and where they are unlike.
        return_state: whether ``state`` holds the global state.
        device: of the tensors.
        env_kwargs: arguments of the environment, given by name.

    Raises:
        UnknownNameError: no environment of that name.
        MissingExtraError: TorchRL is not installed.
    """
    made = make(env, **env_kwargs) if isinstance(env, str) else env
    agents = made.possible_agents
    if isinstance(made, ParallelEnv):
        live, groups = _Parallel(made), alike_by_name(agents, made)
    else:
        live, groups = _Turns(made), _alone(agents)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PettingZoo in TorchRL is tested")
        return PettingZooWrapper(
            live,
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


def alike_by_name(agents: Sequence[str], spaces: Any) -> Groups:
    """Group agents of one name ("node_0", "node_1"), or each alone where their spaces differ.

    ``spaces`` has ``observation_space(agent)`` and ``action_space(agent)``.
    """
    named: Groups = {}
    for agent in agents:
        name, _, number = agent.rpartition("_")
        named.setdefault(name if name and number.isdigit() else agent, []).append(agent)
    own = {agent: (spaces.observation_space(agent), spaces.action_space(agent)) for agent in agents}
    if all(own[agent] == own[members[0]] for members in named.values() for agent in members):
        return named
    return _alone(agents)


def _alone(agents: Sequence[str]) -> Groups:
    return {agent: [agent] for agent in agents}


# --- Environments for PettingZooWrapper -----------------------------------------------------------


class _Seeding:
    """A seeded reset counts for the unseeded one that follows it."""

    _pending: int | None = None

    def seed_for(self, seed: int | None) -> int | None:
        if seed is not None:
            self._pending = seed
            return seed
        pending, self._pending = self._pending, None
        return pending


class _Parallel(BaseParallelWrapper):
    """Takes actions for all agents, and answers for all of them, the ended ones too."""

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
    """Takes the turns of ended agents, whose only action is None, and answers for all agents."""

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
        # Of this step; the turns of the ended clear them.
        self.rewards = dict.fromkeys(self.possible_agents, 0.0) | env.rewards
        self.terminations |= env.terminations
        self.truncations |= env.truncations
        self.infos = self._no_info | env.infos
        while env.agents and (
            env.terminations[env.agent_selection] or env.truncations[env.agent_selection]
        ):
            env.step(None)

    def observe(self, agent: str) -> Observation:
        """Return the agent's observation; zeros once it has left."""
        gone = agent not in self.env.agents
        obs: Observation = self._blank[agent] if gone else self.env.observe(agent)
        return obs

    @property
    def agent_selection(self) -> str | None:
        """The agent that acts; None at the end, where PettingZoo names an agent that has left."""
        return self.env.agent_selection if self.env.agents else None


def _zeros(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _zeros(part) for key, part in value.items()}
    return np.zeros_like(value)
