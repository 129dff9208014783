"""The ladder of many loads: which step of knowledge saves the most, and what can learning bring?

    OMP_NUM_THREADS=1 python benchmarks/loads/ladders.py run
    OMP_NUM_THREADS=1 python benchmarks/loads/ladders.py run --only "demo; base"
    OMP_NUM_THREADS=1 python benchmarks/loads/ladders.py schedule
    OMP_NUM_THREADS=1 python benchmarks/loads/ladders.py train --only predictable --seeds 0,1,2
    python benchmarks/loads/ladders.py report

Loads are those of ladders_loads.py: the demo, NASA's hard days, twelve operators, and a grid of
made loads. ``run`` climbs their ladders without a team, with unknown arrivals. A load of the grid
has 21 days to fit on, and 21 later days that judge. The other loads are divided as ``corral
advise`` divides them; NASA's draws as teams.py divides them.

``schedule`` plays a schedule on the same days: a rule with a table of each neighbor's usual spare
at this time of day (ladders_schedule.py). It is compared with rung 1.

``train`` trains teams on loads of the grid, from the rule of rung 1, on the days of the fit. The
days that judge the ladder also judge the team, paired by day. ``report`` quotes the teams of
operators and NASA's days from results/teams.jsonl, without the lines of restricted rules.

A task is a line of results/ladders.jsonl, and is not played again. CORRAL_TRACES names the folder
of NASA's days.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, append_row, kept_rows, machine
from ladders_loads import GRID, REAL, Judged, grid_load, judged_load
from ladders_report import SCHEDULE, report
from ladders_schedule import best_schedule
from parallel import cpu_seconds, play
from teams_loads import Split
from teams_report import jackknife

from corral.loads.advise.chosen import familiar, read_textbook
from corral.loads.advise.question import Question
from corral.loads.advise.verdict import LOCAL
from corral.loads.ladder import Ladder
from corral.loads.ladder.climb import ladder_of
from corral.loads.textbook import play_rules

FILE = RESULTS / "ladders.jsonl"
TEAMS = RESULTS / "teams.jsonl"
WITHOUT_SCHEDULE = ("nasa",)
"""Loads without a time of day."""


class Task(NamedTuple):
    """One line of the results."""

    load: str  # a name in REAL or GRID
    seed: int | str | None = None  # of a training; SCHEDULE; None: a ladder without a team

    def __str__(self) -> str:
        return self.load if self.seed is None else f"{self.load}, {self.seed}"


# --- Ladders -------------------------------------------------------------------------------------


def load_of(name: str) -> Judged:
    return grid_load(GRID[name]) if name in GRID else judged_load(name)


def climbed(name: str) -> dict[str, Any]:
    """Climb the ladder of a load, and return its line."""
    judged = load_of(name)
    question = Question(
        judged.load, "unknown", LOCAL, judged.window, 0, None, False, judged.settings
    )
    book = read_textbook(
        judged.load,
        judged.cut,
        always=familiar(int(judged.settings.get("queue", 0)), None),
        route=None,
        show=lambda part, done, total: None,
        **question.plan(),
    )
    ladder = ladder_of(question, book, (judged.cut, len(judged.load)))
    held_out = judged.load.arrivals[judged.cut :]
    windows = len(held_out) / judged.window
    return {
        "load": name,
        "seed": None,
        "nodes": len(judged.load.nodes),
        "changes": GRID[name].changes() if name in GRID else "",
        "settings": {k: v for k, v in judged.settings.items() if k != "neighbours"},
        "shortened": judged.shortened,
        "arrivals": float(held_out.sum()) / windows,
        "ladder": ladder.to_json(),
        "by_days": None if judged.days is None else by_days(judged, question, ladder),
        "cpu": cpu_seconds(),
        "about": machine("scipy"),
    }


def by_days(judged: Judged, question: Question, ladder: Ladder) -> dict[str, list[float]]:
    """Return intervals of the savings of rules, in requests of a window, if windows share days.

    The interval of the ladder takes windows as independent.
    """
    assert judged.days is not None
    intervals, below = {}, None
    for rung in ladder.rungs:
        if rung.cost is None or rung.name == "future":
            continue
        known = rung.name in ("arrivals", "reports")
        changes = {"arrivals": "known"} if known else {}
        if rung.name == "reports":
            changes["report_delay"] = 0
        rows = (judged.cut, len(judged.load))
        plan = {**question.plan(), **changes}
        sums = play_rules(judged.load, [rung.policy], rows=rows, **plan)[rung.policy]
        if below is not None:
            intervals[rung.name] = savings_by_days(below - sums.cost, sums.arrivals, judged.days)
        below = sums.cost
    return intervals


def savings_by_days(
    less: np.ndarray[Any, Any], load: np.ndarray[Any, Any], days: np.ndarray[Any, Any]
) -> list[float]:
    """Return mean, low and high of ``less`` [W], in requests of a window; ``days`` [W, N]."""
    mean = float(load.mean())
    low, high = jackknife(less, load, days)
    return [float(less.mean()), low * mean, high * mean]


def scheduled(name: str, rule: str) -> dict[str, Any]:
    """Play a fitted schedule and the rule of rung 1 on the days that judge; return their line."""
    judged = load_of(name)
    schedule, sums = best_schedule(judged)
    plan = {"window": judged.window, "arrivals": "unknown", **judged.settings}
    rows = (judged.cut, len(judged.load))
    plain = play_rules(judged.load, [rule], rows=rows, **plan)[rule]
    return {
        "load": name,
        "seed": SCHEDULE,
        "backlog": schedule.backlog,
        "share": schedule.share,
        "plain": rule,
        "loads": sums.arrivals.tolist(),
        "daily": {"schedule": sums.cost.tolist(), "plain": plain.cost.tolist()},
        "days": None,
        "cpu": cpu_seconds(),
        "about": machine(),
    }


# --- Teams ---------------------------------------------------------------------------------------


def trained_team(task: Task, rule: str, folder: Path) -> dict[str, Any]:
    """Train a team on the days of the fit, from the rule of rung 1; return its line."""
    import teams  # imports torch

    judged = load_of(task.load)
    assert isinstance(task.seed, int)
    split = Split(
        judged.load.section(0, judged.cut),
        judged.load.section(judged.cut, len(judged.load)),
        judged.window,
        judged.settings,
        {"law": task.load},
        {"rows": (0, judged.cut)},
    )
    job = teams.Task(task.load, "unknown", task.seed, 0, None, 0)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        run = teams.trained(job, split, Path(place) / "run", rule, [])
        spent = cpu_seconds()
        return {
            "load": task.load,
            "seed": task.seed,
            "env_steps": int(run.progress["env_steps"].iloc[-1]),
            "plain": rule,
            **teams.stated(run, held_out=False),
            **teams.judged(run, rule, "unknown", split),
            "cpu": spent,
            "about": machine("torch"),
        }


def rule_of(rows: list[dict[str, Any]], load: str) -> str:
    """Return the rule of rung 1 of a load that has a ladder."""
    for row in rows:
        if row["load"] == load and row["seed"] is None:
            return str(next(r["policy"] for r in row["ladder"]["rungs"] if r["name"] == "rule"))
    raise SystemExit(f"{load} has no ladder: ladders.py run --only '{load}'")


# --- The queue -----------------------------------------------------------------------------------


def missing(
    rows: list[dict[str, Any]], only: list[str], seeds: Sequence[int | str | None]
) -> list[Task]:
    """Return the tasks that are not played yet."""
    names = (*REAL, *GRID)
    if unknown := [name for name in only if name not in names]:
        raise SystemExit(f"no load named {unknown[0]}; loads: {'; '.join(names)}")
    done = {(row["load"], row["seed"]) for row in rows}
    tasks = [Task(name, seed) for seed in seeds for name in names if not only or name in only]
    return [
        task
        for task in tasks
        if task not in done and not (task.seed == SCHEDULE and task.load in WITHOUT_SCHEDULE)
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("run", "schedule", "train", "report"))
    parser.add_argument("--only", default="", help="loads, with semicolons; default: all")
    parser.add_argument("--seeds", default="0,1,2", help="of trainings, with commas")
    parser.add_argument("--file", type=Path, default=FILE)
    parser.add_argument("--teams", type=Path, default=TEAMS)
    args = parser.parse_args()
    rows = kept_rows(args.file)
    if args.what == "report":
        report(rows, kept_rows(args.teams))
        return
    only = [name.strip() for name in args.only.split(";") if name.strip()]
    if args.what == "train" and not (only and set(only) <= set(GRID)):
        parser.error(f"train needs --only with loads of the grid: {'; '.join(GRID)}")
    seeds: Sequence[int | str | None] = [SCHEDULE if args.what == "schedule" else None]
    if args.what == "train":
        seeds = [int(seed) for seed in args.seeds.split(",")]
    with tempfile.TemporaryDirectory() as folder:

        def row_of(task: Task) -> dict[str, Any]:
            if task.seed is None:
                return climbed(task.load)
            rule = rule_of(rows, task.load)
            if task.seed == SCHEDULE:
                return scheduled(task.load, rule)
            return trained_team(task, rule, Path(folder))

        failed = play(missing(rows, only, seeds), row_of, lambda row: append_row(args.file, row))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; see above, and start it again for them")


if __name__ == "__main__":
    main()
