"""What is worth it: decided on invented differences."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from corral.loads.advise.enough import FEWEST_UPDATES, Training
from corral.loads.advise.verdict import (
    LEAST_WORTH,
    LONGEST,
    Decision,
    Saving,
    Worth,
    decide,
    saving,
    worth_of,
)
from corral.loads.replay import replay
from corral.trainers.evaluation.intervals import difference_interval, student_quantile
from support.loads import days

WORTH = 0.001


def found(share: float, half: float, windows: int = 8) -> Saving:
    return Saving(share, share - half, share + half, 0.0, windows, 100_000.0, "a day")


@pytest.mark.parametrize(
    ("share", "half", "answer"),
    [
        (0.004, 0.003, "worth it"),
        (0.004, 0.005, "too few days"),  # the lower end is below 0
        (0.0009, 0.0005, "too few days"),  # it saves for certain, perhaps enough
        (0.0005, 0.0003, "not worth it"),
        (-0.002, 0.001, "not worth it"),
        (-0.002, 0.0035, "too few days"),  # the upper end may be worth it
        (0.0, 0.0, "not worth it"),
    ],
)
def test_a_team_is_worth_it_by_its_interval(share: float, half: float, answer: str) -> None:
    assert decide(found(share, half), WORTH).answer == answer


def test_the_mean_must_be_worth_it_too() -> None:
    assert decide(found(0.004, 0.003), 0.005).answer == "too few days"
    assert decide(found(0.004, 0.0005), 0.005).answer == "not worth it"


def test_how_many_more_days_would_do() -> None:
    """(t sd / d)^2 - n, of the differences themselves."""
    each = np.array([5.0, -2, 6, 3, -4, 7, 1, -3])
    load = np.full(8, 1000.0)
    low, high = difference_interval(each, load)
    assert low is not None
    assert high is not None
    own = Saving(each.mean() / 1000, low, high, 0.0, 8, 1000.0, "a day")
    t, sd = student_quantile(0.975, 7), each.std(ddof=1)
    needed = math.ceil((t * sd / each.mean()) ** 2)
    assert decide(own, WORTH) == Decision("too few days", needed - 8, "team")
    below = dataclasses.replace(own, share=0.0005, low=-0.0005, high=0.0015)
    assert decide(below, WORTH).more == 8 * 2**2 - 8  # twice as narrow: the upper end at WORTH


def test_more_days_than_a_year_are_unlikely_to_tell() -> None:
    half = 0.001
    share = 0.0015
    many = math.ceil(LONGEST / (half / share) ** 2)
    assert decide(found(share, 2 * half, 8), WORTH).more is not None
    unlikely = Decision("too few days", None, "team")
    assert decide(found(share, half * 12, many), WORTH) == unlikely
    assert decide(found(WORTH, half), WORTH) == unlikely


def test_below_six_days_there_is_nothing_to_decide_on() -> None:
    few = Saving(0.01, None, None, 0.01, 4, 1000.0, "a day")
    assert decide(few, WORTH) == Decision("too few days", 2, "team")


def test_a_team_with_a_worse_mean_leans_to_the_rule_and_no_days_are_promised() -> None:
    for share in (-0.0001, -0.002, 0.0):
        assert decide(found(share, 0.004, 30), WORTH) == Decision("too few days", None, "rule")
    assert decide(found(0.004, 0.005), WORTH).leans == "team"
    for settled in (found(0.004, 0.003), found(-0.002, 0.001)):
        assert decide(settled, WORTH).leans is None


def test_what_may_be_chance() -> None:
    assert found(0.004, 0.005).open_ended
    assert not found(0.004, 0.003).open_ended
    assert not found(-0.004, 0.003).open_ended
    assert Saving(0.01, None, None, 0.01, 4, 1000.0, "a day").open_ended


@pytest.mark.parametrize(
    ("training", "reason"),
    [
        (Training(FEWEST_UPDATES - 1, 100, None, False), "updates"),
        (Training(FEWEST_UPDATES, 100, 0.01, True), "falling"),
        (Training(FEWEST_UPDATES, 100, 0.01, False), None),
    ],
)
def test_a_short_training_speaks_against_no_team(training: Training, reason: str | None) -> None:
    assert decide(found(0.004, 0.003), WORTH, training).answer == "worth it"
    for against in (found(-0.002, 0.001), found(0.004, 0.005)):
        told = decide(against, WORTH, training)
        assert told.reason == reason
        assert (told.answer == "not trained enough") == (reason is not None)


def test_how_much_must_be_saved() -> None:
    assert worth_of(0.3, 5.0) == Worth(0.3, "given")
    assert worth_of(0.0, 5.0) == Worth(0.0, "given")
    assert worth_of(None, 1.88) == Worth(pytest.approx(0.188), "capacity")
    for less in (None, 0.0, -1.0, 0.5, 1.0):
        assert worth_of(None, less) == Worth(LEAST_WORTH, "least")
    assert worth_of(None, None).share == pytest.approx(0.001)


def test_a_saving_is_paired_by_day() -> None:
    result = replay(days(8), ["local", "overflow/equal"], optimum_windows=0)
    own, other = result.sums["overflow/equal"], result.sums["local"]
    it = saving(result, (other.cost, other.lost), (own.cost, own.lost), own.arrivals)
    row = next(score for score in result.scores if score.policy == "local")
    assert it.share == pytest.approx(row.difference)
    assert (it.low, it.high) == pytest.approx((row.difference_low, row.difference_high))
    assert it.requests == pytest.approx((other.lost - own.lost).mean())
    assert it.lost == it.share
    assert (it.windows, it.unit) == (8, "a day")
    told = it.to_json()
    assert told["requests_low"] == pytest.approx(it.low * it.arrivals)
    same = saving(result, (own.cost, own.lost), (own.cost, own.lost), own.arrivals)
    assert same.same
    assert same.constant
