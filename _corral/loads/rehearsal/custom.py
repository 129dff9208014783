"""Custom balancers: an object with ``choose(request)``, which returns the name of a node.

class Nearest:
    def choose(self, request):
        free = [name for name in request.neighbours if request.held(name) < 3]
        return free[0] if free else request.node
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from corral.data import Trace
from corral.errors import ActionError
from corral.loads.rehearsal.world import TIME, World, backlog, held, is_open, settle

__all__ = ["PATIENCE", "Request", "RequestPolicy", "chooser"]

PATIENCE = 1_000
"""Requests after which the time of a decision is compared with the time between requests."""


class Request:
    """A request of a client of ``node``, and what this node knows. Times are in steps."""

    def __init__(self, world: World, names: Sequence[str], i: int, now: float, work: float) -> None:
        self._world, self._names, self._now = world, names, now
        self._index = {name: j for j, name in enumerate(names)}
        self._i = i
        self.node = names[i]
        self.time = now
        self.work = work  # 1 without sizes
        self.remaining = world.clock[TIME] + 1.0 - now  # until the end of the step

    @property
    def neighbours(self) -> list[str]:
        """The neighbors whose link takes another request in this step, in cyclic order."""
        world, i = self._world, self._i
        near = world.near[i * world.nodes : i * world.nodes + world.degree[i]]
        return [self._names[j] for j in near if is_open(world, i, j)]

    def held(self, node: str) -> int:
        """Return the number of requests that a node holds, by reports."""
        return int(held(self._world, self._index[node], self._now))

    def backlog(self, node: str) -> float:
        """Return the work that a node still has to do, by reports."""
        return float(backlog(self._world, self._index[node], self._now))

    def in_flight(self, node: str) -> int:
        """Return the requests of this node's clients that another node holds, by own counts."""
        world, j = self._world, self._index[node]
        settle(world, j, self._now)
        return int(world.flight[self._i * world.nodes + j])

    def capacity(self, node: str) -> float:
        """Return the work that a node can do in this step."""
        return float(self._world.capacity[self._index[node]])


@runtime_checkable
class RequestPolicy(Protocol):
    """A custom balancer: ``choose(request)`` returns the own node's name, or a neighbor's."""

    def choose(self, request: Request) -> str: ...


def chooser(policy: RequestPolicy, trace: Trace) -> Callable[..., int]:
    """Return a custom balancer in the form of ``balancers``. Its ``memory`` is the chunk's work.

    It raises ActionError for exceptions, for a result that is not a neighbor's name, and for a
    policy that is slower than the requests come.
    """
    names = trace.nodes
    total = max(1, int(trace.arrivals.sum()))
    between = trace.step * len(trace) / total  # mean time between two requests
    seconds, decisions = 0.0, 0

    def choose(world: World, memory: Any, i: int, now: float, r: int) -> int:
        nonlocal seconds, decisions
        request = Request(world, names, i, now, memory[r])
        place = f"{names[i]}, step {int(world.clock[TIME])}"
        began = time.perf_counter()
        try:
            node: Any = policy.choose(request)
        except Exception as error:
            raise ActionError(f"{place}: {type(error).__name__}: {error}") from error
        seconds += time.perf_counter() - began
        decisions += 1
        late = seconds > between * decisions and trace.clock == "utc"
        if decisions % PATIENCE == 0 and late:
            raise ActionError(
                f"{place}: a decision takes {seconds / decisions:.2g} s on average, but requests "
                f"come every {between:.2g} s: the policy could not decide in time"
            )
        if not isinstance(node, str) or node not in names:
            near = ", ".join(request.neighbours)
            raise ActionError(
                f"{place}: choose() returned {node!r:.60}; return {names[i]!r}, or a neighbor: "
                f"{near}"
            )
        j = names.index(node)
        if j != i and not world.linked[i * world.nodes + j]:
            raise ActionError(f"{place}: choose() returned {node!r}, which is not a neighbor")
        return j

    return choose
