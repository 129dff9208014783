"""Verdicts, tables, files and pictures of groups whose scores are known."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from corral.errors import RunError
from corral.lab.comparing.comparison import FILES, Comparison
from corral.lab.comparing.groups import Member, labels_of
from corral.lab.comparing.marl_eval import read_marl_eval
from corral.lab.comparing.plots import pictures
from corral.lab.comparing.tables import comparison_tables
from corral.lab.comparing.verdict import compared
from support.edited import odd_files, require_plain_errors
from support.messages import refused, shown


def group(*scores: float) -> tuple[Member, ...]:
    """Runs with these scores, whose returns rise to ten times as much."""
    steps = np.array([0.0, 500.0, 1000.0])
    return tuple(
        Member(f"run{i}", i, 1000, score, steps, score * steps / 100)
        for i, score in enumerate(scores)
    )


def of(**groups: Any) -> Comparison:
    return Comparison("arena_v0", "return", groups, agents=2)


HIGH, LOW = group(11, 12, 13, 14, 15), group(1, 2, 3, 4, 5)


def test_a_group_that_is_above_the_other_is_better() -> None:
    found = of(b=LOW, a=HIGH)
    assert found.verdict == "a is better than b."
    [pair] = found.pairs
    assert (pair.better, pair.other, pair.difference, pair.probability) == ("a", "b", 10.0, 1.0)
    assert pair.interval.low is not None
    assert pair.interval.low > 5
    assert [*found.table.index] == ["a", "b"]
    assert found.table.loc["a", "iqm"] == 13.0


def test_of_equals_nothing_is_claimed() -> None:
    found = of(a=group(1, 2, 3, 4, 5), b=group(1.1, 2.1, 2.9, 4, 5))
    shown(found.verdict, "a", "b", 5)


def test_four_seeds_are_too_few_however_far_apart() -> None:
    found = of(a=group(100, 101, 102, 103), b=LOW)
    shown(found.verdict, "a 4", "b 5", 5)
    assert np.isnan(found.table.loc["a", "low"])  # no interval of four
    assert not np.isnan(found.table.loc["b", "low"])
    assert found.pairs[0].interval == (None, None)


def test_more_groups_must_be_surer() -> None:
    found = of(a=HIGH, b=LOW, c=group(1, 2, 3, 4, 5.5), d=group(11, 12, 13, 14, 15.5))
    told = {(pair.better, pair.other): pair.found for pair in found.pairs}
    assert (told["a", "b"], told["a", "c"], told["a", "d"]) == ("better", "better", "no difference")
    shown(found.verdict, "a", "b", "c", "d")
    assert found.pairs[0].level == pytest.approx(1 - 0.05 / 6)
    five = of(**dict.fromkeys("abcde", LOW))  # of ten comparisons of five runs none can show
    assert {pair.found for pair in five.pairs} == {"too few seeds"}
    shown(five.verdict, *"abcde", 6)


def test_the_interval_alone_claims_nothing() -> None:
    # Differences that the bootstrap believes and the permutation test does not.
    a, b = [1.0, 1.0, 1.0, 1.0, 0.0, 1.0], [0.9, 0.9, 0.9, 0.9, 1.2, 1.1]
    pair = compared(("a", "b"), a, b)
    assert pair.found == "no difference"
    assert pair.p > 0.05


def test_runs_and_curves_as_data() -> None:
    found = of(a=HIGH, b=LOW)
    frame = found.to_dataframe()
    assert [*frame.columns] == ["group", "run", "seed", "env_steps", "score"]
    assert len(frame) == 10
    last = found.curves[found.curves["env_steps"] == 1000]
    assert [*last["iqm"]] == [130.0, 30.0]
    assert (last["low"] < last["iqm"]).all()
    assert found.curves["env_steps"].is_monotonic_increasing is False  # one group after the other


def test_no_curves_where_some_run_has_none(tmp_path: Path) -> None:
    found = of(a=HIGH, b=(*LOW[:-1], Member("x", None, 1000, 3.0)))
    assert found.curves.empty
    written = found.write(tmp_path)
    assert "curves.svg" not in written
    data = json.loads((tmp_path / "marl_eval.json").read_text())
    assert "absolute_metrics" in data["corral"]["arena_v0"]["b"]["seed_4"]


def test_files(tmp_path: Path) -> None:
    found = of(a=HIGH, b=group(1, 2, 3))
    found.write(tmp_path)
    assert {*FILES} <= {path.name for path in tmp_path.iterdir()}
    data = json.loads((tmp_path / "compare.json").read_text())
    assert data["verdict"] == found.verdict
    assert data["groups"]["b"]["low"] is None
    assert len(data["runs"]) == 8
    assert len(pd.read_csv(tmp_path / "curves.csv")) == 2 * len(found.grid)


def test_marl_evals_form_is_read_as_it_was_written(tmp_path: Path) -> None:
    of(a=HIGH, b=LOW).write(tmp_path)
    task, groups = read_marl_eval(tmp_path / "marl_eval.json")
    assert task == "corral/arena_v0"
    assert [run.score for run in groups["b"]] == [5, 10, 15, 20, 25]  # of each of two agents
    assert [run.seed for run in groups["b"]] == [0, 1, 2, 3, 4]
    assert groups["a"][0].env_steps == 1000


def test_benchmarls_files_are_read(tmp_path: Path) -> None:
    # As its JsonWriter writes them: a list of the episodes of each evaluation.
    runs = {"step_0": {"step_count": 0, "agents_return": [1.0, 3.0], "return": [1.0, 3.0]}}
    runs |= {"step_1": {"step_count": 600, "agents_return": [4.0, 8.0], "return": [4.0, 8.0]}}
    runs |= {"absolute_metrics": {"agents_return": [8.0], "return": [8.0]}}
    path = tmp_path / "mappo.json"
    path.write_text(json.dumps({"pettingzoo": {"spread": {"mappo": {"seed_7": runs}}}}))
    task, groups = read_marl_eval(path)
    assert task == "pettingzoo/spread"
    [run] = groups["mappo"]
    assert (run.score, run.seed, run.env_steps) == (6.0, 7, 600)
    assert [*run.returns] == [2.0, 6.0]


@pytest.mark.parametrize(
    "text",
    [
        *("no", "[]", "{}", '{"e": {"t": {}}}', '{"e": {"t": {}, "u": {}}}'),
        '{"e": {"t": {"a": {"seed_0": {}}}}}',
        '{"e": {"t": {"a": {"s": {"step_0": {"step_count": 1}}}}}}',
        '{"e": {"t": {"a": {"s": {"step_0": {"step_count": 1, "return": [NaN]}}}}}}',
        '{"e": {"t": {"a": {"s": {"step_0": {"step_count": 1, "return": []}}}}}}',
    ],
)
def test_files_of_other_forms(text: str, tmp_path: Path) -> None:
    path = tmp_path / "it.json"
    path.write_text(text)
    with pytest.raises(RunError, match=re.escape(str(path))):
        read_marl_eval(path)


def test_edited_files_end_plain(tmp_path: Path) -> None:
    path = tmp_path / "it.json"
    steps = {
        "step_0": {"step_count": 100, "return": [1.0, 2.0], "elapsed_time": 1.5},
        "step_1": {"step_count": 200, "return": [3.0], "reward": [1.0]},
        "absolute_metrics": {"return": [3.0]},
    }
    path.write_text(json.dumps({"corral": {"arena_v0": {"a": {"seed_0": steps, "s_1": steps}}}}))
    assert require_plain_errors(path, lambda: read_marl_eval(path)) > 200
    for what in odd_files(path):
        if what != "a link":  # it was typed, and leads where it leads
            with pytest.raises(RunError):
                read_marl_eval(path)


def test_labels_are_what_folders_have_in_common() -> None:
    a = ["runs/mappo-seed0", "runs/mappo-seed1", "runs/mappo-seed12"]
    assert labels_of([a, ["x/ippo_lr1_seed=3"], ["y/one"]]) == ["mappo", "ippo_lr1", "one"]
    assert labels_of([["r/0", "r/1"], ["z/a10", "z/a11"]], ["first", None]) == ["first", "a"]
    with refused(ValueError, "b"):
        labels_of([["x/b"], ["y/b"]])
    with refused(ValueError, "runs/../x"):
        labels_of([["x"], ["runs/../x"]])


def test_two_groups_stand_in_one_row() -> None:
    from rich.console import Console

    console = Console(width=80, record=True, file=io.StringIO())
    [_, pairs] = [t for t in comparison_tables(of(mappo=HIGH, b=LOW)) if not isinstance(t, str)]
    console.print(pairs)
    lines = [line.split() for line in console.export_text().splitlines()]
    [row] = [line for line in lines if line[:1] == ["mappo"]]
    assert row[:3] == ["mappo", "-", "b"]
    assert ["difference", "95", "%", "interval", "P", "p"] in lines


def test_runs_that_all_score_the_same_are_told() -> None:
    same = of(a=group(7, 7, 7), b=group(7, 7, 7))
    shown(same.verdict, 7, 3)
    assert "7" not in of(a=group(7, 7, 7), b=group(7, 7, 8)).verdict


def test_tables_fit_80_columns() -> None:
    long = "a_very_long_name_of_a_group_of_runs"
    found = of(**{long: group(*[-123456.7 - i for i in range(5)]), "b": LOW})
    from rich.console import Console

    console = Console(width=200, record=True, file=io.StringIO())
    for part in comparison_tables(found):
        if not isinstance(part, str):
            console.print(part)
    assert max(len(line.rstrip()) for line in console.export_text().splitlines()) <= 80


def test_pictures_are_the_same_each_time_and_name_the_groups(tmp_path: Path) -> None:
    found = of(alpha=HIGH, beta=group(1, 2, 3))
    drawn = pictures(found)
    assert drawn == pictures(found)
    assert {*drawn} == {"curves.svg", "profile.svg", "intervals.svg"}
    for svg in drawn.values():
        assert "alpha" in svg
        assert "beta" in svg


def test_pictures_of_before_do_not_stay(tmp_path: Path) -> None:
    assert "curves.svg" in of(alpha=HIGH, beta=LOW).write(tmp_path)
    flat = {name: tuple(Member(f"{name}{i}", i, 9, 1.0 + i) for i in range(2)) for name in "ab"}
    now = Comparison("two_step_v0", "return", flat).write(tmp_path)
    assert "curves.svg" not in now
    assert {path.name for path in tmp_path.iterdir()} == {*now}
