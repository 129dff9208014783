"""Whether a team was trained long enough for an answer that speaks against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from corral.loads.from_rule.validation import HISTORY, History
from corral.trainers.evaluation.intervals import student_quantile
from corral.trainers.runs.run import Run

__all__ = ["FEWEST_UPDATES", "Reason", "Training", "fall_of", "training_of"]

FEWEST_UPDATES = 60
"""Updates below which a team is not judged to be of no use. On the load of ``make demo`` the costs
of validation stay within 0.1 points of their end from about so many on, known and unknown."""

LATER = 2 / 3
"""Checkpoints from this part of the env steps on are the last third of a training."""

FALLING_LEVEL = 0.95
"""Level of the one-sided test that the costs of validation still fall."""

LONGER = 10
"""A fall counts if so many more of its kind would make the team worth it."""

Reason = Literal["updates", "falling"]


@dataclass(frozen=True)
class Training:
    """How long a team was trained, and how its costs of validation ended."""

    updates: int
    env_steps: int
    fall: float | None  # over the last third, a share of the arrivals; None: too few checkpoints
    falls: bool  # whether that is more than chance

    def too_short(self, missing: float) -> Reason | None:
        """Return why the training was too short; None if it was not.

        ``missing``: how much more the team would have to save, as a share of the arrivals.
        """
        if self.updates < FEWEST_UPDATES:
            return "updates"
        if self.falls and self.fall is not None and LONGER * self.fall > missing:
            return "falling"
        return None

    def to_json(self) -> dict[str, Any]:
        """Return its values."""
        return asdict(self)


def training_of(run: Run) -> Training:
    """Return how long a run of ``corral.from_rule`` was trained."""
    progress = run.progress
    fall, falls = None, False
    if (run.folder / HISTORY).is_file():
        history = History.read(run.folder)
        fall, falls = fall_of(history.costs, sum(history.arrivals))
    return Training(len(progress), int(progress["env_steps"].iloc[-1]), fall, falls)


def fall_of(costs: Mapping[int, Sequence[float]], arrivals: float) -> tuple[float | None, bool]:
    """Return by how much the costs of validation fall over the last third of a training, along a
    straight line, as a share of the ``arrivals``; and whether that is more than chance.

    ``costs``: requests of each window by env steps. Fewer than three checkpoints tell nothing.
    """
    last = max(costs, default=0)
    steps = np.array(sorted(step for step in costs if step >= LATER * last), dtype=np.float64)
    if len(steps) < 3 or not arrivals:
        return None, False
    total = np.array([sum(costs[int(step)]) for step in steps]) / arrivals
    apart = steps - steps.mean()
    slope = float(apart @ total) / float(apart @ apart)
    rest = total - total.mean() - slope * apart
    degrees = len(steps) - 2
    error = float(np.sqrt(rest @ rest / degrees / (apart @ apart)))
    falls = -slope > student_quantile(FALLING_LEVEL, degrees) * error
    return -slope * float(steps[-1] - steps[0]), bool(falls and slope < 0)
