"""The picture of duels: the matrix of returns and the ratings, as one SVG for light and dark."""

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
"""What is filled with color is half transparent, and fits both themes."""

WON, LOST = pen.BLUE, pen.RED
STRONGEST = 0.6  # opacity of a cell that won, or lost, everything: words on it stay legible
MARGIN, TOP, ROW = 24, 92, 34
WIDEST = 104  # of a cell


def duel_picture(duels: Duels) -> str:
    """Return the picture: rows are players in their seat, columns who plays the other seats.

    Cells hold the mean return of the row's player; blue ones won more than they lost, red ones the
    reverse (of more than two seats: have the larger, and the lesser, returns in their seat). Below
    are the ratings with their 95 % intervals, best first.
    """
    matrix = duels.matrix
    names = [" as ".join(key) if isinstance(key, tuple) else str(key) for key in matrix.index]
    grid = _Grid.of(names, [str(name) for name in matrix.columns])
    seats = f"{duels.agents[0]} in rows, {duels.agents[1]} in columns"
    if len(duels.agents) > 2:
        seats = "a player in its seat in rows, who plays all other seats in columns"
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


def _cut(name: str, most: int = 34) -> str:
    """Return a name without its middle, if it is longer: checkpoints differ at the end."""
    head, tail = (most - 1) // 2, most - 1 - (most - 1) // 2
    return name if len(name) <= most else f"{name[:head]}…{name[-tail:]}"


def _shades(duels: Duels) -> list[list[float | None]]:
    """Return for each cell of the matrix how good it is for its row: -1 .. 1; None where empty.

    Of two seats that is by points; of more by the return, between the least and the largest that
    anybody had in that seat.
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
    """Where the cells of the matrix stand."""

    rows: Sequence[str]
    columns: Sequence[str]
    left: float
    top: float
    width: float  # of a cell
    turned: bool  # whether headings run upwards

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
        where = f'x="{x + 1:.1f}" y="{y + 1:.1f}" width="{self.width - 2:.1f}" height="{ROW - 2}"'
        parts = [f'<rect class="empty" {where} rx="4"/>']
        if shade is not None:
            color, strength = (WON if shade > 0 else LOST), STRONGEST * abs(shade)
            fill = f'fill="{color}" fill-opacity="{strength:.3f}"'
            parts.append(f'<rect {where} rx="4" {fill}/>')
            size = 13 if self.width >= 54 else 10
            middle = x + self.width / 2
            shown = f"{round(value, 2) + 0.0:+.2f}" if abs(value) < 100 else f"{value:+.4g}"
            parts.append(words(middle, y + ROW / 2 + 4.5, shown, anchor="middle", size=size))
        return parts


# --- The ratings ---------------------------------------------------------------------------------


def _ratings(duels: Duels, top: float) -> tuple[list[str], float]:
    """Return a line for each player with its rating and interval, and where the chart ends."""
    rated, height = duels.rated, 26
    left = MARGIN + pen.room((each.player for each in rated), least=70, letter=7)
    right = pen.WIDTH - MARGIN - 165
    ends = [end for each in rated for end in (each.rating, each.low, each.high) if end is not None]
    low, high, marks = pen.ticks(min(ends), max(ends))
    scale = (right - left) / (high - low)

    def at(rating: float) -> float:
        return left + (rating - low) * scale

    base = top + 40 + len(rated) * height
    said = "Elo's scale: 400 points are odds of 10 to 1; lines are 95 % intervals"
    parts = [
        words(MARGIN, top, "Ratings", size=15, weight=600),
        words(MARGIN, top + 18, said, soft=True),
    ]
    if duels.cycles:
        cycle = " beats ".join([*duels.cycles[0], duels.cycles[0][0]])
        said = f"Who beats whom runs in circles ({pen.cut(cycle, 60)}): these numbers mislead"
        parts.append(words(MARGIN, top + 36, said, weight=600))
        base += 18
    first = base - len(rated) * height
    for mark in marks:
        parts.append(_line(at(mark), first, at(mark), base, "grid"))
        parts.append(words(at(mark), base + 16, f"{mark:g}", anchor="middle", size=11, soft=True))
    for number, each in enumerate(rated):
        y = first + (number + 0.5) * height
        parts.append(words(left - 10, y + 4, _cut(each.player), anchor="end", size=13))
        if each.low is not None and each.high is not None:
            parts.append(_line(at(each.low), y, at(each.high), y, "interval", width=2))
            for end in (at(each.low), at(each.high)):
                parts.append(_line(end, y - 5, end, y + 5, "interval", width=1.5))
        parts.append(f'<circle cx="{at(each.rating):.1f}" cy="{y:.1f}" r="4" fill="{pen.BLUE}"/>')
        interval = "" if each.low is None else f"  ({each.low:+.0f} to {each.high:+.0f})"
        parts.append(words(right + 12, y + 4, f"{each.rating:+.0f}{interval}", size=12))
    return parts, base + 20


def _line(x1: float, y1: float, x2: float, y2: float, kind: str, width: float = 1) -> str:
    return (
        f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke-width="{width:g}" stroke-linecap="round"/>'
    )
