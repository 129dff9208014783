"""What a replay leaves behind: a page that stands alone, numbers that can be read back."""

from __future__ import annotations

import csv
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from corral.data import Trace, load_trace
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import baseline_team
from corral.envs.policy import RandomPolicy
from corral.loads.paired import rule_in_words, verdicts
from corral.loads.policy_picture import Picture, team_pictures
from corral.loads.replay import Replay, replay
from corral.loads.report import write_report
from corral.loads.text import ordered
from corral.trainers.evaluation.players import Player
from corral.trainers.report.plots import LearningCurve
from support.messages import shown

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
    assert not re.search(r"https?:|//[a-z]|@import|fetch\(|XMLHttp|import\(", page)
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
    assert "<script>alert" not in page
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


def test_amounts_are_explained(tmp_path: Path) -> None:
    paths = write_report(replay("edge3", ["static"], rows=(0, 300)), tmp_path)
    shown(paths["report.html"].read_text(), "<td>static</td><td>40 %")


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


# --- Teams ---------------------------------------------------------------------------------------


def trained(trace: Trace | str = "edge3", label: str = "mine") -> tuple[Replay, list[Picture]]:
    """A heuristic in the clothes of a learned team, greedy and noisy, beside references."""
    rules = DfaasRules(trace, rows=(0, 300))
    team = Player(baseline_team("margin", rules), settings={"route": "spare"})
    noise = Player(dict.fromkeys(rules.agents, RandomPolicy()), deterministic=False)
    played = {label: team, "noise": noise, **{pair: pair for pair in POLICIES}}
    return replay(trace, played, rows=(0, 300)), team_pictures(rules, team, label)


CURVES = [
    LearningCurve("run 1", np.array([100, 200, 300]), np.array([np.nan, -9.0, -4.0])),
    LearningCurve("run 2", np.array([100, 200]), np.array([-8.0, -6.0])),
]


