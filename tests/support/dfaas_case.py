"""What a worked example of dfaas_v0 says; the examples are in ``support.dfaas_cases``.

Each case is a configuration, the actions of a few steps, and what comes of them. ``draws`` is for
``route="two"`` alone: draws[t][i] -> positions (j1, j2) in sender i's list of neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.data.trace import Trace

Pairs = list[list[tuple[int, int]]]


@dataclass(frozen=True)
class Step:
    """The actions of one step and what follows from them, one number per node."""

    actions: list[int]
    forwarded: list[int]
    served_local: list[int]
    served_remote: list[int]
    lost: list[int]
    waiting: list[int]  # also the queues after the step
    spare: list[int]  # as the node ended the step
    rewards: list[float]
    arrivals: list[int] | None = None  # None: not checked
    illegal_actions: list[int] | None = None  # None: all zero
    flows: dict[tuple[int, int], int] | None = (
        None  # (i, j) -> what j served for i; None: unchecked
    )
    observations: dict[int, list[float]] | None = None  # after the step
    global_state: list[float] | None = None  # after the step


@dataclass(frozen=True)
class Case:
    """One worked example."""

    name: str
    kwargs: dict[str, Any]  # of the environment, the trace and a fixed start row included
    steps: list[Step]
    draws: Pairs | None = None
    unit: int = 1
    actions: int | None = None  # the number of actions; None: not checked
    highest_legal: list[int] | None = None  # at the start; all lower actions are legal too
    first_observations: dict[int, list[float]] | None = None

    def __str__(self) -> str:
        return self.name


def make_trace(arrivals: list[list[int]], capacity: list[list[int]] | None) -> Trace:
    """A trace from rows of numbers, one row per step."""
    names = tuple(f"site-{i}" for i in range(len(arrivals[0])))
    times = np.arange(len(arrivals))
    served = None if capacity is None else np.array(capacity)
    return Trace(nodes=names, arrivals=np.array(arrivals), capacity=served, times=times)


def load(
    arrivals: list[list[int]], served: list[list[int]] | None, /, **others: Any
) -> dict[str, Any]:
    return {"trace": make_trace(arrivals, served), "start": 0, "max_cycles": 8, **others}
