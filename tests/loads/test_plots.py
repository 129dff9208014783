"""The charts of a replay: axes with days, rows of losses, heat maps."""

from __future__ import annotations

import datetime
import json
import re

import numpy as np
import pytest

from corral.data import Trace
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import baseline_team
from corral.loads.plots import TimeAxis, course_data, node_chart, policy_chart
from corral.loads.policy_picture import Picture, policy_picture
from support.messages import shown


def load(start: str | int, steps: int, step: int = 300) -> Trace:
    """A trace of one node from that time on: text is UTC, a number is a plain clock."""
    clock = "integer" if isinstance(start, int) else "utc"
    first = start if isinstance(start, int) else int(np.datetime64(start, "s").astype(np.int64))
    ones = np.ones((steps, 1), dtype=np.int64)
    return Trace(("n0",), ones, ones, first + step * np.arange(steps), clock=clock)  # type: ignore[arg-type]


# --- Axes ----------------------------------------------------------------------------------------


def test_an_axis_has_midnights_the_zone_and_days_to_zoom_to() -> None:
    axis = TimeAxis.of(load("2026-01-05T18:00", 288 * 4), (0, 288 * 4), 2, 288)
    assert axis.lines == [36, 180, 324, 468]  # bins of ten minutes: 6 h, and a day each
    assert [words for _, words in axis.marks] == [
        "Tue 6 Jan",
        "Wed 7 Jan",
        "Thu 8 Jan",
        "Fri 9 Jan",
    ]
    assert axis.unit == "day"
    assert axis.parts[:2] == [(0, 36, "Mon 2026-01-05"), (36, 180, "Tue 2026-01-06")]
    assert axis.parts[-1] == (468, 576, "Fri 2026-01-09")
    shown(axis.html(), "<span class='zone'>UTC</span>")
    shown(axis.html(), "left:6.25%'>Tue 6 Jan")


def test_an_axis_of_rows_counts_from_the_first_of_them() -> None:
    axis = TimeAxis.of(load("2026-01-05T00:00", 288 * 4), (100, 288 * 4), 1, 288)
    assert axis.lines == [188, 476, 764]
    assert axis.start == datetime.datetime(2026, 1, 5, 8, 20, tzinfo=datetime.UTC).timestamp()


def test_words_of_a_long_axis_do_not_crowd() -> None:
    for days in (1, 2, 5, 20, 60, 400):
        axis = TimeAxis.of(load("2026-01-05T00:00", 24 * days, 3600), (0, 24 * days), 1, 24)
        assert 2 <= len(axis.marks) <= 9, days


@pytest.mark.parametrize(("largest", "end"), [(7, "8"), (1_500, "1,500"), (1_600_000, "2,000,000")])
def test_an_axis_of_loads_ends_at_a_plain_number(largest: int, end: str) -> None:
    axis = TimeAxis.of(load(1000, 4, 10), (0, 4), 1, 4)
    ones = np.ones(4)
    chart = node_chart("web", axis, arrivals=largest * ones, capacity=ones, losses={"lost": ones})
    assert f">{end}</span>" in chart


def test_a_clock_of_integers_has_windows() -> None:
    axis = TimeAxis.of(load(1000, 25, 10), (0, 25), 1, 10)
    assert axis.zone is None
    assert axis.unit == "window"
    assert axis.parts == [(0, 10, "window 1"), (10, 20, "window 2"), (20, 25, "window 3")]
    assert axis.marks[:2] == [(0.0, "1000"), (5.0, "1050")]
    shown(axis.html(), "<span class='zone'>step</span>")


@pytest.mark.parametrize("start", ["0001-01-02T00:00", "9999-12-30T00:00", 0, 10**9])
@pytest.mark.parametrize("steps", [1, 2, 300])
def test_any_clock_has_an_axis(start: str | int, steps: int) -> None:
    axis = TimeAxis.of(load(start, steps), (0, steps), 1, min(steps, 288))
    assert "nan" not in axis.html()


# --- Nodes ---------------------------------------------------------------------------------------


def test_a_node_without_load_or_loss_can_be_drawn() -> None:
    zero, axis = np.zeros(1), TimeAxis.of(load(0, 1), (0, 1), 1, 1)
    drawn = node_chart("node_0", axis, arrivals=zero, capacity=zero, losses={"local": zero})
    assert drawn.startswith("<figure")
    assert "nan" not in drawn


def test_forwarded_requests_have_a_row_of_their_own() -> None:
    curve, axis = np.array([0.0, 4.0]), TimeAxis.of(load(0, 2), (0, 2), 1, 2)
    drawn = node_chart(
        *("node_0", axis),
        arrivals=curve,
        capacity=curve,
        losses={"mine": np.zeros(2)},
        forwarded={"mine": curve / 2},
    )
    shown(drawn, ">forwarded, mine</p>")
    shown(drawn, 'd="M1 100v-100h1V100z"')  # 2 of 2, the full height, in the second step


