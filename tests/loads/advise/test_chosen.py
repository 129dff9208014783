"""The shortlist of rules, on invented costs, and the windows that they are fitted and played on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corral.loads.advise.chosen import SHOWN, Textbook, familiar, read_textbook, today_rule
from corral.loads.replay import replay
from support.loads import DAY, days

COSTS: dict[str, list[float]] = {
    "backlog=0.75/least": [10, 12, 9, 11],
    "backlog=0.7/least": [11, 10, 10, 12],  # the best of the others on no day
    "backlog=0.8/fill": [12, 12, 12, 12],
    "patient/least": [14, 14, 14, 14],
    "patient/fill": [15, 15, 15, 15],
    "overflow/weighted": [16, 16, 16, 16],
    "capacity=1/weighted": [16, 16, 16, 16],  # the same as the one before
    "share=0.1/equal": [17, 17, 17, 17],
    "static/equal": [18, 18, 18, 18],
    "local/equal": [30, 30, 30, 30],
}


def book(costs: dict[str, list[float]]) -> Textbook:
    own = {label: np.array(each, dtype=np.float64) for label, each in costs.items()}
    lost = {label: each.astype(np.int64) for label, each in own.items()}
    return Textbook(next(iter(costs)), (0, 3 * DAY), 99, own, lost, np.full(4, 100))


def test_the_shortlist_has_the_best_of_further_routes_and_amounts() -> None:
    found = book(COSTS).shortlist("overflow/equal", "local/equal")
    assert found == [
        "backlog=0.75/least",
        "backlog=0.8/fill",
        "patient/least",
        "overflow/weighted",
        "share=0.1/equal",
        "static/equal",
        "overflow/equal",
        "local/equal",
    ]
    assert len(found) == SHOWN + 2


def test_rules_that_are_the_best_of_other_days_are_on_the_shortlist() -> None:
    changing = {"overflow/least": [1.0, 9, 9, 2], "overflow/fill": [9.0, 1, 2, 8]}
    assert set(book(changing | COSTS).shortlist()) >= {*changing}


def test_the_ranking_is_of_all_rules_that_played_all_days() -> None:
    rows = book(COSTS).to_json(1, {"local/equal": 0.0})
    assert [row["policy"] for row in rows] == [*COSTS]
    assert rows[0]["cost"] == pytest.approx(42 / 400)
    assert rows[0]["difference"] <= rows[-1]["difference"]
    assert [row["forwarded"] for row in rows[-2:]] == [None, 0.0]


@pytest.mark.parametrize("cut", [4 * DAY, 5 * DAY])
def test_days_held_out_follow_those_that_rules_are_fitted_to(cut: int) -> None:
    settings: dict[str, Any] = {"queue": 4, "arrivals": "unknown", "window": DAY, "seed": 0}
    always = [*familiar(4, None), today_rule("overflow/fill")]

    def show(what: str, done: int, total: int) -> None: ...

    found = read_textbook(
        days(5).section(0, 5 * DAY), cut, always=always, route=None, show=show, **settings
    )
    assert set(always) <= set(found.costs)
    assert found.fitted_on == (0, cut)
    every = replay(days(5), [*found.costs], optimum_windows=0, **settings)
    assert found.arrivals.tolist() == every.sums["local/equal"].arrivals.tolist()
    for label, sums in every.sums.items():
        if "two" in label:  # it draws anew where the days held out begin
            continue
        assert found.costs[label] == pytest.approx(sums.cost)
        assert found.lost[label] == pytest.approx(sums.lost)
    assert found.costs[found.rule][: cut // DAY].sum() == pytest.approx(
        min(cost[: cut // DAY].sum() for cost in found.costs.values())
    )
