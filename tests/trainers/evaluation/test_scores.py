"""An Evaluation: a sequence of rows, a table, and files."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from corral.data import load_trace
from corral.trainers.evaluation.scores import Evaluation, evaluate_players
from corral.trainers.loads.replay import replay
from corral.trainers.loads.report import evaluation_of
from support.steady_rules import SteadyRules


@pytest.fixture
def steady() -> Evaluation:
    rows = evaluate_players(SteadyRules(), {}, episodes=3)
    return Evaluation("steady_v0", rows, versions={"corral": "1"})


def test_it_is_a_sequence_of_its_rows(steady: Evaluation) -> None:
    assert [row.policy for row in steady] == ["random"]
    assert (len(steady), steady[0], steady[-1:]) == (1, steady.rows[0], steady.rows)


def test_a_table_has_a_column_for_each_agent_and_info(steady: Evaluation) -> None:
    (line,) = steady.to_dataframe().to_dict("records")
    assert line["policy"] == "random"
    assert (line["returns.agent_1"], line["kpis.half"]) == (4.0, 10.0)
    assert line["return_team"] == 8.0


def test_rows_with_parts_are_written_as_json_alone(steady: Evaluation, tmp_path: Path) -> None:
    paths = steady.write(tmp_path / "new")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["results.json"] == list(paths)
    kept = json.loads(paths["results.json"].read_text())
    assert list(kept) == ["environment", "versions", "rows"]
    assert (kept["environment"], kept["versions"]) == ("steady_v0", {"corral": "1"})
    assert kept["rows"][0]["returns"] == {"agent_0": 4.0, "agent_1": 4.0}


def test_a_replay_hangs_on_its_evaluation(tmp_path: Path) -> None:
    result = replay("edge3", ["local", "overflow"], rows=(0, 300), window=100, seed=4)
    found = evaluation_of(result)
    assert found.replay is result
    assert [row.policy for row in found] == ["overflow", "local", "optimum"]
    assert (found.env, found.seed) == ("dfaas_v0", 4)
    assert found.to_dataframe()["served"].tolist() == [row.served for row in found]
    paths = found.write(tmp_path)
    assert set(paths) == {"results.json", "results.csv"}
    kept: dict[str, Any] = json.loads(paths["results.json"].read_text())
    assert kept["trace"] == {"name": "edge3", "digest": load_trace("edge3").digest}
    with paths["results.csv"].open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [line["policy"] for line in table] == ["overflow", "local", "optimum"]
    assert float(table[1]["lost"]) == found[1].lost
    assert table[2]["return_team"] == ""
