"""The charts of a replay: nodes over time, and the learned policies."""

from __future__ import annotations

import datetime
import html
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from corral.data import Trace
from corral.envs.core import Array
from corral.loads.policy_picture import Picture
from corral.trainers.report import svg as pen
from corral.trainers.report.plots import data, frame, line

__all__ = ["TimeAxis", "course_data", "node_chart", "policy_chart"]

DRAWN = 400
"""A chart draws at most this many points, means of several steps; the page's script has all."""

DAY = 86_400
SPANS = (300, 900, 1800, 3600, 7200, 10800, 21600, 43200, DAY)
"""Seconds between two labels of an axis that covers at most three days."""

EPOCH = datetime.datetime(1970, 1, 1)


@dataclass(frozen=True)
class TimeAxis:
    """An axis over P points of ``width`` steps each."""

    points: int
    width: int  # steps
    start: int  # time of the first point, by the trace's clock
    step: int  # time from one point to the next, by that clock
    zone: str | None  # None: a clock of integers
    unit: str  # unit for zooming: "day" or "window"
    lines: list[float]  # midnights, in points
    marks: list[tuple[float, str]]  # labels, with their places in points
    parts: list[tuple[int, int, str]]  # first point, end, and label of each day or window

    @classmethod
    def of(cls, trace: Trace, rows: tuple[int, int], width: int, window: int) -> TimeAxis:
        """Return the axis of rows (low, high), in bins of ``width`` steps, with windows of
        ``window`` steps."""
        low, high = rows
        points, step = -(-(high - low) // width), trace.step * width
        start = int(trace.times[low])
        steps = (high - low) / width  # the last bin may be shorter
        end = start + steps * step
        if trace.clock == "integer":
            _, _, ticks = pen.ticks(start, end)
            marks = [((t - start) / step, f"{t:.12g}") for t in ticks if start <= t < end]
            return cls(
                *(points, width, start, step, None, "window", [], marks),
                _windows(points, (high - low, window), width),
            )
        midnights = list(range(-(-start // DAY) * DAY, math.ceil(end), DAY))
        edges = [start, *(t for t in midnights if t > start), end]
        parts = []
        for begin, after in itertools.pairwise(edges):
            first, last = (round((t - start) / step) for t in (begin, after))
            if last - first >= 2:
                parts.append((first, min(points, last), f"{_date(int(begin)):%a %Y-%m-%d}"))
        unit = "day" if len(parts) > 1 else "window"
        labelled = _labelled(start, end, midnights)
        lines = midnights if len(midnights) <= 45 else [t for t, _ in labelled]
        return cls(
            *(points, width, start, step, "UTC", unit),
            [(t - start) / step for t in lines],
            [((t - start) / step, words) for t, words in labelled],
            parts if unit == "day" else _windows(points, (high - low, window), width),
        )

    @property
    def joined(self) -> int:
        """Number of points that are drawn as one."""
        return -(-self.points // DRAWN)

    def html(self) -> str:
        """Return the axis with its labels, as HTML below the charts."""
        words = [
            f"<span{' class=minor' * (k % 2)} style='left:{100 * at / self.points:.2f}%'>"
            f"{html.escape(text)}</span>"
            for k, (at, text) in enumerate(self.marks)
            if at <= 0.92 * self.points  # a later label would leave the page
        ]
        zone = f"<span class='zone'>{self.zone or 'step'}</span>"
        return f"<div class='axis'>{zone}{''.join(words)}</div>"


def _windows(points: int, steps: tuple[int, int], width: int) -> list[tuple[int, int, str]]:
    """Return the windows of ``steps`` (all steps, steps of a window); empty for a single window."""
    length, window = steps
    edges = [round(first / width) for first in range(0, length, window)]
    if len(edges) < 2 or window < 2 * width:
        return []
    pairs = zip(edges, [*edges[1:], points], strict=True)
    return [(a, b, f"window {k + 1}") for k, (a, b) in enumerate(pairs)]


def _date(time: int) -> datetime.datetime:
    return EPOCH + datetime.timedelta(seconds=time)


def _labelled(start: int, end: float, midnights: Sequence[int]) -> list[tuple[int, str]]:
    """Return times with labels: every few midnights, or every few hours of a short range."""
    if end - start > 3 * DAY:
        size = next((n for n in (1, 2, 7, 14, 28, 91) if len(midnights) <= 8 * n), 182)
        size = max(size, -(-len(midnights) // 8))
        shown = midnights[::size]
        if end - start > 300 * DAY:
            return [(t, f"{_date(t):%Y-%m-%d}") for t in shown]
        return [(t, _day(t)) for t in shown]
    size = next((n for n in SPANS if (end - start) / n <= 8), DAY)
    times = range(-(-start // size) * size, math.ceil(end), size)
    words = [_day(t) if t % DAY == 0 else f"{_date(t):%H:%M}" for t in times]
    if words and not any(t % DAY == 0 for t in times):
        words[0] = f"{_day(times[0])} {words[0]}"
    return list(zip(times, words, strict=True))


def _day(time: int) -> str:
    date = _date(time)
    return f"{date:%a} {date.day} {date:%b}"


# --- A node over time ----------------------------------------------------------------------------


def course_data(axis: TimeAxis, nodes: Mapping[str, Sequence[Array]]) -> str:
    """Return the data for the page's script: for each node its arrivals, capacity, and the rows
    below them, [P] each."""
    values_of_nodes = [
        {"name": name, "values": [[_short(v) for v in values.tolist()] for values in series]}
        for name, series in nodes.items()
    ]
    content = {
        "start": axis.start,
        "step": axis.step,
        "zone": axis.zone,
        "unit": axis.unit,
        "days": axis.parts,
        "nodes": values_of_nodes,
    }
    text = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
    return f"<script type='application/json'>{text}</script>\n"


def _short(value: float) -> float:
    return int(value) if value == int(value) else float(f"{value:.4g}")


def node_chart(
    title: str,
    axis: TimeAxis,
    *,
    arrivals: Array,
    capacity: Array,
    losses: Mapping[str, Array],
    forwarded: Mapping[str, Array] | None = None,
) -> str:
    """Return a chart of one node over time: arrivals [P] against capacity [P].

    Rows for each of ``forwarded`` and ``losses``, [P] by policy, are below.
    """
    top = pen.round_up(float(max(arrivals.max(), capacity.max(), 1)))
    midnights = f'<path class="mark" d="{"".join(f"M{at:.6g} 0V100" for at in axis.lines)}"/>'
    shapes = [
        midnights,
        _shape("area", "fill-arrivals", "arrivals", arrivals, top, 0, axis),
        _shape("line", "line-capacity", "capacity", capacity, top, 1, axis),
    ]
    parts = [_strip_frame(shapes, axis, top, "tall", f"{title}: arrivals and capacity")]
    number = 2
    for what, curves in (("forwarded", forwarded or {}), ("lost", losses)):
        maximum = pen.round_up(float(max([curve.max() for curve in curves.values()] + [1])))
        for k, (policy, curve) in enumerate(curves.items()):
            kind = "forwarded" if what == "forwarded" else f"f{k % 4}"
            name = f"{what}, {policy}"
            shapes = [midnights, _shape("columns", kind, name, curve, maximum, number, axis)]
            strip = _strip_frame(shapes, axis, maximum, "", f"{title}: {name}")
            parts.append(
                f"<div{data(policy=policy)}><p class='strip'>{html.escape(name)}</p>{strip}</div>"
            )
            number += 1
    key = "<span class='key'><i class='arrivals'></i>arrivals, requests per step</span>"
    key += "<span class='key'><i class='capacity'></i>capacity</span>"
    return (
        f"<figure class='node'><figcaption><b>{html.escape(title)}</b> {key}</figcaption>"
        f"{''.join(parts)}{axis.html()}</figure>\n"
    )


def _strip_frame(shapes: Sequence[str], axis: TimeAxis, top: float, kind: str, label: str) -> str:
    ends = [(0.0, "0"), (1.0, f"{top:,.10g}")]
    base = f'<path class="base" d="M0 100H{axis.points}"/>'
    return frame([*shapes, base], width=axis.points, y=ends, kind=kind, label=label)


def _shape(
    kind: str, css: str, name: str, values: Array, top: float, number: int, axis: TimeAxis
) -> str:
    """Return a curve [P] as an area, a line, or columns; ``top`` is at height 100."""
    starts = np.arange(0, len(values), axis.joined)
    sizes = np.diff(starts, append=len(values))
    heights = np.add.reduceat(values.astype(np.float64), starts) / sizes / top * 100
    if kind == "columns":
        columns = zip(starts.tolist(), sizes.tolist(), heights.tolist(), strict=True)
        shape = "".join(
            f"M{x} 100v{-high:.4g}h{wide}V100z" for x, wide, high in columns if high > 0
        )
    else:
        x = starts + sizes / 2
        shape = line(x, 100 - heights)
        if kind == "area":
            shape = f"M{x[0]:.6g} 100L{shape[1:]}L{x[-1]:.6g} 100z"
    attributes = data(series=number, kind=kind, top=f"{top:g}", name=name)
    return f'<path class="{css}" d="{shape}"{attributes}/>'


# --- Learned policies ----------------------------------------------------------------------------

LEVELS = 24
"""Number of shades between nothing and the maximum."""

FAINTEST = 0.1
"""Opacity of zero forwarded requests: cells without data stay blank."""


def policy_chart(pictures: Sequence[Picture], title: str) -> str:
    """Return heat maps of forwarded requests, arrivals by capacity, with the reference.

    All have one scale. Cells stay blank if the rows have no such load and capacity.
    """
    maximum = max(
        [int(picture.forwarded[_seen(picture)].max(initial=0)) for picture in pictures] + [1]
    )
    maps = "".join(_map(picture, maximum) for picture in pictures)
    blocks = "".join(
        f'<path d="M{value} 0h1v1h-1z" fill-opacity="{_opacity(value)}"/>'
        for value in range(LEVELS + 1)
    )
    scale = (
        "<p class='scale'>forwarded, one scale for these maps: 0 <svg class='shades' "
        f"viewBox='0 0 {LEVELS + 1} 1' preserveAspectRatio='none' aria-hidden='true'>{blocks}"
        f"</svg> {maximum:,} requests per step; blank: no such load in these rows; dashed: "
        "arrivals = "
        "capacity</p>"
    )
    name = html.escape(title)
    return f"<div{data(run=title)}><h3>{name}</h3>{scale}<div class='maps'>{maps}</div></div>\n"


def _map(picture: Picture, maximum: int) -> str:
    load, room = picture.arrivals, picture.capacity
    height, width = picture.forwarded.shape
    x_step, y_step = (int(side[-1]) / max(1, len(side) - 1) or 1.0 for side in (load, room))
    seen = _seen(picture)
    shade = np.ceil(picture.forwarded / maximum * LEVELS).astype(np.int64)  # 0: nothing
    # The line arrivals = capacity: cells are centered on their numbers.
    end = min(load[-1] + x_step / 2, room[-1] + y_step / 2)
    equal = f"M.5 {height - 0.5:g}L{end / x_step + 0.5:.4g} {height - end / y_step - 0.5:.4g}"
    shapes = [_cells(np.where(seen, shade, -1))]
    shapes.append(f'<path class="empty" d="M0 0H{width}V{height}H0z"/>')
    shapes.append(f'<path class="equal" d="{equal}"/>')
    values = [
        ",".join(str(v) if is_seen else "" for v, is_seen in zip(row, seen_row, strict=True))
        for row, seen_row in zip(picture.forwarded.tolist(), seen.tolist(), strict=True)
    ]
    name = f"{picture.reference}, all nodes" if picture.reference else picture.node
    drawn = frame(
        shapes,
        width=width,
        height=height,
        x=_ticks(int(load[-1]), x_step, width),
        y=_ticks(int(room[-1]), y_step, height),
        below="arrivals, requests per step →",
        label=f"{name}: requests forwarded by arrivals and capacity",
        more=data(values=";".join(values), steps=f"{x_step:g} {y_step:g}"),
    )
    words = f"<b>{html.escape(name)}</b> <small>↑ capacity, requests per step</small>"
    return f"<figure><figcaption>{words}</figcaption>{drawn}</figure>"


def _seen(picture: Picture) -> Array:
    all_seen = np.ones(picture.forwarded.shape, dtype=bool)
    return all_seen if picture.seen is None else picture.seen


def _ticks(largest: int, step: float, cells: int) -> list[tuple[float, str]]:
    ticks = [tick for tick in pen.ticks(0.0, float(largest))[2] if tick <= largest]
    return [((tick / step + 0.5) / cells, f"{tick:g}") for tick in ticks]


def _cells(shade: Array) -> str:
    """Return the cells [Y, X] of a map, one unit each; equal neighbors in a row are joined."""
    shapes: dict[int, list[str]] = {}
    for row, shades in enumerate(shade.tolist()):
        y, x = len(shade) - 1 - row, 0
        for value, run in itertools.groupby(shades):
            length = len(list(run))
            shapes.setdefault(value, []).append(f"M{x} {y}h{length}v1h{-length}z")
            x += length
    return "".join(
        f'<path d="{"".join(shapes[value])}" fill-opacity="{_opacity(value)}"/>'
        for value in sorted(shapes)
        if value >= 0
    )


def _opacity(level: int) -> str:
    return f"{FAINTEST + (1 - FAINTEST) * level / LEVELS:.3g}"
