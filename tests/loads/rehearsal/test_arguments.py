"""Settings, times of requests, seeds, days, and loads at the edge."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from corral.data import Trace
from corral.errors import ArgumentError, UnknownNameError
from corral.loads.rehearsal import Rehearsal, Setting, rehearse
from corral.loads.rehearsal.balancers import BALANCERS, DEFAULT, balancer_of
from support.messages import refused

PLANS = ("local/equal", "overflow/least", "share=0.5/two-choices", "patient/all-to-two")


def load(
    arrivals: Any = None, capacity: Any = None, nodes: int = 3, steps: int = 24, step: int = 1
) -> Trace:
    rng = np.random.default_rng(6)
    shape = steps, nodes
    return Trace(
        nodes=tuple(f"n{i}" for i in range(nodes)),
        arrivals=rng.integers(9, size=shape) if arrivals is None else np.full(shape, arrivals),
        capacity=rng.integers(9, size=shape) if capacity is None else np.full(shape, capacity),
        times=np.arange(steps) * step,
        clock="integer" if step == 1 else "utc",
    )


def require_same(one: Rehearsal, two: Rehearsal, label: str) -> None:
    """Assert that a policy has the same result in both rehearsals."""
    first, second = dataclasses.asdict(one.sums[label]), dataclasses.asdict(two.sums[label])
    for name, values in first.pop("counts").items():
        np.testing.assert_array_equal(second["counts"][name], values)
    for name, values in first.items():
        np.testing.assert_array_equal(second[name], values)


class Recording:
    """Serves all requests at their own node, and records them."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, float, float]] = []

    def choose(self, request: Any) -> str:
        self.requests.append((request.node, request.time, request.work))
        name: str = request.node
        return name


# --- Settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("service", "fast"),
        ("work", "normal"),
        ("servers", 0),
        ("servers", 1.5),
        ("places", -1),
        ("latency", -0.5),
        ("latency", float("inf")),
        ("deadline", -1.0),
        ("report_period", -1.0),
        ("report_age", "old"),
    ],
)
def test_a_setting_out_of_range_is_refused(name: str, value: object) -> None:
    with refused(ValueError, name):
        Setting(**{name: value})  # type: ignore[arg-type]


def test_an_age_of_reports_needs_a_period_that_is_not_much_shorter() -> None:
    with refused(ValueError, "report_age=3", "report_period"):
        Setting(report_age=3)
    with refused(ValueError, "report_age=10001", "10,000"):
        Setting(report_age=10_001, report_period=1)
    Setting(report_age=10_000, report_period=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"work": "exponential"},
        {"servers": 2},
        {"places": 0},
        {"latency": 1.0},
        {"report_period": 1.0},
    ],
)
def test_the_game_of_the_replay_has_no_other_settings(changes: dict[str, Any]) -> None:
    with refused(ValueError, *changes):
        Setting(service="step", **changes)
    Setting(service="step", deadline=3)


def test_times_are_seconds_if_the_load_has_a_clock() -> None:
    setting = Setting(latency=30.0)
    assert setting.in_steps(30.0, load(step=300)) == 0.1
    assert setting.in_steps(30.0, load()) == 30


@pytest.mark.parametrize(
    ("error", "changes", "values"),
    [
        (ValueError, {"times": "normal"}, ("times", "normal")),
        (ValueError, {"window": 0}, ("window=0",)),
        (ValueError, {"days": 0, "window": 6}, ("days=0", 4)),
        (ValueError, {"days": 5, "window": 6}, ("days=5", 4)),
        (ValueError, {"rows": (0, 25)}, (25,)),
        (ArgumentError, {"arrivals": "known"}, ("known", "unknown")),
        (ValueError, {"arrivals": "late"}, ("arrivals", "late")),
        (ValueError, {"servers": 0}, ("servers",)),
        (ValueError, {"queue": -1}, ("queue",)),
    ],
)
def test_arguments_out_of_range_are_refused(
    error: type[Exception], changes: dict[str, Any], values: tuple[object, ...]
) -> None:
    with refused(error, *values):
        rehearse(load(), ["local"], **changes)


@pytest.mark.parametrize(
    ("error", "names", "values"),
    [
        (UnknownNameError, ["shortest"], ("shortest",)),
        (UnknownNameError, ["overflow/nearest"], ("nearest",)),
        (ArgumentError, ["choices=1"], ("choices=1", 2, 16)),
        (ArgumentError, ["choices=many"], ("choices=many",)),
        (ArgumentError, ["local=2"], ("local=2",)),
        (ValueError, ["random", "random"], ("random",)),
        (ValueError, [], ("policy",)),
    ],
)
def test_names_of_policies_that_are_wrong_are_refused(
    error: type[Exception], names: list[str], values: tuple[object, ...]
) -> None:
    with refused(error, *values):
        rehearse(load(), names)


def test_a_balancer_keeps_its_number() -> None:
    assert str(balancer_of("choices=5")) == "choices=5"
    assert str(balancer_of("choices")) == "choices=2"
    assert {balancer_of(name).name for name in DEFAULT} <= set(BALANCERS)


# --- Requests ------------------------------------------------------------------------------------


