"""The rollout buffer: observations, actions and rewards in preallocated arrays.

    T  steps; the observations after the last step have t = T
    P  agents of one group          C = B * P columns, c = env * P + agent
    E  final observations of episodes and agents that a time limit truncates

The leading shape [*L] is [T + 1, B] in a rollout and [E] for its final observations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from corral.adapters.networks import Parts
from corral.adapters.spaces import ActionCodec, ObservationCodec
from corral.envs.batch import BatchStep
from corral.envs.core import AgentViews, Array, Observation, Rules
from corral.envs.masks import MASK, OBSERVATION, as_legal
from corral.envs.policy import take_tree
from corral.errors import NonFiniteError, UnsupportedSpaceError

__all__ = [
    "AgentGroup",
    "FinalObservations",
    "GroupBuffer",
    "ObservationBuffer",
    "RolloutBuffer",
    "make_groups",
]


# --- Agents --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AgentGroup:
    """The agents of one policy, and the conversion of their spaces to tensors."""

    policy: str
    agents: tuple[str, ...]
    index: Array  # int64 [P] indices of the agents along axis N
    layout: ObservationCodec
    actions: ActionCodec
    identities: int  # columns of the vector for the agent's one-hot ID: P, or 0

    @cached_property
    def columns(self) -> Any:
        """Index of the agents along axis N; a slice if possible, to avoid copies."""
        first, count = int(self.index[0]), len(self.index)
        if np.array_equal(self.index, np.arange(first, first + count)):
            return slice(first, first + count)
        return self.index

    def own(self, values: Array) -> Array:
        """Return the group's columns [T, C] of ``values`` [T, B, N]."""
        return values[:, :, self.columns].reshape(len(values), -1)


def make_groups(rules: Rules[Any], policies: Mapping[str, str], agent_id: bool) -> list[AgentGroup]:
    """Return a group for each policy. Raises UnsupportedSpaceError if its agents' spaces differ."""
    groups = []
    agents = list(rules.agents)
    for name in dict.fromkeys(policies.values()):
        members = [agent for agent in agents if policies[agent] == name]
        spaces = {a: (rules.observation_space(a), rules.action_space(a)) for a in members}
        for agent in members[1:]:
            for first, other in zip(spaces[members[0]], spaces[agent], strict=True):
                if first != other:
                    raise UnsupportedSpaceError(
                        f"policy {name} plays {members[0]} with {first} and {agent} with {other}: "
                        "agents of one policy need equal spaces. Pass policies='separate', or a "
                        "mapping with different policies for them"
                    )
        observation_space, action_space = spaces[members[0]]
        layout = ObservationCodec.of(members[0], observation_space)
        actions = ActionCodec(members[0], action_space)
        actions.require_mask(members[0], observation_space)
        index = np.array([agents.index(agent) for agent in members])
        identities = len(members) if agent_id and len(members) > 1 else 0
        groups.append(AgentGroup(name, tuple(members), index, layout, actions, identities))
    return groups


# --- Observations and actions --------------------------------------------------------------------


