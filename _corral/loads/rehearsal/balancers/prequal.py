"""prequal=D: hot servers are avoided, and of the cold ones the quickest is taken.

The hot-cold rule of Prequal (Wydrowski, Kleinberg, Rumble and Archer, Load is not what you should
balance, 2024). For each request D servers are drawn with replacement and probed: the number of
requests that they hold, by reports, and the peak-sensitive mean of their times in the system, seen
from the own node. A server is hot if it holds more requests than 84 % of the last 128 probes of the
own node. The cold server with the smallest time is taken, or if all are hot, the one that holds the
fewest requests. Ties go to the server drawn first. Probes are not reused, unlike in Prequal.
"""

from __future__ import annotations

import math

from corral.loads.rehearsal.balancers.memory import Memory, drawn
from corral.loads.rehearsal.world import World, held

__all__ = ["LINE", "prequal"]

PROBES, QUANTILE = 128, 0.84
HIGHEST = 255
"""Longer queues count as this long among the last probes."""
LINE = PROBES + HIGHEST + 1
"""Numbers that a node remembers: the last probes, then how many of them are 0, 1, ... HIGHEST."""


def prequal(world: World, memory: Memory, i: int, now: float, r: int) -> int:
    best = least = drawn(world, memory, i, r, 0)
    quickest, fewest = math.inf, math.inf
    for draw in range(memory.number):
        j = drawn(world, memory, i, r, draw)
        count = held(world, j, now)
        if count < fewest:
            least, fewest = j, count
        time = world.peak[i * world.nodes + j]
        if time < quickest and not is_hot(memory, i, count):
            best, quickest = j, time
        remember(memory, i, min(count, HIGHEST))
    return best if quickest < math.inf else least


def is_hot(memory: Memory, i: int, count: int) -> bool:
    """Whether ``count`` exceeds a share ``QUANTILE`` of the last probes of node ``i``."""
    below = 0
    for lower in range(min(count, HIGHEST)):
        below += memory.line[i * LINE + PROBES + lower]
    return below > QUANTILE * PROBES


def remember(memory: Memory, i: int, count: int) -> None:
    """Put a probe in the place of the oldest one."""
    place = i * LINE + memory.turn[i]
    if memory.length[i] == PROBES:
        memory.line[i * LINE + PROBES + memory.line[place]] -= 1
    else:
        memory.length[i] += 1
    memory.line[place] = count
    memory.line[i * LINE + PROBES + count] += 1
    memory.turn[i] = (memory.turn[i] + 1) % PROBES
