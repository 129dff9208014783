"""The best rule: chosen on other days than those it is compared on, of equal ones the first."""

from __future__ import annotations

import numpy as np
import pytest

from corral.loads.best_rule import BestRule, best_of_others, correlated, rule_of


def test_a_rule_is_chosen_on_all_windows_but_the_one_that_it_is_compared_in() -> None:
    # "steady" costs 5 everywhere; "lucky" is far cheaper in the last window, and dearer elsewhere.
    costs = {"steady": np.array([5.0, 5, 5, 5]), "lucky": np.array([6.0, 6, 6, 0])}
    found = best_of_others(costs)
    assert found is not None
    # In the first three windows the others speak for lucky, by the last; there they do not.
    assert found.labels == ("lucky", "lucky", "lucky", "steady")
    assert found.cost.tolist() == [6, 6, 6, 5]
    assert found.names == ["lucky", "steady"]
    assert (found.among, found.chosen_on) == (2, "all other windows")


@pytest.mark.parametrize("window", range(6))
def test_what_a_window_costs_does_not_say_which_rule_is_best_in_it(window: int) -> None:
    rng = np.random.default_rng(window)
    costs = {name: rng.random(6) for name in "abcd"}
    before = best_of_others(costs)
    costs["c"][window] = -1000.0
    after = best_of_others(costs)
    assert before is not None
    assert after is not None
    assert before.labels[window] == after.labels[window]
    others = [label for i, label in enumerate(after.labels) if i != window]
    assert others == ["c"] * 5


def test_of_equal_rules_it_is_the_first() -> None:
    same = np.array([1.0, 2.0, 3.0])
    found = best_of_others({"z": same, "a": same.copy(), "worse": same + 1})
    assert found is not None
    assert found.labels == ("z", "z", "z")


def test_there_is_none_of_one_window_or_no_rule() -> None:
    assert best_of_others({"a": np.ones(1)}) is None
    assert best_of_others({}) is None


def test_one_that_was_chosen_elsewhere_is_kept() -> None:
    costs = {"a": np.array([1.0, 1.0]), "b": np.array([9.0, 9.0])}
    found = rule_of(costs, "b", "the training rows 0:10")
    assert (found.labels, found.cost.tolist(), found.among) == (("b", "b"), [9, 9], 2)
    assert found.chosen_on == "the training rows 0:10"


@pytest.mark.parametrize(
    ("cost", "season", "narrow"),
    [
        ([3.0, 1, 2, 3, 1, 2, 2, 3, 1, 2, 1, 3], 1, (False, False)),
        ([1.0] * 7 + [2.0] * 7, 1, (True, False)),  # each like the one before
        ([1.0] * 12 + [30.0], 1, (False, True)),  # one window is most of it
        ([0.0] * 8, 1, (False, False)),  # nothing costs anything
        ([*[4.0] * 5, 1, 1] * 4, 1, (True, False)),  # quiet weekends,
        ([*[4.0] * 5, 1, 1] * 4, 7, (False, False)),  # which no interval takes for chance
    ],
)
def test_it_is_told_where_intervals_are_too_narrow(
    cost: list[float], season: int, narrow: tuple[bool, bool]
) -> None:
    rule = BestRule(("a",) * len(cost), np.array(cost), "", season=season)
    assert (correlated(rule.lag_1), rule.dominated) == narrow
