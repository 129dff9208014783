"""round-robin: the own node and its neighbors in turn, beginning with the own node.

``round_robin`` in nginx and HAProxy, with equal weights. Each node has its own turn.
"""

from __future__ import annotations

from corral.loads.rehearsal.balancers.memory import Memory, candidate
from corral.loads.rehearsal.world import World

__all__ = ["round_robin"]


def round_robin(world: World, memory: Memory, i: int, now: float, r: int) -> int:
    turn = memory.turn[i]
    memory.turn[i] = (turn + 1) % (world.degree[i] + 1)
    return candidate(world, i, turn)
