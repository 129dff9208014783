"""least-requests: the server with the fewest requests in flight, relative to its capacity.

``least_conn`` of nginx and ``leastconn`` of HAProxy with the capacities as weights: the smallest
(requests + 1) / capacity, by the own count of the node that forwards. Servers without capacity come
last. Ties go to the own node, then in cyclic order.

choices=D is the same among D servers drawn with replacement (Mitzenmacher, The power of two choices
in randomized load balancing, 2001; ``LEAST_REQUEST`` of Envoy, ``random two least_conn`` of nginx).
"""

from __future__ import annotations

import math

from corral.loads.rehearsal.balancers.memory import Memory, candidate, drawn
from corral.loads.rehearsal.world import World, is_open, settle

__all__ = ["choices", "least_requests"]


def least_requests(world: World, memory: Memory, i: int, now: float, r: int) -> int:
    best, lowest = i, math.inf
    for k in range(world.degree[i] + 1):
        j = candidate(world, i, k)
        if j == i or is_open(world, i, j):
            cost = in_flight(world, i, j, now)
            if cost < lowest:
                best, lowest = j, cost
    return best


def choices(world: World, memory: Memory, i: int, now: float, r: int) -> int:
    best = drawn(world, memory, i, r, 0)
    lowest = in_flight(world, i, best, now)
    for draw in range(1, memory.number):
        j = drawn(world, memory, i, r, draw)
        cost = in_flight(world, i, j, now)
        if cost < lowest:
            best, lowest = j, cost
    return best


def in_flight(world: World, i: int, j: int, now: float) -> float:
    """Return (requests of ``i`` in flight at ``j`` + 1) / capacity."""
    settle(world, j, now)
    count: int = world.flight[i * world.nodes + j]
    capacity: float = world.capacity[j]
    return (count + 1) / capacity if capacity > 0 else 1e15 * (count + 1)
