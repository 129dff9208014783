"""The clairvoyant optimum against hand-worked numbers, its closed form and every possible play."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.envs.core import best_returns_of, generator
from corral.envs.dfaas_v0.optimum import (
    OptimumError,
    _linear_program,
    has_closed_form,
    optimum,
)
from corral.envs.reference import reference_team
from corral.envs.registry import make_rules
from corral.errors import CorralError, MissingExtraError
from corral.trainers.evaluation.episodes import play_episodes
from support.messages import refused

CLOSE = 1e-6  # requests: the solver works with floats


@pytest.fixture(scope="module")
def scipy() -> Any:
    return pytest.importorskip("scipy", reason="linear programs need scipy: corral[optimum]")


def by_program(arrivals: Any, capacity: Any, forward_cost: float, link_limit: float | None) -> Any:
    """The linear program where ``optimum`` would take the closed form."""
    load, room = np.asarray(arrivals, dtype=float), np.asarray(capacity, dtype=float)
    return _linear_program(load, room, 0, forward_cost, 0.0, link_limit, None)


# ---- worked out by hand ------------------------------------------------------------------------


def test_closed_form_by_hand() -> None:
    # Node 0 overflows by 3, node 1 has room for 2: forward 2, lose 1. 1 + 0.2 * 2 = 1.4.
    found = optimum([[5, 0]], [[2, 2]], forward_cost=0.2)
    assert (found.lost, found.forwarded, found.waiting) == (1, 2, 0)
    assert found.cost == pytest.approx(1.4)
    assert found.method == "closed form"
    # Step 0: 7 of 6 served; step 1: room for all. No step helps another.
    assert optimum([[4, 3], [0, 2]], [[3, 3], [9, 9]]).cost == 1


def test_each_step_has_its_cost() -> None:
    a, c = [[9, 0], [5, 4], [0, 8]], [[5, 3], [5, 5], [5, 5]]
    found = optimum(a, c, forward_cost=0.5)
    assert found.cost_by_step.tolist() == [1 + 1.5, 0, 1.5]
    assert found.cost == 4


def test_forwarding_that_costs_more_than_losing_is_left_alone() -> None:
    found = optimum([[5, 0]], [[2, 2]], forward_cost=1.5)
    assert (found.cost, found.lost, found.forwarded) == (3, 3, 0)


@pytest.mark.usefixtures("scipy")
def test_waiting_for_free_beats_forwarding_at_a_price() -> None:
    # One request too many at node 0; it can wait for the next step, or go to node 1 for 0.2.
    window: dict[str, Any] = {
        "arrivals": [[3, 0], [0, 0]],
        "capacity": [[2, 1], [1, 1]],
        "forward_cost": 0.2,
    }
    assert optimum(**window, queue=1).cost == pytest.approx(0)
    assert optimum(**window, queue=0).cost == pytest.approx(0.2)
    dear = optimum(**window, queue=1, wait_cost=0.5)  # now waiting one step costs more
    assert (dear.cost, dear.forwarded, dear.waiting) == pytest.approx((0.2, 1, 0))


@pytest.mark.usefixtures("scipy")
def test_link_limit_binds() -> None:
    # 5 arrive, 1 is served at home, the link carries 2, so 2 are lost: 2 + 0.2 * 2 = 2.4.
    found = optimum([[5, 0]], [[1, 9]], forward_cost=0.2, link_limit=2)
    assert (found.lost, found.forwarded) == pytest.approx((2, 2))
    assert found.cost == pytest.approx(2.4)
    assert found.method == "linear program"
    # It holds for each directed link: with three nodes, 2 go each way and none is lost.
    assert optimum([[5, 0, 0]], [[1, 9, 9]], link_limit=2).lost == pytest.approx(0)


@pytest.mark.usefixtures("scipy")
def test_queue_carries_over_a_peak() -> None:
    # 5 arrive at once, 2 are served per step: 3 wait, then 1: nothing is lost, 4 request-steps.
    peak, level = [[5], [0], [0]], [[2], [2], [2]]
    found = optimum(peak, level, queue=3, wait_cost=0.1)
    assert (found.cost, found.lost, found.waiting) == pytest.approx((0.4, 0, 4))
    # Room for 2 only: 1 is lost, 2 wait one step. 1 + 0.1 * 2 = 1.2.
    found = optimum(peak, level, queue=2, wait_cost=0.1)
    assert (found.cost, found.lost, found.waiting) == pytest.approx((1.2, 1, 2))


@pytest.mark.usefixtures("scipy")
def test_what_waits_at_the_end_is_not_lost() -> None:
    found = optimum([[0], [4]], [[0], [0]], queue=3, wait_cost=0.1)
    assert (found.lost, found.waiting) == pytest.approx((1, 3))
    assert found.cost == pytest.approx(1.3)  # it is paid for, though


@pytest.mark.usefixtures("scipy")
def test_links_have_a_direction() -> None:
    # 0 may forward to 1, not 1 to 0: 2 are rescued at step 0, 2 are lost at step 1.
    links = np.array([[False, True], [False, False]])
    found = optimum([[3, 0], [0, 3]], [[1, 5], [5, 1]], forward_cost=0.1, links=links)
    assert (found.cost, found.lost, found.forwarded) == pytest.approx((2.2, 2, 2))


@pytest.mark.usefixtures("scipy")
def test_a_request_is_forwarded_once() -> None:
    line = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)  # 0 -> 1 -> 2
    assert optimum([[2, 0, 0]], [[0, 0, 2]], links=line).lost == pytest.approx(2)


@pytest.mark.usefixtures("scipy")
def test_only_arrivals_of_the_step_are_forwarded() -> None:
    # Node 1 could serve one request at step 1, but node 0's is waiting by then: it holds the one
    # place, and the arrival of step 2 is lost.
    found = optimum([[1, 0], [0, 0], [1, 0]], [[0, 0], [0, 1], [0, 0]], queue=1)
    assert found.lost == pytest.approx(1)
    # Two links of 1 could carry the waiting request and the new one at step 1, but only one of them
    # arrived just now: the other holds its place, and the arrival of step 2 is lost.
    arrivals, capacity = [[1, 0, 0], [1, 0, 0], [1, 0, 0]], [[0, 0, 0], [0, 1, 1], [0, 0, 0]]
    assert optimum(arrivals, capacity, queue=1, link_limit=1).lost == pytest.approx(1)


@pytest.mark.usefixtures("scipy")
def test_no_node_forwards_to_itself() -> None:
    assert optimum([[3], [1]], [[1], [3]], queue=2).forwarded == 0
    for loads in itertools.product((1, 5), repeat=4):  # of two nodes, one way is enough
        (a0, a1), (c0, c1) = loads[:2], loads[2:]
        found = optimum([[a0, a1]], [[c0, c1]], queue=1)
        assert found.forwarded <= max(min(a0, c1), min(a1, c0)) + CLOSE


@pytest.mark.usefixtures("scipy")
def test_bound_may_lie_below_every_play() -> None:
    # The program lets node 0 hold its own request, serve one of node 1's (0.2), and its own later.
    # By the rules node 0 serves its own work first, so one of node 1's two is lost.
    arrivals, capacity = [[1, 2], [0, 0]], [[1, 0], [1, 0]]
    found = optimum(arrivals, capacity, queue=1, forward_cost=0.2)
    assert found.cost == pytest.approx(0.2)
    assert best_play(arrivals, capacity, queue=1, forward_cost=0.2) == pytest.approx(1)


# ---- against every possible play ---------------------------------------------------------------


def best_play(
    arrivals: Any,
    capacity: Any,
    *,
    queue: int = 0,
    forward_cost: float = 0.0,
    wait_cost: float = 0.0,
    link_limit: int | None = None,
    links: Any = None,
) -> float:
    """The least cost of all plays by the rules of dfaas_v0, by trying them all.

    A sender may send any amount over any link, which covers every action, route and second offer.
    """
    a, c = np.asarray(arrivals).tolist(), np.asarray(capacity).tolist()
    steps, nodes = len(a), len(a[0])
    ways = [
        [j for j in range(nodes) if j != i and (links is None or links[i][j])] for i in range(nodes)
    ]
    most = sum(map(sum, a)) if link_limit is None else link_limit

    def choices(i: int, t: int) -> list[tuple[int, ...]]:
        amounts = itertools.product(range(a[t][i] + 1), repeat=len(ways[i]))
        return [sent for sent in amounts if sum(sent) <= a[t][i]]

    @cache
    def least(t: int, waiting: tuple[int, ...]) -> float:
        if t == steps:
            return 0.0
        best = float("inf")
        for play in itertools.product(*(choices(i, t) for i in range(nodes))):
            cost, spare, left = 0.0, [0] * nodes, [0] * nodes
            for i in range(nodes):
                work = waiting[i] + a[t][i] - sum(play[i])
                served = min(work, c[t][i])
                left[i] = min(work - served, queue)
                spare[i] = c[t][i] - served
                lost = work - served - left[i]
                cost += lost + forward_cost * sum(play[i]) + wait_cost * left[i]
            for turn in range(nodes):
                i = (t + turn) % nodes
                for j, sent in zip(ways[i], play[i], strict=True):
                    taken = min(sent, spare[j], most)
                    spare[j] -= taken
                    cost += sent - taken
            best = min(best, cost + least(t + 1, tuple(left)))
        return best

    return least(0, (0,) * nodes)


@st.composite
def windows(draw: st.DrawFn, *, steps: int, nodes: int, most: int, queue: int) -> dict[str, Any]:
    """Keyword arguments of a small window of ``optimum``."""
    t, n = draw(st.integers(1, steps)), draw(st.integers(1, nodes))
    table = st.lists(
        st.lists(st.integers(0, most), min_size=n, max_size=n), min_size=t, max_size=t
    ).map(np.array)
    edges = st.lists(st.booleans(), min_size=n * n, max_size=n * n)
    return {
        "arrivals": draw(table),
        "capacity": draw(table),
        "queue": draw(st.integers(0, queue)),
        "forward_cost": draw(st.sampled_from([0.0, 0.2, 0.7, 1.0, 1.5])),
        "wait_cost": draw(st.sampled_from([0.0, 0.05, 0.3, 2.0])),
        "link_limit": draw(st.none() | st.integers(0, most)),
        "links": draw(st.none() | edges.map(lambda e: np.array(e).reshape(n, n))),
    }


@pytest.mark.usefixtures("scipy")
@settings(max_examples=60, deadline=None)
@given(windows(steps=2, nodes=2, most=3, queue=2) | windows(steps=2, nodes=3, most=2, queue=2))
def test_no_play_beats_the_optimum(window: dict[str, Any]) -> None:
    assert optimum(**window).cost <= best_play(**window) + CLOSE


@pytest.mark.usefixtures("scipy")
@settings(max_examples=60, deadline=None)
@given(windows(steps=2, nodes=2, most=3, queue=0) | windows(steps=1, nodes=3, most=2, queue=0))
def test_without_a_queue_some_play_reaches_it(window: dict[str, Any]) -> None:
    # A node that loses a request of its own and serves another's may as well swap the two.
    assert optimum(**window).cost == pytest.approx(best_play(**window), abs=CLOSE)


@pytest.mark.usefixtures("scipy")
def test_with_a_queue_the_bound_is_often_reached() -> None:
    rng = np.random.default_rng(0)
    reached = 0
    for _ in range(100):
        arrivals, capacity = rng.integers(0, 4, (2, 2, 2))
        rest = {"queue": int(rng.integers(1, 3)), "forward_cost": 0.2, "wait_cost": 0.05}
        bound, play = (
            optimum(arrivals, capacity, **rest).cost,
            best_play(arrivals, capacity, **rest),
        )
        assert bound <= play + CLOSE
        reached += play - bound < CLOSE
    assert reached >= 60  # 74; elsewhere the program serves another's work first


@pytest.mark.usefixtures("scipy")
@settings(max_examples=30, deadline=None)
@given(windows(steps=8, nodes=3, most=5, queue=4))
def test_alone_a_node_does_best_to_serve_and_hold_all_it_can(window: dict[str, Any]) -> None:
    nodes = window["arrivals"].shape[1]
    window |= {"wait_cost": 0.0, "links": np.zeros((nodes, nodes), dtype=bool)}
    waiting, lost = np.zeros(nodes), 0.0
    for load, room in zip(window["arrivals"], window["capacity"], strict=True):
        left = np.maximum(0, waiting + load - room)
        waiting = np.minimum(left, window["queue"])
        lost += (left - waiting).sum()
    assert optimum(**window).cost == pytest.approx(lost, abs=CLOSE)


# ---- the two ways agree ------------------------------------------------------------------------


@pytest.mark.usefixtures("scipy")
@settings(max_examples=60, deadline=None)
@given(windows(steps=5, nodes=4, most=9, queue=0))
def test_linear_program_equals_closed_form(window: dict[str, Any]) -> None:
    a, c, price = window["arrivals"], window["capacity"], window["forward_cost"]
    found = optimum(a, c, forward_cost=price)
    assert found.method == "closed form"
    for limit in (None, 100):  # the meeting point of a complete graph, and link by link
        other = by_program(a, c, price, limit)
        assert other.cost == pytest.approx(found.cost, abs=CLOSE)
        assert other.method == "linear program"
        assert other.cost_by_step == pytest.approx(found.cost_by_step, abs=CLOSE)  # it is unique
        if 0 < price < 1:  # else the split is not unique
            assert (other.lost, other.forwarded) == pytest.approx((found.lost, found.forwarded))


@pytest.mark.usefixtures("scipy")
def test_they_agree_on_the_largest_numbers_of_a_trace() -> None:
    rng = np.random.default_rng(1)
    a, c = rng.integers(0, 2**31, (2, 50, 4), endpoint=True)
    for limit in (None, 2**31):
        assert by_program(a, c, 0.25, limit).cost == optimum(a, c, forward_cost=0.25).cost


@pytest.mark.usefixtures("scipy")
@settings(max_examples=60, deadline=None)
@given(windows(steps=5, nodes=4, most=9, queue=4))
def test_the_solution_adds_up_in_whole_requests(window: dict[str, Any]) -> None:
    found = optimum(**window)
    parts = (found.lost, found.forwarded, found.waiting)
    assert parts == pytest.approx([round(part) for part in parts], abs=CLOSE)
    lost, forwarded, waiting = parts
    price = window["forward_cost"] * forwarded + window["wait_cost"] * waiting
    assert found.cost == pytest.approx(lost + price)
    assert found.cost_by_step.shape == (len(window["arrivals"]),)
    assert found.cost_by_step.sum() == pytest.approx(found.cost)
    assert -CLOSE <= lost <= window["arrivals"].sum() + CLOSE
    # A limit that cannot bind changes nothing: the meeting point against link by link.
    if window["link_limit"] is None:
        assert optimum(**window | {"link_limit": 1000}).cost == pytest.approx(found.cost, abs=CLOSE)


# ---- what must never help or hurt --------------------------------------------------------------


@pytest.mark.usefixtures("scipy")
@settings(max_examples=25, deadline=None)
@given(windows(steps=5, nodes=4, most=9, queue=4), st.data())
def test_more_room_never_costs_more(window: dict[str, Any], data: st.DataObject) -> None:
    cost = optimum(**window).cost
    steps, nodes = window["arrivals"].shape
    one = np.zeros((steps, nodes), dtype=int)
    one[data.draw(st.integers(0, steps - 1)), data.draw(st.integers(0, nodes - 1))] = 1
    limit = window["link_limit"]
    roomier: list[dict[str, Any]] = [
        {"capacity": window["capacity"] + one},
        {"queue": window["queue"] + 1},
        {"link_limit": None if limit is None else limit + 1},
        {"link_limit": None},
        {"links": None},
        {"forward_cost": 0.0},
        {"wait_cost": 0.0},
    ]
    for change in roomier:
        assert optimum(**window | change).cost <= cost + CLOSE, change
    assert optimum(**window | {"arrivals": window["arrivals"] + one}).cost >= cost - CLOSE
    fewer = np.ones((nodes, nodes), dtype=bool) if window["links"] is None else window["links"]
    fewer = fewer & ~np.eye(nodes, k=1, dtype=bool)
    assert optimum(**window | {"links": fewer}).cost >= cost - CLOSE


# ---- arguments, and scipy ----------------------------------------------------------------------


def test_where_the_closed_form_holds() -> None:
    ring = np.roll(np.eye(3, dtype=bool), 1, axis=1)
    assert has_closed_form()
    assert has_closed_form(links=~np.eye(3, dtype=bool))  # complete: the diagonal is not read
    assert has_closed_form(links=np.zeros((1, 1), dtype=bool))
    assert not has_closed_form(queue=1)
    assert not has_closed_form(link_limit=5)
    assert not has_closed_form(links=ring)


@pytest.mark.parametrize(
    ("change", "values"),
    [
        ({"arrivals": [1, 2]}, ("arrivals", "int64", "(2,)", "steps x nodes")),
        ({"arrivals": np.zeros((0, 2))}, ("arrivals", "float64", "(0, 2)")),
        ({"capacity": [["1", "2"]]}, ("capacity", "<U1", "(1, 2)")),
        ({"capacity": [[1, 2, 3]]}, ("arrivals", "(1, 2)", "capacity (1, 3)")),
        ({"arrivals": [[1, -2]]}, ("arrivals", -2, 0)),
        ({"capacity": [[1, float("nan")]]}, ("capacity", "nan", 0)),
        ({"queue": -1}, ("queue -1", 0)),
        ({"forward_cost": float("inf")}, ("forward_cost inf",)),
        ({"wait_cost": float("nan")}, ("wait_cost nan",)),
        ({"link_limit": -3}, ("link_limit -3",)),
        ({"links": np.ones((3, 3), dtype=bool)}, ("links", "(3, 3)", "(2, 2)", "nodes x nodes")),
        ({"links": np.ones((2, 2))}, ("links", "float64", "bool")),
    ],
)
def test_bad_arguments_are_named(change: dict[str, Any], values: tuple[Any, ...]) -> None:
    window: dict[str, Any] = {"arrivals": [[1, 2]], "capacity": [[1, 2]]}
    with refused(ValueError, *values):
        optimum(**window | change)


@pytest.mark.parametrize("missing", ["scipy.sparse", "scipy.optimize"])
def test_without_scipy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert optimum([[5, 0]], [[2, 2]]).cost == 1  # the closed form needs none
    with refused(MissingExtraError, "scipy", "pip install '.[optimum]'"):
        optimum([[5, 0]], [[2, 2]], queue=1)


@pytest.mark.usefixtures("scipy")
def test_a_failing_solver_is_an_error_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = SimpleNamespace(status=4, message="Numerical difficulties encountered.")
    monkeypatch.setattr("scipy.optimize.linprog", lambda *_, **__: failed)
    with refused(OptimumError, "1 steps", "2 nodes", "status 4", failed.message) as caught:
        optimum([[5, 0]], [[2, 2]], queue=1)
    assert isinstance(caught.value, CorralError)
    assert isinstance(caught.value, RuntimeError)


def test_optimum_is_a_plain_value() -> None:
    found = optimum([[5, 0]], [[2, 2]])
    assert found == replace(found)
    assert found == optimum(np.array([[5.0, 0.0]]), np.array([[2, 2]], dtype=np.uint8))


def test_no_team_earns_more_than_the_optimum_of_the_same_episodes() -> None:
    """Exact forwarding of the overflow reaches it; with a queue there is no closed form."""
    rules: Any = make_rules("dfaas_v0", max_cycles=30)
    rngs = [generator(3, "env", row) for row in range(6)]
    best = best_returns_of(rules, rngs)
    assert best is not None
    for name, reached in (("overflow", True), ("local", False)):
        team = reference_team(name, rules)
        greedy = dict.fromkeys(rules.agents, True)
        played, _ = play_episodes(rules, team, greedy, episodes=6, seed=3)
        returns = played.returns[np.argsort(played.rows)].sum(axis=1)
        assert (returns <= best + 1e-6).all()
        assert np.allclose(returns, best, atol=1e-5) is reached
    assert best_returns_of(make_rules("dfaas_v0", queue=2), rngs) is None
    assert best_returns_of(make_rules("arena_v0"), rngs) is None
