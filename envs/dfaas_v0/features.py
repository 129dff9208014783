"""Observations and decisions of nodes in dfaas_v0: features [B, N, F] and ``Deciding``.

All observations begin with features of the node itself. ``Every``, the default, has a pair of
features for each other node. ``Summary`` and ``Neighborhood`` have the same size for any number of
nodes. ``Deciding`` is the part of the rules that turns observations and actions into offers. It
serves episodes and production.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from corral.envs.core import Array
from corral.envs.dfaas_v0.amounts import Amounts, Choices, Keeps, Levels, Shares
from corral.envs.dfaas_v0.load import Augmented, DfaasState, Recorded
from corral.envs.dfaas_v0.network import Caps, Network
from corral.envs.dfaas_v0.past import late_reports
from corral.envs.dfaas_v0.plain_rules import Seen
from corral.envs.dfaas_v0.plans import Plans
from corral.envs.dfaas_v0.residual import Residual
from corral.envs.dfaas_v0.routes import GOLDEN, UNBOUNDED, Route, mixed

__all__ = [
    *("SUMMARIES", "Deciding", "Every", "Neighborhood", "OwnLoad", "Summary", "ranked"),
    "scaled_reports",
]

Load = Recorded | Augmented

SUMMARIES = ("summary", "neighborhood")
"""Observations of one size for any number of nodes; one policy plays all nodes."""

RANKS = 3
"""Number of neighbors with separate features in a summary."""

LARGEST = 4.0
"""Upper limit of the features of a summary, in multiples of the capacity."""

HALFWAY = 8
"""Number of neighbors at which the feature of this number in a neighborhood is 1/2."""

BY_CAPACITY = ("capacity", "weighted")
"""Routes that use the capacity of neighbors. The other routes use reports, or neither."""

MANY = 16
"""Number of nodes from which one sort of all nodes is faster than a search for each node."""


@dataclass(frozen=True)
class OwnLoad:
    """Features of a node's own arrivals, in addition to those of the current step."""

    now: Array | None = None  # [B, N] in place of the current arrivals; None: these are known
    more: Sequence[Array] = ()  # [B, N] each, further counts and means
    keep: Array | None = None  # [B, N] requests that the rule of a residual policy keeps


KNOWN = OwnLoad()


class Every:
    """Features of every other node.

    The node's a, c and q; then spare and lost of every other node in cyclic order; then ``more``
    features of the node's load; then the requests that its ``rule`` keeps. All are scaled.
    """

    ranks = None  # an action may name any neighbor

    def __init__(
        self,
        network: Network,
        queue: int,
        scales: tuple[float, float],
        more: int = 0,
        rule: Residual | None = None,
        clipped: bool = False,
    ) -> None:
        """``clipped``: numbers may exceed their scales; features are then at most 1."""
        self.network = network
        self.queue = max(queue, 1)
        self.scales = scales  # of arrivals, and of capacities
        self.plain = 3 + 2 * (len(network.links) - 1)
        self.size = self.plain + more + (rule is not None)
        self.rule, self.clipped = rule, clipped

    def space(self) -> spaces.Box:
        return spaces.Box(0.0, 1.0, (self.size,), np.float32)

    def of(
        self,
        load: Load,
        state: DfaasState,
        row: Array,
        spare: Array,
        lost: Array,
        own: OwnLoad = KNOWN,
    ) -> tuple[Array, Array]:
        """Return features float32 [B, N, F], and the highest legal levels [B, N].

        ``row`` [B] is the row of the next step. ``spare`` and ``lost`` [B, N] are as reported.
        """
        scaled, highest = load.observed(state, row)  # [B, N, 2]
        reported = scaled_reports(spare, lost, self.scales)
        b, n = spare.shape
        features = np.empty((b, n, self.size), dtype=np.float32)
        features[..., :2] = scaled
        features[..., 2] = state.queue / self.queue
        others = reported.take(self.network.others, axis=1)  # [B, N, N-1, 2]
        if not self.network.complete:
            others *= self.network.linked[..., None]
        features[..., 3 : self.plain] = others.reshape(b, n, 2 * (n - 1))
        if own.now is not None:
            features[..., 0] = own.now / self.scales[0]
        for place, values in enumerate(own.more, self.plain):
            features[..., place] = values / self.scales[0]
        if self.rule is not None:
            assert own.keep is not None
            features[..., -1] = self.rule.feature(own.keep)
        if self.clipped:
            np.minimum(features, 1, out=features)
        return features, highest

    def neighbour(self, rank: Array, spare: Array) -> Array:
        """Return the nodes for the neighbors 0, 1, ... in cyclic order: int64 [B, N]."""
        return self.network.neighbour(rank)


