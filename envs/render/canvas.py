"""Drawing primitives for pictures of environments: bars, cards, fitted text, curved arrows.

Coordinates are pixels of the finished picture; floats are allowed, and the origin is the top left.
Pictures are drawn three times as large and scaled down, to smooth all edges. Pillow (extra
``[render]``) is imported when a canvas is created.
"""

from __future__ import annotations

import functools
import math
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from corral.extras import require

__all__ = [
    "Box",
    "Canvas",
    "Curve",
    "Point",
    "bend",
    "center",
    "label_box",
    "mix",
    "outside",
    "overlap",
    "path",
    "percent",
    "ring",
    "sentence",
    "short_count",
    "step_text",
]

Point = tuple[float, float]
Box = tuple[float, float, float, float]  # left, top, right, bottom
Curve = npt.NDArray[np.float64]  # [P, 2] points along a curve

OVERSAMPLE = 3
SHRINK = 0.8  # long text may shrink to this share of its size, then it is cut


def mix(first: str, second: str, share: float) -> str:
    """Return the color between ``first`` (share 0) and ``second`` (share 1), as ``#rrggbb``."""
    pairs = [(int(first[i : i + 2], 16), int(second[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def short_count(number: int, digits: int = 6) -> str:
    """Return ``number`` as text: in full up to ``digits`` digits, otherwise like ``1.23M``."""
    if number < 10**digits:
        return str(number)
    exponent = next(e for e in (3, 6, 9, 12, 15) if number < 999.5 * 10**e or e == 15)
    return f"{number / 10**exponent:.3g}" + {3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}[exponent]


def step_text(t: int, max_cycles: int | None) -> str:
    """Return the step as text, with the time limit if there is one."""
    return f"step {t}" if max_cycles is None else f"step {t} of {max_cycles}"


def sentence(text: str) -> str:
    """Return ``text`` with a capital first letter, unless it begins with the name of an agent."""
    return text if "_" in text.split(" ", 1)[0] else text[:1].upper() + text[1:]


def percent(part: int, whole: int) -> str:
    """Return ``part`` of ``whole`` as a percentage.

    "0 %" and "100 %" are exact; values near them become "<0.1 %" and ">99.9 %".
    """
    if part in (0, whole):
        return "100 %" if part else "0 %"
    share = 100 * part / whole
    if not 0.1 <= share <= 99.9:
        return "<0.1 %" if share < 0.1 else ">99.9 %"
    return f"{share:.1f} %"


def overlap(first: Box, second: Box) -> bool:
    """Return True if two boxes overlap."""
    return (
        first[0] < second[2]
        and second[0] < first[2]
        and first[1] < second[3]
        and second[1] < first[3]
    )


def bend(start: Point, control: Point, end: Point, points: int = 61) -> Curve:
    """Return a quadratic Bezier curve from ``start`` to ``end``, as points [P, 2]."""
    t = np.linspace(0.0, 1.0, points)[:, None]
    p0, p1, p2 = np.array(start), np.array(control), np.array(end)
    return np.asarray((1 - t) ** 2 * p0 + 2 * t * (1 - t) * p1 + t**2 * p2)


def outside(curve: Curve, box: Box, margin: float = 0.0) -> Curve:
    """Return the points of ``curve`` outside of ``box``, enlarged by ``margin``."""
    x, y = curve[:, 0], curve[:, 1]
    inside = (x > box[0] - margin) & (x < box[2] + margin)
    inside &= (y > box[1] - margin) & (y < box[3] + margin)
    return curve[~inside]


def center(box: Box) -> Point:
    """Return the center of a box."""
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


# --- Graphs: positions of nodes, arrows and labels -----------------------------------------------


def ring(n: int, area: Box, wide: float, high: float) -> list[Box]:
    """Return n boxes in ``area``, clockwise from the top along a rounded rectangle.

    Up to two boxes are placed side by side.
    """
    x, y = center(area)
    reach_x, reach_y = (area[2] - area[0] - wide) / 2, (area[3] - area[1] - high) / 2
    if n <= 2:
        places = [(x, y)] if n == 1 else [(x - 0.85 * reach_x, y), (x + 0.85 * reach_x, y)]
    else:
        angle = np.linspace(0.0, 2 * math.pi, 2001) - math.pi / 2
        cos, sin = np.cos(angle), np.sin(angle)
        rim_x = x + reach_x * np.sign(cos) * np.abs(cos) ** 0.7
        rim_y = y + reach_y * np.sign(sin) * np.abs(sin) ** 0.7
        length = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(rim_x), np.diff(rim_y)))])
        stops = np.linspace(0.0, length[-1], n, endpoint=False)
        xs, ys = np.interp(stops, length, rim_x), np.interp(stops, length, rim_y)
        places = [(float(a), float(b)) for a, b in zip(xs, ys, strict=True)]
    return [(a - wide / 2, b - high / 2, a + wide / 2, b + high / 2) for a, b in places]


