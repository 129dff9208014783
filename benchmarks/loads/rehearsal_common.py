"""Shared by the benchmarks of rehearsals: loads of other sizes, results as rows, and a chart."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from corral.data import Trace
from corral.envs.core import Array
from corral.loads.rehearsal import Rehearsal
from corral.loads.rehearsal.result import wait_at
from corral.trainers.report import svg as pen

__all__ = ["Curve", "between", "chart", "interval", "larger", "row_of"]

FEWEST = 6
"""Windows of an interval."""


def larger(trace: Trace, game: Mapping[str, Any], factor: int) -> tuple[Trace, dict[str, Any]]:
    """Return a load and its settings with all numbers of requests multiplied by ``factor``."""
    assert trace.capacity is not None
    scaled = dataclasses.replace(
        trace, arrivals=trace.arrivals * factor, capacity=trace.capacity * factor
    )
    changed = {
        name: value * factor
        for name, value in game.items()
        if name in ("queue", "link_limit") and value is not None
    }
    return scaled, {**game, **changed}


def row_of(rehearsal: Rehearsal, label: str, factor: int = 1) -> dict[str, Any]:
    """Return the result of a policy, as plain values; costs by window, divided by ``factor``."""
    sums = rehearsal.sums[label]
    waits = sums.waits.sum(axis=0)
    row: dict[str, Any] = {
        "policy": label,
        "windows": list(rehearsal.windows),
        "requests": rehearsal.requests.tolist(),
        "cost": (rehearsal.costs[label] / factor).round(4).tolist(),
        "lost": (sums.counts["lost"] / factor).round(4).tolist(),
        "forwarded": (sums.counts["forwarded"] / factor).round(4).tolist(),
        "mean_wait": float(np.average(sums.mean_wait, weights=sums.counts["started"])),
        "p99_wait": wait_at(waits, 0.99),
        "mean_stay": float(np.average(sums.mean_stay, weights=sums.counts["served"])),
    }
    if label in rehearsal.promises:
        promise = rehearsal.promises[label]
        row["promise"] = (promise.cost / factor).round(4).tolist()
        row["parts"] = {
            name: (values / factor).round(4).tolist() for name, values in promise.parts.items()
        }
    return row


def interval(differences: Any) -> tuple[float, float, float]:
    """Return a mean over windows and the ends of its 95 % interval (Student)."""
    values = np.asarray(differences, dtype=np.float64)
    mean, error = float(values.mean()), float(stats.sem(values))
    half = float(stats.t.ppf(0.975, len(values) - 1)) * error
    return mean, mean - half, mean + half


def between(differences: Any) -> str:
    """Return a mean over windows and its 95 % interval, as text; few windows: only the mean."""
    if len(differences) < FEWEST:
        return f"{np.mean(differences):+,.0f}"
    mean, low, high = interval(differences)
    return f"{mean:+,.0f} ({low:+,.0f} to {high:+,.0f})"


@dataclasses.dataclass(frozen=True)
class Curve:
    """A line of a chart."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    color: str
    dash: str = ""


def chart(
    curves: Sequence[Curve],
    *,
    title: str,
    note: str,
    across: str,
    upwards: str,
    log_x: bool = True,
    log_y: bool = False,
    zero: float = 0.0,
) -> str:
    """Return a picture of curves as SVG. On a log axis, x = 0 is drawn at ``zero``."""
    top, plot, right = 48, 320, 230
    base, width = top + plot, pen.WIDTH - pen.LEFT - right

    def on_x(values: Any) -> Array:
        x = np.asarray(values, dtype=np.float64)
        return np.asarray(np.log10(np.where(x > 0, x, zero or 1.0)) if log_x else x)

    def on_y(values: Any) -> Array:
        y = np.asarray(values, dtype=np.float64)
        return np.asarray(np.log10(y) if log_y else y)

    every_x = sorted({x for curve in curves for x in curve.x})
    left_x, right_x = float(on_x(every_x[0])), float(on_x(every_x[-1]))
    if not log_x:
        left_x, right_x, _ = pen.ticks(left_x, right_x)
    every_y = [y for curve in curves for y in curve.y]
    if log_y:
        powers = range(math.floor(math.log10(min(every_y))), math.ceil(math.log10(max(every_y))))
        marks = [k * 10.0**p for p in powers for k in (1, 2, 5)] + [10.0 ** (powers[-1] + 1)]
        marks = [y for y in marks if min(every_y) * 0.6 <= y <= max(every_y) * 1.7]
        low, high = float(on_y(marks[0])), float(on_y(marks[-1]))
    else:
        low, high, marks = pen.ticks(min(0.0, *every_y), max(every_y))

    def at_x(values: Any) -> Array:
        return pen.LEFT + (on_x(values) - left_x) / max(1e-9, right_x - left_x) * width

    def at_y(values: Any) -> Array:
        return base - (on_y(values) - low) / (high - low) * plot

    parts = [pen.text(pen.LEFT, 18, title, size=14, weight=600)]
    parts.append(pen.text(pen.LEFT, 36, note, size=11))
    for y in marks:
        line = float(at_y(y))
        parts.append(pen.line(pen.LEFT, line, pen.LEFT + width, line, pen.PALE))
        parts.append(pen.text(pen.LEFT - 8, line + 4, f"{y:,g}", anchor="end", size=11))
    last = -math.inf
    for x in every_x if log_x else pen.ticks(left_x, right_x)[2]:
        place = float(at_x(x))
        parts.append(pen.line(place, base, place, base + 4, pen.GRAY))
        if place - last > 30:
            parts.append(pen.text(place, base + 18, f"{x:,g}", anchor="middle", size=11))
            last = place
    parts.append(pen.text(pen.LEFT + width / 2, base + 36, across, anchor="middle"))
    parts.append(pen.text(14, top + plot / 2 + 70, upwards, turned=True))
    ends = []
    for curve in curves:
        x, y = at_x(curve.x), at_y(curve.y)
        parts.append(pen.path(x, y, curve.color, 1.8, curve.dash))
        ends.append(float(y[-1]))
    for y_label, curve in zip(pen.apart(ends, 15, top, base), curves, strict=True):
        x_label = pen.LEFT + width + 8
        parts.append(
            pen.line(x_label, y_label - 2, x_label + 16, y_label - 2, curve.color, 2, curve.dash)
        )
        parts.append(pen.text(x_label + 22, y_label + 2, curve.name, size=11))
    return pen.svg(base + 46, parts, title)
