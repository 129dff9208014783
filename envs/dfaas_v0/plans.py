"""Plans: decisions of a node of dfaas_v0 for a step, before it knows the number of requests.

A proxy carries out a plan while requests arrive. The first ``keep`` arrivals stay. With a ``share``
s instead, the m-th arrival is forwarded if it raises ceil(s m). The next arrivals are forwarded by
the route, which skips neighbors at their cap. Forwarding stops after ``most`` requests, or if all
caps are reached. The remaining arrivals stay too: they queue if there is room, and are lost
otherwise, at no forwarding cost. So of ``a`` arrivals

    f = min(max(0, a - keep), most, sum of caps)

are forwarded. A cap limits both offers to a neighbor together. Without caps, the sender loses the
requests that are refused in both offers, and pays for forwarding them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0.network import Caps, Network
from corral.envs.dfaas_v0.routes import UNBOUNDED, Route, canonical_route

__all__ = ["KEEP_ALL", "Plan", "Plans", "neighbour_of", "shared"]

KEEP_ALL = UNBOUNDED
"""Value of ``keep`` for a node that forwards nothing."""


@dataclass(frozen=True)
class Plan:
    """The plan of one node for a step, see the docstring of the module.

    Raises ValueError for a number out of range and for an unknown route.
    """

    keep: int | None = None
    """Number of arrivals that stay before any is forwarded. None: all, unless ``share`` is set."""
    share: float | None = None
    """Share of the arrivals that is forwarded, 0 to 1, evenly spread over the arrivals."""
    most: int | None = None
    """Largest number of forwarded arrivals. None: no limit."""
    caps: Mapping[str, int] | None = None
    """Name of a neighbor -> most requests to it; 0 for a missing neighbor. None: no limits."""
    route: str = "equal"
    """Route of the forwarded requests."""
    order: Sequence[str] | None = None
    """With route "fill": names of the neighbors in the order of filling."""

    def __post_init__(self) -> None:
        if self.keep is not None and self.share is not None:
            raise ValueError(f"keep={self.keep}, share={self.share}: give only one of them")
        for name in ("keep", "most"):
            _require_count(name, getattr(self, name))
        if self.share is not None and not (_is_number(self.share) and 0 <= self.share <= 1):
            raise ValueError(f"share={self.share!r}: give a number from 0 to 1")
        if self.caps is not None:
            if not isinstance(self.caps, Mapping):
                raise ValueError(f"caps={self.caps!r:.80}: give a mapping, neighbor -> requests")
            for neighbour, cap in self.caps.items():
                _require_count(f"caps[{neighbour!r}]", cap, optional=False)
        route = canonical_route(self.route)
        if route == "choose":
            raise ValueError(
                'route="choose" is only for actions; give order=[neighbor], route="fill"'
            )
        if self.order is not None and route != "fill":
            raise ValueError(f'order= needs route="fill", but this plan has route={self.route!r}')
        object.__setattr__(self, "route", route)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _require_count(name: str, value: object, optional: bool = True) -> None:
    if value is None and optional:
        return
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not 0 <= int(value) <= UNBOUNDED:  # type: ignore[call-overload]
        raise ValueError(f"{name}={value!r}: give a whole number, 0 or more")


@dataclass(frozen=True)
class Plans:
    """The plans of N nodes in B environments as arrays, with one route for all nodes.

    ``keep`` is int64 [B, N]. ``share`` is float64 [B, N] and replaces ``keep``, except for NaN.
    ``most`` is int64 [B, N]. ``caps`` are as in ``Network.forward``. ``weights`` [B, N, N] replace
    the weights of the route, as the order of route "fill". ``offers`` [B, N, N] are the requests
    from i to j for route "given".
    """

    route: Route
    keep: Array
    share: Array | None = None
    most: Array | None = None
    caps: Caps = None
    weights: Array | None = None
    offers: Array | None = None

    @classmethod
    def of(cls, rules: Any, plans: Sequence[Sequence[Plan]]) -> Plans:
        """Return the plans of all nodes (inner sequence) in each environment (outer sequence).

        Raises ValueError for plans with different routes, for a cap above the link limit, and for
        names that are not neighbors of the node.
        """
        routes = {plan.route for nodes in plans for plan in nodes}
        if len(routes) != 1:
            raise ValueError(f"routes {sorted(routes)}: give all nodes the same route in a step")
        (route,) = routes
        shape = len(plans), len(rules.agents)
        if any(len(nodes) != shape[1] for nodes in plans):
            raise ValueError(f"give one plan for each of the {shape[1]} nodes")
        keep = np.full(shape, KEEP_ALL, dtype=np.int64)
        share, most = np.full(shape, np.nan), np.full(shape, UNBOUNDED, dtype=np.int64)
        caps = np.full((*shape, shape[1]), UNBOUNDED, dtype=np.int64)
        weights = np.zeros(caps.shape, dtype=np.int64)
        capped = ordered = False
        for b, nodes in enumerate(plans):
            for i, plan in enumerate(nodes):
                if plan.keep is not None:
                    keep[b, i] = plan.keep
                if plan.share is not None:
                    share[b, i] = plan.share
                if plan.most is not None:
                    most[b, i] = plan.most
                if plan.caps is not None:
                    capped = True
                    caps[b, i] = _caps_of(plan.caps, rules, i)
                if plan.order is not None:
                    ordered = True
                    weights[b, i] = _weights_of(plan.order, rules, i)
        near = np.array(rules.network.degree) > 0
        if ordered and not all(
            plan.order is not None for nodes in plans for plan in np.array(nodes, object)[near]
        ):
            raise ValueError("order= is missing for some nodes; give it for all nodes")
        return cls(
            canonical_route(route),
            keep,
            None if np.isnan(share).all() else share,
            None if (most == UNBOUNDED).all() else most,
            caps if capped else None,
            weights if ordered else None,
        )

    def forwarded(self, arrivals: Array, network: Network) -> Array:
        """Return the number of ``arrivals`` int64 [B, N] that each node forwards."""
        if self.keep.shape != arrivals.shape:
            raise ValueError(
                f"plans have shape {self.keep.shape}, but the step needs {arrivals.shape}"
            )
        go = np.maximum(arrivals - self.keep, 0)
        if self.share is not None:
            share = np.where(np.isnan(self.share), 0, self.share)
            go = np.where(np.isnan(self.share), go, shared(share, arrivals))
        if self.most is not None:
            go = np.minimum(go, self.most)
        if not all(network.degree):  # all arrivals stay at nodes without neighbors
            go = np.where(np.array(network.degree) > 0, go, 0)
        room = network.room(self.caps)
        return np.asarray(go if room is None else np.minimum(go, room))


def shared(share: Array | float, arrivals: Array) -> Array:
    """Return ceil(share * arrivals), int64, with a tolerance for rounding errors."""
    return np.ceil(np.asarray(share) * arrivals - 1e-9).astype(np.int64)


def _caps_of(caps: Mapping[str, int], rules: Any, i: int) -> Array:
    limits = np.zeros(len(rules.agents), dtype=np.int64)
    for name, cap in caps.items():
        if rules.link_limit is not None and cap > rules.link_limit:
            raise ValueError(
                f"{rules.trace.nodes[i]}: caps[{name!r}]={cap}; give at most "
                f"link_limit={rules.link_limit}, the requests that a link takes in a step"
            )
        limits[neighbour_of(name, rules, i)] = cap
    return limits


def _weights_of(order: Sequence[str], rules: Any, i: int) -> Array:
    """Return decreasing numbers for the neighbors in ``order``; missing neighbors come last."""
    weights = np.zeros(len(rules.agents), dtype=np.int64)
    if len(set(order)) < len(order):
        raise ValueError(f"{rules.trace.nodes[i]}: order={list(order)} names a neighbor twice")
    for place, name in enumerate(order):
        weights[neighbour_of(name, rules, i)] = len(order) - place
    return weights


def neighbour_of(name: str, rules: Any, i: int) -> int:
    """Return the index of the neighbor ``name`` of node ``i``. Raises ValueError."""
    for names in (rules.agents, rules.trace.nodes):
        if name in names:
            j: int = names.index(name)
            if rules.network.links[i, j]:
                return j
    nodes = rules.trace.nodes
    near = ", ".join(nodes[j] for j in np.flatnonzero(rules.network.links[i]))
    remedy = f"give one of {near}" if near else "this node has no neighbors"
    raise ValueError(f"{nodes[i]}: {name!r} is not a neighbor; {remedy}")
