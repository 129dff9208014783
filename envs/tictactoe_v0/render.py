"""Render tictactoe_v0: the board, the player to move, and the end of the game.

An empty field shows its number, which is the action that places a stone there. The field of the
last stone is tinted. A winning line is struck through, and an illegal move has a red frame. The
panel next to the board describes the last move and names the next player.
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
    RED,
    Grid,
    board_and_panel,
    legend,
)
from corral.envs.render.canvas import Box, Canvas, Point, center, mix, sentence

__all__ = ["Frame", "ansi", "draw"]

LARGEST = 190  # largest side of a field, in pixels at scale 1

WON, LAST = "#c3e6d5", "#fbf3c8"

NAMES = ("player_1", "player_2")
KINDS = ("crosses", "noughts")
COLORS = (BLUE, ORANGE)

Place = tuple[int, int]  # row and column


@dataclass(frozen=True)
class Frame:
    """A game after a move, as plain values."""

    board: tuple[tuple[int, ...], ...]  # by row and column: 0 empty, 1 player_1, 2 player_2
    line: int  # number of stones in a winning line
    t: int  # moves so far
    last: Place | None  # place of the last move; None before the first move
    ended: str  # "line", "full" or "illegal"; "" before the end
    winning: tuple[Place, ...]  # fields of all complete lines

    @property
    def mover(self) -> int:
        """Return the player of the last move, 0 or 1. Before the first move: 1."""
        return (self.t - 1) % 2

    def number(self, place: Place) -> int:
        """Return the action that places a stone at ``place``."""
        return place[0] * len(self.board[0]) + place[1]

    @property
    def event(self) -> str:
        """Describe the move in words."""
        name = NAMES[self.mover]
        if self.last is None:
            return "empty board"
        if self.ended == "illegal":
            return f"{name} chose field {self.number(self.last)}, which is occupied"
        return f"{name} took field {self.number(self.last)}"

    @property
    def outcome(self) -> str:
        """Describe the next turn, or the end of the game, in words."""
        if not self.ended:
            return f"{NAMES[1 - self.mover]} moves next"
        if self.ended == "full":
            return "the board is full: a draw"
        if self.ended == "line":
            return f"{NAMES[self.mover]} wins with {self.line} in a line"
        return "an illegal move ends the game"

    @property
    def reward(self) -> tuple[str, str]:
        """Return the final rewards of player_1 and player_2 as text."""
        paid = {"line": ("+1", "-1"), "full": ("0", "0"), "illegal": ("-1", "0")}
        own, other = paid.get(self.ended, ("", ""))
        return (own, other) if self.mover == 0 else (other, own)


# --- Text ----------------------------------------------------------------------------------------


def ansi(frame: Frame) -> str:
    """Render the game as text, at most 80 columns. Each row starts with its first field number."""
    columns = len(frame.board[0])
    wide = len(str((len(frame.board) - 1) * columns))
    lines = [f"move {frame.t}: {frame.event}; {frame.outcome}"]
    for row, stones in enumerate(frame.board):
        marks = " ".join(".XO"[stone] for stone in stones)
        lines.append(f"{row * columns:>{wide}} | {marks}")
    paid = [f" ({text})" if text else "" for text in frame.reward]
    lines.append(f"X player_1{paid[0]}  O player_2{paid[1]}  {frame.line} in a line win")
    return "\n".join(lines)


# --- Picture -------------------------------------------------------------------------------------


def draw(frame: Frame, *, width: int = 960, height: int = 640) -> npt.NDArray[np.uint8]:
    """Render the game as an image, uint8 [height, width, 3]; equal frames give equal bytes.

    Raises MissingExtraError without Pillow (extra ``[render]``).
    """
    canvas, board, panel, k = board_and_panel(width, height)
    _board(canvas, frame, board, k)
    _panel(canvas, frame, panel, k)
    return canvas.pixels()


def _board(canvas: Canvas, frame: Frame, area: Box, k: float) -> None:
    rows, columns = len(frame.board), len(frame.board[0])
    grid = Grid.fit(area, rows, columns, LARGEST * k)
    size, gap = grid.size, min(3 * k, 0.04 * grid.size)

    for row, stones in enumerate(frame.board):
        for column, stone in enumerate(stones):
            place = (row, column)
            box = grid.field(place, gap)
            fill, outline, stroke = CARD, LINE, k
            if place in frame.winning:
                fill = WON
            elif place == frame.last:
                fill = LAST
            if place == frame.last and frame.ended == "illegal":
                outline, stroke = RED, max(2.0, 5 * k)
            canvas.box(box, fill, outline=outline, stroke=stroke, radius=0.08 * size)
            if stone:
                _stone(canvas, stone - 1, center(box), 0.3 * size)
            elif size >= 34:
                number = str(frame.number(place))
                canvas.text(center(box), number, 0.2 * size, fill=LINE, anchor="mm")
    for start, end in _strikes(frame):
        (x0, y0), (x1, y1) = grid.middle(start), grid.middle(end)
        far = 0.3 * size / max(abs(x1 - x0), abs(y1 - y0))  # extend the line a little at both ends
        x0, y0, x1, y1 = (
            x0 - far * (x1 - x0),
            y0 - far * (y1 - y0),
            x1 + far * (x1 - x0),
            y1 + far * (y1 - y0),
        )
        canvas.line([(x0, y0), (x1, y1)], max(1.5, 0.045 * size), INK)


def _strikes(frame: Frame) -> list[tuple[Place, Place]]:
    """Return the ends of the complete lines through the last stone."""
    strikes = []
    if frame.last is not None and frame.ended == "line":
        for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
            ends = []
            for way in (-1, 1):
                row, column = frame.last
                while (row + way * down, column + way * right) in frame.winning:
                    row, column = row + way * down, column + way * right
                ends.append((row, column))
            reach = max(abs(ends[1][axis] - ends[0][axis]) for axis in (0, 1))
            if reach + 1 >= frame.line:
                strikes.append((ends[0], ends[1]))
    return strikes


def _stone(canvas: Canvas, player: int, place: Point, radius: float) -> None:
    """Draw a cross or a nought."""
    x, y = place
    thick = 0.34 * radius
    if player == 0:
        far = 0.86 * radius
        for way in (-1, 1):
            ends = [(x - far, y - way * far), (x + far, y + way * far)]
            canvas.line(ends, thick, BLUE)
    else:
        box = (x - radius, y - radius, x + radius, y + radius)
        canvas.box(box, outline=ORANGE, stroke=thick, radius=radius)


def _panel(canvas: Canvas, frame: Frame, area: Box, k: float) -> None:
    left, top, right, bottom = area
    room = right - left
    heading = f"Move {frame.t}" if frame.t else "Start"
    canvas.text((left, top + 14 * k), heading, 24 * k, fill=INK, bold=True, width=room)
    color = RED if frame.ended == "illegal" else INK
    outcome = sentence(frame.outcome)
    canvas.text((left, top + 52 * k), outcome, 17 * k, fill=color, bold=True, width=room)
    event = sentence(frame.event)
    canvas.text((left, top + 76 * k), event, 14 * k, fill=FAINT, width=room)
    for player in (0, 1):
        y = top + (106 + 124 * player) * k
        _card(canvas, frame, player, (left, y, right, y + 112 * k), k)
    _legend(canvas, frame, (left, bottom - 112 * k, right, bottom), k)


def _card(canvas: Canvas, frame: Frame, player: int, box: Box, k: float) -> None:
    """Draw one player's card: its stones, and its turn or its result."""
    left, top, right, _ = box
    next_one = not frame.ended and frame.mover != player
    color = COLORS[player] if next_one else LINE
    canvas.box(box, CARD, outline=color, stroke=(3 if next_one else 1) * k, radius=8 * k)
    _stone(canvas, player, (left + 34 * k, top + 36 * k), 17 * k)
    x, end = left + 66 * k, right - 14 * k
    name = f"{NAMES[player]}, {KINDS[player]}"
    canvas.text((x, top + 26 * k), name, 16 * k, fill=INK, bold=True, width=end - x)
    count = sum(stone == player + 1 for row in frame.board for stone in row)
    stones = f"{count} stone{'s' * (count != 1)} on the board"
    canvas.text((x, top + 48 * k), stones, 14 * k, fill=FAINT, width=end - x)
    if frame.ended:
        ink = mix(COLORS[player], INK, 0.35)
        used = canvas.text((x, top + 86 * k), frame.reward[player], 28 * k, fill=ink, bold=True)
        verdicts = {"+1": "won", "-1": "lost", "0": "draw" if frame.ended == "full" else "no fault"}
        text = verdicts[frame.reward[player]]
        canvas.text((x + used + 12 * k, top + 88 * k), text, 15 * k, fill=FAINT)
    elif next_one:
        canvas.text((x, top + 86 * k), "to move", 16 * k, fill=INK, width=end - x)


def _legend(canvas: Canvas, frame: Frame, box: Box, k: float) -> None:
    rows = (
        (LAST, LINE, 1, "last stone"),
        (WON, LINE, 1, f"{frame.line} in a line win the game"),
        (CARD, LINE, 1, "empty field with its action number"),
    )
    left, top, right, bottom = box
    first = top + 14 * k
    legend(canvas, (left, first, right, bottom), rows, k, step=32, indent=30, size=13.5, radius=3)
    place = (left + 9 * k, first + 64 * k)
    canvas.text(place, "4", 10.8 * k, fill=FAINT, anchor="mm")
