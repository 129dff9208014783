"""Events at the same moment, and sums that are rounded: cases computed by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from loads.rehearsal.both import (
    Case,
    Erratic,
    Played,
    by_engine,
    by_naive,
    draws_of,
    plans_by_engine,
    plans_by_naive,
    require_equal,
)
from loads.rehearsal.naive import Request, Settings


def case_of(
    requests: Sequence[tuple[float, int, float]],
    capacity: list[list[int]],
    *,
    queue: float = 10,
    places: int | None = None,
    latency: float = 0,
    second_offer: bool = False,
    period: float = 0,
    by_work: bool = False,
) -> Case:
    """Return a case in which all nodes are linked. Requests are (time, node, work)."""
    nodes = len(capacity[0])
    settings = Settings(
        queue=queue,
        places=places,
        servers=1,
        link_limit=None,
        second_offer=second_offer,
        latency=latency,
        links=[[i != j for j in range(nodes)] for i in range(nodes)],
        period=period,
        by_work=by_work,
    )
    return Case([Request(*row) for row in requests], np.array(capacity), settings)


def both(case: Case, name: str, uniform: list[float] | None = None) -> Played:
    """Play a balancer in both simulators, which must agree; return the engine's result."""
    numbers = np.array(uniform if uniform else [0.0] * draws_of(name, len(case.requests)))
    played, outcome = by_engine(case, name, numbers), by_naive(case, name, numbers)
    require_equal(played.result, outcome)
    assert (played.spare, played.lost) == (outcome.step_spare, outcome.step_lost)
    return played


def test_a_delivery_at_the_start_of_a_step_belongs_to_this_step() -> None:
    # In step 0 the request could not be served any more, and would be refused.
    case = case_of([(0.0, 0, 1.0)], [[0, 1], [0, 1], [0, 1]], latency=1)
    counts = both(case, "random", [0.99]).result.counts
    assert (counts["served"], counts["refused"]) == (1, 0)


def test_a_second_offer_at_the_start_of_a_step_belongs_to_this_step() -> None:
    case = case_of(
        [(0.25, 0, 1.0)], [[0, 0, 0], [0, 0, 1]], latency=0.25, second_offer=True
    )  # offered at 0.5, and at 1
    counts = both(case, "random", [0.4]).result.counts
    assert (counts["served"], counts["refused"], counts["lost"]) == (1, 1, 0)


def test_a_delivery_at_the_end_of_the_window_is_in_flight() -> None:
    case = case_of([(0.5, 0, 1.0)], [[1, 1]], latency=0.5)
    result = both(case, "random", [0.99]).result
    assert (result.in_flight, result.counts["refused"]) == (1, 0)


def test_a_board_of_the_same_moment_is_visible_although_its_time_is_rounded_up() -> None:
    assert 3 * 0.1 > 0.3
    case = case_of([(0.25, 0, 1.0), (0.25, 0, 1.0), (0.3, 0, 1.0)], [[1, 9]], places=10, period=0.1)
    assert both(case, "shortest-queue").result.counts["forwarded"] == 1


def test_finished_work_leaves_no_rounding_error_in_the_work_in_flight() -> None:
    # At 1.5 both servers are free of its work: the tie goes to the own node.
    assert 0.2 + 0.7 + 0.3 + 0.1 - 0.2 - 0.7 - 0.3 - 0.1 > 0
    requests = [(0.01, 0, work) for work in (0.2, 0.7, 0.3, 0.1)] + [(1.5, 0, 1.0)]
    assert both(case_of(requests, [[9, 0], [9, 9]]), "least-work").result.counts["forwarded"] == 0


def test_finished_work_leaves_no_rounding_error_in_a_backlog() -> None:
    # At 1.5 no work is left, and no capacity: 0 < 0 is false.
    assert 0.2 + 0.7 + 0.1 - 0.2 - 0.7 - 0.1 < 0
    requests = [(0.01, 0, work) for work in (0.3, 0.2, 0.7, 0.1)] + [(1.5, 0, 1.0)]
    case = case_of(requests, [[9], [0]], queue=0, by_work=True)
    assert both(case, "local").result.counts["lost"] == 1


def test_plans_see_the_queue_in_work_if_requests_have_sizes() -> None:
    case = case_of(
        [(0.5, 0, 0.25)] * 6 + [(1.5, 0, 0.25)] * 3, [[0, 0], [2, 2]], queue=2, by_work=True
    )
    seed = next(seed for seed in range(99) if "keep" not in first_plan(case, seed))
    result, erratic = plans_by_engine(case, seed)
    assert erratic.views[1][0].queue == 1  # 6 requests of 0.25
    require_equal(result, plans_by_naive(case, seed))


def first_plan(case: Case, seed: int) -> dict[str, object]:
    """Return the first plan of node 0, which has no keep and no share if all requests stay."""
    numbers = [0, 0, *case.capacity[0, [1, 0]].tolist()]
    plan = Erratic(case, seed).drawn(0, 0, [*numbers[:2], numbers[2], 0, numbers[3]])
    return plan if "share" not in plan else {"keep": 0}


def test_a_queue_of_sizes_that_is_exactly_full_takes_no_request() -> None:
    # Step 0 fills the queue. Step 1 takes 5 requests, whatever their times.
    times = [1.05, 1.08, 1.09, 1.2, 1.32, 1.34, 1.43]
    requests = [(0.5, 0, 1.0)] * 5 + [(time, 0, 1.0) for time in times]
    case = case_of(requests, [[0], [5]], queue=5, by_work=True)
    assert both(case, "local").lost == [[0], [2]]


def test_requests_count_as_in_flight_from_the_moment_they_are_sent() -> None:
    # Node 0 holds one request when its second one comes, so it sends that one to node 1. The third
    # one comes while the second one flies: both links count one request, so it stays.
    case = case_of([(0.0, 0, 1.0), (0.1, 0, 1.0), (0.2, 0, 1.0)], [[2, 2]], latency=0.5)
    played = both(case, "least-requests")
    assert played.result.counts["forwarded"] == 1
