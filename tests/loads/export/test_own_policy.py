"""A policy of one's own decides in production as in a replay."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from corral.envs.dfaas_v0.baselines import baseline_team
from corral.envs.dfaas_v0.planned import View, ViewPlanner
from corral.envs.dfaas_v0.plans import Plan
from corral.envs.dfaas_v0.routes import ROUTE_NAMES
from corral.envs.dfaas_v0.rules import DfaasRules
from corral.errors import ActionError
from corral.loads.export.decider import Decider
from support.deciding import assert_same, carried_out, moment_of, presented
from support.loads import days
from support.messages import refused
from support.thinned import fast_every

SETTINGS: dict[str, Any] = {"queue": 15, "link_limit": 9, "report_delay": 2, "max_cycles": 20}
NAMES = ("site-0", "site-1", "site-2")


class Odd:
    """A plan that depends on all that a node knows."""

    def __init__(self, route: str, split: bool = False) -> None:
        self.route = route
        self.seen: list[View] = []
        if split:
            self.split = lambda view, f: {max(view.spare, key=view.spare.__getitem__): f // 2}

    def plan(self, view: View) -> Plan:
        self.seen.append(view)
        near = sorted(view.spare)
        recent = sum(view.last_counts) + len(view.time)
        caps = {name: (view.spare[name] + recent) % 10 for name in near[: 1 + recent % 2]}
        if recent % 3 == 0:
            return Plan(share=0.25 * (view.step % 5), most=7, route=self.route)
        order = near[::-1] if self.route == "fill" else None
        keep = view.capacity - view.queue
        if order is None:
            return Plan(keep=max(0, keep), caps=caps, route=self.route)
        return Plan(keep=max(0, keep), route=self.route, order=order)


@pytest.mark.parametrize("arrivals", ["known", "unknown"])
@pytest.mark.parametrize("route", fast_every(3, [name for name in ROUTE_NAMES if name != "choose"]))
def test_it_plays_as_in_a_replay(route: str, arrivals: str) -> None:
    settings: dict[str, Any] = {**SETTINGS, "last_counts": 8, "arrivals": arrivals}
    trained = DfaasRules(days(2), **settings)
    rules = DfaasRules(days(2), **settings, start=0, route="two-choices")
    decided, replayed = Odd(route), Odd(route)
    if route == "fill":  # an order of all nodes, or of none
        for each in (decided, replayed):
            each.plan = lambda view: Plan(keep=view.queue, route="fill", order=sorted(view.spare))  # type: ignore[method-assign]
    decider = Decider(trained, baseline_team("local", trained)).by_policy(decided)
    state, memory = rules.start([np.random.default_rng(3)]), decider.start(3)
    previous, forwarding, names = None, 0, rules.trace.nodes
    for _ in range(rules.max_cycles):
        nodes, _ = moment_of(rules, state, names)
        time = rules.trace.clock_text(int(rules._row(state)[0]))
        found = decider.decide(nodes, previous, memory, time)
        plans = ViewPlanner(replayed).plans(rules, state)
        expected = rules.carry_out(copy.deepcopy(state), plans)
        assert decided.seen == replayed.seen
        if arrivals == "unknown":
            assert_same(carried_out(rules, state, found), expected)
        else:
            forwarded = expected.info["forwarded"][0].tolist()
            assert [sum(found[name].values()) for name in names] == forwarded
        forwarding += int(expected.info["forwarded"].sum())
        state = expected.state
        previous = presented(names, spare=state.spare[0], lost=state.lost[0])
    assert forwarding > 50


def test_a_split_of_known_arrivals_is_its_own() -> None:
    rules = DfaasRules(days(2), **SETTINGS)
    policy = Odd("equal", split=True)
    policy.plan = lambda view: Plan(keep=4)  # type: ignore[method-assign]
    decider = Decider(rules, baseline_team("local", rules)).by_policy(policy)
    nodes = {name: {"arrivals": 12, "capacity": 4} for name in NAMES}
    assert decider.decide(nodes)["site-0"] == {"site-1": 4}
    assert decider.by_rule("overflow").decide(nodes)["site-0"] == {"site-1": 4, "site-2": 4}


@pytest.mark.parametrize(
    ("plan", "values"),
    [
        (lambda view: 1 // 0, ("site-0", "ZeroDivisionError")),
        (lambda view: 3, ("plan()", "3")),
        (lambda view: Plan(keep=-1), ("site-0", "ValueError", "keep=-1")),
        (lambda view: Plan(keep=1, caps={view.node: 3}), ("'site-0'", "site-1, site-2")),
        (lambda view: Plan(keep=1, caps=dict.fromkeys(view.spare, 99)), ("link_limit=9",)),
        (lambda view: Plan(keep=1, route="fill", order=["new"]), ("'new'", "site-1, site-2")),
        (lambda view: Plan(keep=view.arrivals - 1), ("site-0", "TypeError")),
    ],
)
def test_what_a_policy_raises_is_told_with_its_node(plan: Any, values: tuple[str, ...]) -> None:
    rules = DfaasRules(days(2), **{**SETTINGS, "report_delay": 3})
    policy = Odd("equal")
    policy.plan = plan
    decider = Decider(rules, baseline_team("local", rules)).by_policy(policy, "unknown")
    state = decider.start()
    nodes = {name: {"last_arrivals": [12, 3], "capacity": 4} for name in NAMES}
    with refused(ActionError, *values):
        decider.decide(nodes, None, state)
    assert state.t == 0
