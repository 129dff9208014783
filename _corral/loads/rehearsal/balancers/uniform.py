"""random: one of the own node and its neighbors, all equally likely."""

from __future__ import annotations

from corral.loads.rehearsal.balancers.memory import Memory, drawn
from corral.loads.rehearsal.world import World

__all__ = ["uniform"]


def uniform(world: World, memory: Memory, i: int, now: float, r: int) -> int:
    return drawn(world, memory, i, r, 0)
