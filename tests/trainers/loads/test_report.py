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
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import baseline_team
from corral.envs.policy import RandomPolicy
from corral.trainers.evaluation.players import Player
from corral.trainers.loads.plots import node_chart, policy_chart
from corral.trainers.loads.policy_picture import Picture, team_pictures
from corral.trainers.loads.replay import Replay, replay
from corral.trainers.loads.report import write_report
from corral.trainers.loads.text import ordered
from corral.trainers.report.plots import Bar, LearningCurve, bar_chart, learning_chart

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


def test_amounts_are_explained(tmp_path: Path) -> None:
    paths = write_report(replay("edge3", ["static"], rows=(0, 300)), tmp_path)
    assert "<td>static</td><td>40 % of the arrivals" in paths["report.html"].read_text()


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
        "What each policy served and lost",
        "Beside the best rule, in the same windows",
        "Return per whole window",
        "Lost by each node, % of its own arrivals",
        "Learning",
        "What was learned",
        "Load and loss over time",
        "How to read this",
    ]
    for text in ("run 1", "run 2", "random", "env steps", "team return per episode"):
        assert f">{text}</text>" in page
    for text in ("node_0 milan", "overflow, all nodes", "arrivals, requests per step →"):
        assert f">{text}</text>" in page
    # The team's forwarding, and the losses of the team, of the best reference and of local play.
    for text in ("forwarded, mine", "lost, mine", "lost, overflow/equal", "lost, local/equal"):
        assert page.count(f">{text}</text>") == 3
    assert "<td>mine</td><td>greedy</td>" in page
    assert "<td>noise</td><td>sampled</td>" in page
    assert "<td>overflow/equal</td><td></td>" in page
    assert "Greedy play takes the likeliest action, sampled play draws one." in page


def test_the_verdict_stands_before_all_else(tmp_path: Path) -> None:
    result = replay("edge3", POLICIES, rows=(0, 300))
    lines = ["Run <this>: it loses 3 %.", "Nothing else was tried."]
    page = write_report(result, tmp_path, verdict=lines)["report.html"].read_text()
    said = re.search(r"</h1>\s*<div class='verdict'>(.*?)</div>", page)
    assert said is not None
    assert re.findall("<p>(.*?)</p>", said[1]) == ["Run &lt;this&gt;: it loses 3 %.", lines[1]]


def test_without_teams_the_page_has_neither(tmp_path: Path) -> None:
    page = write_report(replay("edge3", POLICIES, rows=(0, 300)), tmp_path)["report.html"]
    text = page.read_text()
    assert "Learning" not in text
    assert "What was learned" not in text
    assert "<th>play</th>" not in text
    assert "<th>illegal</th>" not in text
    assert "forwarded, " not in "".join(re.findall(r"<text.*?</text>", text))


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
    for tag in ("<i>", "<u>", "<s>", "<b>x"):
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
    counts = [page.count(f">node_{i} n{i}</text>") for i in range(nodes)]
    assert counts == [0, 0] + [2] * 12  # a heat map and a course over time
    assert page.count("The 12 nodes that lose most.") == 2


# --- Charts --------------------------------------------------------------------------------------


def lines(drawn: str, width: str) -> list[list[tuple[float, float]]]:
    """The points of the paths of that width."""
    shapes = re.findall(rf'<path d="M([^"]*)"[^>]*stroke-width="{width}"', drawn)
    return [[tuple(map(float, point.split())) for point in s.split("L")] for s in shapes]  # type: ignore[misc]


def test_a_learning_curve_is_drawn_to_scale_and_breaks_where_nothing_is_known() -> None:
    curve = LearningCurve(
        "run", np.arange(1, 7) * 10, np.array([0.0, 5.0, np.nan, np.nan, 10.0, 7.5])
    )
    drawn = learning_chart([curve], {"random": 2.5})
    first, second = lines(drawn, "1.8")
    (x0, y0), (x1, y1) = first
    (x4, y4), (x5, y5) = second
    assert x1 - x0 == pytest.approx(x5 - x4, abs=0.11)
    assert x4 - x0 == pytest.approx(4 * (x1 - x0), abs=0.3)
    assert y0 - y1 == pytest.approx(y1 - y4, abs=0.11)
    assert y5 - y4 == pytest.approx((y0 - y1) / 2, abs=0.11)
    ((_, level), (_, same)) = next(line for line in lines(drawn, "1.5"))
    assert level == same == pytest.approx((y0 + y1) / 2, abs=0.11)
    assert "nan" not in drawn


@pytest.mark.parametrize(
    "returns", [[], [np.nan, np.nan], [3.0], [-2.0, -2.0], [1e6, -1e6], list(range(5000))]
)
def test_any_curve_can_be_drawn(returns: list[float]) -> None:
    curve = LearningCurve("run", np.arange(len(returns)), np.array(returns, dtype=float))
    drawn = learning_chart([curve], {})
    assert not re.search("nan|inf", drawn)
    assert len(drawn) < 20_000


