"""Balancers of practice, as references: each decides for every request when it arrives.

A balancer chooses among the own node and its neighbors. Names with a number, such as choices=2, are
followed by their number of choices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from corral.errors import ArgumentError, UnknownNameError
from corral.loads.rehearsal.balancers.by_work import least_work, work_of
from corral.loads.rehearsal.balancers.idle_queue import idle_queue
from corral.loads.rehearsal.balancers.least_requests import choices, least_requests
from corral.loads.rehearsal.balancers.local import local
from corral.loads.rehearsal.balancers.memory import Memory, new_memory
from corral.loads.rehearsal.balancers.overflow import largest_room, overflow
from corral.loads.rehearsal.balancers.peak_ewma import peak_ewma
from corral.loads.rehearsal.balancers.prequal import LINE, prequal
from corral.loads.rehearsal.balancers.round_robin import round_robin
from corral.loads.rehearsal.balancers.shortest_queue import (
    shortest_delay,
    shortest_of,
    shortest_queue,
)
from corral.loads.rehearsal.balancers.uniform import uniform
from corral.loads.rehearsal.balancers.weighted import weighted

__all__ = ["BALANCERS", "DEFAULT", "Balancer", "Memory", "balancer_of", "is_balancer"]

MAX_CHOICES = 16

NOTHING = "nothing of the others"
COUNTS = "its own counts of requests in flight"
WORK = "its own counts of work in flight"
REPORTS = "the backlogs of the others"
TIMES = "its own counts of requests in flight, and the times of its responses"


@dataclass(frozen=True)
class Balancer:
    """A way of choosing a server for each request."""

    name: str
    choose: Callable[..., int]
    meaning: str  # what a node does, in one sentence without a subject
    needs: str  # the knowledge of a node
    draws: int = 0  # random numbers of a request; with a number of choices: this many times it
    number: int = 0  # of choices; 0: the name has none
    line: int = 0  # length of ``Memory.line`` for each node; 0: one for each node
    peaks: bool = False  # whether it uses times of responses

    def __str__(self) -> str:
        return f"{self.name}={self.number}" if self.number else self.name

    def memory(self, nodes: int) -> Memory:
        """Return its memory at the start of a window."""
        return new_memory(nodes, self.draws * max(1, self.number), self.number, self.line or nodes)


BALANCERS = {
    balancer.name: balancer
    for balancer in (
        Balancer("local", local, "serves its own requests", NOTHING),
        Balancer("random", uniform, "sends each request to a random server", NOTHING, draws=1),
        Balancer("round-robin", round_robin, "sends requests to the servers in turn", NOTHING),
        Balancer(
            "weighted-round-robin",
            weighted,
            "sends requests to the servers in turn, in proportion to their capacity",
            "the capacities of the others",
        ),
        Balancer(
            "least-requests",
            least_requests,
            "sends each request to the server with the fewest of its requests in flight",
            COUNTS,
        ),
        Balancer(
            "choices",
            choices,
            "sends each request to the better of some random servers, by its requests in flight",
            COUNTS,
            draws=1,
            number=2,
        ),
        Balancer(
            "shortest-queue",
            shortest_queue,
            "sends each request to the server that holds the fewest requests",
            REPORTS,
        ),
        Balancer(
            "shortest-delay",
            shortest_delay,
            "sends each request to the server that holds the fewest requests relative to its "
            "capacity",
            REPORTS,
        ),
        Balancer(
            "shortest-of",
            shortest_of,
            "sends each request to the one of some random servers that holds the fewest requests",
            REPORTS,
            draws=1,
            number=2,
        ),
        Balancer(
            "idle-queue",
            idle_queue,
            "sends each request to an idle server that has reported to it, else to a random one",
            "messages of servers that become idle",
            draws=1,
        ),
        Balancer(
            "peak-ewma",
            peak_ewma,
            "sends each request to the better of two random servers, by their times and its "
            "requests in flight",
            TIMES,
            draws=2,
            peaks=True,
        ),
        Balancer(
            "prequal",
            prequal,
            "probes random servers and sends each request to the quickest that is not busy",
            f"{REPORTS}, and the times of its responses",
            draws=1,
            number=3,
            line=LINE,
            peaks=True,
        ),
        Balancer(
            "overflow",
            overflow,
            "serves its own requests while its queue has room, then sends them to the first "
            "neighbor with spare capacity",
            REPORTS,
        ),
        Balancer(
            "room",
            largest_room,
            "serves its own requests while it can in this step, then sends them to the neighbor "
            "with the most spare capacity, then queues them",
            REPORTS,
        ),
        Balancer(
            "least-work",
            least_work,
            "sends each request to the server with the least of its work in flight",
            WORK,
        ),
        Balancer(
            "work-of",
            work_of,
            "sends each request to the better of some random servers, by its work in flight",
            WORK,
            draws=1,
            number=2,
        ),
    )
}
"""Name -> balancer, with the default number of choices."""

DEFAULT = (
    *("random", "round-robin", "weighted-round-robin", "least-requests", "choices"),
    *("shortest-queue", "shortest-delay", "idle-queue", "peak-ewma", "prequal"),
    *("overflow", "room"),
)
"""Balancers that are rehearsed by default, in addition to local."""


def is_balancer(text: str) -> bool:
    """Whether a text names a balancer, with or without a number."""
    return text.partition("=")[0] in BALANCERS and "/" not in text


def balancer_of(text: str) -> Balancer:
    """Return the balancer for "least-requests" or "choices=3".

    Raises UnknownNameError, ArgumentError for a wrong number.
    """
    name, _, number = text.strip().partition("=")
    if name not in BALANCERS:
        raise UnknownNameError.of("balancer", name, [*BALANCERS])
    balancer = BALANCERS[name]
    if not number:
        return balancer
    if not balancer.number:
        raise ArgumentError(f"{text}: {name} has no number; give {name}")
    if not number.isdecimal() or not 2 <= int(number) <= MAX_CHOICES:
        raise ArgumentError(f"{text}: give a whole number from 2 to {MAX_CHOICES}")
    return replace(balancer, number=int(number))
