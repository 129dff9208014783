"""Rules of dfaas_v0 in which nodes follow plans, for whoever plays episodes by actions.

``by_plans`` makes rules whose actions mean nothing: every step asks a planner what nodes do. So
rules and policies that plan are replayed, shown and counted by the same loops as learned teams.
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
from corral.envs.dfaas_v0.plain_rules import PlainRule, Seen, plans_of
from corral.envs.dfaas_v0.plans import Plan, Plans, neighbour_of
from corral.envs.dfaas_v0.routes import Route
from corral.envs.dfaas_v0.rules import DfaasRules
from corral.envs.masks import masked_space
from corral.errors import ActionError

__all__ = ["PlanPolicy", "Planner", "RulePlanner", "View", "ViewPlanner", "by_plans", "seen_by"]


class Planner(Protocol):
    """Says what all nodes do in each step of B environments."""

    @property
    def route(self) -> Route | None:
        """The route of all plans; None: it follows from the plans."""
        ...

    def begun(self, seed: int, nodes: int) -> Planner:
        """Return one that draws from generators of that seed."""
        ...

    def plans(self, rules: DfaasRules, state: DfaasState) -> Plans:
        """Return the plans of the step that comes next."""
        ...


def by_plans(rules: DfaasRules, planner: Planner) -> DfaasRules:
    """Return ``rules`` with one action, which lets nodes follow the plans of ``planner``."""
    # Keys of "two-choices" serve any route that draws.
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


def seen_by(rules: DfaasRules, state: DfaasState) -> Seen:
    """Return what plain rules go by in the step that comes next."""
    arrivals, capacity, _ = rules.load.at(state, rules._row(state))
    return Seen(
        capacity=capacity,
        queue=state.queue,
        spare=rules._reported(state)[0],
        links=rules.network.links,
        queue_limit=rules.queue,
        link_limit=rules.link_limit,
        arrivals=arrivals if rules.arrivals == "known" else None,
    )


@dataclass(frozen=True)
class RulePlanner:
    """Plain rules by one route, each in a block of as many environments."""

    rules: Sequence[PlainRule]
    rngs: Sequence[np.random.Generator] = ()  # of each node, for "random"

    @property
    def route(self) -> Route:
        return self.rules[0].route

    def begun(self, seed: int, nodes: int) -> RulePlanner:
        return RulePlanner(self.rules, [generator(seed, "policy", i) for i in range(nodes)])

    def plans(self, rules: DfaasRules, state: DfaasState) -> Plans:
        return plans_of(self.rules, seen_by(rules, state), self.rngs)


# --- Policies of one's own -----------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """What a node knows before a step; counts are whole requests."""

    node: str  # its name in the trace
    capacity: int  # of this step
    queue: int
    last_counts: Sequence[int]  # its arrivals in the steps that are over, newest first
    spare: Mapping[str, int]  # neighbour -> spare as it reported it
    lost: Mapping[str, int]  # neighbour -> requests lost, the same
    capacities: Mapping[str, int]  # neighbour -> capacity of this step
    queue_limit: int
    link_limit: int | None
    step: int  # of the episode
    time: str  # of the step, as the trace's clock has it
    arrivals: int | None = None  # of this step; None: unknown


@runtime_checkable
class PlanPolicy(Protocol):
    """A policy of one's own: ``plan(view) -> Plan``. With known arrivals it may also have
    ``split(view, f)``, which returns neighbour -> requests for the ``f`` that the plan forwards."""

    def plan(self, view: View) -> Plan: ...


@dataclass(frozen=True)
class ViewPlanner:
    """Asks a ``PlanPolicy`` for each node and environment."""

    policy: PlanPolicy
    label: str = "policy"

    @property
    def route(self) -> None:
        return None

    def begun(self, seed: int, nodes: int) -> ViewPlanner:
        return self

    def plans(self, rules: DfaasRules, state: DfaasState) -> Plans:
        """Raises ActionError, with node and step, for whatever the policy raises, and for what is
        no plan of the node."""
        views = views_of(rules, state)
        found: list[list[Plan]] = []
        for nodes in views:
            found.append([])
            for view in nodes:
                try:
                    plan: Any = self.policy.plan(view)
                    if not isinstance(plan, Plan):
                        raise TypeError(f"plan() returned {plan!r:.80}, not a Plan")
                except Exception as error:
                    raise ActionError(
                        f"{view.node}, step {view.step}: {type(error).__name__}: {error}"
                    ) from error
                found[-1].append(plan)
        try:
            plans = Plans.of(rules, found)
            if rules.arrivals == "known" and hasattr(self.policy, "split"):
                return self._split(rules, plans, views)
        except ValueError as error:
            raise ActionError(str(error)) from error
        return plans

    def _split(self, rules: DfaasRules, plans: Plans, views: Sequence[Sequence[View]]) -> Plans:
        """Return plans that forward as ``split`` of the policy says. Raises ValueError."""
        arrivals = np.array([[view.arrivals for view in nodes] for nodes in views], dtype=np.int64)
        forwarded = plans.forwarded(arrivals, rules.network)
        offers = np.zeros((*forwarded.shape, len(rules.agents)), dtype=np.int64)
        for b, nodes in enumerate(views):
            for i, view in enumerate(nodes):
                parts: Any = self.policy.split(view, int(forwarded[b, i]))  # type: ignore[attr-defined]
                for name, count in parts.items():
                    if type(count) is not int or count < 0:
                        raise ValueError(f"{view.node}: split gives {name!r} {count!r} requests")
                    offers[b, i, neighbour_of(name, rules, i)] = count
        total = offers.sum(axis=-1)
        if plans.caps is not None and (offers > plans.caps).any():
            b, i, j = np.argwhere(offers > plans.caps)[0].tolist()
            raise ValueError(
                f"{views[b][i].node}: split gives {rules.trace.nodes[j]} {offers[b, i, j]} "
                "requests, more than the plan's cap"
            )
        if (total > forwarded).any():
            b, i = np.argwhere(total > forwarded)[0].tolist()
            raise ValueError(
                f"{views[b][i].node}: split gives {total[b, i]} requests to others, and the plan "
                f"forwards {forwarded[b, i]}"
            )
        keep = np.zeros_like(total)
        return Plans("given", keep, most=total, caps=plans.caps, offers=offers)


MEMORY = 8
"""Counts of past steps in a ``View``."""


def views_of(rules: DfaasRules, state: DfaasState) -> list[list[View]]:
    """Return what each node knows before the step that comes next, by environment."""
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
