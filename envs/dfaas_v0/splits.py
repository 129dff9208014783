"""Offers of senders to their neighbors by the route, for many senders at once.

Each sender that forwards requests is a column in each environment, K columns in total. Places are
the N - 1 places of its cyclic order.
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

    All senders have neighbors. ``forwarded`` is [N, b]. For the other arguments see
    ``Network.forward`` of ``network``.
    """
    if not senders:
        return {}
    sent = forwarded[senders].reshape(-1)  # [S b]
    places, num_envs = len(network.links) - 1, forwarded.shape[1]
    busy = np.flatnonzero(sent)
    all_busy = len(busy) == len(sent)

    def at_places(values: Array) -> Array:
        """Return ``values`` [b, N] at the places of each sender: [N-1, K].

        ``values`` may also be [b, N, N], with a row for each sender.
        """
        if values.ndim == 2:
            placed = values.T[network.others[senders].T]  # [N-1, S, b]
        else:
            placed = np.stack([values[:, i, network.others[i]].T for i in senders], axis=1)
        placed = placed.reshape(places, -1)
        return np.asarray(placed if all_busy else placed.take(busy, axis=1))

    column_senders = np.repeat(senders, num_envs)
    drawn = None
    if named is not None:
        drawn = named.swapaxes(0, 1)[senders].reshape(len(sent), *named.shape[2:])
    if not all_busy:
        column_senders, drawn = column_senders[busy], None if drawn is None else drawn[busy]
    columns = Columns(network, column_senders)
    weight = at_places(basis)
    bound = None
    if caps is not None:
        bound = columns.linked * (np.int64(caps) if isinstance(caps, int) else at_places(caps))
    share = columns.split(sent if all_busy else sent[busy], weight, bound, drawn)
    if not all_busy:
        complete = np.zeros((places, len(sent)), dtype=np.int64)
        complete[:, busy] = share
        share = complete
    return dict(zip(senders, share.reshape(places, -1, num_envs).swapaxes(0, 1), strict=True))


class Columns:
    """Columns of ``senders`` [K]. Arrays are [N-1, K], or [N-1, 1] if all are equal."""

    def __init__(self, network: Any, senders: Array) -> None:
        self.network = network
        self.senders = senders
        listed = slice(1) if network.complete else senders  # a complete graph has equal columns
        self.linked = network.linked.T[:, listed]  # is a neighbor
        self.rank = network.rank.T[:, listed]  # among the neighbors
        self.degree = np.array(network.degree)[listed]

    def split(self, f: Array, weight: Array, caps: Array | None, drawn: Array | None) -> Array:
        """Split ``f`` [K] requests of each column by the route of the network: int64 [N-1, K].

        ``drawn`` [K, ...] are the columns of the argument ``named`` of ``Network.forward``.
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
        """Return the place of the only neighbor that gets an offer: [K]."""
        if drawn is None:  # route "shortest"
            near = weight if self.network.complete else np.where(self.linked, weight, -1)
            return np.asarray(near.argmax(axis=0))
        if self.network.route == "choose":
            return np.asarray((drawn - self.senders - 1) % len(self.network.links))
        if not self.network.complete:
            drawn = self.network.place_of_rank[self.senders[:, None], drawn]
        one, two = drawn.T  # places, [K] each
        column = np.arange(len(self.senders))
        return np.asarray(np.where(weight[two, column] > weight[one, column], two, one))

    def _in_proportion(self, f: Array, weight: Array) -> Array:
        """Return floor(f * w / W) for each neighbor. The first in cyclic order get one more each.

        If W is 0, return f // n for each of n neighbors, and one more for the first f mod n.
        """
        total = weight.sum(axis=0)
        share = f * weight // np.maximum(total, 1)
        none = total == 0
        if np.count_nonzero(none):
            share += self.linked * (none * (f // self.degree))
        extra = f - share.sum(axis=0)
        share += self.rank < extra
        return np.asarray(share)