def test_uniform_times_keep_the_counts_and_all_policies_get_the_same_requests() -> None:
    trace, one, two = load(), Recording(), Recording()
    rehearse(trace, {"one": one, "random": "random", "two": two}, window=8, work="exponential")
    assert one.requests == two.requests
    counts = np.zeros_like(trace.arrivals)
    at = 0
    for w in range(3):
        for _ in range(int(trace.arrivals[8 * w : 8 * w + 8].sum())):
            node, time, work = one.requests[at]
            counts[8 * w + int(time), int(node[1:])] += 1
            assert work > 0
            at += 1
    np.testing.assert_array_equal(counts, trace.arrivals)
    assert len({time % 1 for _, time, _ in one.requests}) == len(one.requests)


def test_poisson_times_have_the_counts_of_the_load_as_means() -> None:
    trace = load(arrivals=40, capacity=40, steps=300)
    result = rehearse(trace, ["local"], times="poisson", window=50, places=10)
    total = trace.arrivals.sum()
    assert abs(result.requests.sum() - total) < 4 * total**0.5
    assert len(set(result.requests.tolist())) > 1


def test_the_seed_determines_everything() -> None:
    settings: dict[str, Any] = {"queue": 3, "window": 8, "work": "exponential", "servers": 2}
    names = ("random", "choices=2", *PLANS)
    one = rehearse(load(), names, seed=3, **settings)
    same = rehearse(load(), names[::-1], seed=3, **settings)
    other = rehearse(load(), names, seed=4, **settings)
    for name in names:
        require_same(one, same, name)
        assert one.sums[name].mean_wait.tolist() != other.sums[name].mean_wait.tolist()


def test_some_days_have_the_results_that_they_have_among_all_days() -> None:
    settings: dict[str, Any] = {"queue": 3, "window": 4, "seed": 2}
    names = ("random", *PLANS)
    everything = rehearse(load(), names, **settings)
    some = rehearse(load(), names, days=3, **settings)
    assert everything.windows == (0, 1, 2, 3, 4, 5)
    assert len(some.windows) == 3
    assert list(some.windows) == sorted(set(some.windows))
    for name in names:
        for count, values in everything.sums[name].counts.items():
            expected = values[list(some.windows)]
            np.testing.assert_array_equal(some.sums[name].counts[count], expected, name)


def test_rows_that_do_not_fill_a_window_are_not_played() -> None:
    trace = load()
    result = rehearse(trace, ["local"], rows=(2, 23), window=5)
    expected = [trace.arrivals[low : low + 5].sum() for low in (2, 7, 12, 17)]
    assert result.requests.tolist() == expected
    assert result.sums["local"].counts["arrivals"].tolist() == expected


# --- Edges ---------------------------------------------------------------------------------------

EVERYTHING = (*BALANCERS, *PLANS)


def test_without_capacity_requests_wait_or_are_lost() -> None:
    capacity = np.zeros((24, 3), dtype=np.int64)
    capacity[16:] = 5
    result = rehearse(load(arrivals=2, capacity=capacity), EVERYTHING, queue=5, window=8)
    for label, sums in result.sums.items():
        counts = {name: values[:2] for name, values in sums.counts.items()}
        assert (counts["served"] == 0).all(), label
        assert (counts["lost"] + sums.held[:2] == 48).all(), label
        assert (sums.held[:2] <= 15).all(), label
        assert sums.counts["served"][2] > 0, label
    local = result.sums["local"]
    assert (local.held[:2] == 15).all()
    assert (local.counts["waiting"][:2] == 3 * (1 + 3 + 4 * 6)).all()  # one of 2, 4, 5, 5 serves


def test_a_load_without_any_capacity_is_refused() -> None:
    with refused(ArgumentError, "capacity is 0"):
        rehearse(load(arrivals=2, capacity=0), ["local"], window=12)


def test_too_many_reports_are_refused() -> None:
    with refused(ArgumentError, "report_period=1e-05", "100,000", "10,000"):
        rehearse(load(), ["local"], report_period=1e-5)


def test_windows_without_requests() -> None:
    arrivals = np.zeros((24, 3), dtype=np.int64)
    arrivals[8:16] = 3
    result = rehearse(load(arrivals=arrivals), EVERYTHING, queue=2, window=8, latency=0.1)
    empty = rehearse(load(arrivals=0), EVERYTHING, queue=2, window=8)
    for label, sums in result.sums.items():
        assert sums.counts["arrivals"].tolist() == [0, 72, 0]
        assert result.costs[label].tolist()[::2] == [0, 0]
        assert (empty.costs[label] == 0).all()
        assert empty.sums[label].waits.sum() == 0


def test_all_policies_are_local_at_a_single_node() -> None:
    result = rehearse(load(nodes=1), EVERYTHING, queue=2, window=8)
    for label, sums in result.sums.items():
        assert result.costs[label].tolist() == result.costs["local"].tolist()
        assert sums.waits.tolist() == result.sums["local"].waits.tolist()
        assert (sums.counts["forwarded"] == 0).all()


def test_a_rehearsal_of_a_day_has_waits_by_hour() -> None:
    arrivals = np.zeros((48, 3), dtype=np.int64)
    arrivals[[7, 31]] = 5
    result = rehearse(load(arrivals=arrivals, capacity=9, steps=48, step=3600), ["local"], queue=9)
    hours = result.sums["local"].waits.sum(axis=1)  # in which service begins
    assert hours[7] > 0
    assert hours[7] + hours[8] == hours.sum() == 30
