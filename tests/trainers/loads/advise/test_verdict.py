"""The sentences of a verdict, word for word."""

from __future__ import annotations

import pytest

from corral.trainers.loads.advise.verdict import (
    Saving,
    decide,
    percent,
    requests,
    rule_sentence,
    team_sentence,
)

LOAD = 1_150_000.0  # a day


def saved(mean: float, low: float | None, high: float | None, lost: float | None = None) -> Saving:
    """A saving of so many requests a day."""
    ends = [None if end is None else end / LOAD for end in (low, high)]
    return Saving(mean / LOAD, *ends, (mean if lost is None else lost) / LOAD, 9, LOAD, "a day")


def of_team(found: Saving, costs: bool = False, beside: str = "") -> str:
    return team_sentence(found, decide(found), 0.001, costs=costs, beside=beside)


def test_the_sentences_of_a_manager() -> None:
    rule = rule_sentence(
        "overflow/capacity", 0.036, 0.036, saved(41_200, 38_000, 44_100), costs=False
    )
    assert rule == (
        "Run overflow/capacity: it loses 3.6 % of requests, 41,200 a day fewer than serving "
        "locally (95 %: 38,000 to 44,100)."
    )
    assert of_team(saved(2_900, 1_100, 4_800)) == (
        "A learned team saves 2,900 a day more (1,100 to 4,800): worth it."
    )


def test_with_costs_it_speaks_of_cost_and_of_lost_requests() -> None:
    beside = saved(41_200, 38_000, 44_100, lost=30_010)
    assert rule_sentence("margin/two", 0.057, 0.036, beside, costs=True) == (
        "Run margin/two: it costs as much as losing 5.7 % of requests, 41,200 a day less than "
        "serving locally (95 %: 38,000 to 44,100); it loses 3.6 %, 30,000 a day fewer."
    )
    assert of_team(saved(2_900, 1_100, 4_800, lost=-400), costs=True) == (
        "A learned team costs 2,900 a day less (1,100 to 4,800) and loses 400 a day more: worth it."
    )
    assert "and loses as many:" in of_team(saved(2_900, 1_100, 4_800, lost=0), costs=True)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            saved(700, 300, 1_100),
            "saves 700 a day more (300 to 1,100): not worth it (less than 0.1 % of requests, "
            "1,150 a day).",
        ),
        (saved(-900, -1_500, -300), "loses 900 a day more (300 to 1,500): not worth it."),
        (
            saved(2_900, -1_000, 6_800),
            "saves 2,900 a day more (-1,000 to 6,800): too few days to tell; about 8 more days "
            "that it has not learned from would do.",
        ),
        (
            saved(1_170, -20_000, 22_340),
            "saves 1,170 a day more (-20,000 to 22,300): too few days to tell, and more are "
            "unlikely to: it is too near 0.",
        ),
        (
            saved(1_140, -20_000, 22_280),
            "saves 1,140 a day more (-20,000 to 22,300): too few days to tell, and more are "
            "unlikely to: it is too near what is worth it (0.1 % of requests, 1,150 a day).",
        ),
        (
            saved(900, None, None),
            "saves 900 a day more: too few days to tell: it was judged on 9 held-out days, and "
            "below 6 there is no interval; 12 days in all would do.",
        ),
        (saved(0, 0, 0), "does the same as that rule: not worth it."),
    ],
)
def test_what_is_said_of_a_team(found: Saving, said: str) -> None:
    assert of_team(found) == f"A learned team {said}"


def test_a_team_that_is_compared_with_another_rule_says_so() -> None:
    said = of_team(saved(2_900, 1_100, 4_800), beside="margin/two")
    assert (
        said == "A learned team saves 2,900 a day more than margin/two (1,100 to 4,800): worth it."
    )


def test_where_local_play_is_best() -> None:
    worse = saved(-300, -400, -200)
    said = rule_sentence(
        "local/equal", 0.1, 0.1, None, costs=False, runner_up=("static/two", worse)
    )
    assert said == (
        "Serve locally: that loses 10.0 % of requests; static/two, the best rule that forwards, "
        "loses 300 a day more (95 %: 200 to 400)."
    )
    alone = rule_sentence("local/equal", 0.1, 0.1, None, costs=False)
    assert alone == "Serve locally: that loses 10.0 % of requests."


def test_without_an_interval_none_is_stated() -> None:
    said = rule_sentence("overflow/two", 0.1, 0.1, saved(300, None, None), costs=False)
    assert said == (
        "Run overflow/two: it loses 10.0 % of requests, 300 a day fewer than serving locally."
    )
    assert "(the same every day)" in rule_sentence(
        "overflow/two", 0.1, 0.1, saved(300, 300, 300), costs=False
    )


def test_numbers_have_three_digits() -> None:
    numbers = {41_234: "41,200", 1_235: "1,240", 999.6: "1,000", 87.4: "87", 3.44: "3.4", 0: "0"}
    assert [requests(number) for number in numbers] == [*numbers.values()]
    assert requests(-20_040) == "-20,000"
    assert requests(-0.001) == "0"
    shares = {0.0357: "3.6 %", 0.1234: "12.3 %", 0.0036: "0.36 %", 5e-5: "under 0.01 %", 0: "0 %"}
    assert [percent(share) for share in shares] == [*shares.values()]
