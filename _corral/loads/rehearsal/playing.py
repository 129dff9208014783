"""Play the requests of steps in time order, with one decision for each request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from corral.loads.rehearsal.world import World, begin_step, deliver_until, end_step, is_open, send

__all__ = ["player"]


def player(choose: Callable[..., int], strict: bool) -> Callable[..., Any]:
    """Return a function that plays steps, with ``choose(world, memory, i, now, r)`` -> node.

    ``strict``: a request stays at its own node if its link is used up.
    """

    def play(
        world: World,
        memory: Any,
        capacity: Any,
        until: Any,
        node: Any,
        time: Any,
        work: Any,
        first_step: int,
        last_step: int,
    ) -> None:
        """Play the steps ``first_step`` to ``last_step - 1``, counted from the first of the chunk.

        ``capacity`` [T N] of all nodes; ``until`` [T]: the number of requests up to the end of each
        step; ``node``, ``time``, ``work`` [R] of the requests, in time order.
        """
        r = 0
        for t in range(first_step, last_step):
            begin_step(world, capacity, t * world.nodes)
            while r < until[t]:
                now, i = time[r], node[r]
                deliver_until(world, now, True)
                j = choose(world, memory, i, now, r)
                if strict and j != i and not is_open(world, i, j):
                    j = i
                send(world, i, j, now, work[r])
                r += 1
            end_step(world)

    return play
