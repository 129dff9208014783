"""Render one step of tiles_v0: the received image, the true image, the classes and the budget.

Unsent tiles are gray and show their numbers. The tile sent last has an orange frame. The picked
tile that waits for level_0 has a blue frame. Templates have low contrast: they and the received
image are drawn with raised contrast, the true image without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from corral.envs.core import Array
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
    legend,
    scaled,
)
from corral.envs.render.canvas import Box, Canvas, center, mix, sentence
from corral.envs.tiles_v0.templates import VALUES

__all__ = ["Frame", "ansi", "draw"]

PICKED, NEWEST, RIGHT, WRONG, EMPTY = BLUE, ORANGE, "#00805e", RED, "#e3e8ed"

SIDE = 4  # tiles along each side of the image
AIM = 0.22  # root mean square of the templates after raising the contrast
STEEPEST = 4.0


@dataclass(frozen=True, eq=False)
class Frame:
    """One step of one environment copy, as plain numbers and images; NONE is -1."""

    received: Array  # uint8 [3, 32, 32]
    image: Array  # float64 [3, 32, 32] the true image
    templates: Mapping[int, Array]  # true and likeliest classes: float64 [3, 32, 32]
    truth: int
    likeliest: tuple[tuple[int, float], ...]  # (class, probability), at most five
    true_probability: float
    classes: int
    sent: tuple[int, ...]  # the level of each of the 16 tiles; NONE: unsent
    picked: int  # the picked tile that waits for level_0, or NONE
    newest: int  # the tile sent last, or NONE
    values: int  # number of values sent in this step
    gain: float  # gain in log-probability of the true class in this step
    illegal: str | None  # the agent with an illegal action
    left: int
    budget: int
    confidence: float
    over: bool
    score: float  # sum of team rewards so far

    @property
    def tiles(self) -> int:
        return sum(level >= 0 for level in self.sent)

    @property
    def event(self) -> str:
        """Describe the step in words."""
        if self.illegal is not None:
            choice = "a sent tile" if self.illegal == "tile_0" else "a level beyond the budget"
            return f"{self.illegal} chose {choice}: the turn is lost"
        if self.values:
            level = self.sent[self.newest]
            return f"tile {self.newest} is sent at level {level}: {self.values} values"
        if self.picked >= 0:
            return f"tile_0 picks tile {self.picked}"
        return "waiting for the first tile"

    @property
    def next(self) -> str:
        """Describe the next turn, or the result, in words."""
        if self.over:
            guess, sure = self.likeliest[0]
            verdict = "right" if guess == self.truth else f"wrong, the class is {self.truth}"
            return f"The end: class {guess}, {_percent(sure)}: {verdict}"
        if self.picked >= 0:
            return f"next: level_0 picks a level for tile {self.picked}"
        return "next: tile_0 picks a tile"

    @property
    def named(self) -> tuple[tuple[int, float], ...]:
        """Return the likeliest classes; the true class replaces the last if it is missing."""
        if self.truth in dict(self.likeliest):
            return self.likeliest
        return (*self.likeliest[:4], (self.truth, self.true_probability))


def _percent(share: float) -> str:
    """Format a share; "100 %" and "0 %" only if exact."""
    if 0 < share < 0.0005:
        return "<0.1 %"
    return ">99.9 %" if 0.9995 <= share < 1 else f"{100 * share:.1f} %"


# --- Text ----------------------------------------------------------------------------------------


def ansi(frame: Frame) -> str:
    """Render the step as plain text."""
    grid = []
    for row in range(SIDE):
        tiles = range(SIDE * row, SIDE * row + SIDE)
        grid.append(" ".join(_glyph(frame, tile) for tile in tiles))
    classes = [
        f"{'true ' if k == frame.truth else ''}class {k}: {_percent(p)}" for k, p in frame.named
    ]
    used = frame.budget - frame.left
    return "\n".join(
        [
            f"{frame.tiles} of 16 tiles sent: {frame.event}",
            *grid,
            "tiles: . unsent  ? picked  0..3 sent at that level",
            f"budget: {used} of {frame.budget} values sent",
            "; ".join(classes),
            f"team return: {frame.score:.3f}{f' (gain {frame.gain:+.3f})' if frame.values else ''}",
            frame.next,
        ]
    )


def _glyph(frame: Frame, tile: int) -> str:
    if tile == frame.picked:
        return "?"
    return "." if frame.sent[tile] < 0 else str(frame.sent[tile])


# --- Picture -------------------------------------------------------------------------------------


def draw(frame: Frame, *, width: int = 960, height: int = 640) -> npt.NDArray[np.uint8]:
    """Render the step as an image, uint8 [height, width, 3]; equal frames give equal bytes.

    Raises MissingExtraError without Pillow (extra ``[render]``).
    """
    canvas, k = scaled(width, height)
    left, top = (width - 960 * k) / 2, (height - 640 * k) / 2

    def area(x0: float, y0: float, x1: float, y1: float) -> Box:
        return left + x0 * k, top + y0 * k, left + x1 * k, top + y1 * k

    steep = _contrast(list(frame.templates.values()))
    color = WRONG if frame.illegal else INK
    place = area(28, 38, 0, 0)[:2]
    canvas.text(place, sentence(frame.event), 22 * k, fill=color, bold=True, width=588 * k)
    done = frame.over and (RIGHT if frame.likeliest[0][0] == frame.truth else WRONG)
    place = area(28, 64, 0, 0)[:2]
    canvas.text(place, sentence(frame.next), 15 * k, fill=done or FAINT, width=588 * k)
    _received(canvas, frame, area(28, 116, 308, 396), steep, k)
    _true_image(canvas, frame, area(336, 116, 616, 396), k)
    _classes(canvas, frame, area(28, 424, 616, 616), steep, k)
    _panel(canvas, frame, area(650, 28, 932, 616), k)
    return canvas.pixels()


def _contrast(templates: list[Array]) -> float:
    """Return the contrast factor that scales the templates' root mean square to AIM."""
    spread = float(np.sqrt(np.mean([np.square(t - 0.5).mean() for t in templates])))
    return float(np.clip(AIM / max(spread, 1e-9), 1.0, STEEPEST))


