"""weighted-round-robin: in turn, in proportion to the capacities of the step.

The smooth weighted round robin of nginx (ngx_http_upstream_round_robin.c, from version 1.3.1): each
request adds the weight of every server to its score, takes the highest score, and subtracts the sum
of the weights from it. The weights are the capacities of this step.
"""

from __future__ import annotations

from corral.loads.rehearsal.balancers.memory import Memory, candidate
from corral.loads.rehearsal.world import World

__all__ = ["weighted"]


def weighted(world: World, memory: Memory, i: int, now: float, r: int) -> int:
    total, best = 0.0, i
    for k in range(world.degree[i] + 1):
        j = candidate(world, i, k)
        total += world.capacity[j]
        memory.score[i * world.nodes + j] += world.capacity[j]
        if memory.score[i * world.nodes + j] > memory.score[i * world.nodes + best]:
            best = j
    memory.score[i * world.nodes + best] -= total
    return best
