"""How long runs side by side take: what is said before the first, and when it ended."""

from __future__ import annotations

import math
import time

__all__ = ["Pace"]


class Pace:
    """So many runs that are trained, so many at a time."""

    def __init__(self, runs: int, env_steps: int, processes: int) -> None:
        self.runs, self.env_steps, self.processes = runs, env_steps, processes
        self.begun: float | None = time.monotonic()  # None: the first has ended

    def planned(self) -> str:
        """Return "8 runs of 4,096 env steps, 2 at a time"."""
        runs = f"{self.runs} run{'s' * (self.runs != 1)} of {self.env_steps:,} env steps"
        many = min(self.runs, self.processes)
        return f"{runs}, {many} at a time" if many > 1 else runs

    def ended(self) -> str | None:
        """Return, when the first run ended, how long the others will take; None at the others.

        Runs count as equally long.
        """
        if self.begun is None:
            return None
        took, self.begun = time.monotonic() - self.begun, None
        left = took * (math.ceil(self.runs / self.processes) - 1)
        return f"The first run took {_long(took)}: about {_long(left)} are left" if left else None


def _long(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
