"""Mistakes with action masks: lost in the rollout, in the loss, in play, after a reload."""

from __future__ import annotations

from pathlib import Path

from corral.trainers.on_policy.buffer import GroupBuffer
from corral.trainers.on_policy.trainer import MAPPO
from corral.trainers.runs.run import Run
from faults.fault import fault, trained


class ForgetsMasks(GroupBuffer):
    """Stores observations, and leaves the masks as it was made: all ones."""

    def store(self, at, observations):
        super().store(at, observations)
        self.mask[at] = True


class WithBuffer(MAPPO):
    """MAPPO with buffers of another kind."""

    buffer: type[GroupBuffer]

    def begin(self) -> None:
        super().begin()
        for buffer in self.rollout.groups:
            buffer.__class__ = self.buffer


@fault("mask-lost-in-rollout", "mask-ignored-in-play")
def mask_dropped_in_rollout(folder: Path) -> Run:
    """The buffer holds masks that forbid nothing."""
    kind = type("Forgets", (WithBuffer,), {"buffer": ForgetsMasks})
    return trained(folder, "tiles_v0", trainer=kind)
