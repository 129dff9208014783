"""A gymnasium VectorEnv over Batch: agents with equal spaces as columns, or one seat per copy."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space

from corral.adapters.seats import (
    Opponents,
    other_seats,
    require_all_act,
    require_common_end,
    reseed,
    seat_of,
)
from corral.adapters.sources import EnvLike, rules_with
from corral.adapters.spaces import ColumnCodec, refuse_masks, refuse_turns
from corral.envs.arguments import nonnegative_int
from corral.envs.batch import Batch, BatchStep, make_batch
from corral.envs.core import Array, Observation, plays_as_arrays
from corral.envs.masks import MASK, refuse_masked_arrays
from corral.envs.policy import take_tree
from corral.errors import ActionError, ResetNeededError

__all__ = ["BatchVectorEnv"]


class BatchVectorEnv(gymnasium.vector.VectorEnv[dict[str, Array], Array, Array]):
    """A Batch as a gymnasium VectorEnv, for games in which all agents act simultaneously.

    Without ``seat``, the N agents of B copies are C = B * N columns (column = copy * N + agent).
    All agents need equal spaces, and observations contain the agent's identity. With ``seat``, each
    copy is one column, and ``opponents`` play the other agents.

    When an episode ends, the next one begins in the same step (AutoresetMode.SAME_STEP), and its
    first observation is returned. As in gymnasium's vector environments, ``infos`` then holds
    ``final_obs`` (an object array with a Dict per ended episode) and ``final_info`` (arrays by
    key). For each entry, ``_<entry>``, bool [C], marks the valid columns.

    With ``autoreset_mode="next_step"`` (AutoresetMode.NEXT_STEP) the step that ends an episode
    returns its last observation. In the next step, the copy ignores its actions and returns the
    first observation of the next episode, with reward 0.

    Args:
        env: a name, a function, or an environment, see ``corral.adapters.sources``.
        num_envs: number of columns; without ``seat`` a multiple of the number of agents.
        seat: the learner's agent; None: all agents learn.
        autoreset_mode: "same_step", or "next_step" for wrappers of Gymnasium that require it:
            FlattenObservation, and NormalizeObservation after it. Algorithms for "same_step" must
            not train with "next_step": the step between two episodes would be part of their data.
        opponents, deterministic, env_kwargs: see ``SeatEnv``.

    Raises:
        UnknownNameError: no environment, agent or team with that name.
        UnsupportedSpaceError: turn-based games, agents that differ (without ``seat``), and, when
            stepping, an agent that ends before other agents or joins late.
        ValueError: a number of columns that is not a multiple of the number of agents; an opponent
            without a policy; opponents without ``seat``.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "autoreset_mode": Batch.autoreset_mode,
        "render_modes": [],
    }
    batch: Any = None  # Gymnasium before 1.1 calls close even if __init__ failed

    def __init__(
        self,
        env: EnvLike,
        num_envs: int = 64,
        *,
        seat: str | None = None,
        opponents: Opponents = None,
        deterministic: bool = False,
        autoreset_mode: Any = "same_step",
        **env_kwargs: Any,
    ) -> None:
        mode = autoreset_mode.value if isinstance(autoreset_mode, Enum) else autoreset_mode
        mode = str(mode).lower().replace("_", "")
        if mode not in ("samestep", "nextstep"):
            raise ValueError(f'{autoreset_mode=}: pass "same_step" or "next_step"')
        rules = rules_with(type(self), env, env_kwargs)
        if mode == "nextstep" and not plays_as_arrays(rules):
            raise ValueError(
                "autoreset_mode='next_step': only environments of corral support it here. Use "
                "Gymnasium's vector of single environments: gymnasium.make_vec(ID, "
                f'num_envs={num_envs}, vectorization_mode="sync")'
            )
        if not rules.simultaneous:
            refuse_turns(rules.name)
        learners = rules.agents if seat is None else (seat_of(rules, seat),)
        num_envs = nonnegative_int("num_envs", num_envs, least=1)
        if num_envs % len(learners):
            raise ValueError(
                f"num_envs={num_envs}: the {len(learners)} agents of each copy of {rules.name} are "
                f"columns; pass a multiple of {len(learners)}, or seat= for one column per copy"
            )
        if seat is None and opponents is not None:
            raise ValueError("opponents require seat=, the learner's agent")
        self.rules = rules
        self.layout = ColumnCodec.of(rules, rules.name, learners, agent_id=True, any_actions=True)
        self.batch = make_batch(rules, num_envs // len(learners))
        self.num_envs = num_envs
        self.single_observation_space = self.layout.observation_space
        self.single_action_space = self.layout.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._indices = [rules.agents.index(agent) for agent in learners]
        self._others = (
            other_seats(rules, seat, opponents, num_envs, deterministic) if seat is not None else {}
        )
        self._observations: dict[str, Observation] = {}  # of the Batch, by agent
        self._discrete = all(
            isinstance(rules.action_space(agent), gymnasium.spaces.Discrete)
            for agent in rules.agents
        )
        self._masks: Array | None = None  # bool [C, A] of Discrete actions
        self._next_step = mode == "nextstep"
        if self._next_step:
            kind: Any = getattr(gymnasium.vector, "AutoresetMode", str)
            self.metadata = {**self.metadata, "autoreset_mode": kind("NextStep")}
        self._held: Array | None = None  # bool [B] copies that show a reset in the next step

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Begin an episode in every copy. Copy r draws from ``generator(seed, "env", r)``."""
        if seed is not None and not isinstance(seed, int | np.integer):
            raise TypeError(
                f"seed={seed!r}: pass one integer; each copy draws from its own generator"
            )
        seed = None if seed is None else int(seed)
        super().reset(seed=seed)
        observations = self.batch.reset(seed)
        if seed is not None:
            reseed(self.rules, self._others, seed)
        for other in self._others.values():
            other.forget(np.arange(self.batch.num_envs))
        infos = self._named(self.batch.first_info())
        self._held = None
        return self._observe(observations), infos

    def step(self, actions: Array) -> tuple[dict[str, Array], Array, Array, Array, dict[str, Any]]:
        """Play ``actions`` [C, ...].

        Returns observations, rewards [C], terminated [C], truncated [C] and infos.
        Raises ActionError or IllegalActionError before anything changes, and ResetNeededError.
        """
        held = self._held
        joint = self._joint(actions)
        step = self.batch.step(joint) if held is None else self.batch.step(joint, held)
        ended = (step.terminated | step.truncated)[:, self._indices]  # [B, learners]
        if np.count_nonzero(ended) or step.finished is not None:
            require_common_end(self.rules.name, self.layout.agents, ended, step.over)
        infos = self._named(step.info)
        if step.finished is not None:
            if not self._next_step:
                infos = self._with_last(infos, step)
            for other in self._others.values():
                other.forget(step.finished.rows)
        shown = self._observe(step.observations)
        if held is not None:
            count = int(np.count_nonzero(held)) * len(self._indices)
            self._show(infos, self._named(self.batch.first_info(held), count), held)
        self._held = None
        if self._next_step and step.finished is not None:
            self._held = step.over
            self._show(shown, self._entries(step.finished.observations), step.over)
        return (
            shown,
            self._columns(step.reward),
            self._columns(step.terminated),
            self._columns(step.truncated),
            infos,
        )

    def action_masks(self) -> Array:
        """Return the current legal actions: bool [C, A], a row for each column.

        Raises UnsupportedSpaceError unless the actions are Discrete.
        """
        refuse_masks(self.rules.name, self.single_action_space)
        if self._masks is None:
            raise ResetNeededError(f"{self.rules.name}: call reset() before action_masks()")
        return self._masks.copy()

    def close_extras(self, **kwargs: Any) -> None:
        """Close third-party environments."""
        if self.batch is not None:
            self.batch.close()

    def _show(self, values: dict[str, Any], other: dict[str, Any], copies: Array) -> None:
        """Replace the columns of ``copies``, bool [B], in ``values`` [C, ...] by ``other``."""
        columns = np.repeat(copies, len(self._indices))
        for key in values:
            values[key][columns] = other.get(key, 0)

    def _joint(self, actions: Array) -> Any:
        """Return the actions of all agents, [B, N] or by agent, from the learners' [C, ...]."""
        if not self._observations:
            raise ResetNeededError(f"{self.rules.name}: call reset() before step()")
        refuse_masked_arrays(actions)
        actions, space = np.asarray(actions), self.single_action_space
        shape = (self.num_envs, *(space.shape or ()))
        kinds = "iu" if np.dtype(space.dtype).kind in "iu" else "fiu"
        if actions.shape != shape or actions.dtype.kind not in kinds:
            what = "integers" if kinds == "iu" else "numbers"
            raise ActionError(
                f"actions are {actions.dtype} {actions.shape}; pass {what} of shape {shape}"
            )
        split = actions.reshape(self.batch.num_envs, len(self._indices), *(space.shape or ()))
        if not self._others and self._discrete:
            return split
        joint = {agent: split[:, k] for k, agent in enumerate(self.layout.agents)}
        for agent, other in self._others.items():
            acting = self.batch.acting[:, self.rules.agents.index(agent)]  # bool [B]
            rows = np.flatnonzero(acting if self._held is None else acting & ~self._held)
            space_of_agent = self.rules.action_space(agent)
            joint[agent] = np.zeros(
                (self.batch.num_envs, *(space_of_agent.shape or ())), dtype=space_of_agent.dtype
            )
            if len(rows):
                joint[agent][rows] = other.act(self._observations[agent], rows)
        ordered = {agent: joint[agent] for agent in self.rules.agents}
        return np.stack(list(ordered.values()), axis=1) if self._discrete else ordered

    def _observe(self, observations: dict[str, Observation]) -> dict[str, Array]:
        acting = self.batch.acting[:, self._indices]  # [B, learners]
        require_all_act(self.rules.name, self.layout.agents, acting)
        self._observations = observations
        entries = self._entries(observations)
        if MASK in entries:
            self._masks = entries[MASK].astype(bool)
        return entries

    def _entries(self, observations: Mapping[str, Observation]) -> dict[str, Array]:
        if not self._others:
            return self.layout.columns(observations)
        entries = self.layout.flat(observations[self.layout.agents[0]])
        # Copies, because callers may overwrite them, while the Batch and opponents use theirs.
        return {key: values.copy() for key, values in entries.items()}

    def _columns(self, values: Array) -> Array:
        """Return values [B, N] of all agents as a new array [C] of the learners."""
        return np.array(values[:, self._indices]).reshape(-1)

    def _named(self, info: Mapping[str, Array], columns: int | None = None) -> dict[str, Any]:
        """Return info [B, N] by key as infos of ``columns`` columns; default: all columns."""
        valid = np.ones(self.num_envs if columns is None else columns, bool)
        infos: dict[str, Any] = {}
        for key, values in info.items():
            infos[key], infos[f"_{key}"] = self._columns(values), valid.copy()
        return infos

    def _with_last(self, infos: dict[str, Any], step: BatchStep) -> dict[str, Any]:
        """Return ``infos`` with the final observations and infos of ended episodes."""
        finished = step.finished
        assert finished is not None
        n = len(self._indices)
        columns = (finished.rows[:, None] * n + np.arange(n)).reshape(-1)  # [D * learners]
        over = np.zeros(self.num_envs, dtype=bool)
        over[columns] = True
        last = self._entries(finished.observations)
        final_obs = np.full(self.num_envs, None, dtype=object)
        for row, column in enumerate(columns.tolist()):
            final_obs[column] = take_tree(last, row)
        final_info: dict[str, Any] = {}
        first = self._named(self.batch.first_info(finished.rows), len(columns))
        for key in [key for key in infos if not key.startswith("_")]:
            final_info[key] = np.where(over, infos[key], 0).astype(infos[key].dtype)
            final_info[f"_{key}"] = over.copy()
            infos[key][columns] = first.get(key, 0)
        named = {"final_obs": final_obs, "final_info": final_info}
        return {**infos, **named, "_final_obs": over, "_final_info": over.copy()}
