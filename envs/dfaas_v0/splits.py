"""The requests that senders of dfaas_v0 offer to their neighbours by the route, many at once.

Each sender with requests to forward is a column in each environment, K of them. Places are the
N - 1 places of its cyclic order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0 import routes

__all__ = ["offers"]


def offers(
    network: Any,
    senders: Sequence[int],
    forwarded: Array,
    basis: Array,
    named: Array | None,
    caps: Any,
) -> dict[int, Array]:
    """Return the requests that ``senders`` offer to each place: int64 [N-1, b] each.

    All of them have neighbours. ``forwarded`` is [N, b]; see ``Network.forward``, whose
    network it is, for the others.
    """
    if not senders:
        return {}
    sent = forwarded[senders].reshape(-1)  # [S b]
    places, num_envs = len(network.links) - 1, forwarded.shape[1]
    busy = np.flatnonzero(sent)
    every = len(busy) == len(sent)

    def at_places(values: Array) -> Array:
        """Return ``values`` [b, N], or [b, N, N] with rows of each sender: [N-1, K]."""
        if values.ndim == 2:
            found = values.T[network.others[senders].T]  # [N-1, S, b]
        else:
            found = np.stack([values[:, i, network.others[i]].T for i in senders], axis=1)
        found = found.reshape(places, -1)
        return np.asarray(found if every else found.take(busy, axis=1))

    who = np.repeat(senders, num_envs)
    drawn = None
    if named is not None:
        drawn = named.swapaxes(0, 1)[senders].reshape(len(sent), *named.shape[2:])
    if not every:
        who, drawn = who[busy], None if drawn is None else drawn[busy]
    columns = Columns(network, who)
    weight = at_places(basis)
    bound = None
    if caps is not None:
        bound = columns.linked * (np.int64(caps) if isinstance(caps, int) else at_places(caps))
    share = columns.split(sent if every else sent[busy], weight, bound, drawn)
    if not every:
        each = np.zeros((places, len(sent)), dtype=np.int64)
        each[:, busy] = share
        share = each
    return dict(zip(senders, share.reshape(places, -1, num_envs).swapaxes(0, 1), strict=True))


class Columns:
    """Columns of the senders ``who`` [K]. Arrays are [N-1, K], or [N-1, 1] if all columns have the
    same values."""

    def __init__(self, network: Any, who: Array) -> None:
        self.network = network
        self.who = who
        listed = slice(1) if network.complete else who  # a complete graph has equal columns
        self.linked = network.linked.T[:, listed]  # is there a neighbour
        self.rank = network.rank.T[:, listed]  # among the neighbours
        self.degree = np.array(network.degree)[listed]

    def split(self, f: Array, weight: Array, caps: Array | None, drawn: Array | None) -> Array:
        """Split ``f`` [K] requests of each column by the route of the network: int64 [N-1, K].

        ``drawn`` [K, ...] are the columns of ``named`` of ``Network.forward``.
        """
        route = self.network.route
        if not self.network.complete:
            weight = weight * self.linked
        if route in ("capacity", "spare"):
            share = self._in_proportion(f, weight)
            if caps is None:
                return share
            within = np.minimum(share, caps)
            return within + routes.round_robin((share - within).sum(axis=0), caps - within)
        if route in ("shortest", "two", "choose"):
            target = np.arange(len(weight))[:, None] == self._target(weight, drawn)
            if caps is None:
                return np.where(target, f, 0)
            return routes.fill(f, target.astype(np.int64), caps)
        if caps is None:
            caps = self.linked * np.int64(routes.UNBOUNDED)
        if route == "two-choices":
            assert drawn is not None
            return routes.best_of_two(f, weight, caps, drawn)
        function = {"weighted": routes.weighted, "least": routes.water_fill, "fill": routes.fill}
        return function[route](f, weight, caps)

    def _target(self, weight: Array, drawn: Array | None) -> Array:
        """Return the place of the only neighbour that gets an offer: [K]."""
        if drawn is None:  # route "shortest"
            near = weight if self.network.complete else np.where(self.linked, weight, -1)
            return np.asarray(near.argmax(axis=0))
        if self.network.route == "choose":
            return np.asarray((drawn - self.who - 1) % len(self.network.links))
        if not self.network.complete:
            drawn = self.network.place_of_rank[self.who[:, None], drawn]
        one, two = drawn.T  # places, [K] each
        column = np.arange(len(self.who))
        return np.asarray(np.where(weight[two, column] > weight[one, column], two, one))

    def _in_proportion(self, f: Array, weight: Array) -> Array:
        """Return floor(f * w / W) each, the rest one by one in cyclic order. If W is 0: f // n to
        each of n neighbours, and one more to the first f mod n."""
        total = weight.sum(axis=0)
        share = f * weight // np.maximum(total, 1)
        none = total == 0
        if np.count_nonzero(none):
            share += self.linked * (none * (f // self.degree))
        extra = f - share.sum(axis=0)
        share += self.rank < extra
        return np.asarray(share)
