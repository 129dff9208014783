"""Serve locally while possible, and forward the overflow.

overflow: the own node while it takes requests. Then the first neighbor in cyclic order that can
still serve the request in this step, by reports. Otherwise the request is lost at its own node.

room: the own node while it can serve the request in this step. Then the neighbor that can serve the
most further requests in this step, by reports. Without such a neighbor, the queue of the own node.
"""

from __future__ import annotations

from corral.loads.rehearsal.balancers.memory import Memory
from corral.loads.rehearsal.world import ROUNDING, World, accepts, is_open, room

__all__ = ["largest_room", "overflow"]


def overflow(world: World, memory: Memory, i: int, now: float, r: int) -> int:
    if accepts(world, i, now, True):
        return i
    for k in range(world.degree[i]):
        j: int = world.near[i * world.nodes + k]
        if is_open(world, i, j) and room(world, j, now) > ROUNDING:
            return j
    return i


def largest_room(world: World, memory: Memory, i: int, now: float, r: int) -> int:
    if accepts(world, i, now, False):
        return i
    best, largest = i, ROUNDING
    for k in range(world.degree[i]):
        j = world.near[i * world.nodes + k]
        if is_open(world, i, j):
            free = room(world, j, now)
            if free > largest:
                best, largest = j, free
    return best
