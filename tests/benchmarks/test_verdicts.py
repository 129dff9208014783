"""Thirty operators: ten more laws, a queue of advice, and what the table counts."""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused, shown

# --- Ten more laws -------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(20, 30))
def test_later_days_follow_the_history_from_a_stream_of_their_own(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = import_module("operators_more")
    monkeypatch.setattr(more, "FRESH_DAYS", 7)
    each = more.more_operator(number)
    history, later = each.days()
    day = 86400 // each.step
    assert (len(history), len(later)) == (each.history_days * day, 7 * day)
    assert later.times[0] == history.times[-1] + each.step
    assert not np.array_equal(history.arrivals[: len(later)], later.arrivals)
    assert (history, later) == each.days()
    for trace in (history, later):
        assert trace.arrivals.max() <= each.largest
        assert trace.capacity.max() <= max(each.capacity)


def test_ten_more_operators_differ_in_what_an_operator_may_have() -> None:
    more = import_module("operators_more")
    told = [more.describe_more(more.more_operator(number)) for number in more.MORE]
    assert len({each["law"] for each in told}) == 10
    assert {each["report_delay"] for each in told} == {0, 1, 2}
    assert {each["second_offer"] for each in told} == {False, True}
    assert (min(each["nodes"] for each in told), max(each["nodes"] for each in told)) == (2, 8)
    assert 4 <= sum(each["link_limit"] is not None for each in told) <= 6


# --- The queue -----------------------------------------------------------------------------------


def asked(**changed: Any) -> argparse.Namespace:
    given = {"only": "3,20", "arrivals": None, "rules": False, "decisions": 100, "later": 200}
    return argparse.Namespace(**{**given, **changed})


def test_a_line_is_not_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = import_module("verdicts")
    file = tmp_path / "verdicts.jsonl"
    monkeypatch.setitem(verdicts.FILES, False, file)
    row = {"operator": 3, "arrivals": "known", "decisions": 100, "later_days": 200}
    file.write_text(json.dumps(row) + '\n{"operator": 3, "arr')
    names = [(task.number, task.arrivals) for task in verdicts.missing(asked())]
    assert names == [(3, "unknown"), (20, "known"), (20, "unknown")]
    with refused(SystemExit, "verdicts.jsonl", "--decisions 100 --later 200"):
        list(verdicts.missing(asked(decisions=200)))


def test_rules_without_a_queue_are_not_played_twice() -> None:
    verdicts = import_module("verdicts")
    assert len(verdicts.BEFORE) == 31
    listed, one_line = verdicts.others(0)
    assert not [pair for pair in listed if pair.startswith("patient")]
    assert one_line == ["backlog=0/round-robin", "backlog=0/least", "capacity=0.9/least"]
    listed, _ = verdicts.others(10)
    assert set(verdicts.BEFORE) <= set(listed)
    assert len(listed) == len(set(listed))


# --- The table -----------------------------------------------------------------------------------


def row(number: int, arrivals: str = "known", **changed: Any) -> dict[str, Any]:
    """A line whose team saves a point beside the rule, and the rule two beside local play."""
    loads = np.array([900.0, 1000.0, 1100.0] * 10)
    noise = np.array([1.0, 0.0, -1.0] * 10)
    costs = {"team": 4.0, "rule": 5.0, "team_rule": 5.0, "local": 7.0, "best_other": 4.95}
    daily = {what: cost / 100 * loads for what, cost in costs.items()}
    daily["team"] = daily["team"] + noise
    found = {
        "operator": number,
        "arrivals": arrivals,
        "decisions": 100,
        "steps": 50,
        "seed": 0,
        "later_days": 30,
        "run": "team",
        "rule": "backlog=0.75/least",
        "answer": "worth it",
        "worth": 0.1,
        "team_rule": "backlog=0.75/least",
        "team_saves": [1.2, 0.9, 1.5],
        "rule_saves": [2.0, 1.9, 2.1],
        "best_other": "patient/least",
        "best_carried": "patient/least",
        "best_one_line": "backlog=1/least",
        "trend": None,
        "alike": [],
        "windows": {"rule": 30, "team": 9},
        "costs": {
            "backlog=0.75/least": 5.0,
            "patient/least": 4.95,
            "backlog=1/least": 4.8,
            "team": 4.0,
        },
        "loads": loads.tolist(),
        "daily": {what: cost.tolist() for what, cost in daily.items()},
        "advice": {"cpu_seconds": 3.0},
        "cpu_seconds": 4.0,
        "about": {"date": "2026-01-01"},
        "law": {"law": "constant", "history_days": 14, "report_delay": 0},
    }
    return {**found, **changed}


def test_a_stated_saving_holds_where_the_later_mean_is_in_its_interval() -> None:
    page = import_module("verdicts_report")
    assert page.held(row(0), "team")
    assert page.held(row(0), "rule")
    assert page.held(row(0, team_saves=[1.2, 1.1, 1.3]), "team") is False
    assert page.held(row(0, team_saves=None), "team") is None
    assert page.held(row(0, team_saves=[1.2, None, None]), "team") is None
    mean, low, high = page.later_saving(row(0), "team", "rule")
    assert low < mean < high
    assert mean == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("answer", "worth", "verdict"),
    [
        ("worth it", 0.1, "right"),
        ("worth it", 1.0001, "open"),
        ("worth it", 2.0, "wrong"),
        ("not worth it", 0.1, "wrong"),
        ("not worth it", 2.0, "right"),
        ("too few days", 0.1, "open"),
    ],
)
def test_an_answer_is_judged_by_the_bar_of_its_advice(
    answer: str, worth: float, verdict: str
) -> None:
    report = import_module("verdicts_report")
    assert report.judged_later(row(0, answer=answer, worth=worth)) == verdict


def test_the_sums_name_what_is_not_so() -> None:
    page = import_module("verdicts_report")
    none = {"answer": None, "team_saves": None}
    rows = [
        row(0),
        row(1, rule_saves=[1.0, 0.9, 1.1]),
        row(2, rule_saves=[1.0, 0.9, 1.1], law={"law": "trend", "report_delay": 1}),
        row(0, "unknown", **none, costs={**row(0)["costs"], "patient/least": 4.0}),
    ]
    told = page.summary(rows)
    assert told[0].endswith(": known 3 of 3; unknown 0 of 1 (not 0).")
    assert told[2].endswith(": known 0 of 3 (not 0, 1, 2); unknown 0 of 1 (not 0).")
    assert told[3].endswith("known +0.05 (operator 0); unknown +1.00 (operator 0).")
    shown(told[4], "known 1 of 2 (not 1)", "unknown 1 of 1")
    assert told[4].endswith(" 0.5 of these 3.")  # 30 days beside as many later ones
    assert told[5].endswith(": known 1 of 2 (1); unknown 0 of 1.")
    shown(told[6], "known 2 of 2")
    assert told[8].endswith(": known 3 of 3 (0, 1, 2); unknown 0 of 1.")
    assert told[9].endswith(": known 3 of 3 (0, 1, 2).")
    assert told[10].endswith(": known 0 of 3.")
    shown(told[11], "(operators 0, 1)")


def test_the_page_has_one_line_for_each_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = import_module("verdicts_report")
    monkeypatch.setattr(import_module("common"), "RESULTS", tmp_path)
    page.report([row(0), row(0, "unknown"), row(3)], "verdicts", 30)
    lines = (tmp_path / "verdicts.md").read_text().splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert {line.count("|") for line in table} == {14}
    assert len(table) == 4
    shown(table[3], "not played")
    shown("\n".join(lines), "57 of 60")
