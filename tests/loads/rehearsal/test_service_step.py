"""Service "step": a rehearsal is the replay, window by window, to the request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loads.rehearsal.both import drawn_plan, drawn_route

from corral.data import Trace
from corral.envs.dfaas_v0.planned import View
from corral.envs.dfaas_v0.plans import Plan
from corral.envs.dfaas_v0.routes import PER_REQUEST
from corral.errors import ActionError
from corral.loads.rehearsal import Rehearsal, rehearse
from corral.loads.replay import replay
from corral.trainers.evaluation.judge import players
from support.loads import small_trace
from support.messages import refused
from support.runs import small_run

ROUTES = (*PER_REQUEST, "all-to-shortest", "all-to-two")
AMOUNTS: tuple[Callable[[np.random.Generator], str], ...] = (
    lambda rng: "local",
    lambda rng: "overflow",
    lambda rng: "threshold",
    lambda rng: "margin",
    lambda rng: "patient",
    lambda rng: "patient-margin",
    lambda rng: "static",
    lambda rng: f"backlog={rng.choice([0, 0.3, 0.75, 1.2])}",
    lambda rng: f"backlog={rng.choice([0, 0.5])}+margin={rng.choice([0, 0.5, 1, 1.7])}",
    lambda rng: f"capacity={rng.choice([0, 0.5, 0.9, 1.4])}",
    lambda rng: f"capacity=0.8+margin={rng.choice([0.3, 1])}",
    lambda rng: f"share={rng.choice([0, 0.1, 0.3, 0.7, 1])}",
    lambda rng: f"share=0.5+margin={rng.choice([0.3, 1])}",
)
SEEDS = st.integers(0, 2**32)


def random_load(rng: np.random.Generator) -> tuple[Trace, dict[str, Any]]:
    """Return a load of two windows, and the arguments of dfaas_v0 and of the windows."""
    nodes, window = int(rng.integers(2, 5)), int(rng.integers(8, 21))
    largest = int(rng.choice([3, 12, 25]))
    tables = rng.integers(largest + 1, size=(2, 2 * window + 3, nodes))
    tables[rng.random(tables.shape) < rng.choice([0, 0.2])] = 0
    names = [f"n{i}" for i in range(nodes)]
    trace = Trace(tuple(names), tables[0], tables[1], times=np.arange(2 * window + 3))
    near = {name: [other for other in names if rng.random() < 0.7] for name in names}
    low = int(rng.integers(4))
    arguments = {
        "rows": (low, low + 2 * window),
        "window": window,
        "seed": int(rng.integers(9)),
        "queue": int(rng.choice([0, 1, 4, 9])),
        "report_delay": int(rng.integers(1, 4)),
        "second_offer": bool(rng.integers(2)),
        "link_limit": [None, 0, 2, 5][rng.integers(4)],
        "forward_cost": float(rng.choice([0, 0.2])),
        "wait_cost": float(rng.choice([0, 0.05])),
        "neighbours": None,
    }
    if rng.random() < 0.5:
        arguments["neighbours"] = {
            name: [other for other in others if other != name] for name, others in near.items()
        }
    return trace, arguments


class Erratic:
    """Draws plans from all numbers that a node knows."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def plan(self, view: View) -> Plan:
        numbers = [*view.spare.values(), *view.lost.values(), view.queue, *view.last_counts]
        numbers += [*view.capacities.values(), view.capacity, int(view.node[1:])]
        rng = np.random.default_rng([self.seed, view.step, *numbers])
        near = list(view.spare)
        route, ordered = drawn_route(self.seed, view.step)
        plan = drawn_plan(rng, range(len(near)), view.link_limit, route, ordered)
        if "caps" in plan:
            plan["caps"] = {near[place]: cap for place, cap in plan["caps"].items()}
        if ordered:
            plan["order"] = [near[place] for place in plan["order"]]
        return Plan(**plan)


def require_same_as_replay(
    trace: Trace, policies: Any, arguments: dict[str, Any], arrivals: str
) -> Rehearsal:
    """Assert that the sums of all windows are those of a replay; return the rehearsal."""
    rehearsal = rehearse(trace, policies, service="step", arrivals=arrivals, **arguments)
    replayed = replay(trace, policies, arrivals=arrivals, optimum_windows=0, **arguments)
    for label, sums in rehearsal.sums.items():
        expected = replayed.sums[label]
        for name in ("arrivals", "served", "lost", "forwarded", "waiting"):
            values = getattr(expected, name)
            np.testing.assert_array_equal(sums.counts[name], values, f"{label} {name}")
        lost = sums.lost_by_step.sum(axis=1)
        np.testing.assert_array_equal(lost, sums.counts["lost"], label)
        np.testing.assert_array_equal(rehearsal.costs[label], expected.cost, label)
    assert len(rehearsal.sums) == len(policies)
    return rehearsal


