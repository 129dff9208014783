"""Common parts of pictures: colors, layout, grids, bars and legends.

A picture of 960 by 640 pixels has scale k = 1. Other pictures are scaled to fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from corral.envs.render.canvas import Box, Canvas, Point, center

__all__ = [
    "BLUE",
    "CARD",
    "FAINT",
    "INK",
    "LINE",
    "ORANGE",
    "PAPER",
    "RED",
    "Grid",
    "bar",
    "board_and_panel",
    "legend",
    "scaled",
    "swatch",
]

# Okabe and Ito's colors, which color-blind people can distinguish; the red is slightly deeper.
BLUE, ORANGE, RED = "#0072b2", "#e69f00", "#cc2f10"
INK, FAINT, LINE, PAPER, CARD = "#1b2530", "#5c6873", "#cdd4db", "#f6f8fa", "#ffffff"


def scaled(width: int, height: int) -> tuple[Canvas, float]:
    """Return an empty canvas and its scale k."""
    return Canvas(width, height, PAPER), min(width / 960, height / 640)


def board_and_panel(width: int, height: int) -> tuple[Canvas, Box, Box, float]:
    """Return an empty canvas, the areas of a board and of a panel on its right, and the scale k."""
    canvas, k = scaled(width, height)
    panel, margin = 316 * k, 28 * k
    board = (margin, margin, width - panel - margin, height - margin)
    return canvas, board, (width - panel, margin, width - margin, height - margin), k


@dataclass(frozen=True)
class Grid:
    """Square fields of ``size`` pixels, by row and column."""

    left: float
    top: float
    size: float

    @classmethod
    def fit(cls, area: Box, rows: int, columns: int, largest: float) -> Grid:
        """Return the largest centered grid in ``area``, with fields of at most ``largest``."""
        size = min((area[2] - area[0]) / columns, (area[3] - area[1]) / rows, largest)
        x, y = center(area)
        return cls(x - size * columns / 2, y - size * rows / 2, size)

    def field(self, place: tuple[int, int], gap: float = 0.0) -> Box:
        """Return the box of a field (row, column), ``gap`` smaller on each side."""
        x, y = self.left + place[1] * self.size, self.top + place[0] * self.size
        return x + gap, y + gap, x + self.size - gap, y + self.size - gap

    def middle(self, place: tuple[int, int]) -> Point:
        """Return the center of a field."""
        return center(self.field(place))


def bar(
    canvas: Canvas,
    box: Box,
    share: float,
    color: str,
    *,
    ground: str,
    radius: float,
    outline: str | None = None,
    stroke: float = 1.0,
) -> None:
    """Draw a bar that is filled up to ``share``."""
    left, top, right, bottom = box
    canvas.box(box, ground, outline=outline, stroke=stroke, radius=radius)
    canvas.box((left, top, left + (right - left) * share, bottom), color, radius=radius)


def swatch(
    canvas: Canvas, x: float, y: float, fill: str, outline: str | None, k: float, **more: float
) -> Box:
    """Draw a square of size 18 k and return its box.

    Its left side is at ``x`` and its vertical center at ``y``.
    """
    box = (x, y - 9 * k, x + 18 * k, y + 9 * k)
    canvas.box(box, fill, outline=outline, **more)
    return box


def legend(
    canvas: Canvas,
    box: Box,
    rows: Iterable[tuple[str, str, float, str]],
    k: float,
    *,
    step: float,
    indent: float,
    size: float,
    radius: float = 0.0,
) -> None:
    """Draw rows (fill, outline, stroke, text) from the top of ``box``, each ``step`` * k high."""
    left, top, right, _ = box
    for place, (fill, outline, stroke, text) in enumerate(rows):
        y = top + step * place * k
        swatch(canvas, left, y, fill, outline, k, stroke=stroke * k, radius=radius * k)
        x = left + indent * k
        canvas.text((x, y), text, size * k, fill=INK, width=right - x)