def test_a_teams_page_has_learning_and_what_was_learned(tmp_path: Path) -> None:
    result, pictures = trained()
    paths = write_report(
        result, tmp_path, learning=CURVES, levels={"random": -12.0}, pictures=pictures
    )
    page = paths["report.html"].read_text()
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?([^\"')> ]+)", page) == []
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings == [
        "Policies",
        "Load and loss over time",
        "Learning",
        "What was learned",
        "Lost by each server",
        "How this was found",
        "How to read this",
    ]
    for text in ("run 1</li>", "run 2</li>", "random</span>", "env steps</span>"):
        assert text in page
    for text in ("<b>milan</b>", "<b>overflow, all nodes</b>", "requests per step →</span>"):
        assert text in page
    # The best team's forwarding; the losses of all, of the best reference and of local play.
    lost = ("lost, mine", "lost, noise", "lost, overflow/equal", "lost, local/equal")
    for text in ("forwarded, mine", *lost):
        assert page.count(f">{text}</p>") == 3
    assert "<td>mine</td><td>greedy</td>" in page
    assert "<td>noise</td><td>sampled</td>" in page
    assert "<td>overflow/equal</td><td></td>" in page
    shown(page, "Greedy", "sampled")


def test_the_verdict_stands_before_all_else(tmp_path: Path) -> None:
    result, _ = trained(label="<mine>")
    page = write_report(result, tmp_path)["report.html"].read_text()
    said = re.search(r"</h1>\s*<div class='verdict'>(.*?)</div>", page)
    assert said is not None
    lines = [*verdicts(result).values(), *rule_in_words(result)]
    assert re.findall("<p>(.*?)</p>", said[1]) == [html.escape(line) for line in lines]
    assert "&lt;mine&gt;" in said[1]


def test_requests_a_day_stand_before_shares(tmp_path: Path) -> None:
    result = replay("edge3", POLICIES, rows=(0, 4 * 288), forward_cost=0.2)
    page = write_report(result, tmp_path)["report.html"].read_text()
    table = page.partition("<h2>Policies</h2>")[2].partition("</table>")[0]
    heads = re.findall("<th>(.*?)</th>", table)
    assert heads[:4] == ["policy", "cost a day", "above the best rule, a day", "lost a day"]
    local = next(score for score in result.scores if score.policy == "local/equal")
    arrivals = result.trace.arrivals[: 4 * 288].sum() / 4
    row = table.partition("<td>local/equal</td>")[2].partition("</tr>")[0]
    cost, above, lost = (
        int(cell.replace(",", "")) for cell in re.findall(r"<td>\+?([\d,]+)", row)[:3]
    )
    assert lost == pytest.approx(local.lost * arrivals, abs=0.51)
    assert cost == pytest.approx(local.cost * arrivals, abs=0.51)
    assert local.difference is not None
    assert above == pytest.approx(local.difference * arrivals, abs=0.51)
    assert f"Of the rules, {ordered(result.scores)[0].policy} costs least here" in page


def test_learned_rows_and_the_optimum_have_classes_in_every_table(tmp_path: Path) -> None:
    result, _ = trained()
    page = write_report(result, tmp_path)["report.html"].read_text()
    for table in re.findall("<tbody>.*?</tbody>", page):
        kinds = {
            name: kind
            for kind, name in re.findall(r"<tr class='(\w+)' data-policy=\"(.*?)\"", table)
        }
        if "data-policy" in table:  # else its lines are servers
            assert kinds.items() >= {"mine": "team", "noise": "team"}.items()
        assert set(kinds) <= {"mine", "noise", "optimum"}


def test_without_teams_the_page_has_neither(tmp_path: Path) -> None:
    page = write_report(replay("edge3", POLICIES, rows=(0, 300)), tmp_path)["report.html"]
    text = page.read_text()
    assert "<h2>Learning" not in text
    assert not re.search("<h2>.*learned", text)
    assert "<th>play</th>" not in text
    assert "<th>illegal</th>" not in text
    assert ">forwarded, " not in text


def test_results_hold_how_teams_played(tmp_path: Path) -> None:
    result, _ = trained()
    paths = write_report(result, tmp_path)
    kept = json.loads(paths["results.json"].read_text())
    modes = {row["policy"]: row["mode"] for row in kept["rows"]}
    assert modes == {
        "mine": "greedy",
        "noise": "sampled",
        "optimum": "",
        **dict.fromkeys(POLICIES, ""),
    }
    assert kept["teams"]["mine"] == {
        "mode": "greedy",
        "settings": {"route": "spare"},
        "unit": 1,
        "own_links": False,
        "on_levels": None,
        "beyond": None,
        "exceeding": 0,
    }
    with paths["results.csv"].open(newline="") as file:
        assert {row["policy"]: row["mode"] for row in csv.DictReader(file)} == modes


def test_numpy_numbers_among_settings_are_written_as_numbers(tmp_path: Path) -> None:
    rules = DfaasRules("edge3")
    team = Player(baseline_team("local", rules), settings={"load_scale": np.int64(120)})
    result = replay("edge3", {"mine": team}, rows=(0, 300), queue=np.int64(2), optimum_windows=0)
    kept = json.loads(write_report(result, tmp_path)["results.json"].read_text())
    assert kept["settings"] == {"queue": 2}
    assert kept["teams"]["mine"]["settings"] == {"load_scale": 120}


def test_labels_cannot_break_the_page(tmp_path: Path) -> None:
    trace = Trace(
        nodes=("<b>x</b>", '"&'),
        arrivals=np.array([[3, 1], [0, 5]]),
        capacity=np.array([[1, 1], [4, 4]]),
        times=np.arange(2),
    )
    team = baseline_team("overflow", DfaasRules(trace))
    result = replay(trace, {"<i>mine": team})
    pictures = team_pictures(DfaasRules(trace, max_cycles=2), team, "<i>mine")
    curve = LearningCurve("<u>run", np.array([1, 2]), np.array([1.0, 2.0]))
    paths = write_report(result, tmp_path, learning=[curve], levels={"<s>": 1.5}, pictures=pictures)
    page = paths["report.html"].read_text()
    for tag in ("<i>mine", "<u>", "<s>", "<b>x"):
        assert tag not in page
    assert "&lt;i&gt;mine" in page
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []


def test_of_many_nodes_those_that_lose_most_are_drawn(tmp_path: Path) -> None:
    nodes = 14
    arrivals = np.tile(np.arange(nodes), (30, 1))  # node_0 and node_1 lose least
    trace = Trace(
        nodes=tuple(f"n{i}" for i in range(nodes)),
        arrivals=arrivals,
        capacity=np.ones((30, nodes), dtype=int),
        times=np.arange(30),
    )
    team = baseline_team("overflow", DfaasRules(trace))
    pictures = team_pictures(DfaasRules(trace, max_cycles=30), team, "mine")
    result = replay(trace, {"mine": team, "local": "local"})
    page = write_report(result, tmp_path, pictures=pictures)["report.html"].read_text()
    counts = [page.count(f"<b>n{i}</b>") for i in range(nodes)]
    assert counts == [0, 0] + [2] * 12  # a heat map and a course over time
    assert page.count("Only the 12 nodes with the highest loss.") == 2


def test_a_page_shows_an_optimum_of_some_windows_as_a_column(tmp_path: Path) -> None:
    pytest.importorskip("scipy", reason="the linear program needs scipy: corral[optimum]")
    result = replay("edge3", POLICIES, rows=(0, 600), queue=9, optimum_windows=1)
    paths = write_report(result, tmp_path)
    page = paths["report.html"].read_text()
    assert "optimum</td>" not in page
    table = page.partition("<table class='sort'>")[2].partition("</table>")[0]
    assert re.findall("<th>(.*?)</th>", table)[-1] == "of optimum %"
    kept = json.loads(paths["results.json"].read_text())
    assert kept["optimum"] == {"method": "linear program", "windows": [0], "all_windows": False}
    costs = {row["policy"]: row["cost_in_optimum_windows"] for row in kept["rows"]}
    assert min(costs, key=costs.__getitem__) == "optimum"
    for score in result.scores:
        if score.policy != "optimum":
            row = table.partition(f"<td>{score.policy}</td>")[2].partition("</tr>")[0]
            assert score.share_of_optimum is not None
            assert row.endswith(f"<td>{100 * score.share_of_optimum:.2f}</td>")


def test_a_page_has_one_ranking_and_no_empty_column(tmp_path: Path) -> None:
    page = write_report(trained()[0], tmp_path)["report.html"].read_text()
    tables = re.findall(r"<table class='sort'>.*?</table>", page)
    assert [table.count("<td>mine</td>") for table in tables] == [1, 0]
    for table in tables:
        rows = [re.findall("<td>(.*?)</td>", row) for row in table.split("<tr")[2:]]
        assert all(any(column) for column in zip(*rows, strict=True))
    assert not re.search(r"\bnode_\d", page)
