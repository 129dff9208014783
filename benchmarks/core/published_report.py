"""The table and the picture of the published comparison, from the runs in published.jsonl.

Intervals and interquartile means are those of ``corral compare``. A reading at equal CPU seconds is
made off the same runs: each seed's training return at the CPU time that the fastest needed for all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS
from published_games import GAMES

from corral.lab.axes import Axes, decades, picture, words
from corral.lab.comparing.statistics import bootstrap_band, bootstrap_interval, iqm
from corral.trainers.report import svg as pen

__all__ = ["report"]

DOCS = Path(__file__).parents[2] / "docs"
BEGIN, END = "<!-- table: made by benchmarks/core/published.py report -->", "<!-- end of table -->"
NAMES = {
    "mappo": "mappo",
    "ippo": "ippo",
    "sb3_ppo": "sb3_ppo",
    "mappo_like_sb3": "mappo, set like sb3_ppo",
    "cleanrl": "CleanRL-style loop",
    "benchmarl_mappo_alike": "BenchMARL MAPPO, set like mappo",
    "benchmarl_mappo": "BenchMARL MAPPO, its defaults",
    "benchmarl_qmix": "BenchMARL QMIX, its defaults",
    "rllib_ppo": "RLlib PPO (rllib_ppo)",
}
"""Algorithms in the order of the table."""
COLORS = dict(
    zip(
        NAMES,
        (
            *(pen.BLUE, pen.SKY, pen.GREEN, "#a6761d", pen.ORANGE, pen.PURPLE, pen.RED),
            *("#9467bd", "#888888"),
        ),
        strict=True,
    )
)
JUDGED, STEPS, CPU, HEIGHT = 222, 480, 726, 170
"""Where the columns of the picture begin, and how high a row is."""
GRID = 40

Runs = list[dict[str, Any]]


def by_cell(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Runs]:
    """Return the runs of each game and algorithm, by seed."""
    found: dict[tuple[str, str], Runs] = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        found.setdefault((row["game"], row["algorithm"]), []).append(dict(row))
    return found


def figure(values: Iterable[float], digits: int = 2) -> str:
    """Return the interquartile mean with its interval, in words."""
    scores = list(values)
    if not scores:
        return ""
    low, high = bootstrap_interval(scores)
    interval = "" if low is None else f" ({low:.{digits}f} to {high:.{digits}f})"
    return f"{iqm(scores):.{digits}f}{interval}"


def at_cpu(run: Mapping[str, Any], seconds: float, share: int) -> float | None:
    """Return the training return when ``seconds`` of CPU were spent; None: no episode had ended."""
    passed = [point for point in run["curve"] if point[1] <= seconds]
    return passed[-1][3] / share if passed else None


def fastest(cells: Mapping[tuple[str, str], Runs], game: str) -> float:
    """Return the least median of CPU seconds that an algorithm needed for all its env steps."""
    return min(
        float(np.median([run["cpu_s"] for run in runs]))
        for (name, algorithm), runs in cells.items()
        if name == game and algorithm in NAMES
    )


def table(cells: Mapping[tuple[str, str], Runs]) -> list[str]:
    """Return the one table, as Markdown."""
    lines = [
        "| game, and the unit of judging | who | seeds | greedy, judged: IQM (95 % interval) "
        "| CPU s, median | training return at the end | at equal CPU s |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for name, game in GAMES.items():
        if not any((name, algorithm) in cells for algorithm in NAMES):
            continue
        budget = fastest(cells, name)
        title = f"**{game.title}**: {game.unit}"
        for algorithm, who in NAMES.items():
            runs = cells.get((name, algorithm), [])
            if not runs:
                continue
            equal = [at_cpu(run, budget, game.share) for run in runs]
            told = [value for value in equal if value is not None]
            row = [
                title,
                who,
                str(len(runs)),
                figure(run["judged"]["value"] for run in runs),
                f"{np.median([run['cpu_s'] for run in runs]):.0f}",
                figure(run["curve"][-1][3] / game.share for run in runs if run["curve"]),
                f"{figure(told) or 'no episode yet'}, at {budget:.0f} s",
            ]
            lines.append("| " + " | ".join(row) + " |")
            title = ""
        for label, judged in references(cells, name).items():
            lines.append(f"| | *{label}* | | {judged:.2f} | | | |")
    return lines


def references(cells: Mapping[tuple[str, str], Runs], name: str) -> dict[str, float]:
    """Return random play and the best reference of a game, as far as they have been played."""
    runs = cells.get((name, "references"), [])
    judged = runs[0]["judged"] if runs else {}
    wanted = {GAMES[name].best: GAMES[name].best, "random": "random play"}
    return {says: judged[label]["value"] for label, says in wanted.items() if label in judged}


def passed_heuristic(cells: Mapping[tuple[str, str], Runs]) -> list[str]:
    """Return after how many env steps training of arena_v0 with "visited" passed nearest/chase."""
    level = references(cells, "arena_visited").get("nearest/chase")
    if level is None:
        return []
    lines = []
    for run in cells.get(("arena_visited", "mappo"), []):
        steps = next((p[0] for p in run["curve"] if p[3] >= level), None)
        when = "not passed" if steps is None else f"passed by {steps:,} env steps"
        last = run["curve"][-1]
        lines.append(
            f'arena_v0, observation="visited", mappo, seed {run["seed"]}: nearest/chase '
            f"({level:.1f}) {when}; at {last[0]:,} env steps {last[3]:.1f} in training, "
            f"{run['judged']['value']:.1f} greedy ({run['cpu_s']:.0f} CPU s)."
        )
    return lines


def about(cells: Mapping[tuple[str, str], Runs]) -> list[str]:
    """Return versions and machine of the rows, each that occurs."""
    found: dict[str, set[str]] = {}
    for runs in cells.values():
        for run in runs:
            for key, value in run["about"].items():
                found.setdefault(key, set()).add(str(value))
    return [", ".join(f"{key} {' / '.join(sorted(values))}" for key, values in found.items())]


# --- The picture ---------------------------------------------------------------------------------


def curves(runs: Runs, axis: int, grid: np.ndarray[Any, Any], share: int) -> np.ndarray[Any, Any]:
    """Return training returns [G, seeds] over a grid of env steps (0) or CPU seconds (1)."""
    columns = []
    for run in runs:
        points = np.array(run["curve"])
        values = np.interp(grid, points[:, axis], points[:, 3] / share)
        outside = (grid < points[0, axis]) | (grid > points[-1, axis] * 1.001)
        columns.append(np.where(outside, np.nan, values))
    return np.stack(columns, axis=1)


def draw(cells: Mapping[tuple[str, str], Runs], path: Path) -> None:
    """Draw a row for each game: judged results, curves by env steps, curves by CPU seconds."""
    title = "The published comparison"
    parts = [
        words(16, 26, title, size=15, weight=600),
        words(JUDGED, 50, "judged"),
        words(STEPS, 50, "return in training, by env steps"),
        words(CPU, 50, "the same by CPU seconds"),
    ]
    top = 80.0
    for name, game in GAMES.items():
        here = {each: cells.get((name, each), []) for each in NAMES}
        drawn = {each: [r for r in runs if r["curve"]] for each, runs in here.items()}
        drawn = {each: runs for each, runs in drawn.items() if runs}
        if not drawn:
            continue
        better = "less" if game.lower_is_better else "more"
        parts.append(words(16, top, game.title, size=13, weight=600))
        after = 32 + 1.25 * pen.LETTER * len(game.title)
        parts.append(words(after, top, f"{game.unit}; {better} is better", size=11, soft=True))
        parts += _judged(drawn, references(cells, name), top + 14)
        for left, axis in ((STEPS, 0), (CPU, 1)):
            parts += _curves(drawn, axis, game.share, left, top + 14)
        top += HEIGHT + 66
    path.write_text(picture(top - 16, parts, title))


def _judged(drawn: Mapping[str, Runs], known: Mapping[str, float], top: float) -> list[str]:
    """Draw every run, the interquartile mean and its interval, a line for each algorithm."""
    judged = {name: [run["judged"]["value"] for run in runs] for name, runs in drawn.items()}
    level = list(known.items())[:1]  # random play is far off
    every = [*(value for values in judged.values() for value in values), *(v for _, v in level)]
    low, high, marks = pen.ticks(min(every), max(every))
    axes = Axes(JUDGED, top, 196, HEIGHT, (low, high), (len(drawn) - 0.4, -1.2))
    axes.columns([marks[0], marks[-1]], 10, lines=True)
    for said, value in level:
        at = float(axes.across(value))
        axes.parts.append(pen.line(at, axes.top + 12, at, axes.bottom, pen.GRAY, 1, "2 3"))
        anchor = "start" if at < axes.left + axes.width / 2 else "end"
        axes.parts.append(words(at, axes.top + 8, said, size=10, anchor=anchor, soft=True))
    for row, (name, values) in enumerate(judged.items()):
        color, up = COLORS[name], float(axes.up(row))
        low_, high_ = bootstrap_interval(values)
        axes.parts.append(
            words(JUDGED - 12, up + 4, NAMES[name], color=color, anchor="end", size=11)
        )
        if low_ is not None:
            axes.curve([low_, high_], [row, row], color, 5, 0.4)
        axes.dots(values, row, color, 2, 0.6)
        axes.dots([iqm(values)], row, color, 4)
    return axes.parts


def _curves(drawn: Mapping[str, Runs], axis: int, share: int, left: float, top: float) -> list[str]:
    """Draw the interquartile mean of the training return, with its interval."""
    found = {}
    for name, runs in drawn.items():
        ends = [(run["curve"][0][axis], run["curve"][-1][axis]) for run in runs]
        low, high = max(max(e[0] for e in ends), 1e-2), min(e[1] for e in ends)
        if high > low:
            grid = np.geomspace(low, high, GRID) if axis else np.linspace(low, high, GRID)
            found[name] = grid, curves(runs, axis, grid, share)
    values = np.concatenate([iqm(each) for _, each in found.values()])
    low, high, marks = pen.ticks(float(np.nanmin(values)), float(np.nanmax(values)))
    first, last = (f([f(grid) for grid, _ in found.values()]) for f in (np.min, np.max))
    across = (float(first), float(last)) if axis else (0.0, float(last))
    axes = Axes(left, top, 180, HEIGHT, across, (low, high), log=bool(axis))
    axes.rows(marks, 10)
    by_steps = [mark for mark in pen.ticks(0.0, across[1])[2] if mark <= 1.05 * across[1]]
    axes.columns(decades(*across) if axis else by_steps[::2], 10)
    for name, (grid, each) in found.items():
        if len(drawn[name]) > 1:
            band = bootstrap_band(each, resamples=1000)
            axes.band(grid, *(np.clip(edge, low, high) for edge in band), COLORS[name], 0.15)
        axes.curve(grid, iqm(each), COLORS[name], 1.5)
    return axes.parts


def report(rows: Runs, missing: list[tuple[str, str, int]]) -> None:
    """Write results/published.md, docs/published.svg and the table of docs/published.md."""
    cells = by_cell(rows)
    lines = table(cells)
    notes = passed_heuristic(cells)
    if missing:
        notes.append(f"{len(missing)} runs of the plan are not played yet.")
    seeds = "A cell without an interval has one seed; with fewer than five an interval says little."
    page = ["# The published comparison", "", *lines, "", *(f"{n}  " for n in notes), seeds, ""]
    (RESULTS / "published.md").write_text("\n".join([*page, *about(cells), ""]))
    draw(cells, DOCS / "published.svg")
    docs = DOCS / "published.md"
    if docs.exists():
        head, _, rest = docs.read_text().partition(BEGIN)
        tail = rest.partition(END)[2]
        middle = "\n".join(["", "", *lines, "", *(f"{n}  " for n in notes), ""])
        docs.write_text(f"{head}{BEGIN}{middle}{END}{tail}")
    print("\n".join(page))
