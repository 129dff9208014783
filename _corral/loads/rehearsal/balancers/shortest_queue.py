"""shortest-queue: the server that holds the fewest requests, by reports.

Join the shortest queue (Winston, Optimality of the shortest line discipline, 1977). shortest-delay
takes the smallest (requests + 1) / capacity instead (shortest expected delay). shortest-of=D takes
the fewest requests among D servers drawn with replacement (the supermarket model of Mitzenmacher,
2001). Ties go to the own node, then in cyclic order; in shortest-of, to the server drawn first.
"""

from __future__ import annotations

import math

from corral.loads.rehearsal.balancers.memory import Memory, candidate, drawn
from corral.loads.rehearsal.world import World, held, is_open

__all__ = ["shortest_delay", "shortest_of", "shortest_queue"]


def shortest_queue(world: World, memory: Memory, i: int, now: float, r: int) -> int:
    best, lowest = i, held(world, i, now)
    for k in range(world.degree[i]):
        j = candidate(world, i, k + 1)
        if is_open(world, i, j):
            count = held(world, j, now)
            if count < lowest:
                best, lowest = j, count
    return best


def shortest_delay(world: World, memory: Memory, i: int, now: float, r: int) -> int:
    best, lowest = i, math.inf
    for k in range(world.degree[i] + 1):
        j = candidate(world, i, k)
        if j == i or is_open(world, i, j):
            count, capacity = held(world, j, now), world.capacity[j]
            delay = (count + 1) / capacity if capacity > 0 else 1e15 * (count + 1)
            if delay < lowest:
                best, lowest = j, delay
    return best


def shortest_of(world: World, memory: Memory, i: int, now: float, r: int) -> int:
    best = drawn(world, memory, i, r, 0)
    lowest = held(world, best, now)
    for draw in range(1, memory.number):
        j = drawn(world, memory, i, r, draw)
        count = held(world, j, now)
        if count < lowest:
            best, lowest = j, count
    return best