def path(boxes: list[Box], i: int, j: int, area: Box, gap: float) -> Curve:
    """Return the curve of an arrow from box i to box j.

    It runs on its right-hand side, so that both directions stay apart. Both directions bend inwards
    until they pass the other boxes.
    """
    obstacles = [box for place, box in enumerate(boxes) if place not in (i, j)]
    best: tuple[int, Curve] | None = None
    for pull in (0.3, 0.45, 0.6, 0.75, 0.9, 1.05, 1.2):
        forth, back = (
            _way(boxes[a], boxes[b], center(area), pull, gap) for a, b in ((i, j), (j, i))
        )
        faults = 0  # points behind other boxes, and arrows that are too short
        for curve in (forth, back):
            faults += sum(len(curve) - len(outside(curve, box, 3 * gap)) for box in obstacles)
            faults += 10 * (len(curve) < 2 or math.dist(curve[0], curve[-1]) < 12 * gap)
        if best is None or faults < best[0]:
            best = (faults, forth)
        if not faults:
            break
    assert best is not None
    return best[1]


def _way(first: Box, second: Box, middle: Point, pull: float, gap: float) -> Curve:
    start, end = center(first), center(second)
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = max(math.hypot(dx, dy), 1e-9)
    near = 0.16 * (first[3] - first[1])
    side, far = (-dy / length * near, dx / length * near), 1 + 0.05 * length / near
    x, y = (
        (start[axis] + end[axis]) / 2 * (1 - pull) + middle[axis] * pull + side[axis] * far
        for axis in (0, 1)
    )
    curve = bend(
        (start[0] + side[0], start[1] + side[1]), (x, y), (end[0] + side[0], end[1] + side[1])
    )
    return outside(outside(curve, first, gap), second, gap)


def label_box(
    curve: Curve, half_width: float, half_height: float, *, taken: list[Box], avoid: list[Curve]
) -> Box | None:
    """Return a box on ``curve`` without overlap with ``taken`` and little with ``avoid``.

    Returns None if every place overlaps ``taken``. Crosses as few curves of ``avoid`` as possible.
    """
    best: tuple[int, Box] | None = None
    for share in (0.5, 0.44, 0.56, 0.38, 0.62, 0.32, 0.68, 0.26, 0.74, 0.2):
        if not len(curve):
            break
        x, y = (float(value) for value in curve[round(share * (len(curve) - 1))])
        box = (x - half_width, y - half_height, x + half_width, y + half_height)
        if any(overlap(box, other) for other in taken):
            continue
        crossed = sum(len(outside(other, box, half_height / 3)) < len(other) for other in avoid)
        if best is None or crossed < best[0]:
            best = (crossed, box)
    return None if best is None else best[1]


# --- The canvas ----------------------------------------------------------------------------------


@functools.cache
def _font(size: int) -> Any:
    """Return Pillow's built-in scalable font, which has the same shapes on every machine."""
    return require("PIL.ImageFont", extra="render", purpose="draw pictures").load_default(size)


def _printable(text: str) -> str:
    """Return ``text`` in letters of the font: accents are dropped, other scripts become ``?``."""
    bare = unicodedata.normalize("NFKD", text)
    bare = "".join(c for c in bare if not unicodedata.combining(c))
    return "".join(c if " " <= c <= "~" or c in "·…" else "?" for c in bare)


