"""corral advise: what it prints at 80 columns, and how it fails."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from corral.data import write_trace
from support.command import within
from support.loads import days
from support.messages import shown


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("load") / "loads.csv"
    write_trace(days(7), path)
    return path


def test_it_ends_in_a_verdict_of_80_columns(load: Path, tmp_path: Path) -> None:
    settings = ("--queue", 5, "--forward-cost", 0.1, "--no-train", "--out", tmp_path)
    printed = within("advise", load, *map(str, settings))
    shown(printed, "unknown")
    lines = printed.splitlines()
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80
    kept = json.loads((tmp_path / "advice.json").read_text())
    told = " ".join(printed.partition("\nVerdict\n")[2].split())
    asked, code = kept["verdict"][:3], kept["pseudo_code"]
    assert code
    said = " ".join([*asked, *code, *kept["verdict"][3:]])
    assert told.startswith(" ".join(said.split()))
    headings = [line for line in lines if line in ("What if", "How it was judged", "Verdict")]
    assert headings == ["What if", "How it was judged", "Verdict"]
    assert "95\n" not in printed.replace(" ", "")  # "95 %" stays on its line
    assert f"Report: {tmp_path / 'report.html'}" in printed
    assert f"Advice: {tmp_path / 'advice.json'}" in printed
    assert "local/equal" in printed.partition("What if")[0]
    assert kept["arrivals"] == "unknown"


def test_knowledge_and_the_rule_of_today_can_be_given(load: Path, tmp_path: Path) -> None:
    settings = ("--arrivals", "known", "--today", "round-robin", "--route", "least", "--no-train")
    within("advise", load, *settings, "--out", str(tmp_path))
    kept = json.loads((tmp_path / "advice.json").read_text())
    assert (kept["arrivals"], kept["rule"]["today"]) == ("known", "overflow/equal")


def test_progress_is_written_into_a_log(load: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("corral.cli.commands.loads.advise.EVERY", 0.0)
    printed = within("advise", load, "--no-train", "--out", str(tmp_path))
    assert re.search(r"corral: textbook: \d+ of [\d,]+, about [\d,]+ s left", printed)


def test_rules_alone_need_no_minutes(load: Path, tmp_path: Path) -> None:
    said = within("advise", load, "--no-train", "--minutes", "2", "--out", tmp_path, code=2)
    shown(said, "--minutes 2", "--no-train")


def test_mistakes_name_the_remedy(load: Path, tmp_path: Path) -> None:
    (tmp_path / "advice.json").write_text("{}")
    said = within("advise", load, "--no-train", "--out", tmp_path, code=2)
    shown(" ".join(said.split()), "advice.json", "--overwrite")
    shown(within("advise", tmp_path / "none.csv", code=2), "none.csv")
    shown(within("advise", load, "--worth", "-1", "--out", tmp_path / "a", code=2), "--worth -1")
    bare = tmp_path / "bare.csv"
    rows = [line.rpartition(",")[0] for line in load.read_text().splitlines()]
    bare.write_text("\n".join(rows) + "\n")
    shown(within("advise", bare, "--out", tmp_path / "b", code=2), "bare", "--capacity")
    shown(within("advise", "dfaas_v0", code=2), "corral advise edge3")