def _pixels(image: Array, steep: float = 1.0) -> npt.NDArray[np.uint8]:
    """Convert floats [3, H, W] in [0, 1] to uint8 [H, W, 3], with contrast raised by ``steep``."""
    raised = np.clip(0.5 + steep * (image - 0.5), 0.0, 1.0)
    return np.rint(raised * 255).astype(np.uint8).transpose(1, 2, 0)


def _heading(canvas: Canvas, box: Box, words: str, note: str, k: float) -> None:
    used = canvas.text((box[0], box[1] - 15 * k), words, 15 * k, fill=INK, bold=True)
    room = box[2] - box[0] - used - 8 * k
    place = (box[0] + used + 8 * k, box[1] - 15 * k)
    canvas.text(place, note, 12.5 * k, fill=FAINT, width=room)


def _received(canvas: Canvas, frame: Frame, box: Box, steep: float, k: float) -> None:
    note = "contrast raised" if steep > 1 else ""
    _heading(canvas, box, "Received", note, k)
    canvas.picture(box, _pixels(frame.received / 255, steep))
    for tile, level in enumerate(frame.sent):
        if level < 0:
            number = "" if tile == frame.picked else str(tile)
            _unsent(canvas, _tile_box(box, tile), number, k)
    for tile in (frame.newest, frame.picked):
        if tile >= 0:
            color = PICKED if tile == frame.picked else NEWEST
            canvas.box(_tile_box(box, tile), outline=color, stroke=4 * k)
    if frame.picked >= 0:
        middle = center(_tile_box(box, frame.picked))
        canvas.text(middle, "?", 30 * k, fill=PICKED, anchor="mm", bold=True)


def _tile_box(box: Box, tile: int) -> Box:
    grid = Grid(box[0], box[1], (box[2] - box[0]) / SIDE)
    return grid.field(divmod(tile, SIDE))


def _unsent(canvas: Canvas, box: Box, number: str, k: float) -> None:
    gap = 1.2 * k
    inner = (box[0] + gap, box[1] + gap, box[2] - gap, box[3] - gap)
    canvas.box(box, PAPER)
    canvas.box(inner, EMPTY, radius=4 * k)
    canvas.text(center(box), number, 15 * k, fill=mix(FAINT, EMPTY, 0.45), anchor="mm")


def _true_image(canvas: Canvas, frame: Frame, box: Box, k: float) -> None:
    _heading(canvas, box, "True image", f"class {frame.truth}, with noise", k)
    canvas.picture(box, _pixels(frame.image))


