"""Bootstrap intervals: against the normal approximation, and in the corners."""

from __future__ import annotations

import numpy as np
import pytest

from corral.trainers.evaluation.episodes import FEWEST_EPISODES, Interval, bootstrap_ratio
from support.messages import refused


def test_the_interval_of_a_mean_is_the_one_of_the_normal_approximation() -> None:
    values = np.random.default_rng(1).normal(10.0, 2.0, size=400)
    low, high = bootstrap_ratio(values, np.ones(400))
    half = 1.96 * values.std(ddof=1) / np.sqrt(400)
    assert low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_a_ratio_weighs_episodes_by_their_denominator() -> None:
    # One episode has all the load: whatever is drawn, its share dominates.
    low, high = bootstrap_ratio([90.0] + [0.0] * 9, [100.0] + [1.0] * 9)
    assert low == pytest.approx(0.0)  # only small ones drawn
    assert high == pytest.approx(0.9, abs=0.05)  # the large one drawn several times


def test_equal_episodes_have_an_interval_of_no_width() -> None:
    assert bootstrap_ratio([3.0] * 10, [4.0] * 10) == Interval(0.75, 0.75)


@pytest.mark.parametrize("episodes", [0, 1, 2, FEWEST_EPISODES - 1])
def test_few_episodes_give_no_interval(episodes: int) -> None:
    values = np.arange(episodes)
    assert bootstrap_ratio(values, np.ones(episodes)) == Interval(None, None)


def test_shapes_must_agree() -> None:
    with refused(ValueError, "(2,)", "(3,)"):
        bootstrap_ratio([1, 2], [1, 2, 3])


def test_the_same_seed_gives_the_same_interval() -> None:
    values = np.random.default_rng(0).random(20)
    ones = np.ones(20)
    assert bootstrap_ratio(values, ones, seed=3) == bootstrap_ratio(values, ones, seed=3)
    assert bootstrap_ratio(values, ones, seed=3) != bootstrap_ratio(values, ones, seed=4)
