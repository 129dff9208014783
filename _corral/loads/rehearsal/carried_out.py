"""Carry out plans of nodes request by request, like a proxy.

The plans are those of ``corral.envs.dfaas_v0.plans``; this module gives each single request its
node. See ``world`` for the two ways in which its functions run.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from corral.loads.rehearsal.world import World

__all__ = ["EQUAL", "FILL", "LEAST", "ROUTES", "TWO_CHOICES", "WEIGHTED", "PlanMemory", "by_plan"]

EQUAL, WEIGHTED, LEAST, TWO_CHOICES, FILL = range(5)
ROUTES = {"equal": 0, "weighted": 1, "least": 2, "two-choices": 3, "fill": 4}


class PlanMemory(NamedTuple):
    """The plans of N nodes for a step, and how far they are carried out. [N N]: flat, see World."""

    uniform: Any  # not used
    keep: Any  # [N]
    share: Any  # [N]; below 0: keep counts
    limit: Any  # [N]
    route: Any  # [N]
    cap: Any  # [N N]
    weight: Any  # float [N N]: capacity, reported spare, or order of filling
    draws: Any  # first halves of the draws of "two-choices"; node i begins at draws_at[i]
    draws_too: Any  # second halves
    draws_at: Any  # [N]
    seen: Any  # [N] requests in this step
    forwarded: Any  # [N]
    sent: Any  # [N N]


def by_plan(world: World, memory: PlanMemory, i: int, now: float, r: int) -> int:
    """Return the node for the next request of node ``i``."""
    seen = memory.seen[i]
    memory.seen[i] = seen + 1
    if memory.forwarded[i] >= memory.limit[i]:
        return i
    share = memory.share[i]
    if share >= 0.0:
        if math.ceil(share * (seen + 1) - 1e-9) == math.ceil(share * seen - 1e-9):
            return i
    elif seen < memory.keep[i]:
        return i
    j = two_drawn(world, memory, i) if memory.route[i] == TWO_CHOICES else scanned(world, memory, i)
    if j != i:
        memory.forwarded[i] += 1
        memory.sent[i * world.nodes + j] += 1
    return j


def scanned(world: World, memory: Any, i: int) -> int:
    """Return the neighbor below its cap with the highest score; ties in cyclic order."""
    route, n = memory.route[i], world.nodes
    best, highest = i, -math.inf
    for k in range(world.degree[i]):
        j = world.near[i * n + k]
        link = i * n + j
        sent = memory.sent[link]
        if sent >= memory.cap[link]:
            continue
        if route == EQUAL:
            score = -float(sent)
        elif route == LEAST:
            score = memory.weight[link] - sent
        elif route == FILL:
            score = memory.weight[link]
        elif memory.weight[link] > 0.0:
            score = -(sent + 1.0) / memory.weight[link]
        else:
            score = -1e15 * (sent + 1.0)  # nodes without capacity come last, in turn
        if score > highest:
            best, highest = j, score
    return best


def two_drawn(world: World, memory: Any, i: int) -> int:
    """Return the better of two neighbors below their cap, drawn with replacement."""
    n = world.nodes
    count = 0
    for k in range(world.degree[i]):
        link = i * n + world.near[i * n + k]
        if memory.sent[link] < memory.cap[link]:
            count += 1
    if count == 0:
        return i
    at = memory.draws_at[i] + memory.forwarded[i]
    one, two = memory.draws[at] * count >> 32, memory.draws_too[at] * count >> 32
    first = second = i
    rank = 0
    for k in range(world.degree[i]):
        j = world.near[i * n + k]
        if memory.sent[i * n + j] < memory.cap[i * n + j]:
            if rank == one:
                first = j
            if rank == two:
                second = j
            rank += 1
    first_rest = memory.weight[i * n + first] - memory.sent[i * n + first]
    second_rest = memory.weight[i * n + second] - memory.sent[i * n + second]
    return second if second_rest > first_rest else first
