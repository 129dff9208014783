"""The picture of duels: matrix of returns and ratings, as one SVG for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from corral.lab.axes import picture, words
from corral.text import visible
from corral.trainers.report import svg as pen

if TYPE_CHECKING:
    from corral.lab.duels.driver import Duels

__all__ = ["duel_picture"]

STYLE = """<style>
.empty { fill: #f3f3f3 } .interval { stroke: #222222 }
@media (prefers-color-scheme: dark) {
.empty { fill: #1e2126 } .interval { stroke: #ececec } }
</style>"""
"""Colored areas are half transparent, so they fit both themes."""

WON, LOST = pen.BLUE, pen.RED
STRONGEST = 0.6  # opacity of a cell with only wins or only losses; its text stays legible
MARGIN, TOP, ROW = 24, 92, 34
WIDEST = 104  # maximum width of a cell


def duel_picture(duels: Duels) -> str:
    """Return the picture. Rows are players in a seat, columns the players of the other seats.

    Cells hold the mean return of the row's player. A blue cell has more wins than losses, a red
    cell fewer. With more than two seats, blue means a high return for the seat, red a low return.
    Below the matrix are the ratings with 95 % intervals, best first.
    """
    matrix = duels.matrix
    names = [" as ".join(key) if isinstance(key, tuple) else str(key) for key in matrix.index]
    grid = _Grid.of(names, [str(name) for name in matrix.columns])
    seats = f"{duels.agents[0]} in rows, {duels.agents[1]} in columns"
    if len(duels.agents) > 2:
        seats = "rows: a player in a seat; columns: the player of all other seats"
    parts = [
        words(MARGIN, 32, f"Duels in {visible(duels.env)}", size=18, weight=600),
        words(MARGIN, 54, f"{duels.rows[0].episodes:,} episodes of each pairing", soft=True),
        words(MARGIN, 72, f"Mean return of the row's player: {seats}", soft=True),
        *grid.headings(),
    ]
    shades = _shades(duels)
    for i, values in enumerate(matrix.values.tolist()):
        for j, value in enumerate(values):
            parts += grid.cell(i, j, value, shades[i][j])
    bottom = grid.bottom
    if duels.rated:
        chart, bottom = _ratings(duels, bottom + 44)
        parts += chart
    return picture(bottom + MARGIN, [STYLE, *parts], f"Duels in {visible(duels.env)}")


def _cut(name: str, maximum: int = 34) -> str:
    """Cut the middle of a long name, because checkpoints differ at the end."""
    head, tail = (maximum - 1) // 2, maximum - 1 - (maximum - 1) // 2
    return name if len(name) <= maximum else f"{name[:head]}…{name[-tail:]}"


def _shades(duels: Duels) -> list[list[float | None]]:
    """Return for each cell of the matrix its value for the row's player, in -1 .. 1, or None.

    With two seats, the value comes from the points. With more seats, it is the return, scaled
    between the lowest and the highest return in that seat.
    """
    values = duels.matrix.to_numpy(dtype=float)
    if len(duels.agents) == 2:
        by_pair = {(row.player, row.other): row.points for row in duels.rows}
        index, columns = duels.matrix.index, duels.matrix.columns
        points = [[by_pair.get((a, b)) for b in columns] for a in index]
        return [[None if p is None else 2 * p - 1 for p in row] for row in points]
    seats = np.array([duels.agents.index(seat) for _, seat in duels.matrix.index])
    low, high = np.zeros((2, len(values), 1))
    for seat in set(seats.tolist()):
        low[seats == seat] = np.nanmin(values[seats == seat])
        high[seats == seat] = np.nanmax(values[seats == seat])
    scaled = 2 * (values - low) / np.maximum(high - low, 1e-9) - 1
    return [[None if math.isnan(v) else v for v in row] for row in scaled.tolist()]


# --- The matrix ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Grid:
    """Positions of the cells of the matrix."""

    rows: Sequence[str]
    columns: Sequence[str]
    left: float
    top: float
    width: float  # of a cell
    turned: bool  # whether column headings are vertical

    @classmethod
    def of(cls, rows: Sequence[str], columns: Sequence[str]) -> _Grid:
        left = MARGIN + pen.room(rows, least=70, letter=7)
        width = min(WIDEST, (pen.WIDTH - MARGIN - left) / len(columns))
        longest = max(len(_cut(name, 22)) for name in columns) * pen.LETTER
        turned = longest > width - 6
        return cls(rows, columns, left, TOP + (longest if turned else 14) + 8, width, turned)

    @property
    def bottom(self) -> float:
        return self.top + len(self.rows) * ROW

    def headings(self) -> list[str]:
        parts = []
        for i, name in enumerate(self.rows):
            y = self.top + (i + 0.5) * ROW + 4
            parts.append(words(self.left - 10, y, _cut(name), anchor="end", size=13))
        for j, name in enumerate(self.columns):
            x = self.left + (j + 0.5) * self.width
            if self.turned:
                parts.append(words(x + 4, self.top - 8, _cut(name, 22), turned=True))
            else:
                parts.append(words(x, self.top - 8, name, anchor="middle", size=12))
        return parts

    def cell(self, i: int, j: int, value: float, shade: float | None) -> list[str]:
        x, y = self.left + j * self.width, self.top + i * ROW
        place = f'x="{x + 1:.1f}" y="{y + 1:.1f}" width="{self.width - 2:.1f}" height="{ROW - 2}"'
        parts = [f'<rect class="empty" {place} rx="4"/>']
        if shade is not None:
            color, strength = (WON if shade > 0 else LOST), STRONGEST * abs(shade)
            fill = f'fill="{color}" fill-opacity="{strength:.3f}"'
            parts.append(f'<rect {place} rx="4" {fill}/>')
            size = 13 if self.width >= 54 else 10
            middle = x + self.width / 2
            shown = f"{round(value, 2) + 0.0:+.2f}" if abs(value) < 100 else f"{value:+.4g}"
            parts.append(words(middle, y + ROW / 2 + 4.5, shown, anchor="middle", size=size))
        return parts


# --- The ratings ---------------------------------------------------------------------------------


def _ratings(duels: Duels, top: float) -> tuple[list[str], float]:
    """Return a line per player with rating and interval, and the bottom of the chart."""
    rated, height = duels.rated, 26
    left = MARGIN + pen.room((rating.player for rating in rated), least=70, letter=7)
    right = pen.WIDTH - MARGIN - 165
    ends = [
        end
        for rating in rated
        for end in (rating.rating, rating.low, rating.high)
        if end is not None
    ]
    low, high, marks = pen.ticks(min(ends), max(ends))
    scale = (right - left) / (high - low)

    def at(rating: float) -> float:
        return left + (rating - low) * scale

    base = top + 40 + len(rated) * height
    legend = "Elo scale: 400 points are odds of 10 to 1; lines are 95 % intervals"
    parts = [
        words(MARGIN, top, "Ratings", size=15, weight=600),
        words(MARGIN, top + 18, legend, soft=True),
    ]
    if duels.cycles:
        cycle = " beats ".join([*duels.cycles[0], duels.cycles[0][0]])
        warning = f"Ratings are misleading: beating is not transitive ({pen.cut(cycle, 60)})"
        parts.append(words(MARGIN, top + 36, warning, weight=600))
        base += 18
    first = base - len(rated) * height
    for mark in marks:
        parts.append(_line(at(mark), first, at(mark), base, "grid"))
        parts.append(words(at(mark), base + 16, f"{mark:g}", anchor="middle", size=11, soft=True))
    for number, rating in enumerate(rated):
        y = first + (number + 0.5) * height
        parts.append(words(left - 10, y + 4, _cut(rating.player), anchor="end", size=13))
        if rating.low is not None and rating.high is not None:
            parts.append(_line(at(rating.low), y, at(rating.high), y, "interval", width=2))
            for end in (at(rating.low), at(rating.high)):
                parts.append(_line(end, y - 5, end, y + 5, "interval", width=1.5))
        parts.append(f'<circle cx="{at(rating.rating):.1f}" cy="{y:.1f}" r="4" fill="{pen.BLUE}"/>')
        interval = "" if rating.low is None else f"  ({rating.low:+.0f} to {rating.high:+.0f})"
        parts.append(words(right + 12, y + 4, f"{rating.rating:+.0f}{interval}", size=12))
    return parts, base + 20


def _line(x1: float, y1: float, x2: float, y2: float, kind: str, width: float = 1) -> str:
    return (
        f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke-width="{width:g}" stroke-linecap="round"/>'
    )
