"""An Evaluation: a sequence of rows, a table, and files."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from corral.data import load_trace
from corral.loads.replay import replay
from corral.loads.report import evaluation_of
from corral.trainers.evaluation.episodes import FEWEST_EPISODES
from corral.trainers.evaluation.scores import Evaluation, TeamScore, evaluate_players
from corral.trainers.evaluation.tables import tables
from support.messages import shown
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


def test_parts_of_rows_are_columns_of_the_csv(steady: Evaluation, tmp_path: Path) -> None:
    paths = steady.write(tmp_path / "new")
    with paths["results.csv"].open(newline="") as file:
        (line,) = csv.DictReader(file)
    assert set(line) == set(steady.to_dataframe().columns)
    assert (line["policy"], line["returns.agent_0"]) == ("random", "4.0")
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
    assert table[2]["return_team"] == table[2]["returns.node_0"] == ""
    for row, line in zip(found[:2], table, strict=False):
        assert float(line["returns.node_0"]) == row.returns["node_0"]
        assert sum(row.returns.values()) == pytest.approx(row.return_team)


# --- In the terminal -----------------------------------------------------------------------------


def table_text(scores: list[TeamScore]) -> str:
    console = Console(width=80, record=True, file=io.StringIO())
    for part in tables(Evaluation("mine_v0", scores), SteadyRules()):
        console.print(part)
    text = console.export_text()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    return text


def score(agents: int, **changes: Any) -> TeamScore:
    returns = {f"agent_{i}": float(i) for i in range(agents)}
    figures: dict[str, Any] = {"policy": "mappo, greedy", "mode": "greedy", "illegal_actions": 0}
    figures |= {"return_team": sum(returns.values()), "low": 1.0, "high": 9.5, "returns": returns}
    figures |= {"episodes": 20, "mean_length": 4.0, "kpis": {}}
    return TeamScore(**{**figures, **changes})


def test_a_table_tells_the_agents_apart() -> None:
    few = table_text([score(3), score(3, policy="random", illegal_actions=7)])
    heads = next(line for line in few.splitlines() if "agent_0" in line)
    assert heads.split()[-4:] == ["agent_0", "agent_1", "agent_2", "length"]
    row = next(line for line in few.splitlines() if "mappo" in line)
    assert row.split() == ["mappo,", "greedy", "3", "1", "to", "9.5", "0", "1", "2", "4.0"]
    shown(few, 20, 7)


def test_of_many_agents_a_table_says_least_mean_and_largest() -> None:
    for agents, long in ((9, "mappo, greedy"), (6, "a_run_with_a_name, sampled")):
        many = table_text([score(agents, policy=long)])
        row = next(line for line in many.splitlines() if long in line)
        figures = ["0", f"{(agents - 1) / 2:g}", str(agents - 1), "4.0"]
        assert row.split()[-4:] == figures
        assert "agent_3" not in many


def test_one_agent_is_its_team() -> None:
    assert "agent" not in table_text([score(1)])


def test_an_evaluation_prints_as_a_table() -> None:
    found = Evaluation("steady_v0", evaluate_players(SteadyRules(), {}, episodes=1))
    assert repr(found) == "<Evaluation of steady_v0: 1 rows>"
    title, heading, line, *notes = str(found).splitlines()
    assert title == repr(found)
    assert heading.split()[:3] == ["policy", "return_team", "episodes"]  # no mode, no interval
    assert line.split()[:3] == ["random", "8", "1"]
    assert notes == found.notes() == [shown(notes[0], FEWEST_EPISODES)]  # too few for an interval
    assert str(Evaluation("none", [])).startswith("<Evaluation of none: 0 rows>")