class Summary:
    """Features of all neighbors together, as multiples of the node's capacity.

    The node's a, q, spare and lost. Then, first of the neighbors' spare and then of their lost:
    mean, largest, smallest, and the values of the three neighbors with the most spare. Then
    ``more`` features of the node's load, and the requests that its ``rule`` keeps.
    """

    plain = 4 + 2 * (3 + RANKS)
    ranks = RANKS  # number of neighbors that an action can name

    def __init__(self, network: Network, more: int = 0, rule: Residual | None = None) -> None:
        self.network = network
        self.size = self.plain + more + (rule is not None)
        self.degree = np.array(network.degree)  # [N]
        self.links = network.links.T.astype(
            np.float64
        )  # [neighbor, node]; sums are exact up to 2^53

    def space(self) -> spaces.Box:
        return spaces.Box(0.0, LARGEST, (self.size,), np.float32)

    def of(
        self,
        load: Load,
        state: DfaasState,
        row: Array,
        spare: Array,
        lost: Array,
        own: OwnLoad = KNOWN,
    ) -> tuple[Array, Array]:
        """Return features float32 [B, N, F], and the highest legal levels [B, N], as ``Every``."""
        arrivals, capacity, highest = load.at(state, row)
        features = np.empty((*spare.shape, self.size))
        top = ranked(self.network, spare)  # [B, N, 3]
        flat = (top + np.arange(len(top))[:, None, None] * top.shape[1]).clip(min=0)
        now = arrivals if own.now is None else own.now
        for i, values in enumerate((now, state.queue, spare, lost)):
            features[..., i] = values
        for place, values in enumerate(own.more, self.plain):
            features[..., place] = values
        if own.keep is not None:
            features[..., -1] = own.keep
        for first, values in ((4, spare), (4 + 3 + RANKS, lost)):
            features[..., first] = values @ self.links / np.maximum(self.degree, 1)
            features[..., first + 1], features[..., first + 2] = self._ends(values)
            features[..., first + 3 : first + 3 + RANKS] = values.ravel()[flat] * (top >= 0)
        self._add(features, spare)
        features /= np.maximum(capacity, 1)[..., None]
        self._add_ratios(features)
        return np.minimum(features, LARGEST, out=features).astype(np.float32), highest

    def neighbour(self, rank: Array, spare: Array) -> Array:
        """Return the nodes for neighbors 0, 1, ... in the order of reported spare: int64 [B, N].

        See ``Network.neighbour``.
        """
        place = rank % np.clip(self.degree, 1, RANKS)
        return np.take_along_axis(ranked(self.network, spare), place[..., None], -1)[..., 0]

    def _add(self, features: Array, spare: Array) -> None:
        """Set further features [B, N, F] in requests, from the reported ``spare`` [B, N]."""

    def _add_ratios(self, features: Array) -> None:
        """Set further features [B, N, F] that are not in requests."""

    def _ends(self, values: Array) -> tuple[Array, Array]:
        """Return the largest and the smallest value of each node's neighbors, or 0.

        Both have the shape [B, N] of ``values``. They are 0 for nodes without neighbors.
        """
        n = values.shape[1]
        if n == 1 or not self.degree.any():
            return np.zeros_like(values), np.zeros_like(values)
        if not self.network.complete:
            places = values[:, self.network.nearest]  # [B, N, D]
            near = self.network.near
            largest = np.where(near, places, -1).max(axis=-1)
            smallest = np.where(near, places, np.iinfo(np.int64).max).min(axis=-1)
            return np.maximum(largest, 0), np.where(self.degree > 0, smallest, 0)
        # The extreme value of all nodes, or the second one for the node with the extreme value.
        last = sorted({0, 1, n - 2, n - 1})
        ends = np.partition(values, last, axis=1)[:, [0, 1, n - 2, n - 1], None]  # [B, 4, 1]
        largest = np.where(values == ends[:, 3], ends[:, 2], ends[:, 3])
        return largest, np.where(values == ends[:, 0], ends[:, 1], ends[:, 0])


