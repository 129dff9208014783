"""idle-queue: an idle server from the own list, else a random one.

Join the idle queue (Lu, Xie, Kliot, Geller, Larus and Greenberg, 2011): a server that becomes
idle joins the list of one node, drawn uniformly among itself and the nodes that can forward to it,
unless it is in a list already. A node takes the first server of its list off the list. All servers
begin idle and in no list.
"""

from __future__ import annotations

import math

from corral.loads.rehearsal.balancers.memory import Memory, drawn
from corral.loads.rehearsal.world import World, settle

__all__ = ["idle_queue"]


def idle_queue(world: World, memory: Memory, i: int, now: float, r: int) -> int:
    n = world.nodes
    for j in range(n):
        settle(world, j, now)
    while True:  # servers join in the order in which they became idle
        server, earliest = -1, math.inf
        for j in range(n):
            joins = world.busy[j] == 0 and memory.listed[j] == 0
            if joins and 0.0 < world.idle_since[j] < earliest:
                server, earliest = j, world.idle_since[j]
        if server < 0:
            break
        join(world, memory, server)
    if memory.length[i]:
        first: int = memory.line[i * n]
        memory.length[i] -= 1
        for k in range(memory.length[i]):
            memory.line[i * n + k] = memory.line[i * n + k + 1]
        memory.listed[first] = 0
        world.idle_since[first] = 0.0
        return first
    return drawn(world, memory, i, r, 0)


def join(world: World, memory: Memory, server: int) -> None:
    """Put an idle server into the list of a random node."""
    n = world.nodes
    members = 1
    for i in range(n):
        members += world.linked[i * n + server]
    memory.turn[0] = (memory.turn[0] + 1) * 48271 % 2147483647  # Park and Miller's generator
    rank = memory.turn[0] % members
    node = server
    for i in range(n):
        if world.linked[i * n + server]:
            rank -= 1
            if rank == 0:
                node = i
    memory.line[node * n + memory.length[node]] = server
    memory.length[node] += 1
    memory.listed[server] = 1
