"""Teams on later days: divisions without overlap, paired savings, and the queue of tasks."""

from __future__ import annotations

import argparse
import json
import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused, shown

DAYS, DAY = 27, 1440


# --- Histories and later days --------------------------------------------------------------------


@pytest.fixture
def nasa(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The loads of NASA, in which a request's day can be seen: day k has k requests in all steps
    but the first, which has more."""
    loads = import_module("teams_loads")
    month = np.repeat(np.arange(DAYS)[:, None], DAY, axis=1)
    month[:, 0] = 1000 + np.arange(DAYS)
    monkeypatch.setattr(loads, "month", lambda: month)
    monkeypatch.setattr(loads, "NASA_DRAWS", {"learn": 6, "validate": 4, "judge": 5})
    return loads.nasa


def days_in(load: np.ndarray[Any, Any]) -> set[int]:
    return {int(day) for day in np.unique(load) if day < 1000}


@pytest.mark.parametrize("split", range(3))
def test_no_day_of_nasa_is_in_two_parts(nasa: Any, split: int) -> None:
    found = nasa(split)
    low, cut = found.training["validation"]
    learned, validated = found.history.arrivals[:low], found.history.arrivals[low:cut]
    parts = [days_in(load) for load in (learned, validated, found.later.arrivals)]
    assert cut == len(found.history) == 10 * DAY
    names = [set(found.law[name]) for name in ("learned", "validated", "judged")]
    assert all(part and part <= name for part, name in zip(parts, names, strict=True))
    assert sorted(day for name in names for day in name) == list(range(DAYS))


def test_every_day_of_nasa_is_held_out_once(nasa: Any) -> None:
    judged = [day for split in range(3) for day in nasa(split).law["judged"]]
    assert sorted(judged) == list(range(DAYS))
    assert set(nasa(0).law["judged"]) == {day for day in range(DAYS) if day % 3 == 2}


def test_the_days_of_each_later_draw_are_listed(nasa: Any) -> None:
    found = nasa(1)
    draws = found.later.arrivals.reshape(5, DAY, 3)
    assert (np.median(draws, axis=1) == found.days).all()
    assert (np.sort(draws[:, :, 0], axis=1)[:, -1] == 1000 + found.days[:, 0]).all()


def test_twitter_is_learned_from_days_before(monkeypatch: pytest.MonkeyPatch) -> None:
    from corral.data import Trace

    loads = import_module("teams_loads")
    rows = loads.TWITTER_DAYS * 288
    whole = Trace(
        nodes=loads.COMPANIES,
        arrivals=np.random.default_rng(0).poisson(20, (rows, 3)),
        capacity=None,
        times=1_424_986_973 + 300 * np.arange(rows),
        clock="utc",
    )
    monkeypatch.setattr(loads, "volumes", lambda: whole)
    ends = []
    for split in range(3):
        found = loads.twitter(split)
        assert found.later.times[0] == found.history.times[-1] + 300
        assert len(found.later) == 10 * 288
        assert found.later.steps_per_day == found.window == 288
        mean = found.history.arrivals.mean(axis=0)
        assert (found.later.capacity[0] == np.rint(1.25 * mean)).all()
        ends.append(int(found.later.times[-1]))
    assert len(set(ends)) == 3
    assert max(ends) == whole.times[-1]


def test_an_operator_trains_with_the_scales_of_its_history(monkeypatch: pytest.MonkeyPatch) -> None:
    more = import_module("operators_more")
    monkeypatch.setattr(more, "FRESH_DAYS", 7)
    found = import_module("teams_loads").operator_split(20, 3)
    assert (len(found.history), len(found.later)) == (21 * 288, 3 * 288)
    assert not {"load_scale", "capacity_scale"} & {*found.settings, *found.training}


def test_steps_beyond_the_scales_are_counted_once() -> None:
    from corral.data import Trace

    trace = Trace(
        nodes=("a", "b"),
        arrivals=np.array([[5, 5], [6, 7], [1, 1], [2, 6]]),
        capacity=np.array([[9, 9], [9, 9], [10, 9], [9, 9]]),
        times=np.arange(4),
    )
    beyond = import_module("teams").beyond
    assert beyond(trace, 5, 9) == 3
    assert beyond(trace, 7, 10) == 0


def test_other_seeds_start_from_the_same_rules() -> None:
    teams = import_module("teams")
    assert teams.Fitted.of(line()) == ("backlog=1/least", "backlog=0.75/least")
    # A team cannot start from a share: from_rule looks for another rule again.
    shared = line(rule="share=0.6/least", game={"residual": "patient/least"})
    assert teams.Fitted.of(shared) == ("backlog=1/least", None)


# --- The queue -----------------------------------------------------------------------------------


def options(file: Path, **changed: Any) -> argparse.Namespace:
    values = {"only": "", "seeds": "", "arrivals": None, "steps": None, "later": 200, "file": file}
    return argparse.Namespace(**{**values, **changed})


def test_tasks_come_in_order_of_importance(tmp_path: Path) -> None:
    teams = import_module("teams")
    tasks = teams.missing(options(tmp_path / "none"))
    assert len(tasks) == len(set(tasks)) == 2 * (30 + 4 * 6 + 3 * 2 * 3)
    keys = [(task.seed > 0, task.arrivals == "known", task.seed) for task in tasks]
    assert keys == sorted(keys)
    first = [task for task in tasks if not task.seed]
    assert [task.arrivals for task in first] == ["unknown"] * 36 + ["known"] * 36
    assert {task.load for task in first} == {*teams.OPERATORS, *teams.REAL}
    assert {task.load for task in tasks if task.seed} == {*teams.SIX, *teams.REAL}


def test_a_line_is_not_played_again(tmp_path: Path) -> None:
    teams = import_module("teams")
    file = tmp_path / "teams.jsonl"
    row = {"load": "20", "arrivals": "known", "seed": 0, "split": 0, "steps": None}
    file.write_text(json.dumps({**row, "later_days": 200}) + '\n{"load": "20", "arr')
    tasks = teams.missing(options(file, only="20,twitter", seeds="0"))
    assert [str(task) for task in tasks] == [
        *(f"twitter_unknown_seed0_split{split}" for split in range(3)),
        "20_unknown_seed0_split0",
        *(f"twitter_known_seed0_split{split}" for split in range(3)),
    ]
    with refused(SystemExit, "teams.jsonl", "--steps None --later 200"):
        teams.missing(options(file, steps=100))


def numbers_until(end: int) -> Any:
    """Return a task that gives its number, fails at 2, and is killed at 3."""

    def row_of(task: int) -> dict[str, Any]:
        if task == 2:
            raise ValueError(task)
        if task == 3:
            os._exit(1)
        if task >= end:
            time.sleep(60)
        return {"number": task, "process": os.getpid()}

    return row_of


def test_tasks_run_in_processes_and_failures_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, Any]] = []
    failed = import_module("parallel").play([*range(5)], numbers_until(9), rows.append, parallel=2)
    assert sorted(row["number"] for row in rows) == [0, 1, 4]
    assert sorted(failed) == ["2", "3"]
    assert len({os.getpid(), *(row["process"] for row in rows)}) == 4
    shown(capfd.readouterr().err, "ValueError: 2")


def test_tasks_are_dropped_when_the_time_is_over() -> None:
    rows: list[dict[str, Any]] = []
    began = time.monotonic()
    play = import_module("parallel").play
    failed = play([0, 8, 8, 8], numbers_until(8), rows.append, parallel=2, minutes=0.01)
    assert [row["number"] for row in rows] == [0]
    assert failed == []
    assert time.monotonic() - began < 20


# --- The tables ----------------------------------------------------------------------------------


def line(load: str = "3", **changed: Any) -> dict[str, Any]:
    """A line with a team that saves a point beside its rule, and half of one beside the plain
    rule."""
    loads = np.array([900.0, 1000.0, 1100.0] * 10)
    noise = np.array([1.0, 0.0, -1.0] * 10)
    costs = {"team": 4.0, "rule": 5.0, "plain": 4.5}
    daily = {what: cost / 100 * loads for what, cost in costs.items()}
    daily["team"] = daily["team"] + noise
    row = {
        "load": load,
        "arrivals": "known",
        "seed": 0,
        "split": 0,
        "steps": None,
        "later_days": 30,
        "env_steps": 100,
        "plain": "backlog=1/least",
        "rule": "backlog=0.75/least",
        "play": "team",
        "why": "",
        "checkpoint": 50,
        "compared": 3,
        "windows": 6,
        "validation_saves": [1.2, 0.9, 1.5],
        "starts_as_rule": True,
        "held_out_saves": [1.1, 1.05, 1.2],
        "answer": "worth it",
        "later_steps": 3000,
        "beyond": 3,
        "game": {"load_scale": 10.0, "residual": "backlog=0.75/least"},
        "history_largest": 10,
        "loads": loads.tolist(),
        "daily": {what: cost.tolist() for what, cost in daily.items()},
        "days": None,
        "cpu": {"fit": 1.0, "from_rule": 3.0, "all": 4.0},
        "about": {"date": "2026-01-01"},
        "law": {"law": "constant"},
    }
    return {**row, **changed}


def test_savings_are_paired_by_day() -> None:
    page = import_module("teams_report")
    mean, low, high = page.saving(line(), "team", "rule")
    assert mean == pytest.approx(1.0)
    assert 0.9 < low < mean < high < 1.1
    assert page.saving(line(), "rule", "plain") == pytest.approx([-0.5] * 3)
    assert page.held(line(), "validation_saves")
    assert page.held(line(), "held_out_saves") is False
    assert page.held(line(held_out_saves=None), "held_out_saves") is None
    assert not page.worse(line())
    assert page.worse(line(play="rule"))


def test_windows_with_a_common_day_are_left_out_together() -> None:
    """Windows repeated k times give the interval of the windows alone: nothing is gained."""
    page = import_module("teams_report")
    rng = np.random.default_rng(0)
    less, load = rng.normal(1, 1, 9), np.full(9, 10.0)
    days = np.arange(9)[:, None]
    once = page.jackknife(less, load, days)
    # With a day of its own for each window: Student's interval of the mean.
    half = 2.306004 * less.std(ddof=1) / 3 / 10
    assert once == pytest.approx((less.mean() / 10 - half, less.mean() / 10 + half))
    many = page.jackknife(np.repeat(less, 20), np.repeat(load, 20), np.repeat(days, 20, axis=0))
    assert many == pytest.approx(once)


def test_the_sums_name_what_is_not_so() -> None:
    page = import_module("teams_report")
    rows = [
        line("3"),
        line("4", play="rule", validation_saves=[2.0, 1.9, 2.1]),
        line("5", law={"law": "trend"}, validation_saves=[2.0, 1.9, 2.1]),
        line("nasa", arrivals="unknown", split=1, seed=1, answer=None, held_out_saves=None),
    ]
    told = page.summary(rows)
    assert told[0].endswith(": known 1 of 3 (4).")
    assert told[2].endswith(": known 0 of 3.")
    assert told[3].endswith(": known 0 of 3.")
    assert told[4].endswith(": known 2 of 3 (3, 5).")
    assert told[5].endswith(": known 2 of 2.")
    assert told[7].endswith(": known 1 of 2 (not 4).")  # without the trend
    assert told[9].endswith(": known 0 of 2 (not 3, 4).")
    assert told[11].endswith(": known 3 of 3.")
    shown(told[12], "3 of 3", "0.10 %")
    assert not [text for text in told if text.startswith("operators, other seeds")]
    shown(told[13], "real loads", "unknown 0 of 1")


def test_the_page_has_a_line_for_each_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = import_module("teams_report")
    monkeypatch.setattr(import_module("common"), "RESULTS", tmp_path)
    page.report([line("nasa"), line("3"), line("3", seed=1), line("18")], ("3", "18"))
    text = (tmp_path / "teams.md").read_text()
    table = [row for row in text.splitlines() if row.startswith("| 3 | constant")]
    assert len(table) == 1
    shown(text, "| nasa 0 | ", "| 3, constant | known | 2 | 2 |")