class ObservationBuffer:
    """Observations [*L] of one group as network inputs, and their actions.

    ``vector`` float32 [*L, P, F], ``images`` uint8 [*L, P, C, H, W], ``mask`` bool [*L, P, A],
    ``action`` [*L, P, ...], and ``acting`` bool [*L, P]: True if the agent acts.
    """

    def __init__(self, group: AgentGroup, *shape: int) -> None:
        layout, agents = group.layout, len(group.agents)
        self.group = group
        self.vector = np.zeros((*shape, agents, layout.width + group.identities), np.float32)
        if group.identities:
            self.vector[..., layout.width :] = np.eye(agents, dtype=np.float32)
        self.images = [np.zeros((*shape, agents, *image), np.uint8) for image in layout.images]
        self.mask = np.ones((*shape, agents, group.actions.masks), dtype=bool)
        self.action = np.zeros((*shape, agents, *group.actions.shape), group.actions.dtype)
        self.acting = np.zeros((*shape, agents), dtype=bool)

    def store(self, at: Any, observations: Mapping[str, Observation]) -> None:
        """Store the observations [B, ...] of all agents at index ``at``.

        Raises NonFiniteError for NaN or infinity, and MaskError for an invalid mask.
        """
        group, layout = self.group, self.group.layout
        vector, images, mask = self.vector[at], [image[at] for image in self.images], self.mask[at]
        # Suppress NumPy's warnings about non-finite numbers; they raise an error below.
        with np.errstate(all="ignore"):
            block: Any = None
            if isinstance(observations, AgentViews):
                block = observations.blocks[OBSERVATION]
            if isinstance(block, np.ndarray) and layout.wrapped:
                values = block[:, group.columns]  # [B, P, ...]
                rows = values.shape[0] * values.shape[1]
                layout.write(
                    values.reshape(rows, *values.shape[2:]),
                    vector.reshape(rows, -1),
                    [image.reshape(rows, *image.shape[2:]) for image in images],
                )
            else:
                for j, agent in enumerate(group.agents):
                    inner = layout.inner(observations[agent])
                    layout.write(inner, vector[:, j], [image[:, j] for image in images])
        invalid = _not_finite(vector)
        if invalid is not None:
            raise NonFiniteError(
                f"copy {invalid[0]}, {group.agents[invalid[1]]}: the observation contains NaN or "
                "infinity; correct the environment"
            )
        if layout.masked:
            if isinstance(observations, AgentViews):
                values = observations.blocks[MASK][:, group.columns]
                mask[...] = as_legal(group.agents[0], values)
            else:
                for j, agent in enumerate(group.agents):
                    mask[:, j] = as_legal(agent, observations[agent][MASK])

    def tensors(
        self, at: Any, rows: Array | None, device: torch.device
    ) -> tuple[Parts, torch.Tensor]:
        """Return network inputs and masks [R, ...] of ``rows`` at index ``at``; None: all rows."""
        tensors, count = [], math.prod(self.acting[at].shape)
        arrays: list[Array] = [self.vector, *self.images, self.mask]
        for values in arrays:
            flat = values[at].reshape(count, *values.shape[self.acting.ndim :])
            tensors.append(torch.from_numpy(flat if rows is None else flat[rows]).to(device))
        return tensors[:-1], tensors[-1]


class GroupBuffer(ObservationBuffer):
    """A group's data [T + 1, B] in a rollout, with ``log_prob`` float32 [T, B, P] of its actions.

    ``extras`` [T, B, P, ...] are tensors that an algorithm stores for its loss. ``learned`` bool
    [T, B, P] is False if a frozen copy plays instead of the policy; None: the policy plays always.
    """

    def __init__(self, group: AgentGroup, steps: int, num_envs: int) -> None:
        super().__init__(group, steps + 1, num_envs)
        self.log_prob = np.zeros((steps, num_envs, len(group.agents)), dtype=np.float32)
        self.extras: dict[str, Array] = {}
        self.learned: Array | None = None

    def store_learned(self, t: int, learned: Array) -> None:
        """Store the seats in which the policy itself plays step ``t``: bool [B, P]."""
        if self.learned is None:
            self.learned = np.ones(self.log_prob.shape, dtype=bool)
        self.learned[t] = learned

    def decides(self, t: int) -> Array:
        """Return the columns in which the policy itself acts in step ``t``: bool [C]."""
        acting: Array = self.acting[t] if self.learned is None else self.acting[t] & self.learned[t]
        return acting.reshape(-1)

    def store_extras(self, t: int, at: Any, extras: Mapping[str, torch.Tensor]) -> None:
        """Store named tensors [R, ...] of the columns ``at`` that act in step ``t``."""
        for name, tensor in extras.items():
            values = tensor.cpu().numpy()
            if name not in self.extras:  # the first tensors determine the shape
                shape = *self.log_prob.shape, *values.shape[1:]
                self.extras[name] = np.zeros(shape, dtype=values.dtype)
            stored = self.extras[name][t]  # a view [B, P, ...]
            stored.reshape(-1, *stored.shape[2:])[at] = values

    @property
    def acted(self) -> Array:
        """Columns in which the policy itself acted in step t: bool [T, C]."""
        acting = self.acting[:-1] if self.learned is None else self.acting[:-1] & self.learned
        return acting.reshape(len(self.log_prob), -1)


