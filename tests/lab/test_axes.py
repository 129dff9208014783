"""Plots with axes: points stand where they should, gaps stay open, names are text."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np

from corral.lab.axes import Axes, decades, picture, words


def axes(**given: object) -> Axes:
    return Axes(
        **({"left": 10, "top": 20, "width": 100, "height": 50, "x": (0, 10), "y": (0, 5)} | given)
    )


def test_values_stand_between_the_edges() -> None:
    assert axes().across([0, 5, 10]).tolist() == [10, 60, 110]
    assert axes().up([0, 5]).tolist() == [70, 20]
    assert np.allclose(axes(x=(1, 100), log=True).across([1, 10, 100]), [10, 60, 110])


def test_a_curve_has_a_gap_where_a_value_is_missing() -> None:
    drawn = axes()
    drawn.curve([0, 1, 2, 3, 4], [1, 1, np.nan, 1, 1], "#000000")
    assert len(drawn.parts) == 2
    drawn.curve([0, 1], [np.nan, np.nan], "#000000")
    assert len(drawn.parts) == 2


def test_steps_keep_a_value_until_the_next() -> None:
    drawn = axes()
    drawn.curve([0, 5, 10], [0, 5, 5], "#000000", steps=True)
    [path] = re.findall(r'd="M([^"]*)"', drawn.parts[0])
    assert path == "10.0 70.0L60.0 70.0L60.0 20.0L110.0 20.0L110.0 20.0"


def test_marks_of_a_logarithmic_axis_are_powers_of_ten() -> None:
    assert decades(0.5, 200) == [1, 10, 100]
    assert decades(1, 1000) == [1, 10, 100, 1000]


def test_a_picture_is_xml_whatever_names_hold() -> None:
    drawn = axes()
    drawn.rows([0, 5])
    drawn.columns([0, 10_000])
    drawn.titles("<x> & y", "up")
    drawn.dots([1, 2], 3, "#000000")
    drawn.band([0, 1], [0, 0], [1, 1], "#000000")
    drawn.key(["<a>\x1b", "b"], ["#000000"] * 2, [20, 20])
    text = picture(100, [*drawn.parts, words(0, 0, "soft", soft=True)], 'a "title"')
    root = ElementTree.fromstring(text)
    said = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "<x> & y" in said
    assert "10 k" in said