def require_rules_same(seed: int, arrivals: str, routes: tuple[str, ...], rules: int) -> None:
    rng = np.random.default_rng(seed)
    trace, arguments = random_load(rng)
    amounts = [AMOUNTS[k](rng) for k in rng.choice(len(AMOUNTS), size=rules, replace=False)]
    names = [f"{amount}/{rng.choice(routes)}" for amount in amounts]
    require_same_as_replay(trace, {name: name for name in names}, arguments, arrivals)


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_rules_cost_what_they_cost_in_a_replay(seed: int) -> None:
    require_rules_same(seed, "unknown", ROUTES, rules=2)


@pytest.mark.slow
@settings(max_examples=75, deadline=None)
@given(SEEDS)
def test_rules_cost_what_they_cost_in_a_replay_of_many_worlds(seed: int) -> None:
    require_rules_same(seed, "unknown", ROUTES, rules=3)


@settings(max_examples=12, deadline=None)
@given(SEEDS)
def test_rules_with_known_arrivals_cost_what_they_cost_in_a_replay(seed: int) -> None:
    require_rules_same(seed, "known", (*ROUTES, "capacity", "spare"), rules=2)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_rules_with_known_arrivals_cost_the_same_in_many_worlds(seed: int) -> None:
    require_rules_same(seed, "known", (*ROUTES, "capacity", "spare"), rules=3)


@pytest.mark.slow
@pytest.mark.parametrize("arrivals", ["unknown", "known"])
@pytest.mark.parametrize("route", [*ROUTES, "capacity", "spare"])
def test_every_amount_with_every_route(route: str, arrivals: str) -> None:
    rng = np.random.default_rng(7)
    trace, arguments = random_load(rng)
    rules = [f"{amount(rng)}/{route}" for amount in AMOUNTS]
    if arrivals == "unknown" and route in ("capacity", "spare"):
        with refused(ActionError, route):
            rehearse(trace, rules, service="step", arrivals=arrivals, **arguments)
    else:
        require_same_as_replay(trace, {rule: rule for rule in rules}, arguments, arrivals)


def require_plans_same(seed: int, arrivals: str) -> None:
    trace, arguments = random_load(np.random.default_rng(seed))
    require_same_as_replay(trace, {"erratic": Erratic(seed)}, arguments, arrivals)


@pytest.mark.parametrize("arrivals", ["unknown", "known"])
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_custom_plans_cost_what_they_cost_in_a_replay(arrivals: str, seed: int) -> None:
    require_plans_same(seed, arrivals)


@pytest.mark.slow
@pytest.mark.parametrize("arrivals", ["unknown", "known"])
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_custom_plans_cost_the_same_in_many_worlds(arrivals: str, seed: int) -> None:
    require_plans_same(seed, arrivals)


class Splitting(Erratic):
    """Also splits the forwarded requests itself: as many as the caps allow, in turn."""

    def split(self, view: View, f: int) -> dict[str, int]:
        caps = self.plan(view).caps
        sent: dict[str, int] = {}
        for name in view.spare:
            sent[name] = min(f, f if caps is None else caps.get(name, 0), 3)
            f -= sent[name]
        return sent


@settings(max_examples=5, deadline=None)
@given(SEEDS)
def test_policies_that_split_requests_cost_what_they_cost_in_a_replay(seed: int) -> None:
    trace, arguments = random_load(np.random.default_rng(seed))
    require_same_as_replay(trace, {"splitting": Splitting(seed)}, arguments, "known")


@pytest.mark.parametrize(
    ("amount", "arrivals", "route"),
    [
        ("unit", "known", "spare"),
        ("keep", "known", "equal"),
        ("keep", "unknown", "all-to-two"),
        ("share", "unknown", "two-choices"),
    ],
)
@pytest.mark.slow
def test_a_team_costs_what_it_costs_in_a_replay(
    amount: str, arrivals: str, route: str, tmp_path: Path
) -> None:
    game: dict[str, Any] = {"queue": 4, "link_limit": 5, "report_delay": 2}
    kind = {"amount": amount, "arrivals": arrivals, "route": route}
    run = small_run(tmp_path / "run", updates=1, env_kwargs={**game, **kind})
    (player,) = [player for player in players(run) if player.mode == "greedy"]
    trace = small_trace()
    settings: dict[str, Any] = {**game, "arrivals": arrivals, "window": 13, "rows": (1, 40)}
    rehearsal = rehearse(trace, {"team": run}, service="step", **settings)
    expected = replay(trace, {"team": player}, optimum_windows=0, **settings).sums["team"]
    counts = rehearsal.sums["team"].counts
    for name in ("arrivals", "served", "lost", "forwarded", "waiting"):
        assert counts[name].tolist() == getattr(expected, name).tolist()
    assert counts["forwarded"].sum() > 0
