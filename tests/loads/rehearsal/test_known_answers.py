"""Known answers of queueing theory. All seeds are fixed; "errors" are standard errors.

Windows begin empty, which changes the means below by less than one error.
"""

from __future__ import annotations

import math
import resource
import time
from typing import Any

import numpy as np
import pytest
from loads.rehearsal.many_servers import Servers, two_choices_limit

from corral.data import Trace
from corral.envs.core import Array
from corral.loads.rehearsal import Rehearsal, rehearse
from corral.loads.rehearsal.compiled import is_available

needs_numba = pytest.mark.skipif(
    not is_available(), reason="many requests need numba: pip install corral[rehearse]"
)


def single(capacity: int, load: float, windows: int, steps: int, **setting: Any) -> Rehearsal:
    """Rehearse a single node with Poisson arrivals; ``load``: share of its capacity."""
    shape = windows * steps, 1
    trace = Trace(
        nodes=("a",),
        arrivals=np.full(shape, round(capacity * load)),
        capacity=np.full(shape, capacity),
        times=np.arange(windows * steps),
    )
    return rehearse(trace, ["local"], times="poisson", window=steps, **setting)


def lost_share(result: Rehearsal) -> Array:
    """Return the share of lost requests in each window."""
    counts = result.sums["local"].counts
    return np.asarray(counts["lost"] / counts["arrivals"])


def require_mean(values: Array, expected: float, largest_error: float) -> None:
    """Assert that the mean is within three errors, and that the error is small enough."""
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    assert error < largest_error * expected
    assert abs(float(values.mean()) - expected) < 3 * error


# --- One queue -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("load", "size"), [(0.8, 5), (1.2, 3), (0.5, 2)])
def test_loss_of_a_finite_queue(load: float, size: int) -> None:
    # M/M/1/K: (1 - load) load^K / (1 - load^(K + 1))
    result = single(100, load, 20, 40, places=size - 1, work="exponential")
    expected = (1 - load) * load**size / (1 - load ** (size + 1))
    require_mean(lost_share(result), expected, largest_error=0.03)


def test_mean_wait_with_equal_work() -> None:
    # M/D/1, Pollaczek and Khinchine: load / (2 (1 - load)) service times
    result = single(100, 0.7, 20, 100, places=10**6)
    wait = 100 * result.sums["local"].mean_wait
    require_mean(wait, 0.7 / 2 / 0.3, largest_error=0.02)


def test_mean_wait_and_time_with_exponential_work() -> None:
    # M/M/1: load / (1 - load) service times of waiting, and one more in the system
    result = single(100, 0.6, 20, 100, places=10**6, work="exponential")
    sums = result.sums["local"]
    require_mean(100 * sums.mean_wait, 0.6 / 0.4, largest_error=0.03)
    require_mean(100 * sums.mean_stay, 1 / 0.4, largest_error=0.02)


@pytest.mark.parametrize("work", ["deterministic", "exponential"])
def test_loss_without_places_depends_on_the_mean_work_only(work: str) -> None:
    # Erlang B with 8 servers and 6 requests per service time
    blocked = 1.0
    for servers in range(1, 9):
        blocked = 6 * blocked / (servers + 6 * blocked)
    result = single(80, 0.75, 20, 50, places=0, servers=8, work=work)
    require_mean(lost_share(result), blocked, largest_error=0.03)


def test_waiting_probability_of_several_servers() -> None:
    # Erlang C with 3 servers and 2 requests per service time: mean wait C / (3 - 2) service times
    result = single(90, 2 / 3, 20, 100, places=10**6, servers=3, work="exponential")
    wait = 30 * result.sums["local"].mean_wait  # a service takes 1/30 steps
    require_mean(wait, 4 / 9, largest_error=0.05)
    waits = result.sums["local"].waits.sum(axis=0)
    assert abs((1 - waits[0] / waits.sum()) - 4 / 9) < 0.02  # of the requests wait


# --- Many servers --------------------------------------------------------------------------------


