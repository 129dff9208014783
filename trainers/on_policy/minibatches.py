"""A rollout taken in parts, and the figures of an update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from corral.adapters.networks import Parts
from corral.envs.core import Array
from corral.trainers.on_policy.buffer import Rollout, Sequences, Track
from corral.trainers.on_policy.learner import Learner

__all__ = ["Means", "Views"]


class Views:
    """What actor and critic put out for parts of a rollout, as they are now.

    Without memory a unit is a decision, with memory a sequence of them, which is gone through.
    """

    def __init__(
        self,
        rollout: Rollout,
        track: Track,
        learner: Learner,
        critic_sees: Parts,
        known: Array,
        begins: Array,
        memory: Mapping[str, Array],
        tensor: Callable[[Array], torch.Tensor],
    ) -> None:
        """``known`` bool [T, C]: what is learned from; ``begins`` bool [T, C]: where episodes
        begin; ``memory`` before the rollout, by kind."""
        self.networks = (learner.actor, learner.critic)
        self.tensor = tensor
        seen: list[Array] = [track.vector, *track.images]
        actor_sees = [tensor(values[:-1]) for values in seen]
        critic_sees = [part[:-1] for part in critic_sees]
        self.sees = [[p.flatten(0, 2) for p in sees] for sees in (actor_sees, critic_sees)]
        self.sequences: Sequences | None = None
        self.units = np.flatnonzero(known)
        if learner.actor.memory:
            acted = rollout.acted[:, :, track.seat.columns].reshape(known.shape)
            self.sequences = Sequences(acted, begins)
            self.units = np.arange(len(self.sequences.lengths))
            self.kept = [memory[kind] for kind in ("actor", "critic")]

    def outputs(self, chosen: Array) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The actor's outputs [R, ...] and the critic's [R] for the decisions of ``chosen`` units,
        and their rows int64 [R] in [T * C]."""
        told = []
        if self.sequences is None:
            rows = self.tensor(chosen)
            for network, sees in zip(self.networks, self.sees, strict=True):
                told.append(network([part.index_select(0, rows) for part in sees]))
        else:
            decisions, padded, at = self.sequences.pick(chosen)
            rows = self.tensor(self.sequences.rows[decisions])
            column, goes_on = self.sequences.column[chosen], self.sequences.goes_on[chosen]
            for network, sees, kept in zip(self.networks, self.sees, self.kept, strict=True):
                before = np.where(goes_on[:, None], kept[column], np.float32(0))
                states = network.unroll(
                    [part.index_select(0, rows) for part in sees],
                    self.tensor(before),
                    self.tensor(padded),
                    self.tensor(at),
                )
                told.append(network.head(states))
        return told[0], told[1][:, 0], rows


class Means:
    """Figures of an update: over all of its minibatches, and over its first and latest epoch."""

    NAMES = (
        *("policy_loss", "value_loss", "approx_kl", "clip_fraction"),
        *("grad_norm_actor", "grad_norm_critic", "entropy"),
    )

    def __init__(self) -> None:
        self._epochs: list[list[tuple[dict[str, float], int]]] = []

    def begin_epoch(self) -> None:
        self._epochs.append([])

    def add(self, told: dict[str, float], decisions: int) -> None:
        self._epochs[-1].append((told, decisions))

    def mean(self, name: str) -> float:
        return self._weighted(name, [each for epoch in self._epochs for each in epoch])

    @property
    def first_epoch(self) -> bool:
        return len(self._epochs) == 1

    def first(self, name: str) -> float:
        return self._weighted(name, self._epochs[0] if self._epochs else [])

    def latest(self, name: str) -> float:
        return self._weighted(name, self._epochs[-1] if self._epochs else [])

    @staticmethod
    def _weighted(name: str, told: Sequence[tuple[dict[str, float], int]]) -> float:
        """0 where no agent of the policy acted."""
        total = sum(decisions for _, decisions in told)
        return sum(metrics[name] * n for metrics, n in told) / total if total else 0.0
