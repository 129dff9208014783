"""local: each node serves the requests of its own clients."""

from __future__ import annotations

from corral.loads.rehearsal.balancers.memory import Memory
from corral.loads.rehearsal.world import World

__all__ = ["local"]


def local(world: World, memory: Memory, i: int, now: float, r: int) -> int:
    return i
