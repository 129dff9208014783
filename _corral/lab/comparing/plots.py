"""Pictures of a comparison as SVG: learning curves, performance profile, intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from corral.lab.axes import COLORS, Axes, picture, words
from corral.lab.comparing.statistics import (
    MIN_SEEDS,
    bootstrap_band,
    performance_profile,
)
from corral.lab.comparing.tables import cut
from corral.trainers.report import svg as pen

if TYPE_CHECKING:
    from corral.lab.comparing.comparison import Comparison

__all__ = ["pictures"]

TOP, HEIGHT, BELOW = 44, 340, 56
LEFT = 76


def pictures(comparison: Comparison) -> dict[str, str]:
    """Return file name -> SVG text."""
    names = [*map(str, comparison.table.index)]
    colors = {name: COLORS[i % len(COLORS)] for i, name in enumerate(names)}
    drawn = {
        "profile.svg": _profile(comparison, colors),
        "intervals.svg": _intervals(comparison, colors),
    }
    if len(comparison.grid):
        drawn["curves.svg"] = _curves(comparison, colors)
    return drawn


def _axes(
    x: tuple[float, float], y: tuple[float, float], names: Mapping[str, str], height: float = HEIGHT
) -> Axes:
    """Return axes with room for ``names`` on the right."""
    right = pen.room(names, least=90, letter=7.2)
    return Axes(LEFT, TOP, pen.WIDTH - LEFT - right, height, x, y)


def _picture(axes: Axes, title: str) -> str:
    parts = [words(16, 26, title, size=15, weight=600), *axes.parts]
    return picture(axes.bottom + BELOW, parts, title)


def _curves(comparison: Comparison, colors: Mapping[str, str]) -> str:
    runs = [run for members in comparison.groups.values() for run in members]
    steps = np.concatenate([np.asarray(run.steps, dtype=float) for run in runs])
    returns = np.concatenate([np.asarray(run.returns, dtype=float) for run in runs])
    shown = [returns, *(np.asarray(comparison.curves[key], float) for key in ("low", "high"))]
    values = np.concatenate(shown)
    low, high, marks = pen.ticks(float(np.nanmin(values)), float(np.nanmax(values)))
    last = float(np.nanmax(steps))
    axes = _axes((0.0, last), (low, high), colors)
    axes.rows(marks)
    axes.columns(mark for mark in pen.ticks(0.0, last)[2] if mark <= last)
    ends = {}
    for group, part in comparison.curves.groupby("group", sort=False):
        name = str(group)
        at = part["env_steps"]
        if part["low"].notna().all():
            axes.band(at, part["low"], part["high"], colors[name])
        for run in comparison.groups[name]:
            axes.curve(run.steps, run.returns, colors[name], 0.8, 0.5)
        axes.curve(at, part["iqm"], colors[name], 2.5)
        ends[name] = float(axes.up(part["iqm"].iloc[-1]))
    axes.key([cut(name) for name in ends], [colors[name] for name in ends], [*ends.values()])
    axes.titles("env steps", "return in training")
    return _picture(axes, "Learning curves: interquartile mean over runs, with interval")


def _profile(comparison: Comparison, colors: Mapping[str, str]) -> str:
    values = np.concatenate([*map(np.asarray, comparison.scores.values())])
    low, high, marks = pen.ticks(float(values.min()), float(values.max()))
    axes = _axes((low, high), (0.0, 1.0), colors)
    axes.rows((0, 0.25, 0.5, 0.75, 1))
    axes.columns(marks)
    thresholds = np.linspace(low, high, 200)
    for row, (name, color) in enumerate(colors.items()):
        scores = comparison.scores[name]
        if len(scores) >= MIN_SEEDS:
            band = bootstrap_band(
                scores,
                statistic=lambda drawn: performance_profile(drawn, thresholds),
                resamples=2000,
                seed=comparison.seed,
            )
            axes.band(thresholds, *band, color, 0.15, steps=True)
        width = 1.5 + 2.0 * (len(colors) - 1 - row) / len(colors)  # overlapping curves stay visible
        axes.curve(thresholds, performance_profile(scores, thresholds), color, width, steps=True)
    axes.key([cut(name) for name in colors], [*colors.values()], [TOP + 6.0] * len(colors))
    axes.titles(f"score: {comparison.metric}", "share of runs")
    return _picture(axes, "Share of runs above each score")


def _intervals(comparison: Comparison, colors: Mapping[str, str]) -> str:
    table = comparison.table
    values = [np.asarray(scores, dtype=float) for scores in comparison.scores.values()]
    values += [np.asarray(table[key], dtype=float) for key in ("low", "high")]
    all_values = np.concatenate(values)
    low, high, marks = pen.ticks(float(np.nanmin(all_values)), float(np.nanmax(all_values)))
    names = {name: f"{cut(name)} ({int(table['runs'][name])})" for name in colors}
    left = 16 + pen.room(names.values(), least=90, letter=7.2)
    width, height = pen.WIDTH - left - 32, 40.0 * len(names)
    axes = Axes(left, TOP, width, height, (low, high), (len(names) - 0.5, -0.5))
    axes.columns(marks, lines=True)
    for row, (name, color) in enumerate(colors.items()):
        group, up = table.loc[name], float(axes.up(row))
        axes.parts.append(words(left - 12, up + 4, names[name], color=color, anchor="end", size=13))
        if np.isfinite(group["low"]):
            axes.curve([group["low"], group["high"]], [row, row], color, 8, 0.4)
        iqm = float(axes.across(group["iqm"]))
        axes.parts.append(pen.line(iqm, up - 9, iqm, up + 9, color, 3))
        axes.dots(comparison.scores[name], row + 0.33, color, 3, 0.6)
    axes.titles(f"score: {comparison.metric}")
    return _picture(axes, "Interquartile mean with its 95 % interval; dots are runs")
