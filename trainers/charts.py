"""The drawings of a report, as SVG text: no library, no script, nothing loaded."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from corral.envs.core import Array

__all__ = ["Bar", "bar_chart", "node_chart"]

# Okabe and Ito's palette, told apart by colour-blind readers too.
BLUE, GREY, RED, ORANGE, INK = "#0072B2", "#9a9a9a", "#D55E00", "#E69F00", "#333333"
LOSS_COLOURS = (RED, ORANGE)
WIDTH = 920
LEFT, RIGHT = 64, 12  # margins of the plots


@dataclass(frozen=True)
class Bar:
    """One bar, with an interval where there is one."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None


def bar_chart(bars: Sequence[Bar], title: str) -> str:
    """Horizontal bars with their values; the interval as a thin line."""
    left, height = 190, 22
    top = 26
    largest = max([bar.high or bar.value for bar in bars] + [1e-9])
    scale = (WIDTH - left - 70) / largest
    parts = [_text(left, 16, title, size=13)]
    for place, bar in enumerate(bars):
        y = top + place * height
        colour = GREY if bar.name == "optimum" else BLUE
        parts.append(_text(left - 8, y + 14, bar.name, anchor="end"))
        parts.append(_box(left, y + 3, max(1.0, bar.value * scale), height - 8, colour))
        end = left + bar.value * scale
        if bar.low is not None and bar.high is not None:
            middle = y + height / 2 - 1
            ends = (left + bar.low * scale, left + bar.high * scale)
            parts.append(_line(ends[0], middle, ends[1], middle, "#fff", width=4))  # to stand out
            parts.append(_line(ends[0], middle, ends[1], middle, width=1.5))
            end = max(end, left + bar.high * scale)
        parts.append(_text(end + 6, y + 14, f"{bar.value:.2f}"))
    return _svg(top + len(bars) * height + 8, parts, title)


def node_chart(
    title: str,
    labels: Sequence[str],
    *,
    arrivals: Array,
    capacity: Array,
    losses: Mapping[str, Array],
) -> str:
    """One node over time: arrivals [P] against capacity [P], and below what each policy lost."""
    points = len(labels)
    top, plot, strip = 30, 120, 34
    load_top = _round_up(float(max(arrivals.max(), capacity.max(), 1)))
    loss_top = _round_up(float(max([lost.max() for lost in losses.values()] + [1])))
    x = LEFT + (np.arange(points) + 0.5) / points * (WIDTH - LEFT - RIGHT)
    parts = [_text(LEFT, 18, title, size=13, weight=600)]
    legend = [("arrivals", BLUE), ("capacity", GREY)]
    legend += [(f"lost, {name}", c) for name, c in zip(losses, LOSS_COLOURS, strict=False)]
    spot = WIDTH - RIGHT - sum(len(name) * 6.6 + 32 for name, _ in legend)
    for name, colour in legend:
        parts += [_box(spot, 10, 14, 8, colour), _text(spot + 19, 18, name)]
        spot += len(name) * 6.6 + 32

    base = top + plot
    parts += _axis(top, base, load_top)
    y = base - arrivals / load_top * plot
    parts.append(_area(x, y, base, BLUE))
    parts.append(_path(x, base - capacity / load_top * plot, GREY))
    for place, (lost, colour) in enumerate(zip(losses.values(), LOSS_COLOURS, strict=False)):
        bottom = base + (place + 1) * (strip + 8)
        parts += _axis(bottom - strip, bottom, loss_top)
        width = max(1.0, (WIDTH - LEFT - RIGHT) / points)
        for at, height in zip(x, lost / loss_top * strip, strict=True):
            if height > 0:
                parts.append(_box(at - width / 2, bottom - height, width, height, colour))
    bottom = base + len(losses) * (strip + 8)
    for place in np.linspace(0, points - 1, min(5, points)).round().astype(int).tolist():
        anchor = "start" if place == 0 else "end" if place == points - 1 else "middle"
        parts.append(_text(float(x[place]), bottom + 16, labels[place], anchor=anchor))
    return _svg(bottom + 26, parts, title)


# --- Primitives ----------------------------------------------------------------------------------


def _svg(height: float, parts: Sequence[str], title: str) -> str:
    label = html.escape(title, quote=True)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{label}" '
        f'xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif">'
        f"{''.join(parts)}</svg>\n"
    )


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, weight: int = 400
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'font-weight="{weight}" fill="{INK}">{html.escape(text)}</text>'
    )


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str = INK, width: float = 1) -> str:
    shape = f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"
    return f'<path d="{shape}" stroke="{colour}" stroke-width="{width}"/>'


def _points(x: Array, y: Array) -> str:
    return "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))


def _path(x: Array, y: Array, colour: str) -> str:
    return f'<path d="M{_points(x, y)}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def _area(x: Array, y: Array, base: float, colour: str) -> str:
    shape = f"M{x[0]:.1f} {base:.1f}L{_points(x, y)}L{x[-1]:.1f} {base:.1f}Z"
    return f'<path d="{shape}" fill="{colour}" fill-opacity="0.75"/>'


def _axis(top: float, base: float, largest: float) -> list[str]:
    return [
        _line(LEFT, base, WIDTH - RIGHT, base, GREY),
        _text(LEFT - 6, base, "0", anchor="end", size=11),
        _text(LEFT - 6, top + 9, f"{largest:g}", anchor="end", size=11),
    ]


def _round_up(value: float) -> float:
    """The next round number: what an axis ends with."""
    power = 10.0 ** math.floor(math.log10(value))
    steps = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
    return next(step * power for step in steps if step * power >= value * (1 - 1e-9))
