"""Plans of dfaas_v0 beside a second simulator, which plays them request by request."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.envs.core import generator
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.plans import Plan, Plans
from support.dfaas_configurations import random_actions
from support.dfaas_scalar import ALIASES, ScalarDfaas
from support.plan_scalar import PlainPlan, Play, World
from support.plan_worlds import (
    ROUTES,
    assert_same,
    begin,
    plan_of,
    random_plan,
    random_world,
    rules_of,
    settings_of,
    trace_of,
)
from support.request_routes import Sender, split

COPIES = 2
SEEDS = st.integers(min_value=0, max_value=2**32 - 1)


# --- Every plan and every route, to the request --------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_any_plan_plays_as_request_by_request(seed: int) -> None:
    rng = np.random.default_rng(seed)
    world = random_world(rng)
    route = str(rng.choice(ROUTES))
    said = str(rng.choice([route, *(name for name, of in ALIASES.items() if of == route)]))
    arrivals = str(rng.choice(["known", "unknown"]))
    rules = rules_of(world, route=route, arrivals=arrivals, max_cycles=6)
    plays, state = begin(rules, world, rng.integers(len(world.arrivals), size=COPIES), seed)
    for _ in range(int(rng.integers(1, 7))):
        ordered = bool(rng.integers(2))
        rows = [
            [random_plan(rng, world, i, route, ordered) for i in range(world.nodes)]
            for _ in range(COPIES)
        ]
        named = [[dataclasses.replace(plan, route=said) for plan in row] for row in rows]
        outcome = rules.carry_out(state, plans_of(rules, named))
        state = outcome.state
        for copy, (play, row) in enumerate(zip(plays, rows, strict=True)):
            assert_same(rules, outcome, copy, play.step(lambda knows, row=row: row[knows.node]))


def plans_of(rules: DfaasRules, rows: list[list[PlainPlan]]) -> Plans:
    return Plans.of(rules, [[plan_of(plan) for plan in row] for row in rows])


def test_the_random_worlds_hold_all_that_meets() -> None:
    """Caps that bind, offers that are refused, requests that stay for lack of a way to go."""
    met: Counter[str] = Counter()
    for seed in range(500):
        rng = np.random.default_rng(seed)
        world = random_world(rng)
        route = str(rng.choice(ROUTES))
        draws = [[rng.integers(max(1, len(world.near(i))), size=2) for i in range(world.nodes)]] * 6
        play = Play(world, draws=draws)
        for _ in range(4):
            plans = [random_plan(rng, world, i, route) for i in range(world.nodes)]
            came = world.arrivals[(world.start + play.t) % len(world.arrivals)]
            known = [play.knows(i).spare for i in range(world.nodes)]
            counts = play.step(lambda knows, plans=plans: plans[knows.node])
            for i, plan in enumerate(plans):
                f, near = counts.forwarded[i], world.near(i)
                met["forwarded"] += f > 0
                met["refused"] += sum(counts.flows[i]) < f
                met["second"] += any(
                    a > b for a, b in zip(counts.flows[i], counts.first[i], strict=True)
                )
                met["below 0"] += route == "least" and f > sum(known[i]) > 0
                met["stayed"] += plan.keep == 0 and 0 < f < came[i]
                met["cap"] += bool(plan.caps) and any(
                    0 < counts.first[i][j] == plan.caps.get(j) for j in near
                )
    assert min(met.values()) >= 10
    assert set(met) == {"forwarded", "refused", "second", "below 0", "stayed", "cap"}


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_the_second_simulator_plays_levels_as_the_first_does(seed: int) -> None:
    """Plans that keep so many, on the routes that the plain re-statement of dfaas_v0 has."""
    rng = np.random.default_rng(seed)
    world = random_world(rng)
    route = str(rng.choice(ROUTES))
    keep = bool(rng.integers(2))
    first = ScalarDfaas(
        trace_of(world), **settings_of(world), route=route, amount="keep" if keep else "unit",
        start=world.start, max_level=1000, max_cycles=6, arrivals="unknown",
    )  # fmt: skip
    assert first.unit == 1
    first.draws = [
        [rng.integers(max(1, len(world.near(i))), size=2).tolist() for i in range(world.nodes)]
    ] * 6
    second = Play(world, draws=first.draws)
    links = world.link_limit
    first.reset()
    for _ in range(6):
        actions = random_actions(rng, first, legal=1)
        plans = []
        for i, k in enumerate(actions):
            if not keep:
                plans.append(PlainPlan(keep=0, most=k, route=route))
                continue
            caps = None if links is None else dict.fromkeys(world.near(i), links)
            room = first.c[i] + world.queue - first.queues[i]
            plans.append(PlainPlan(keep=min(k - 1, room) if k else None, caps=caps, route=route))
        first.step(actions)
        counts = second.step(lambda knows, plans=plans: plans[knows.node])
        assert counts.flows == first.flows
        assert counts.spare == first.last_spare
        for key in ("forwarded", "served_local", "served_remote", "lost", "waiting"):
            assert getattr(counts, key) == first.info[key], key


# --- First offers of many requests ---------------------------------------------------------------


def first_offers(
    plain: PlainPlan, came: int, spare: list[int], capacity: list[int], copies: int = 1
) -> Any:
    """What node 0 offers its neighbours of ``came`` requests, all of it accepted: int64 [B, n].

    The first step makes the reports.
    """
    none = [0] * len(spare)
    world = World([[0, *none], [came, *none]], [[0, *spare], [0, *capacity]])
    rules = rules_of(world, route=plain.route, max_cycles=2)
    starts = np.zeros(copies, dtype=np.int64)
    state = rules.start_at(starts, [generator(1, "env", copy) for copy in range(copies)])
    idle = [PlainPlan(route=plain.route)] * len(spare)
    for first in (PlainPlan(route=plain.route), plain):
        plans = Plans.of(rules, [[plan_of(plan) for plan in (first, *idle)]] * copies)
        state = rules.carry_out(state, plans).state
    return state.flow[:, 0, 1:]


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_least_fills_levels_as_the_loop_does(seed: int) -> None:
    """Thousands of requests, far below 0, and with caps; "weighted" and "equal" as well."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    top = int(rng.choice([1, 10, 1000]))
    spare = rng.integers(top + 1, size=n).tolist()
    came = int(rng.integers(3000))
    capacity = (came * (1 + rng.integers(5, size=n)) + 1).tolist()
    cap = int(rng.choice([0, 5, 2 * came // n + 1]))
    caps = {1 + p: int(rng.integers(cap + 1)) for p in range(n)} if rng.random() < 0.6 else None
    for route in ("least", "weighted", "equal"):
        found = first_offers(PlainPlan(keep=0, caps=caps, route=route), came, spare, capacity)
        bounds = [None] * n if caps is None else [caps[1 + p] for p in range(n)]
        loop = Sender(route, spare, capacity, bounds)
        for _ in range(came):
            loop.send()
        assert found[0].tolist() == loop.sent
        assert split(Sender(route, spare, capacity, bounds), came) == loop.sent


# --- Two choices for each request, by distribution -----------------------------------------------


@pytest.mark.parametrize(
    ("came", "spare", "caps"),
    [
        (1, [3, 1, 2], None),
        (4, [2, 2, 2], None),  # ties go to the first drawn
        (9, [6, 0, 3], None),  # below 0
        (7, [5, 4, 0, 1], [2, 9, 1, 9]),  # some caps are reached on the way
        (6, [4, 0], [1, 3]),  # all are
        (12, [9, 0, 0, 0, 2], [12, 1, 1, 1, 1]),
    ],
)
def test_two_choices_are_drawn_for_each_request(
    came: int, spare: list[int], caps: list[int] | None
) -> None:
    copies, n = 3000, len(spare)
    named = None if caps is None else {1 + p: cap for p, cap in enumerate(caps)}
    plain = PlainPlan(keep=0, caps=named, route="two-choices")
    found = first_offers(plain, came, spare, [came] * n, copies)
    rng = np.random.default_rng(0)
    bounds = [None] * n if caps is None else caps
    loops = []
    for _ in range(copies):
        drawn = iter(rng.random(2 * came).tolist())
        loop = Sender(
            "two-choices", spare, [came] * n, bounds,
            draw=lambda k, drawn=drawn: (int(next(drawn) * k), int(next(drawn) * k)),
        )  # fmt: skip
        for _ in range(came):
            loop.send()
        loops.append(loop.sent)
    expected = np.array(loops)
    assert set(found.sum(axis=1)) == set(expected.sum(axis=1))
    error = np.sqrt((found.var(axis=0) + expected.var(axis=0)) / copies)
    assert (abs(found.mean(axis=0) - expected.mean(axis=0)) <= 4 * error).all()
    assert_same_distribution(list(map(tuple, found.tolist())), list(map(tuple, expected.tolist())))


def assert_same_distribution(ours: list[Any], theirs: list[Any]) -> None:
    """Chi-square of two samples of one size; rare outcomes count as one."""
    both = Counter(ours) + Counter(theirs)
    common = {outcome for outcome, count in both.items() if count >= 20}

    def binned(sample: list[Any]) -> Counter[Any]:
        return Counter(each if each in common else "rare" for each in sample)

    one, other = binned(ours), binned(theirs)
    kinds = set(one) | set(other)
    assert len(kinds) > 1 or common == set(both)
    found = sum((one[kind] - other[kind]) ** 2 / (one[kind] + other[kind]) for kind in kinds)
    freedom = len(kinds) - 1
    assert found <= freedom + 4.5 * math.sqrt(2 * freedom) + 1e-9


def test_two_choices_of_copies_steps_and_senders_are_drawn_apart() -> None:
    """One request each: where it went tells nothing of where another went."""
    copies, steps = 1500, 3
    world = World([[1, 1, 0, 0, 0]] * steps, [[0, 0, 9, 9, 9]] * steps,
                  neighbours=[[2, 3, 4], [2, 3, 4], [], [], []])  # fmt: skip
    rules = rules_of(world, route="two-choices", max_cycles=steps)
    starts = np.zeros(copies, dtype=np.int64)
    state = rules.start_at(starts, [generator(1, "env", copy) for copy in range(copies)])
    went = []
    for _ in range(steps):
        plans = plans_of(rules, [[PlainPlan(keep=0, route="two-choices")] * 5] * copies)
        state = rules.carry_out(state, plans).state
        went += [state.flow[:, i, 2:].argmax(axis=1) for i in range(2)]
    # In the first step nothing is reported: the first drawn gets all. Then two nodes that served
    # a request less are tied, or all are.
    for a in range(len(went)):
        for b in range(a):
            table = np.zeros((3, 3))
            np.add.at(table, (went[a], went[b]), 1)
            if a < 2:
                expected = copies / 9
                assert ((table - expected) ** 2 / expected).sum() < 8 + 4.5 * 4
            assert (table.sum(axis=1) > copies / 6).all()
            assert (np.diag(table) < copies / 4).all()


# --- What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "numbers",
    [
        {"keep": -1},
        {"keep": 1.5},
        {"keep": True},
        {"keep": float("nan")},
        {"most": -1},
        {"most": 0.5},
        {"share": -0.01},
        {"share": 1.01},
        {"share": float("nan")},
        {"share": float("inf")},
        {"keep": 1, "share": 0.5},
        {"caps": {"node_1": -1}},
        {"caps": {"node_1": 0.5}},
        {"route": "best"},
        {"route": "equal", "order": ("node_1",)},
    ],
    ids=str,
)
def test_a_plan_out_of_range_is_refused(numbers: dict[str, Any]) -> None:
    rules = rules_of(World([[1, 1, 1]], [[1, 1, 1]]))
    with pytest.raises(ValueError):
        Plans.of(rules, [[Plan(**numbers), Plan(), Plan()]])


@pytest.mark.parametrize(
    "plan",
    [
        {"caps": {"node_0": 1}},  # itself
        {"caps": {"node_2": 1}},  # no neighbour of node 0
        {"caps": {"node_9": 1}},
        {"caps": {"site-2": 1}},
        {"caps": {"node_1": 4}},  # above the link limit
        {"route": "fill", "order": ("node_0", "node_1")},
        {"route": "fill", "order": ("node_2",)},
        {"route": "fill", "order": ("nobody",)},
        {"keep": 0, "route": "least"},  # the others go by another route
    ],
    ids=str,
)
def test_a_plan_that_no_proxy_of_this_network_can_keep_is_refused(plan: dict[str, Any]) -> None:
    world = World([[2, 1, 1]] * 2, [[1, 1, 1]] * 2, link_limit=3, neighbours=[[1], [0, 2], [0]])
    route = plan.get("route", "equal")
    rules = rules_of(world, max_cycles=2, route=route)
    state = rules.start_at(np.zeros(1, dtype=np.int64), [np.random.default_rng(0)])
    before = {key: np.copy(value) for key, value in vars(state).items() if value is not None}
    route = "equal" if "keep" in plan else route
    orders = [("node_0", "node_2"), ("node_0",)] if "order" in plan else [None, None]
    others = [Plan(route=route, order=order) for order in orders]
    with pytest.raises(ValueError):
        rules.carry_out(state, Plans.of(rules, [[Plan(**plan), *others]]))
    for key, value in before.items():
        np.testing.assert_array_equal(getattr(state, key), value)


@pytest.mark.parametrize("nodes", [0, 2, 4])
def test_plans_of_another_number_of_nodes_or_copies_are_refused(nodes: int) -> None:
    rules = rules_of(World([[2, 1, 1]] * 2, [[1, 1, 1]] * 2), max_cycles=2)
    state = rules.start_at(np.zeros(2, dtype=np.int64), [np.random.default_rng(0)] * 2)
    for rows in ([[Plan()] * nodes] * 2, [[Plan()] * 3, [Plan()] * nodes], [[Plan()] * 3] * 3, []):
        with pytest.raises(ValueError):
            rules.carry_out(state, Plans.of(rules, rows))
    assert not state.t.any()


def test_a_share_goes_as_soon_as_it_is_due() -> None:
    """Of three parts in ten the 1st, 4th and 7th arrival go: ceil(0.3 m) rises there."""
    went = [
        first_offers(PlainPlan(keep=None, share=Fraction(3, 10)), m, [9], [99])[0, 0]
        for m in range(1, 12)
    ]
    assert went == [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4]
