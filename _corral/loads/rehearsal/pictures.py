"""Charts of waits: over the hours of a day, and their distribution."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

import numpy as np

from corral.envs.core import Array
from corral.loads.rehearsal import world as worlds
from corral.loads.rehearsal.summary import Summary, Units
from corral.trainers.report import svg as pen
from corral.trainers.report.plots import COLORS, data, frame, legend_entry, line

__all__ = ["drawn", "hours_chart", "kinds_of", "waits_chart"]

HOURS = 24
RAREST = 1e-4
"""Smallest share of requests in the chart of the distribution."""
POINTS = 200
DECADES = 3


def drawn(summaries: Sequence[Summary], baseline: str) -> list[str]:
    """Return the policies in the charts, at most ``COLORS``: the first one, the plan of least
    cost, and the cheapest of the rest."""
    ordered = [summary.policy for summary in summaries]
    plans = [summary.policy for summary in summaries if summary.promise is not None]
    selected = list(dict.fromkeys([baseline, *plans[:1], *ordered]))[:COLORS]
    return [policy for policy in ordered if policy in selected]


def kinds_of(policies: Sequence[str]) -> dict[str, str]:
    """Return the color of the curve of each policy, as a class of page.css."""
    return {policy: f"c{number % COLORS}" for number, policy in enumerate(policies)}


def hours_chart(
    title: str,
    values: Mapping[str, Sequence[float | None]],
    *,
    kinds: Mapping[str, str],
    units: Units,
    below: str,
) -> str:
    """Return a chart with one line for each policy.

    Args:
        title: above the chart.
        values: 24 waits of each policy, in ``units.time``; None: no request.
        kinds: class of each line, see ``kinds_of``.
        units: of the waits.
        below: label of the axis of hours.
    """
    top = max((value for row in values.values() for value in row if value is not None), default=0.0)
    _, high, marks = pen.ticks(0.0, top or 1.0)
    x = (np.arange(HOURS) + 0.5) * 1000 / HOURS
    shapes = [_across(mark / high) for mark in marks]
    for policy, row in values.items():
        y = np.array([math.nan if value is None else 100 - 100 * value / high for value in row])
        shapes.append(_curve(policy, kinds[policy], x, y))
    chart = frame(
        shapes,
        width=1000,
        x=[(hour / HOURS, f"{hour}") for hour in range(0, HOURS + 1, 3)],
        y=[(mark / high, f"{mark:g}") for mark in marks],
        below=below,
        kind="learning",
        label=f"{title} by hour",
    )
    return _figure(f"{title}, {units.time}", chart, kinds, values)


def waits_chart(waits: Mapping[str, Array], kinds: Mapping[str, str], units: Units) -> str:
    """Return the share of requests that wait longer than x, both on log axes; "" without waits.

    ``waits`` has int64 [BINS] for each policy.
    """
    edges = worlds.FIRST_BIN * np.exp(np.arange(worlds.BINS) * worlds.RESOLUTION) * units.step
    curves: dict[str, Array] = {}
    longest = 0.0
    for policy, bins in waits.items():
        above = 1 - bins.cumsum() / max(1, int(bins.sum()))
        curves[policy] = above
        shown = np.flatnonzero(above >= RAREST)
        longest = max([longest, *edges[shown[-1:]]])
    if longest <= edges[0]:
        return ""
    high = math.log10(pen.round_up(longest))
    low = math.ceil(high) - DECADES
    marks = [low + decade for decade in range(math.floor(high - low) + 1)]
    levels = range(-round(math.log10(RAREST)) + 1)  # 100 %, 10 %, ...
    shapes = [_across(1 - k / (len(levels) - 1)) for k in levels]
    shapes += [_down((mark - low) / (high - low)) for mark in marks]
    deadline = (math.log10(units.deadline) - low) / (high - low) if units.deadline > 0 else -1.0
    if 0 < deadline < 1:
        shapes.append(f'<path class="level" d="M{1000 * deadline:.4g} 0V100"/>')
    grid = np.linspace(low, high, POINTS)
    places = np.searchsorted(edges, 10**grid)
    for policy, above in curves.items():
        share = above[np.minimum(places, len(above) - 1)]
        with np.errstate(divide="ignore"):
            depth = np.where(share >= RAREST, np.log10(share) / math.log10(RAREST), np.nan)
        x = (grid - low) / (high - low) * 1000
        shapes.append(_curve(policy, kinds[policy], x, 100 * depth))
    chart = frame(
        shapes,
        width=1000,
        x=[((mark - low) / (high - low), f"{10.0**mark:g}") for mark in marks],
        y=[(1 - k / (len(levels) - 1), f"{100 / 10**k:g} %") for k in levels],
        below=f"wait, {units.time}; dashed: deadline, {units.deadline:g} {units.time}",
        kind="learning",
        label="share of requests that wait longer than a time",
    )
    return _figure("share of requests that wait longer", chart, kinds, waits)


def _figure(
    title: str, chart: str, kinds: Mapping[str, str], policies: Mapping[str, object]
) -> str:
    entries = [legend_entry(policy, kinds[policy], data(policy=policy)) for policy in policies]
    return (
        f"<figure><figcaption>{html.escape(title)}</figcaption>{chart}"
        f"<ul class='legend'>{''.join(entries)}</ul></figure>\n"
    )


def _across(height: float) -> str:
    return f'<path class="mark" d="M0 {100 - 100 * height:.4g}H1000"/>'


def _down(place: float) -> str:
    return f'<path class="mark" d="M{1000 * place:.4g} 0V100"/>'


def _curve(policy: str, kind: str, x: Array, y: Array) -> str:
    """Return a line through the points, with gaps at NaN."""
    gaps = np.flatnonzero(~np.isfinite(y))
    pieces = [
        line(part_x, part_y)
        for part_x, part_y in zip(np.split(x, gaps), np.split(y, gaps), strict=True)
        for part_x, part_y in [_finite(part_x, part_y)]
        if len(part_x)
    ]
    return f'<path class="{kind}" d="{"".join(pieces)}"{data(policy=policy, name=policy)}/>'


def _finite(x: Array, y: Array) -> tuple[Array, Array]:
    kept = np.isfinite(y)
    return x[kept], y[kept]
