"""A schedule in place of reports: each neighbor's usual spare at this time of day.

It needs no learning: the table is a mean over the days of the fit. So it is a fair opponent of a
team that learned the time of day.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from ladders_loads import Judged

from corral.data import Trace
from corral.envs.dfaas_v0 import Plan
from corral.loads.replay import replay
from corral.loads.scores import WindowSums

__all__ = ["Schedule", "best_schedule", "usual_spare"]

BACKLOGS = (0.5, 1.0)
SHARES = (0.25, 0.5, 1.0)
CHOSEN_ON = 7
"""Last days of the fit, on which the schedules compete; the table is a mean over all days."""


@dataclass(frozen=True)
class Schedule:
    """Forwards to each neighbor at most a share of its usual spare at this time of day."""

    spare: dict[str, np.ndarray[Any, Any]]  # node -> float64 [steps of a day]
    backlog: float  # share of the queue that a node fills before it forwards
    share: float  # of the usual spare, because others forward, too

    def plan(self, view: Any) -> Plan:
        """Return the plan of a node for a step; episodes are days."""
        keep = max(0, int(view.capacity + self.backlog * view.queue_limit) - view.queue)
        most = np.inf if view.link_limit is None else view.link_limit
        caps = {
            name: int(min(most, self.share * self.spare[name][view.step])) for name in view.spare
        }
        return Plan(keep=keep, caps=caps, route="equal")


def usual_spare(trace: Trace, window: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return the mean of max(0, capacity - arrivals) of each node: float64 [steps of a day]."""
    assert trace.capacity is not None
    spare = np.maximum(0, trace.capacity - trace.arrivals).reshape(-1, window, len(trace.nodes))
    return dict(zip(trace.nodes, spare.mean(axis=0).T, strict=True))


def best_schedule(judged: Judged) -> tuple[Schedule, WindowSums]:
    """Return the schedule of least cost on days of the fit, and its sums on the days that judge."""
    spare = usual_spare(judged.load.section(0, judged.cut), judged.window)
    schedules = {
        f"{backlog}, {share}": Schedule(spare, backlog, share)
        for backlog, share in itertools.product(BACKLOGS, SHARES)
    }
    plan = {"window": judged.window, "arrivals": "unknown", "optimum_windows": 0, **judged.settings}
    first = max(0, judged.cut - CHOSEN_ON * judged.window)
    fitted = replay(judged.load, schedules, rows=(first, judged.cut), **plan).sums
    best = schedules[min(schedules, key=lambda label: float(fitted[label].cost.sum()))]
    rows = (judged.cut, len(judged.load))
    return best, replay(judged.load, {"schedule": best}, rows=rows, **plan).sums["schedule"]
