"""Render one step of arena_v0: the grid, the agents, the visited fields and the score.

Visited fields are green; the later the visit, the deeper the green, so the explorer's path is
visible. Arrows lead from the agents' previous fields to their current fields. A red arrow shows a
collision: from the agent that moved to the field of the other agent. The panel next to the grid
names the agents and describes the step in words.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from corral.envs.render.boards import (
    BLUE,
    CARD,
    FAINT,
    INK,
    LINE,
    ORANGE,
    PAPER,
    RED,
    Grid,
    bar,
    board_and_panel,
    swatch,
)
from corral.envs.render.canvas import Box, Canvas, Point, bend, mix, sentence, step_text

__all__ = ["Frame", "ansi", "draw"]

LARGEST = 110  # largest side of a field, in pixels at scale 1
COLUMNS = 80  # maximum columns of the text, and maximum rows of the grid

OLD, RECENT = "#dceee5", "#58b592"

NAMES = ("explorer", "blocker")
COLORS = (BLUE, ORANGE)

Place = tuple[int, int]  # row and column


@dataclass(frozen=True)
class Frame:
    """One step of one environment copy, as plain numbers; pairs are (explorer, blocker)."""

    t: int
    max_cycles: int | None
    entered: tuple[tuple[int, ...], ...]  # by row and column: step of the first visit, 0: never
    places: tuple[Place, Place]
    before: tuple[Place, Place]  # positions before the step
    score: tuple[float, float]  # sum of rewards so far
    first: int | None  # agent that moved first, 0 or 1; None before the first step
    collision: tuple[bool, bool]  # True for an agent that ran into the other agent
    new_field: bool  # the explorer was paid for a field

    @property
    def visited(self) -> int:
        return sum(step > 0 for row in self.entered for step in row)

    @property
    def fields(self) -> int:
        return len(self.entered) * len(self.entered[0])

    def hit(self, agent: int) -> Place:
        """Return the place where ``agent`` collided with the other agent."""
        other = 1 - agent
        return self.before[other] if self.first == agent else self.places[other]

    @property
    def event(self) -> str:
        """Describe the step in words."""
        if self.t == 0:
            return "waiting for the first step"
        if all(self.collision):
            return "both agents collide"
        if any(self.collision):
            agent = self.collision.index(True)
            return f"the {NAMES[agent]} collides with the {NAMES[1 - agent]}"
        return "the explorer finds a new field" if self.new_field else "no new field"

    @property
    def pay(self) -> tuple[str, str]:
        """Return the step's rewards as text."""
        if self.t == 0:
            return "", ""
        if any(self.collision):
            return "-1", "+1"
        return ("+1" if self.new_field else "-0.5"), "-0.1"


# --- Text ----------------------------------------------------------------------------------------


def ansi(frame: Frame) -> str:
    """Render the step as plain text, at most 80 columns; a large grid is cropped."""
    height, width = len(frame.entered), len(frame.entered[0])
    gap = " " if 2 * width <= COLUMNS else ""
    rows = _part(height, COLUMNS, frame.places[0][0])
    columns = _part(width, COLUMNS, frame.places[0][1])

    def glyph(row: int, column: int) -> str:
        if (row, column) in frame.places:
            return "EB"[frame.places.index((row, column))]
        return "o" if frame.entered[row][column] else "."

    pay = [f" ({text})" if text else "" for text in frame.pay]
    lines = [f"{step_text(frame.t, frame.max_cycles)}: {frame.event}"]
    lines += [gap.join(glyph(row, column) for column in columns) for row in rows]
    if len(rows) < height or len(columns) < width:
        lines.append(
            f"rows {rows[0]}..{rows[-1]} of {height}, columns {columns[0]}..{columns[-1]} "
            f"of {width}"
        )
    lines.append(
        f"E explorer  B blocker  o visited: {frame.visited} of {frame.fields}  . not visited"
    )
    lines.append(
        f"so far: explorer {_score(frame.score[0])}{pay[0]}, "
        f"blocker {_score(frame.score[1])}{pay[1]}"
    )
    return "\n".join(lines)


