"""Routes of dfaas_v0 that split forwarded requests one by one.

Each function returns the requests sent to each neighbor: int64 [P, b], for the P other nodes of the
sender in its cyclic order and b copies. The result equals sending ``requests`` int64 [b] one after
the other, but is computed without this loop. ``caps`` int64 [P, b] limit the requests to each
neighbor; they are 0 for nodes that are not neighbors. At most the sum of all caps is sent.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from corral.envs.core import Array
from corral.errors import UnknownNameError

__all__ = [
    "PER_REQUEST",
    "ROUTES",
    "ROUTE_NAMES",
    "UNBOUNDED",
    "Route",
    "best_of_two",
    "canonical_route",
    "fill",
    "mixed",
    "round_robin",
    "shown_route",
    "water_fill",
    "weighted",
]

Route = Literal[
    "equal",
    "capacity",
    "spare",
    "shortest",
    "two",
    "choose",
    "weighted",
    "least",
    "two-choices",
    "fill",
    "given",
]
"""Route names. "given" is for policies that split requests themselves; it is not an argument."""

ROUTES: tuple[Route, ...] = (
    *("equal", "capacity", "spare", "shortest", "two", "choose"),
    *("weighted", "least", "two-choices", "fill"),
)
ALIASES: dict[str, Route] = {
    "round-robin": "equal",
    "all-to-shortest": "shortest",
    "all-to-two": "two",
}
SHOWN = {"shortest": "all-to-shortest", "two": "all-to-two"}
ROUTE_NAMES = (*ROUTES, *ALIASES)

PER_REQUEST: tuple[Route, ...] = ("equal", "weighted", "least", "two-choices", "fill")
"""Routes that a proxy can carry out request by request. It can also carry out "shortest" and
"two", which send all requests of a step to one node. For "capacity" and "spare" it must know the
number of requests in advance."""

UNBOUNDED = 2**40
"""The number that stands for no cap: more than any number of requests. A sum of a thousand of them
fits int64."""


def canonical_route(name: object) -> Route:
    """Return the route for ``name``, which may be an alias. Raises UnknownNameError."""
    for route in ROUTES:
        if name == route or (isinstance(name, str) and ALIASES.get(name) == route):
            return route
    raise UnknownNameError.of("route", str(name), ROUTE_NAMES)


def shown_route(route: Route) -> str:
    """Return the name of a route for tables. It says if all requests of a step go to one node."""
    return SHOWN.get(route, route)


def round_robin(requests: Array, caps: Array) -> Array:
    """Send each request to the next neighbor in cyclic order that is below its cap."""
    return water_fill(requests, np.zeros_like(caps), caps)


def water_fill(requests: Array, level: Array, caps: Array) -> Array:
    """Send each request to the neighbor with the largest ``level`` - sent; ties in cyclic order.

    ``level`` is int64 [P, b]; the difference may go below 0.

    Request by request the highest levels sink to one value: the lowest value that does not need
    more requests than there are. The remaining requests go one each to neighbors at this value, in
    cyclic order.
    """
    busy = np.flatnonzero(requests)
    if len(busy) < len(requests):  # often most copies send no requests
        sent = np.zeros((len(level), len(requests)), dtype=np.int64)
        if len(busy):
            values, bounds = (np.broadcast_to(part, sent.shape)[:, busy] for part in (level, caps))
            sent[:, busy] = water_fill(requests[busy], values, bounds)
        return sent
    requests = np.minimum(requests, caps.sum(axis=0))
    high = level.max(axis=0) - requests // len(level)  # needs at most all requests
    low = np.maximum(level.min(axis=0) - requests, (level - caps).min(axis=0)) - 1
    while np.any(high - low > 1):
        middle = (low + high) >> 1
        enough = np.minimum(np.maximum(level - middle, 0), caps).sum(axis=0) <= requests
        high = np.where(enough, middle, high)
        low = np.where(enough, low, middle)
    sent = np.clip(level - high, 0, caps)
    rest = requests - sent.sum(axis=0)
    at_value = (level >= high) & (sent < caps)
    return np.asarray(sent + (at_value & (at_value.cumsum(axis=0) <= rest)))


def weighted(requests: Array, capacity: Array, caps: Array) -> Array:
    """Send each request to the neighbor with the smallest (sent + 1) / ``capacity``.

    ``capacity`` is int64 [P, b]. Ties go in cyclic order. Neighbors of capacity 0 come last, in
    turn.

    This is D'Hondt's apportionment. It gives each neighbor at least its proportion, rounded down,
    so that fewer than P requests remain to be sent one by one. Neighbors with a cap below their
    proportion are filled. The other neighbors share the remaining requests in the same way.
    """
    busy = np.flatnonzero(requests)
    if len(busy) < len(requests):
        sent = np.zeros(capacity.shape, dtype=np.int64)
        if len(busy):
            bounds = np.broadcast_to(caps, sent.shape)[:, busy]
            sent[:, busy] = weighted(requests[busy], capacity[:, busy], bounds)
        return sent
    caps = np.broadcast_to(caps, capacity.shape)
    open_caps = np.where(capacity > 0, caps, 0)
    remaining = np.minimum(requests, open_caps.sum(axis=0))
    full = open_caps == 0
    while True:
        weight = np.where(full, 0, capacity)
        rest = remaining - np.where(full, open_caps, 0).sum(axis=0)
        share = rest * weight // np.maximum(weight.sum(axis=0), 1)
        reached = ~full & (share >= open_caps)
        if not reached.any():
            break
        full |= reached
    sent = np.where(full, open_caps, share)
    rest = remaining - sent.sum(axis=0)
    columns = np.arange(len(requests))
    while np.count_nonzero(rest):
        with np.errstate(divide="ignore"):
            turn = np.where(sent < open_caps, (sent + 1) / capacity, np.inf)
        best = turn.argmin(axis=0)
        more = rest > 0
        sent[best, columns] += more
        rest = rest - more
    return sent + round_robin(requests - remaining, np.where(capacity > 0, 0, caps))


def fill(requests: Array, first: Array, caps: Array) -> Array:
    """Send requests to one neighbor up to its cap, then to the next.

    The order is by ``first`` [P, b], largest first, ties in cyclic order.
    """
    order = np.argsort(-first, axis=0, kind="stable")
    room = np.take_along_axis(np.broadcast_to(caps, first.shape), order, axis=0)
    before = room.cumsum(axis=0) - room
    sent = np.empty_like(room)
    np.put_along_axis(sent, order, np.clip(requests - before, 0, room), axis=0)
    return sent


def best_of_two(requests: Array, level: Array, caps: Array, key: Array) -> Array:
    """Send each request to the better of two neighbors drawn with replacement.

    Draws are among neighbors below their cap. The better one has the larger ``level`` [P, b] -
    sent; a tie goes to the first drawn. Request m draws from a hash of ``key`` uint64 [b] and m, so
    that no generator is needed.
    """
    room = np.array(np.broadcast_to(caps, level.shape))
    remaining = np.minimum(requests, room.sum(axis=0))
    order = np.argsort(-remaining, kind="stable")  # copies that still send come first
    remaining, key = remaining[order], key[order]
    room, value = room[:, order], level[:, order]
    before, columns = room.copy(), np.arange(len(remaining))
    free, count = _free(room)
    steps = np.arange(remaining.max(initial=0))
    active = len(remaining) - np.searchsorted(remaining[::-1], steps, side="right")
    for m, k in enumerate(active.tolist()):
        if m % AT_ONCE == 0:
            number = np.arange(m + 1, m + 1 + AT_ONCE, dtype=np.uint64)[:, None]
            drawn = mixed(key[:k] + number * np.uint64(GOLDEN))
            halves = np.stack([drawn >> np.uint64(32), drawn & np.uint64(0xFFFFFFFF)])
        ranks = (halves[:, m % AT_ONCE, :k] * count[:k]) >> np.uint64(32)
        at = columns[:k]
        one, two = free[ranks.view(np.int64), at]
        best = np.where(value[two, at] > value[one, at], two, one)
        value[best, at] -= 1
        rest = room[best, at] - 1
        room[best, at] = rest
        if np.count_nonzero(rest) < k:
            full = np.flatnonzero(rest == 0)
            free[:, full], count[full] = _free(room[:, full])
    sent = np.empty_like(room)
    sent[:, order] = before - room
    return sent


AT_ONCE = 32
"""Number of requests with draws computed together."""


def _free(room: Array) -> tuple[Array, Array]:
    """Return the places with room before all others, in cyclic order [P, b], and their number.

    The number is uint64 [b].
    """
    full = room == 0
    return np.argsort(full, axis=0, kind="stable"), (~full).sum(axis=0).astype(np.uint64)


GOLDEN = 0x9E3779B97F4A7C15


def mixed(key: Array) -> Array:
    """Return a hash of ``key`` uint64: the finalizer of SplitMix64 (Steele, Lea and Flood, 2014).

    The inputs of SplitMix64 differ by multiples of ``GOLDEN``.
    """
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(key ^ (key >> np.uint64(31)))
