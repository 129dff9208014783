"""Which settings of a team that starts from a rule pay? One is changed at a time.

    OMP_NUM_THREADS=1 python benchmarks/loads/team_settings.py run --parallel 2
    python benchmarks/loads/team_settings.py report

Five loads are used to choose: four operators of operators_more.py (one hot server, correlated
bursts, weekdays, flash crowds), and the Twitter volumes. A task trains a team from the rule of the
load (``RULES``, fitted to the history with unknown arrivals) and plays 200 later days (10 of
Twitter). The table has the cost of the team's best checkpoint in validation, minus that of its
rule, in points (% of the arrivals). teams.py confirms the default on all loads.

A task is a line of results/team_settings.jsonl, and is not played again.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, append_row, kept_rows, machine
from parallel import play
from teams_loads import split_of

import corral
import corral.loads.from_rule.driver  # with torch, once for all processes
from corral.loads.from_rule.validation import History
from corral.loads.replay import replay
from corral.trainers.evaluation.intervals import difference_interval
from corral.trainers.evaluation.judge import players

FILE = RESULTS / "team_settings.jsonl"

RULES = {
    "21": "overflow/equal",
    "22": "backlog=0.68+margin=0.231/equal",
    "23": "capacity=1+margin=3.25/all-to-shortest",
    "26": "overflow/equal",
    "twitter": "backlog=0.74+margin=2.5/least",
}
"""Load -> the rule from which its teams start."""

BASE: dict[str, Any] = {
    "net_arch": (128, 128),
    "n_epochs": 12,
    "lookahead": 8,
    "reach": 2,
    "futures": "redrawn",
}
"""Settings that the variants change, with 80 updates. The preset has since taken recorded futures,
8 epochs and 64 updates."""
UPDATES = 80

VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    "third of the learning rate": {"rate": 1 / 3},
    "own reward": {"own_reward": True},
    "recorded futures": {"futures": "recorded"},
    "3 times the steps": {"times": 3},
    "offsets 3": {"env": {"offsets": 3}},
    "offsets 12": {"env": {"offsets": 12}},
    "separate networks": {"policies": "separate"},
    "1 count": {"env": {"last_counts": 1}},
    "8 counts": {"env": {"last_counts": 8}},
    "no daily mean": {"env": {"daily_mean": False}},
    "augmented days": {"env": {"augment": "shift=6,scale=0.1,noise=0.1,mix=0.5"}},
    "lookahead 4": {"lookahead": 4},
    "lookahead 16": {"lookahead": 16},
    "4 epochs": {"n_epochs": 4},
    "falling learning rate": {"linear": True},
}
"""Changes of the base; ``env``: arguments of dfaas_v0."""


class Task(NamedTuple):
    """One line of the results."""

    load: str
    variant: str
    seed: int

    def __str__(self) -> str:
        return f"{self.load}_{self.variant.replace(' ', '_')}_seed{self.seed}"


def played(task: Task, folder: Path) -> dict[str, Any]:
    """Train a team, and play the later days."""
    preset = corral.loads.from_rule.preset.FROM_RULE
    split, rule = split_of(task.load, 0, 200), RULES[task.load]
    nodes, settings = len(split.history.nodes), {**BASE, **VARIANTS[task.variant]}
    changes = settings.pop("env", {})
    rate = settings.pop("rate", 1) * preset.team_settings(nodes)["learning_rate"]
    linear = settings.pop("linear", False)
    settings["learning_rate"] = f"linear:{2 * rate}" if linear else rate
    rollout = 4 * preset.num_envs(nodes)
    steps = int(settings.pop("times", 1) * UPDATES * rollout)
    game = {**split.settings, "report_delay": max(1, split.settings.get("report_delay", 1))}
    kwargs = {"trace": split.history, "max_cycles": split.window, **game, **changes}
    training = dict(split.training)
    if not split.holds_out:
        kwargs["rows"] = training.pop("rows")
    began = time.process_time()
    with tempfile.TemporaryDirectory(dir=folder) as place:
        run = corral.from_rule(
            env_kwargs=kwargs,
            rule=rule,
            steps=steps,
            seed=task.seed,
            out=Path(place) / "run",
            progress=False,
            quiet=True,
            **training,
            **settings,
        )
        spent = time.process_time() - began
        best = corral.load_run(f"{run.folder}@best")
        result = replay(
            split.later,
            {"best": players(best)[0], "last": players(run)[0], rule: rule},
            window=split.window,
            arrivals="unknown",
            optimum_windows=0,
            **game,
        )
        history, choice = History.read(run.folder), run.recommendation
        costs = {name: result.sums[name].cost for name in ("best", "last")}
        return {
            **task._asdict(),
            "rule": rule,
            "steps": steps,
            "play": choice.play,
            "checkpoint": choice.checkpoint,
            "validation": choice.difference,
            "starts_as_rule": history.costs.get(0) == history.rule,
            "loads": result.sums[rule].arrivals.tolist(),
            "more": {
                name: np.round(cost - result.sums[rule].cost, 2).tolist()
                for name, cost in costs.items()
            },
            "cpu": round(spent, 1),
            "about": machine("torch"),
        }


def tasks(seeds: int) -> list[Task]:
    return [
        Task(load, variant, seed) for seed in range(seeds) for variant in VARIANTS for load in RULES
    ]


def report(rows: list[dict[str, Any]]) -> None:
    """Write a table: rows are variants, columns are loads; the mean over seeds."""
    by: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        by.setdefault((row["variant"], row["load"]), []).append(row)
    lines = ["# Settings of a team that starts from a rule", ""]
    lines += [
        "Cost of the best checkpoint minus that of its rule on later days, in points, with 95 %",
        "intervals over days (seed 0). In parentheses: the last checkpoint. Chosen: how often",
        "validation chose the team. CPU: seconds of training and validation.",
        "",
    ]
    lines += [f"| | {' | '.join(RULES)} | mean | chosen | CPU |", "|---|" + "--:|" * 8]
    for variant in VARIANTS:
        cells, values, chosen, cpu = [], [], 0, []
        for load in RULES:
            found = by.get((variant, load), [])
            if not found:
                cells.append("")
                continue
            best, last = (
                np.mean([100 * sum(row["more"][k]) / sum(row["loads"]) for row in found])
                for k in ("best", "last")
            )
            first = found[0]
            interval = difference_interval(
                np.array(first["more"]["best"]), np.array(first["loads"])
            )
            half = 50 * ((interval.high or 0.0) - (interval.low or 0.0))
            cells.append(f"{best:+.3f} ± {half:.3f} ({last:+.3f})")
            values.append(best)
            chosen += sum(row["play"] == "team" for row in found)
            cpu += [row["cpu"] for row in found]
        if values:
            mean = f"{np.mean(values):+.3f}"
            lines.append(
                f"| {variant} | {' | '.join(cells)} | {mean} | {chosen} of {len(cpu)} "
                f"| {np.median(cpu):.0f} |"
            )
    if rows:
        lines += ["", f"Machine: {json.dumps(rows[0]['about'])}"]
    text = "\n".join(lines) + "\n"
    (RESULTS / "team_settings.md").write_text(text)
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default="", help="variants, with commas")
    parser.add_argument("--parallel", type=int, default=1, metavar="PROCESSES")
    parser.add_argument("--minutes", type=float, help="tasks that run longer are dropped")
    parser.add_argument("--file", type=Path, default=FILE)
    args = parser.parse_args()
    rows = kept_rows(args.file)
    if args.what == "report":
        report(rows)
        return
    done = {(row["load"], row["variant"], row["seed"]) for row in rows}
    only = [name for name in args.only.split(",") if name]
    waiting = [
        task
        for task in tasks(args.seeds)
        if tuple(task) not in done and (not only or task.variant in only)
    ]
    with tempfile.TemporaryDirectory() as folder:
        row_of = functools.partial(played, folder=Path(folder))
        keep = functools.partial(append_row, args.file)
        limits = {"parallel": args.parallel, "minutes": args.minutes}
        failed = play(waiting, row_of, keep, **limits)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