def _part(size: int, room: int, middle: int) -> range:
    """Return up to ``room`` of ``size`` rows or columns that include ``middle``."""
    first = max(0, min(middle - room // 2, size - room))
    return range(first, min(size, first + room))


def _score(score: float) -> str:
    text = f"{score:.1f}"
    return "0.0" if text == "-0.0" else text


# --- Picture -------------------------------------------------------------------------------------


def draw(frame: Frame, *, width: int = 960, height: int = 640) -> npt.NDArray[np.uint8]:
    """Render the step as an image, uint8 [height, width, 3]; equal frames give equal bytes.

    Raises MissingExtraError without Pillow (extra ``[render]``).
    """
    canvas, board, panel, k = board_and_panel(width, height)
    _grid(canvas, frame, board, k)
    _panel(canvas, frame, panel, k)
    return canvas.pixels()


def _grid(canvas: Canvas, frame: Frame, area: Box, k: float) -> None:
    rows, columns = len(frame.entered), len(frame.entered[0])
    grid = Grid.fit(area, rows, columns, LARGEST * k)
    size, gap = grid.size, min(1.5 * k, 0.06 * grid.size)
    for row, steps in enumerate(frame.entered):
        for column, step in enumerate(steps):
            fill = _shade(step, frame.t) if step else CARD
            outline = None if step or size < 6 else LINE
            canvas.box(
                grid.field((row, column), gap), fill, outline=outline, stroke=k, radius=0.12 * size
            )
    for agent in (1, 0):
        start, end = (grid.middle(frame.before[agent]), grid.middle(frame.places[agent]))
        if start != end:
            _way(canvas, start, end, size, mix(COLORS[agent], INK, 0.1), (0.0, 0.62))
        _piece(canvas, agent, end, 0.34 * size)
    for agent in (1, 0):
        if frame.collision[agent]:
            start, end = (grid.middle(frame.places[agent]), grid.middle(frame.hit(agent)))
            aside = (
                0.17 if all(frame.collision) else 0.0
            )  # offset to the right, so that two arrows do not overlap
            x, y = aside * (start[1] - end[1]), aside * (end[0] - start[0])
            start, end = (start[0] + x, start[1] + y), (end[0] + x, end[1] + y)
            _way(canvas, start, end, 1.3 * size, RED, (0.31, 0.72), halo=CARD)


def _shade(step: int, t: int) -> str:
    """Return the color of a field first entered in ``step``: deep if recent, pale if old."""
    return mix(OLD, RECENT, 0.9 ** (t - step))


def _way(
    canvas: Canvas,
    start: Point,
    end: Point,
    size: float,
    color: str,
    part: tuple[float, float],
    halo: str | None = None,
) -> None:
    """Draw an arrow along ``part`` of the line between two places, scaled to fields of ``size``."""
    (x0, y0), (x1, y1) = (
        (start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share)
        for share in part
    )
    curve = bend((x0, y0), ((x0 + x1) / 2, (y0 + y1) / 2), (x1, y1), points=21)
    canvas.arrow(curve, 0.1 * size, color, head=0.24 * size, halo=halo)


def _piece(canvas: Canvas, agent: int, place: Point, radius: float) -> None:
    """Draw the explorer as a disc with an E, the blocker as a square with a B."""
    x, y = place
    box = (x - radius, y - radius, x + radius, y + radius)
    round_by = radius if agent == 0 else 0.25 * radius
    canvas.box(box, COLORS[agent], outline=CARD, stroke=max(0.08 * radius, 0.7), radius=round_by)
    if radius >= 5:
        canvas.text(place, "EB"[agent], 1.15 * radius, fill=CARD, anchor="mm", bold=True)


def _panel(canvas: Canvas, frame: Frame, area: Box, k: float) -> None:
    left, top, right, bottom = area
    room = right - left
    canvas.text(
        (left, top + 14 * k),
        sentence(step_text(frame.t, frame.max_cycles)),
        24 * k,
        fill=INK,
        bold=True,
        width=room,
    )
    box = (left, top + 38 * k, right, top + 44 * k)
    done = min(1.0, frame.t / frame.max_cycles) if frame.max_cycles else 0.0
    bar(canvas, box, done, FAINT, ground=mix(LINE, PAPER, 0.3), radius=3 * k)
    color = RED if any(frame.collision) else INK if frame.new_field else FAINT
    canvas.text(
        (left, top + 70 * k), sentence(frame.event), 17 * k, fill=color, bold=True, width=room
    )
    if frame.first is not None:
        text = f"The {NAMES[frame.first]} moved first."
        canvas.text((left, top + 93 * k), text, 14 * k, fill=FAINT, width=room)
    aims = ("+1 for an unvisited field", "+1 for a collision")
    for agent in (0, 1):
        y = top + (118 + 124 * agent) * k
        _card(canvas, frame, agent, aims[agent], (left, y, right, y + 112 * k), k)
    _progress(canvas, frame, (left, top + 384 * k, right, top + 440 * k), k)
    _legend(canvas, (left, bottom - 104 * k, right, bottom), k)


def _card(canvas: Canvas, frame: Frame, agent: int, aim: str, box: Box, k: float) -> None:
    """Draw one agent's card: name, reward rule and score."""
    left, top, right, _ = box
    canvas.box(box, CARD, outline=LINE, stroke=k, radius=8 * k)
    _piece(canvas, agent, (left + 30 * k, top + 32 * k), 17 * k)
    name = f"{NAMES[agent].capitalize()} (agent_{agent + 1})"
    x, end = left + 58 * k, right - 14 * k
    canvas.text((x, top + 23 * k), name, 16 * k, fill=INK, bold=True, width=end - x)
    canvas.text((x, top + 44 * k), aim, 13.5 * k, fill=FAINT, width=end - x)
    ink = mix(COLORS[agent], INK, 0.35)
    used = canvas.text(
        (x, top + 84 * k), _score(frame.score[agent]), 30 * k, fill=ink, bold=True, width=end - x
    )
    if frame.t:
        text = f"{frame.pay[agent]} in this step"
        place = (x + used + 14 * k, top + 87 * k)
        canvas.text(place, text, 14 * k, fill=FAINT, width=end - place[0])


def _progress(canvas: Canvas, frame: Frame, box: Box, k: float) -> None:
    left, top, right, _ = box
    text = f"{frame.visited} of {frame.fields} fields visited"
    canvas.text((left, top + 10 * k), text, 17 * k, fill=INK, bold=True, width=right - left)
    area = (left, top + 28 * k, right, top + 44 * k)
    share = frame.visited / frame.fields
    bar(canvas, area, share, RECENT, ground=CARD, radius=4 * k, outline=LINE, stroke=k)


def _legend(canvas: Canvas, box: Box, k: float) -> None:
    left, top, right, _ = box
    y, size = top + 12 * k, 13.5 * k
    swatch(canvas, left, y, CARD, LINE, k, radius=3 * k)
    canvas.text((left + 28 * k, y), "not visited yet", size, fill=INK)
    y += 30 * k
    for place, age in enumerate((24, 8, 3, 0)):
        swatch(canvas, left + place * 20 * k, y, _shade(0, age), None, k, radius=3 * k)
    canvas.text((left + 88 * k, y), "visited, deeper = later", size, fill=INK, width=right - left)
    y += 30 * k
    size_of_arrow, whole = 42 * k, (0.0, 1.0)
    moved = mix(BLUE, INK, 0.1)
    _way(canvas, (left, y), (left + 30 * k, y), size_of_arrow, moved, whole)
    canvas.text((left + 38 * k, y), "moved", size, fill=INK)
    x = left + 100 * k
    _way(canvas, (x, y), (x + 30 * k, y), size_of_arrow, RED, whole)
    canvas.text((x + 38 * k, y), "collision", size, fill=INK)