class Canvas:
    """A picture under construction."""

    def __init__(self, width: int, height: int, background: str = "#ffffff") -> None:
        image = require("PIL.Image", extra="render", purpose="draw rgb_array pictures")
        painter = require("PIL.ImageDraw", extra="render", purpose="draw rgb_array pictures")
        self.width, self.height = width, height
        size = (width * OVERSAMPLE, height * OVERSAMPLE)
        self._image = image.new("RGB", size, background)
        self._draw = painter.Draw(self._image)
        self._filter = image.Resampling.LANCZOS

    def pixels(self) -> npt.NDArray[np.uint8]:
        """Return the finished picture, uint8 [height, width, 3]."""
        small = self._image.resize((self.width, self.height), self._filter)
        return np.array(small, dtype=np.uint8)

    def box(
        self,
        box: Box,
        fill: str | None = None,
        *,
        outline: str | None = None,
        stroke: float = 1.0,
        radius: float = 0.0,
    ) -> None:
        """Draw a rectangle, with rounded corners if ``radius`` is positive."""
        left, top, right, bottom = (round(value * OVERSAMPLE) for value in box)
        if right <= left or bottom <= top:
            return
        self._draw.rounded_rectangle(
            (left, top, right - 1, bottom - 1),
            radius=min(radius * OVERSAMPLE, (right - left) / 2, (bottom - top) / 2),
            fill=fill,
            outline=outline,
            width=max(1, round(stroke * OVERSAMPLE)),
        )

    def stack(
        self,
        box: Box,
        parts: list[tuple[int, str]],
        scale: float,
        *,
        numbers: float = 0.0,
        digits: int = 6,
    ) -> None:
        """Draw stacked bars (value, color) in ``box``; ``scale`` is the value of the full width.

        Values above 0 are always visible. Numbers of size ``numbers`` are written into bars with
        enough room.
        """
        left, top, right, bottom = box
        total = 0
        for value, color in parts:
            start = left + (right - left) * min(1.0, total / scale)
            total += value
            end = left + (right - left) * min(1.0, total / scale)
            if value and end - start < 1.5:
                start = min(start, right - 1.5)
                end = start + 1.5
            self.box((start, top, end, bottom), color)
            text = short_count(value, digits)
            if numbers and value and self.text_width(text, numbers) <= end - start - 4:
                middle = center((start, top, end, bottom))
                self.text(middle, text, numbers, fill="#ffffff", anchor="mm")

    def picture(self, box: Box, pixels: npt.NDArray[np.uint8]) -> None:
        """Draw ``pixels`` uint8 [H, W, 3] stretched over ``box``, with sharp edges."""
        left, top, right, bottom = (round(value * OVERSAMPLE) for value in box)
        if right <= left or bottom <= top:
            return
        across = (np.arange(right - left) * pixels.shape[1]) // (right - left)
        down = (np.arange(bottom - top) * pixels.shape[0]) // (bottom - top)
        image = require("PIL.Image", extra="render", purpose="draw rgb_array pictures")
        large = np.ascontiguousarray(pixels[down[:, None], across])
        self._image.paste(image.fromarray(large), (left, top))

    def text_width(self, text: str, size: float, *, bold: bool = False) -> float:
        """Return the width of ``text`` in pixels."""
        length = _font(round(size * OVERSAMPLE)).getlength(_printable(text))
        return float(length) / OVERSAMPLE + (0.7 if bold else 0.0)

    def fit(self, text: str, size: float, width: float, *, bold: bool = False) -> tuple[str, float]:
        """Return ``text`` and its size: shrunk a little, then cut, to fit into ``width``."""
        text = _printable(text)
        needed = self.text_width(text, size, bold=bold)
        if needed <= width:
            return text, size
        size *= max(SHRINK, 0.98 * width / needed)
        if self.text_width(text, size, bold=bold) <= width:
            return text, size
        while text and self.text_width(text + "…", size, bold=bold) > width:
            text = text[:-1]
        return (text.rstrip() + "…" if text else ""), size

    def text(
        self,
        place: Point,
        text: str,
        size: float,
        *,
        fill: str = "#000000",
        anchor: str = "lm",
        bold: bool = False,
        width: float | None = None,
    ) -> float:
        """Draw text at ``place``, at most ``width`` wide. Return the width of the text.

        ``anchor``: l, m or r for the horizontal position; then a (top), m (middle) or s (baseline).
        """
        if width is not None:
            text, size = self.fit(text, size, width, bold=bold)
        self._draw.text(
            (place[0] * OVERSAMPLE, place[1] * OVERSAMPLE),
            _printable(text),
            fill=fill,
            font=_font(round(size * OVERSAMPLE)),
            anchor=anchor,
            stroke_width=1 if bold else 0,
            stroke_fill=fill if bold else None,
        )
        return self.text_width(text, size, bold=bold)

    def arrow(
        self, curve: Curve, thickness: float, color: str, *, head: float, halo: str | None = None
    ) -> None:
        """Draw an arrow along ``curve``, with a tip of length ``head`` at its last point.

        ``halo`` is the color of a border, which keeps crossing arrows apart.
        """
        if len(curve) < 2:
            return
        tip = curve[-1]
        far = np.linalg.norm(curve - tip, axis=1) >= head
        last = int(np.flatnonzero(far)[-1]) if far.any() else 0
        base = curve[last]
        along = (tip - base) / max(math.hypot(*(tip - base)), 1e-9)
        across = np.array([-along[1], along[0]])
        shaft = np.vstack([curve[: last + 1], base + along * head * 0.15])
        wing = max(head * 0.45, thickness * 0.5 + 2.0)
        point = np.array([tip, base + across * wing, base - across * wing])
        if halo is not None:
            self._line(shaft, thickness + 3.0, halo)
            self._line(np.vstack([point, point[:2]]), 3.0, halo)
        self._line(shaft, thickness, color)
        self._draw.polygon([tuple(p) for p in (point * OVERSAMPLE).tolist()], fill=color)

    def line(self, points: Sequence[Point], thickness: float, color: str) -> None:
        """Draw straight lines from point to point, with round ends."""
        self._line(np.array(points, dtype=np.float64), thickness, color)
        for x, y in (points[0], points[-1]):
            half = thickness / 2
            self.box((x - half, y - half, x + half, y + half), color, radius=half)

    def polygon(self, points: Sequence[Point], fill: str) -> None:
        """Draw a filled polygon."""
        self._draw.polygon([(x * OVERSAMPLE, y * OVERSAMPLE) for x, y in points], fill=fill)

    def _line(self, points: Curve, thickness: float, color: str) -> None:
        flat = [tuple(p) for p in (points * OVERSAMPLE).tolist()]
        width = max(1, round(thickness * OVERSAMPLE))
        self._draw.line(flat, fill=color, width=width, joint="curve")
