"""The ladder of a load: known savings of each step of knowledge."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from corral.data import Trace
from corral.files import strict_json
from corral.loads.ladder import Ladder, ladder
from corral.loads.ladder import climb as climbing
from corral.loads.ladder.picture import picture_of
from support.loads import DAY, days
from support.messages import refused, shown

needs_scipy = pytest.mark.skipif(
    importlib.util.find_spec("scipy") is None, reason="the optimum of a ladder is a linear program"
)

BARE: dict[str, Any] = {"second_offer": False, "neighbours": {"node_0": ["node_1", "node_2"]}}
"""Only the first node forwards, lost requests are the only cost, and refused ones are lost."""

SPARE = 6
"""Capacity of the two nodes that take requests of the first one, which serves none."""

STEPS = 16
"""Steps of a day."""

Event = tuple[int, tuple[int, int], tuple[int, int]]
"""Requests of the first node, spare of the other two in the step before, and in this step."""


def load_of(events: Sequence[Event], count: int) -> Trace:
    """So many equal days with these events. In all other steps, no request is lost or forwarded."""
    arrivals = np.zeros((count, STEPS, 3), dtype=np.int64)
    for k, (requests, before, now) in enumerate(events):
        arrivals[:, 2 * k, 1:] = SPARE - np.array(before)
        arrivals[:, 2 * k + 1] = [requests, SPARE - now[0], SPARE - now[1]]
    capacity = np.tile([0, SPARE, SPARE], (count * STEPS, 1))
    times = np.arange(count * STEPS) * 24 * 3600 // STEPS
    load = arrivals.reshape(-1, 3)
    return Trace(("hot", "left", "right"), load, capacity, times, clock="utc", name="built")


def requests(it: Ladder, name: Any) -> float:
    saving = it.rung(name).saving
    assert saving is not None
    return saving.requests


# --- Known answers -------------------------------------------------------------------------------


@needs_scipy
def test_knowing_the_arrivals_is_worth_two_requests_a_day() -> None:
    """Reports are (1, 2). One request must go left, three must go as reported, and six as reported
    times two. In-turn routes fail with three or six, reports with one. ``spare`` divides three and
    six by the reports, and has nothing to divide with one, which goes left, the first in turn."""
    one, three, six = (1, (1, 2), (1, 0)), (3, (1, 2), (1, 2)), (6, (1, 2), (2, 4))
    load = load_of([one, one, *[three] * 3, *[six] * 3], 12)
    it = ladder(load, **BARE)
    assert it.rung("today").lost == pytest.approx(2 + 3 * 3 + 3 * 6)
    assert it.rung("rule").lost == pytest.approx(2)
    assert it.rung("arrivals").policy.endswith("/spare")
    assert requests(it, "arrivals") == pytest.approx(2)
    assert requests(it, "rule") == pytest.approx(3 * 3 + 3 * 6)
    assert [requests(it, name) for name in ("reports", "future")] == [0, 0]
    assert it.largest == "rule"
    assert it.beyond_rule is not None
    assert it.beyond_rule.requests == pytest.approx(2)
    assert it.ranked[0] == "rule"
    assert {"arrivals", "capacity"} >= set(it.ranked[1:])


@needs_scipy
def test_fresh_reports_are_worth_a_request_for_each_event() -> None:
    """Reports are (1, 1). Both requests must go to one node, left as often as right."""
    left, right = (2, (1, 1), (2, 0)), (2, (1, 1), (0, 2))
    it = ladder(load_of([left, right] * 4, 12), route="least", **BARE)
    assert it.rung("rule").lost == pytest.approx(8)
    assert requests(it, "arrivals") == 0
    assert it.rung("arrivals").same
    assert requests(it, "reports") == pytest.approx(8)
    assert it.rung("future").lost == pytest.approx(0)
    shown(it.answer, 8)


def test_if_fresh_reports_save_most_they_are_the_largest_step() -> None:
    """Today's rule is the best plain rule, and more capacity of full nodes serves nothing."""
    left, right = (2, (1, 1), (2, 0)), (2, (1, 1), (0, 2))
    load = load_of([left, right] * 4, 12)
    it = ladder(load, route="least", today="overflow/least", **BARE)
    assert requests(it, "rule") == 0
    assert it.largest in ("reports", "capacity")
    more = it.capacity
    assert more is not None
    assert it.largest == ("capacity" if more.requests > 8 else "reports")


@needs_scipy
def test_if_nothing_matters_all_savings_are_zero() -> None:
    it = ladder(days(12), capacity=100, queue=5, route="least")
    savings = [rung.saving for rung in it.rungs if rung.saving is not None]
    assert len(savings) == 4
    assert all(saving.same for saving in savings)
    assert [rung.cost for rung in it.rungs] == [0, 0, None, 0, 0, 0]
    assert (it.largest, it.contradictions, it.savings) == (None, [], {})
    assert picture_of(it).count("class='span'") == 0