class Neighborhood(Summary):
    """A ``Summary`` with the number of neighbors and the distribution of their spare.

    After the features of a summary follow the number n of neighbors, as n / (n + 8); the three
    quartiles of their reported spare; and the sum of this spare divided by the possible senders:
    the node itself and its neighbors with reported spare 0. Quartile p is the smallest spare such
    that at least p n / 4 of the neighbors report no more.
    """

    plain = Summary.plain + 5

    def __init__(self, network: Network, more: int = 0, rule: Residual | None = None) -> None:
        super().__init__(network, more, rule)
        # At most 1, not LARGEST: it is constant in many trainings, and their policies then play
        # other numbers of nodes with a number that they have not seen.
        self.crowd = self.degree / (self.degree + HALFWAY)  # [N]
        places = (self.degree[:, None] * np.arange(1, 4) + 3) // 4 - 1
        self.places = places.clip(min=0)  # [N, 3] of the quartiles, in order of spare

    def _add(self, features: Array, spare: Array) -> None:
        first = Summary.plain + 1
        features[..., first : first + 3] = self._quartiles(spare)
        idle = spare == 0
        if self.network.complete:
            total = spare.sum(axis=1, keepdims=True) - spare
            senders = 1 + idle.sum(axis=1, keepdims=True) - idle
        else:
            total, senders = spare @ self.links, 1 + idle @ self.links
        features[..., first + 3] = total / senders

    def _add_ratios(self, features: Array) -> None:
        features[..., Summary.plain] = self.crowd

    def _quartiles(self, spare: Array) -> Array:
        """Return the quartiles of the neighbors' spare, 0 without neighbors: [B, N, 3]."""
        b, n = spare.shape
        if not self.degree.any():
            return np.zeros((b, n, 3), dtype=spare.dtype)
        if self.network.complete:
            # The order of all nodes. A node leaves out its own value: later places move by one.
            order = np.sort(spare, axis=1)
            ahead = order[:, self.places[0], None].swapaxes(1, 2)  # [B, 1, 3]
            behind = order[:, self.places[0] + 1, None].swapaxes(1, 2)
            return np.where(ahead < spare[..., None], ahead, behind)
        padded = np.where(self.network.near, spare[:, self.network.nearest], UNBOUNDED)
        order = np.sort(padded, axis=-1)  # [B, N, D] neighbors first
        quartiles = np.take_along_axis(order, self.places[None], axis=-1)
        return np.where(self.degree[:, None] > 0, quartiles, 0)


def scaled_reports(spare: Array, lost: Array, scales: tuple[float, float]) -> Array:
    """Return reports [B, N] divided by the ``scales`` of a load: float32 [B, N, 2]."""
    scaled = np.empty((*spare.shape, 2), dtype=np.float32)
    np.divide(spare, scales[1], out=scaled[..., 0])
    # At most 1: a node never loses more than its arrivals.
    np.divide(lost, scales[0], out=scaled[..., 1])
    return scaled


def ranked(network: Network, spare: Array) -> Array:
    """Return each node's three neighbors with the largest ``spare`` [B, N]: int64 [B, N, 3].

    The largest comes first, ties in cyclic order. -1 if there are fewer neighbors.
    """
    if network.complete and spare.shape[1] >= MANY:
        return _ranked_among_all(spare)
    b, n = spare.shape
    ranking = np.full((b, n, RANKS), -1, dtype=np.int64)
    remaining = np.where(network.near, spare[:, network.nearest], -1)  # [B, N, D]
    for rank in range(min(RANKS, remaining.shape[2])):
        place = remaining.argmax(axis=-1)[..., None]  # the first of equals, in cyclic order
        valid = np.take_along_axis(remaining, place, axis=-1) >= 0
        node = np.take_along_axis(network.nearest[None], place, axis=-1)
        ranking[..., rank] = np.where(valid, node, -1)[..., 0]
        np.put_along_axis(remaining, place, -1, axis=-1)
    return ranking


