"""The charts of a report, as SVG text: no library, no script, nothing loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from corral.envs.core import Array
from corral.trainers.report import svg as pen

__all__ = ["Bar", "LearningCurve", "bar_chart", "learning_chart"]

CURVE_COLORS = (pen.BLUE, pen.RED, pen.GREEN, pen.PURPLE, pen.SKY, pen.ORANGE)


@dataclass(frozen=True)
class Bar:
    """One bar, with an interval where there is one."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    marked: bool = False  # stands out: a team among the references


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """The course of learning: the team's return per episode after so many env steps."""

    label: str
    env_steps: Array  # [U]
    returns: Array  # float [U]; NaN where no episode ended


def bar_chart(bars: Sequence[Bar], title: str) -> str:
    """Return horizontal bars with their values; the interval as a thin line."""
    left, height = pen.room((bar.name for bar in bars), letter=7.4), 22
    top = 26
    largest = max([bar.high or bar.value for bar in bars] + [1e-9])
    scale = (pen.WIDTH - left - 70) / largest
    parts = [pen.text(left, 16, title, size=13)]
    for number, bar in enumerate(bars):
        y = top + number * height
        color = pen.GRAY if bar.name == "optimum" else pen.GREEN if bar.marked else pen.BLUE
        weight = 600 if bar.marked else 400
        parts.append(pen.text(left - 8, y + 14, pen.cut(bar.name), anchor="end", weight=weight))
        parts.append(pen.box(left, y + 3, max(1.0, bar.value * scale), height - 8, color))
        end = left + bar.value * scale
        if bar.low is not None and bar.high is not None:
            middle = y + height / 2 - 1
            ends = (left + bar.low * scale, left + bar.high * scale)
            # White below, to stand out.
            parts.append(pen.line(ends[0], middle, ends[1], middle, "#fff", width=4))
            parts.append(pen.line(ends[0], middle, ends[1], middle, width=1.5))
            end = max(end, left + bar.high * scale)
        parts.append(pen.text(end + 6, y + 14, f"{bar.value:.2f}"))
    return pen.svg(top + len(bars) * height + 8, parts, title)


def learning_chart(curves: Sequence[LearningCurve], levels: Mapping[str, float]) -> str:
    """Return a chart of team return per episode over env steps.

    A line per run; ``levels`` are horizontal lines.
    """
    lines = [_thinned(curve) for curve in curves]
    values = [*(y[np.isfinite(y)] for _, y in lines), np.array(list(levels.values()))]
    every = np.concatenate(values)
    every = every if len(every) else np.zeros(1)
    low, high, marks = pen.ticks(float(every.min()), float(every.max()))
    most = max([float(x[-1]) for x, _ in lines if len(x)] + [1.0])
    names = [curve.label for curve in curves] + list(levels)
    right = pen.room(names, least=80) + 36
    top, plot = 30, max(240, 15 * len(names))
    base, width = top + plot, pen.WIDTH - pen.LEFT - right
    end = pen.LEFT + width

    def height(returns: Array) -> Array:
        return np.asarray(base - (returns - low) / (high - low) * plot)

    parts = [pen.text(pen.LEFT, 16, "team return per episode", size=13)]
    for tick, y in zip(marks, height(np.array(marks)).tolist(), strict=True):
        parts.append(pen.line(pen.LEFT, y, end, y, pen.PALE))
        parts.append(pen.text(pen.LEFT - 6, y + 4, f"{tick:g}", anchor="end", size=11))
    for tick in pen.ticks(0.0, most)[2]:
        if tick <= most:
            x = pen.LEFT + tick / most * width
            parts.append(pen.text(x, base + 16, pen.thousands(tick), anchor="middle", size=11))
    parts.append(pen.text(pen.LEFT + width / 2, base + 32, "env steps", anchor="middle"))

    flat = height(np.array(list(levels.values()))).tolist()
    parts += [pen.line(pen.LEFT, y, end, y, pen.GRAY, 1.5, dash="5 4") for y in flat]
    last: list[float] = []  # where each line ends, so that its name can stand there
    styles = []
    for number, (steps, returns) in enumerate(lines):
        color = CURVE_COLORS[number % len(CURVE_COLORS)]
        dash = ("", "6 3", "2 2")[number // len(CURVE_COLORS) % 3]
        at, heights, valid = pen.LEFT + steps / most * width, height(returns), np.isfinite(returns)
        for first, after in _runs(valid):
            piece = slice(first, after)
            parts.append(pen.path(at[piece], heights[piece], color, 1.8, dash=dash))
            if after - first == 1:  # a dot, where there is no line
                parts.append(pen.box(at[first] - 2, heights[first] - 2, 4, 4, color))
        last.append(float(heights[valid][-1]) if valid.any() else float(base))
        styles.append((color, dash))
    styles += [(pen.GRAY, "5 4")] * len(levels)
    heights_of_names = pen.apart(last + flat, 15, top, base)
    for name, y, (color, dash) in zip(names, heights_of_names, styles, strict=True):
        parts.append(pen.line(end + 8, y, end + 26, y, color, 2.5, dash=dash))
        parts.append(pen.text(end + 31, y + 4, pen.cut(name)))
    return pen.svg(base + 42, parts, "team return per episode over env steps")


def _runs(valid: Array) -> list[tuple[int, int]]:
    """Return (low, high) of each run of True in ``valid`` bool [U]."""
    edges = np.flatnonzero(np.diff(valid.astype(np.int8), prepend=0, append=0)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _thinned(curve: LearningCurve, most: int = 400) -> tuple[Array, Array]:
    """Return steps and returns of at most ``most`` points, means of what lies between."""
    steps = np.asarray(curve.env_steps, dtype=np.float64)
    returns = np.asarray(curve.returns, dtype=np.float64)
    if steps.shape != returns.shape or steps.ndim != 1:
        raise ValueError(
            f"curve {curve.label}: env_steps {steps.shape} and returns {returns.shape}; "
            "give [U] twice"
        )
    width = -(-len(steps) // most)
    if width <= 1:
        return steps, returns
    starts = np.arange(0, len(steps), width)
    valid = np.isfinite(returns)
    counts = np.add.reduceat(valid.astype(np.float64), starts)
    sums = np.add.reduceat(np.where(valid, returns, 0.0), starts)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return steps[np.minimum(starts + width, len(steps)) - 1], means
