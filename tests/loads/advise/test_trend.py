"""A load that grows is found, one that does not is left alone, and the saving follows the line."""

from __future__ import annotations

import numpy as np
import pytest

from corral.loads.advise.trend import trend_of

DAYS = 28
WEEK = np.array([1.0, 1.02, 1.05, 1.03, 0.98, 0.7, 0.6])


def loads(rng: np.random.Generator, growth: float = 0.0, noise: float = 0.03) -> np.ndarray:
    """Daily totals of four weeks with weekdays."""
    day = np.arange(DAYS)
    return 10_000 * WEEK[day % 7] * (1 + growth) ** day * (1 + noise * rng.standard_normal(DAYS))


def test_growth_is_found_with_its_slope_and_what_the_saving_becomes() -> None:
    rng, day = np.random.default_rng(0), np.arange(DAYS)
    saved = 100 + 4.0 * day + 30 * WEEK[day % 7] + rng.standard_normal(DAYS)
    for _ in range(50):
        found = trend_of(loads(rng, 0.0066), saved, days=True)
        assert found is not None
        assert found.slope == pytest.approx(0.0066, rel=0.35)
        assert found.t > 4
        assert found.weekdays
    assert found.saving == pytest.approx(saved.mean())
    level = 100 + 30 * WEEK.mean()
    assert found.last == pytest.approx(level + 4 * 27, abs=1.5)
    assert found.ahead == pytest.approx(level + 4 * np.arange(28, 56).mean(), abs=3)
    assert found.ahead_low < level + 4 * np.arange(28, 56).mean() < found.ahead_high


@pytest.mark.parametrize("law", ["independent", "weekdays", "correlated", "heavy tails"])
@pytest.mark.parametrize("days", [8, 14, 28])
def test_a_load_without_trend_is_left_alone(law: str, days: int) -> None:
    rng, draws, silent = np.random.default_rng(1), 400, 0
    for _ in range(draws):
        noise = rng.standard_normal(days + 20)
        if law == "correlated":
            for day in range(1, len(noise)):
                noise[day] += 0.4 * noise[day - 1]
        if law == "heavy tails":
            noise = rng.standard_t(2.5, days + 20)
        total = 10_000 * (1 + 0.05 * noise[-days:])
        if law == "weekdays":
            total = total * WEEK[np.arange(days) % 7]
        silent += trend_of(total, np.zeros(days), days=True) is None
    assert silent >= 0.95 * draws


def test_nothing_is_said_of_few_days_or_of_constant_ones() -> None:
    assert trend_of(np.arange(5.0), np.zeros(5), days=True) is None
    assert trend_of(np.full(28, 7.0), np.zeros(28), days=True) is None
    assert trend_of(np.zeros(28), np.zeros(28), days=True) is None
    assert trend_of(np.arange(1.0, 29), np.zeros(28), days=True) is not None


def test_windows_that_are_no_days_have_no_weekdays() -> None:
    rng = np.random.default_rng(2)
    found = trend_of(1000 + 10 * np.arange(28) + rng.standard_normal(28), np.ones(28), days=False)
    assert found is not None
    assert not found.weekdays
    assert (found.saving, found.last, found.ahead) == pytest.approx((1, 1, 1))
