"""Thirty operators: is the advice right later, with arrivals known and with arrivals unknown?

    OMP_NUM_THREADS=1 python benchmarks/loads/verdicts.py run --decisions 120000 --parallel 2
    OMP_NUM_THREADS=1 python benchmarks/loads/verdicts.py run --only 3,8 --arrivals unknown
    OMP_NUM_THREADS=1 python benchmarks/loads/verdicts.py run --rules   # no teams
    python benchmarks/loads/verdicts.py missing                         # what is not played yet
    python benchmarks/loads/verdicts.py report                          # the table

The operators are the twenty of operators_laws.py and the ten of operators_more.py. Each asks

    corral.advise(history, arrivals="known" | "unknown", steps=D / nodes, seed=0, **settings)

for an advice. Then 200 later days are played, which nothing was fitted to or chosen on: the best
plain rule of the advice, its team if one was trained, and other rules (``others``), all under the
same knowledge. Where arrivals are unknown, reports are at least one step old: operators with
``report_delay=0`` are played with 1 there.

An operator under one knowledge is a line of results/verdicts.jsonl (``--rules``: of
verdicts_rules.jsonl), and is not played again: a run that is stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, append_row, kept_rows, machine
from operators_laws import COUNT, FRESH_DAYS, describe, operator
from operators_more import MORE, describe_more, more_operator
from parallel import cpu_seconds, play
from verdicts_report import report

import corral
from corral.data import Trace
from corral.loads.replay import Entry, replay
from corral.trainers.evaluation.judge import players

FILES = {False: RESULTS / "verdicts.jsonl", True: RESULTS / "verdicts_rules.jsonl"}
"""Lines of advice with teams, and of rules alone."""
NUMBERS = [*range(COUNT), *MORE]
KNOWLEDGE = ("known", "unknown")
SEED = 0

BEFORE = [
    "local/equal",
    *(
        f"{amount}/{route}"
        for amount in ("static", "overflow", "threshold", "margin", "patient", "patient-margin")
        for route in ("equal", "capacity", "spare", "shortest", "two")
    ),
]
"""The 31 rules that the best rule was chosen from before rules were fitted."""
BALANCERS = ("round-robin", "weighted", "least", "two-choices", "fill", "all-to-shortest")
"""Routes of load balancers, and all to one node."""
BY_COUNT = ("capacity", "spare")
"""Routes that divide the requests of a step: a proxy cannot, if their number is unknown."""
ONE_LINE = [
    *(f"backlog={x}/{route}" for x in (0, 0.5, 0.75, 1) for route in ("round-robin", "least")),
    "capacity=0.9/least",
]
"""Rules within the links, not tuned: the line of code that an advice must not lose to."""


class Task(NamedTuple):
    """One line of the results."""

    number: int
    arrivals: str  # "known" or "unknown"
    decisions: int  # of a training: env steps times nodes
    later: int  # days
    rules: bool  # no team

    def __str__(self) -> str:
        return f"{self.number}_{self.arrivals}"


# --- One operator --------------------------------------------------------------------------------


def others(queue: int) -> tuple[list[str], list[str]]:
    """Return the rules of load balancers and those before, and the rules of one line.

    Without a queue a patient rule does the same as its overflow, and all backlogs are one.
    """
    amounts = ("overflow", "patient") if queue else ("overflow",)
    named = ["local/equal", "random/equal"]
    named += [f"{amount}/{route}" for amount in amounts for route in BALANCERS]
    # Static 40 %, of the last step's count if arrivals are unknown; and counted as requests come.
    named += [f"share=0.4/{route}" for route in ("round-robin", "weighted", "least")]
    before = [pair for pair in BEFORE if queue or not pair.startswith("patient")]
    same = [] if queue else [pair for pair in ONE_LINE if re.match(r"backlog=[^/]*[1-9]", pair)]
    one_line = [pair for pair in ONE_LINE if pair not in same]
    return list(dict.fromkeys(named + before)), one_line


def played(task: Task, folder: Path) -> dict[str, Any]:
    """Ask for the advice of an operator, judge it on later days, and return its line."""
    each = operator(task.number) if task.number < COUNT else more_operator(task.number)
    history, later = each.days()
    later = later.section(0, task.later * 86400 // later.step)
    settings = dict(each.settings)
    if task.arrivals == "unknown":
        settings["report_delay"] = max(1, settings["report_delay"])
    steps = None if task.rules else task.decisions // len(history.nodes)
    began = time.perf_counter()
    advice = corral.advise(
        history,
        arrivals=task.arrivals,
        steps=steps,
        train=not task.rules,
        rehearse=False,
        seed=SEED,
        out=folder,
        overwrite=True,
        progress=False,
        **settings,
    )
    advised = {"cpu_seconds": cpu_seconds(), "seconds": round(time.perf_counter() - began, 1)}
    law = describe(each) if task.number < COUNT else describe_more(each)
    return {
        "operator": task.number,
        "arrivals": task.arrivals,
        "decisions": None if task.rules else task.decisions,
        "steps": steps,
        "seed": SEED,
        "later_days": task.later,
        "report_delay": settings["report_delay"],
        **stated(advice),
        **judged(advice, later, task.arrivals, settings),
        "advice": advised,
        "cpu_seconds": cpu_seconds(),
        "about": machine("torch"),
        "law": law,
    }


def stated(advice: Any) -> dict[str, Any]:
    """Return what an advice says: what to run, and what that saves, in points."""
    chosen, team = advice.chosen, advice.team
    savings = {"rule": chosen.beside_local, "team": team and team.saving}
    savings = {what: saving for what, saving in savings.items() if saving is not None}
    return {
        "run": advice.run,
        "rule": chosen.rule,
        "answer": None if advice.decision is None else advice.decision.answer,
        "no_team": advice.no_team,
        "worth": advice.worth,
        "team_rule": None if team is None else team.rule,
        "team_saves": None if team is None else points(team.saving),
        "rule_saves": points(chosen.beside_local),
        "alike": [what for what, saving in savings.items() if saving.alike],
        "windows": {what: saving.windows for what, saving in savings.items()},
        "trend": None if advice.trend is None else round(100 * advice.trend.slope, 3),  # % a day
        "verdict": list(advice.verdict),
    }


def points(saving: Any) -> list[float | None] | None:
    """Return a stated saving in % of the arrivals: its mean, and the ends of its interval."""
    if saving is None:
        return None
    ends = (saving.share, saving.low, saving.high)
    return [None if end is None else round(100 * end, 4) for end in ends]


def judged(advice: Any, later: Trace, arrivals: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Play the later days; return the cost of all in points, and of some in requests by day."""
    rule, team = advice.chosen.rule, advice.team
    listed, one_line = others(settings["queue"])
    pairs = dict.fromkeys([rule, *listed, *one_line, *([] if team is None else [team.rule])])
    entries: dict[str, Entry] = {pair: pair for pair in pairs}
    if team is not None:
        entries["team"] = players(corral.load_run(team.run.name))[0]
    result = replay(
        later, entries, arrivals=arrivals, optimum_windows=0, progress=shown, **settings
    )
    costs = {label: sums.cost for label, sums in result.sums.items()}
    load = result.sums[rule].arrivals

    def least(labels: list[str]) -> str:
        return min(labels, key=lambda label: float(costs[label].sum()))

    compared = {"rule": rule, "local": "local/equal", "best_other": least(listed)}
    compared["best_one_line"] = least(one_line)
    carried = [pair for pair in listed if pair.partition("/")[2] not in BY_COUNT]
    compared["best_carried"] = least(carried if arrivals == "unknown" else listed)
    if team is not None:
        compared |= {"team": "team", "team_rule": team.rule}
    return {
        **{what: compared[what] for what in ("best_other", "best_carried", "best_one_line")},
        "costs": {k: round(100 * float(cost.sum() / load.sum()), 4) for k, cost in costs.items()},
        "loads": load.tolist(),
        "daily": {what: np.round(costs[label], 2).tolist() for what, label in compared.items()},
    }


