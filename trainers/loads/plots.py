"""The charts of a replay: a node over time, and what a team has learned."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from corral.envs.core import Array
from corral.trainers.loads.policy_picture import Picture
from corral.trainers.report import svg as pen

__all__ = ["node_chart", "policy_chart"]

LOSS_COLORS = (pen.RED, pen.ORANGE, pen.PURPLE)


def node_chart(
    title: str,
    labels: Sequence[str],
    *,
    arrivals: Array,
    capacity: Array,
    losses: Mapping[str, Array],
    forwarded: Mapping[str, Array] | None = None,
) -> str:
    """Return a chart of one node over time: arrivals [P] against capacity [P].

    Below, a strip for each of ``forwarded`` and ``losses``, [P] by policy.
    """
    points, top, plot, strip, caption = len(labels), 30, 120, 34, 17
    load_top = pen.round_up(float(max(arrivals.max(), capacity.max(), 1)))
    x = pen.LEFT + (np.arange(points) + 0.5) / points * (pen.WIDTH - pen.LEFT - pen.RIGHT)
    parts = [pen.text(pen.LEFT, 18, title, size=13, weight=600)]
    legend = (("arrivals, requests per step", pen.BLUE), ("capacity", pen.GRAY))
    spot = pen.WIDTH - pen.RIGHT - sum(len(name) * pen.LETTER + 32 for name, _ in legend)
    for name, color in legend:
        parts += [pen.box(spot, 10, 14, 8, color), pen.text(spot + 19, 18, name)]
        spot += len(name) * pen.LETTER + 32

    base = top + plot
    parts += pen.axis(top, base, load_top)
    y = base - arrivals / load_top * plot
    parts.append(pen.area(x, y, base, pen.BLUE))
    parts.append(pen.path(x, base - capacity / load_top * plot, pen.GRAY))
    bottom: float = base
    for what, curves, colors in (
        ("forwarded", forwarded or {}, (pen.SKY,)),
        ("lost", losses, LOSS_COLORS),
    ):
        strip_top = pen.round_up(float(max([curve.max() for curve in curves.values()] + [1])))
        for (name, curve), color in zip(curves.items(), colors, strict=False):
            parts.append(
                pen.text(pen.LEFT, bottom + caption - 4, f"{what}, {pen.cut(name, 60)}", size=11)
            )
            bottom += caption + strip
            parts += pen.axis(bottom - strip, bottom, strip_top)
            parts.append(pen.columns(x, curve / strip_top * strip, bottom, color))
    for at in np.linspace(0, points - 1, min(5, points)).round().astype(int).tolist():
        anchor = "start" if at == 0 else "end" if at == points - 1 else "middle"
        parts.append(pen.text(float(x[at]), bottom + 16, labels[at], anchor=anchor))
    return pen.svg(bottom + 26, parts, title)


# --- What was learned ----------------------------------------------------------------------------

ACROSS = 3
"""Nodes side by side; the reference stands in a column of its own."""

LEVELS = 24
"""So many steps from nothing to most can be distinguished."""

SHADES = ("#f1f5f9", "#9fcbe4", "#2f8fc6", "#005a91", "#00263d")
"""From nothing forwarded to most: light to dark in one hue, for every kind of eye."""


def policy_chart(pictures: Sequence[Picture], title: str) -> str:
    """Return heat maps of what nodes forward, arrivals by capacity, beside the reference."""
    nodes = [picture for picture in pictures if not picture.reference]
    others = [picture for picture in pictures if picture.reference]
    across = min(ACROSS, max(1, len(nodes)))
    rows = max(-(-len(nodes) // across), len(others), 1)
    most = max([int(picture.forwarded.max()) for picture in pictures] + [1])
    gap, top, scale_width = 22, 44, 78
    wide = pen.WIDTH - pen.LEFT - pen.RIGHT - scale_width
    side = min(250.0, wide / (across + bool(others)) - gap)
    down = side + 76  # from one row of maps to the next
    spots = [(k % across, k // across) for k in range(len(nodes))]
    spots += [(across, k) for k in range(len(others))]
    parts = [pen.text(pen.LEFT, 16, title, size=13, weight=600)]
    for picture, (column, row) in zip([*nodes, *others], spots, strict=True):
        left = pen.LEFT + column * (side + gap)
        parts += _map(picture, left, top + row * down, side, most, named=column == 0)
    right = pen.LEFT + (across + bool(others)) * (side + gap)
    parts += _scale(right + 2, top, side, most)
    return pen.svg(top + rows * down - 30, parts, title)


def _map(
    picture: Picture, left: float, top: float, side: float, most: int, *, named: bool
) -> list[str]:
    """Return one heat map of width and height ``side``; its capacity axis is ``named`` or bare."""
    load, room = int(picture.arrivals[-1]), int(picture.capacity[-1])
    height, width = picture.forwarded.shape
    shade = np.ceil(picture.forwarded / most * LEVELS).astype(np.int64)  # 0: nothing
    base = top + side
    name = picture.agent if picture.node == picture.agent else f"{picture.agent} {picture.node}"
    title = f"{picture.reference}, all nodes" if picture.reference else name
    parts = [pen.text(left, top - 7, pen.cut(title, int(side / pen.LETTER)))]
    parts.append(
        f'<g transform="translate({left:.1f} {base:.1f}) '
        f'scale({side / width:.4f} {-side / height:.4f})" shape-rendering="crispEdges">'
        f"{_cells(shade)}</g>"
    )
    # The line a = c: cells are centred on their numbers.
    step = (load / max(1, width - 1) or 1, room / max(1, height - 1) or 1)
    end = min(load + step[0] / 2, room + step[1] / 2)
    x = left + (np.array([0.0, end]) / step[0] + 0.5) / width * side
    y = base - (np.array([0.0, end]) / step[1] + 0.5) / height * side
    parts.append(pen.path(x, y, pen.ORANGE, 1.8, dash="5 3"))
    for tick in pen.ticks(0.0, float(load))[2][::2]:
        if tick <= load:
            at = left + (tick / step[0] + 0.5) / width * side
            parts.append(pen.text(at, base + 15, f"{tick:g}", anchor="middle", size=11))
    for tick in pen.ticks(0.0, float(room))[2]:
        if named and tick <= room:
            at = base - (tick / step[1] + 0.5) / height * side
            parts.append(pen.text(left - 6, at + 4, f"{tick:g}", anchor="end", size=11))
    if named:
        parts.append(pen.text(left, base + 33, "arrivals, requests per step →", size=11))
        parts.append(
            pen.text(left - 46, base, "capacity, requests per step →", size=11, turned=True)
        )
    return parts


def _cells(shade: Array) -> str:
    """Return the cells [Y, X] of a map, one unit each; neighbors of one shade are joined."""
    shapes: dict[int, list[str]] = {}
    for y, row in enumerate(shade.tolist()):
        x = 0
        for value, run in itertools.groupby(row):
            length = len(list(run))
            shapes.setdefault(value, []).append(f"M{x} {y}h{length}v1h{-length}z")
            x += length
    return "".join(
        f'<path d="{"".join(shapes[value])}" fill="{_shade(value / LEVELS)}"/>'
        for value in sorted(shapes)
    )


def _scale(left: float, top: float, side: float, most: int) -> list[str]:
    """Return the bar that says which shade is how many requests."""
    parts = [pen.text(left, top - 7, "forwarded", size=11)]
    height = side / (LEVELS + 1)
    for value in range(LEVELS + 1):
        y = top + side - (value + 1) * height
        parts.append(pen.box(left, y - 0.2, 14, height + 0.4, _shade(value / LEVELS)))
    for tick in pen.ticks(0.0, float(most))[2]:
        if tick <= most:
            y = top + side - (tick / most * LEVELS + 0.5) * height
            parts.append(pen.text(left + 20, y + 4, f"{tick:g}", size=11))
    base = top + side
    parts.append(pen.line(left, base + 29, left + 18, base + 29, pen.ORANGE, 1.8, dash="5 3"))
    parts.append(pen.text(left + 24, base + 33, "a = c", size=11))
    return parts


def _shade(share: float) -> str:
    """Return the color of ``share`` of the most that is forwarded, between two of ``SHADES``."""
    at = share * (len(SHADES) - 1)
    below = min(int(at), len(SHADES) - 2)
    low, high = (
        [int(color[k : k + 2], 16) for k in (1, 3, 5)] for color in SHADES[below : below + 2]
    )
    mixed = [round(a + (b - a) * (at - below)) for a, b in zip(low, high, strict=True)]
    return "#" + "".join(f"{part:02x}" for part in mixed)
