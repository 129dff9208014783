"""Twenty operators that nothing was tuned to: is the recommendation worse than the best rule?

    OMP_NUM_THREADS=1 python benchmarks/operators.py rules                # what there is to win
    OMP_NUM_THREADS=1 python benchmarks/operators.py run --parallel 2     # train, recommend, judge
    OMP_NUM_THREADS=1 python benchmarks/operators.py run --only 3,7 --minutes 2
    python benchmarks/operators.py missing                                # what is not played yet
    python benchmarks/operators.py report                                 # the table

Each operator of ``operators_laws.py`` writes its history to a CSV and runs, as a user would,

    corral train dfaas_v0 --trace history.csv --from-rule --minutes 2 --seed 0 (and its settings)

What this recommends, a team or a rule, is then played on 200 days that nobody used, beside all
rules. Its cost (lost + forward_cost * forwarded + wait_cost * waiting, in points: % of arrivals) is
compared with that of the best rule on those days, which is more than an operator can know, and with
that of the rule that was the best on the history; day by day, with Student's interval.

A queue: an operator that ends is added to results/operators.jsonl (of ``rules``, to
operators_rules.jsonl) as a line of its own, and is not played again, so that it can be stopped and
started. ``--parallel`` plays several at once: no more than there are processors, or two minutes are
fewer steps.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, append_row, kept_rows, machine
from operators_laws import COUNT, Operator, describe, operator

import corral
from corral.data import Trace, write_trace
from corral.envs.dfaas_v0.baselines import AMOUNTS
from corral.envs.dfaas_v0.network import ROUTES
from corral.trainers.evaluation.judge import players
from corral.trainers.loads.replay import Entry, Replay, replay

FILES = {"rules": RESULTS / "operators_rules.jsonl", "run": RESULTS / "operators.jsonl"}
RULES = [
    "local/equal",
    *(f"{amount}/{route}" for amount in AMOUNTS[2:] for route in ROUTES if route != "choose"),
]
"""All reference policies but the random one."""
LARGEST_PROGRAM = 100_000
"""Nodes x nodes x steps of the linear programs of an operator's optimum, all days together."""


# --- One operator --------------------------------------------------------------------------------


def trained(number: int, minutes: float, folder: Path) -> dict[str, Any]:
    """Train for an operator, judge what is recommended, and return its line."""
    each = operator(number)
    history, fresh = each.days()
    write_trace(history, folder / "history.csv")
    began = time.perf_counter()
    subprocess.run(command(each, each.scales(history, fresh), minutes, folder), check=True)
    seconds = time.perf_counter() - began
    return {
        "operator": number,
        "minutes": minutes,
        "seconds": round(seconds, 1),
        **judged(each, fresh, *recommended(folder / "run")),
        "about": machine("torch"),
        "law": describe(each),
    }


def command(each: Operator, scales: Mapping[str, float], minutes: float, folder: Path) -> list[str]:
    """Return the command that trains, as a user would type it."""
    words = [sys.executable, "-m", "corral", "train", "dfaas_v0"]
    words += ["--trace", str(folder / "history.csv"), "--from-rule", "--minutes", f"{minutes:g}"]
    # The days after the history judge: all of it is to learn and to validate on but its last day.
    day = 86400 // each.spec.step
    end = each.history_days * day
    words += ["--seed", "0", "--held-out", f"{end - day}:{end}", "--out", str(folder / "run")]
    for name, value in {**each.settings, **scales}.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        elif value is not None:
            words += [f"--{option}", f"{value:g}"]
    return words


def recommended(folder: Path) -> tuple[str, Entry, str]:
    """Return what a run recommends ("team" or a rule), what plays it, and the best rule of its
    days."""
    found = corral.load_run(folder).recommendation
    if found.play == "rule":
        return found.rule, found.rule, found.rule
    greedy, *_ = players(corral.load_run(f"{folder}@best"))
    return "team", greedy, found.rule


