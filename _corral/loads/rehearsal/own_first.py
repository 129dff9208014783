"""Play a plan with own requests always before forwarded ones, as in the game of the replay.

This is one of the parts of the difference between a replay and a rehearsal: times within the step
count, but forwarded requests never compete with own ones. In a step, each node first serves its
own requests. Then forwarded requests get the work that its servers would not have done. A node
takes one while the forwarded work that it holds is less than the rest of this work in the step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corral.loads.rehearsal.carried_out import by_plan
from corral.loads.rehearsal.world import (
    ARRIVALS,
    FORWARDED,
    REFUSED,
    TIME,
    WAITING,
    World,
    begin_step,
    end_step,
    lose,
    send,
    settle,
)

__all__ = ["Leftover", "play_by_priority"]


class Leftover:
    """The forwarded requests of N nodes, on clocks of the work that own requests leave.

    Args:
        nodes: N.
        requests: most requests of a step.
    """

    def __init__(self, nodes: int, requests: int) -> None:
        self.before: Any = np.zeros(nodes)  # clock of work left, at the start of the step
        self.done: Any = np.zeros(nodes)  # clock at which all forwarded requests are done
        self.unused: Any = np.zeros(nodes)  # work that no request used in the step
        self.target: Any = np.zeros(requests, np.int64)  # of a request; its own node if it stays
        self.clock: Any = np.zeros(requests * nodes)  # work left so far in the step, at its time


def play_by_priority(
    world: World,
    memory: Any,
    rest: Any,
    capacity: Any,
    until: Any,
    node: Any,
    time: Any,
    work: Any,
    first_step: int,
    last_step: int,
) -> None:
    """Play one step; the arguments are those of ``playing.player``, with ``rest`` a Leftover."""
    n = world.nodes
    begin_step(world, capacity, 0)
    for r in range(until[0]):
        i, now = node[r], time[r]
        j = by_plan(world, memory, i, now, r)
        rest.target[r] = j
        if j == i:
            send(world, i, i, now, work[r])
            continue
        for k in range(n):
            settle(world, k, now)
            clock = world.rate[k] * (now - world.clock[TIME])
            idle = (world.servers - world.busy[k]) * (clock - world.idle_at[k])
            rest.clock[r * n + k] = world.idle[k] + idle
    end_step(world)
    for j in range(n):
        rest.unused[j] = world.idle[j] - max(0.0, rest.done[j] - rest.before[j])
    for r in range(until[0]):
        i, j = node[r], rest.target[r]
        if j != i:
            world.counts[ARRIVALS] += 1
            world.counts[FORWARDED] += 1
            if not placed(world, rest, i, j, r, work[r]):
                world.counts[REFUSED] += 1
                if not (world.second_offer and placed_again(world, rest, i, r, work[r])):
                    lose(world, i)
    for j in range(n):
        rest.before[j] += world.idle[j]
        waiting = max(0.0, rest.done[j] - rest.before[j])
        rest.unused[j] += waiting
        world.counts[WAITING] += int(waiting)


def placed(world: World, rest: Any, i: int, j: int, r: int, work: float) -> bool:
    """Give a request of ``i`` to node ``j`` if it can take it; return whether it did."""
    link = i * world.nodes + j
    now = rest.before[j] + rest.clock[r * world.nodes + j]
    backlog = max(0.0, rest.done[j] - now)
    if world.used[link] >= world.link_limit or backlog >= rest.before[j] + world.idle[j] - now:
        return False
    world.used[link] += 1
    rest.done[j] = now + backlog + work
    rest.unused[j] -= work
    return True


def placed_again(world: World, rest: Any, i: int, r: int, work: float) -> bool:
    """Give a refused request to the first neighbor that can take it; return whether one did."""
    n = world.nodes
    for k in range(world.degree[i]):
        j = world.near[i * n + k]
        if world.used[i * n + j] < world.cap[i * n + j] and placed(world, rest, i, j, r, work):
            return True
    return False
