"""Rules of dfaas_v0 in which nodes follow plans, for code that plays episodes by actions.

``by_plans`` makes rules with a single action that has no meaning. In every step a planner provides
the plans of all nodes. Thus rules and policies with plans are replayed, shown and counted by the
same loops as learned teams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from gymnasium import spaces

from corral.envs.core import Array, Observation, Outcome, agent_views, changed, generator
from corral.envs.dfaas_v0.load import DfaasState
from corral.envs.dfaas_v0.plain_rules import PlainRule, plans_of
from corral.envs.dfaas_v0.plans import Plan, Plans, neighbour_of
from corral.envs.dfaas_v0.routes import Route
from corral.envs.dfaas_v0.rules import DfaasRules
from corral.envs.masks import masked_space
from corral.errors import ActionError

__all__ = ["PlanPolicy", "Planner", "RulePlanner", "View", "ViewPlanner", "by_plans"]


class Planner(Protocol):
    """Provides the plans of all nodes in each step of B environments."""

    @property
    def route(self) -> Route | None:
        """The route of all plans. None: it follows from the plans."""
        ...

    def begun(self, seed: int, nodes: int) -> Planner:
        """Return a planner that draws from generators with this seed."""
        ...

    def plans(self, rules: DfaasRules, state: DfaasState) -> Plans:
        """Return the plans of the next step."""
        ...


def by_plans(rules: DfaasRules, planner: Planner) -> DfaasRules:
    """Return ``rules`` with one action; in each step nodes follow the plans of ``planner``."""
    # The random numbers of "two-choices" serve any random route.
    route = planner.route or "two-choices"
    if route != rules.route:
        rules = changed(rules, route=route, network=rules.network.by(route))
    blank = np.zeros((len(rules.agents), 1), dtype=np.float32), np.ones((len(rules.agents), 1))
    return changed(
        rules,
        step=partial(_step, rules, planner),
        observe=partial(_observe, rules.agents, blank[0], blank[1].astype(np.int8)),
        observation_space=lambda agent: masked_space(spaces.Box(0.0, 1.0, (1,), np.float32), 1),
        action_space=lambda agent: spaces.Discrete(1),
    )


def _step(
    rules: DfaasRules, planner: Planner, state: DfaasState, action: Array
) -> Outcome[DfaasState]:
    return rules.carry_out(state, planner.plans(rules, state))


def _observe(
    agents: Sequence[str], features: Array, mask: Array, state: DfaasState
) -> dict[str, Observation]:
    b = len(state.t)
    return agent_views(agents, np.repeat(features[None], b, 0), np.repeat(mask[None], b, 0))


# --- Plain rules ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class RulePlanner:
    """Plain rules with one route, each for a block of environments."""

    rules: Sequence[PlainRule]
    rngs: Sequence[np.random.Generator] = ()  # one per node, for "random"

    @property
    def route(self) -> Route:
        return self.rules[0].route

    def begun(self, seed: int, nodes: int) -> RulePlanner:
        return RulePlanner(self.rules, [generator(seed, "policy", i) for i in range(nodes)])

    def plans(self, rules: DfaasRules, state: DfaasState) -> Plans:
        return plans_of(self.rules, rules.inputs_of_rules(state), self.rngs)


# --- Custom policies -----------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """Everything that a node knows before a step. Counts are whole requests."""

    node: str  # its name in the trace
    capacity: int  # of this step
    queue: int
    last_counts: Sequence[int]  # its arrivals in past steps, newest first
    spare: Mapping[str, int]  # neighbor -> reported spare
    lost: Mapping[str, int]  # neighbor -> reported lost requests
    capacities: Mapping[str, int]  # neighbor -> capacity of this step
    queue_limit: int
    link_limit: int | None
    step: int  # of the episode, from 0
    time: str  # of the step, as text of the trace's clock
    arrivals: int | None = None  # of this step; None: unknown


@runtime_checkable
class PlanPolicy(Protocol):
    """A custom policy: ``plan(view) -> Plan``.

    With known arrivals it may also have ``split(view, f)``. It returns neighbor -> requests for the
    ``f`` requests that the plan forwards.
    """

    def plan(self, view: View) -> Plan: ...


@dataclass(frozen=True)
class ViewPlanner:
    """Calls a ``PlanPolicy`` for each node and environment."""

    policy: PlanPolicy
    label: str = "policy"

    @property
    def route(self) -> None:
        return None

    def begun(self, seed: int, nodes: int) -> ViewPlanner:
        return self

    def plans(self, rules: DfaasRules, state: DfaasState) -> Plans:
        """Return the plans of the policy for the next step.

        Raises ActionError, with node and step, for any error of the policy, and for a result that
        is not a valid plan of the node.
        """
        views = views_of(rules, state)
        plan_rows: list[list[Plan]] = []
        for nodes in views:
            plan_rows.append([])
            for view in nodes:
                try:
                    plan: Any = self.policy.plan(view)
                    if not isinstance(plan, Plan):
                        raise TypeError(f"plan() returned {plan!r:.80}, not a Plan")
                except Exception as error:
                    raise ActionError(
                        f"{view.node}, step {view.step}: {type(error).__name__}: {error}"
                    ) from error
                plan_rows[-1].append(plan)
        try:
            plans = Plans.of(rules, plan_rows)
            if rules.arrivals == "known" and hasattr(self.policy, "split"):
                return self._split(rules, plans, views)
        except ValueError as error:
            raise ActionError(str(error)) from error
        return plans

    def _split(self, rules: DfaasRules, plans: Plans, views: Sequence[Sequence[View]]) -> Plans:
        """Return plans that forward the requests from the policy's ``split``. Raises ValueError."""
        arrivals = np.array([[view.arrivals for view in nodes] for nodes in views], dtype=np.int64)
        forwarded = plans.forwarded(arrivals, rules.network)
        offers = np.zeros((*forwarded.shape, len(rules.agents)), dtype=np.int64)
        for b, nodes in enumerate(views):
            for i, view in enumerate(nodes):
                parts: Any = self.policy.split(view, int(forwarded[b, i]))  # type: ignore[attr-defined]
                for name, count in parts.items():
                    if type(count) is not int or count < 0:
                        raise ValueError(
                            f"{view.node}: split gives {name!r} {count!r} requests; give an int, 0 "
                            "or more"
                        )
                    offers[b, i, neighbour_of(name, rules, i)] = count
        total = offers.sum(axis=-1)
        if plans.caps is not None and (offers > plans.caps).any():
            b, i, j = np.argwhere(offers > plans.caps)[0].tolist()
            raise ValueError(
                f"{views[b][i].node}: split gives {rules.trace.nodes[j]} {offers[b, i, j]} "
                "requests; give at most the plan's cap"
            )
        if (total > forwarded).any():
            b, i = np.argwhere(total > forwarded)[0].tolist()
            raise ValueError(
                f"{views[b][i].node}: split gives {total[b, i]} requests in total; give at most "
                f"{forwarded[b, i]}, the number that the plan forwards"
            )
        keep = np.zeros_like(total)
        return Plans("given", keep, most=total, caps=plans.caps, offers=offers)


