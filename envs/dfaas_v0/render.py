"""Pictures of a step of dfaas_v0: nodes, their load, the flows between them, and lost requests.

Every node has two bars of the same scale. The upper bar is the arrived load, with lost requests in
red. The lower bar is the capacity, filled with the served requests: first the node's own, then
those of other nodes. Arrows are forwarded requests that another node served. Up to 12 nodes form a
ring. More nodes form a grid without arrows, with smaller and smaller cards, down to one heat-map
field per node.

Percentages refer to all requests of the step: served, lost and waiting.
"""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from corral.envs.render.boards import BLUE, CARD, FAINT, INK, LINE, ORANGE, PAPER, RED, scaled
from corral.envs.render.canvas import (
    Box,
    Canvas,
    bend,
    center,
    label_box,
    mix,
    path,
    percent,
    ring,
    sentence,
    short_count,
    step_text,
)
from corral.envs.render.columns import columns_of, cut, padded

__all__ = ["Frame", "ansi", "draw"]

RING = 12  # largest number of nodes that are drawn with arrows
COLUMNS = 80  # of the text picture
LABEL, BAR = 24, 18  # most columns of a name; least columns of a bar, unless numbers are huge
LABELS = 36  # number of arrows with a label, the largest flows; other arrows are pale
DIGITS = 4  # most digits of a number on a card or arrow; larger numbers look like 12.3k
FLOWS = 5  # number of flows per node in the text picture of more than RING nodes

OWN, OTHERS, LOST, WAITING = BLUE, "#009e73", RED, ORANGE
LOAD, FREE = "#8b95a1", "#e9edf1"
CARD_SIZE = (190.0, 112.0)  # at scale 1


@dataclass(frozen=True)
class Frame:
    """One step of one environment copy, in plain numbers. All tuples have one entry per node.

    At t = 0 arrivals are those of the first step, and all other counts are 0.
    """

    t: int
    max_cycles: int | None
    clock: str  # "" or for example "2026-01-05 08:35"
    names: tuple[str, ...]  # for example "node_0 lyon"; the first word is the short name
    arrivals: tuple[int, ...]
    capacity: tuple[int, ...]
    served_local: tuple[int, ...]
    served_remote: tuple[int, ...]
    forwarded: tuple[int, ...]
    lost: tuple[int, ...]
    waiting: tuple[int, ...]
    queue: int  # largest number of requests that can wait at a node
    flow: tuple[tuple[int, ...], ...] | None
    """flow[i][j]: requests of i that j served in this step. None: the rules did not record them."""
    load_scale: float
    capacity_scale: float

    @property
    def served(self) -> int:
        return sum(self.served_local) + sum(self.served_remote)

    @property
    def offered(self) -> int:
        """Number of requests in this step: served, lost or waiting."""
        return self.served + sum(self.lost) + sum(self.waiting)

    @property
    def free(self) -> tuple[int, ...]:
        parts = zip(self.capacity, self.served_local, self.served_remote, strict=True)
        return tuple(max(0, c - local - remote) for c, local, remote in parts)


def _tag(name: str) -> str:
    """Return the short name of a node: the first word of ``name``."""
    return (name.split() or ["?"])[0]


# --- Text ----------------------------------------------------------------------------------------


def ansi(frame: Frame) -> str:
    """Return the step as plain text of at most 80 columns."""
    step = f"{step_text(frame.t, frame.max_cycles)}   {frame.clock}".rstrip()
    table: dict[str, tuple[int, ...]] = {
        "arrived" if frame.t else "arriving": frame.arrivals,
        "own": frame.served_local,
        "others": frame.served_remote,
        "free": frame.free,
        "lost": frame.lost,
    }
    if frame.queue:
        table["waiting"] = frame.waiting
    rows = [[short_count(value, 7) for value in row] for row in zip(*table.values(), strict=True)]
    rows.append([short_count(sum(column), 7) for column in table.values()])
    sizes = [max(len(head), *(len(row[k]) for row in rows)) for k, head in enumerate(table.keys())]

    def numbers(cells: list[str]) -> str:
        return "".join(f" {cell:>{size}}" for cell, size in zip(cells, sizes, strict=True))

    most = max(14, min(LABEL, COLUMNS - 1 - BAR - len(numbers(rows[0]))))
    names = [cut(name, most) for name in frame.names]
    label = max(5, *map(columns_of, names))
    room = COLUMNS - label - 1 - len(numbers(rows[0]))
    lines = [step, " " * (label + 1 + room) + numbers(list(table.keys()))]
    for i, name in enumerate(names):
        lines.append(f"{padded(name, label)} {_text_bar(frame, i, room):<{room}}{numbers(rows[i])}")
        if flows := _text_flows(frame, i):
            start = " " * (label + 1)
            wrapped = textwrap.fill(
                flows,
                COLUMNS,
                initial_indent=start + "-> ",
                subsequent_indent=start + "   ",
                break_on_hyphens=False,
            )
            lines.append(wrapped.replace("\N{NO-BREAK SPACE}", " "))
    lines.append(f"{'total':<{label}} {'':<{room}}{numbers(rows[-1])}")
    lines.append("█ own served  ▒ served for others  · free capacity  × lost")
    if frame.t:
        summary = (
            f"served {percent(frame.served, frame.offered)}, "
            f"lost {percent(sum(frame.lost), frame.offered)}"
        )
        if frame.queue:
            summary += f", waiting {percent(sum(frame.waiting), frame.offered)}"
        lines.append(summary)
    else:
        lines.append("waiting for the first step")
    return "\n".join(lines)


