"""Rehearsals of request logs: recorded times, and sizes."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

import corral
from corral.data import RequestLog, Trace
from corral.errors import ArgumentError, TraceError
from corral.loads.rehearsal.screen import time_text
from support.messages import refused, shown

STEP = 10
STEPS = 12


def log_of(seed: int = 0, *, sizes: bool = False, requests: int = 240) -> RequestLog:
    """Return a log of two nodes over ``STEPS`` steps from 1970-01-02."""
    rng = np.random.default_rng(seed)
    time = 86_400 + np.sort(rng.integers(0, STEP * STEPS * 1000, requests)) / 1000
    time[0], time[-1] = 86_400, 86_400 + STEP * STEPS - 0.001
    node = rng.integers(0, 2, requests)
    work = rng.exponential(100, requests) + 1 if sizes else None
    return RequestLog(("a", "b"), node, time, work)


def trace_of(log: RequestLog, capacity: int | None = 10) -> Trace:
    """Return the load of a log, with equal capacities."""
    step = ((log.time - 86_400) // STEP).astype(int)
    arrivals = np.zeros((STEPS, 2), dtype=np.int64)
    np.add.at(arrivals, (step, log.node), 1)
    times = 86_400 + STEP * np.arange(STEPS)
    full = None if capacity is None else np.full((STEPS, 2), capacity)
    return Trace(("a", "b"), arrivals, full, times, "utc")


def waits_of(log: RequestLog, node: int, work_per_second: float) -> list[float]:
    """Return the waits in seconds at a single server that takes every request, in order."""
    works = np.ones(len(log)) if log.work is None else log.work
    free, waits = 0.0, []
    for time, at, work in zip(log.time, log.node, works, strict=True):
        if at == node:
            begin = max(free, time)
            waits.append(begin - time)
            free = begin + work / work_per_second
    return waits


def test_requests_keep_their_times() -> None:
    log = log_of()
    rehearsal = corral.rehearse(
        trace_of(log), ["local"], requests=log, window=STEPS, places=10_000, deadline=2.0
    )
    sums = rehearsal.sums["local"]
    waits = [wait for node in (0, 1) for wait in waits_of(log, node, 1.0)]
    assert sums.counts["arrivals"].tolist() == [len(log)]
    late = sum(wait > 2.0 for wait in waits)
    # Requests whose service would begin after the window are not counted.
    assert late - sums.held[0] <= sums.counts["late"][0] <= late
    assert sums.counts["late"][0] > 0


def test_sizes_are_served_at_the_speed_of_the_node() -> None:
    log = log_of(1, sizes=True)
    assert log.work is not None
    speed = 4 * log.work.sum() / (STEP * STEPS)  # so that hardly any request is held at the end
    rehearsal = corral.rehearse(
        trace_of(log), ["local"], requests=log, window=STEPS, places=10_000, capacity=speed
    )
    sums = rehearsal.sums["local"]
    waits = np.array([wait for node in (0, 1) for wait in waits_of(log, node, speed)])
    assert sums.counts["started"].tolist() == [len(log)]
    np.testing.assert_allclose(sums.mean_wait[0] * STEP, waits.mean(), rtol=1e-6)


def test_a_multiple_is_of_the_mean_work_of_each_node() -> None:
    log = log_of(2, sizes=True)
    assert log.work is not None
    half = corral.rehearse(trace_of(log), ["local"], requests=log, window=STEPS, capacity="0.5x")
    ample = corral.rehearse(trace_of(log), ["local"], requests=log, window=STEPS, capacity="9x")
    served = half.sums["local"].counts["served"][0]
    assert 0.3 * len(log) < served < 0.75 * len(log)
    assert ample.sums["local"].counts["lost"][0] < 0.1 * len(log)


def test_policies_may_count_the_work_in_flight() -> None:
    log = log_of(3, sizes=True, requests=600)
    rehearsal = corral.rehearse(
        trace_of(log),
        ["local", "random", "least-work", "work-of=2", "least-requests"],
        requests=log,
        window=STEPS,
        capacity="1.05x",
        places=10_000,
    )
    waits = {label: float(sums.mean_wait[0]) for label, sums in rehearsal.sums.items()}
    assert waits["least-work"] < waits["work-of=2"] < waits["random"]
    assert waits["least-work"] < waits["local"]


class SizeBySize:
    """Sends large requests to b and small ones to a."""

    def __init__(self) -> None:
        self.works: deque[float] = deque()

    def choose(self, request: object) -> str:
        assert isinstance(request, corral.loads.rehearsal.Request)
        self.works.append(request.work)
        return "b" if request.work > 1 else "a"


def test_a_custom_policy_sees_the_size_in_mean_sizes() -> None:
    log = log_of(4, sizes=True)
    assert log.work is not None
    policy = SizeBySize()
    corral.rehearse(trace_of(log), [policy], requests=log, window=STEPS, capacity="2x")
    np.testing.assert_allclose(policy.works, log.work / log.work.mean())


@pytest.mark.parametrize("capacity", [None, 0, -1, "x", "0x", float("nan"), "many"])
def test_sizes_need_a_capacity_in_work(capacity: object) -> None:
    log = log_of(5, sizes=True)
    with refused(ArgumentError, "1.25x"):
        corral.rehearse(trace_of(log), ["local"], requests=log, window=STEPS, capacity=capacity)


def test_sizes_exclude_drawn_work_and_the_game_of_the_replay() -> None:
    log = log_of(6, sizes=True)
    for setting in ({"work": "exponential"}, {"service": "step"}):
        with refused(ArgumentError, *setting.values()):
            corral.rehearse(
                trace_of(log), ["local"], requests=log, window=STEPS, capacity="2x", **setting
            )
    with refused(ArgumentError, "requests"):
        corral.rehearse(trace_of(log), ["local"], requests=log, times="poisson", window=STEPS)


def test_log_and_load_must_agree() -> None:
    log = log_of(7)
    other = trace_of(log_of(8))
    with refused(TraceError, "a"):
        corral.rehearse(other, ["local"], requests=log, window=STEPS)


def test_logged_requests_have_drawn_work_without_sizes() -> None:
    log = log_of(9)
    costs = {
        work: corral.rehearse(
            trace_of(log), ["local"], requests=log, window=STEPS, work=work, places=10_000
        ).sums["local"]
        for work in ("deterministic", "exponential")
    }
    assert costs["deterministic"].counts["arrivals"] == costs["exponential"].counts["arrivals"]
    assert costs["deterministic"].mean_wait[0] != costs["exponential"].mean_wait[0]


def test_policies_of_equal_cost_are_compared_by_their_waits() -> None:
    log = log_of(10, sizes=True, requests=600)
    rehearsal = corral.rehearse(
        trace_of(log),
        ["random", "least-work"],
        requests=log,
        window=STEPS,
        capacity="1.05x",
        places=10_000,
    )
    assert [summary.policy for summary in rehearsal.summaries] == ["least-work", "random"]
    (sentence,) = rehearsal.verdict()
    waits = [summary.waits.mean for summary in rehearsal.summaries]
    shown(sentence, "least-work", *map(time_text, waits))
