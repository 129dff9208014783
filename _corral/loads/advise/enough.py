"""Decide whether a team was trained long enough to be rejected."""

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
"""A team with fewer updates is not rejected. On the load of ``make demo`` validation costs stay
within 0.1 points of their final value from about this many updates, with arrivals known and
unknown."""

LATER = 2 / 3
"""Fraction of the env steps after which the last third of a training begins."""

FALLING_LEVEL = 0.95
"""Confidence level of the one-sided test that validation costs still fall."""

LONGER = 10
"""A fall counts if this many further falls of its size would make the team worth it."""

Reason = Literal["minutes", "updates", "falling", "rehearsal"]
"""Why a team is not worth it, or not yet: training that ended before its steps, too few updates,
validation costs that still fall, or no saving in a rehearsal."""


@dataclass(frozen=True)
class Training:
    """How long a team was trained, and whether its validation costs still fell at the end."""

    updates: int
    env_steps: int
    fall: float | None  # over the last third, a share of the arrivals; None: too few checkpoints
    falls: bool  # whether the fall is statistically significant
    planned: int = 0  # env steps that it should have had, if it was stopped before them

    def too_short(self, missing: float) -> Reason | None:
        """Return the reason why the training was too short; None if it was long enough.

        ``missing``: additional saving that the team needs, as a share of the arrivals.
        """
        if self.env_steps < self.planned:
            return "minutes"
        if self.updates < FEWEST_UPDATES:
            return "updates"
        if self.falls and self.fall is not None and LONGER * self.fall > missing:
            return "falling"
        return None

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


def training_of(run: Run) -> Training:
    """Return the training length and the final fall of a run of ``corral.from_rule``."""
    progress = run.progress
    fall, falls = None, False
    if (run.folder / HISTORY).is_file():
        history = History.read(run.folder)
        fall, falls = fall_of(history.costs, sum(history.arrivals))
    steps = int(progress["env_steps"].iloc[-1])
    planned = run.config.steps if run.stopped else steps
    return Training(len(progress), steps, fall, falls, planned)


def fall_of(costs: Mapping[int, Sequence[float]], arrivals: float) -> tuple[float | None, bool]:
    """Return the fall of validation costs over the last third of a training, and whether it is
    significant. The fall is that of a linear fit, as a share of the ``arrivals``.

    ``costs``: requests of each window, by env steps. Returns (None, False) for fewer than three
    checkpoints.
    """
    last = max(costs, default=0)
    steps = np.array(sorted(step for step in costs if step >= LATER * last), dtype=np.float64)
    if len(steps) < 3 or not arrivals:
        return None, False
    total = np.array([sum(costs[int(step)]) for step in steps]) / arrivals
    centered = steps - steps.mean()
    slope = float(centered @ total) / float(centered @ centered)
    residuals = total - total.mean() - slope * centered
    degrees = len(steps) - 2
    error = float(np.sqrt(residuals @ residuals / degrees / (centered @ centered)))
    falls = -slope > student_quantile(FALLING_LEVEL, degrees) * error
    return -slope * float(steps[-1] - steps[0]), bool(falls and slope < 0)