def _text_bar(frame: Frame, i: int, room: int) -> str:
    scale = max(1.0, frame.load_scale + frame.capacity_scale)
    parts = (
        (frame.served_local[i], "█"),
        (frame.served_remote[i], "▒"),
        (frame.free[i], "·"),
        (frame.lost[i], "×"),
    )
    bar, total = "", 0
    for value, glyph in parts:
        total += value
        bar += glyph * (min(room, round(total / scale * room)) - len(bar))
    if frame.lost[i] and not bar.endswith("×"):  # a loss always shows
        bar = bar[: room - 1] + "×"
    return bar


def _text_flows(frame: Frame, i: int) -> str:
    if frame.flow is None:  # only the total is known
        return f"sent {short_count(frame.forwarded[i], 7)}" if frame.forwarded[i] else ""
    flows = sorted(((n, -j) for j, n in enumerate(frame.flow[i]) if n > 0 and j != i), reverse=True)
    shown = flows if len(frame.names) <= RING else flows[:FLOWS]
    parts = [
        f"{cut(_tag(frame.names[-j]), 14)} {short_count(n, 7)}".replace(" ", "\N{NO-BREAK SPACE}")
        for n, j in shown
    ]
    if len(shown) < len(flows):
        rest = sum(n for n, _ in flows[len(shown) :])
        parts.append(f"{len(flows) - len(shown)} more {short_count(rest, 7)}")
    refused = frame.forwarded[i] - sum(n for n, _ in flows)
    if refused > 0:
        parts.append(f"no room for {short_count(refused, 7)}")
    return ", ".join(parts)


# --- Picture -------------------------------------------------------------------------------------


def draw(frame: Frame, *, width: int = 960, height: int = 640) -> npt.NDArray[np.uint8]:
    """Return the step as a picture, uint8 [height, width, 3].

    The same frame gives the same bytes. Raises MissingExtraError without Pillow (extra
    ``[render]``).
    """
    canvas, k = scaled(width, height)
    _header(canvas, frame, k)
    _legend(canvas, frame, k)
    area = (16 * k, 88 * k, width - 16 * k, height - 50 * k)
    if len(frame.names) <= RING:
        _ring(canvas, frame, area, k)
    else:
        _grid(canvas, frame, area, k)
    return canvas.pixels()


def _header(canvas: Canvas, frame: Frame, k: float) -> None:
    margin, right, y = 24 * k, canvas.width - 24 * k, 34 * k
    step = sentence(step_text(frame.t, frame.max_cycles))
    used = canvas.text((margin, y), step, 24 * k, fill=INK, bold=True)
    arrived = short_count(sum(frame.arrivals))
    texts = [(f"{arrived} {'arrived' if frame.t else 'arriving'}", INK)]
    parts: list[tuple[int, str]] = []
    if frame.t:
        served, lost, waiting = frame.served, sum(frame.lost), sum(frame.waiting)
        texts.append((f"{percent(served, frame.offered)} served", OWN))
        if frame.queue:
            color = mix(WAITING, INK, 0.4) if waiting else FAINT
            texts.append((f"{percent(waiting, frame.offered)} waiting", color))
        texts.append((f"{percent(lost, frame.offered)} lost", LOST if lost else FAINT))
        parts = [
            (sum(frame.served_local), OWN),
            (sum(frame.served_remote), OTHERS),
            (waiting, WAITING),
            (lost, LOST),
        ]
    else:
        texts.insert(0, ("waiting for the first step", FAINT))
    x = right
    for text, color in reversed(texts):
        x -= canvas.text((x, y + 1 * k), text, 19 * k, fill=color, anchor="rm") + 24 * k
    start = margin + used + 18 * k  # the clock fills the room in between
    canvas.text((start, y + 2 * k), frame.clock, 17 * k, fill=FAINT, width=x - start)
    strip = (margin, 62 * k, right, 72 * k)
    canvas.box(strip, FREE, radius=2 * k)
    canvas.stack(strip, parts, float(max(1, sum(value for value, _ in parts))))


