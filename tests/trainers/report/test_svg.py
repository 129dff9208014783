"""Pictures that stand alone: to be read on pages of any color."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.trainers.report import svg as pen

ROOT = Path(__file__).parents[3]
PICTURES = sorted([*(ROOT / "docs").glob("*.svg"), *(ROOT / "benchmarks/results").glob("*.svg")])


def test_a_picture_has_a_background_below_all_else() -> None:
    drawn = pen.svg(10, [pen.text(0, 0, "words")], "title")
    assert drawn.index('<rect width="100%" height="100%" fill="#ffffff"/>') < drawn.index("<text")


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_pictures_of_the_docs_have_a_background(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    first = min(text.find(mark) for mark in ("<text", "<use") if mark in text)
    assert any(
        ground in text[:first] for ground in ('height="100%" fill="#ffffff"', "fill: #ffffff")
    )
