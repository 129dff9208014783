"""Compiled by numba, a rehearsal gives the same result as in plain Python."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from loads.rehearsal.both import Case, Listed, require_conserved
from loads.rehearsal.naive import Request, Settings

from corral.data import Trace
from corral.loads.rehearsal import Rehearsal, rehearse
from corral.loads.rehearsal.balancers import BALANCERS
from corral.loads.rehearsal.carried_out import by_plan
from corral.loads.rehearsal.compiled import global_names, is_available
from corral.loads.rehearsal.engine import Window

needs_numba = pytest.mark.skipif(
    not is_available(), reason="compiling needs numba: pip install corral[rehearse]"
)

NAMES = (
    *BALANCERS,
    "overflow/equal",
    "backlog=0.5+margin=1/least",
    "share=0.4/weighted",
    "capacity=0.8/fill",
    "backlog=0/two-choices",
)
SETTING: dict[str, Any] = {
    "work": "exponential",
    "servers": 2,
    "latency": 0.07,
    "report_period": 0.2,
    "report_age": 0.3,
    "deadline": 0.5,
}


def rehearsal(compiled: bool, **changes: Any) -> Rehearsal:
    """Rehearse all policies in one world, in which everything occurs."""
    rng = np.random.default_rng(4)
    trace = Trace(
        nodes=("a", "b", "c", "d"),
        arrivals=rng.integers(14, size=(48, 4)),
        capacity=rng.integers(14, size=(48, 4)),
        times=np.arange(48) * 3600,
        clock="utc",
    )
    neighbours = {"a": ["b", "c", "d"], "b": ["a", "c"], "c": ["a"], "d": ["c", "b", "a"]}
    arguments: dict[str, Any] = {
        "queue": 5,
        "link_limit": 4,
        "second_offer": True,
        "neighbours": neighbours,
        "forward_cost": 0.2,
        "wait_cost": 0.01,
        **{name: value * 3600 for name, value in SETTING.items() if isinstance(value, float)},
        **{name: value for name, value in SETTING.items() if not isinstance(value, float)},
    }
    return rehearse(trace, NAMES, compiled=compiled, **{**arguments, **changes})


@needs_numba
@pytest.mark.slow
def test_all_policies_give_the_same_result_to_the_request() -> None:
    plain, fast = rehearsal(False), rehearsal(True)
    for name, sums in plain.sums.items():
        others = fast.sums[name]
        for count, values in sums.counts.items():
            np.testing.assert_array_equal(others.counts[count], values, f"{name} {count}")
        for field in ("held", "in_flight", "waits", "lost_by_step"):
            values = dataclasses.asdict(sums)[field]
            np.testing.assert_array_equal(dataclasses.asdict(others)[field], values, name)
        np.testing.assert_allclose(others.mean_wait, sums.mean_wait, rtol=1e-12)
        np.testing.assert_allclose(others.mean_stay, sums.mean_stay, rtol=1e-12)
        np.testing.assert_array_equal(plain.costs[name], fast.costs[name], name)
    counts = [sums.counts for sums in plain.sums.values()]
    for count in counts[0]:  # everything occurs
        assert sum(values[count].sum() for values in counts) > 0, count
    for name, promise in plain.promises.items():
        np.testing.assert_array_equal(promise.cost, fast.promises[name].cost)
        for part, values in promise.parts.items():
            np.testing.assert_allclose(fast.promises[name].parts[part], values, atol=1e-9)


@needs_numba
@pytest.mark.slow
def test_places_and_sizes_give_the_same_result_to_the_request() -> None:
    rng = np.random.default_rng(1)
    nodes, steps = 3, 30
    capacity = rng.integers(9, size=(steps, nodes))
    times = np.sort(rng.uniform(0, steps, 500))
    requests = [
        Request(float(time), int(rng.integers(nodes)), float(rng.uniform(0, 1))) for time in times
    ]
    for places in (None, 3):
        settings = Settings(
            queue=3,
            places=places,
            servers=3,
            link_limit=4,
            second_offer=True,
            latency=0.0,
            links=[[i != j for j in range(nodes)] for i in range(nodes)],
            by_work=True,
        )
        case = Case(requests, capacity, settings)
        results = []
        for compiled in (False, True):
            engine = case.engine(compile_it=compiled)
            balancer = BALANCERS["least-work"]
            play = engine.player(balancer.choose, strict=True)
            window, memory = Window(engine), engine.memory(balancer.memory(nodes))
            chunk = Listed(case).take(0, steps)
            window.play(play, memory, capacity.astype(np.float64), chunk)
            require_conserved(window.result())
            results.append(window.result())
        assert results[0].counts == results[1].counts
        assert results[0].held == results[1].held
        assert results[0].waits.tolist() == results[1].waits.tolist()
        assert results[0].counts["lost"] > 0


def test_functions_that_a_plan_calls_are_recognised() -> None:
    """Otherwise compiled code would call plain Python, and fail."""
    assert {"two_drawn", "scanned"} <= global_names(by_plan)
