"""The nodes, requests and links of a rehearsal; docs/rehearsal.md defines the model.

The functions of this module and of the balancers run in two ways. As plain Python, a ``World``
holds lists. Compiled by numba (``compiled``), it holds arrays. Both give the same result to the
request. Therefore the functions use single numbers only.

Times are in steps since the start of a window. A node serves in the order of admission. Inside a
step, node j has a clock of work: its servers have done v = rate[j] * (now - start of the step) work
each, if they were busy. The clock returns to 0 at every step, when the capacity changes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = [
    "BINS",
    "COUNTS",
    "FIRST_BIN",
    "RESOLUTION",
    "ROUNDING",
    "UNLIMITED",
    "World",
    "accepts",
    "as_lists",
    "backlog",
    "begin_step",
    "deliver_until",
    "end_step",
    "held",
    "is_open",
    "offer",
    "remaining",
    "room",
    "send",
    "settle",
]

NEVER = math.inf
UNLIMITED = 2**40
ROUNDING = 1e-9
"""Work below this counts as done: a departure at the end of a step belongs to the step."""

BINS, FIRST_BIN, RESOLUTION = 3_000, 1e-7, 0.01
"""Waits are counted in bins that grow by 1 %, from ``FIRST_BIN`` steps. Bin 0 is no wait."""

COUNTS = ("arrivals", "served", "lost", "refused", "forwarded", "waiting", "late", "started")
ARRIVALS, SERVED, LOST, REFUSED, FORWARDED, WAITING, LATE, STARTED = range(8)
"""Places in ``World.counts``. Refused counts offers, all others requests. Waiting sums, over the
steps, the requests that wait at the end of the step. Late counts waits above the deadline."""

TIME, WAIT, STAY = range(3)
"""Places in ``World.clock``: start of the step, sum of waits, sum of times in the system."""

FREE, BOARD, FIRST_DUE, FIRST_COUNT, AGAIN_DUE, AGAIN_COUNT, STEP = range(7)
"""Places in ``World.places``: first unused slot, number of the next board, the first entry and the
number of entries of both flights, and the number of the step."""


class World:
    """N nodes with K servers each, at the start of a window.

    A table [N N] is flat: entry i * N + j is about requests of node i at node j. Lists of integers
    and of numbers are arrays; ``as_lists`` makes them lists.

    Args:
        nodes, servers: N and K.
        queue: requests that may wait beyond the step; work, if nodes accept by work.
        waiting_places: places besides the servers. Below 0: none, and the queue counts.
        by_work: whether nodes accept by work instead of by number.
        link_limit: requests that a link takes in a step.
        second_offer: whether a refused request is offered once more.
        latency: time of a forwarded request to its target.
        period: time between two boards of reports. 0: backlogs are those of the moment.
        age: time from writing a board until it is visible.
        deadline: waits above it are late.
        peaks: whether the means ``peak`` are kept.
        parts, steps_of_part: parts of a day with separate waits, and their length.
        slots: most requests that all nodes hold at once.
        flying: most requests in flight at once.
        steps: steps of a window.
    """

    def __init__(
        self,
        nodes: int,
        servers: int,
        queue: float,
        waiting_places: float,
        by_work: bool,
        link_limit: int,
        second_offer: bool,
        latency: float,
        period: float,
        age: float,
        deadline: float,
        peaks: bool,
        parts: int,
        steps_of_part: int,
        slots: int,
        flying: int,
        steps: int,
    ) -> None:
        self.nodes = nodes
        self.servers = servers
        self.queue = queue
        self.waiting_places = waiting_places
        self.by_work = by_work
        self.link_limit = link_limit
        self.second_offer = second_offer
        self.latency = latency
        self.period = period
        self.boards = int(age / period) + 2 if period > 0.0 else 1
        self.age = age
        self.deadline = deadline
        self.peaks = peaks
        self.parts = parts
        self.steps_of_part = steps_of_part
        # Nodes [N]
        self.capacity: Any = np.zeros(nodes)  # work that a node can do in this step
        self.rate: Any = np.zeros(nodes)  # the same of one server
        self.held: Any = np.zeros(nodes, np.int64)  # requests that wait or are in service
        self.busy: Any = np.zeros(nodes, np.int64)  # servers
        self.waiting_work: Any = np.zeros(nodes)  # of the requests that wait
        self.head: Any = np.full(nodes, -1)  # first and last waiting slot; -1: none
        self.tail: Any = np.full(nodes, -1)
        self.idle: Any = np.zeros(
            nodes
        )  # work that idle servers could have done, up to ``idle_at``
        self.idle_at: Any = np.zeros(nodes)
        self.idle_since: Any = np.zeros(nodes)  # time at which the last server became idle
        self.lost: Any = np.zeros(nodes, np.int64)  # requests of its clients in this step
        # Servers [N K]
        self.end: Any = np.full(nodes * servers, np.inf)  # clock at which its request is done
        self.serving: Any = np.full(nodes * servers, -1)  # slot of the request; -1: idle
        # Slots of held requests [S]
        self.after: Any = np.arange(1, slots + 1)  # the next waiting slot, or the next unused one
        self.arrived: Any = np.zeros(slots)
        self.origin: Any = np.zeros(slots, np.int64)  # node of the client
        self.work: Any = np.zeros(slots)
        # Requests in flight, two rings [flying]: first offers, and second offers
        self.due: Any = np.zeros(flying)
        self.source: Any = np.zeros(flying, np.int64)
        self.target: Any = np.zeros(flying, np.int64)
        self.born: Any = np.zeros(flying)
        self.size: Any = np.zeros(flying)
        self.due_again: Any = np.zeros(flying)
        self.source_again: Any = np.zeros(flying, np.int64)
        self.born_again: Any = np.zeros(flying)
        self.size_again: Any = np.zeros(flying)
        # Links [N N]
        self.near: Any = np.zeros(nodes * nodes, np.int64)  # neighbors of i in cyclic order
        self.degree: Any = np.zeros(nodes, np.int64)  # [N] number of neighbors
        self.linked: Any = np.zeros(nodes * nodes, np.int64)  # 1: i can forward to j
        self.used: Any = np.zeros(nodes * nodes, np.int64)  # requests that j took in this step
        self.cap: Any = np.full(nodes * nodes, UNLIMITED)  # most of them, by the plan of i
        self.flight: Any = np.zeros(nodes * nodes, np.int64)  # requests of i sent to j, not done
        self.flight_work: Any = np.zeros(nodes * nodes)
        self.peak: Any = np.zeros(nodes * nodes)  # peak-sensitive mean time in the system
        self.peak_at: Any = np.zeros(nodes * nodes)
        # Boards [boards N]
        self.board: Any = np.zeros(self.boards * nodes, np.int64)
        self.board_work: Any = np.zeros(self.boards * nodes)
        # Sums
        self.clock: Any = np.zeros(3)
        self.places: Any = np.zeros(7, np.int64)
        self.counts: Any = np.zeros(8, np.int64)
        self.waits: Any = np.zeros(parts * BINS, np.int64)
        self.lost_by_step: Any = np.zeros(steps, np.int64)  # [steps] requests of all clients


def as_lists(world: object) -> None:
    """Turn the arrays of an object into lists, which are quicker in plain Python."""
    members = vars(world)
    for name, value in members.items():
        if isinstance(value, np.ndarray):
            members[name] = value.tolist()


def settle(world: World, j: int, now: float) -> None:
    """Finish the requests of node ``j`` that are done at ``now``, and start the next ones."""
    rate = world.rate[j]
    clock = rate * (now - world.clock[TIME]) + ROUNDING
    first, n = j * world.servers, world.nodes
    while world.busy[j]:
        server = first
        for s in range(first + 1, first + world.servers):
            if world.end[s] < world.end[server]:
                server = s
        end = world.end[server]
        if end > clock:
            break
        slot = world.serving[server]
        origin = world.origin[slot]
        moment = world.clock[TIME] + (min(end / rate, 1.0) if rate > 0.0 else 0.0)
        world.idle[j] += (world.servers - world.busy[j]) * (end - world.idle_at[j])
        world.idle_at[j] = end
        world.held[j] -= 1
        world.counts[SERVED] += 1
        stay = moment - world.arrived[slot]
        world.clock[STAY] += stay
        end_flight(world, origin * n + j, world.work[slot])
        if world.peaks:
            observe(world, origin * n + j, moment, stay)
        world.after[slot] = world.places[FREE]
        world.places[FREE] = slot
        waiting = world.head[j]
        if waiting < 0:
            world.end[server] = NEVER
            world.serving[server] = -1
            world.busy[j] -= 1
            if world.busy[j] == 0:
                world.idle_since[j] = moment
            continue
        world.head[j] = world.after[waiting]
        world.waiting_work[j] -= world.work[waiting]
        if world.head[j] < 0:
            world.tail[j] = -1
            world.waiting_work[j] = 0.0  # without the rounding errors of the sum
        start(world, server, waiting, end, moment)


def start(world: World, server: int, slot: int, clock: float, now: float) -> None:
    """Put the request in ``slot`` into service at ``clock`` of work."""
    world.end[server] = clock + world.work[slot]
    world.serving[server] = slot
    wait = max(0.0, now - world.arrived[slot])
    world.counts[STARTED] += 1
    world.clock[WAIT] += wait
    if wait > world.deadline:
        world.counts[LATE] += 1
    place = 0
    if wait > FIRST_BIN:
        place = min(BINS - 1, 1 + int(math.log(wait / FIRST_BIN) / RESOLUTION))
    part = int(world.clock[TIME]) // world.steps_of_part % world.parts
    world.waits[part * BINS + place] += 1


def end_flight(world: World, link: int, work: float) -> None:
    """Count a request on a link as no longer in flight."""
    world.flight[link] -= 1
    world.flight_work[link] -= work
    if world.flight[link] == 0:
        world.flight_work[link] = 0.0  # without the rounding errors of the sum


def observe(world: World, link: int, now: float, stay: float) -> None:
    """Update the peak-sensitive mean of a link after a response (Finagle's Peak EWMA)."""
    before = world.peak[link]
    kept = math.exp((world.peak_at[link] - now) / PEAK_DECAY)
    world.peak[link] = stay if stay > before else before * kept + stay * (1.0 - kept)
    world.peak_at[link] = now


PEAK_DECAY = 1.0
"""Decay time of the peak-sensitive mean, in steps."""


def remaining(world: World, j: int, now: float) -> float:
    """Return the work that node ``j`` still has to do."""
    rest: float = world.waiting_work[j]
    clock = world.rate[j] * (now - world.clock[TIME])
    for s in range(j * world.servers, (j + 1) * world.servers):
        if world.serving[s] >= 0:
            rest += max(0.0, world.end[s] - clock)
    return rest


def accepts(world: World, j: int, now: float, local: bool) -> bool:
    """Whether node ``j`` takes a request at ``now``: an own one, or a forwarded one."""
    settle(world, j, now)
    if world.waiting_places >= 0:
        taken: bool = world.held[j] < world.waiting_places + world.servers
        return taken
    rest = servable(world, j, now)
    if local:
        rest += world.queue
    if world.by_work:
        return remaining(world, j, now) + ROUNDING < rest
    fits: bool = world.held[j] < rest
    return fits


def servable(world: World, j: int, now: float) -> float:
    """Return what node ``j`` can still serve in this step: whole requests, or work."""
    rest: float = world.capacity[j] * (world.clock[TIME] + 1.0 - now)
    return rest if world.by_work else math.floor(rest)


def admit(world: World, i: int, j: int, now: float, arrived: float, work: float) -> None:
    """Add a request of a client of node ``i`` to node ``j``, which accepts it."""
    slot = world.places[FREE]
    world.places[FREE] = world.after[slot]
    world.arrived[slot] = arrived
    world.origin[slot] = i
    world.work[slot] = work
    world.after[slot] = -1
    world.held[j] += 1
    world.flight[i * world.nodes + j] += 1
    world.flight_work[i * world.nodes + j] += work
    if world.busy[j] == world.servers:
        if world.head[j] < 0:
            world.head[j] = slot
        else:
            world.after[world.tail[j]] = slot
        world.tail[j] = slot
        world.waiting_work[j] += work
        return
    clock = world.rate[j] * (now - world.clock[TIME])
    server = j * world.servers
    while world.serving[server] >= 0:
        server += 1
    world.idle[j] += (world.servers - world.busy[j]) * (clock - world.idle_at[j])
    world.idle_at[j] = clock
    world.busy[j] += 1
    start(world, server, slot, clock, now)


def is_open(world: World, i: int, j: int) -> bool:
    """Whether the link from ``i`` to ``j`` takes another request in this step."""
    link = i * world.nodes + j
    takes: bool = world.linked[link] == 1 and world.used[link] < world.link_limit
    return takes


def offer(world: World, i: int, j: int, now: float, arrived: float, work: float) -> None:
    """Offer a forwarded request to node ``j``; a refused one is offered again, or lost."""
    link = i * world.nodes + j
    if world.used[link] < world.link_limit and accepts(world, j, now, False):
        world.used[link] += 1
        admit(world, i, j, now, arrived, work)
        return
    world.counts[REFUSED] += 1
    if not world.second_offer:
        lose(world, i)
    elif world.latency > 0.0:
        size = len(world.due_again)
        last = (world.places[AGAIN_DUE] + world.places[AGAIN_COUNT]) % size
        world.due_again[last] = now + 2.0 * world.latency
        world.source_again[last] = i
        world.born_again[last] = arrived
        world.size_again[last] = work
        world.places[AGAIN_COUNT] += 1
    else:
        offer_again(world, i, now, arrived, work)


def offer_again(world: World, i: int, now: float, arrived: float, work: float) -> None:
    """Give a refused request to the first neighbor in cyclic order that takes it."""
    n = world.nodes
    for k in range(world.degree[i]):
        j = world.near[i * n + k]
        link = i * n + j
        bound = min(world.cap[link], world.link_limit)
        if world.used[link] < bound and accepts(world, j, now, False):
            world.used[link] += 1
            admit(world, i, j, now, arrived, work)
            return
    lose(world, i)


def lose(world: World, i: int) -> None:
    world.counts[LOST] += 1
    world.lost[i] += 1


def send(world: World, i: int, j: int, now: float, work: float) -> None:
    """Carry out a decision: the request of node ``i`` that arrives at ``now`` goes to ``j``."""
    world.counts[ARRIVALS] += 1
    if j == i:
        if accepts(world, i, now, True):
            admit(world, i, i, now, now, work)
        else:
            lose(world, i)
        return
    world.counts[FORWARDED] += 1
    if world.latency == 0.0:
        offer(world, i, j, now, now, work)
        return
    last = (world.places[FIRST_DUE] + world.places[FIRST_COUNT]) % len(world.due)
    world.due[last] = now + world.latency
    world.source[last] = i
    world.target[last] = j
    world.born[last] = now
    world.size[last] = work
    world.places[FIRST_COUNT] += 1
    world.flight[i * world.nodes + j] += 1
    world.flight_work[i * world.nodes + j] += work


def deliver_until(world: World, now: float, including: bool) -> None:
    """Deliver the requests in flight that are due before ``now``, and write the boards.

    ``including``: also those at ``now``.
    """
    places = world.places
    while True:
        due = world.due[places[FIRST_DUE]] if places[FIRST_COUNT] else NEVER
        again = world.due_again[places[AGAIN_DUE]] if places[AGAIN_COUNT] else NEVER
        board = places[BOARD] * world.period if world.period > 0.0 else NEVER
        if including and now < board <= now + ROUNDING * world.period:
            board = now  # a product that is rounded up
        event = min(due, again, board)
        if event > now or (event == now and not including):
            return
        if due == event:
            at = places[FIRST_DUE]
            places[FIRST_DUE] = (at + 1) % len(world.due)
            places[FIRST_COUNT] -= 1
            i, j = world.source[at], world.target[at]
            end_flight(world, i * world.nodes + j, world.size[at])
            offer(world, i, j, due, world.born[at], world.size[at])
        elif again == event:
            at = places[AGAIN_DUE]
            places[AGAIN_DUE] = (at + 1) % len(world.due_again)
            places[AGAIN_COUNT] -= 1
            offer_again(
                world, world.source_again[at], again, world.born_again[at], world.size_again[at]
            )
        else:
            write_board(world, board)


def write_board(world: World, now: float) -> None:
    """Write the backlogs of all nodes to the next board."""
    first = world.places[BOARD] % world.boards * world.nodes
    for j in range(world.nodes):
        settle(world, j, now)
        world.board[first + j] = world.held[j]
        world.board_work[first + j] = remaining(world, j, now)
    world.places[BOARD] += 1


def held(world: World, j: int, now: float) -> int:
    """Return the number of requests at node ``j``, as reported; without boards, of this moment."""
    number: int = 0
    if world.period > 0.0:
        number = world.board[visible(world, now) * world.nodes + j]
    else:
        settle(world, j, now)
        number = world.held[j]
    return number


def backlog(world: World, j: int, now: float) -> float:
    """Return the work at node ``j``, as reported; without boards, of this moment."""
    if world.period > 0.0:
        work: float = world.board_work[visible(world, now) * world.nodes + j]
        return work
    settle(world, j, now)
    return remaining(world, j, now)


def visible(world: World, now: float) -> int:
    """Return the place of the newest visible board; boards begin with zeros."""
    return math.floor((now - world.age) / world.period + ROUNDING) % world.boards


def room(world: World, j: int, now: float) -> float:
    """Return the number of further requests that node ``j`` can serve in this step, by reports."""
    return servable(world, j, now) - (
        backlog(world, j, now) if world.by_work else held(world, j, now)
    )


def end_step(world: World) -> None:
    """Finish the step: everything due before its end happens, and clocks return to 0.

    Deliveries at its end belong to the next step.
    """
    now = world.clock[TIME] + 1.0
    deliver_until(world, now, False)
    for j in range(world.nodes):
        settle(world, j, now)
        clock = world.rate[j]
        world.idle[j] += (world.servers - world.busy[j]) * (clock - world.idle_at[j])
        world.counts[WAITING] += world.held[j] - world.busy[j]
        world.lost_by_step[world.places[STEP]] += world.lost[j]
        for s in range(j * world.servers, (j + 1) * world.servers):
            if world.serving[s] >= 0:
                world.end[s] = max(0.0, world.end[s] - clock)
    world.clock[TIME] = now
    world.places[STEP] += 1


def begin_step(world: World, capacity: Any, first: int) -> None:
    """Begin a step, with the capacities ``capacity[first ...]`` of the nodes."""
    for j in range(world.nodes):
        world.capacity[j] = capacity[first + j]
        world.rate[j] = capacity[first + j] / world.servers
        world.idle[j] = 0.0
        world.idle_at[j] = 0.0
        world.lost[j] = 0
    for link in range(world.nodes * world.nodes):
        world.used[link] = 0
