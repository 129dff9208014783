"""least-work: the server with the least work in flight, relative to its capacity.

As least-requests, with the work of the requests instead of their number, by the own count of the
node that forwards. work-of=D is the same among D servers drawn with replacement.
"""

from __future__ import annotations

import math

from corral.loads.rehearsal.balancers.memory import Memory, candidate, drawn
from corral.loads.rehearsal.world import World, is_open, settle

__all__ = ["least_work", "work_of"]


def least_work(world: World, memory: Memory, i: int, now: float, r: int) -> int:
    best, lowest = i, math.inf
    for k in range(world.degree[i] + 1):
        j = candidate(world, i, k)
        if j == i or is_open(world, i, j):
            cost = work_in_flight(world, i, j, now)
            if cost < lowest:
                best, lowest = j, cost
    return best


def work_of(world: World, memory: Memory, i: int, now: float, r: int) -> int:
    best = drawn(world, memory, i, r, 0)
    lowest = work_in_flight(world, i, best, now)
    for draw in range(1, memory.number):
        j = drawn(world, memory, i, r, draw)
        cost = work_in_flight(world, i, j, now)
        if cost < lowest:
            best, lowest = j, cost
    return best


def work_in_flight(world: World, i: int, j: int, now: float) -> float:
    """Return (work of ``i`` in flight at ``j``) / capacity."""
    settle(world, j, now)
    work: float = world.flight_work[i * world.nodes + j]
    capacity: float = world.capacity[j]
    return work / capacity if capacity > 0 else 1e15 * (work + 1.0)