def judged(each: Operator, fresh: Trace, name: str, entry: Entry, rule: str) -> dict[str, Any]:
    """Play the recommendation and all rules on the fresh days; return what they cost, in requests:
    all of them over all days, and day by day those that are compared."""
    entries: dict[str, Entry] = {**{pair: pair for pair in RULES}, rule: rule, "it": entry}
    result = replay(fresh, entries, optimum_windows=0, **each.settings)
    costs = {label: sums.cost for label, sums in result.sums.items()}
    best = min(RULES, key=lambda pair: float(costs[pair].sum()))
    compared = {"recommended": "it", "best_rule": best, "history_rule": rule}
    return {
        "recommended": name,
        "best_rule": best,
        "history_rule": rule,
        "costs": {label: round(float(cost.sum()), 3) for label, cost in costs.items()},
        "arrivals": result.sums["it"].arrivals.tolist(),
        "daily": {what: np.round(costs[label], 3).tolist() for what, label in compared.items()},
    }


def rules_only(number: int) -> dict[str, Any]:
    """Play all rules on an operator's history and on the fresh days, and return its line: costs in
    points, with the optimum and the best rule on a few of the days."""
    each = operator(number)
    history, fresh = each.days()
    before = points(replay(history, RULES, optimum_windows=0, **each.settings))
    size = len(fresh.nodes) ** 2 * 86400 // fresh.step
    days = min(4, max(1, LARGEST_PROGRAM // size))
    result = replay(fresh, RULES, optimum_windows=days, **each.settings)
    costs = points(result)
    best = min(RULES, key=costs.__getitem__)
    few = {score.policy: score.cost_in_optimum_windows for score in result.scores}
    return {
        "operator": number,
        "best_rule": best,
        "history_rule": min(RULES, key=before.__getitem__),
        "costs": costs,
        "few_days": {name: 100 * few[name] for name in ("optimum", best)},
        "about": machine(),
        "law": describe(each),
    }


def points(result: Replay) -> dict[str, float]:
    return {score.policy: round(100 * score.cost, 4) for score in result.scores}


# --- The queue -----------------------------------------------------------------------------------


def missing(what: str) -> list[int]:
    done = {row["operator"] for row in kept_rows(FILES[what])}
    return [number for number in range(COUNT) if number not in done]


def work(what: str, only: list[int], minutes: float, parallel: int) -> None:
    """Play what is missing and asked for, each operator in a process of its own."""
    wanted = [number for number in missing(what) if not only or number in only]
    words = [sys.executable, __file__, what, "--minutes", f"{minutes:g}", "--here"]
    with ThreadPoolExecutor(parallel) as pool:
        starts = [[*words, "--only", str(number)] for number in wanted]
        ended = list(pool.map(lambda start: subprocess.run(start).returncode, starts))
    if failed := [number for number, code in zip(wanted, ended, strict=True) if code]:
        sys.exit(f"operators {failed} failed: see above; start it again for them")


def work_here(what: str, number: int, minutes: float) -> None:
    """Play one operator in this process, and keep its line."""
    if number not in missing(what):  # another process has played it
        return
    if what == "rules":
        row = rules_only(number)
    else:
        with tempfile.TemporaryDirectory() as folder:
            row = trained(number, minutes, Path(folder))
    append_row(FILES[what], row)
    print(f"operator {number}: {row.get('recommended') or row['best_rule']}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("rules", "run", "missing", "report"))
    parser.add_argument("--only", default="", help="numbers of operators, with commas")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--parallel", type=int, default=1, metavar="PROCESSES")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    only = [int(number) for number in args.only.split(",") if number]
    if args.what == "missing":
        print(*missing("run"))
    elif args.what == "report":
        from operators_report import report, report_rules

        report_rules(kept_rows(FILES["rules"]))
        report(kept_rows(FILES["run"]), missing("run"))
    elif args.here:
        work_here(args.what, only[0], args.minutes)
    else:
        work(args.what, only, args.minutes, args.parallel)


if __name__ == "__main__":
    main()