def _ranked_among_all(spare: Array) -> Array:
    """Return ``ranked`` of a complete graph, without arrays [B, N, N-1].

    All nodes compare the same values, but each leaves out its own value. So the value at a rank is
    one of the ``RANKS`` + 1 largest. Several nodes may have this value. The node with the rank is
    then the next of them in the cyclic order of the comparing node.
    """
    b, n = spare.shape
    order = np.argsort(-spare, axis=1, kind="stable")  # [B, N] ties by node number
    best = np.take_along_axis(spare, order[:, : RANKS + 1], axis=1)  # [B, 4]
    equal = spare[:, None] == best[..., None]  # [B, 4, N]
    own = np.where(equal.any(axis=1), equal.argmax(axis=1), RANKS)  # [B, N] entry to leave out
    larger = (spare[:, None] > best[..., None]).sum(axis=2)  # [B, 4] number of nodes with more
    count = equal.sum(axis=2)  # [B, 4] number of nodes with equal values
    passed = equal.cumsum(axis=2)  # [B, 4, N] number of these up to the node
    rows, nodes = np.arange(b)[:, None], np.arange(n)
    ranking = np.empty((b, n, RANKS), dtype=np.int64)
    repeats = np.full((b, n), -1)  # ranks before this one with the same value
    previous = best[rows, (own == 0).astype(np.int64)]
    for rank in range(RANKS):
        at = rank + (own <= rank)  # [B, N]
        value = best[rows, at]
        repeats = np.where(value == previous, repeats + 1, 0)
        previous = value
        turn = (passed[rows, at, nodes] + repeats) % count[rows, at]
        ranking[..., rank] = order[rows, larger[rows, at] + turn]
    return ranking


def step_keys(drawn: Array, t: Array) -> Array:
    """Return a key for each sender at step ``t`` [B]: uint64 [B, N].

    ``drawn`` int32 [B, N, 2] are two numbers for each sender, from the start of the episode.
    """
    high, low = (drawn[..., k].astype(np.uint32).astype(np.uint64) for k in (0, 1))
    key = (high << np.uint64(32)) | low
    return mixed(key + t.astype(np.uint64)[:, None] * np.uint64(GOLDEN))


def drawn_pairs(key: Array, degree: Sequence[int]) -> Array:
    """Return two ranks among the neighbors of each sender, drawn from ``key`` uint64 [B, N].

    The ranks are int64 [B, N, 2].
    """
    drawn = mixed(key + np.uint64(GOLDEN))
    halves = np.stack([drawn >> np.uint64(32), drawn & np.uint64(0xFFFFFFFF)], axis=-1)
    degrees = np.maximum(degree, 1).astype(np.uint64)[:, None]
    return ((halves * degrees) >> np.uint64(32)).astype(np.int64)


# --- Decisions -----------------------------------------------------------------------------------


