"""The page of a comparison: the verdict first, then every run."""

from __future__ import annotations

import html
import re
from pathlib import Path

import numpy as np
import pytest

from corral.lab.comparing.comparison import Comparison
from corral.lab.comparing.groups import Member
from corral.lab.comparing.page import comparison_page


def member(name: str, seed: int, score: float) -> Member:
    steps = np.array([100.0, 200.0, 300.0])
    return Member(name, seed, 300, score, steps, np.array([score - 9, score - 2, score]))


def comparison(count: int = 5, *, base: float = -20.0, name: str = "runs") -> Comparison:
    groups = {
        label: tuple(member(f"{name}/{label}{k}", k, base + high + k) for k in range(count))
        for label, high in (("low", 0.0), ("high", 30.0))
    }
    return Comparison("arena_v0", "return", groups, notes=["A note."], versions={"corral": "1"})


@pytest.mark.parametrize("count", [2, 5])
def test_a_page_shows_the_verdict_then_every_run(tmp_path: Path, count: int) -> None:
    found = comparison(count)
    text = found.write(tmp_path)["report.html"].read_text()
    first = re.search(r"</h1>\s*<div class='verdict'><p>(.*?)</p>", text)
    assert first is not None
    assert html.unescape(first[1]) == found.verdict
    rows = text.partition("<h2>Every run</h2>")[2].partition("</table>")[0]
    drawn = re.findall(r'<path class="c\d d\d" d="[^"]+" data-run="\w+" data-name="(.*?)"', text)
    for label in ("low", "high"):
        for k in range(count):
            score = -20 + 30 * (label == "high") + k
            cells = f"<td>{label}</td><td>runs/{label}{k}</td><td>{score}</td>"
            assert f"{cells}<td>{k}</td><td>300</td>" in rows
            assert f"{label}: runs/{label}{k}" in drawn
    dots = [d.count("h.01") for d in re.findall(r'class="c\d dot" d="([^"]*)"', text)]
    assert dots == [count, count]


def test_scores_stand_to_scale() -> None:
    text = comparison_page(comparison(2))
    shapes = re.findall(r'class="c\d dot" d="([^"]*)"', text)
    places = [[float(x) for x in re.findall(r"M([\d.]+) 25", shape)] for shape in shapes]
    # The axis runs from -20 to 15 in steps of 8 at most; the higher group stands first.
    scores = np.array([[10, 11], [-20, -19]])
    flat, at = scores.ravel(), np.ravel(places)
    slope = (at[0] - at[2]) / (flat[0] - flat[2])
    np.testing.assert_allclose(at - at[2], slope * (flat - flat[2]), atol=0.1)
    assert 0 <= at.min() < at.max() <= 1000


def test_runs_of_a_group_share_a_color_and_one_entry_of_the_legend() -> None:
    text = comparison_page(comparison(3))
    kinds = re.findall(r'<path class="(c\d) d\d" d="[^"]+" data-run="(\w+)"', text)
    assert len(kinds) == 6
    assert len(set(kinds)) == 2
    assert re.findall(r"<li data-run=\"(\w+)\">", text) == ["high", "low"]


def test_names_cannot_break_the_page() -> None:
    text = comparison_page(comparison(2, name="<b>'\""))
    assert "<b>'" not in text
    assert "&lt;b&gt;" in text
