"""A plan: what a node of dfaas_v0 decides for a step, without knowing how many requests will come.

A proxy carries a plan out as requests come. Of the arrivals the first ``keep`` stay; with ``share``
s in its place the m-th arrival goes if it raises ceil(s m). The next ones go by the route, passing
over neighbours whose cap is reached, until ``most`` requests went or all caps are reached. The rest
stay as well: they queue if there is room, else they are lost, at no forwarding cost. So of ``a``
arrivals

    f = min(max(0, a - keep), most, sum of caps)

are forwarded. A cap bounds both offers to a neighbour together. Without caps, what neither offer
places is lost by the sender, with its cost of forwarding.
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
"""``keep`` of a node that forwards nothing."""


@dataclass(frozen=True)
class Plan:
    """What one node does with the arrivals of a step; the module says how it is carried out.

    Raises ValueError for a number that is out of range, and for an unknown route.
    """

    keep: int | None = None
    """Arrivals that stay before any is forwarded; None: all, unless ``share`` is given."""
    share: float | None = None
    """Share of the arrivals that is forwarded, 0 to 1, spread evenly over them."""
    most: int | None = None
    """Most arrivals that are forwarded; None: any number."""
    caps: Mapping[str, int] | None = None
    """Most requests by name of the neighbour; a neighbour that is absent is sent nothing. None: any
    number."""
    route: str = "equal"
    """How each further request finds its neighbour."""
    order: Sequence[str] | None = None
    """With route "fill": the neighbours in the order in which they are filled."""

    def __post_init__(self) -> None:
        if self.keep is not None and self.share is not None:
            raise ValueError(f"keep={self.keep}, share={self.share}: give one of them")
        for name in ("keep", "most"):
            _require_count(name, getattr(self, name))
        if self.share is not None and not (_is_number(self.share) and 0 <= self.share <= 1):
            raise ValueError(f"share={self.share!r}: give a number from 0 to 1")
        if self.caps is not None:
            if not isinstance(self.caps, Mapping):
                raise ValueError(f"caps={self.caps!r:.80}: give a mapping, neighbour -> requests")
            for neighbour, cap in self.caps.items():
                _require_count(f"caps[{neighbour!r}]", cap, optional=False)
        route = canonical_route(self.route)
        if route == "choose":
            raise ValueError('route="choose" is of actions: give order=[neighbour], route="fill"')
        if self.order is not None and route != "fill":
            raise ValueError(f'order= is of route="fill", and this plan has route={self.route!r}')
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
    """The plans of N nodes in B environments, as arrays; all by one route.

    ``keep`` int64 [B, N], ``share`` float64 [B, N] where it is not NaN in place of keep, ``most``
    int64 [B, N], ``caps`` as ``Network.forward`` takes them. ``weights`` [B, N, N] take the place
    of what the route weighs neighbours by: the order of route "fill". ``offers`` [B, N, N] are the
    requests from i to j where route is "given".
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
        """Return the plans of all nodes (inner sequence) in each environment (outer one).

        Raises ValueError for plans by several routes, a cap above the link limit, and names that
        are no neighbours of the node.
        """
        routes = {plan.route for nodes in plans for plan in nodes}
        if len(routes) != 1:
            raise ValueError(f"routes {sorted(routes)}: all nodes follow one route in a step")
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
            raise ValueError("order= is given for some nodes only: give it for all of them")
        return cls(
            canonical_route(route),
            keep,
            None if np.isnan(share).all() else share,
            None if (most == UNBOUNDED).all() else most,
            caps if capped else None,
            weights if ordered else None,
        )

    def forwarded(self, arrivals: Array, network: Network) -> Array:
        """Return how many of ``arrivals`` int64 [B, N] each node forwards."""
        if self.keep.shape != arrivals.shape:
            raise ValueError(f"plans of shape {self.keep.shape}, and a step of {arrivals.shape}")
        go = np.maximum(arrivals - self.keep, 0)
        if self.share is not None:
            share = np.where(np.isnan(self.share), 0, self.share)
            go = np.where(np.isnan(self.share), go, shared(share, arrivals))
        if self.most is not None:
            go = np.minimum(go, self.most)
        if not all(network.degree):  # without neighbours all stay
            go = np.where(np.array(network.degree) > 0, go, 0)
        room = network.room(self.caps)
        return np.asarray(go if room is None else np.minimum(go, room))


def shared(share: Array | float, arrivals: Array) -> Array:
    """Return ceil(share * arrivals), int64. A product that is whole but for rounding is that."""
    return np.ceil(np.asarray(share) * arrivals - 1e-9).astype(np.int64)


def _caps_of(caps: Mapping[str, int], rules: Any, i: int) -> Array:
    found = np.zeros(len(rules.agents), dtype=np.int64)
    for name, cap in caps.items():
        if rules.link_limit is not None and cap > rules.link_limit:
            raise ValueError(
                f"{rules.trace.nodes[i]}: caps[{name!r}]={cap}, but a link takes "
                f"link_limit={rules.link_limit} requests in a step"
            )
        found[neighbour_of(name, rules, i)] = cap
    return found


def _weights_of(order: Sequence[str], rules: Any, i: int) -> Array:
    """Return falling numbers for the neighbours in ``order``; those that are absent come last."""
    found = np.zeros(len(rules.agents), dtype=np.int64)
    if len(set(order)) < len(order):
        raise ValueError(f"{rules.trace.nodes[i]}: order={list(order)} names a neighbour twice")
    for place, name in enumerate(order):
        found[neighbour_of(name, rules, i)] = len(order) - place
    return found


def neighbour_of(name: str, rules: Any, i: int) -> int:
    """Return the number of the neighbour of node ``i`` that is called so. Raises ValueError."""
    for names in (rules.agents, rules.trace.nodes):
        if name in names:
            j: int = names.index(name)
            if rules.network.links[i, j]:
                return j
    nodes = rules.trace.nodes
    near = ", ".join(nodes[j] for j in np.flatnonzero(rules.network.links[i]))
    raise ValueError(f"{nodes[i]}: {name!r} is none of its neighbours: {near or 'it has none'}")
