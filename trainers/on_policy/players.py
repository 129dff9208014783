"""The players during training: the learners and their opponents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from corral.adapters.masked_distribution import Distribution
from corral.envs.core import Array, Observation
from corral.trainers.on_policy.buffer import GroupBuffer, ObservationBuffer
from corral.trainers.on_policy.learner import HiddenState, Learner
from corral.trainers.opponents.playing import Opponents

__all__ = ["LearnedPlayer", "OpponentPlayer"]

Extras = Callable[[Distribution], Mapping[str, torch.Tensor]]


class LearnedPlayer:
    """Plays the agents of one group with its actor, and updates the actor's hidden state."""

    def __init__(
        self,
        learner: Learner,
        hidden: HiddenState,
        rng: torch.Generator,
        extras: Extras | None = None,
    ) -> None:
        """``extras`` returns the distribution parameters to store for the loss."""
        self.learner, self.hidden, self.rng, self.extras = learner, hidden, rng, extras

    def act(self, buffer: GroupBuffer, t: int, observations: Mapping[str, Observation]) -> None:
        """Sample the actions of step ``t`` for the acting agents, with log-probabilities."""
        acting = buffer.decides(t)  # [C]
        rows = None if acting.all() else np.flatnonzero(acting)
        action, log_prob = buffer.action[t], buffer.log_prob[t]  # views [B, P, ...]
        if rows is not None:
            action[...] = 0
            log_prob[...] = 0
            if not len(rows):
                return
        at: Any = slice(None) if rows is None else rows
        hidden = self.hidden.actor
        with torch.inference_mode():
            distribution, sampled, after = self._sample(buffer, t, rows, hidden[at])
            action.reshape(len(acting), *action.shape[2:])[at] = sampled.cpu().numpy()
            log_prob.reshape(-1)[at] = distribution.log_prob(sampled).cpu().numpy()
            if self.extras is not None:
                buffer.store_extras(t, at, self.extras(distribution))
            if hidden.shape[1]:
                hidden[at] = after.cpu().numpy()
            if (start := self.learner.start) is not None:
                inputs = buffer.tensors(t, rows, self.learner.device)
                buffer.store_extras(t, at, start.extras(self.learner, *inputs, at))

    def sample_unplayed(
        self,
        buffer: ObservationBuffer,
        at: Any,
        observations: Mapping[str, Observation],
        env_rows: Array | None = None,
    ) -> None:
        """Sample actions for the observations at ``at``, without playing them: hidden states stay.

        ``env_rows`` [D] are the environment copies of these observations; None: all.
        """
        action, rows = buffer.action[at], np.flatnonzero(buffer.acting[at])
        action[...] = 0
        if not len(rows):
            return
        agents, columns = buffer.acting.shape[-1], rows
        if env_rows is not None:
            columns = env_rows[rows // agents] * agents + rows % agents
        with torch.inference_mode():
            _, sampled, _ = self._sample(buffer, at, rows, self.hidden.actor[columns])
        action.reshape(-1, *action.shape[2:])[rows] = sampled.cpu().numpy()

    def reset(self, env_rows: Array) -> None:
        """Reset the hidden states in ``env_rows``, after the end of their episodes."""
        self.hidden.reset(env_rows)
        if self.learner.start is not None:
            self.learner.start.hidden.reset(env_rows)

    def _sample(
        self, buffer: ObservationBuffer, at: Any, rows: Array | None, hidden: Array
    ) -> tuple[Distribution, torch.Tensor, torch.Tensor]:
        """Return the distribution, the sampled actions [R, ...], and the next hidden states."""
        learner = self.learner
        parts, mask = buffer.tensors(at, rows, learner.device)
        outputs, after = learner.actor.step(parts, learner.tensor(hidden))
        distribution = learner.distribution(outputs, mask)
        return distribution, distribution.sample(self.rng), after


class OpponentPlayer:
    """One of the ``opponents``, with the interface of ``LearnedPlayer``."""

    def __init__(self, opponents: Opponents, agent: str) -> None:
        self.opponents, self.agent = opponents, agent

    def act(self, buffer: GroupBuffer, t: int, observations: Mapping[str, Observation]) -> None:
        acting = buffer.acting[t][:, 0]
        buffer.action[t][:, 0] = self.opponents.act(self.agent, observations[self.agent], acting)

    def sample_unplayed(
        self,
        buffer: ObservationBuffer,
        at: Any,
        observations: Mapping[str, Observation],
        env_rows: Array | None = None,
    ) -> None:
        obs, acting = observations[self.agent], buffer.acting[at][:, 0]
        actions = self.opponents.sample_unplayed(self.agent, obs, acting, env_rows)
        buffer.action[at][:, 0] = actions

    def reset(self, env_rows: Array) -> None:
        self.opponents.reset(self.agent, env_rows)