def test_days_that_contradict_the_fit_are_named() -> None:
    """On the held-out days the neighbors are full, so that each forwarded request is lost, too."""
    fitted, held_out = load_of([(1, (1, 1), (1, 1))] * 5, 6), load_of([(1, (1, 1), (0, 0))] * 5, 6)
    arrivals, capacity = (
        np.concatenate([fitted.arrivals, held_out.arrivals]),
        np.concatenate([fitted.capacity, held_out.capacity]),
    )
    load = Trace(fitted.nodes, arrivals, capacity, np.arange(len(arrivals)) * 5400, clock="utc")
    it = ladder(load, route="least", forward_cost=0.2, **BARE)
    assert it.rung("rule").saving_fitted == pytest.approx(5 * 0.8)
    assert requests(it, "rule") == pytest.approx(-5 * 0.2)
    assert it.contradictions == ["rule"]
    assert it.rung("rule").lost == pytest.approx(5)
    assert it.largest != "rule"
    shown(it.notes()[-1], 1)
    assert "class='more'" in picture_of(it)


# --- Rungs ---------------------------------------------------------------------------------------

GAME: dict[str, Any] = {"queue": 5, "wait_cost": 0.02, "forward_cost": 0.1, "route": "least"}


@pytest.fixture(scope="module")
def made() -> Ladder:
    return ladder(days(21), **GAME)


@needs_scipy
def test_no_rung_costs_more_than_the_one_below_on_the_days_of_the_fit(made: Ladder) -> None:
    fitted = [rung.saving_fitted for rung in made.rungs if rung.saving_fitted is not None]
    assert len(fitted) == 3
    assert min(fitted) >= 0
    assert max(fitted) > 0
    assert requests(made, "future") > 0


@needs_scipy
def test_savings_are_the_differences_of_costs(made: Ladder) -> None:
    present = [rung for rung in made.rungs if rung.cost is not None]
    for below, rung in itertools.pairwise(present):
        assert below.cost is not None
        assert rung.cost is not None
        assert requests(made, rung.name) == pytest.approx(below.cost - rung.cost)
    rule, future = made.rung("rule"), made.rung("future")
    assert made.beyond_rule is not None
    assert rule.cost is not None
    assert future.cost == pytest.approx(rule.cost - made.beyond_rule.requests)
    assert (made.fitted_windows, made.windows) == (15, 6)


@needs_scipy
def test_more_knowledge_in_settings_leaves_fewer_rungs() -> None:
    it = ladder(days(8), arrivals="known", report_delay=0, **GAME)
    absent = {rung.name for rung in it.rungs if rung.absent}
    assert absent == {"learned", "arrivals", "reports"}
    assert it.rung("arrivals").to_json()["cost"] is None


def test_with_few_days_there_are_means_without_intervals() -> None:
    it = ladder(days(5), **GAME)
    assert it.windows == 2
    assert [s.low for s in it.savings.values()] == [None] * len(it.savings) != []
    assert len(it.notes()) >= 2
    with refused(ValueError, 3, 4):
        ladder(days(3), **GAME)


def test_a_large_linear_program_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(climbing, "VARIABLES", 0)
    it = ladder(days(6), **GAME)
    assert it.rung("future").absent
    assert (it.beyond_rule, it.rung("future").cost) == (None, None)


@needs_scipy
def test_linear_programs_cover_as_many_days_as_their_size_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(climbing, "VARIABLES", 3 * DAY * 12)
    it = ladder(days(14), **GAME)
    future = it.rung("future").saving
    assert future is not None
    assert (future.windows, future.low, it.windows) == (3, None, 6)
    assert it.rung("reports").saving is not None
    shown("\n".join(it.notes()), 3, 6)


def test_intervals_that_are_too_narrow_are_named(made: Ladder) -> None:
    rule, learned = made.rung("rule"), made.rung("learned")
    future = dataclasses.replace(made.rung("future"), saving=None)
    assert rule.saving is not None
    for alike in (False, True):
        saving = dataclasses.replace(rule.saving, alike=alike)
        rungs = (dataclasses.replace(rule, saving=saving), learned, future)
        it = dataclasses.replace(made, rungs=rungs)
        assert len(it.notes()) == 1 + alike


# --- Outputs -------------------------------------------------------------------------------------


@needs_scipy
def test_a_ladder_is_a_table_json_and_rows(made: Ladder) -> None:
    values = json.loads(json.dumps(made.to_json(), allow_nan=False))
    assert values == made.to_json()
    assert strict_json(made.texts()["ladder.json"]) == values
    names = ["today", "rule", "learned", "arrivals", "reports", "future"]
    assert [rung["name"] for rung in values["rungs"]] == names
    table = made.to_dataframe()
    assert table["name"].tolist() == names
    assert table["saving"].iloc[1] == pytest.approx(requests(made, "rule"))
    assert table["cost"].isna().tolist() == [name == "learned" for name in names]
    assert Console(width=1000).measure(made.table()).maximum <= 80


def test_the_screen_has_one_line_for_each_rung(made: Ladder) -> None:
    lines = made.table_lines()
    assert len(lines) == 1 + len(made.rungs) + 1  # headings, and more capacity
    assert max(map(len, lines)) <= 80
    cost = made.rung("rule").cost
    assert cost is not None
    shown("\n".join(lines), made.rung("rule").policy, f"{cost:,.0f}")


@needs_scipy
def test_the_picture_has_one_bar_for_each_rung_with_figures(made: Ladder) -> None:
    page = picture_of(made)
    assert page.count("<tr") == 1 + len(made.rungs) + 1
    assert page.count("<div>") == 5 + 1
    assert "class='less'" in page
    assert "nan" not in page
