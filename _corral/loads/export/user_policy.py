"""A user's policy in production: an object with ``plan(view)`` decides for all nodes.

    run.decider.by_policy(Busy()).decide(nodes)

``view`` is the same as in a replay (``corral.envs.dfaas_v0.planned``), made from a gateway's
numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0.planned import MEMORY, PlanPolicy, View, ViewPlanner
from corral.envs.dfaas_v0.plans import Plan, Plans
from corral.errors import ActionError
from corral.loads.export.core import FIRST, NodeDecider, State, about_rule
from corral.loads.export.inputs import seconds_of

__all__ = ["PolicyDecider"]


class PolicyDecider(NodeDecider):
    """Decides by ``policy`` for the nodes of ``about``. ``arrivals``: as in ``about_rule``.

    ``decide`` raises ActionError, with the node, for exceptions of the policy and malformed plans.
    """

    def __init__(
        self, about: Mapping[str, Any], policy: PlanPolicy, arrivals: str | None = None
    ) -> None:
        # Plans may draw: "two-choices" is the route that prepares draws for all of them.
        super().__init__(about_rule(about, "local/two-choices", arrivals))
        self.policy = policy
        self.link_limit = self.about.get("link_limit")
        self.trace = SimpleNamespace(nodes=self.nodes)

    def _decided(self, moment: Any, state: State) -> tuple[dict[str, dict[str, Any]], None]:
        views = self._views(moment, state)
        made = [self._plan(view) for view in views]
        rules: Any = self  # has all attributes that plans need
        try:
            plans = Plans.of(rules, [made])
            if self.arrivals == "known" and hasattr(self.policy, "split"):
                plans = ViewPlanner(self.policy)._split(rules, plans, [views])
        except ValueError as error:
            raise ActionError(str(error)) from error
        if self.arrivals == "unknown":
            values = self._as_plans(moment, plans)
            for name, plan in zip(self.nodes, made, strict=True):
                if plan.order is not None:
                    values[name]["order"] = list(plan.order)
            return values, None
        return self._as_numbers(self._offered_by(moment, plans)[0]), None

    def _plan(self, view: View) -> Plan:
        try:
            plan: Any = self.policy.plan(view)
            if not isinstance(plan, Plan):
                raise TypeError(f"plan() returned {plan!r:.80}, not a Plan")
        except Exception as error:
            raise ActionError(f"{view.node}: {type(error).__name__}: {error}") from error
        return plan

    def _views(self, moment: Any, state: State) -> list[View]:
        """Return the view of each node."""
        arrivals, capacity, _ = self.load.at(moment, FIRST)
        spare, lost = self._reported(moment)
        names = self.nodes

        def near(i: int, values: Array) -> dict[str, int]:
            return {names[j]: int(values[0, j]) for j in np.flatnonzero(self.network.links[i])}

        return [
            View(
                node=name,
                capacity=int(capacity[0, i]),
                queue=int(moment.queue[0, i]),
                last_counts=_counts(moment.nodes[name]),
                spare=near(i, spare),
                lost=near(i, lost),
                capacities=near(i, capacity),
                queue_limit=self.queue,
                link_limit=self.link_limit,
                step=state.t,
                time="" if moment.time is None else _clock_text(moment.time),
                arrivals=int(arrivals[0, i]) if self.arrivals == "known" else None,
            )
            for i, name in enumerate(names)
        ]


def _clock_text(time: Any) -> str:
    """Return a time in the format of a trace: "2026-01-05 08:35", UTC."""
    seconds = seconds_of(time)
    unit = "s" if seconds % 60 else "m"
    return str(np.datetime64(seconds, "s").astype(f"datetime64[{unit}]")).replace("T", " ")


def _counts(node: Mapping[str, Any]) -> list[int]:
    """Return the past counts in the request for a node, newest first."""
    sent = node.get("last_arrivals", ())
    counts = sent if isinstance(sent, list | tuple) else [sent]
    return [int(count) for count in counts[:MEMORY]]
