"""Random worlds and plans, small enough to be played request by request; and how dfaas_v0 is told
of them."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import numpy as np

from corral.data.trace import Trace
from corral.envs.core import generator
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.plans import Plan
from support.plan_scalar import PlainPlan, Play, StepCounts, World

ROUTES = ("equal", "weighted", "least", "fill", "shortest", "two", "capacity", "spare")
"""Routes that draw nothing for a request."""

DAY = 86_400  # seconds


def random_world(rng: np.random.Generator) -> World:
    """1 to 6 nodes, 1 to 6 rows."""
    nodes, rows = int(rng.integers(1, 7)), int(rng.integers(1, 7))
    most = int(rng.choice([1, 5, 20, 60]))
    arrivals = _table(rng, most, rows, nodes)
    kind = rng.random()
    if kind < 0.5:
        capacity = _table(rng, int(rng.choice([1, 5, 20, 60])), rows, nodes)
    elif kind < 0.8:  # near balance: queues, losses and spare all occur
        capacity = [[int(each) for each in rng.permutation(row)] for row in arrivals]
    else:  # equal spare: ties
        capacity = [[int(rng.integers(most + 1))] * nodes] * rows
    neighbours = None
    if rng.random() < 0.5:
        density = rng.random()
        neighbours = [
            [j for j in range(nodes) if j != i and rng.random() < density] for i in range(nodes)
        ]
    return World(
        arrivals=arrivals,
        capacity=capacity,
        queue=int(rng.choice([0, 0, 1, 5, 30])),
        forward_cost=float(rng.choice([0.0, 0.2])),
        wait_cost=float(rng.choice([0.0, 0.1])),
        second_offer=bool(rng.integers(2)),
        link_limit=[None, None, 0, 1, 3, 15][rng.integers(6)],
        neighbours=neighbours,
        report_delay=int(rng.choice([1, 1, 1, 2, 3])),
        start=int(rng.integers(rows)),
    )


def _table(rng: np.random.Generator, most: int, rows: int, nodes: int) -> list[list[int]]:
    table = rng.integers(most + 1, size=(rows, nodes))
    if rng.random() < 0.3:
        table[rng.random(table.shape) < 0.5] = 0
    found: list[list[int]] = table.tolist()
    return found


def random_plan(
    rng: np.random.Generator, world: World, i: int, route: str, ordered: bool = False
) -> PlainPlan:
    """Any plan of node i, within the links if it has caps; ``ordered``: with route "fill", in an
    order of its own."""
    near = world.near(i)
    largest = max(map(max, world.arrivals)) + 3
    keep, share, caps, order = None, None, None, None
    kind = rng.random()
    if kind < 0.6:
        keep = int(rng.choice([0, rng.integers(largest), rng.integers(1 + largest // 4)]))
    elif kind < 0.9:
        parts = int(rng.choice([1, 2, 3, 7, 10, 100]))
        share = Fraction(int(rng.integers(parts + 1)), parts)
    if rng.random() < 0.5:
        bound = largest if world.link_limit is None else world.link_limit
        named = [j for j in near if rng.random() < 0.9]
        caps = {j: int(rng.integers(min(bound, int(rng.choice([2, 8, 99]))) + 1)) for j in named}
    if route == "fill" and ordered:
        order = [int(j) for j in rng.permutation(near)[: rng.integers(len(near) + 1)]]
    most = None if rng.random() < 0.6 else int(rng.integers(largest))
    return PlainPlan(keep, share, most, caps, route, order)


def plan_of(plain: PlainPlan) -> Plan:
    """The same plan as dfaas_v0 has it."""
    return Plan(
        keep=plain.keep,
        share=None if plain.share is None else float(plain.share),
        most=plain.most,
        caps=None if plain.caps is None else {_name(j): cap for j, cap in plain.caps.items()},
        route=plain.route,
        order=None if plain.order is None else tuple(_name(j) for j in plain.order),
    )


def trace_of(world: World, step: int = 300) -> Trace:
    """The load of a world, with a clock."""
    return Trace(
        nodes=tuple(f"site-{i}" for i in range(world.nodes)),
        arrivals=np.array(world.arrivals),
        capacity=np.array(world.capacity),
        times=step * np.arange(len(world.arrivals)),
        clock="utc",
    )


def settings_of(world: World) -> dict[str, Any]:
    """The arguments of dfaas_v0, but its trace."""
    neighbours = None
    if world.neighbours is not None:
        neighbours = {_name(i): [_name(j) for j in world.near(i)] for i in range(world.nodes)}
    return {
        "queue": world.queue,
        "forward_cost": world.forward_cost,
        "wait_cost": world.wait_cost,
        "second_offer": world.second_offer,
        "link_limit": world.link_limit,
        "neighbours": neighbours,
        "report_delay": world.report_delay,
    }


def rules_of(world: World, **others: Any) -> DfaasRules:
    """The rules of dfaas_v0 that play a world."""
    return DfaasRules(trace_of(world), **settings_of(world), keep_flow=True, **others)


def begin(rules: DfaasRules, world: World, starts: Any, seed: int) -> tuple[list[Play], Any]:
    """The plays and the state of the same episodes."""
    state = rules.start_at(starts, [generator(seed, "env", copy) for copy in range(len(starts))])
    draws = state.draws if rules.route == "two" else [None] * len(starts)
    plays = [
        Play(dataclasses.replace(world, start=int(start)), draws=draws[copy])
        for copy, start in enumerate(starts)
    ]
    return plays, state


def assert_same(rules: DfaasRules, outcome: Any, copy: int, counts: StepCounts) -> None:
    for key in ("forwarded", "served_local", "served_remote", "lost", "waiting"):
        assert outcome.info[key][copy].tolist() == getattr(counts, key), key
    assert not outcome.info["illegal_actions"].any()
    assert outcome.state.spare[copy].tolist() == counts.spare
    assert outcome.state.queue[copy].tolist() == counts.waiting
    assert outcome.state.flow[copy].tolist() == counts.flows
    cost = -outcome.reward[copy] * rules.load_scale
    np.testing.assert_allclose(cost, counts.cost, rtol=1e-5, atol=1e-5)


def _name(i: int) -> str:
    return f"node_{i}"
