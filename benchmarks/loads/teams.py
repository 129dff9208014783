"""Teams that start from a rule: are they cheaper on days that come later?

    OMP_NUM_THREADS=1 python benchmarks/loads/teams.py run --parallel 16 --minutes 8.5
    OMP_NUM_THREADS=1 python benchmarks/loads/teams.py run --only 23,nasa --seeds 0 --steps 20000
    python benchmarks/loads/teams.py missing     # what is not played yet
    python benchmarks/loads/teams.py report      # the table

Loads are those of teams_loads.py: thirty operators, NASA's hard days, and Twitter volumes. A task
is a load, its division, arrivals known or unknown, and a seed:

    run = corral.from_rule(env_kwargs={"trace": history, "arrivals": ..., **settings}, seed=seed)

The team is trained as a user would train it. Its scales come from the history alone. Its own
validation chooses between the team and its rule (``run.recommendation``). For operators the days
that ``from_rule`` holds out give the answer of ``corral advise``, too: worth it or not. Then the
later days are played by the team's best checkpoint, by its rule, and by the best plain rule. This
rule is fitted to the whole history. Unknown arrivals have reports of at least one step ago.

Thirty operators are played with seed 0, six of them with five seeds, real loads with three. The six
(``SIX``) differ: the first is nearest to the mean of all. Each further one has the largest distance
to the nearest one before it. Distances are those of ten numbers (``settings_of``), each divided by
its standard deviation. ``six`` computes them.

A task is a line of results/teams.jsonl, and is not played again. A run that is stopped continues
with the missing tasks. Seed 0 comes first, unknown arrivals before known ones; then the other seeds
in the same way. Among these, real loads come first, then operators with the largest histories.
CORRAL_TRACES names the folder of real loads.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, append_row, kept_rows, machine
from operators_laws import FRESH_DAYS
from parallel import cpu_seconds, play
from teams_loads import (
    OPERATORS,
    REAL,
    SPLITS,
    Split,
    numbers_of_history,
    operator_split,
    split_of,
)
from teams_report import key_of, report, restricted

import corral
import corral.loads.from_rule.driver  # with torch, once for all processes
from corral.data import Trace
from corral.loads.advise.team import judge
from corral.loads.advise.verdict import LEAST_WORTH, decide
from corral.loads.from_rule.preset import FROM_RULE
from corral.loads.from_rule.validation import History
from corral.loads.replay import replay
from corral.loads.textbook import fit
from corral.trainers.evaluation.judge import players
from corral.trainers.runs.run import Run

FILE = RESULTS / "teams.jsonl"
KNOWLEDGE = ("unknown", "known")
SEEDS = (0, 1, 2, 3, 4)
REAL_SEEDS = 3
"""Seeds of real loads."""

SIX = ("18", "8", "16", "20", "27", "25")
"""Operators with all seeds."""

KEPT = ("load_scale", "capacity_scale", "residual", "offsets", "amount", "beyond")
"""Arguments of dfaas_v0 that ``from_rule`` sets."""


class Task(NamedTuple):
    """One line of the results."""

    load: str  # number of an operator, "nasa" or "twitter"
    arrivals: str  # "known" or "unknown"
    seed: int
    split: int
    steps: int | None  # env steps of a training; None: the default of ``from_rule``
    later: int  # days after the history of an operator

    def __str__(self) -> str:
        return f"{self.load}_{self.arrivals}_seed{self.seed}_split{self.split}"


# --- One task ------------------------------------------------------------------------------------


class Fitted(NamedTuple):
    """Rules that another seed was played with."""

    plain: str  # the best of the whole history
    start: str | None  # the team's rule; None: it is fitted again

    @classmethod
    def of(cls, row: dict[str, Any]) -> Fitted:
        """Return the rules of a line. A team does not start from a rule without a keep."""
        rule: str = row["rule"]
        return cls(row["plain"], rule if row["game"]["residual"] == rule else None)


def played(task: Task, folder: Path, fitted: Fitted | None = None) -> dict[str, Any]:
    """Train a team, judge it on later days, and return its line; without ``fitted`` rules are
    fitted here."""
    split = split_of(task.load, task.split, task.later)
    settings = split.settings
    if task.arrivals == "unknown":
        settings["report_delay"] = max(1, settings.get("report_delay", 1))
    fits: list[float] = []
    began = time.process_time()
    with tempfile.TemporaryDirectory(dir=folder) as own:
        start = None if fitted is None else fitted.start
        run = trained(task, split, Path(own) / "run", start, fits)
        spent = time.process_time() - began
        if fitted is not None:
            plain = fitted.plain
        elif not split.holds_out:
            plain = run.recommendation.rule  # fitted to the same days
        else:
            game = {"window": split.window, "arrivals": task.arrivals, **settings}
            plain = str(fit(split.history, **game).rule)
        return {
            "load": task.load,
            "arrivals": task.arrivals,
            "seed": task.seed,
            "split": task.split,
            "steps": task.steps,
            "later_days": task.later,
            "env_steps": int(run.progress["env_steps"].iloc[-1]),
            "plain": plain,
            **stated(run, split.holds_out),
            **judged(run, plain, task.arrivals, split),
            "cpu": {
                "fit": round(fits[-1] - began, 1) if fits else None,
                "from_rule": round(spent, 1),
                "all": cpu_seconds(),
            },
            "about": machine("torch"),
            "law": split.law,
        }


def trained(task: Task, split: Split, folder: Path, start: str | None, fits: list[float]) -> Run:
    """Train a team from the rule ``start``, None: the best one. Append the CPU times at which rules
    were played to ``fits``."""
    training = dict(split.training)
    kwargs = {"trace": split.history, "arrivals": task.arrivals, "max_cycles": split.window}
    if not split.holds_out:
        kwargs["rows"] = training.pop("rows")
    return corral.from_rule(
        env_kwargs={**kwargs, **split.settings},
        # With steps no minutes end the training: figures do not depend on the machine's load.
        steps=task.steps or FROM_RULE.steps(len(split.history.nodes)),
        seed=task.seed,
        rule=start,
        out=folder,
        progress=False,
        quiet=True,
        show=lambda what, done, total: fits.append(time.process_time()),
        **training,
    )


def stated(run: Run, held_out: bool) -> dict[str, Any]:
    """Return what a run says of its team: its choice, and savings beside its rule, in points.

    ``held_out``: whether the run held out days; then also what ``corral advise`` says of them.
    """
    choice, history = run.recommendation, History.read(run.folder)
    saving = None
    if choice.difference is not None:
        saving = negated([choice.difference, choice.high, choice.low])
    line = {
        "play": choice.play,
        "rule": choice.rule,
        "why": choice.why,
        "checkpoint": choice.checkpoint,
        "compared": choice.compared,
        "windows": choice.windows,
        "validation_saves": saving,
        # Whether the team costs as much as its rule before the first update, in every window.
        "starts_as_rule": 0 in history.costs and history.costs[0] == history.rule,
        "held_out_saves": None,
        "answer": None,
    }
    if held_out:
        team = judge(run, [], choice.rule, lambda what, done, total: None)
        ends = (team.saving.share, team.saving.low, team.saving.high)
        line["held_out_saves"] = [None if end is None else round(100 * end, 4) for end in ends]
        line["answer"] = decide(team.saving, LEAST_WORTH / 100, team.training).answer
    return line


def negated(values: list[float | None]) -> list[float | None]:
    return [None if value is None else round(0.0 - value, 4) for value in values]


def judged(run: Run, plain: str, arrivals: str, split: Split) -> dict[str, Any]:
    """Play the later days; return costs in requests of each window."""
    best = corral.load_run(f"{run.folder}@best")
    rule = run.recommendation.rule
    result = replay(
        split.later,
        {"team": players(best)[0], rule: rule, plain: plain},
        window=split.window,
        arrivals=arrivals,
        optimum_windows=0,
        **split.settings,
    )
    daily = {
        what: np.round(result.sums[label].cost, 2).tolist()
        for what, label in (("team", "team"), ("rule", rule), ("plain", plain))
    }
    game = run.config.env_config.env_kwargs
    return {
        "later_steps": len(split.later),
        "beyond": beyond(split.later, game["load_scale"], game["capacity_scale"]),
        "game": {name: game.get(name) for name in KEPT},
        "history_largest": int(split.history.arrivals.max()),
        "loads": result.sums[rule].arrivals.tolist(),
        "daily": daily,
        "days": None if split.days is None else split.days.tolist(),
    }


def beyond(trace: Trace, load_scale: float, capacity_scale: float) -> int:
    """Return the number of steps in which a load or a capacity exceeds its scale."""
    assert trace.capacity is not None
    exceeds = (trace.arrivals > load_scale) | (trace.capacity > capacity_scale)
    return int(exceeds.any(axis=1).sum())


# --- Operators that differ -----------------------------------------------------------------------


def settings_of(split: Split) -> list[float]:
    """Return ten numbers that describe a load and its settings."""
    load, capacity, game = split.history.arrivals, split.history.capacity, split.settings
    assert capacity is not None
    mean = float(load.mean())
    steps = split.history.times
    limit = game["link_limit"]
    return [
        np.log(load.shape[1]),  # servers
        np.log(mean),
        np.log(float(steps[1] - steps[0])),
        float(load.sum() / capacity.sum()),
        float((load.std(axis=0) / load.mean(axis=0)).mean()),
        float(np.corrcoef(load.T)[np.triu_indices(load.shape[1], 1)].mean()),
        min(1.0, game["queue"] / mean),
        game["forward_cost"],
        1.0 if limit is None else min(1.0, limit / mean),
        game["report_delay"],
    ]


def differing(count: int) -> list[str]:
    """Return operators that differ: see the first lines of this file."""
    numbers = np.array([settings_of(operator_split(int(name), 1)) for name in OPERATORS])
    places = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
    chosen = [int(np.linalg.norm(places, axis=1).argmin())]
    while len(chosen) < count:
        distances = np.linalg.norm(places[:, None] - places[chosen], axis=2).min(axis=1)
        chosen.append(int(distances.argmax()))
    return [OPERATORS[k] for k in chosen]


# --- The queue -----------------------------------------------------------------------------------


def tasks(steps: int | None, later: int) -> Iterator[Task]:
    """Yield all tasks, the most important ones first."""
    costly = sorted(OPERATORS, key=numbers_of_history, reverse=True)
    for seeds, arrivals in itertools.product((SEEDS[:1], SEEDS[1:]), KNOWLEDGE):
        for seed in seeds:
            for split in range(SPLITS):
                for load in REAL if seed < REAL_SEEDS else ():
                    yield Task(load, arrivals, seed, split, steps, later)
            for load in costly:
                if seed == 0 or load in SIX:
                    yield Task(load, arrivals, seed, 0, steps, later)


def missing(args: argparse.Namespace) -> list[Task]:
    """Return what is requested and not played yet."""
    rows = kept_rows(args.file)
    plan = args.steps, args.later
    if other := [row for row in rows if (row["steps"], row["later_days"]) != plan]:
        row = other[0]
        sys.exit(
            f"{args.file} has lines of --steps {row['steps']} --later {row['later_days']}: "
            "continue with these, or move it away"
        )
    done = {key_of(row) for row in rows if not restricted(row)}
    only = [load for load in args.only.split(",") if load]
    seeds = [int(seed) for seed in args.seeds.split(",") if seed]
    return [
        task
        for task in tasks(args.steps, args.later)
        if task[:4] not in done
        and (not only or task.load in only)
        and (not seeds or task.seed in seeds)
        and args.arrivals in (None, task.arrivals)
    ]


def run_tasks(args: argparse.Namespace) -> None:
    """Play what is missing, and append each line when it is finished."""
    fitted: dict[tuple[Any, ...], Fitted] = {}

    def learn(row: dict[str, Any]) -> None:
        fitted[row["load"], row["arrivals"], row["split"]] = Fitted.of(row)

    def keep(row: dict[str, Any]) -> None:
        learn(row)
        append_row(args.file, row)

    for row in kept_rows(args.file):
        if not restricted(row):
            learn(row)
    with tempfile.TemporaryDirectory() as folder:

        def row_of(task: Task) -> dict[str, Any]:
            return played(task, Path(folder), fitted.get((task.load, task.arrivals, task.split)))

        limits = {"parallel": args.parallel, "minutes": args.minutes}
        failed = play(missing(args), row_of, keep, **limits)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; see above, and start it again for them")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("run", "missing", "report", "six"))
    parser.add_argument("--only", default="", help="loads, with commas: 3,20,nasa,twitter")
    parser.add_argument("--seeds", default="", help="with commas; default: all")
    parser.add_argument("--arrivals", choices=KNOWLEDGE, help="default: both")
    parser.add_argument("--steps", type=int, help="env steps; default: that of from_rule")
    parser.add_argument("--later", type=int, default=FRESH_DAYS, help="days of operators")
    parser.add_argument("--parallel", type=int, default=1, metavar="PROCESSES")
    parser.add_argument("--minutes", type=float, help="tasks that run longer are dropped")
    parser.add_argument("--file", type=Path, default=FILE)
    args = parser.parse_args()
    if args.what == "report":
        report(kept_rows(args.file), SIX)
    elif args.what == "missing":
        print(*missing(args))
    elif args.what == "six":
        print(*differing(len(SIX)))
    else:
        run_tasks(args)


if __name__ == "__main__":
    main()
