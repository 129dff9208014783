"""Time estimates for runs in parallel: before the first run, and after it has ended."""

from __future__ import annotations

import math
import time

__all__ = ["Pace"]


class Pace:
    """The number of runs to train, their env steps, and the number of processes."""

    def __init__(self, runs: int, env_steps: int, processes: int) -> None:
        self.runs, self.env_steps, self.processes = runs, env_steps, processes
        self.begun: float | None = time.monotonic()  # None: the first run has ended

    def planned(self) -> str:
        """Return a text such as "8 runs of 4,096 env steps, 2 at a time"."""
        runs = f"{self.runs} run{'s' * (self.runs != 1)} of {self.env_steps:,} env steps"
        parallel = min(self.runs, self.processes)
        return f"{runs}, {parallel} at a time" if parallel > 1 else runs

    def ended(self) -> str | None:
        """Return, after the first run, a text with the remaining time; after later runs, None.

        All runs are assumed to take equally long.
        """
        if self.begun is None:
            return None
        duration, self.begun = time.monotonic() - self.begun, None
        remaining = duration * (math.ceil(self.runs / self.processes) - 1)
        return (
            f"The first run took {_long(duration)}: about {_long(remaining)} remaining"
            if remaining
            else None
        )


def _long(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
