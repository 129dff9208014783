"""Plans of nodes as plain values, for gateways. Exports contain the source of this module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from corral.envs.core import Array
from corral.envs.dfaas_v0.network import Network
from corral.envs.dfaas_v0.plans import KEEP_ALL, Plans
from corral.envs.dfaas_v0.routes import UNBOUNDED

__all__ = ["TO_ONE_NODE", "values_of"]

TO_ONE_NODE = ("shortest", "two", "choose")
"""Routes that send all requests of a step to one node first."""


def values_of(
    plans: Plans, network: Network, names: Sequence[str], target: Array | None
) -> dict[str, dict[str, Any]]:
    """Return the plans of one environment by node name: the arguments of ``Plan``.

    ``target`` int64 [N] is the node to which a sender's requests go first, for a route in
    ``TO_ONE_NODE``. Such plans get route "fill" with an ``order`` that begins with it. A node
    without neighbors keeps all requests.
    """
    n = len(names)
    keep: list[Any] = [None if value >= KEEP_ALL else value for value in plans.keep[0].tolist()]
    nothing: list[Any] = [None] * n
    share = most = caps = order = nothing
    if plans.share is not None:
        share = [None if value != value else value for value in plans.share[0].tolist()]
    if plans.most is not None:
        most = [None if value >= UNBOUNDED else value for value in plans.most[0].tolist()]
    neighbours: list[list[int]] = []  # in cyclic order
    if plans.caps is not None or target is not None:
        linked = zip(network.others, network.linked, strict=True)
        neighbours = [others[near].tolist() for others, near in linked]
    if plans.caps is not None:
        caps = [_named_caps(plans.caps, i, near, names) for i, near in enumerate(neighbours)]
    if target is not None:
        capped = plans.caps is not None
        order = [
            _named_order(int(target[i]), near, names, capped) for i, near in enumerate(neighbours)
        ]
    route = plans.route if target is None else "fill"
    values = {}
    for i, name in enumerate(names):
        alone = not network.degree[i]
        values[name] = {
            "keep": None if alone or share[i] is not None else keep[i],
            "share": None if alone else share[i],
            "most": None if alone else most[i],
            "caps": caps[i],
            "route": route,
            "order": order[i],
        }
    return values


def _named_caps(caps: Any, i: int, near: Sequence[int], names: Sequence[str]) -> Any:
    """Return neighbor -> maximum requests; None for a node without caps."""
    if isinstance(caps, int):
        return {names[j]: caps for j in near}
    if near and caps[0, i, near].min() >= UNBOUNDED:
        return None
    return dict(zip([names[j] for j in near], caps[0, i, near].tolist(), strict=True))


def _named_order(first: int, near: Sequence[int], names: Sequence[str], capped: bool) -> list[str]:
    """Return the name of node ``first``; with caps then the other neighbors, in cyclic order from
    the sender. Empty without neighbors."""
    if not near:
        return []
    return [names[j] for j in (first, *(j for j in near if capped and j != first))]
