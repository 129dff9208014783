"""Minibatches of a rollout, and the metrics of an update."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from corral.adapters.networks import Parts
from corral.envs.core import Array
from corral.trainers.on_policy.buffer import GroupBuffer
from corral.trainers.on_policy.learner import HiddenState, Learner, Sequences, unroll
from corral.trainers.on_policy.records import Advantages, Minibatch, Outputs, Over

__all__ = ["Metrics", "Minibatches"]


class Minibatches:
    """The valid decisions of a rollout in shuffled minibatches, with current network outputs.

    A unit is a decision; for recurrent networks it is a sequence, unrolled from its start.
    """

    def __init__(
        self,
        learner: Learner,
        buffer: GroupBuffer,
        critic_obs: Parts,
        advantages: Advantages,
        old_value: Array,
        valid: Array,
        sequences: Sequences | None,
        hidden: HiddenState,
        progress: float,
        env_steps: int,
    ) -> None:
        """Store the arguments: ``critic_obs`` [T + 1, B, P, ...]; ``old_value`` float32 [T, C] in
        the critic's scale; ``valid`` bool [T, C], the decisions to train on; ``sequences`` only for
        recurrent networks."""
        self.learner = learner
        self.sequences, self.hidden = sequences, hidden
        self.timing: dict[str, Any] = {"progress": progress, "env_steps": env_steps}
        self.units = np.flatnonzero(valid) if sequences is None else np.arange(len(sequences))
        arrays: list[Array] = [buffer.vector, *buffer.images]
        self.actor_obs = [learner.tensor(values[:-1]).flatten(0, 2) for values in arrays]
        self.critic_obs = [part[:-1].flatten(0, 2) for part in critic_obs]
        actions, size = learner.group.actions, valid.size
        value_target = np.zeros_like(advantages.value_target)
        targets = torch.from_numpy(advantages.value_target[valid])
        value_target[valid] = learner.value_norm.normalize(targets).numpy()
        decisions = {
            "action": buffer.action[:-1].reshape(size, *actions.shape),
            "mask": buffer.mask[:-1].reshape(size, actions.masks),
            "log_prob": buffer.log_prob.reshape(-1),
            "advantage": advantages.advantage.reshape(-1),
            "value_target": value_target.reshape(-1),
            "old_value": old_value.reshape(-1),
        }
        self.decisions = {name: learner.tensor(values) for name, values in decisions.items()}
        self.extras = {
            name: learner.tensor(values).flatten(0, 2) for name, values in buffer.extras.items()
        }
        self.valid = learner.tensor(valid.reshape(-1))

    def epoch(
        self, number: int, rng: np.random.Generator, parts: int
    ) -> Iterator[tuple[Minibatch, Outputs]]:
        """Yield all units once, shuffled, in ``parts`` minibatches. Minibatches without a valid
        decision are skipped. The networks run when a minibatch is requested."""
        for chosen in np.array_split(rng.permutation(self.units), parts):
            logits, values, rows = self._forward(chosen)
            if not len(rows):
                continue
            selected: Any = {
                name: values.index_select(0, rows) for name, values in self.decisions.items()
            }
            extras = {name: values.index_select(0, rows) for name, values in self.extras.items()}
            minibatch = Minibatch(
                **{**selected, **self.timing, "epoch": number, "extras": extras},
                kl_coef=self.learner.kl_coef,
                stay_coef=self.learner.stay_coef,
            )
            distribution = self.learner.distribution(logits, minibatch.mask)
            log_prob = distribution.log_prob(minibatch.action)
            yield minibatch, Outputs(distribution, log_prob, values)

    def _forward(self, chosen: Array) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the actor's outputs [R, ...] and the critic's [R] for the valid decisions of the
        ``chosen`` units, and their rows int64 [R] in [T * C]."""
        learner, sequences = self.learner, self.sequences
        actor, critic = learner.actor, learner.critic
        if sequences is None:
            rows = learner.tensor(chosen)
            logits = actor([part.index_select(0, rows) for part in self.actor_obs])
            return logits, critic([p.index_select(0, rows) for p in self.critic_obs])[:, 0], rows
        # Unroll invalid decisions as well, because the states of later decisions depend on them.
        hidden = self.hidden
        states, numbers = unroll(
            learner, actor, self.actor_obs, sequences, chosen, hidden.actor_before
        )
        logits = actor.head(states)
        states, _ = unroll(
            learner, critic, self.critic_obs, sequences, chosen, hidden.critic_before
        )
        rows = learner.tensor(sequences.rows[numbers])
        learned = self.valid[rows]
        return logits[learned], critic.head(states)[:, 0][learned], rows[learned]


class Metrics:
    """Metrics of an update, averaged over its decisions."""

    def __init__(self) -> None:
        self._epochs: list[list[tuple[Mapping[str, float], int]]] = []

    def begin_epoch(self) -> None:
        self._epochs.append([])

    def add(self, metrics: Mapping[str, float], decisions: int) -> None:
        self._epochs[-1].append((metrics, decisions))

    @property
    def names(self) -> list[str]:
        """The names of all metrics, in order of appearance."""
        names = (name for epoch in self._epochs for metrics, _ in epoch for name in metrics)
        return list(dict.fromkeys(names))

    def mean(self, name: str, over: Over = "update") -> float:
        """Return the mean of a metric over all minibatches that have it, or only those of the first
        or last epoch; 0 if no minibatch has it."""
        epochs = {"update": slice(None), "first_epoch": slice(1), "last_epoch": slice(-1, None)}
        entries = [e for epoch in self._epochs[epochs[over]] for e in epoch if name in e[0]]
        total = sum(decisions for _, decisions in entries)
        return sum(metrics[name] * n for metrics, n in entries) / total if total else 0.0

    def means(self, reports: Mapping[str, Over], over: Over = "update") -> dict[str, float]:
        """Return the mean of each metric, over the minibatches in ``reports``, else in ``over``."""
        return {name: self.mean(name, reports.get(name, over)) for name in self.names}
