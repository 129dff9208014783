"""The model of docs/rehearsal.md once more, as naive as possible: a second reading for tests.

One heap of events, plain objects, sums over lists at every event. Service is at a rate only.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from loads.rehearsal.naive_plans import Carrier

DONE = 1e-9
"""A request is done if less work than this remains."""

STEP, FIRST_OFFER, SECOND_OFFER, BOARD, CLIENT = range(5)
"""Kinds of events, in their order at equal times. Departures come before all of them."""


@dataclass
class Request:
    time: float  # in steps since the start of the window
    node: int
    work: float


@dataclass
class Settings:
    queue: float  # with ``by_work`` in mean sizes, as the work of requests
    places: int | None
    servers: int
    link_limit: int | None
    second_offer: bool
    latency: float
    links: list[list[bool]]
    by_work: bool = False
    period: float = 0  # steps from one board of reports to the next; 0: reports are always fresh
    age: float = 0  # steps from the writing of a board until it is visible


class Choice(Protocol):
    """Decides on request after request, as a balancer."""

    def __call__(self, system: System, i: int, now: float) -> int:
        """Return the node for a request of a client of node i: i or a neighbor."""
        ...


Planner = Callable[[int, list[int], list[int], list[int]], list[dict[str, Any]]]
"""Returns the plans of all nodes for step t, from (t, queues, reported spare, reported lost)."""


@dataclass(eq=False)  # two equal requests remain two
class Record:
    """A request and its history."""

    request: Request
    remaining: float  # work at the time ``since``; before service all of it
    outcome: str = "to come"  # then "in flight", "held", "served" or "lost"
    target: int | None = None  # node of the decision: the client's node, or the first offer
    refused: bool = False  # by the target of the first offer
    node: int | None = None  # that admitted it
    start: float | None = None  # of service
    end: float | None = None  # of service
    since: float = 0.0


@dataclass
class Node:
    servers: list[Record | None]
    held: list[Record] = field(default_factory=list)  # in the order of admission
    speed: float = 0.0  # of one server, in work per step
    busy: float = 0.0  # time of all servers in this step
    lost: int = 0  # requests of its clients, in this step

    def remaining(self, record: Record, now: float) -> float:
        if record not in self.servers:
            return record.remaining
        return record.remaining - self.speed * (now - record.since)

    def work(self, now: float) -> float:
        return sum(self.remaining(record, now) for record in self.held)

    def due(self, record: Record) -> float:
        if record.remaining < DONE:
            return record.since
        return record.since + record.remaining / self.speed if self.speed > 0 else math.inf

    def work_until(self, now: float) -> None:
        """Book the work of all servers until ``now``."""
        for record in self.servers:
            if record is not None:
                self.busy += now - record.since
                record.remaining, record.since = self.remaining(record, now), now

    def start_service(self, now: float) -> None:
        for k, server in enumerate(self.servers):
            waiting = [record for record in self.held if record.start is None]
            if server is None and waiting:
                self.servers[k] = waiting[0]
                waiting[0].start = waiting[0].since = now


@dataclass
class Outcome:
    arrivals: int = 0
    served: int = 0
    lost: int = 0
    refused: int = 0  # first offers
    forwarded: int = 0
    waiting: int = 0  # summed over the ends of steps
    records: list[Record] = field(default_factory=list)  # in the order of the requests
    step_spare: list[list[int]] = field(default_factory=list)  # as reported at the end of a step
    step_lost: list[list[int]] = field(default_factory=list)


def simulate(
    requests: Sequence[Request],
    capacity: list[list[float]],
    settings: Settings,
    choose: Choice | None = None,
    planner: Planner | None = None,
) -> Outcome:
    """Play one window: by ``choose`` request by request, or by the plans of ``planner``."""
    if (choose is None) == (planner is None):
        raise ValueError("give either choose= or planner=")
    return System(requests, capacity, settings, choose, planner).run()


class System:
    """The nodes, and the events to come. A ``Choice`` reads its public part."""

    def __init__(
        self,
        requests: Sequence[Request],
        capacity: list[list[float]],
        settings: Settings,
        choose: Choice | None,
        planner: Planner | None,
    ) -> None:
        self.capacity, self.settings = capacity, settings
        self.choose, self.planner = choose, planner
        self.now, self.t = 0.0, -1
        self.spares: list[int] = []  # as reported for the last step
        self.losses: list[int] = []
        count = len(settings.links)
        self.nodes = [Node([None] * settings.servers) for _ in range(count)]
        self.in_flight = [[0] * count for _ in range(count)]  # [i][j], not done
        self.accepted = [[0] * count for _ in range(count)]  # [i][j] forwarded, in this step
        self.travelling: list[Record] = []  # in flight
        self.carriers: list[Carrier] = []  # of the plans of this step
        self.boards: list[list[tuple[int, float]]] = []  # number and work of held requests
        self.outcome = Outcome(records=[Record(request, request.work) for request in requests])
        self.events: list[tuple[float, int, int, Record | None]] = []
        self.sequence = itertools.count()
        for t in range(len(capacity) + 1):
            self.add(t, STEP)
        if settings.period:
            self.add(0, BOARD)
        for record in self.outcome.records:
            assert 0 <= record.request.time < len(capacity)
            self.add(record.request.time, CLIENT, record)

    # --- For choices

    def held(self, j: int) -> int:
        """Return the number of requests that node j holds, as reported."""
        return self.reported(j)[0]

    def work(self, j: int) -> float:
        """Return the remaining work of the requests that node j holds, as reported."""
        return self.reported(j)[1]

    def reported(self, j: int) -> tuple[int, float]:
        if not self.settings.period:
            return self.fresh(j)
        number = math.floor((self.now - self.settings.age) / self.settings.period + 1e-9)
        if number < 0:
            return 0, 0.0
        self.write_boards(number)  # due by rounding, if not yet written
        return self.boards[number][j]

    def fresh(self, j: int) -> tuple[int, float]:
        return len(self.nodes[j].held), self.nodes[j].work(self.now)

    def write_boards(self, number: int) -> None:
        while len(self.boards) <= number:
            self.boards.append([self.fresh(j) for j in range(len(self.nodes))])

    def neighbours(self, i: int) -> list[int]:
        """Return the neighbors of node i in its cyclic order."""
        count = len(self.nodes)
        cycle = [(i + k) % count for k in range(1, count)]
        return [j for j in cycle if self.settings.links[i][j]]

    def link_is_open(self, i: int, j: int) -> bool:
        limit = self.settings.link_limit
        return limit is None or self.accepted[i][j] < limit

    # --- Events

    def add(self, time: float, kind: int, record: Record | None = None) -> None:
        heapq.heappush(self.events, (time, kind, next(self.sequence), record))

    def run(self) -> Outcome:
        while True:
            time, kind, _, record = heapq.heappop(self.events)
            self.depart(time)
            self.now = time
            if kind == STEP:
                self.end_step()
                if self.t == len(self.capacity):
                    return self.outcome
                self.begin_step()
            elif kind == BOARD:
                number = round(time / self.settings.period)
                self.write_boards(number)
                self.add((number + 1) * self.settings.period, BOARD)
            elif record is not None:
                if kind == CLIENT:
                    self.arrive(record)
                elif kind == FIRST_OFFER:
                    self.offer(record)
                else:
                    self.offer_again(record)
            self.check()

    def check(self) -> None:
        """Assert that every request that arrived is in exactly one place."""
        held = sum(len(node.held) for node in self.nodes)
        result = self.outcome
        assert result.arrivals == result.served + result.lost + held + len(self.travelling)
        on_their_way = sum(not record.refused for record in self.travelling)
        assert held + on_their_way == sum(map(sum, self.in_flight))

    def check_records(self) -> None:
        """Assert that the histories of all requests agree with the counts."""
        outcomes = Counter(record.outcome for record in self.outcome.records)
        assert self.outcome.arrivals == len(self.outcome.records) - outcomes["to come"]
        assert self.outcome.served == outcomes["served"]
        assert self.outcome.lost == outcomes["lost"]
        assert len(self.travelling) == outcomes["in flight"]

    def depart(self, until: float) -> None:
        """Finish the requests that are done at ``until``, in the order of their ends."""
        while True:
            done = [
                (node.due(record), j, k)
                for j, node in enumerate(self.nodes)
                for k, record in enumerate(node.servers)
                if record is not None
                and (node.due(record) <= until or node.remaining(record, until) < DONE)
            ]
            if not done:
                return
            due, j, k = min(done)
            self.now = min(due, until)
            node = self.nodes[j]
            record = node.servers[k]
            assert record is not None
            node.busy += self.now - record.since
            node.servers[k] = None
            node.held.remove(record)
            record.outcome, record.remaining, record.end = "served", 0.0, self.now
            self.outcome.served += 1
            self.in_flight[record.request.node][j] -= 1
            node.start_service(self.now)
            self.check()

    def end_step(self) -> None:
        """Count and report step t, which ends now. Before step 0 all reports are 0."""
        spares = []
        for node in self.nodes:
            node.work_until(self.now)
            idle = self.settings.servers - node.busy
            spares.append(math.floor(node.speed * idle + 1e-9))
            self.outcome.waiting += sum(record.start is None for record in node.held)
            node.busy = 0.0
        self.spares, self.losses = spares, [node.lost for node in self.nodes]
        self.check_records()
        if self.t >= 0:
            self.outcome.step_spare.append(self.spares)
            self.outcome.step_lost.append(self.losses)
        self.t += 1

    def begin_step(self) -> None:
        for j, node in enumerate(self.nodes):
            node.speed = self.capacity[self.t][j] / self.settings.servers
            node.lost = 0
        self.accepted = [[0] * len(self.nodes) for _ in self.nodes]
        if self.planner is not None:
            queues = [
                math.floor(min(self.load(j), self.settings.queue)) for j in range(len(self.nodes))
            ]
            plans = self.planner(self.t, queues, list(self.spares), list(self.losses))
            self.carriers = [
                Carrier(plan, self.neighbours(i), self.capacity[self.t])
                for i, plan in enumerate(plans)
            ]

    def load(self, j: int) -> float:
        """Return H of the manual: the number of held requests, or their work."""
        count, work = self.fresh(j)
        return work + DONE if self.settings.by_work else count

    def arrive(self, record: Record) -> None:
        i = record.request.node
        self.outcome.arrivals += 1
        if self.choose is not None:
            j = self.choose(self, i, self.now)
            assert j == i or self.settings.links[i][j]
            if j != i and not self.link_is_open(i, j):
                j = i
        else:
            target = self.carriers[i].next_target()
            j = i if target is None else target
        record.target = j
        if j != i:
            self.outcome.forwarded += 1
            record.outcome = "in flight"
            self.travelling.append(record)
            self.in_flight[i][j] += 1
            self.add(self.now + self.settings.latency, FIRST_OFFER, record)
        elif self.takes(j, self.settings.queue):
            self.admit(record, j)
        else:
            self.lose(record)

    def offer(self, record: Record) -> None:
        i, j = record.request.node, record.target
        assert j is not None
        self.in_flight[i][j] -= 1
        if self.link_is_open(i, j) and self.takes(j, 0):
            self.accepted[i][j] += 1
            self.admit(record, j)
            return
        self.outcome.refused += 1
        record.refused = True
        if self.settings.second_offer:
            self.add(self.now + 2 * self.settings.latency, SECOND_OFFER, record)
        else:
            self.lose(record)

    def offer_again(self, record: Record) -> None:
        i = record.request.node
        for j in self.neighbours(i):
            capped = self.carriers and self.accepted[i][j] >= self.carriers[i].cap(j)
            if self.link_is_open(i, j) and not capped and self.takes(j, 0):
                self.accepted[i][j] += 1
                self.admit(record, j)
                return
        self.lose(record)

    def takes(self, j: int, queue: float) -> bool:
        """Return whether node j takes a request; ``queue`` is 0 for a forwarded one."""
        if self.settings.places is not None:
            return len(self.nodes[j].held) < self.settings.places + self.settings.servers
        servable = self.capacity[self.t][j] * (self.t + 1 - self.now)
        if not self.settings.by_work:
            servable = math.floor(servable)
        return self.load(j) < queue + servable

    def admit(self, record: Record, j: int) -> None:
        if record in self.travelling:
            self.travelling.remove(record)
        record.outcome, record.node = "held", j
        self.in_flight[record.request.node][j] += 1
        self.nodes[j].held.append(record)
        self.nodes[j].start_service(self.now)

    def lose(self, record: Record) -> None:
        if record in self.travelling:
            self.travelling.remove(record)
        record.outcome = "lost"
        self.outcome.lost += 1
        self.nodes[record.request.node].lost += 1
