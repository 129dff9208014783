"""Is the advice right? ``corral advise`` for twenty operators, judged on 200 days that came after.

    OMP_NUM_THREADS=1 python benchmarks/advise_operators.py run --minutes 2
    OMP_NUM_THREADS=1 python benchmarks/advise_operators.py run --only 3,7 --minutes 2
    python benchmarks/advise_operators.py missing                # what is not played yet
    python benchmarks/advise_operators.py report                 # the table

Each operator of ``operators_laws.py`` writes its history to a CSV and runs, as a user would,

    corral advise history.csv --minutes 2 (and its settings)

The team that this trains, and the rule that it was compared with, then play the 200 days after the
history. What the team saves there, day by day beside that rule, says what the answer should have
been: worth it, where it is above 0.1 points (% of arrivals). An answer is *right* where that is so,
*wrong* where it is not, and *open* where it was "too few days", or where the interval of the fresh
days holds 0.1 points. The rule is judged too: what it costs above the best one there.

A queue, as in ``operators.py``: an operator that ends is a line of results/advise_operators.jsonl,
and is not played again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, append_row, kept_rows, machine, save
from operators import RULES
from operators_laws import COUNT, FRESH_DAYS, describe, operator
from operators_report import difference

import corral
from corral.trainers.evaluation.judge import players
from corral.trainers.loads.replay import Entry, replay

FILE = RESULTS / "advise_operators.jsonl"
WORTH = 0.1
"""Points, as by default."""

Row = dict[str, Any]


# --- One operator --------------------------------------------------------------------------------


def advised(number: int, minutes: float, folder: Path) -> Row:
    """Ask for an advice, judge it on the fresh days, and return its line."""
    each = operator(number)
    history, fresh = each.days()
    corral.data.write_trace(history, folder / "history.csv")
    words = [sys.executable, "-m", "corral", "advise", str(folder / "history.csv")]
    words += ["--minutes", f"{minutes:g}", "--out", str(folder / "advice")]
    for name, value in {**each.settings, **each.scales(history, fresh)}.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        elif value is not None:
            words += [f"--{option}", f"{value:g}"]
    began = time.perf_counter()
    subprocess.run(words, check=True)
    seconds = time.perf_counter() - began
    told = json.loads((folder / "advice" / "advice.json").read_text(encoding="utf-8"))
    rule, team = told["rule"]["rule"], told["team"]
    entries: dict[str, Entry] = {pair: pair for pair in (*RULES, rule, team["rule"])}
    entries["team"] = players(corral.load_run(team["checkpoint"]))[0]
    result = replay(fresh, entries, optimum_windows=0, **each.settings)
    costs = {label: sums.cost for label, sums in result.sums.items()}
    best = min(RULES, key=lambda pair: float(costs[pair].sum()))
    compared = {"best_rule": best, "rule": rule, "team_rule": team["rule"], "recommended": "team"}
    return {
        "operator": number,
        "minutes": minutes,
        "seconds": round(seconds, 1),
        "verdict": told["verdict"],
        "answer": told["answer"],
        "more_windows": team["more_windows"],
        "saving": {key: team["saving"][key] for key in ("share", "low", "high", "windows")},
        "rule": rule,
        "team_rule": team["rule"],
        "best_rule": best,
        "arrivals": result.sums["team"].arrivals.tolist(),
        "daily": {what: np.round(costs[label], 3).tolist() for what, label in compared.items()},
        "about": machine("torch"),
        "law": describe(each),
    }


# --- Was it right? -------------------------------------------------------------------------------


def saved(row: Row) -> tuple[float, float, float]:
    """Return what the team saves on the fresh days beside its rule, in points, and the interval."""
    more, low, high = difference(row, "team_rule")
    return -more, -high, -low


def judged(row: Row) -> str:
    """Return "right", "wrong" or "open": see the module."""
    _, low, high = saved(row)
    if row["answer"] == "too few days" or low <= WORTH <= high:
        return "open"
    return "right" if (row["answer"] == "worth it") == (low > WORTH) else "wrong"


def above_best(row: Row) -> float:
    """Return what the advised rule costs above the best one on the fresh days, in points."""
    more = sum(row["daily"]["rule"]) - sum(row["daily"]["best_rule"])
    return 100 * more / sum(row["arrivals"])


def report(rows: Sequence[Row], missing: Sequence[int]) -> None:
    """Print the table, and keep it."""
    if not rows:
        return
    rows = sorted(rows, key=lambda row: int(row["operator"]))
    lines = [
        f"# Advice for {COUNT} operators, judged on {FRESH_DAYS} fresh days",
        "",
        "*Saves, held out* is what the advice stated, in points (% of arrivals) with its 95 % "
        "interval; *saves, fresh* is what the team saves beside the same rule on the days after. "
        f"Worth it is more than {WORTH} points. *Open*: too few days, or the fresh days do not "
        "tell. *Above best* is what the advised rule costs more than the best one there.",
        "",
        "| | days | rule | above best | saves, held out | answer | more days | saves, fresh | |",
        "|--:|--:|---|--:|--:|---|--:|--:|---|",
    ]
    for row in rows:
        told = row["saving"]
        shares = [100 * (told[key] or 0.0) for key in ("share", "low", "high")]
        cells = [row["operator"], row["law"]["history_days"], row["rule"]]
        cells += [f"{above_best(row):+.2f}", _interval(shares), row["answer"]]
        cells += [row["more_windows"] or "-", _interval(saved(row)), judged(row)]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += ["", *summary(rows)]
    if missing:
        lines += ["", f"Not played yet: {', '.join(map(str, missing))}."]
    minutes = sorted({row["minutes"] for row in rows})
    about = {**rows[0]["about"], "minutes": " and ".join(f"{each:g}" for each in minutes)}
    left_out = ("daily", "arrivals", "about", "law")
    kept = [
        {**{k: v for k, v in row.items() if k not in left_out}, "saved": saved(row)} for row in rows
    ]
    save("advise_operators", "\n".join(lines), {"rows": kept}, about)


def summary(rows: Sequence[Row]) -> list[str]:
    """Return the sentences below the table."""
    lines = []
    for answer in ("worth it", "not worth it"):
        given = [row for row in rows if row["answer"] == answer]
        right = [row for row in given if judged(row) == "right"]
        wrong = [str(row["operator"]) for row in given if judged(row) == "wrong"]
        named = f", wrong for {', '.join(wrong)}" if wrong else ""
        told = f": right for {len(right)}{named}" if given else ""
        lines.append(f"{answer.capitalize()}: {len(given)}{told}.")
    few = [row for row in rows if row["answer"] == "too few days"]
    worth = [row for row in few if saved(row)[0] > WORTH]
    own = f", of which {len(worth)} were worth it on the mean of the fresh days" if few else ""
    lines.append(f"Too few days: {len(few)}{own}.")
    inside = [row for row in rows if _covers(row)]
    told = [row for row in rows if row["saving"]["low"] is not None]
    lines.append(
        f"The interval of the held-out days holds what the team saves on the fresh ones for "
        f"{len(inside)} of {len(told)}."
    )
    most = max(map(above_best, rows))
    return [*lines, f"The advised rule costs at most {most:.2f} points above the best one there."]


def _covers(row: Row) -> bool:
    low, high = row["saving"]["low"], row["saving"]["high"]
    return low is not None and 100 * low <= saved(row)[0] <= 100 * high


def _interval(found: Sequence[float]) -> str:
    middle, low, high = found
    return "0" if low == high == 0 else f"{middle:+.2f} ({low:+.2f} to {high:+.2f})"


# --- The queue -----------------------------------------------------------------------------------


def missing() -> list[int]:
    done = {row["operator"] for row in kept_rows(FILE)}
    return [number for number in range(COUNT) if number not in done]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("run", "missing", "report"))
    parser.add_argument("--only", default="", help="numbers of operators, with commas")
    parser.add_argument("--minutes", type=float, default=2.0)
    args = parser.parse_args()
    if args.what == "missing":
        print(*missing())
    elif args.what == "report":
        report(kept_rows(FILE), missing())
    else:
        only = [int(number) for number in args.only.split(",") if number]
        for number in missing():
            if only and number not in only:
                continue
            with tempfile.TemporaryDirectory() as folder:
                row = advised(number, args.minutes, Path(folder))
            append_row(FILE, row)
            print(f"operator {number}: {row['answer']}", file=sys.stderr)


if __name__ == "__main__":
    main()