def _classes(canvas: Canvas, frame: Frame, box: Box, steep: float, k: float) -> None:
    """Draw the likeliest classes next to each other: template, bar, probability."""
    left, top, right, _ = box
    words = f"Most probable of {frame.classes} classes"
    canvas.text((left, top + 8 * k), words, 15 * k, fill=INK, bold=True)
    note = "templates without noise"
    canvas.text((right, top + 8 * k), note, 12.5 * k, fill=FAINT, anchor="rm")
    gap = 14 * k
    wide = (right - left - 4 * gap) / 5
    for place, (name, probability) in enumerate(frame.named):
        x = left + place * (wide + gap)
        true = name == frame.truth
        card = (x, top + 26 * k, x + wide, top + 184 * k)
        outline = RIGHT if true else LINE
        canvas.box(card, CARD, outline=outline, stroke=(2.5 if true else 1) * k, radius=6 * k)
        inset = (wide - 76 * k) / 2
        picture = (x + inset, top + 36 * k, x + wide - inset, top + 112 * k)
        canvas.picture(picture, _pixels(frame.templates[name], steep))
        label = f"class {name}" + (", true" if true else "")
        ink = RIGHT if true else INK
        middle = x + wide / 2
        canvas.text(
            (middle, top + 126 * k), label, 13 * k, fill=ink, anchor="mm", width=wide, bold=true
        )
        area = (x + 10 * k, top + 139 * k, x + wide - 10 * k, top + 149 * k)
        color = RIGHT if true else FAINT
        bar(canvas, area, probability, color, ground=EMPTY, radius=3 * k)
        text = _percent(probability)
        canvas.text((middle, top + 167 * k), text, 16 * k, fill=ink, anchor="mm", bold=True)


def _panel(canvas: Canvas, frame: Frame, box: Box, k: float) -> None:
    left, top, right, _ = box
    room = right - left
    canvas.box(box, CARD, outline=LINE, stroke=k, radius=8 * k)
    left, right, room = left + 18 * k, right - 18 * k, room - 36 * k

    y = top + 28 * k
    canvas.text((left, y), "Budget", 15 * k, fill=INK, bold=True)
    used = frame.budget - frame.left
    text = f"{used} of {frame.budget} values sent"
    canvas.text((right, y), text, 13.5 * k, fill=FAINT, anchor="rm")
    area = (left, y + 16 * k, right, y + 32 * k)
    faint = mix(NEWEST, CARD, 0.45)
    bar(canvas, area, used / frame.budget, faint, ground=EMPTY, radius=4 * k)
    if frame.values:
        before = left + room * (used - frame.values) / frame.budget
        end = max(left + room * used / frame.budget, before + 2 * k)
        canvas.box((before, area[1], end, area[3]), NEWEST, radius=2 * k)

    y = top + 104 * k
    canvas.text((left, y), "Team return", 15 * k, fill=INK, bold=True)
    canvas.text((left, y + 34 * k), f"{frame.score:.2f}", 32 * k, fill=INK, bold=True)
    if frame.values:
        text = f"{frame.gain:+.2f} for information gained"
        canvas.text((right, y + 26 * k), text, 12.5 * k, fill=FAINT, anchor="rm")
        text = f"in this step, for {frame.values} values"
        canvas.text((right, y + 44 * k), text, 12.5 * k, fill=FAINT, anchor="rm")

    y = top + 200 * k
    canvas.text((left, y), "Probability of the true class", 15 * k, fill=INK, bold=True)
    area = (left, y + 16 * k, right, y + 32 * k)
    bar(canvas, area, frame.true_probability, RIGHT, ground=EMPTY, radius=4 * k)
    mark = left + room * frame.confidence
    canvas.box((mark - k, area[1] - 4 * k, mark + k, area[3] + 4 * k), INK)
    text = _percent(frame.true_probability)
    canvas.text((left, y + 48 * k), text, 13.5 * k, fill=INK)
    text = f"{100 * frame.confidence:g} % for a class ends it"
    canvas.text((right, y + 48 * k), text, 12.5 * k, fill=FAINT, anchor="rm")

    y = top + 296 * k
    canvas.text((left, y), "Tiles sent at each level", 15 * k, fill=INK, bold=True)
    for level, values in enumerate(VALUES):
        y += 27 * k
        blocks = values // 3
        means = "1 mean" if blocks == 1 else f"{blocks} means"
        count = frame.sent.count(level)
        ink = INK if count else FAINT
        text = f"level {level}: {means} per channel, {values} values"
        canvas.text((left, y), text, 12.5 * k, fill=ink)
        canvas.text((right, y), str(count), 14 * k, fill=ink, anchor="rm", bold=bool(count))

    y = top + 448 * k
    canvas.text((left, y), "Legend", 15 * k, fill=INK, bold=True)
    rows = (
        (EMPTY, LINE, 1, "an unsent tile with its number"),
        (CARD, PICKED, 3, "the picked tile; level_0 acts next"),
        (CARD, NEWEST, 3, "the tile sent last"),
        (CARD, RIGHT, 3, "the true class (hidden from the agents)"),
    )
    area = (left, y + 27 * k, right, box[3])
    legend(canvas, area, rows, k, step=27, indent=28, size=12.5)
