"""Statistics of few runs: numbers worked out by hand, and what they say of equals."""

from __future__ import annotations

import numpy as np
import pytest

from corral.lab.comparing.statistics import (
    bootstrap_band,
    bootstrap_interval,
    difference,
    enough_seeds,
    iqm,
    mean,
    median,
    performance_profile,
    permutation_p,
    probability_of_improvement,
)
from support.messages import refused

RNG = np.random.default_rng(5)


def test_iqm_leaves_out_a_quarter_on_each_side() -> None:
    assert iqm([1, 2, 3, 4, 100]) == 3.0  # 1 and 100 are left out
    assert iqm([1, 2, 6]) == 3.0  # of three runs nothing is
    assert iqm([0, 0, 1, 2, 3, 4, 50, 60]) == 2.5
    assert iqm({"a": [1, 2], "b": [3, 100]}) == 2.5  # of all environments together
    np.testing.assert_array_equal(iqm([[1, 2, 3, 4], [4, 3, 2, 9]]), [2.5, 3.5])


def test_mean_and_median() -> None:
    assert mean({"a": [1, 3], "b": [10, 10, 10, 10]}) == 6.0  # environments weigh the same
    assert median([1, 100, 2]) == 2.0


def test_probability_of_improvement_counts_ties_half() -> None:
    assert probability_of_improvement([2, 2], [2, 1]) == 0.75
    assert probability_of_improvement([3, 4], [1, 2]) == 1.0
    assert probability_of_improvement({"a": [1], "b": [5]}, {"a": [2], "b": [4]}) == 0.5
    with refused(ValueError, "a", "b"):
        probability_of_improvement({"a": [1]}, {"b": [1]})


def test_profile_counts_what_is_above_a_threshold_not_at_it() -> None:
    np.testing.assert_array_equal(performance_profile([1, 2, 2, 3], [0, 2, 3]), [1, 0.25, 0])


def test_bootstrap_is_stratified_within_environments() -> None:
    # Were all drawn together, means would differ by which environment is drawn more often.
    low, high = bootstrap_interval({"a": [0, 0, 0], "b": [9, 9, 9]}, statistic=mean)
    assert (low, high) == (4.5, 4.5)
    assert bootstrap_interval([0, 0, 0, 9, 9, 9], statistic=mean) != (4.5, 4.5)


def test_a_curve_is_drawn_whole() -> None:
    runs = RNG.normal(size=6)
    rising = np.arange(4)[:, None] + runs  # [4, 6]: four points of six runs
    low, high = bootstrap_band(rising, resamples=500)
    np.testing.assert_allclose(np.diff(low), 1)
    np.testing.assert_allclose(np.diff(high), 1)


def test_same_seed_same_interval_and_one_run_has_none() -> None:
    scores = RNG.normal(size=7)
    assert bootstrap_interval(scores, seed=1) == bootstrap_interval(scores, seed=1)
    assert bootstrap_interval(scores, seed=1) != bootstrap_interval(scores, seed=2)
    assert bootstrap_interval([1.0]) == (None, None)
    with refused(ValueError, "b", 1, 2):
        bootstrap_band({"a": [1, 2], "b": [1]})


@pytest.mark.parametrize("scores", [[], {}, {"a": []}, 3.0])
def test_no_scores(scores: object) -> None:
    with refused(ValueError, "scores"):
        iqm(scores)  # type: ignore[arg-type]


def test_permutation_p_is_that_of_all_splits() -> None:
    # Of 252 splits of ten runs into halves, two put all of one group above the other.
    low, high = [1, 2, 3, 4, 5], [11, 12, 13, 14, 15]
    assert permutation_p(low, high) == 2 / 252
    assert permutation_p([1, 1, 1, 1, 1], [1, 1, 1, 1, 1]) == 1.0
    # Splits of 3 and 3: 20. Two of them are as unlikely as this one.
    assert permutation_p([1, 2, 3], [4, 5, 6]) == 0.1
    a = RNG.normal(size=5)
    assert permutation_p(a, a + 1e-6) > 0.5


def test_permutations_are_drawn_where_there_are_many() -> None:
    stats = pytest.importorskip("scipy.stats", reason="needs the extra optimum")
    low, high = RNG.normal(size=(2, 9))
    shifted = high + 0.7
    exact = stats.mannwhitneyu(low, shifted, method="exact").pvalue
    assert permutation_p(low, shifted) == pytest.approx(exact, abs=0.02)
    few = RNG.normal(size=(2, 6))
    exact = stats.mannwhitneyu(few[0], few[1], method="exact").pvalue
    assert permutation_p(*few) == pytest.approx(exact)
    # Two environments of three runs: one of 20 splits of each, or its mirror.
    both = permutation_p({"a": [1, 2, 3], "b": [1, 2, 3]}, {"a": [4, 5, 6], "b": [7, 8, 9]})
    assert both == pytest.approx(2 / 400, abs=0.002)


def test_three_seeds_can_show_nothing_and_five_can() -> None:
    assert not enough_seeds(3, 3)
    assert not enough_seeds(4, 100)
    assert enough_seeds(5, 5)
    assert not enough_seeds(5, 5, alpha=0.05 / 10)  # of ten comparisons


def test_difference_is_of_interquartile_means() -> None:
    assert difference([1, 2, 3, 4, 100], [0, 1, 2, 3, 4]) == 1.0
