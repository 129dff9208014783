"""What to play: a team where it is better for certain, and hardly ever one that is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from corral.errors import RunError
from corral.loads.from_rule.recommend import (
    RECOMMENDATION,
    Recommendation,
    recommend,
    recommendation_of,
)
from corral.trainers.evaluation.intervals import difference_interval
from corral.trainers.runs.run import Run
from support.messages import refused, shown

ARRIVALS = np.full(8, 1000.0)
RULE = np.array([100.0, 120, 80, 90, 110, 100, 95, 105])
SMALL = np.array([1.0, -2, 0, 1, -1, 2, -1, 0])  # sums to 0


def found(*differences: np.ndarray, windows: int = 8) -> Recommendation:
    """The recommendation where checkpoints 0, 10, 20, ... cost so much more than the rule."""
    costs = {10 * k: (RULE + each)[:windows] for k, each in enumerate(differences)}
    return recommend("overflow/two", "local/equal", RULE[:windows], ARRIVALS[:windows], costs)


def test_a_team_that_costs_less_in_every_window_is_recommended() -> None:
    it = found(0 * SMALL, SMALL - 10)
    assert (it.play, it.checkpoint, it.compared) == ("team", 10, 2)
    assert it.difference == pytest.approx(-1.0)  # 10 of 1,000 requests
    assert it.requests == pytest.approx(-10.0)
    assert it.high is not None
    assert it.high < 0
    shown("\n".join(it.lines()), "-1.00 points")
    assert all(len(line) <= 80 for line in it.lines())


@pytest.mark.parametrize("differences", [(SMALL + 5,), (SMALL, SMALL - 0.1), (SMALL - 10,)])
def test_the_rule_is_recommended_where_nothing_learned_is_better(
    differences: tuple[np.ndarray, ...],
) -> None:
    assert found(*differences).play == "rule"  # the last one is the untrained team


def test_the_start_of_a_team_is_named_if_it_is_not_the_rule() -> None:
    costs = {0: RULE - 30, 10: RULE - 20 + SMALL}
    it = recommend("share=0.6/equal", None, RULE, ARRIVALS, costs, "overflow/equal")
    assert it.play == "rule"
    shown(it.why, "overflow/equal")


def test_below_six_windows_the_rule_is_recommended_and_why_is_said() -> None:
    it = found(SMALL, SMALL - 50, windows=5)
    assert (it.play, it.low) == ("rule", None)
    shown(it.why, "5 validation windows")
    assert recommend("local/equal", None, RULE[:0], ARRIVALS[:0], {}).play == "rule"


def test_a_team_that_was_lucky_once_is_not_recommended() -> None:
    lucky = found(0 * SMALL, SMALL - 10, SMALL + 9, SMALL + 8, SMALL + 9)
    assert lucky.play == "rule"
    assert lucky.high is not None
    assert lucky.high < 0  # its own interval does not know that it was chosen
    assert lucky.later == pytest.approx(0.85)  # of the last two
    shown(lucky.why, "interval", 0)
    assert found(0 * SMALL, SMALL + 9, SMALL - 8, SMALL - 10, SMALL - 9).play == "team"


def test_the_best_of_many_that_are_no_better_is_hardly_ever_recommended() -> None:
    """Each walks away from the one before, as checkpoints do; none is better than the rule."""
    rng = np.random.default_rng(1)
    wrong = plain = 0
    for _ in range(200):
        walk = rng.normal(0, 5, (20, 8)).cumsum(axis=0)
        wrong += found(0 * SMALL, *walk).play == "team"
        best = walk[walk.sum(axis=1).argmin()]
        plain += (difference_interval(best, ARRIVALS).high or 0) < 0
    assert wrong <= 12  # 5 %, and two deviations
    assert plain > wrong


def test_it_is_kept_with_the_run_and_read_back(tmp_path: Path) -> None:
    run = Run(tmp_path, None)  # type: ignore[arg-type]
    assert run.recommendation is None
    it = found(0 * SMALL, SMALL - 10)
    it.write(tmp_path)
    assert run.recommendation == it == recommendation_of(run)
    (tmp_path / RECOMMENDATION).write_text("{}")
    with refused(RunError, tmp_path / RECOMMENDATION, "play"):
        run.recommendation  # noqa: B018
