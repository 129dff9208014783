"""The naive simulator by cases computed by hand, and its plans against the array code."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loads.rehearsal.naive import Outcome, Planner, Request, Settings, System, simulate
from loads.rehearsal.naive_plans import Carrier

from corral.envs.dfaas_v0.network import Network
from corral.envs.dfaas_v0.plans import KEEP_ALL, Plans
from corral.envs.dfaas_v0.routes import PER_REQUEST, UNBOUNDED, best_of_two


def world(nodes: int, **changes: Any) -> Settings:
    links = [[i != j for j in range(nodes)] for i in range(nodes)]
    plain = Settings(
        queue=10,
        places=None,
        servers=1,
        link_limit=None,
        second_offer=False,
        latency=0,
        links=links,
    )
    return dataclasses.replace(plain, **changes)


def at(node: int, *times: float, work: float = 1.0) -> list[Request]:
    return [Request(time, node, work) for time in times]


def stay(system: System, i: int, now: float) -> int:
    return i


def next_node(system: System, i: int, now: float) -> int:
    return (i + 1) % len(system.nodes)


def forward_from_0(system: System, i: int, now: float) -> int:
    return 1 if i == 0 else i


def always(*plans: dict[str, Any]) -> Planner:
    return lambda t, queues, spare, lost: list(plans)


def fates(outcome: Outcome) -> list[tuple[str, int | None]]:
    return [(record.outcome, record.node) for record in outcome.records]


def spans(outcome: Outcome) -> list[tuple[float | None, float | None]]:
    return [(record.start, record.end) for record in outcome.records]


# --- Service -------------------------------------------------------------------------------------


def test_one_server_serves_in_the_order_of_arrival() -> None:
    result = simulate(at(0, 0.0, 0.5, 0.75, 3.5), [[1.0]] * 5, world(1), stay)
    assert spans(result) == [(0, 1), (1, 2), (2, 3), (3.5, 4.5)]
    assert (result.arrivals, result.served, result.lost, result.waiting) == (4, 4, 0, 1)
    assert result.step_spare == [[0]] * 5


def test_the_last_request_may_be_held_in_service_or_not() -> None:
    result = simulate(at(0, 0.0, 0.5, 0.75), [[1.0], [0.5]], world(1), stay)
    assert spans(result) == [(0, 1), (1, None), (None, None)]
    assert fates(result) == [("served", 0), ("held", 0), ("held", 0)]
    assert result.waiting == 2  # one at the end of each step


def test_two_servers_share_the_capacity() -> None:
    requests = [Request(0, 0, 1), Request(0.25, 0, 0.5), Request(0.5, 0, 1)]
    result = simulate(requests, [[2.0]] * 2, world(1, servers=2), stay)
    assert spans(result) == [(0, 1), (0.25, 0.75), (0.75, 1.75)]
    assert result.step_spare == [[0], [1]]  # 0.25 and 1.25


def test_a_request_in_service_goes_at_the_speed_of_the_new_step() -> None:
    assert spans(simulate(at(0, 0.5), [[1.0], [2.0]], world(1), stay)) == [(0.5, 1.25)]


def test_a_step_of_capacity_0_interrupts_the_service() -> None:
    result = simulate(at(0, 0.5, 1.5, 1.75), [[1.0], [0.0], [1.0]], world(1, queue=2), stay)
    assert spans(result) == [(0.5, 2.5), (2.5, None), (None, None)]
    assert fates(result) == [("served", 0), ("held", 0), ("lost", None)]
    assert result.step_lost == [[0], [1], [0]]
    assert result.waiting == 1


@pytest.mark.parametrize("count", [9, 10])
def test_a_departure_at_the_end_of_a_step_belongs_to_it(count: int) -> None:
    # The sum of 9 times 1/9 is rounded to more than 1.
    result = simulate(at(0, *[0.0] * count), [[count]], world(1), stay)
    assert result.served == count
    assert result.records[-1].end == pytest.approx(1)
    assert result.waiting == 0
    assert result.step_spare == [[0]]


# --- Admission -----------------------------------------------------------------------------------


def test_a_request_is_lost_if_the_queue_and_the_rest_of_the_step_are_full() -> None:
    result = simulate(at(0, 0.5, 0.5, 0.5), [[2.0]], world(1, queue=1), stay)  # Q + s = 2
    assert fates(result) == [("served", 0), ("held", 0), ("lost", None)]
    assert result.step_lost == [[1]]


def test_departures_come_before_arrivals_at_the_same_time() -> None:
    result = simulate(at(0, 0.0, 0.5, 0.75), [[2.0]], world(1, places=0), stay)
    assert fates(result) == [("served", 0), ("served", 0), ("lost", None)]


def test_places_limit_clients_and_forwarded_requests() -> None:
    requests = [*at(1, 0.0), *at(0, 0.1, 0.2), *at(1, 0.3)]
    result = simulate(requests, [[1.0, 1.0]], world(2, places=1), forward_from_0)
    assert fates(result) == [("served", 1), ("held", 1), ("lost", None), ("lost", None)]
    assert (result.forwarded, result.refused) == (2, 1)
    assert result.step_lost == [[1, 1]]


def test_with_sizes_the_remaining_work_counts() -> None:
    requests = [*at(0, 0.0, work=3), *at(0, 0.5, 0.6, work=0.25)]
    result = simulate(requests, [[1.0]], world(1, queue=2.5, by_work=True), stay)
    # at 0.5: 2.5 < 2.5 + 0.5; at 0.6: 2.65 < 2.5 + 0.4
    assert [record.outcome for record in result.records] == ["held"] * 3
    result = simulate(requests, [[1.0]], world(1, queue=2, by_work=True), stay)
    assert [record.outcome for record in result.records] == ["held", "lost", "lost"]


# --- Forwarding ----------------------------------------------------------------------------------


def test_a_forwarded_request_is_refused_if_it_cannot_be_served_in_the_step() -> None:
    result = simulate(at(0, 0.5, 0.5), [[2.0] * 3], world(3), next_node)  # s = 1
    assert fates(result) == [("served", 1), ("lost", None)]
    assert (result.forwarded, result.refused, result.lost) == (2, 1, 1)
    assert result.step_lost == [[1, 0, 0]]  # at the node of the client


def test_a_refused_request_goes_to_the_first_neighbor_that_takes_it() -> None:
    requests = at(0, 0.5, 0.5, 0.5)
    result = simulate(requests, [[2.0] * 3], world(3, second_offer=True), next_node)
    assert fates(result) == [("served", 1), ("served", 2), ("lost", None)]
    assert (result.forwarded, result.refused, result.lost) == (3, 2, 1)


def test_a_link_takes_its_limit_in_each_step() -> None:
    requests = at(0, 0.0, 0.1, 1.0)
    plan = {"keep": 0}
    result = simulate(requests, [[5.0] * 2] * 2, world(2, link_limit=1), planner=always(plan, plan))
    assert fates(result) == [("served", 1), ("lost", None), ("served", 1)]


def test_a_balancer_keeps_a_request_if_the_link_is_used_up() -> None:
    requests = at(0, 0.0, 0.1, 1.0)
    result = simulate(requests, [[5.0] * 2] * 2, world(2, link_limit=1), next_node)
    assert fates(result) == [("served", 1), ("served", 0), ("served", 1)]
    assert (result.forwarded, result.refused) == (2, 0)


def test_latency_delays_the_offer_and_twice_the_second_offer() -> None:
    changes = {"latency": 0.25, "second_offer": True}
    requests = [*at(1, 0.0, 0.0, 0.0), *at(0, 0.25, 0.5, 1.9)]
    result = simulate(requests, [[2.0, 2.0, 4.0]] * 2, world(3, **changes), forward_from_0)
    # Node 1 holds 3 and then 2 requests at 0.5 and 0.75. The second offers come at 1 and 1.25. Then
    # it holds 1, of which half is done at 1.25: it takes the first (1 < 2), and refuses the second
    # (2 < 1.5), which node 2 takes.
    assert result.records[3].node == 1
    assert spans(result)[3] == (1.5, 2)
    assert result.records[4].node == 2
    assert spans(result)[4] == (1.25, 1.5)
    assert fates(result)[5] == ("in flight", None)
    assert (result.refused, result.forwarded, result.lost) == (2, 3, 0)


def test_a_neighbor_at_its_cap_gets_no_second_offer() -> None:
    plan = {"keep": 0, "route": "fill", "order": [1], "caps": {1: 3, 2: 1}}
    capacity = [[0.0, 1.0, 9.0]]
    changed = world(3, second_offer=True)
    result = simulate(at(0, 0.0, 0.0, 0.0), capacity, changed, planner=always(plan, {}, {}))
    assert fates(result) == [("served", 1), ("served", 2), ("lost", None)]


# --- Reports -------------------------------------------------------------------------------------


def test_boards_show_the_past() -> None:
    seen: list[tuple[float, int, float]] = []

    def choose(system: System, i: int, now: float) -> int:
        seen.append((now, system.held(0), system.work(0)))
        return i

    times = 0.0, 0.25, 0.5, 0.75, 1.0, 1.25
    simulate(at(0, *times), [[1.0]] * 2, world(1, period=0.5, age=0.25), choose)
    # The board of 0.5 is written before the request of 0.5, and visible from 0.75.
    boards = [(0, 0), (0, 0), (0, 0), (2, 1.5), (2, 1.5), (3, 3)]
    assert seen == [(time, *board) for time, board in zip(times, boards, strict=True)]
    seen.clear()
    simulate(at(0, *times), [[1.0]] * 2, world(1), choose)
    fresh = [(0, 0), (1, 0.75), (2, 1.5), (3, 2.25), (3, 3), (4, 3.75)]
    assert seen == [(time, *held) for time, held in zip(times, fresh, strict=True)]


def test_a_dispatcher_counts_its_requests_in_flight() -> None:
    seen: list[list[list[int]]] = []

    def choose(system: System, i: int, now: float) -> int:
        seen.append([list(row) for row in system.in_flight])
        return next_node(system, i, now)

    simulate(at(0, 0.0, 0.1, 0.3, 0.9), [[1.0, 5.0]], world(2), choose)
    assert seen == [[[0, n], [0, 0]] for n in (0, 1, 1, 0)]


def test_planners_see_the_queue_and_the_last_step() -> None:
    seen: list[tuple[int, list[int], list[int], list[int]]] = []

    def planner(
        t: int, queues: list[int], spare: list[int], lost: list[int]
    ) -> list[dict[str, Any]]:
        seen.append((t, queues, spare, lost))
        return [{}, {}]

    requests = [*at(0, *[0.5] * 6), *at(1, 0.5)]
    simulate(requests, [[2.0, 3.0]] * 3, world(2, queue=2), planner=planner)
    assert seen == [
        (0, [0, 0], [0, 0], [0, 0]),
        (1, [2, 0], [1, 2], [3, 0]),  # Q + s = 3: 3 of 6 are lost, and 1 is done by the end
        (2, [0, 0], [0, 3], [0, 0]),
    ]


# --- Plans ---------------------------------------------------------------------------------------


def test_shares_and_limits_of_plans_by_hand() -> None:
    def targets(count: int, **plan: Any) -> list[int | None]:
        carrier = Carrier(plan, [1, 2], [1.0, 3.0, 1.0])
        return [carrier.next_target() for _ in range(count)]

    assert targets(4) == [None] * 4
    assert targets(5, keep=2) == [None, None, 1, 2, 1]
    assert targets(5, keep=0, most=3) == [1, 2, 1, None, None]
    assert targets(5, share=0.4) == [1, None, 2, None, None]  # ceil: 1, 1, 2, 2, 2
    assert targets(5, keep=0, caps={1: 3, 2: 1}) == [1, 2, 1, 1, None]
    assert targets(4, keep=0, caps={2: 2}) == [2, 2, None, None]
    assert targets(5, keep=0, route="weighted") == [1, 1, 1, 2, 1]
    assert targets(4, keep=0, route="least", spare=[9, 1, 2]) == [2, 1, 2, 1]
    assert targets(3, keep=0, route="fill", spare=[9, 1, 2], caps={1: 9, 2: 2}) == [2, 2, 1]
    assert targets(3, keep=0, route="fill", order=[1, 2], caps={1: 1, 2: 9}) == [1, 2, 2]


@settings(deadline=None)
@given(st.data())
def test_draws_of_two_are_those_of_the_array_code(data: Any) -> None:
    places = data.draw(st.integers(1, 6))
    key = data.draw(st.integers(0, 2**64 - 1))
    level = data.draw(st.lists(st.integers(0, 9), min_size=places, max_size=places))
    caps = data.draw(st.lists(st.integers(0, 9), min_size=places, max_size=places))
    requests = data.draw(st.integers(0, 60))
    plan = {"keep": 0, "route": "two-choices", "spare": level, "key": key}
    carrier = Carrier(plan | {"caps": dict(enumerate(caps))}, range(places), [])
    for _ in range(requests):
        carrier.next_target()
    sent = best_of_two(
        np.array([requests]),
        np.array(level)[:, None],
        np.array(caps)[:, None],
        np.array([key], dtype=np.uint64),
    )
    assert list(carrier.sent.values()) == sent[:, 0].tolist()


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.just(None), values)


@pytest.mark.parametrize("route", PER_REQUEST)
@settings(deadline=None)
@given(data=st.data())
def test_plans_request_by_request_send_as_many_as_the_array_code(route: Any, data: Any) -> None:
    n = data.draw(st.integers(2, 5))
    nodes = range(n)
    links = np.array([[i != j and data.draw(st.booleans()) for j in nodes] for i in nodes])
    numbers = st.lists(st.integers(0, 12), min_size=n, max_size=n)
    capacity, spare = data.draw(numbers), data.draw(numbers)
    arrivals = data.draw(st.lists(st.integers(0, 40), min_size=n, max_size=n))
    ordered = route == "fill" and data.draw(st.booleans())
    keep, most = np.full((1, n), KEEP_ALL), np.full((1, n), UNBOUNDED)
    share, keys = np.full((1, n), np.nan), np.zeros((1, n), dtype=np.uint64)
    caps, weights = np.full((1, n, n), UNBOUNDED), np.zeros((1, n, n), dtype=np.int64)
    plans = []
    for i in nodes:
        near = [j for j in nodes if links[i, j]]
        plan = {
            "keep": data.draw(optional(st.integers(0, 20))),
            "share": None,
            "most": data.draw(optional(st.integers(0, 30))),
            "caps": data.draw(
                optional(st.fixed_dictionaries({j: st.integers(0, 9) for j in near}))
            ),
            "route": route,
            "order": None,
            "spare": spare,
            "key": data.draw(st.integers(0, 2**64 - 1)),
        }
        keys[0, i] = plan["key"]
        if plan["keep"] is not None:
            keep[0, i] = plan["keep"]
        else:
            plan["share"] = data.draw(optional(st.floats(0, 1) | st.sampled_from([0.1, 0.3, 0.7])))
            share[0, i] = np.nan if plan["share"] is None else plan["share"]
        if plan["most"] is not None:
            most[0, i] = plan["most"]
        if plan["caps"] is not None:
            caps[0, i] = [plan["caps"].get(j, 0) for j in nodes]
        if ordered:
            order = data.draw(st.permutations(near))
            plan["order"] = order[: data.draw(st.integers(0, len(order)))]
            for place, j in enumerate(plan["order"]):
                weights[0, i, j] = len(plan["order"]) - place
        plans.append(plan)

    arrays = Plans(route, keep, share, most, caps)
    network = Network(links, route, second_offer=False, link_limit=None)
    forwarded = arrays.forwarded(np.array([arrivals]), network)
    basis = weights if ordered else np.array([capacity if route == "weighted" else spare])
    named = keys if route == "two-choices" else None
    expected = network.offered(forwarded, basis, named, caps)[0]

    requests = [Request((m + 0.5) / arrivals[i], i, 1.0) for i in nodes for m in range(arrivals[i])]
    large = world(n, places=1_000, links=links.tolist())  # so that all requests are taken
    result = simulate(requests, [capacity], large, planner=always(*plans))
    sent = np.zeros((n, n), dtype=np.int64)
    for record in result.records:
        assert record.node == record.target
        sent[record.request.node, record.target] += 1
    np.testing.assert_array_equal(np.where(links, sent, 0), expected)
    assert sent.sum(axis=1).tolist() == arrivals
    assert result.forwarded == expected.sum()


# --- Anything ------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_every_request_is_in_one_place_in_any_world(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, steps = int(rng.integers(1, 4)), 3
    capacity = rng.integers(0, 5, (steps, n)).astype(float).tolist()
    requests = [
        Request(float(time), int(rng.integers(n)), float(rng.exponential()))
        for time in rng.uniform(0, steps, 40)
    ]
    links = (rng.random((n, n)) < 0.7) & ~np.eye(n, dtype=bool)
    any_world = Settings(
        queue=float(rng.integers(0, 4)),
        places=None if rng.random() < 0.7 else int(rng.integers(0, 3)),
        servers=int(rng.integers(1, 4)),
        link_limit=None if rng.random() < 0.5 else int(rng.integers(0, 4)),
        second_offer=bool(rng.integers(2)),
        latency=float(rng.choice([0, 0.1, 1.5])),
        links=links.tolist(),
        by_work=bool(rng.integers(2)),
        period=float(rng.choice([0, 0.3])),
        age=float(rng.choice([0, 0.4])),
    )

    def shortest(system: System, i: int, now: float) -> int:
        return min([i, *system.neighbours(i)], key=system.held)

    plan = {"share": 0.6, "route": "equal"}
    for result in (
        simulate(requests, capacity, any_world, shortest),
        simulate(requests, capacity, any_world, planner=always(*[plan] * n)),
    ):
        assert result.arrivals == 40
        assert sum(map(sum, result.step_lost)) == result.lost
        for record in result.records:
            if record.start is not None:
                assert record.start >= record.request.time
            if record.end is not None:
                assert record.start is not None
                assert record.end >= record.start
