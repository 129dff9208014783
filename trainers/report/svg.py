"""Write SVG text for charts, without a library or external files."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

import numpy as np

from corral.envs.core import Array

__all__ = [
    "BLUE",
    "GRAY",
    "GREEN",
    "INK",
    "LEFT",
    "LETTER",
    "ORANGE",
    "PALE",
    "PURPLE",
    "RED",
    "RIGHT",
    "SKY",
    "WIDTH",
    "apart",
    "box",
    "cut",
    "line",
    "path",
    "room",
    "round_up",
    "svg",
    "text",
    "thousands",
    "ticks",
]

# Okabe and Ito's palette, also clear to color-blind readers.
BLUE, GRAY, RED, ORANGE, INK = "#0072B2", "#9a9a9a", "#D55E00", "#E69F00", "#333333"
GREEN, PURPLE, SKY, PALE = "#009E73", "#CC79A7", "#56B4E9", "#e5e5e5"
PAPER = '<rect width="100%" height="100%" fill="#ffffff"/>'
WIDTH = 920
LEFT, RIGHT = 64, 12  # margins of the plots
LETTER = 6.6  # mean width of a letter at size 12


def svg(height: float, parts: Sequence[str], title: str) -> str:
    """Return a standalone picture on white, so that it is readable on dark pages."""
    label = html.escape(title, quote=True)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{label}" '
        f'xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif">'
        f"{PAPER}{''.join(parts)}</svg>\n"
    )


def text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    size: int = 12,
    weight: int = 400,
    turned: bool = False,
) -> str:
    """Return words at a point; ``turned`` words run upwards."""
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'font-weight="{weight}" fill="{INK}"{turn}>{html.escape(words)}</text>'
    )


def box(x: float, y: float, width: float, height: float, color: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{color}"/>'
    )


def line(
    x1: float, y1: float, x2: float, y2: float, color: str = INK, width: float = 1, dash: str = ""
) -> str:
    return path(np.array([x1, x2]), np.array([y1, y2]), color, width, dash)


def _points(x: Array, y: Array) -> str:
    return "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))


def path(x: Array, y: Array, color: str, width: float = 1.5, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<path d="M{_points(x, y)}" fill="none" stroke="{color}" stroke-width="{width}"{dashed}/>'
    )


def round_up(value: float) -> float:
    """Return the next round number, for the end of an axis."""
    power = 10.0 ** math.floor(math.log10(value))
    steps = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
    return next(step * power for step in steps if step * power >= value * (1 - 1e-9))


def ticks(low: float, high: float) -> tuple[float, float, list[float]]:
    """Return round ends of an axis from ``low`` to ``high``, and round numbers between them."""
    size = round_up(max((high - low) / 5, abs(high) * 1e-6, 1e-9))
    first, last = math.floor(low / size + 1e-9), math.ceil(high / size - 1e-9)
    last = max(last, first + 1)
    return first * size, last * size, [round(k * size, 9) for k in range(first, last + 1)]


def thousands(value: float) -> str:
    """Format a number as "1.5 M", "200 k", "40", ..."""
    for size, letter in ((1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def apart(heights: Sequence[float], gap: float, top: float, base: float) -> list[float]:
    """Move ``heights`` as little as possible, to be ``gap`` apart within ``top`` .. ``base``."""
    order = np.argsort(heights, kind="stable").tolist()
    moved = list(heights)
    edge = top - gap
    for k in order:
        moved[k] = edge = max(moved[k], edge + gap)
    edge = base + gap
    for k in reversed(order):
        moved[k] = edge = min(moved[k], edge - gap)
    return moved


def room(names: Iterable[str], least: float = 190, letter: float = LETTER) -> float:
    """Return the width of the longest of ``names``, after ``cut``, with width ``letter`` each."""
    return max([least] + [len(cut(name)) * letter + 16 for name in names])


def cut(name: str, most: int = 34) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