def _legend(canvas: Canvas, frame: Frame, k: float) -> None:
    entries = [
        (LOAD, "arrived" if frame.t else "arriving"),
        (OWN, "served own"),
        (OTHERS, "served for others"),
        (FREE, "free capacity"),
        (LOST, "lost"),
    ]
    if frame.queue:
        entries.insert(4, (WAITING, "waiting"))
    x, y, size = 24 * k, canvas.height - 24 * k, 13.5 * k
    for color, text in entries:
        swatch = (x, y - 6 * k, x + 18 * k, y + 6 * k)
        canvas.box(swatch, color, outline=LOAD if color == FREE else None, radius=2 * k)
        x += 24 * k + canvas.text((x + 24 * k, y), text, size, fill=INK) + 20 * k
    if frame.flow is not None and 1 < len(frame.names) <= RING:
        curve = bend((x, y), (x + 15 * k, y), (x + 30 * k, y))
        canvas.arrow(curve, 3 * k, mix(OTHERS, PAPER, 0.25), head=11 * k)
        x += 36 * k
        x += canvas.text((x, y), "sent and served there", size, fill=INK) + 20 * k
    scale = f"full bar = {short_count(math.ceil(_scale(frame)))}"
    room = canvas.width - 24 * k - x
    if canvas.text_width(scale, size) <= room:
        canvas.text((canvas.width - 24 * k, y), scale, size, fill=FAINT, anchor="rm")


def _scale(frame: Frame) -> float:
    """Return the number of requests for a full bar: the same in every step."""
    return max(1.0, frame.load_scale, frame.capacity_scale)


def _bars(canvas: Canvas, frame: Frame, i: int, load: Box, capacity: Box, numbers: float) -> None:
    """Draw the two bars of node i, in boxes of full width."""
    scale = _scale(frame)
    lost = min(frame.lost[i], frame.arrivals[i])
    canvas.stack(load, [(frame.arrivals[i] - lost, LOAD), (lost, LOST)], scale)
    left, top, right, bottom = capacity
    end = left + (right - left) * min(1.0, frame.capacity[i] / scale)
    if numbers:
        canvas.box((left, top, right, bottom), PAPER)
    canvas.box((left, top, end, bottom), FREE)
    served = [(frame.served_local[i], OWN), (frame.served_remote[i], OTHERS)]
    canvas.stack(capacity, served, scale, numbers=numbers, digits=DIGITS)
    canvas.box((left, top, end, bottom), outline=LOAD)


def _card(canvas: Canvas, frame: Frame, i: int, box: Box, s: float, *, sent: bool) -> None:
    """Draw the full card of node i. ``sent``: show forwarded requests instead of used capacity."""
    left, top, right, _ = box
    lost = frame.lost[i]
    canvas.box(box, CARD, outline=LOST if lost else LINE, stroke=2.0 if lost else 1.0, radius=8 * s)
    x, end = left + 11 * s, right - 11 * s
    canvas.text((x, top + 17 * s), frame.names[i], 15.5 * s, fill=INK, bold=True, width=end - x)
    room, y = end - x, top + 39 * s
    if lost:
        text, size = canvas.fit(f"{short_count(lost, DIGITS)} lost", 14 * s, room * 0.5, bold=True)
        wide = canvas.text_width(text, size, bold=True) + 12 * s
        canvas.box((end - wide, y - 10 * s, end, y + 10 * s), LOST, radius=10 * s)
        canvas.text((end - wide / 2, y), text, size, fill=CARD, anchor="mm", bold=True)
        room -= wide + 5 * s
    text = f"{short_count(frame.arrivals[i], DIGITS)} {'arrived' if frame.t else 'arriving'}"
    canvas.text((x, y), text, 14 * s, fill=INK, width=room)
    load, capacity = (x, top + 54 * s, end, top + 62 * s), (x, top + 66 * s, end, top + 85 * s)
    _bars(canvas, frame, i, load, capacity, 13 * s)
    y, busy = top + 98 * s, frame.served_local[i] + frame.served_remote[i]
    text = f"{short_count(busy, DIGITS)} of {short_count(frame.capacity[i], DIGITS)}"
    if sent and frame.t:
        text = f"sent {short_count(frame.forwarded[i], DIGITS)}"
    room = end - x
    if frame.queue:
        wait = f"{short_count(frame.waiting[i], DIGITS)} waiting"
        color = mix(WAITING, INK, 0.4) if frame.waiting[i] else FAINT
        used = canvas.text((end, y), wait, 13 * s, fill=color, anchor="rm", width=room * 0.5)
        if frame.waiting[i]:
            used += 10 * s
            canvas.box((end - used, y - 3.5 * s, end - used + 7 * s, y + 3.5 * s), WAITING)
        room -= used + 5 * s
    if not (sent and frame.t) and not canvas.fit(f"{text} used", 13 * s, room)[0].endswith("…"):
        text += " used"
    canvas.text((x, y), text, 13 * s, fill=FAINT, width=room)