def test_rows_of_losses_share_a_scale_that_is_told() -> None:
    axis = TimeAxis.of(load(0, 2), (0, 2), 1, 2)
    losses = {"much": np.array([0.0, 40.0]), "little": np.array([10.0, 0.0])}
    zero = np.zeros(2)
    drawn = node_chart("node_0", axis, arrivals=zero, capacity=zero, losses=losses)
    rows = drawn.split("<div data-policy=")[1:]
    assert [re.findall("bottom:100.00%'>(.*?)<", row) for row in rows] == [["40"], ["40"]]
    shown(rows[1], 'd="M0 100v-25h1V100z"')


def test_the_script_gets_every_number_and_no_name_ends_it() -> None:
    axis = TimeAxis.of(load(0, 2), (0, 2), 1, 2)
    text = course_data(axis, {"</script>": [np.array([1.0, 2.5]), np.array([1 / 3, 1e6])]})
    inner = re.fullmatch(r"<script type='application/json'>(.*)</script>\n", text)
    assert inner is not None
    assert "<" not in inner[1]
    (node,) = json.loads(inner[1])["nodes"]
    assert node == {"name": "</script>", "values": [[1, 2.5], [0.3333, 1000000]]}


# --- Heat maps -----------------------------------------------------------------------------------


def picture(forwarded: np.ndarray, **more: object) -> Picture:
    height, width = forwarded.shape
    return Picture("mine", "node_0", "n0", np.arange(width), np.arange(height), forwarded, **more)  # type: ignore[arg-type]


def cells(drawn: str) -> list[dict[tuple[int, int], float]]:
    """The opacity of each painted cell of each map, by row from below and column."""
    maps = []
    for figure in re.findall("<figure>.*?</figure>", drawn, re.DOTALL):
        height = int(re.findall(r'viewBox="0 0 \d+ (\d+)"', figure)[0])
        found: dict[tuple[int, int], float] = {}
        for shape, opacity in re.findall(r'<path d="([^"]*)" fill-opacity="([\d.]+)"', figure):
            for x, y, length in re.findall(r"M(\d+) (\d+)h(\d+)v", shape):
                for k in range(int(length)):
                    cell = (height - 1 - int(y), int(x) + k)
                    assert cell not in found
                    found[cell] = float(opacity)
        maps.append(found)
    return maps


def test_a_heat_map_has_every_cell_once_and_shades_by_amount() -> None:
    forwarded = np.arange(12).reshape(3, 4)
    drawn = policy_chart([picture(forwarded), picture(forwarded * 2, reference="twice")], "title")
    maps = cells(drawn)
    assert [len(each) for each in maps] == [12, 12]
    for each in maps:
        shades = [each[y, x] for y in range(3) for x in range(4)]
        assert shades == sorted(shades)  # more is stronger
        assert min(shades) > 0
    assert max(maps[0].values()) < max(maps[1].values()) == 1  # one scale for both, which is told
    shown(drawn, "scale", 0)
    shown(drawn, "22 requests")
    shown(drawn, "twice")


def test_nothing_is_painted_where_no_data_were() -> None:
    seen = np.array([[True, False], [True, True]])
    drawn = policy_chart([picture(np.array([[1, 90], [2, 3]]), seen=seen)], "title")
    (found,) = cells(drawn)
    assert set(found) == {(0, 0), (1, 0), (1, 1)}
    shown(drawn, "3 requests")  # nor does it stretch the scale
    assert 'data-values="1,;2,3"' in drawn


def test_a_picture_knows_where_its_rows_had_data() -> None:
    arrivals = np.array([[0], [5], [39]])
    capacity = np.array([[20], [20], [39]])
    trace = Trace(("n0",), arrivals, capacity, np.arange(3))
    rules = DfaasRules(trace, rows=(0, 2), max_cycles=2)
    found = policy_picture(rules, baseline_team("local", rules)["node_0"], "node_0")
    assert found.seen is not None
    assert found.seen.shape == found.forwarded.shape == (40, 40)
    expected = np.zeros((40, 40), dtype=bool)
    expected[19:22, 0:2] = True  # around (20, 0)
    expected[19:22, 4:7] = True  # around (20, 5); the third row was not trained on
    assert np.array_equal(found.seen, expected)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (2, 1)])
def test_a_heat_map_of_hardly_anything_can_be_drawn(shape: tuple[int, int]) -> None:
    drawn = policy_chart([picture(np.zeros(shape, dtype=int))], "title")
    assert "nan" not in drawn
    assert len(cells(drawn)[0]) == shape[0] * shape[1]
