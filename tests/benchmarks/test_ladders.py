"""Ladders of many loads: the queue, divisions of loads, paired savings, and the tables."""

from __future__ import annotations

import dataclasses
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused, shown


def step(requests: float, half: float = 10.0) -> dict[str, float]:
    return {
        "requests": requests,
        "requests_low": requests - half,
        "requests_high": requests + half,
    }


def row(load: str = "base", **changed: Any) -> dict[str, Any]:
    """A line of a ladder in which fresh reports cost 4 more than known arrivals."""
    savings: dict[str, Any] = {
        "today": None,
        "rule": step(100),
        "learned": None,
        "arrivals": step(0, 0),
        "reports": step(-4),
        "future": step(30),
    }
    fitted = {"today": None, "rule": 90.0, "learned": None, "arrivals": 0, "reports": 2.0}
    rungs = [
        {
            "name": name,
            "policy": f"policy of {name}",
            "cost": None if name == "learned" else 200.0,
            "saving": saving,
            "saving_fitted": fitted.get(name),
        }
        for name, saving in savings.items()
    ]
    values = {
        "load": load,
        "seed": None,
        "nodes": 5,
        "changes": "",
        "settings": {"queue": 3},
        "shortened": "",
        "arrivals": 1000.0,
        "ladder": {"rungs": rungs, "capacity": step(50), "beyond_rule": step(60)},
        "by_days": None,
        "cpu": 9.0,
        "about": {"date": "2026-01-01"},
    }
    return {**values, **changed}


# --- The queue -----------------------------------------------------------------------------------


def test_a_line_is_not_played_again(tmp_path: Path) -> None:
    ladders = import_module("ladders")
    names = [*ladders.REAL, *ladders.GRID]
    assert len(names) == len(set(names)) >= 24
    assert [str(task) for task in ladders.missing([], [], [None])] == names
    rows = [row("base"), row("demo", seed=0)]
    assert [task.load for task in ladders.missing(rows, ["demo", "base"], [None])] == ["demo"]
    tasks = ladders.missing([*rows, row("base", seed=1)], ["base"], [0, 1, 2])
    assert [str(task) for task in tasks] == ["base, 0", "base, 2"]
    # NASA's days have no time of day.
    tasks = ladders.missing(rows, ["nasa", "base"], [ladders.SCHEDULE])
    assert [str(task) for task in tasks] == ["base, schedule"]
    with refused(SystemExit, "nowhere"):
        ladders.missing([], ["nowhere"], [None])


def test_a_team_starts_from_the_rule_of_its_ladder() -> None:
    ladders = import_module("ladders")
    rows = [row("demo"), row("base", seed=0, ladder=None), row("base")]
    assert ladders.rule_of(rows, "base") == "policy of rule"
    with refused(SystemExit, "20 nodes"):
        ladders.rule_of(rows, "20 nodes")


# --- Loads ---------------------------------------------------------------------------------------


def test_a_made_load_is_judged_on_later_days() -> None:
    loads = import_module("ladders_loads")
    judged = loads.grid_load(loads.GRID["reports of 5 hours"])
    assert (judged.cut, judged.window, len(judged.load)) == (21 * 48, 48, 42 * 48)
    assert judged.settings["report_delay"] == 10
    shown(loads.GRID["reports of 5 hours"].changes(), "report_delay", 10)
    assert loads.GRID["base"].changes() == ""


def test_nodes_of_a_ring_have_two_neighbors() -> None:
    ring = import_module("ladders_loads").GRID["ring of 10 nodes"].game()["neighbours"]
    assert len(ring) == 10
    assert ring["node_0"] == ["node_1", "node_9"]
    assert all(node in ring[other] for node, others in ring.items() for other in others)


def test_operators_have_the_division_of_advise() -> None:
    judged = import_module("ladders_loads").judged_load("27")
    assert (judged.cut, judged.window, len(judged.load)) == (8 * 24, 24, 14 * 24)
    assert judged.settings["report_delay"] == 1  # of unknown arrivals: 0 is refused


# --- The schedule --------------------------------------------------------------------------------