def shown(what: str, done: int, total: int) -> None:
    if done == total:
        print(f"  {what} played", file=sys.stderr)


# --- The queue -----------------------------------------------------------------------------------


def missing(args: argparse.Namespace) -> Iterator[Task]:
    """Yield what is asked for and not played yet."""
    only = [int(number) for number in args.only.split(",") if number] or NUMBERS
    rows = kept_rows(FILES[args.rules])
    asked = None if args.rules else args.decisions, args.later
    if other := [row for row in rows if (row["decisions"], row["later_days"]) != asked]:
        row = other[0]
        sys.exit(
            f"{FILES[args.rules]} has lines of --decisions {row['decisions']} --later "
            f"{row['later_days']}: play on with these, or move it away"
        )
    done = {(row["operator"], row["arrivals"]) for row in rows}
    for number in NUMBERS:
        for arrivals in KNOWLEDGE:
            wanted = number in only and args.arrivals in (None, arrivals)
            if wanted and (number, arrivals) not in done:
                yield Task(number, arrivals, args.decisions, args.later, args.rules)


def work(tasks: list[Task], parallel: int, folder: Path | None) -> None:
    """Play tasks, each in a process of its own, and append each line as it is finished."""
    with tempfile.TemporaryDirectory() as temporary:
        place = folder or Path(temporary)
        failed = play(
            tasks,
            lambda task: played(task, place / str(task)),
            lambda row: append_row(FILES[row["decisions"] is None], row),
            parallel=parallel,
        )
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; see above, and start it again for them")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("run", "missing", "report"))
    parser.add_argument("--only", default="", help="numbers of operators, with commas")
    parser.add_argument("--arrivals", choices=KNOWLEDGE, help="default: both")
    parser.add_argument("--rules", action="store_true", help="no team: plain rules alone")
    what = "env steps of a training, times the nodes"
    parser.add_argument("--decisions", type=int, default=120_000, help=what)
    parser.add_argument("--later", type=int, default=FRESH_DAYS, help="days after the history")
    parser.add_argument("--parallel", type=int, default=1, metavar="PROCESSES")
    parser.add_argument("--folder", type=Path, help="keeps the advice; default: a temporary one")
    args = parser.parse_args()
    if args.what == "report":
        rows = kept_rows(FILES[args.rules])
        report(rows, FILES[args.rules].stem, len(NUMBERS))
    elif args.what == "missing":
        print(*missing(args))
    else:
        work(list(missing(args)), args.parallel, args.folder)


if __name__ == "__main__":
    main()