@dataclass(frozen=True)
class FinalObservations:
    """The E last observations before truncation by a time limit, for all groups."""

    step: Array  # int64 [E]
    env: Array  # int64 [E]
    state: Array  # float32 [E, G]
    groups: list[ObservationBuffer]

    @classmethod
    def join(cls, all_of: Sequence[FinalObservations]) -> FinalObservations:
        """Concatenate the final observations of several steps."""
        groups = []
        for buffers in zip(*(part.groups for part in all_of), strict=True):
            joined = ObservationBuffer(buffers[0].group, 0)
            for name in ("vector", "mask", "action", "acting"):
                setattr(joined, name, np.concatenate([getattr(part, name) for part in buffers]))
            images = zip(*(part.images for part in buffers), strict=True)
            joined.images = [np.concatenate(pictures) for pictures in images]
            groups.append(joined)
        moments = [(part.step, part.env, part.state) for part in all_of]
        step, env, state = (np.concatenate(parts) for parts in zip(*moments, strict=True))
        return cls(step, env, state, groups)


# --- The rollout ---------------------------------------------------------------------------------


class RolloutBuffer:
    """T steps of B environment copies: one GroupBuffer per group, and shared arrays."""

    def __init__(
        self,
        groups: Sequence[AgentGroup],
        steps: int,
        num_envs: int,
        agents: Sequence[str],
        features: int,
    ) -> None:
        """``features`` is the width of the global state; 0 if no critic observes it."""
        self.agents = tuple(agents)
        self.groups = [GroupBuffer(group, steps, num_envs) for group in groups]
        shape = (steps, num_envs, len(agents))
        self.reward = np.zeros(shape, dtype=np.float32)
        self.terminated = np.zeros(shape, dtype=bool)
        self.truncated = np.zeros(shape, dtype=bool)
        self.over = np.zeros(shape[:2], dtype=bool)  # step t ended an episode
        self.state = np.zeros((steps + 1, num_envs, features), dtype=np.float32)
        self.begin()

    def begin(self) -> None:
        """Clear the final observations; the other arrays are overwritten."""
        self._finals: list[FinalObservations] = []

    @property
    def finals(self) -> FinalObservations:
        """All final observations of the rollout."""
        if len(self._finals) != 1:
            none = np.zeros(0, dtype=np.int64)
            groups = [ObservationBuffer(buffer.group, 0) for buffer in self.groups]
            empty = FinalObservations(none, none, self.state[0, :0], groups)
            self._finals = [FinalObservations.join([empty, *self._finals])]
        return self._finals[0]

    def store_obs(
        self, t: int, observations: Mapping[str, Observation], state: Array | None, acting: Array
    ) -> None:
        """Store the observations before step ``t``, [B, ...], and the acting agents [B, N]."""
        for buffer in self.groups:
            buffer.store(t, observations)
            buffer.acting[t] = acting[:, buffer.group.columns]
        _store_state(self.state[t], state)

    def actions(self, t: int) -> Any:
        """Return the actions of step ``t`` for the batch: int64 [B, N], or a dict if some action
        spaces are not Discrete."""
        if all(not buffer.group.actions.shape for buffer in self.groups):
            actions = np.zeros(self.reward.shape[1:], dtype=np.int64)
            for buffer in self.groups:
                actions[:, buffer.group.columns] = buffer.action[t]
            return actions
        return {
            agent: buffer.group.actions.decode(buffer.action[t][:, j])
            for buffer in self.groups
            for j, agent in enumerate(buffer.group.agents)
        }

    def store_step(self, t: int, step: BatchStep) -> None:
        """Store the rewards and episode ends of step ``t``."""
        self.reward[t] = step.reward
        invalid = _not_finite(step.reward)
        if invalid is not None:
            env, i = invalid
            raise NonFiniteError(
                f"copy {env}, {self.agents[i]}: the reward is {step.reward[env, i]}"
            )
        self.terminated[t] = step.terminated
        self.truncated[t] = step.truncated
        self.over[t] = step.over

    def store_final_obs(
        self, t: int, step: BatchStep, state_now: Callable[[], Array | None]
    ) -> Iterator[tuple[list[ObservationBuffer], Mapping[str, Observation], Array]]:
        """Store the last observations of agents that were truncated in step ``t``.

        Yields the stored buffers [D, ...], the observations, and their environment rows int64 [D].
        ``state_now`` returns the global state after the step.
        """
        cut = self.truncated[t].any(axis=1)
        done = np.zeros(0, np.int64) if step.finished is None else step.finished.rows
        if step.finished is not None and cut[done].any():
            limited, features = cut[done], self.state.shape[-1]
            obs = take_tree(step.finished.observations, limited)
            state = step.finished.global_state[limited] if features else None
            yield self._store_finals(t, done[limited], obs, state), obs, done[limited]
        # Some agents are truncated while the episode continues: use this step's observations.
        rows = np.setdiff1d(np.flatnonzero(cut), done)
        if len(rows):
            obs, state = take_tree(step.observations, rows), state_now()
            row_states = None if state is None else state[rows]
            yield self._store_finals(t, rows, obs, row_states), obs, rows

    def _store_finals(
        self, t: int, env_rows: Array, observations: Mapping[str, Observation], state: Array | None
    ) -> list[ObservationBuffer]:
        wide = np.zeros((len(env_rows), self.state.shape[-1]), dtype=np.float32)
        _store_state(wide, state)
        buffers = [ObservationBuffer(buffer.group, len(env_rows)) for buffer in self.groups]
        for buffer in buffers:
            buffer.store(..., observations)
            # Agents that would act: by their mask; without a mask, the truncated agents.
            buffer.acting[...] = self.truncated[t][env_rows][:, buffer.group.index]
            if buffer.group.layout.masked:
                buffer.acting &= buffer.mask.any(axis=-1)
        steps = np.full(len(env_rows), t)
        self._finals.append(FinalObservations(steps, env_rows, wide, buffers))
        return buffers

    def cut(self, group: AgentGroup) -> tuple[Array, Array, Array]:
        """Return the truncations of a group's agents: their rows in the final observations
        [E * P], their steps and their columns."""
        finals = self.finals
        cut = self.truncated[:, :, group.columns][finals.step, finals.env]  # [E, P]
        event, agent = np.nonzero(cut)
        column = finals.env[event] * len(group.agents) + agent
        return np.flatnonzero(cut), finals.step[event], column

    def begins(self, group: AgentGroup) -> Array:
        """Return the steps at which episodes start after the first step: bool [T, C]."""
        over = np.repeat(self.over, len(group.agents), axis=1)  # [T, C]
        return np.concatenate([np.zeros_like(over[:1]), over[:-1]])


def _store_state(target: Array, state: Array | None) -> None:
    if state is None or not target.size:
        return  # no critic observes the global state
    with np.errstate(all="ignore"):
        target[...] = np.asarray(state).reshape(target.shape)
    invalid = _not_finite(target)
    if invalid is not None:
        raise NonFiniteError(
            f"copy {invalid[0]}: global_state contains NaN or infinity; correct the environment"
        )


def _not_finite(values: Array) -> tuple[int, int] | None:
    """Return the first two indices of the first non-finite number; None: all are finite."""
    with np.errstate(all="ignore"):
        if np.isfinite(
            values.sum()
        ):  # fast path; an infinite sum of large numbers is checked below
            return None
    invalid = np.argwhere(~np.isfinite(values))
    return (int(invalid[0][0]), int(invalid[0][1])) if len(invalid) else None