class Deciding(ABC):
    """Decisions of nodes: from a state to observations and masks, and from actions to offers.

    It needs only NumPy. The rules of an episode are a subclass. ``corral.loads.export`` makes
    another one for current numbers in production. ``row`` int64 [B] is the row of the load.
    """

    network: Network
    features: Every | Summary
    levels_of: Levels
    actions: Levels | Choices
    load: Any  # has ``at``, ``observed`` and ``counted``, as ``Recorded``
    queue: int
    scales: tuple[float, float]
    observation: str
    route: Route
    report_delay: int
    arrivals: Literal["known", "unknown"]
    last_counts: int  # number of past arrivals that a node observes
    daily_mean: Array | None  # [slots of a day, N] mean load that a node observes
    residual: Residual | None  # actions are offsets to this rule
    beyond: Literal["rule", "clip"] | None  # for numbers above their scales; None: there are none
    within_scales: bool = False  # whether no number of the load can exceed its scale
    link_limit: int | None
    caps: Caps  # limits for the requests that actions forward
    _masks: Array  # all possible masks, see ``Levels.masks``
    _linked: Array  # bool [N] which nodes have neighbors

    def _prepare_actions(self, requests: Array | str, max_level: int) -> None:
        """Set the features and the meaning of actions.

        ``requests`` int64 [A] are the requests of the levels; or "keep" or "share" selects the kind
        of levels.
        """
        self._prepare_features()
        known = self.arrivals == "known"
        if self.residual is not None:
            self.levels_of = self.residual
        elif self.observation in SUMMARIES:
            self.levels_of = Shares(max_level, known and not isinstance(requests, str))
        elif not isinstance(requests, str):
            self.levels_of = Amounts(requests, known)
        elif requests == "keep":
            self.levels_of = Keeps(self.scales[1] + self.queue, max_level)
        else:
            self.levels_of = Shares(max_level, known=False)
        self.actions = self.levels_of
        if self.route == "choose":
            degree, ranks = self.network.degree, self.features.ranks
            self.actions = Choices(self.levels_of.count, degree, ranks)

    def _prepare_features(self) -> None:
        unknown = self.arrivals == "unknown"
        more = self.last_counts - unknown + (self.daily_mean is not None)
        rule, clipped = self.residual, self.beyond is not None
        self.features = Every(self.network, self.queue, self.scales, more, rule, clipped)
        if self.observation in SUMMARIES:
            kind = Neighborhood if self.observation == "neighborhood" else Summary
            self.features = kind(self.network, more, rule)

    def seen(self, state: Any) -> tuple[Array, Array]:
        """Return features float32 [B, N, F] and masks int8 [B, N, A]."""
        row = self._row(state)
        own = self._own_load(state, row)
        if self.residual is not None:
            keep = self.residual.plans(self.inputs_of_rules(state)).keep
            own = OwnLoad(own.now, own.more, keep)
            features, _ = self.features.of(self.load, state, row, *self._reported(state), own)
            return features, self._legal_offsets(state, keep)
        features, highest = self.features.of(self.load, state, row, *self._reported(state), own)
        if self.levels_of.by_room:
            highest = self._highest(self._room(state, self.load.at(state, row)[1]))
        return features, self._masks.take(self.actions.row(highest), axis=0)

    def offered(self, state: Any, action: Array) -> Array:
        """Return the first offer from i to j, for legal actions [B, N]: int64 [B, N, N].

        In a step, neighbors then accept requests up to their room, and the rest may be offered once
        more.
        """
        arrivals, capacity, highest = self.load.at(state, self._row(state))
        room = self._room(state, capacity)
        level, _, named = self._chosen(state, action, self._highest(room, highest))
        forwarded = self._within(self.levels_of.forwarded(level, arrivals, room))
        return self.network.offered(forwarded, self._basis(state, capacity), named, self.caps)

    def inputs_of_rules(self, state: Any) -> Seen:
        """Return the inputs of plain rules in the next step."""
        arrivals, capacity, _ = self.load.at(state, self._row(state))
        return Seen(
            capacity=capacity,
            queue=state.queue,
            spare=self._reported(state)[0],
            links=self.network.links,
            queue_limit=self.queue,
            link_limit=self.link_limit,
            arrivals=arrivals if self.arrivals == "known" else None,
        )

    def residual_plans(self, state: Any, action: Array) -> tuple[Plans, Array]:
        """Return the plans for offsets [B, N] to the rule, and which actions are illegal."""
        assert self.residual is not None
        seen = self.inputs_of_rules(state)
        plans, room = self.residual.plans(seen), self._room(state, seen.capacity)
        unit = self.residual.units(seen.capacity + self.queue)
        legal = self.residual.legal(action, plans.keep, room, unit) & (self._linked | (action == 0))
        if self.beyond == "rule" and (exceeds := self.exceeds(state)).any():
            legal &= (action == 0) | ~exceeds[:, None]
        keep = self.residual.kept(action, plans.keep, room, unit)
        return replace(plans, keep=keep), ~legal

    def _legal_offsets(self, state: Any, keep: Array) -> Array:
        """Return masks int8 [B, N, A] of offsets, for a rule that keeps ``keep`` [B, N]."""
        assert self.residual is not None
        capacity = self.load.at(state, self._row(state))[1]
        unit = self.residual.units(capacity + self.queue)
        masks = self.residual.masks_of(keep, self._room(state, capacity), self._linked, unit)
        if self.beyond == "rule" and (exceeds := self.exceeds(state)).any():
            masks[exceeds, :, 1:] = 0
        return masks

    def exceeds(self, state: Any) -> Array:
        """Return whether nodes observe a number above its scale in the next step: bool [B].

        These numbers are the arrivals that they know, the capacity, and the reports. A summary has
        no scales.
        """
        if self.within_scales or self.observation in SUMMARIES:
            return np.zeros(len(state.queue), dtype=bool)
        arrivals, capacity, _ = self.load.at(state, self._row(state))
        spare, lost = self._reported(state)
        counts = [
            self.load.counted(state, self._row(state, back), back)
            for back in range(1, self.last_counts + 1)
        ]
        if self.arrivals == "known":
            counts.append(arrivals)
        above = (capacity > self.scales[1]) | (spare > self.scales[1]) | (lost > self.scales[0])
        for count in counts:
            above |= count > self.scales[0]
        return np.asarray(above.any(axis=1))

    @abstractmethod
    def _row(self, state: Any, back: int = 0) -> Array:
        """Return the row of the load for the next step, or for ``back`` steps before it: [B]."""

    def _expected(self, state: Any, row: Array) -> Array:
        """Return the mean load at the time of day of ``row`` [B]: [B, N]."""
        raise AssertionError("the table of means is missing")

    def _own_load(self, state: Any, row: Array) -> OwnLoad:
        """Return the features of the nodes' own load, in addition to those of the current step."""
        if not self.last_counts and self.daily_mean is None:
            return KNOWN
        counts = [
            self.load.counted(state, self._row(state, back), back)
            for back in range(1, self.last_counts + 1)
        ]
        now = counts.pop(0) if self.arrivals == "unknown" else None
        if self.daily_mean is not None:
            counts.append(self._expected(state, row))
        return OwnLoad(now, counts)

    def _room(self, state: Any, capacity: Array) -> Array:
        """Return the number of requests that nodes can serve or hold, c + Q - q: int64 [B, N]."""
        return np.asarray(capacity + self.queue - state.queue)

    def _highest(self, room: Array, by_arrivals: Array | None = None) -> Array:
        """Return the highest legal levels [B, N]: by room, or ``by_arrivals`` for other levels."""
        if not self.levels_of.by_room:
            assert by_arrivals is not None
            return by_arrivals
        return np.where(self._linked, self.levels_of.highest(room), 0)

    def _within(self, forwarded: Array) -> Array:
        """Return the number of forwarded requests, limited by the caps."""
        limit = self.network.room(self.caps)
        return forwarded if limit is None else np.minimum(forwarded, limit)

    def _chosen(
        self, state: Any, action: Array, highest: Array
    ) -> tuple[Array, Array, Array | None]:
        """Return levels, which actions are illegal, and ``named`` for ``Network.forward``."""
        level, illegal, neighbour = self.actions.read(action, highest)
        if neighbour is not None:
            return level, illegal, self.features.neighbour(neighbour, self._reported(state)[0])
        return level, illegal, self._drawn(state, self.route)

    def _drawn(self, state: Any, route: Route) -> Array | None:
        """Return the draws of the route in this step, see ``named`` in ``Network.forward``.

        Raises ValueError for a route with draws if the episode began with a route without them.
        """
        if route in ("two", "two-choices") and not state.draws.shape[1]:
            raise ValueError(
                f"route {route!r} needs random numbers from the start of the episode; begin the "
                'episode with route="two-choices"'
            )
        if route == "two" and self.route == "two-choices":
            return drawn_pairs(step_keys(state.draws[:, 0], state.t), self.network.degree)
        if route == "two":  # [B, N, 2]
            return np.asarray(state.draws[np.arange(len(state.t)), state.t % state.draws.shape[1]])
        if route == "two-choices":
            return step_keys(state.draws[:, 0], state.t)
        return None

    def _basis(self, state: Any, capacity: Array) -> Array:
        """Return the weights of neighbors for the route, int64 [B, N]."""
        return capacity if self.route in BY_CAPACITY else self._reported(state)[0]

    def _reported(self, state: Any) -> tuple[Array, Array]:
        """Return the spare and lost that nodes report before a step: int64 [B, N] each."""
        if self.report_delay == 1:
            return state.spare, state.lost
        if self.report_delay:
            return late_reports(state.reports, state.t)
        arrivals, capacity, _ = self.load.at(state, self._row(state))
        return np.maximum(capacity - state.queue - arrivals, 0), state.lost
