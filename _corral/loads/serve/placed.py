"""Apply plans to the requests of a step, so that a shadow can compare two plans.

Arrivals are unknown when plans are made. So two plans are compared on the count of the last step,
as if it repeated, with the reports that were sent with it. Route "two-choices" is treated as
"least", its version without random draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from corral.envs.dfaas_v0.features import BY_CAPACITY
from corral.envs.dfaas_v0.network import Network
from corral.envs.dfaas_v0.plans import Plan, Plans
from corral.loads.serve.guard import Decision, Numbers, newest

__all__ = ["Placing"]


class Placing:
    """Applies plans to the nodes of ``about``, the return value of ``about_rules`` of
    ``corral.loads.export``."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self.nodes = tuple(about["nodes"])
        links = np.array(about["links"], dtype=bool).reshape(len(self.nodes), len(self.nodes))
        network = Network(links, "equal", second_offer=False, link_limit=None)
        limit = about.get("link_limit")
        trace = SimpleNamespace(nodes=self.nodes)
        self._rules: Any = SimpleNamespace(
            agents=self.nodes, trace=trace, network=network, link_limit=limit
        )

    def offers(self, plans: Decision, nodes: Numbers, previous: Numbers | None) -> Decision:
        """Return node -> other node -> requests of the first offer, for the arrivals of the last
        step. Raises ValueError for malformed plans."""
        made = Plans.of(self._rules, [[Plan(**plans[name]) for name in self.nodes]])
        route = "least" if made.route == "two-choices" else made.route
        network = self._rules.network.by(route)
        arrivals = np.array([[newest(nodes[name]) for name in self.nodes]], dtype=np.int64)
        basis = made.weights
        if basis is None and route in BY_CAPACITY:
            basis = self._row(nodes, "capacity")
        if basis is None:
            basis = self._row(previous, "spare")
        forwarded = made.forwarded(arrivals, network)
        offers = network.offered(forwarded, basis, None, made.caps)[0].tolist()
        return {
            name: {other: count for other, count in zip(self.nodes, row, strict=True) if count}
            for name, row in zip(self.nodes, offers, strict=True)
        }

    def _row(self, numbers: Numbers | None, key: str) -> Any:
        row = [0 if numbers is None else numbers[name][key] for name in self.nodes]
        return np.array([row], dtype=np.int64)
