"""The links of dfaas_v0, and the exchange of forwarded requests between nodes.

The manual in ``corral.envs.dfaas_v0`` describes the rules. Senders take turns. Each splits its
forwarded requests over its neighbors, in cyclic order, by the route. Refused requests may be
offered once more. Senders are a loop; environments and neighbors are array axes. Within a turn
nodes are the first axis, [N, B], so that the numbers of a node are contiguous.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np

from corral.data import Trace
from corral.envs.core import Array
from corral.envs.dfaas_v0 import routes, splits
from corral.envs.dfaas_v0.routes import ROUTES, Route
from corral.errors import UnknownNameError

__all__ = ["ROUTES", "Caps", "Network", "Route", "adjacency", "no_choice"]

MAX_NODES = 1_000
"""Largest number of nodes; then the observations of one environment take 8 MB."""

IN_CACHE = 32_768
"""Largest array size, in numbers, up to which several senders are split together."""

Caps = Array | int | None
"""Most requests that a sender may offer a neighbor in a step: int64 [B, N, N] from i to j, one
number for all links, or None for no limit."""


class Network:
    """The directed links of N nodes, and the exchange of requests over them.

    ``links`` is bool [N, N]: node i can forward to node j. The other nodes of node i have places 0
    .. N-2 in its cyclic order: place p is node i + 1 + p.
    """

    def __init__(
        self, links: Array, route: Route, second_offer: bool, link_limit: int | None
    ) -> None:
        n = len(links)
        self.links = links
        self.route = route
        self.second_offer = second_offer
        self.link_limit = link_limit
        self.others = (np.arange(n)[:, None] + 1 + np.arange(n - 1)) % n  # [N, N-1] node at a place
        self.linked = np.take_along_axis(links, self.others, axis=1)  # [N, N-1] is a neighbor
        self.complete = bool(self.linked.all())
        self.degree: list[int] = self.linked.sum(axis=1).tolist()  # number of neighbors
        # Rank of a place among the neighbors; places without a neighbor rank last and get nothing.
        self.rank = np.where(self.linked, self.linked.cumsum(axis=1) - 1, n)
        self.place_of_rank = np.argsort(self.rank, axis=1, kind="stable")  # [N, N-1]
        # Only the neighbors, in cyclic order: [N, D] with D the largest degree. ``near`` is False
        # for padding.
        self.nearest, self.near = self.others, self.linked
        if not self.complete:
            places = self.place_of_rank[:, : max(self.degree)]
            self.nearest = np.take_along_axis(self.others, places, axis=1)
            self.near = np.take_along_axis(self.linked, places, axis=1)
        self._by_route: dict[Route, Network] = {}  # without this network: cycles stay in memory

    def by(self, route: Route) -> Network:
        """Return a network with the same links and another route."""
        if route == self.route:
            return self
        if route not in self._by_route:
            self._by_route[route] = other = copy.copy(self)
            other.route, other._by_route = route, {}
        return self._by_route[route]

    def room(self, caps: Caps) -> Array | None:
        """Return the requests that each node may send under ``caps``: int64 [N] or [B, N].

        Returns None if there are no limits.
        """
        if caps is None:
            return None
        if isinstance(caps, int):
            return np.array(self.degree, dtype=np.int64) * caps
        return np.asarray(np.where(self.links, caps, 0).sum(axis=-1))

    def neighbour(self, rank: Array) -> Array:
        """Return the node for the number ``rank`` of a neighbor of each sender: int64 [B, N].

        ``rank`` int [B, N] counts neighbors in cyclic order, modulo their number. The result is
        arbitrary for nodes without neighbors.
        """
        nodes = np.arange(len(self.links))
        if not self.nearest.size:
            return np.broadcast_to(nodes, rank.shape)
        return np.asarray(self.nearest[nodes, rank % np.maximum(self.degree, 1)])

    def forward(
        self,
        first: Array,
        forwarded: Array,
        spare: Array,
        basis: Array,
        named: Array | None,
        flow: Array | None,
        caps: Caps = None,
    ) -> tuple[Array, Array]:
        """Play the turns of all senders in every environment.

        Args:
            first: the first sender, int64 [B].
            forwarded: requests that each node forwards, int64 [B, N].
            spare: requests that each node can still serve, int64 [B, N].
            basis: weights of neighbors for the route, int64 [B, N]; or [B, N, N] if each sender i
                has separate weights.
            named: for "two" the two neighbors drawn per sender, int [B, N, 2], each a rank among
                its neighbors; for "choose" the chosen node, int [B, N]; for "two-choices" keys for
                draws, uint64 [B, N]; for "given" the requests from i to j, int64 [B, N, N];
                otherwise None.
            flow: is filled with the requests of i that j accepted, int64 [B, N, N], unless it is
                None.
            caps: limits of both offers together; ``forwarded`` must not exceed them.

        Returns:
            The refused requests of each sender, and the remaining spare: [B, N] each.
        """
        if not np.count_nonzero(forwarded):  # common with good policies and low load
            if flow is not None:
                flow[:] = 0
            return forwarded.copy(), spare.copy()
        refused, after = np.empty_like(forwarded), np.empty_like(spare)
        # Environments with the same first sender are played together: usually all of them.
        shared = not np.count_nonzero(first != first[0])
        for sender in [int(first[0])] if shared else np.unique(first).tolist():
            rows = slice(None) if shared else np.flatnonzero(first == sender)
            refused.T[:, rows], after.T[:, rows], accepted = self._take_turns(
                sender,
                forwarded[rows].T,
                spare[rows].T,
                basis[rows],
                None if named is None else named[rows],
                caps if caps is None or isinstance(caps, int) else caps[rows],
                keep=flow is not None,
            )
            if flow is not None:
                flow[rows] = accepted
        return refused, after

    def offered(
        self, forwarded: Array, basis: Array, named: Array | None, caps: Caps = None
    ) -> Array:
        """Return the requests that sender i offers j in the first offer: int64 [B, N, N].

        For the arguments see ``forward``.
        """
        offered = np.zeros((*forwarded.shape, len(self.links)), dtype=np.int64)
        senders = [i for i in np.flatnonzero(forwarded.any(axis=0)).tolist() if self.degree[i]]
        for i, offer in self._offers(senders, forwarded.T, basis, named, caps).items():
            offered[:, i, self.others[i]] = offer.T
        return offered

    def _take_turns(
        self,
        first: int,
        forwarded: Array,
        spare: Array,
        basis: Array,
        named: Array | None,
        caps: Caps,
        keep: bool,
    ) -> tuple[Array, Array, Array]:
        """Return (refused [N, b], remaining spare [N, b], accepted [b, N, N] if ``keep``).

        Place m of ``ring`` is the spare of node first + m. The k-th sender thus finds the other
        nodes in its cyclic order at places k + 1 .. k + N - 1. The last of these is the previous
        sender. Its spare is copied there from place k - 1 after its turn. At the end places N ..
        2N - 1 hold the latest spare of every node.
        """
        n, num_envs = forwarded.shape
        refused = np.zeros((n, num_envs), dtype=np.int64)
        accepted = np.zeros((num_envs if keep else 0, n, n), dtype=np.int64)
        ring = np.empty((2 * n, num_envs), dtype=np.int64)
        ring[: n - first], ring[n - first : n] = spare[first:], spare[:first]
        order = [*range(first, n), *range(first)]
        # Offers do not depend on earlier turns, so that several senders are split together.
        together = max(1, IN_CACHE // (n * num_envs))
        offers: dict[int, Array] = {}
        for k, sender in enumerate(order):
            if k:
                ring[k + n - 1] = ring[k - 1]
            f = forwarded[sender]
            if not np.count_nonzero(f):
                continue
            if not self.degree[sender]:
                refused[sender] = f
                continue
            if self.route == "equal":
                offer = self._equal_offer(sender, f, caps)
            else:
                if sender not in offers:
                    group = [i for i in order[k : k + together] if self.degree[i]]
                    offers = self._offers(group, forwarded, basis, named, caps)
                offer = offers[sender]
            refused[sender], taken = self._offer(sender, f, offer, ring[k + 1 : k + n], caps)
            if keep:
                accepted[:, sender, self.others[sender]] = taken.T
        ring[2 * n - 1] = ring[n - 1]
        after = np.concatenate([ring[2 * n - first :], ring[n : 2 * n - first]])
        return refused, after, accepted

    def _caps(self, sender: int, caps: Caps) -> Array | None:
        """Return the caps of each place in the cyclic order of ``sender``: [N-1, b] or [N-1, 1]."""
        if caps is None:
            return None
        linked = self.linked[sender][:, None]
        if isinstance(caps, int):
            return np.asarray(linked * np.int64(caps))
        return np.asarray(linked * caps[:, sender, self.others[sender]].T)

    def _offers(
        self,
        senders: Sequence[int],
        forwarded: Array,
        basis: Array,
        named: Array | None,
        caps: Caps,
    ) -> dict[int, Array]:
        """Return the offers of ``senders`` to each place of their cyclic order: [N-1, b] each.

        All senders have neighbors. ``forwarded`` is [N, b].
        """
        if self.route == "equal":
            return {i: self._equal_offer(i, forwarded[i], caps) for i in senders}
        if self.route == "given":
            assert named is not None
            return {i: named[:, i, self.others[i]].T for i in senders}
        return splits.offers(self, senders, forwarded, basis, named, caps)

    def _equal_offer(self, sender: int, f: Array, caps: Caps) -> Array:
        """Return f // n for each neighbor, and one more for the first f mod n: [N-1, b].

        Requests above the caps are sent round-robin.
        """
        base, extra = np.divmod(f, self.degree[sender])
        share: Array = base + (self.rank[sender][:, None] < extra)
        if not self.complete:
            share = share * self.linked[sender][:, None]
        bound = self._caps(sender, caps)
        if bound is None:
            return share
        exceeded = np.flatnonzero((share > bound).any(axis=0))
        if len(exceeded):
            bound = np.broadcast_to(bound, share.shape)[:, exceeded]
            share[:, exceeded] = routes.round_robin(f[exceeded], bound)
        return share

    def _offer(
        self, sender: int, f: Array, share: Array, room: Array, caps: Caps
    ) -> tuple[Array, Array]:
        """Offer ``share`` to nodes with ``room``, and reduce ``room`` by the accepted requests.

        Returns (refused [b], accepted [N-1, b]).
        """
        limit: Array | int | None = self.link_limit
        bound = self._caps(sender, caps)
        if bound is not None:
            limit = bound if limit is None else np.minimum(bound, limit)
        taken = np.minimum(share, room)
        if limit is not None:
            taken = np.minimum(taken, limit)
        room -= taken
        rest = f - np.add.reduce(taken, axis=0)
        if self.second_offer and np.count_nonzero(rest):
            free = room if limit is None else np.minimum(room, limit - taken)
            if not self.complete:
                free = free * self.linked[sender][:, None]
            more = np.minimum(_running_sum(free), rest)  # accepted up to this place
            rest -= more[-1]
            more[1:] -= more[:-1].copy()  # accepted at this place
            room -= more
            taken += more
        return rest, taken


def _running_sum(values: Array) -> Array:
    """Return the cumulative sum along axis 0. NumPy's cumsum is slow for many short columns."""
    if len(values) > values.shape[1]:
        return values.cumsum(axis=0)
    total = values.copy()
    for place in range(1, len(total)):
        total[place] += total[place - 1]
    return total


