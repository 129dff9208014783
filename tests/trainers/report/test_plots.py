"""Charts of a report: drawn to scale, whatever there is to draw."""

from __future__ import annotations

import re

import numpy as np
import pytest

from corral.trainers.report.plots import Bar, LearningCurve, bar_chart, learning_chart
from support.messages import refused, shown


def test_bars_are_as_long_as_their_values() -> None:
    drawn = bar_chart([Bar("a", 10.0), Bar("b", 5.0)], "title")
    assert re.findall(r"<i style='width:([\d.]+)%'", drawn) == ["100.00", "50.00"]


def test_an_interval_lies_where_its_numbers_are() -> None:
    drawn = bar_chart([Bar("a", 5.0, 4.0, 8.0), Bar("b", 10.0)], "title")
    shown(drawn, "left:40.00%;width:40.00%")


def test_values_of_bars_are_rounded_as_in_tables() -> None:
    drawn = bar_chart(
        [Bar("a", 3772.67), Bar("b", 150.4), Bar("c", 63.74), Bar("d", 0.256)], "title"
    )
    assert re.findall(r"class='value'>([^<]*)<", drawn) == ["3,773", "150", "63.7", "0.26"]


def test_teams_stand_out_among_the_bars() -> None:
    drawn = bar_chart([Bar("a", 1.0, marked=True), Bar("b", 1.0), Bar("optimum", 1.0)], "title")
    assert re.findall(r"class='bar (\w*)'", drawn) == ["team", "", "optimum"]


def lines(drawn: str, kind: str) -> list[list[tuple[float, float]]]:
    """The points of each piece of the paths of that class."""
    shapes = re.findall(rf'<path class="{kind} ?" d="M([^"]*)"', drawn)
    pieces = [piece for shape in shapes for piece in shape.split("M")]
    return [[tuple(map(float, point.split())) for point in s.split("L")] for s in pieces]  # type: ignore[misc]


def test_a_learning_curve_is_drawn_to_scale_and_breaks_where_nothing_is_known() -> None:
    curve = LearningCurve(
        "run", np.arange(1, 7) * 10, np.array([0.0, 5.0, np.nan, np.nan, 10.0, 7.5])
    )
    drawn = learning_chart([curve], {"random": 2.5})
    first, second = lines(drawn, "c0 d0")
    assert [x for x, _ in first + second] == pytest.approx([166.67, 333.33, 833.33, 1000], abs=0.1)
    assert [y for _, y in first + second] == pytest.approx([100, 50, 0, 25])
    shown(drawn, "M0 75H1000")
    assert "nan" not in drawn


@pytest.mark.parametrize(
    "returns", [[], [np.nan, np.nan], [3.0], [-2.0, -2.0], [1e6, -1e6], list(range(5000))]
)
def test_any_curve_can_be_drawn(returns: list[float]) -> None:
    curve = LearningCurve("run", np.arange(len(returns)), np.array(returns, dtype=float))
    drawn = learning_chart([curve], {})
    assert not re.search("nan|inf", drawn)
    assert len(drawn) < 20_000


def test_every_run_of_many_has_a_line_and_a_look_of_its_own() -> None:
    curves = [LearningCurve(f"run {k}", np.arange(2), np.array([1.0, 2.0])) for k in range(18)]
    drawn = learning_chart(curves, {"random": 0.0})
    looks = re.findall(r'<path class="(c\d d\d)" d="M[^"]*" data-run', drawn)
    assert len(looks) == len(set(looks)) == 18
    for k in range(18):
        assert f"run {k}</li>" in drawn


def test_names_of_levels_do_not_overlap() -> None:
    levels = {f"level {k}": 1.0 + 0.001 * k for k in range(5)}
    drawn = learning_chart([LearningCurve("run", np.arange(2), np.array([0.0, 2.0]))], levels)
    at = sorted(map(float, re.findall(r"class='level' style='bottom:([\d.]+)%'", drawn)))
    assert len(at) == 5
    assert min(np.diff(at)) >= 6.1  # % of 260 px: the height of a line of text


def test_a_curve_has_a_return_for_each_step() -> None:
    with refused(ValueError, "run", "(3,)", "(2,)"):
        learning_chart([LearningCurve("run", np.arange(3), np.zeros(2))], {})
