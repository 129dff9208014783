"""dfaas_v0 with arrivals="unknown": nothing that a node sees depends on what comes in this step."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.data.trace import Trace
from corral.envs.core import generator
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.plans import Plan
from corral.envs.masks import MASK, OBSERVATION
from corral.loads.replay import replay
from support.dfaas_configurations import wider_configuration
from support.plan_scalar import Knows, PlainPlan, Play, World, plan_of_rule
from support.plan_worlds import random_world, settings_of, trace_of

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)
COUNTERS = ("local", "overflow", "threshold", "margin", "patient", "patient-margin")
COUNTED = ("equal", "shortest", "two", "weighted", "least", "fill", "two-choices")
NAMED = ("backlog=0.75", "backlog=1", "backlog=0", "capacity=0.9", "capacity=1.1", "share=0.35")


# --- Nothing of this step is seen ----------------------------------------------------------------


def leaks(kwargs: dict[str, Any], seed: int) -> bool:
    """Whether any node sees other arrivals of some step, before it plays that step."""
    rng = np.random.default_rng(seed)
    trace: Trace = kwargs["trace"]
    augment = "shift=1,scale=0.2,noise=0.1,mix=0.5" if rng.random() < 0.3 else None
    first = DfaasRules(**kwargs, augment=augment)
    low, high = first.rows
    t = int(rng.integers(min(high - low, first.max_cycles)))
    row = low + (kwargs["start"] + t) % (high - low)
    arrivals = trace.arrivals.copy()
    arrivals[row] = rng.integers(arrivals.max() + 1, size=arrivals.shape[1])
    if rng.random() < 0.3:
        arrivals[row] = 0
    other = dataclasses.replace(trace, arrivals=arrivals)
    second = first if augment else DfaasRules(**kwargs | {"trace": other})
    states: list[Any] = [
        rules.start_at(np.array([kwargs["start"]]), [generator(seed, "env")])
        for rules in (first, second)
    ]
    if augment:
        states[1].load[0, t, 0] = arrivals[row]
    for _ in range(t):
        mask = first.observe(states[0])
        actions = np.array(
            [[rng.choice(np.flatnonzero(mask[agent][MASK][0])) for agent in first.agents]]
        )
        states = [
            rules.step(state, actions).state
            for rules, state in zip((first, second), states, strict=True)
        ]
    seen = [rules.observe(state) for rules, state in zip((first, second), states, strict=True)]
    return any(
        seen[0][agent][key].tobytes() != seen[1][agent][key].tobytes()
        for agent in first.agents
        for key in (OBSERVATION, MASK)
    )


def fixed_configuration(seed: int) -> dict[str, Any]:
    """Scales, capacity, levels and means by time of day do not follow the trace's arrivals."""
    kwargs = wider_configuration(np.random.default_rng(seed))
    rules = DfaasRules(**kwargs)
    kwargs |= {
        "trace": rules.trace,
        "capacity": None,
        "capacity_rows": None,
        "load_scale": rules.load_scale,
        "capacity_scale": rules.capacity_scale,
    }
    if kwargs["amount"] == "quantile":
        between = [int(rules.load_scale) // 2] if kwargs["max_level"] > 1 else []
        kwargs["amount"] = sorted({0, *between, int(rules.load_scale)})
    if kwargs.get("daily_mean") is True:
        shape = rules.trace.steps_per_day, len(rules.agents)
        kwargs["daily_mean"] = np.random.default_rng(seed).random(shape) * rules.load_scale
    return kwargs


def test_no_configuration_with_unknown_arrivals_shows_those_of_this_step() -> None:
    played = 0
    for seed in range(500):
        kwargs = fixed_configuration(seed)
        if kwargs.get("arrivals") == "unknown":
            assert not leaks(kwargs, seed), seed
            played += 1
    assert played > 200


def test_known_arrivals_are_seen() -> None:
    """The test above finds what it looks for."""
    found = [leaks(fixed_configuration(seed) | {"arrivals": "known"}, seed) for seed in range(60)]
    assert sum(found) > 30


def test_reports_of_the_step_itself_are_refused() -> None:
    trace = trace_of(World([[1, 1]], [[1, 1]]))
    with pytest.raises(ValueError, match="report_delay"):
        DfaasRules(trace, arrivals="unknown", report_delay=0)
    with pytest.raises(ValueError, match="arrivals"):
        DfaasRules(trace, arrivals="perhaps")


# --- Rules in replays ----------------------------------------------------------------------------


def long_world(rng: np.random.Generator) -> World:
    """A world of two windows of 7 steps, from its first row."""
    world = random_world(rng)
    rows = [int(row) for row in rng.integers(len(world.arrivals), size=14)]
    return dataclasses.replace(
        world,
        arrivals=[world.arrivals[row] for row in rows],
        capacity=[world.capacity[row] for row in rows],
        start=0,
    )


def replayed(world: World, policies: Any, arrivals: str, **others: Any) -> dict[str, Any]:
    """Requests of each window, by pair or policy."""
    found = replay(
        trace_of(world), policies, window=7, optimum_windows=0, arrivals=arrivals,
        **settings_of(world), **others,
    )  # fmt: skip
    return found.sums


@settings(max_examples=16, deadline=None)
@given(SEEDS)
def test_counters_need_no_knowledge_of_the_arrivals(seed: int) -> None:
    """They cost the same to the request, route by route, whether arrivals are known or not."""
    rng = np.random.default_rng(seed)
    world = long_world(rng)
    pairs = [f"{amount}/{route}" for amount in COUNTERS for route in rng.choice(COUNTED, 2, False)]
    pairs += [f"{rng.choice(NAMED)}/{rng.choice(COUNTED)}", f"backlog=0.5,margin=1/{COUNTED[4]}"]
    pairs = sorted(set(pairs))
    known, unknown = (replayed(world, pairs, each) for each in ("known", "unknown"))
    for pair in pairs:
        for key, values in vars(known[pair]).items():
            np.testing.assert_array_equal(values, vars(unknown[pair])[key], err_msg=f"{pair} {key}")


@settings(max_examples=24, deadline=None)
@given(SEEDS)
def test_rules_play_the_plans_that_their_names_say(seed: int) -> None:
    """Beside the second simulator: amounts and routes as pairs name them."""
    rng = np.random.default_rng(seed)
    world = long_world(rng)
    margin = str(rng.choice(["", ",margin=1", ",margin=0.5", ",margin=1.5"]))
    named = f"{rng.choice(NAMED)}{margin}"
    routes = ("equal", "weighted", "least", "fill", "shortest", "capacity", "spare")
    pairs = [f"{amount}/{rng.choice(routes)}" for amount in (*COUNTERS, "static", named, named)]
    pairs = sorted(set(pairs))
    arrivals = str(rng.choice(["known", "unknown", "unknown"]))
    found = replayed(world, pairs, arrivals)
    for pair in pairs:
        amount, route = pair.split("/")
        costs = [cost_of(dataclasses.replace(world, start=start), amount, route, arrivals)
                 for start in (0, 7)]  # fmt: skip
        np.testing.assert_allclose(found[pair].cost, costs, rtol=1e-9, atol=1e-9, err_msg=pair)


def cost_of(world: World, amount: str, route: str, arrivals: str) -> float:
    """What a rule costs in a window of 7 steps, by the second simulator."""

    def plan(knows: Knows) -> PlainPlan:
        if amount == "static" and arrivals == "known":  # is rounded down
            came = world.arrivals[world.start + knows.t][knows.node]
            return PlainPlan(keep=0, most=came * 2 // 5, route=route)
        return plan_of_rule(amount, route, knows)

    play = Play(world)
    return sum(sum(play.step(plan).cost) for _ in range(7))


def test_a_node_without_neighbours_forwards_nothing() -> None:
    """Whatever its rule: what it cannot serve waits, and is lost at no cost of forwarding."""
    world = World(
        [[9, 1, 1]] * 14, [[4, 5, 5]] * 14, queue=5, forward_cost=0.2, neighbours=[[], [2], [1]]
    )
    pairs = [f"{amount}/equal" for amount in (*COUNTERS, "static", *NAMED, "backlog=0,margin=1")]
    for arrivals in ("known", "unknown"):
        found = replayed(world, pairs, arrivals)
        forwarded = {pair: found[pair].forwarded.tolist() for pair in pairs}
        others = {"static": [0, 0], "share=0.35": [14, 14]}  # one of one request
        if arrivals == "unknown":
            others["static"] = [14, 14]
        assert forwarded == {pair: others.get(pair[:-6], [0, 0]) for pair in pairs}


class Spy:
    """Notes all that it is shown; keeps what it can serve."""

    def __init__(self) -> None:
        self.views: list[Any] = []

    def plan(self, view: Any) -> Plan:
        self.views.append(view)
        return Plan(keep=view.capacity, route="least")


def test_a_policy_of_ones_own_sees_nothing_of_this_step() -> None:
    shown = {}
    for last in (0, 50):
        world = World([[9, 1, 3]] * 6 + [[last] * 3], [[4, 5, 5]] * 7, queue=5)
        for arrivals in ("known", "unknown"):
            spy = Spy()
            replayed(world, {"spy": spy}, arrivals, load_scale=50)
            shown[last, arrivals] = spy.views
            assert len(spy.views) == 21
            assert {view.arrivals is None for view in spy.views} == {arrivals == "unknown"}
    assert shown[0, "unknown"] == shown[50, "unknown"]
    assert shown[0, "known"] != shown[50, "known"]
    assert [view.last_counts[:2] for view in spy.views[-3:]] == [[9, 9], [1, 1], [3, 3]]


class Sending:
    """Keeps what it can serve and sends the rest by one route; of ``split`` all to the next."""

    def __init__(self, route: str, cap: int | None = None) -> None:
        self.route = route
        self.cap = cap

    def plan(self, view: Any) -> Plan:
        caps = None if self.cap is None else dict.fromkeys(view.spare, self.cap)
        return Plan(keep=view.capacity, caps=caps, route=self.route)


class Splitting(Sending):
    def split(self, view: Any, f: int) -> dict[str, int]:
        first = min(f, f if self.cap is None else self.cap)
        return {next(iter(view.spare)): first}


@pytest.mark.parametrize("arrivals", ["known", "unknown"])
@pytest.mark.parametrize("route", [*COUNTED, "capacity", "spare", "all-to-two"])
def test_a_policy_of_ones_own_may_send_by_any_route(route: str, arrivals: str) -> None:
    world = World([[9, 1, 3], [2, 8, 0], [7, 0, 1]] * 4, [[4, 5, 2]] * 12, forward_cost=0.2)
    pair = f"overflow/{route}"
    found = replayed(world, {"own": Sending(route), pair: pair}, arrivals)
    assert found["own"].forwarded.sum() > 0
    np.testing.assert_array_equal(found["own"].forwarded, found[pair].forwarded)
    np.testing.assert_array_equal(found["own"].cost, found[pair].cost)


def test_a_split_of_ones_own_keeps_to_the_caps() -> None:
    """Node 0 may send 2 to each of the others: 2 of 9 go to one, and no second offer to it."""
    world = World([[9, 0, 0]] * 7, [[0, 1, 20]] * 7)
    found = replayed(world, {"plan": Sending("equal", 2), "split": Splitting("equal", 2)}, "known")
    assert found["plan"].forwarded.tolist() == [7 * 4]
    assert found["plan"].served.tolist() == [7 * 3]
    assert found["split"].forwarded.tolist() == [7 * 2]
    assert found["split"].served.tolist() == [7 * 2]  # 1 at first, 1 by the second offer
    too_many = Splitting("equal", 2)
    too_many.split = lambda view, f: {next(iter(view.spare)): f}  # type: ignore[method-assign]
    with pytest.raises(ValueError):
        replayed(world, {"split": too_many}, "known")