MEMORY = 8
"""Number of past steps with counts in a ``View``."""


def views_of(rules: DfaasRules, state: DfaasState) -> list[list[View]]:
    """Return the views of all nodes before the next step, by environment."""
    row = rules._row(state)
    arrivals, capacity, _ = rules.load.at(state, row)
    spare, lost = rules._reported(state)
    counts = np.stack(
        [rules.load.counted(state, rules._row(state, k), k) for k in range(1, MEMORY + 1)], axis=-1
    )
    names, links = rules.trace.nodes, rules.network.links
    near = [np.flatnonzero(links[i]).tolist() for i in range(len(names))]
    return [
        [
            View(
                node=names[i],
                capacity=int(capacity[b, i]),
                queue=int(state.queue[b, i]),
                last_counts=counts[b, i, : int(state.t[b])].tolist(),
                spare={names[j]: int(spare[b, j]) for j in near[i]},
                lost={names[j]: int(lost[b, j]) for j in near[i]},
                capacities={names[j]: int(capacity[b, j]) for j in near[i]},
                queue_limit=rules.queue,
                link_limit=rules.link_limit,
                step=int(state.t[b]),
                time=rules.trace.clock_text(rules.rows[0] + int(row[b])),
                arrivals=int(arrivals[b, i]) if rules.arrivals == "known" else None,
            )
            for i in range(len(names))
        ]
        for b in range(len(row))
    ]
