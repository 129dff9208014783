"""Observers of an in-house trainer: ``trainer.observe(observer)``.

Observers are read-only: they get the objects that the trainer itself uses, and must not write to
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
    """Base class of observers. Override any methods; they are listed in call order."""

    tracks_reads = False
    """If True, ``on_minibatch`` gets a ``TrackedMinibatch``."""

    def on_rollout(self, rollout: Any) -> None:
        """Called after a rollout (a ``RolloutBuffer``); the next rollout overwrites it."""

    def on_advantages(
        self, learner: Learner, trajectories: Trajectories, advantages: Advantages
    ) -> None:
        """Called after a policy's advantages were computed: [T, C] each."""

    def on_minibatch(
        self, learner: Learner, minibatch: Minibatch, outputs: Outputs, losses: Losses
    ) -> None:
        """Called after the loss of a minibatch was computed, before its gradients."""

    def on_gradients(self, learner: Learner, *, clipped: bool) -> None:
        """Called after gradients were computed; ``clipped``: after the record's ``gradients``."""

    def on_step(
        self,
        learner: Learner,
        minibatch: Minibatch,
        outputs: Outputs,
        numbers: Mapping[str, float],
    ) -> None:
        """Called after an optimizer step; ``numbers`` are the metrics of the minibatch."""

    def on_update(self, metrics: Mapping[str, float]) -> None:
        """Called after all policies learned from the rollout, with the metrics of the update."""
