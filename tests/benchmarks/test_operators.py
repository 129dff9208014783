"""The twenty operators: made alike every time, of one law, and judged as the tables say."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def module(name: str) -> Any:
    return importlib.import_module(name)


def short(number: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An operator with a few fresh days."""
    laws = module("operators_laws")
    monkeypatch.setattr(laws, "FRESH_DAYS", 7)
    return laws.operator(number)


def test_operators_are_drawn_from_their_number_alone() -> None:
    laws = module("operators_laws")
    drawn = [laws.operator(number) for number in range(laws.COUNT)]
    assert drawn[3] == laws.operator(3)
    assert len({each.spec.mean for each in drawn}) == laws.COUNT
    nodes = [each.spec.nodes for each in drawn]
    assert (min(nodes) >= 2, max(nodes)) == (True, 12)
    assert all(21 <= each.history_days <= 90 for each in drawn)
    assert {each.settings["report_delay"] for each in drawn} == {0, 1, 2, 5}
    assert min(each.spec.mean for each in drawn) < 50 < 3000 < max(e.spec.mean for e in drawn)


def test_fresh_days_follow_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    each = short(1, monkeypatch)
    history, fresh = each.days()
    per_day = 86400 // each.spec.step
    assert len(history) == each.history_days * per_day
    assert len(fresh) == 7 * per_day
    assert fresh.times[0] == history.times[-1] + each.spec.step
    # Servers are as large as they were.
    sizes = [trace.arrivals.mean(axis=0) for trace in (history, fresh)]
    assert np.corrcoef(sizes)[0, 1] > 0.9


def test_no_load_exceeds_the_scales_that_are_trained_with(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (1, 9):
        each = short(number, monkeypatch)
        history, fresh = each.days()
        scales = each.scales(history, fresh)
        assert fresh.arrivals.max() <= scales["load_scale"]
        assert fresh.capacity is not None
        assert fresh.capacity.max() <= scales["capacity_scale"]


def test_the_command_says_what_an_operator_has(monkeypatch: pytest.MonkeyPatch) -> None:
    each = short(6, monkeypatch)
    operators = module("operators")
    words = operators.command(each, {"load_scale": 95, "capacity_scale": 40}, 2.0, Path("a"))
    said = " ".join(words[4:])
    assert said.startswith("dfaas_v0 --trace a/history.csv --from-rule --minutes 2 --seed 0")
    for part in (f"--queue {each.settings['queue']}", "--no-second-offer", "--load-scale 95"):
        assert part in said
    assert "--link-limit" not in said  # it has none


def test_a_recommended_team_is_judged_beside_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    laws, operators = module("operators_laws"), module("operators")
    each = short(17, monkeypatch)
    settings = {key: value for key, value in each.settings.items() if key != "report_delay"}
    each = laws.Operator(17, each.history_days, each.spec, settings)
    fresh = each.days()[1].section(0, 2 * 288)
    monkeypatch.setattr(operators, "RULES", ["local/equal", "overflow/equal"])
    if not hasattr(operators.Replay, "to_dataframe"):
        pytest.skip("this version's replays keep no sums of windows")
    row = operators.judged(each, fresh, "team", "static/equal", "local/equal")
    assert (row["recommended"], row["history_rule"]) == ("team", "local/equal")
    assert row["best_rule"] == "overflow/equal"
    assert len(row["arrivals"]) == len(row["daily"]["recommended"]) == 2
    assert sum(row["daily"]["best_rule"]) == pytest.approx(row["costs"]["overflow/equal"])
    assert row["costs"]["it"] > row["costs"]["overflow/equal"]


@pytest.mark.parametrize("play", ["team", "rule"])
def test_what_a_run_recommends_plays(play: str, monkeypatch: pytest.MonkeyPatch) -> None:
    operators = module("operators")
    told = SimpleNamespace(play=play, rule="margin/spare")
    run = SimpleNamespace(recommendation=told)
    read: list[str] = []
    monkeypatch.setattr(operators.corral, "load_run", lambda name: read.append(str(name)) or run)
    monkeypatch.setattr(operators, "players", lambda run: ["greedy", "sampled"])
    name, entry, rule = operators.recommended(Path("run"))
    assert rule == "margin/spare"
    assert (name, entry) == (("team", "greedy") if play == "team" else (rule, rule))
    assert read == (["run", "run@best"] if play == "team" else ["run"])


# --- The queue -----------------------------------------------------------------------------------


def test_a_line_that_was_cut_off_is_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    operators = module("operators")
    file = tmp_path / "operators.jsonl"
    monkeypatch.setitem(operators.FILES, "run", file)
    file.write_text("")
    operators.append_row(file, {"operator": 3})
    file.write_text(file.read_text() + '{"operator": 4, "rec')
    assert operators.missing("run") == [n for n in range(20) if n != 3]
    assert "line 2: no whole row" in capsys.readouterr().err
    operators.append_row(file, {"operator": 5})
    assert [row["operator"] for row in operators.kept_rows(file)] == [3, 5]


def test_another_process_may_have_played_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operators = module("operators")
    monkeypatch.setitem(operators.FILES, "run", tmp_path / "operators.jsonl")
    row = {"operator": 2, "recommended": "team"}
    trained: list[int] = []
    monkeypatch.setattr(operators, "trained", lambda number, *_: trained.append(number) or row)
    operators.work_here("run", 2, 2.0)
    operators.work_here("run", 2, 2.0)
    assert trained == [2]


# --- The table -----------------------------------------------------------------------------------


def row(number: int, recommended: str, more: float, history: float = 0.0) -> dict[str, Any]:
    """A line whose recommendation costs ``more`` points than the best rule, on days that differ."""
    arrivals = np.array([900.0, 1000.0, 1100.0] * 10)
    noise = np.array([1.0, 0.0, -1.0] * 10)
    best = 0.1 * arrivals
    daily = {"best_rule": best, "recommended": best + more / 100 * arrivals + noise}
    daily["history_rule"] = best + history / 100 * arrivals
    return {
        "operator": number,
        "recommended": recommended,
        "best_rule": "overflow/equal",
        "history_rule": "margin/spare",
        "minutes": 2.0,
        "arrivals": arrivals.tolist(),
        "daily": {what: costs.tolist() for what, costs in daily.items()},
        "law": {"nodes": 3, "mean": 40.0, "step": 60, "history_days": 30},
    }


def test_the_summary_counts_what_is_worse_and_what_has_the_wrong_sign() -> None:
    pytest.importorskip("corral.trainers.evaluation.intervals", reason="without its intervals")
    reports = module("operators_report")
    rows = [
        row(0, "margin/spare", 0.0),
        row(1, "margin/spare", 0.3),
        row(2, "team", -0.5, history=0.5),
        row(3, "team", 0.05, history=0.1),
    ]
    middle, low, high = reports.difference(rows[2], "best_rule")
    assert middle == pytest.approx(-0.5)
    assert low < -0.5 < high < 0
    told = reports.summary(rows)
    assert "at most 0.1 points more than the best rule there: 3 of 4 (not 1)." in told[0]
    assert "A team is recommended for 2" in told[1]
    assert "0.53 points less than the rule of the history on average (+0.05 to +1.00" in told[1]
    assert told[1].endswith("more than the best rule there for 1 (3).")
