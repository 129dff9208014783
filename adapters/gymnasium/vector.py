"""A gymnasium VectorEnv over Batch: the columns of like agents, or one seat in every copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space

from corral.adapters.seats import (
    Opponents,
    other_seats,
    require_common_end,
    reseed,
    rules_of,
    seat_of,
)
from corral.adapters.spaces import ColumnCodec, refuse_turns
from corral.envs.batch import Batch, BatchStep, make_batch
from corral.envs.core import Array, Observation, Rules
from corral.envs.masks import MASK
from corral.envs.policy import take_tree
from corral.errors import ActionError, ResetNeededError

__all__ = ["BatchVectorEnv"]


class BatchVectorEnv(gymnasium.vector.VectorEnv[dict[str, Array], Array, Array]):
    """A Batch as a gymnasium VectorEnv, for games in which all act at once.

    Without ``seat``, the N like agents of B copies are C = B * N columns (column = copy * N +
    agent), and observations say which agent they are of. With ``seat`` each copy is one column,
    and the ``opponents`` play the others.

    An episode that ends is followed by the next one within the step (AutoresetMode.SAME_STEP): the
    observation returned is the next episode's first. As in gymnasium's own vector environments,
    ``infos`` then holds ``final_obs`` (an object array: a Dict where an episode ended) and
    ``final_info`` (arrays by key), and for each entry ``_<entry>``, bool [C]: where it counts.

    Args:
        env: an environment's name, or rules.
        num_envs: columns; without ``seat`` a multiple of the number of agents.
        seat: the learner's agent; None: all agents learn.
        opponents, deterministic, env_kwargs: as of ``SeatEnv``.

    Raises:
        UnknownNameError: no environment, agent or team of that name.
        UnsupportedSpaceError: turn-based games, agents that differ (without ``seat``), and, in the
            step in which it happens, an agent that ends before the others.
        ValueError: a number of columns that copies do not fill; opponents that leave an agent
            without a policy, or without a seat to oppose.
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "autoreset_mode": Batch.autoreset_mode,
        "render_modes": [],
    }

    def __init__(
        self,
        env: str | Rules[Any],
        num_envs: int = 64,
        *,
        seat: str | None = None,
        opponents: Opponents = None,
        deterministic: bool = False,
        **env_kwargs: Any,
    ) -> None:
        rules = rules_of(env, env_kwargs)
        if not rules.simultaneous:
            refuse_turns(rules.name)
        learners = rules.agents if seat is None else (seat_of(rules, seat),)
        if num_envs < 1 or num_envs % len(learners):
            raise ValueError(
                f"num_envs={num_envs}: the {len(learners)} agents of each copy of {rules.name} are "
                f"columns; give a multiple of {len(learners)}, or seat= for one column per copy"
            )
        if seat is None and opponents is not None:
            raise ValueError("opponents without seat=: who is the learner?")
        self.rules = rules
        self.layout = ColumnCodec.of(rules, rules.name, learners, agent_id=True)
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
        self._masks: Array | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Begin an episode in every copy; copy r draws from ``generator(seed, "env", r)``."""
        super().reset(seed=seed)
        observations = self.batch.reset(seed)
        if seed is not None:
            reseed(self.rules, self._others, seed)
        for other in self._others.values():
            other.forget(np.arange(self.batch.num_envs))
        return self._observe(observations), self._named(self.batch.first_info())

    def step(self, actions: Array) -> tuple[dict[str, Array], Array, Array, Array, dict[str, Any]]:
        """Play ``actions``, int [C]: observations, rewards [C], terminated, truncated, infos.

        Raises ActionError or IllegalActionError, before anything changes, and ResetNeededError.
        """
        step = self.batch.step(self._joint(actions))
        ended = (step.terminated | step.truncated)[:, self._indices]  # [B, learners]
        if np.count_nonzero(ended) or step.finished is not None:
            require_common_end(self.rules.name, self.layout.agents, ended, step.over)
        infos = self._named(step.info)
        if step.finished is not None:
            infos = self._with_last(infos, step)
            for other in self._others.values():
                other.forget(step.finished.rows)
        return (
            self._observe(step.observations),
            self._columns(step.reward),
            self._columns(step.terminated),
            self._columns(step.truncated),
            infos,
        )

    def action_masks(self) -> Array:
        """Return what is legal now: bool [C, A]."""
        if self._masks is None:
            raise ResetNeededError(f"{self.rules.name}: call reset() before action_masks()")
        return self._masks.copy()

    def _joint(self, actions: Array) -> Array:
        """Return the actions of all, [B, N], from the learners' [C]."""
        if self._masks is None:
            raise ResetNeededError(f"{self.rules.name}: call reset() before step()")
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise ActionError(
                f"actions are {actions.dtype} {actions.shape}; give integers of shape "
                f"({self.num_envs},)"
            )
        if not self._others:
            return actions.reshape(self.batch.num_envs, -1)
        joint = np.zeros((self.batch.num_envs, len(self.rules.agents)), dtype=actions.dtype)
        joint[:, self._indices[0]] = actions
        for agent, other in self._others.items():
            index = self.rules.agents.index(agent)
            rows = np.flatnonzero(self.batch.acting[:, index])
            if len(rows):
                joint[rows, index] = other.act(self._observations[agent], rows)
        return joint

    def _observe(self, observations: dict[str, Observation]) -> dict[str, Array]:
        self._observations = observations
        entries = self._entries(observations)
        self._masks = entries[MASK].astype(bool)
        return entries

    def _entries(self, observations: Mapping[str, Observation]) -> dict[str, Array]:
        if not self._others:
            return self.layout.columns(observations)
        entries = self.layout.flat(observations[self.layout.agents[0]])
        # Whoever is given them may overwrite them; the Batch and the others look at theirs.
        return {key: values.copy() for key, values in entries.items()}

    def _columns(self, values: Array) -> Array:
        """Return [B, N] of all agents as [C] of the learners, in an array of its own."""
        return np.array(values[:, self._indices]).reshape(-1)

    def _named(self, info: Mapping[str, Array]) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        for key, values in info.items():
            infos[key], infos[f"_{key}"] = self._columns(values), np.ones(self.num_envs, bool)
        return infos

    def _with_last(self, infos: dict[str, Any], step: BatchStep) -> dict[str, Any]:
        """Return ``infos`` of a step in which episodes ended; those of the ended ones are final."""
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
        for key, values in self.batch.first_info(finished.rows).items():
            final_info[key] = np.where(over, infos[key], 0).astype(infos[key].dtype)
            final_info[f"_{key}"] = over.copy()
            infos[key][columns] = values[:, self._indices].reshape(-1)
        named = {"final_obs": final_obs, "final_info": final_info}
        return {**infos, **named, "_final_obs": over, "_final_info": over.copy()}
