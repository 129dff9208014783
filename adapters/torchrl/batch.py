"""Vectorized copies of a game as one TorchRL environment over Batch.

    from corral.adapters.torchrl.batch import BatchEnv

    env = BatchEnv("dfaas_v0", num_envs=64, seed=0, trace="edge3", illegal="raise")
    rollout = env.rollout(48)  # tensors [64, 48, ...]

The keys are those of ``corral.adapters.torchrl.env`` without info, and shapes begin with the
copies. TorchRL's PettingZooWrapper takes many times as long as a step of these games. ``BatchEnv``
makes the tensors once for all copies.

It is for games in which all agents act simultaneously. For turn-based games, use ``torchrl_env``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.adapters.sources import EnvLike, rules_of
from corral.adapters.spaces import refuse_turns
from corral.adapters.torchrl.env import group_by_name
from corral.envs.batch import BatchStep, batch_for
from corral.envs.core import Array, Observation, stack_agents
from corral.envs.masks import MASK, OBSERVATION, split_space
from corral.envs.policy import put_tree
from corral.errors import CorralError, UnsupportedSpaceError

import torch  # isort: skip
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Categorical, Composite, Unbounded
from torchrl.envs import EnvBase
from torchrl.envs.libs.gym import _gym_to_torchrl_spec_transform as spec_of

__all__ = ["BatchEnv"]

DONE = ("done", "terminated", "truncated")

Encode = Callable[[dict[str, Observation]], Array]
"""Maps the observations [B, ...] of all agents to features float32 [B, n, F] of a group."""


class BatchEnv(EnvBase):
    """B copies as a TorchRL environment of batch size [B].

    Copy r equals row r of a Batch with the same seed, bit for bit. After an episode ends, the next
    one begins only in the copies that TorchRL resets.

    Args:
        env: an environment's name, rules, or ``zoo_rules`` of another PettingZoo environment.
        num_envs: number of copies, B.
        seed: seed of all copies.
        return_state: whether ``state`` holds the global state, float32 [B, G].
        device: device of the tensors.
        group_map: agents by group, with equal spaces in each group; default: grouped by name.
        encoders: group -> the number of features, and the function that computes them from
            observations; default: unchanged observations.
        team_reward: whether each agent gets the sum of its group's rewards instead of its own.
        env_kwargs: arguments of the environment, by name.

    If ``on_step`` is set, it is called with each BatchStep.

    Raises:
        UnsupportedSpaceError: a turn-based game, a Dict observation, or actions that are not
            Discrete.
    """

    def __init__(
        self,
        env: EnvLike,
        num_envs: int = 64,
        seed: int | None = None,
        *,
        return_state: bool = False,
        device: Any = None,
        group_map: Mapping[str, list[str]] | None = None,
        encoders: Mapping[str, tuple[int, Encode]] | None = None,
        team_reward: bool = False,
        **env_kwargs: Any,
    ) -> None:
        super().__init__(device=device, batch_size=torch.Size([num_envs]))
        rules = rules_of(env, env_kwargs)
        if not rules.simultaneous:
            refuse_turns(rules.name)
        self.rules = rules
        self.group_map = dict(group_map or group_by_name(rules.agents, rules))
        self.on_step: Callable[[BatchStep], Any] | None = None
        self._encoders, self._team_reward = dict(encoders or {}), team_reward
        self._columns = {
            group: [rules.agents.index(agent) for agent in members]
            for group, members in self.group_map.items()
        }
        self._return_state = return_state
        self._batch = batch_for(rules, num_envs, seed)
        self._observations: dict[str, Observation] = self._batch.reset()
        self._fresh = np.ones(num_envs, dtype=bool)  # copies at the start of an episode
        self._ended = np.zeros((3, num_envs, len(rules.agents)), dtype=bool)  # in the order of DONE
        self._make_specs()

    def _make_specs(self) -> None:
        self._masked: dict[str, bool] = {}
        self._actions: dict[str, int] = {}  # per group
        num_envs = self.batch_size[0]
        observations, actions, rewards, dones = (Composite(shape=(num_envs,)) for _ in range(4))
        for group, members in self.group_map.items():
            shape = (num_envs, len(members))
            space, mask = split_space(self.rules.observation_space(members[0]))
            if group in self._encoders:
                space = spaces.Box(-np.inf, np.inf, (self._encoders[group][0],), np.float32)
            action = self.rules.action_space(members[0])
            if hasattr(space, "spaces") or not hasattr(action, "n"):
                raise UnsupportedSpaceError(
                    f"{self.rules.name}, {members[0]}: observation {space}, action {action}; "
                    "BatchEnv supports plain observations and Discrete actions. Use torchrl_env"
                )
            inner = Composite({OBSERVATION: _spread(space, *shape)}, shape=shape)
            legal = _flag(*shape, int(action.n))
            observations[group] = Composite(
                {OBSERVATION: inner, MASK: legal, "mask": _flag(*shape)}, shape=shape
            )
            self._masked[group], self._actions[group] = mask is not None, int(action.n)
            actions[group] = Composite(action=Categorical(int(action.n), shape), shape=shape)
            rewards[group] = Composite(reward=Unbounded((*shape, 1)), shape=shape)
            dones[group] = Composite({key: _flag(*shape, 1) for key in DONE}, shape=shape)
        for key in DONE:
            dones[key] = _flag(num_envs, 1)
        if self._return_state:
            observations["state"] = _spread(self.rules.state_space(), num_envs)
        self.observation_spec = observations.to(self.device)
        self.action_spec = actions.to(self.device)
        self.reward_spec = rewards.to(self.device)
        self.done_spec = dones.to(self.device)

    def _set_seed(self, seed: int | None) -> None:
        self._begin(seed)

    def _begin(self, seed: int | None = None) -> None:
        self._observations = self._batch.reset(seed)
        self._fresh[:] = True
        self._ended[:] = False

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        requested = None if tensordict is None else tensordict.get("_reset", None)
        rows = self._fresh | True if requested is None else requested.view(-1).cpu().numpy()
        if (rows & ~self._fresh).any():
            if not rows.all():
                raise CorralError(
                    f"{self.rules.name}: cannot reset only some copies in the middle of their "
                    "episodes; reset the copies that are done, or all copies"
                )
            self._begin()
        state = self._batch.global_state() if self._return_state else None
        return self._tensors(self._observations, self._batch.acting, state)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        actions = np.zeros(self._ended.shape[1:], dtype=np.int64)  # [B, N]
        for group, columns in self._columns.items():
            actions[:, columns] = tensordict[group, "action"].cpu().numpy()
        step: BatchStep = self._batch.step(actions)
        if self.on_step is not None:
            self.on_step(step)
        self._observations = step.observations
        self._ended[1] |= step.terminated
        self._ended[2] |= step.truncated
        self._ended[0] = self._ended[1] | self._ended[2]
        over = step.over  # [B]
        state = self._batch.global_state() if self._return_state else None
        observations, acting = step.observations, step.acting
        if step.finished is not None:
            rows, last = step.finished.rows, step.finished.observations
            observations = put_tree(observations, rows, last)
            if state is not None:
                state = put_tree(state, rows, step.finished.global_state)
        out = self._tensors(observations, acting, state)
        for group, columns in self._columns.items():
            out[group, "mask"] = self._tensor((acting & ~over[:, None])[:, columns])
            reward = step.reward[:, columns, None]  # [B, n, 1]
            if self._team_reward:
                reward = np.broadcast_to(reward.sum(axis=1, keepdims=True), reward.shape)
            out[group, "reward"] = self._tensor(reward)
            for key, flags in zip(DONE, self._ended, strict=True):
                out[group, key] = self._tensor(flags[:, columns, None])
        for key, flags in zip(DONE, self._ended, strict=True):
            ends = over if key == "done" else over & flags.all(axis=1)
            out[key] = self._tensor(ends[:, None])
        self._fresh = over
        self._ended[:, over] = False
        return out

    def _tensors(
        self, observations: dict[str, Observation], acting: Array, state: Array | None
    ) -> TensorDictBase:
        """Return the observations of B copies, and set their masks in the action specs."""
        out = TensorDict({}, batch_size=self.batch_size, device=self.device)
        for group, members in self.group_map.items():
            members_observations = {agent: observations[agent] for agent in members}
            acts = acting[:, self._columns[group]]  # [B, n]
            legal = np.ones((*acts.shape, self._actions[group]), dtype=bool)  # [B, n, A]
            if self._masked[group]:
                observed_masks = stack_agents(members_observations, MASK) != 0
                # The last mask of an episode is kept: Q-learning uses the best legal action.
                legal = (
                    observed_masks | ~acts[:, :, None] | ~observed_masks.any(axis=2, keepdims=True)
                )
            if group in self._encoders:
                features = self._encoders[group][1](observations)
            else:
                features = stack_agents(members_observations, OBSERVATION)
            out[group] = TensorDict(
                {
                    OBSERVATION: {OBSERVATION: self._tensor(features)},
                    MASK: self._tensor(legal),
                    "mask": self._tensor(acts),
                },
                batch_size=acts.shape,
            )
            spec = self.input_spec["full_action_spec", group, "action"]
            spec.update_mask(out[group, MASK].clone())
        if state is not None:
            out["state"] = self._tensor(state)
        return out

    def _tensor(self, values: Array) -> torch.Tensor:
        return torch.tensor(values, device=self.device)  # a copy, because Batch reuses its arrays

    def close(self, **kwargs: Any) -> None:
        self._batch.close()
        super().close(**kwargs)


def _spread(space: Any, *shape: int) -> Any:
    """Return the spec of a gymnasium space, with ``shape`` as leading dimensions."""
    return spec_of(space).expand(*shape, *space.shape)


def _flag(*shape: int) -> Any:
    return Categorical(2, shape, dtype=torch.bool)
