"""The table and the picture of the published comparison, from the runs in published.jsonl.

Intervals and interquartile means are those of ``corral compare``. A reading at equal CPU seconds is
made off the same runs: each seed's training return at the CPU time that the fastest needed for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS
from published_games import GAMES

from corral.lab.comparing.statistics import bootstrap_band, bootstrap_interval, iqm

__all__ = ["report"]

DOCS = Path(__file__).parents[1] / "docs"
BEGIN, END = "<!-- table: made by benchmarks/published.py report -->", "<!-- end of table -->"
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
COLORS = (
    "#0072B2",
    "#56B4E9",
    "#009E73",
    "#111111",
    "#E69F00",
    "#CC79A7",
    "#D55E00",
    "#7a4988",
    "#777777",
)
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
    """Draw judged results, curves by env steps and curves by CPU seconds of every game."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "published", "font.size": 8})
    names = [name for name in GAMES if any((name, algorithm) in cells for algorithm in NAMES)]
    figure_, axes = plt.subplots(3, len(names), figsize=(3.0 * len(names), 8), squeeze=False)
    for column, name in enumerate(names):
        game = GAMES[name]
        judged, by_steps, by_cpu = axes[:, column]
        for place, (algorithm, color) in enumerate(zip(NAMES, COLORS, strict=True)):
            runs = [run for run in cells.get((name, algorithm), []) if run["curve"]]
            if not runs:
                continue
            values = [run["judged"]["value"] for run in runs]
            low, high = bootstrap_interval(values)
            judged.plot(values, [-place] * len(values), "|", color=color, alpha=0.6)
            judged.plot([iqm(values)], [-place], "o", color=color, markersize=5)
            if low is not None:
                judged.plot([low, high], [-place, -place], color=color, linewidth=2)
            _curves(by_steps, runs, 0, game.share, color)
            _curves(by_cpu, runs, 1, game.share, color)
        for label, value in list(references(cells, name).items())[:1]:  # random play is far off
            judged.axvline(value, color="#333333", linewidth=0.8, linestyle=":")
            judged.text(value, 0.8, label, fontsize=6, ha="center")
        judged.set_yticks([-place for place in range(len(NAMES))])
        judged.set_yticklabels(NAMES.values() if column == 0 else [])
        judged.set_ylim(-len(NAMES) + 0.4, 1.6)
        judged.set_title(game.title, fontsize=9, pad=14)
        better = "less is better" if game.lower_is_better else "more is better"
        judged.set_xlabel(f"{game.unit}\n({better})", fontsize=7)
        by_steps.set_xlabel("env steps")
        by_cpu.set_xlabel("CPU seconds")
        by_cpu.set_xscale("log")
    axes[1, 0].set_ylabel("return in training")
    axes[2, 0].set_ylabel("return in training")
    figure_.tight_layout()
    figure_.savefig(path, metadata={"Date": None})
    plt.close(figure_)


def _curves(axes: Any, runs: Runs, axis: int, share: int, color: str) -> None:
    ends = [(run["curve"][0][axis], run["curve"][-1][axis]) for run in runs]
    low, high = max(max(e[0] for e in ends), 1e-2), min(e[1] for e in ends)
    if high <= low:
        return
    grid = np.geomspace(low, high, GRID) if axis else np.linspace(low, high, GRID)
    found = curves(runs, axis, grid, share)
    axes.plot(grid, iqm(found), color=color, linewidth=1.2)
    if len(runs) > 1:
        band = bootstrap_band(found, resamples=1000)
        axes.fill_between(grid, *band, color=color, alpha=0.15, linewidth=0)


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