def test_a_schedule_forwards_to_the_usual_spare() -> None:
    """One node is busy in the first half of the day, the other one in the second half."""
    from corral.data import Trace

    schedules, loads = import_module("ladders_schedule"), import_module("ladders_loads")
    half = np.repeat([[14], [2]], 12, axis=0)
    arrivals = np.tile(np.concatenate([half, half[::-1]], axis=1), (20, 1))
    trace = Trace(
        nodes=("a", "b"),
        arrivals=arrivals,
        capacity=np.full_like(arrivals, 10),
        times=3600 * np.arange(len(arrivals)),
        clock="utc",
    )
    spare = schedules.usual_spare(trace, 24)
    assert [spare["a"][0], spare["a"][12], spare["b"][0]] == [0, 8, 8]
    settings = {"queue": 0, "forward_cost": 0.5, "second_offer": False, "report_delay": 9}
    judged = loads.Judged("made", trace, 10 * 24, 24, settings)
    best, sums = schedules.best_schedule(judged)
    assert best.share >= 0.5
    # 4 of 14 requests are forwarded for 0.5 each, and none is lost.
    assert sums.cost.tolist() == [24 * 4 * 0.5] * 10
    # A link takes 3 of the 4 requests; the other one is lost.
    linked = dataclasses.replace(judged, settings={**settings, "link_limit": 3})
    assert schedules.best_schedule(linked)[1].cost.tolist() == [24 * (3 * 0.5 + 1)] * 10


# --- Savings -------------------------------------------------------------------------------------


def test_windows_that_share_days_get_another_interval() -> None:
    report = import_module("ladders_report")
    assert report.savings(row())["rule"] == (100, 90, 110)
    assert report.savings(row())["optimum"] == (60, 50, 70)
    assert "learned" not in report.savings(row())
    assert report.savings(row(by_days={"rule": [100, 20, 180]}))["rule"] == (100, 20, 180)


def test_savings_by_days_are_paired_and_in_requests() -> None:
    ladders = import_module("ladders")
    days = np.arange(9)[:, None]
    less, load = np.arange(9.0), np.full(9, 10.0)
    mean, low, high = ladders.savings_by_days(less, load, days)
    half = 2.306004 * less.std(ddof=1) / 3  # Student's, with a day of its own for each window
    assert (mean, low, high) == pytest.approx((4.0, 4.0 - half, 4.0 + half))
    # Copies of windows add nothing.
    again = ladders.savings_by_days(np.tile(less, 5), np.tile(load, 5), np.tile(days, (5, 1)))
    assert again == pytest.approx([mean, low, high])


def test_rungs_that_cost_more_are_listed_with_the_days_of_the_fit() -> None:
    report = import_module("ladders_report")
    assert list(report.contradictions(row())) == [("reports", (-4, -14, 6), 2.0)]
    (line,) = report.higher_costs([row()])
    shown(line, "-4.0 (-14.0 to 6.0)", "2.0", "contains 0")
    certain = row(by_days={"reports": [-4.0, -5.0, -3.0]})
    shown(report.higher_costs([certain])[0], "excludes 0")


def test_teams_with_a_restricted_rule_are_not_quoted() -> None:
    report = import_module("ladders_report")
    team = {"load": "16", "arrivals": "unknown", "seed": 0, "split": 0}
    changed = [
        {"routes": "equal"},
        {"arrivals": "known"},
        {"seed": 1},
        {"load": "3"},
        {"split": 1},
    ]
    assert report.quoted([team, *({**team, **change} for change in changed)]) == [team]


NAMES = ("demo", "base")


def test_the_page_has_a_line_for_each_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = import_module("ladders_report")
    monkeypatch.setattr(import_module("common"), "RESULTS", tmp_path)
    team = {
        "load": "base",
        "seed": 0,
        "rule": "local/equal",
        "play": "team",
        "validation_saves": [1.0, 0.5, 1.5],
        "loads": [1000.0] * 21,
        "daily": {"team": [190.0, 180.0, 185.0] * 7, "rule": [200.0] * 21},
        "days": None,
        "cpu": 60.0,
        "about": {"date": "2026-01-02"},
    }
    schedule = {
        **team,
        "seed": "schedule",
        "daily": {"schedule": [150.0] * 21, "plain": [170.0] * 21},
    }
    report.report([row("demo"), row("nasa"), row("base"), team, schedule], [])
    text = (tmp_path / "ladders.md").read_text()
    lines = text.splitlines()
    first = {name: next(line for line in lines if line.startswith(f"| {name}")) for name in NAMES}
    cells = {name: line.split(" | ")[1:] for name, line in first.items()}
    assert cells["demo"][:4] == ["1,000", "200", "100 (90 to 110)", ""]
    assert cells["demo"][4:6] == ["0", "-4.0 (-14.0 to 6.0)"]
    assert cells["base"][:5] == ["1,000", "200", "100 (90 to 110)", "20 (20 to 20)", "0"]
    assert len([line for line in lines if line.startswith("| NASA")]) == 3
    (trained,) = [line for line in lines if line.startswith("| base | 0 |")]
    shown(trained, "| 15 (", "| +1.50 (")
    assert json.loads((tmp_path / "ladders.json").read_text())["about"]["date"] == "2026-01-02"
