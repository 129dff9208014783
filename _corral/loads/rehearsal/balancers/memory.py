"""The memory that balancers share: random numbers, and tables that survive a request."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from corral.loads.rehearsal.world import World

__all__ = ["Memory", "candidate", "new_memory"]


class Memory(NamedTuple):
    """N nodes; [N N] is a flat table, see ``World``. Lists, or arrays if compiled."""

    uniform: Any  # [R draws] random numbers in [0, 1) for the requests of the chunk
    draws: int  # random numbers of a request
    number: int  # of choices, in the name of the balancer
    turn: Any  # int [N]
    score: Any  # float [N N]
    line: Any  # int [N line]
    length: Any  # int [N]
    listed: Any  # int [N]


def new_memory(nodes: int, draws: int, number: int, line: int) -> Memory:
    """Return the memory at the start of a window, of arrays."""
    return Memory(
        uniform=np.zeros(0),
        draws=draws,
        number=number,
        turn=np.zeros(nodes, dtype=np.int64),
        score=np.zeros(nodes * nodes),
        line=np.zeros(nodes * line, dtype=np.int64),
        length=np.zeros(nodes, dtype=np.int64),
        listed=np.zeros(nodes, dtype=np.int64),
    )


def candidate(world: World, i: int, k: int) -> int:
    """Return candidate ``k`` of node ``i``: 0 is the node itself, then its neighbors in order."""
    neighbour: int = world.near[i * world.nodes + k - 1]
    return i if k == 0 else neighbour


def drawn(world: World, memory: Memory, i: int, r: int, draw: int) -> int:
    """Return a random candidate of node ``i`` for request ``r``, by its random number ``draw``."""
    u: float = memory.uniform[r * memory.draws + draw]
    return candidate(world, i, int(u * (world.degree[i] + 1)))
