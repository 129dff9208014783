"""Pictures of rps_v0: the moves and the winner of the last round, and the rounds before.

Two large cards show the players and their moves; the card of the winner is tinted. Below are the
moves of each round; a tinted field won its round. If there are many rounds, only the last ones are
drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from corral.envs.render.boards import BLUE, CARD, FAINT, INK, LINE, ORANGE, PAPER, scaled
from corral.envs.render.canvas import Box, Canvas, Point, center, mix, sentence

__all__ = ["Frame", "ansi", "draw"]

SHOWN = 12  # rounds in the strip of a picture
SHOWN_TEXT = 30  # rounds in a line of text

STONE, SHEET, STEEL = "#7d8791", "#ffffff", "#7d8791"

# The outline of a rock in a square from -1 to 1, and its light facet.
BOULDER = (
    *((-1.0, 0.3), (-0.8, -0.3), (-0.3, -0.75), (0.4, -0.7)),
    *((0.9, -0.15), (1.0, 0.4), (0.6, 0.75), (-0.65, 0.75)),
)
LIT = ((-0.8, -0.3), (-0.3, -0.75), (0.4, -0.7), (0.1, -0.2), (-0.35, 0.05))

NAMES = ("player_0", "player_1")
COLORS = (BLUE, ORANGE)
MOVES = ("rock", "paper", "scissors")
VERBS = {0: "blunts", 1: "wraps", 2: "cuts"}  # verb between a move and the move that it beats


@dataclass(frozen=True)
class Frame:
    """The rounds of one environment copy so far."""

    moves: tuple[tuple[int, int], ...]  # of each round: 0 rock, 1 paper, 2 scissors; both players
    rounds: int  # of the episode

    @property
    def t(self) -> int:
        return len(self.moves)

    def winner(self, index: int) -> int | None:
        """Return the winner of a round, 0 or 1; None for a draw."""
        first, second = self.moves[index]
        return None if first == second else int((first - second) % 3 == 2)

    def won(self, player: int) -> int:
        """Return the number of rounds that a player won so far."""
        return sum(self.winner(i) == player for i in range(self.t))

    @property
    def event(self) -> str:
        """A description of the last round."""
        if not self.moves:
            return "waiting for the first round"
        winner = self.winner(-1)
        if winner is None:
            return f"both show {MOVES[self.moves[-1][0]]}: a draw"
        own, other = self.moves[-1][winner], self.moves[-1][1 - winner]
        return f"{NAMES[winner]} wins: {MOVES[own]} {VERBS[own]} {MOVES[other]}"


# --- Text ----------------------------------------------------------------------------------------


def ansi(frame: Frame) -> str:
    """Return the rounds as plain text of at most 80 columns; only the last of many rounds."""
    first = max(0, frame.t - SHOWN_TEXT)
    lines = [f"round {frame.t} of {frame.rounds}: {frame.event}"]
    for player, name in enumerate(NAMES):
        shown = " ".join("RPS"[pair[player]] for pair in frame.moves[first:])
        lines.append(f"{name}  {shown}".rstrip())
    winners = [frame.winner(i) for i in range(first, frame.t)]
    marks = " ".join("=" if winner is None else str(winner) for winner in winners)
    lines.append(f"won by    {marks}".rstrip())
    if first:
        lines.append(f"(the last {SHOWN_TEXT} rounds)")
    lines.append("R rock  P paper  S scissors  0, 1 the player that won  = a draw")
    lines.append(f"rounds won: {frame.won(0)} and {frame.won(1)}")
    return "\n".join(lines)


# --- Picture -------------------------------------------------------------------------------------


def draw(frame: Frame, *, width: int = 960, height: int = 640) -> npt.NDArray[np.uint8]:
    """Return the rounds as a picture, uint8 [height, width, 3].

    The same frame gives the same bytes. Raises MissingExtraError without Pillow (extra
    ``[render]``).
    """
    canvas, k = scaled(width, height)
    left, right = (width - 880 * k) / 2, (width + 880 * k) / 2
    top = (height - 640 * k) / 2
    room = right - left
    heading = f"Round {frame.t} of {frame.rounds}" if frame.t else f"{frame.rounds} rounds to play"
    canvas.text((left, top + 44 * k), heading, 24 * k, fill=INK, bold=True, width=room)
    event = sentence(frame.event)
    canvas.text((left, top + 78 * k), event, 18 * k, fill=FAINT, width=room)
    winner = frame.winner(-1) if frame.t else None
    for player in (0, 1):
        x = left + player * 450 * k
        box = (x, top + 108 * k, x + 430 * k, top + 400 * k)
        _card(canvas, frame, player, winner == player, box, k)
    _strip(canvas, frame, (left, top + 424 * k, right, top + 612 * k), k)
    return canvas.pixels()


def _card(canvas: Canvas, frame: Frame, player: int, winner: bool, box: Box, k: float) -> None:
    """Draw the card of a player: its name, its move, and its score."""
    left, top, right, bottom = box
    color = COLORS[player]
    fill = mix(CARD, color, 0.22) if winner else CARD
    outline = color if winner else LINE
    canvas.box(box, fill, outline=outline, stroke=(3 if winner else 1) * k, radius=10 * k)
    canvas.box((left + 20 * k, top + 22 * k, left + 36 * k, top + 38 * k), color, radius=8 * k)
    canvas.text((left + 46 * k, top + 31 * k), NAMES[player], 18 * k, fill=INK, bold=True)
    if winner:
        canvas.text((right - 20 * k, top + 31 * k), "+1", 22 * k, fill=INK, anchor="rm", bold=True)
    elif frame.t:
        pay = "0" if frame.winner(-1) is None else "-1"
        canvas.text((right - 20 * k, top + 31 * k), pay, 22 * k, fill=FAINT, anchor="rm")
    middle = ((left + right) / 2, (top + bottom) / 2 - 4 * k)
    if frame.t:
        move = frame.moves[-1][player]
        _hand(canvas, move, middle, 66 * k)
        label = MOVES[move]
        canvas.text((middle[0], bottom - 50 * k), label, 18 * k, fill=INK, anchor="mm", bold=True)
    else:
        canvas.text(middle, "?", 80 * k, fill=LINE, anchor="mm", bold=True)
    won, total = frame.won(player), frame.won(player) - frame.won(1 - player)
    score = f"{won} round{'s' * (won != 1)} won, return {total:+d}" if frame.t else "return 0"
    canvas.text((middle[0], bottom - 22 * k), score, 14 * k, fill=FAINT, anchor="mm")


def _strip(canvas: Canvas, frame: Frame, box: Box, k: float) -> None:
    """Draw the rounds, one column each."""
    left, top, right, _ = box
    count = min(frame.rounds, SHOWN)
    first = max(0, frame.t - count)
    x0 = left + 100 * k
    wide = min(64 * k, (right - x0) / count)
    for player in (0, 1):
        y = top + (52 + 60 * player) * k
        canvas.text((left, y), NAMES[player], 15 * k, fill=INK, bold=True, width=90 * k)
    for column in range(count):
        index = first + column
        x = x0 + column * wide
        canvas.text(
            (x + wide / 2, top + 10 * k), str(index + 1), 13 * k, fill=FAINT, anchor="mm",
            width=wide,
        )  # fmt: skip
        for player in (0, 1):
            y = top + (52 + 60 * player) * k
            cell = (x + 2 * k, y - 28 * k, x + wide - 2 * k, y + 28 * k)
            played = index < frame.t
            won = played and frame.winner(index) == player
            fill = mix(CARD, COLORS[player], 0.3) if won else CARD if played else PAPER
            outline = COLORS[player] if won else LINE
            canvas.box(cell, fill, outline=outline, stroke=(2 if won else 1) * k, radius=6 * k)
            if played:
                _hand(canvas, frame.moves[index][player], center(cell), 16 * k)
    text = "A tinted field won its round."
    if first:
        text += f" The last {count} rounds are shown."
    canvas.text((left, top + 166 * k), text, 13.5 * k, fill=FAINT, width=right - left)


def _hand(canvas: Canvas, move: int, place: Point, radius: float) -> None:
    """Draw a stone, a sheet of paper, or a pair of scissors."""
    x, y = place
    thin = max(1.0, 0.06 * radius)
    if move == 0:
        for facet, fill in ((BOULDER, STONE), (LIT, mix(STONE, CARD, 0.35))):
            canvas.polygon([(x + dx * radius, y + dy * radius) for dx, dy in facet], fill)
    elif move == 1:
        sheet = (x - 0.72 * radius, y - radius, x + 0.72 * radius, y + radius)
        canvas.box(sheet, SHEET, outline=STEEL, stroke=1.6 * thin, radius=0.1 * radius)
        for row in range(4):
            at = y + (-0.54 + 0.36 * row) * radius
            ends = [(x - 0.42 * radius, at), (x + (0.42 if row < 3 else 0.1) * radius, at)]
            canvas.line(ends, thin, STEEL)
    else:
        for side in (-1, 1):
            tip = (x + 0.55 * side * radius, y - radius)
            eye = (x - 0.31 * side * radius, y + 0.4 * radius)
            canvas.line([tip, eye], 0.17 * radius, STEEL)
        for side in (-1, 1):
            cx, cy, r = x + 0.46 * side * radius, y + 0.68 * radius, 0.34 * radius
            ring = (cx - r, cy - r, cx + r, cy + r)
            canvas.box(ring, outline=INK, stroke=0.14 * radius, radius=r)
        canvas.box(
            (x - 0.08 * radius, y - 0.13 * radius, x + 0.08 * radius, y + 0.03 * radius),
            INK,
            radius=0.08 * radius,
        )
