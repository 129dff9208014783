"""Plots with two axes, as SVG for light and dark pages, without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.text import visible
from corral.trainers.report import svg as pen

__all__ = ["COLORS", "Axes", "decades", "picture", "words"]

COLORS = (pen.BLUE, pen.RED, pen.GREEN, pen.PURPLE, pen.SKY, pen.ORANGE, pen.GRAY)
"""Colors of Okabe and Ito, distinguishable with any color vision."""

STYLE = f"""<style>
.paper {{ fill: #ffffff }} .ink {{ fill: #222222 }} .soft {{ fill: #6b6b6b }}
.grid {{ stroke: #e5e5e5 }}
@media (prefers-color-scheme: dark) {{
.paper {{ fill: #16181c }} .ink {{ fill: #ececec }} .soft {{ fill: #9a9ea6 }}
.grid {{ stroke: #33373f }} [stroke="{pen.BLUE}"] {{ stroke: #3f9bd8 }}
[fill="{pen.BLUE}"] {{ fill: #3f9bd8 }} }}
</style>"""
"""Colors of both themes. The blue is too dark for a dark page; the other colors fit both."""


def picture(height: float, parts: Sequence[str], title: str) -> str:
    """Return an SVG picture in the colors of the reader's theme."""
    paper = f'<rect class="paper" width="{pen.WIDTH}" height="{height:.0f}"/>'
    return pen.svg(height, [STYLE, paper, *parts], title)


def words(
    x: float, y: float, text: str, *, soft: bool = False, color: str = "", **style: Any
) -> str:
    """Return text at a point, in the theme's color or in ``color``; see ``svg.text``."""
    drawn = pen.text(x, y, visible(text), **style)
    fill = f'fill="{color}"' if color else f'class="{"soft" if soft else "ink"}"'
    return drawn.replace(f'fill="{pen.INK}"', fill, 1)


def decades(low: float, high: float) -> list[float]:
    """Return the powers of ten in ``low`` .. ``high``, for the marks of a logarithmic axis."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    return [10.0**power for power in range(first, last + 1)]


@dataclass
class Axes:
    """A plot: its position in the picture, the ranges of its axes, and the parts drawn so far."""

    left: float
    top: float
    width: float
    height: float
    x: tuple[float, float]  # at the left and the right edge
    y: tuple[float, float]  # at the bottom and the top edge
    log: bool = False  # x is logarithmic
    parts: list[str] = field(default_factory=list)

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def across(self, values: Any) -> Array:
        """Return the horizontal positions of x values in the picture."""
        (low, high), x = self.x, np.asarray(values, dtype=float)
        if self.log:
            low, high, x = math.log(low), math.log(high), np.log(x)
        return np.asarray(self.left + (x - low) / (high - low) * self.width)

    def up(self, values: Any) -> Array:
        """Return the vertical positions of y values in the picture."""
        (low, high), y = self.y, np.asarray(values, dtype=float)
        return np.asarray(self.bottom - (y - low) / (high - low) * self.height)

    def rows(self, marks: Iterable[float], size: int = 12) -> None:
        """Draw a horizontal line at each mark of y, with its number to the left."""
        for mark in marks:
            at = float(self.up(mark))
            self._grid(self.left, at, self.right, at)
            self.parts.append(
                words(self.left - 8, at + 4, f"{mark:g}", anchor="end", size=size, soft=True)
            )

    def columns(self, marks: Iterable[float], size: int = 12, *, lines: bool = False) -> None:
        """Draw a tick, or with ``lines`` a full vertical line, at each mark of x; number below."""
        for mark in marks:
            at = float(self.across(mark))
            self._grid(at, self.top if lines else self.bottom, at, self.bottom + 4)
            y = self.bottom + 8 + size
            self.parts.append(words(at, y, _number(mark), anchor="middle", size=size, soft=True))

    def _grid(self, *ends: float) -> None:
        x1, y1, x2, y2 = ends
        self.parts.append(f'<path class="grid" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>')

    def titles(self, below: str, beside: str = "", size: int = 12) -> None:
        """Write the titles of the axes."""
        middle = self.left + self.width / 2
        self.parts.append(words(middle, self.bottom + 40, below, anchor="middle", size=size))
        if beside:
            start = self.top + self.height / 2 + pen.LETTER * len(beside) / 2
            self.parts.append(words(18, start, beside, turned=True, size=size))

    def curve(
        self,
        x: Any,
        y: Any,
        color: str,
        width: float = 2,
        opacity: float = 1,
        *,
        steps: bool = False,
    ) -> None:
        """Draw a line through points, with a gap at NaN."""
        x, y = _as_steps(x, y) if steps else (np.asarray(x, float), np.asarray(y, float))
        finite = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
        for piece in np.split(finite, np.flatnonzero(np.diff(finite) > 1) + 1):
            if len(piece):
                points = _points(self.across(x[piece]), self.up(y[piece]))
                self.parts.append(
                    f'<path d="M{points}" fill="none" stroke="{color}" stroke-width="{width:g}" '
                    f'stroke-opacity="{opacity:g}" stroke-linejoin="round"/>'
                )

    def band(
        self, x: Any, low: Any, high: Any, color: str, opacity: float = 0.2, *, steps: bool = False
    ) -> None:
        """Fill the area between two curves."""
        outlines = [
            _as_steps(x, y) if steps else (np.asarray(x), np.asarray(y)) for y in (low, high)
        ]
        (forward, lower), (backward, upper) = outlines
        points = _points(
            self.across(np.concatenate([forward, backward[::-1]])),
            self.up(np.concatenate([lower, upper[::-1]])),
        )
        self.parts.append(f'<path d="M{points}Z" fill="{color}" fill-opacity="{opacity:g}"/>')

    def dots(self, x: Any, y: Any, color: str, radius: float = 3, opacity: float = 1) -> None:
        """Draw a dot at each point."""
        columns, rows = np.broadcast_arrays(self.across(x), self.up(y))
        self.parts += [
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{radius:g}" fill="{color}" '
            f'fill-opacity="{opacity:g}"/>'
            for a, b in zip(columns.ravel().tolist(), rows.ravel().tolist(), strict=True)
        ]

    def key(self, names: Sequence[str], colors: Sequence[str], heights: Sequence[float]) -> None:
        """Write names to the right of the plot, at ``heights``, moved apart if they overlap."""
        for name, color, at in zip(
            names, colors, pen.apart(heights, 17, self.top + 6, self.bottom), strict=True
        ):
            self.parts.append(words(self.right + 10, at + 4, pen.cut(name), color=color, size=13))


def _number(value: float) -> str:
    return pen.thousands(value) if value >= 10_000 else f"{value:,g}"


def _points(x: Array, y: Array) -> str:
    return "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))


def _as_steps(x: Any, y: Any) -> tuple[Array, Array]:
    """Return the corners of a step function that keeps each value until the next x."""
    return np.repeat(np.asarray(x, float), 2)[1:], np.repeat(np.asarray(y, float), 2)[:-1]
