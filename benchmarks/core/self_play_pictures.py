"""The pictures of self_play.py: panels of curves, and matrices, for light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from corral.lab.axes import COLORS, Axes, picture, words
from corral.trainers.report import svg as pen

TOP, PLOT, LEFT, GAP, ROW = 76, 180, 46, 20, 19
Runs = Mapping[str, Mapping[str, Any]]
Curve = Sequence[tuple[float, float]]


def page(title: str, note: str, height: float, parts: Sequence[str]) -> str:
    said = [words(16, 24, title, size=15, weight=600), words(16, 42, note, size=11, soft=True)]
    return picture(height, [*said, *parts], title)


def variants(runs: Runs) -> list[str]:
    """Return what was compared: the keys of runs without their seeds, in their order."""
    found = dict.fromkeys(key.rsplit(" ", 1)[0] for key, run in runs.items() if _is_curve(run))
    return list(found)


def _is_curve(run: Mapping[str, Any]) -> bool:
    return "curve" in run or "returns" in run


def seeds_of(runs: Runs, what: str) -> list[Mapping[str, Any]]:
    return [run for key, run in runs.items() if key.rsplit(" ", 1)[0] == what]


def legend(names: Sequence[str], y: float, x: float = 16) -> list[str]:
    parts = []
    for name, color in zip(names, COLORS, strict=False):
        parts += [pen.line(x, y - 4, x + 22, y - 4, color, 2.5), words(x + 28, y, name, size=11)]
        x += 60 + pen.LETTER * len(name)
    return parts


def panel(
    x: float,
    y: float,
    width: float,
    title: str,
    curves: Mapping[str, Sequence[Curve]],
    *,
    low: float | None = None,
    high: float | None = None,
) -> list[str]:
    """Return a panel: a color for each name, a line for each of its curves."""
    points = np.array([each for own in curves.values() for curve in own for each in curve])
    bottom = points[:, 1].min() if low is None else low
    least, largest, marks = pen.ticks(bottom, points[:, 1].max() if high is None else high)
    most = float(points[:, 0].max())
    place = (x + LEFT, y + 14, width - LEFT - 6, PLOT)
    axes = Axes(*place, (0.0, most), (least, largest))
    axes.rows(marks, 11)
    axes.columns([mark for mark in pen.ticks(0.0, most)[2] if mark <= most], 11)
    for own, color in zip(curves.values(), COLORS, strict=False):
        for curve in own:
            steps, values = np.array(curve, dtype=float).T
            axes.curve(steps, np.clip(values, least, largest), color, 1.8)
    return [words(x, y, title, size=13, weight=600), *axes.parts]


def _columns(number: int) -> list[tuple[float, float]]:
    """Return where each of so many panels begins, and how wide it is."""
    width = (pen.WIDTH - 32 - (number - 1) * GAP) / number
    return [(16 + i * (width + GAP), width) for i in range(number)]


def _picked(runs: Runs, column: int) -> dict[str, list[Curve]]:
    return {
        what: [[(row[0], row[column]) for row in run["curve"]] for run in seeds_of(runs, what)]
        for what in variants(runs)
    }


def tictactoe_picture(runs: Runs) -> str:
    parts = legend(variants(runs), 60)
    for (x, width), column, name in zip(_columns(2), (1, 2), ("greedy", "sampled"), strict=True):
        parts += panel(x, TOP + 12, width, name, _picked(runs, column), low=0, high=1)
    note = "what a best response wins of a game, exactly, mean of both seats; a line per seed"
    return page("tictactoe_v0: how beatable self-play is", note, TOP + PLOT + 60, parts)


def rps_picture(runs: Runs) -> str:
    parts = legend(variants(runs), 60)
    names = ("the policy as it is", "the mean of the checkpoints so far")
    for (x, width), column, name in zip(_columns(2), (1, 2), names, strict=True):
        parts += panel(x, TOP + 12, width, name, _picked(runs, column), low=0)
    note = "what a best response wins of 10 rounds, exactly, sampled play; a line per seed"
    return page("rps_v0: how beatable self-play is", note, TOP + PLOT + 60, parts)


def arena_picture(runs: Runs) -> str:
    names = variants(runs)
    parts = legend(names, 60)
    titles = ("explorer", "blocker")
    for (x, width), side, name in zip(_columns(2), (0, 1), titles, strict=True):
        curves = {
            what: [
                list(
                    zip(
                        run["times"],
                        np.array(run["returns"])[..., side].mean(axis=1 - side).tolist(),
                        strict=True,
                    )
                )
                for run in seeds_of(runs, what)
            ]
            for what in names
        }
        parts += panel(x, TOP + 12, width, f"rating of the {name}", curves)
    y = TOP + PLOT + 72
    for (x, width), what in zip(_columns(len(names)), names, strict=True):
        parts += matrix(x, y, width, what, seeds_of(runs, what))
    note = "a rating: mean return against the other side's checkpoints of the run; a line per seed"
    moments = max(len(run["times"]) for run in runs.values() if "times" in run)
    return page("arena_v0: who meets whom", note, y + 54 + ROW * moments, parts)


def matrix(x: float, y: float, width: float, what: str, runs: Sequence[Mapping[str, Any]]) -> Any:
    """Return the explorers' returns by the blockers that they met, mean over seeds."""
    values = np.mean([np.array(run["returns"])[..., 0] for run in runs], axis=0)  # [E, B]
    times = runs[0]["times"]
    parts = [
        words(x, y, f"{what}: return of the explorer", size=13, weight=600),
        words(x, y + 16, "rows: explorers at env steps; columns: blockers", size=11),
    ]
    cell, top = (width - LEFT) / len(times), y + 38
    low, high = values.min(), values.max()
    for j, at in enumerate(times):
        middle = x + LEFT + (j + 0.5) * cell
        parts.append(words(middle, top - 6, pen.thousands(round(at, -3)), anchor="middle", size=10))
    for i, at in enumerate(times):
        up = top + i * ROW
        parts.append(
            words(x + LEFT - 6, up + 13, pen.thousands(round(at, -3)), anchor="end", size=10)
        )
        for j, value in enumerate(values[i].tolist()):
            shade = 0.05 + 0.6 * (value - low) / max(1e-9, high - low)
            square = pen.box(x + LEFT + j * cell, up, cell - 1, ROW - 1, pen.BLUE)
            parts.append(square.replace("<rect ", f'<rect fill-opacity="{shade:.2f}" '))
            middle = x + LEFT + (j + 0.5) * cell
            parts.append(words(middle, up + 13, f"{value:.0f}", anchor="middle", size=10))
    return parts
