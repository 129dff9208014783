"""peak-ewma: of two random servers, the one with the smaller (mean time + own) x (in flight + 1).

Peak EWMA of Finagle and Linkerd (PeakEwma.scala): the mean time in the system follows a longer
response at once, and decays to shorter ones with a time constant of one step. Both servers are
drawn with replacement. A server without a response so far has mean time 0.
"""

from __future__ import annotations

from corral.loads.rehearsal.balancers.memory import Memory, drawn
from corral.loads.rehearsal.world import World, settle

__all__ = ["peak_ewma"]


def peak_ewma(world: World, memory: Memory, i: int, now: float, r: int) -> int:
    one, two = drawn(world, memory, i, r, 0), drawn(world, memory, i, r, 1)
    return two if expected(world, i, two, now) < expected(world, i, one, now) else one


def expected(world: World, i: int, j: int, now: float) -> float:
    """Return the mean time of ``j`` seen from ``i``, times the requests in flight plus one."""
    settle(world, j, now)
    link = i * world.nodes + j
    time: float = world.peak[link] * (world.flight[link] + 1)
    return time
