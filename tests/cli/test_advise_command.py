"""corral advise: what it prints at 80 columns, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corral.data import write_trace
from support.command import within
from support.loads import days


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("load") / "loads.csv"
    write_trace(days(7), path)
    return path


def test_it_ends_in_a_verdict_of_80_columns(load: Path, tmp_path: Path) -> None:
    settings = ("--queue", 5, "--forward-cost", 0.1, "--no-train", "--out", tmp_path)
    printed = within("advise", load, *map(str, settings))
    lines = printed.splitlines()
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80
    kept = json.loads((tmp_path / "advice.json").read_text())
    told = " ".join(printed.partition("\nVerdict\n")[2].split())
    assert told.startswith(" ".join(kept["verdict"]))
    headings = [line for line in lines if line in ("What if", "How it was judged", "Verdict")]
    assert headings == ["What if", "How it was judged", "Verdict"]
    assert "95\n" not in printed.replace(" ", "")  # "95 %" stays on its line
    assert f"Report: {tmp_path / 'report.html'}" in printed
    assert f"Advice: {tmp_path / 'advice.json'}" in printed
    assert "local/equal" in printed.partition("What if")[0]
    assert "corral: 31 rules play 7 days and 4 what-ifs\n" in printed


def test_rules_alone_need_no_minutes(load: Path, tmp_path: Path) -> None:
    said = within("advise", load, "--no-train", "--minutes", "2", "--out", tmp_path, code=2)
    assert "--minutes 2 is of training, and --no-train leaves it out" in said


def test_mistakes_name_the_remedy(load: Path, tmp_path: Path) -> None:
    (tmp_path / "advice.json").write_text("{}")
    said = within("advise", load, "--no-train", "--out", tmp_path, code=2)
    assert "advice.json exists; --overwrite replaces it" in " ".join(said.split())
    assert "no such file" in within("advise", tmp_path / "none.csv", code=2)
    assert "--worth -1" in within("advise", load, "--worth", "-1", "--out", tmp_path / "a", code=2)
    bare = tmp_path / "bare.csv"
    rows = [line.rpartition(",")[0] for line in load.read_text().splitlines()]
    bare.write_text("\n".join(rows) + "\n")
    assert "pass --capacity" in within("advise", bare, "--out", tmp_path / "b", code=2)
    assert "corral advise edge3" in within("advise", "dfaas_v0", code=2)