def no_choice(trace: Trace, links: Array) -> str | None:
    """Return the reason why all actions have the same result; None if they may differ.

    ``links`` is bool [N, N].
    """
    if not links.any():
        several = f"{len(links)} nodes, but neighbours= links none of them"
        return "one node cannot forward to any other" if len(links) == 1 else several
    if not trace.arrivals.any():
        return "no request arrives"
    if trace.capacity is not None and not trace.capacity.any():
        return "the capacity is 0 in every row, and every request is lost"
    return None


def adjacency(
    agents: Sequence[str], nodes: Sequence[str], neighbours: Mapping[str, Sequence[str]] | None
) -> Array:
    """Return links[i, j], bool [N, N]: agent i can forward to agent j. None: to all others.

    ``neighbours`` names nodes as in ``agents`` or as in the trace (``nodes``). Raises
    UnknownNameError for other names. Raises ValueError for a link of an agent to itself, for a
    value that is not a mapping to lists, and for too many nodes (``MAX_NODES``).
    """
    if (n := len(agents)) > MAX_NODES:
        raise ValueError(
            f"{n:,} nodes: the observations of one environment would take "
            f"{4 * n * (2 * n + 1) / 1e6:,.0f} MB (2 N + 1 numbers for each of N nodes); give at "
            f"most {MAX_NODES:,} nodes, for example the sum over the servers of each site"
        )
    if neighbours is None:
        return ~np.eye(len(agents), dtype=bool)
    if not isinstance(neighbours, Mapping):
        raise ValueError(f"neighbours={neighbours!r}: give agent -> list of agents, or None")
    links = np.zeros((len(agents), len(agents)), dtype=bool)
    index = {name: i for names in (nodes, agents) for i, name in enumerate(names)}
    for agent, targets in neighbours.items():
        if isinstance(targets, str):
            raise ValueError(f"neighbours[{agent!r}]={targets!r}: give a list of agents")
        for other in (agent, *targets):
            if other not in index:
                raise UnknownNameError.of("node", other, [*agents, *nodes])
        for other in targets:
            if index[other] == index[agent]:
                raise ValueError(f"neighbours[{agent!r}] contains {other!r} itself; leave it out")
            links[index[agent], index[other]] = True
    return links