# --- Up to 12 nodes: a ring of cards, with arrows ------------------------------------------------


def _ring(canvas: Canvas, frame: Frame, area: Box, k: float) -> None:
    n = len(frame.names)
    s = k * {1: 2.0, 2: 1.5, 3: 1.3, 4: 1.2, 5: 1.15, 6: 1.05, 7: 1.0, 8: 0.95}.get(n, 0.79)
    boxes = ring(n, area, CARD_SIZE[0] * s, CARD_SIZE[1] * s)
    pairs = enumerate(frame.flow or ())
    flows = [(amount, i, j) for i, row in pairs for j, amount in enumerate(row) if i != j]
    flows = sorted((flow for flow in flows if flow[0] > 0), reverse=True)
    arrows = [(amount, path(boxes, i, j, area, gap=3 * k)) for amount, i, j in flows]
    for place, (amount, curve) in reversed([*enumerate(arrows)]):  # the largest on top
        thick = (1.5 + 13 * min(1.0, amount / max(1.0, frame.load_scale))) * k
        color = mix(OTHERS, PAPER, 0.2 if place < LABELS else 0.65)
        canvas.arrow(curve, thick, color, head=8 * k + 1.1 * thick, halo=PAPER)
    for i, box in enumerate(boxes):
        _card(canvas, frame, i, box, s, sent=frame.flow is None)
    curves, size = [curve for _, curve in arrows], 14 * k
    for place, (amount, curve) in enumerate(arrows[:LABELS]):
        text = short_count(amount, DIGITS)
        half = canvas.text_width(text, size, bold=True) / 2 + 5 * k
        other_curves = curves[:place] + curves[place + 1 :]
        spot = label_box(curve, half, 9 * k, taken=boxes, avoid=other_curves)
        if spot is not None:
            boxes.append(spot)
            canvas.box(spot, CARD, outline=OTHERS, radius=9 * k)
            ink = mix(OTHERS, INK, 0.5)
            canvas.text(center(spot), text, size, fill=ink, anchor="mm", bold=True)


# --- More nodes: a grid --------------------------------------------------------------------------


def _grid(canvas: Canvas, frame: Frame, area: Box, k: float) -> None:
    n = len(frame.names)
    left, top, right, bottom = area
    aspect = CARD_SIZE[0] / CARD_SIZE[1]

    def scale(columns: int) -> float:
        wide, high = (right - left) / columns, (bottom - top) / math.ceil(n / columns)
        return min(wide, high * aspect)

    columns = max(range(1, n + 1), key=scale)
    rows = math.ceil(n / columns)
    wide, high = (right - left) / columns, (bottom - top) / rows
    gap = min(8 * k, 0.06 * wide)
    s = min((wide - gap) / CARD_SIZE[0], (high - gap) / CARD_SIZE[1])
    for i in range(n):
        x, y = left + (i % columns) * wide, top + (i // columns) * high
        box = (x + gap / 2, y + gap / 2, x + wide - gap / 2, y + high - gap / 2)
        if s >= 0.6 * k:
            middle, half = (box[1] + box[3]) / 2, CARD_SIZE[1] * s / 2
            _card(canvas, frame, i, (box[0], middle - half, box[2], middle + half), s, sent=True)
        else:
            _field(canvas, frame, i, box)


def _field(canvas: Canvas, frame: Frame, i: int, box: Box) -> None:
    """Draw node i in a small field: number, bars, and a deeper red for a larger lost share."""
    left, top, right, bottom = box
    lost, high = frame.lost[i], bottom - top
    heat = min(1.0, lost / max(1, frame.arrivals[i]))
    ground = mix(CARD, LOST, 0.15 + 0.55 * heat) if lost else CARD
    canvas.box(box, ground, outline=LOST if lost else LINE)
    x, end = left + 3, right - 3
    size = min(0.34 * high, 13.0)
    if size >= 5:
        y = top + 0.24 * high
        label = _tag(frame.names[i]).removeprefix("node_")
        room = end - x
        if lost:
            text = short_count(lost, 3)
            room -= canvas.text((end, y), text, size, fill=INK, anchor="rm", bold=True) + 3
        canvas.text((x, y), label, size, fill=FAINT if not lost else INK, width=room)
    load = (x, top + 0.48 * high, end, top + 0.60 * high)
    _bars(canvas, frame, i, load, (x, top + 0.63 * high, end, bottom - 0.1 * high), 0.0)