def test_the_labels_of_curves_do_not_overlap() -> None:
    curves = [LearningCurve(f"run {k}", np.arange(2), np.array([1.0, 2.0])) for k in range(30)]
    drawn = learning_chart(curves, {"random": 0.0})
    places = sorted(
        float(y) for y in re.findall(r'<text x="[\d.]+" y="([\d.]+)"[^>]*>r[ua]', drawn)
    )
    assert len(places) == 31
    assert min(np.diff(places)) >= 14.9


def test_a_curve_has_a_return_for_each_step() -> None:
    with pytest.raises(ValueError, match=r"curve run: env_steps \(3,\) and returns \(2,\)"):
        learning_chart([LearningCurve("run", np.arange(3), np.zeros(2))], {})


def picture(forwarded: np.ndarray, **more: str) -> Picture:
    height, width = forwarded.shape
    return Picture("mine", "node_0", "n0", np.arange(width), np.arange(height), forwarded, **more)


def test_a_heat_map_has_every_cell_once_and_shades_by_amount() -> None:
    forwarded = np.arange(12).reshape(3, 4)
    drawn = policy_chart([picture(forwarded), picture(forwarded * 2, reference="twice")], "title")
    maps = re.findall(r"<g [^>]*>(.*?)</g>", drawn)
    assert len(maps) == 2
    for cells in maps:
        shades = {}
        for shape, color in re.findall(r'<path d="([^"]*)" fill="(#\w+)"', cells):
            for x, y, length in re.findall(r"M(\d+) (\d+)h(\d+)v", shape):
                for k in range(int(length)):
                    assert shades.setdefault((int(y), int(x) + k), color) == color
        assert len(shades) == 12
        light = [int(shades[y, x][1:3], 16) for y in range(3) for x in range(4)]
        assert light == sorted(light, reverse=True)  # more is darker
    assert maps[0] != maps[1]  # one scale for both
    assert "twice, all nodes" in drawn


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (2, 1)])
def test_a_heat_map_of_hardly_anything_can_be_drawn(shape: tuple[int, int]) -> None:
    drawn = policy_chart([picture(np.zeros(shape, dtype=int))], "title")
    assert "nan" not in drawn
    assert drawn.startswith("<svg")


def test_teams_stand_out_among_the_bars() -> None:
    drawn = bar_chart([Bar("a", 1.0, marked=True), Bar("b", 1.0), Bar("optimum", 1.0)], "title")
    assert len(set(re.findall(r'<rect[^>]*fill="(#\w+)"', drawn))) == 3


def test_a_name_that_tells_the_mode_is_not_told_it_twice(tmp_path: Path) -> None:
    team = Player(baseline_team("local", DfaasRules("edge3")))
    result = replay("edge3", {"ppo, greedy": team, "dqn": team}, rows=(0, 300))
    page = write_report(result, tmp_path)["report.html"].read_text()
    assert ">ppo, greedy</text>" in page
    assert ">dqn, greedy</text>" in page
    assert "greedy, greedy" not in page


def test_forwarded_requests_have_a_strip_of_their_own() -> None:
    curve = np.array([0.0, 4.0])
    drawn = node_chart(
        "node_0",
        ["0", "1"],
        arrivals=curve,
        capacity=curve,
        losses={"mine": np.zeros(2)},
        forwarded={"mine": curve / 2},
    )
    assert ">forwarded, mine</text>" in drawn
    assert len(re.findall(r'<path d="M[\d.]+ [\d.]+v-34.0h', drawn)) == 1  # 2 of 2, the full height


def test_a_page_shows_an_optimum_of_some_windows_apart(tmp_path: Path) -> None:
    pytest.importorskip("scipy", reason="the linear program needs scipy: corral[optimum]")
    result = replay("edge3", POLICIES, rows=(0, 600), queue=9, optimum_windows=1)
    paths = write_report(result, tmp_path)
    page = paths["report.html"].read_text()
    before, apart = page.split("<h2>Beside the optimum, in 1 window of 3 (number 1)</h2>")
    assert "optimum</td>" not in before
    assert ">optimum</text>" not in page  # nor a bar among those of all windows
    table = apart.partition("</table>")[0]
    assert table.count("<tr") == 2 + len(POLICIES)
    kept = json.loads(paths["results.json"].read_text())
    assert kept["optimum"] == {"method": "linear program", "windows": [0], "all_windows": False}
    costs = {row["policy"]: row["cost_in_optimum_windows"] for row in kept["rows"]}
    assert min(costs, key=costs.__getitem__) == "optimum"
    for cost in costs.values():
        assert f"<td>{100 * cost:.2f}</td>" in table
