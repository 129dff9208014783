"""Observers of an in-house trainer: ``trainer.observe(observer)``.

Observers change nothing. They get the objects that the trainer itself uses, and must not write to
them. The trainer calls the user's record of functions directly, with or without observers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral.trainers.on_policy.learner import Learner
    from corral.trainers.on_policy.records import (
        Advantages,
        Losses,
        Minibatch,
        Outputs,
        Trajectories,
    )

__all__ = ["Observer"]


class Observer:
    """Override the methods that you need. They are called in the order of an update."""

    tracks_reads = False
    """While it is True, ``on_minibatch`` gets a ``TrackedMinibatch``."""

    def on_rollout(self, rollout: Any) -> None:
        """A ``RolloutBuffer`` was played; the next one is written over it."""

    def on_advantages(
        self, learner: Learner, trajectories: Trajectories, advantages: Advantages
    ) -> None:
        """Advantages of a policy were computed: [T, C] each."""

    def on_minibatch(
        self, learner: Learner, minibatch: Minibatch, outputs: Outputs, losses: Losses
    ) -> None:
        """The loss of a minibatch was computed; gradients were not."""

    def on_gradients(self, learner: Learner, *, clipped: bool) -> None:
        """Gradients were computed; with ``clipped``: the record's ``gradients`` changed them."""

    def on_step(
        self,
        learner: Learner,
        minibatch: Minibatch,
        outputs: Outputs,
        numbers: Mapping[str, float],
    ) -> None:
        """The optimizer took a step; ``numbers`` are the metrics of the minibatch."""

    def on_update(self, metrics: Mapping[str, float]) -> None:
        """All policies have learned from the rollout; ``metrics`` are those of the update."""
