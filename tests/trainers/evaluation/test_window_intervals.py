"""Intervals over windows: what they cover, against tables and by hand, and where there are none."""

from __future__ import annotations

import math

import numpy as np
import pytest

from corral.trainers.evaluation.episodes import Interval
from corral.trainers.evaluation.intervals import (
    FEWEST_WINDOWS,
    difference_interval,
    lag_1,
    largest_part,
    share_interval,
    student_quantile,
)
from support.messages import refused

WEEK = np.array([1.3, 1.2, 1.2, 1.2, 1.3, 0.4, 0.4])  # of mean 1


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    # Student's t, 97.5 %, as printed in any table of it.
    [(1, 12.706), (2, 4.303), (5, 2.571), (13, 2.160), (29, 2.045), (60, 2.000), (364, 1.966)],
)
def test_quantiles_are_those_of_the_tables(degrees: int, quantile: float) -> None:
    assert student_quantile(0.975, degrees) == pytest.approx(quantile, abs=6e-4)


def test_quantiles_are_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats", reason="the reference is scipy's")
    for degrees in (*range(1, 40), 99, 400):
        for probability in (0.9, 0.975, 0.995):
            expected = stats.t.ppf(probability, degrees)
            assert student_quantile(probability, degrees) == pytest.approx(expected, rel=1e-7)


def test_a_difference_worked_out_by_hand() -> None:
    # Of equal windows: -2 +- 2.571 x sqrt(2 / 6), in shares of 100 requests each.
    low, high = difference_interval([-1, -1, -1, -3, -3, -3], [100] * 6)
    half = 2.5706 * math.sqrt(6 / 5) / math.sqrt(6) / 100
    assert (low, high) == pytest.approx((-0.02 - half, -0.02 + half), rel=1e-4)


def test_a_share_is_symmetric_on_the_log_scale() -> None:
    low, high = share_interval([1, 1, 1, 3, 3, 3], [100] * 6)
    assert low is not None
    assert high is not None
    assert math.log(high / 0.02) == pytest.approx(2.5706 * math.sqrt(0.3) / math.sqrt(6), rel=1e-4)
    assert low * high == pytest.approx(0.02**2)
    assert share_interval([9] + [0] * 20, [10] * 21).low > 0  # type: ignore[operator]


def test_a_share_weighs_windows_by_their_load() -> None:
    # A tenth of whatever arrives is lost: nothing is uncertain, however uneven the windows.
    load = np.array([1, 10, 100, 7, 40, 300])
    assert share_interval(load / 10, load) == pytest.approx((0.1, 0.1))
    assert difference_interval(load / 10, load) == pytest.approx((0.1, 0.1))


@pytest.mark.parametrize("interval", [share_interval, difference_interval])
def test_there_is_none_of_few_windows_or_no_load(interval: object) -> None:
    assert callable(interval)
    rng = np.random.default_rng(0)
    few = FEWEST_WINDOWS - 1
    assert interval(rng.random(few), np.ones(few)) == Interval(None, None)
    assert interval(rng.random(few + 1), np.ones(few + 1)).low is not None
    assert interval([0] * 6, [0] * 6) == Interval(None, None)
    with refused(ValueError, "(2,)", "(3,)"):
        interval([1, 2], [1, 2, 3])


def coverage(days: int, spread: float, week: bool, season: int) -> tuple[float, float]:
    """How often the intervals of a share of 0.1, and of a difference of 0.02, hold them."""
    rng, held = np.random.default_rng(days), np.zeros(2)
    repetitions = 1500  # a standard error of 0.6 points
    for _ in range(repetitions):
        shape = WEEK[(rng.integers(7) + np.arange(days)) % 7] if week else 1.0
        load = 1000 * np.exp(rng.normal(0, 0.1, days) - 0.1**2 / 2)
        level = shape * np.exp(rng.normal(0, spread, days) - spread**2 / 2)
        share = share_interval(100 * level, load, season=season)
        difference = difference_interval(20 * level, load, season=season)
        for i, (true, (low, high)) in enumerate(((0.1, share), (0.02, difference))):
            assert low is not None
            assert high is not None
            held[i] += low <= true <= high
    return tuple((held / repetitions).tolist())


@pytest.mark.parametrize("days", [6, 14, 30])
def test_they_cover_what_they_say_where_days_are_independent(days: int) -> None:
    for spread in (0.2, 0.4):
        for season in (1, 7):
            assert all(0.92 <= each <= 0.97 for each in coverage(days, spread, False, season))


def test_that_sundays_are_quiet_is_no_chance() -> None:
    plain, by_weekday = (coverage(28, 0.2, True, season) for season in (1, 7))
    assert min(plain) > 0.99  # far too wide
    assert all(0.92 <= each <= 0.97 for each in by_weekday)


def test_neighbouring_windows_that_are_alike_correlate() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=400)
    assert abs(lag_1(noise)) < 0.1  # type: ignore[arg-type]
    assert lag_1(np.cumsum(noise)) > 0.9  # type: ignore[operator]
    # By hand: deviations -1, -1, 1, 1 have products 1, -1, 1, of squares 4.
    assert lag_1([2, 2, 4, 4]) == pytest.approx(1 / 4)
    assert lag_1([5, 5, 5]) is None


def test_weekends_are_no_correlation_of_days() -> None:
    rng = np.random.default_rng(1)
    load = np.tile(WEEK, 50) + rng.normal(0, 0.01, 350)
    assert lag_1(load) > 0.15  # type: ignore[operator]
    assert abs(lag_1(load, season=7)) < 0.15  # type: ignore[arg-type]


def test_the_largest_part_of_a_sum() -> None:
    assert largest_part([1, 1, 4, 2]) == 0.5
    assert largest_part([0, 0]) is None
