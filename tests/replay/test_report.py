"""What a replay leaves behind: a page that stands alone, numbers that can be read back."""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from corral.data import Trace, load_trace
from corral.trainers.charts import Bar, bar_chart, node_chart
from corral.trainers.replay import replay
from corral.trainers.report import ordered, write_report

POLICIES = ["local/equal", "overflow/equal", "random/equal"]


class Balanced(HTMLParser):
    """Fails where a tag is closed that was not opened, or left open."""

    VOID = frozenset({"meta"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing(tmp_path: Path) -> None:
    paths = write_report(replay("edge3", POLICIES, rows=(0, 600)), tmp_path / "new" / "folder")
    page = paths["report.html"].read_text()
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert {"table", "svg", "h1"} <= parser.seen
    links = re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?([^\"')> ]+)", page)
    assert links == []
    assert "<script" not in page
    for policy in [*POLICIES, "optimum"]:
        assert f"<td>{policy}</td>" in page
    for node in load_trace("edge3").nodes:
        assert node in page


def test_names_from_a_file_cannot_break_the_page(tmp_path: Path) -> None:
    trace = Trace(
        nodes=("<b>x</b>", '"&'),
        arrivals=np.array([[3, 1], [0, 5]]),
        capacity=np.array([[1, 1], [4, 4]]),
        times=np.arange(2),
        name="<script>alert(1)</script>",
    )
    page = write_report(replay(trace, ["local"]), tmp_path)["report.html"].read_text()
    assert "<script>" not in page
    assert "<b>x</b>" not in page
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []


def test_json_and_csv_hold_the_scores(tmp_path: Path) -> None:
    result = replay("edge3", POLICIES, rows=(0, 600))
    paths = write_report(result, tmp_path)
    kept = json.loads(paths["results.json"].read_text())
    assert kept["trace"]["digest"] == load_trace("edge3").digest
    assert kept["trace_rows"] == [0, 600]
    assert kept["versions"]["numpy"] == np.__version__
    with paths["results.csv"].open(newline="") as file:
        table = list(csv.DictReader(file))
    scores = ordered(result.scores)
    assert [row["policy"] for row in kept["rows"]] == [score.policy for score in scores]
    for score, row, line in zip(scores, kept["rows"], table, strict=True):
        assert row["served"] == score.served
        assert float(line["served"]) == score.served
        assert row["low"] == score.low
        assert {"return_team", "low", "high", "episodes", "illegal_actions"} <= set(row)
        assert {"served", "lost", "forwarded", "share_of_optimum"} <= set(row)


def test_a_report_replaces_an_older_one_and_leaves_nothing_else(tmp_path: Path) -> None:
    for _ in range(2):
        write_report(replay("edge3", ["local"], rows=(0, 300)), tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["report.html", "results.csv", "results.json"]


def test_policies_stand_from_best_to_worst_and_the_optimum_last() -> None:
    scores = ordered(replay("edge3", POLICIES, rows=(0, 600)).scores)
    assert [score.policy for score in scores] == [
        "overflow/equal",
        "random/equal",
        "local/equal",
        "optimum",
    ]


def test_bars_are_as_long_as_their_values() -> None:
    drawn = bar_chart([Bar("a", 10.0), Bar("b", 5.0)], "title")
    long, short = (float(w) for w in re.findall(r'<rect[^>]*width="([\d.]+)"', drawn))
    assert long == pytest.approx(2 * short, abs=0.2)


def test_a_node_without_load_or_loss_can_be_drawn() -> None:
    zero = np.zeros(1)
    drawn = node_chart("node_0", ["0"], arrivals=zero, capacity=zero, losses={"local": zero})
    assert drawn.startswith("<svg")
    assert "nan" not in drawn
