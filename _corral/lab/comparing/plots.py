"""Pictures of a comparison, as SVG: learning curves, performance profile, intervals.

Figures are made without pyplot, whose figures and settings are shared by a whole process.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from corral.extras import require
from corral.lab.comparing.statistics import (
    MIN_SEEDS,
    bootstrap_band,
    performance_profile,
)
from corral.lab.comparing.tables import cut

if TYPE_CHECKING:
    from corral.lab.comparing.comparison import Comparison

__all__ = ["COLORS", "pictures", "svg_of"]

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
"""Okabe and Ito's colors, which people with any color vision tell apart."""

GRAY = "#666666"


def pictures(comparison: Comparison) -> dict[str, str]:
    """Return file name -> SVG. Raises MissingExtraError without matplotlib."""
    require("matplotlib", extra="plot", purpose="draw pictures")
    names = [*comparison.table.index]
    colors = {name: COLORS[i % len(COLORS)] for i, name in enumerate(names)}
    drawn = {
        "profile.svg": _profile(comparison, colors),
        "intervals.svg": _intervals(comparison, colors),
    }
    if len(comparison.grid):
        drawn["curves.svg"] = _curves(comparison, colors)
    return drawn


def _axes(width: float = 7.0, height: float = 4.0) -> tuple[Any, Any]:
    """Return a figure and its axes, white and without a frame at the top and right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def svg_of(figure: Any) -> str:
    """Return a figure as SVG, the same text for the same figure."""
    import matplotlib as mpl

    text = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "corral"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _curves(comparison: Comparison, colors: Mapping[str, str]) -> str:
    figure, axes = _axes()
    ends = {}
    for name, part in comparison.curves.groupby("group", sort=False):
        color = colors[str(name)]
        steps = part["env_steps"]
        axes.plot(steps, part["iqm"], color=color, linewidth=2)
        ends[str(name)] = float(part["iqm"].iloc[-1])
        if part["low"].notna().all():
            axes.fill_between(steps, part["low"], part["high"], color=color, alpha=0.2, lw=0)
        for run in comparison.groups[str(name)]:
            axes.plot(run.steps, run.returns, color=color, linewidth=0.6, alpha=0.5)
    _label(axes, ends, colors)
    axes.set_xlabel("env steps")
    axes.set_ylabel("return in training, interquartile mean")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    return svg_of(figure)


def _label(axes: Any, ends: Mapping[str, float], colors: Mapping[str, str]) -> None:
    """Write each name beside the end of its line, one above the other where lines end alike."""
    low, high = axes.get_ylim()
    apart, below = 0.06 * (high - low), -np.inf
    for name in sorted(ends, key=lambda each: ends[each]):
        below = max(ends[name], below + apart)
        axes.annotate(
            cut(name),
            (1.0, below),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color=colors[name],
        )


def _profile(comparison: Comparison, colors: Mapping[str, str]) -> str:
    figure, axes = _axes()
    values = np.concatenate([*map(np.asarray, comparison.scores.values())])
    margin = 0.05 * float(np.ptp(values)) or 0.5
    thresholds = np.linspace(values.min() - margin, values.max() + margin, 200)
    for row, name in enumerate(colors):
        scores = comparison.scores[name]
        share = performance_profile(scores, thresholds)
        width = 1.5 + 2.0 * (len(colors) - 1 - row) / len(colors)  # equal ones show each other
        axes.step(thresholds, share, where="post", color=colors[name], linewidth=width)
        if len(scores) >= MIN_SEEDS:
            low, high = bootstrap_band(
                scores,
                statistic=lambda drawn: performance_profile(drawn, thresholds),
                resamples=2000,
                seed=comparison.seed,
            )
            axes.fill_between(
                thresholds, low, high, step="post", color=colors[name], alpha=0.15, lw=0
            )
        axes.annotate(
            cut(name),
            (1.0, 1.0),
            xycoords="axes fraction",
            xytext=(6, -16 * row),
            textcoords="offset points",
            va="top",
            color=colors[name],
        )
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel(f"score: {comparison.metric}")
    axes.set_ylabel("share of runs that score more")
    return svg_of(figure)


def _intervals(comparison: Comparison, colors: Mapping[str, str]) -> str:
    table = comparison.table
    figure, axes = _axes(height=1.2 + 0.45 * len(table))
    for row, (name, group) in enumerate(table.iterrows()):
        color = colors[str(name)]
        scores = comparison.scores[str(name)]
        axes.plot(scores, np.full(len(scores), row + 0.22), "o", color=color, ms=3, alpha=0.5)
        if np.isfinite(group["low"]):
            axes.plot(
                [group["low"], group["high"]], [row, row], color=color, linewidth=5, alpha=0.4
            )
        axes.plot([group["iqm"]], [row], "|", color=color, markersize=14, markeredgewidth=2)
    axes.set_yticks(
        range(len(table)), [f"{cut(str(n))} ({int(c)})" for n, c in table["runs"].items()]
    )
    for label, color in zip(axes.get_yticklabels(), colors.values(), strict=True):
        label.set_color(color)
    axes.set_ylim(len(table) - 0.4, -0.6)
    axes.set_xlabel(f"score: {comparison.metric}\ninterquartile mean, 95 % interval; dots are runs")
    return svg_of(figure)