def test_fresh_reports_order_the_balancers_and_old_ones_turn_the_order() -> None:
    servers = Servers(20, 0.9, warm_up=100, time=400)

    def mean(name: str, period: float = 0.0) -> float:
        return servers.mean_time(name, compiled=False, period=period)[0]

    random = mean("random")
    assert mean("shortest-queue") < mean("shortest-of=2") < random / 2
    assert mean("shortest-of=2", 4) < random < mean("shortest-queue", 4)
    assert random < mean("shortest-of=2", 80) < mean("shortest-queue", 80)


@needs_numba
@pytest.mark.slow
def test_two_choices_among_a_hundred_servers() -> None:
    limit = two_choices_limit(0.9)
    assert limit == pytest.approx(2.614, abs=0.001)
    servers = Servers(100, 0.9, warm_up=400, time=16_000)
    mean, error = servers.mean_time("shortest-of=2", compiled=True)
    print(f"\n100 servers: {mean:.4f}, error {error:.4f}, limit {limit:.4f}")
    assert error < 0.008 * limit
    assert limit < mean < 1.025 * limit


def largest_memory() -> float:
    """The largest memory of this process so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # KiB -> GiB


@needs_numba
@pytest.mark.slow
def test_two_choices_among_a_thousand_servers() -> None:
    limit = two_choices_limit(0.9)
    began, before = time.process_time(), largest_memory()
    servers = Servers(1_000, 0.9, warm_up=400, time=6_000)
    mean, error = servers.mean_time("shortest-of=2", compiled=True)
    seconds = time.process_time() - began
    memory = largest_memory() - before
    print(
        f"\n1,000 servers: {mean:.4f}, error {error:.4f}, limit {limit:.4f}; "
        f"{seconds:.0f} s, {memory:.2f} GiB"
    )
    assert error < 0.004 * limit
    assert abs(mean - limit) < 0.005 * limit
    assert memory < 2


@needs_numba
@pytest.mark.slow
def test_balancers_among_a_hundred_servers_with_reports_of_any_age() -> None:
    servers = Servers(100, 0.9, warm_up=1_000, time=2_000)
    random, _ = servers.mean_time("random", compiled=True)
    # 100 queues M/M/1 with mean 10. Their relaxation takes about 400 service times, so batches are
    # not independent: about 500 independent values, of deviation 10, have an error of 0.45.
    assert abs(random - 10) < 2 * 0.45
    periods = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 25.0, 50.0)
    queue, two = (
        [servers.mean_time(name, compiled=True, period=period)[0] for period in periods]
        for name in ("shortest-queue", "shortest-of=2")
    )
    print("\nperiod  shortest-queue  shortest-of=2  random")
    for row in zip(periods, queue, two, strict=True):
        print("{:6g}{:16.2f}{:15.2f}".format(*row), f"{random:7.2f}")
    crossings = {
        "shortest-queue beyond shortest-of=2": crossing(periods, queue, two),
        "shortest-queue beyond random": crossing(periods, queue, [random] * len(periods)),
        "shortest-of=2 beyond random": crossing(periods, two, [random] * len(periods)),
    }
    for text, period in crossings.items():
        print(f"{text}: reports every {period:.2g} service times")
    assert queue[0] < two[0] < random  # fresh
    assert two[4] < random < queue[4]  # 3 service times
    assert random < two[-1] < queue[-1]  # 50
    assert 0.1 < crossings["shortest-queue beyond shortest-of=2"] < 0.3
    assert 1 < crossings["shortest-queue beyond random"] < 3
    assert 25 < crossings["shortest-of=2 beyond random"] < 50
    assert sorted(queue) == queue


def crossing(periods: tuple[float, ...], values: list[float], others: list[float]) -> float:
    """Return the period from which on ``values`` exceed ``others``, interpolated."""
    differences = np.array(values) - np.array(others)
    first = int(np.flatnonzero(differences > 0)[0])
    before, after = differences[first - 1], differences[first]
    part = -before / (after - before)
    return float(periods[first - 1] + part * (periods[first] - periods[first - 1]))
