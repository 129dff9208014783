"""Thirty operators: is a rule that saves in a step replay also cheaper request by request?

    OMP_NUM_THREADS=1 python benchmarks/loads/rehearsal_operators.py [--jobs 2] [--only 3,8]
    OMP_NUM_THREADS=1 python benchmarks/loads/rehearsal_operators.py --team   # trains teams, too
    python benchmarks/loads/rehearsal_operators.py --report                   # only the table

The operators are those of verdicts.py. Arrivals are unknown, so reports are at least one step old.
The textbook of ``corral advise`` fits a rule to the history by step replays. Of the balancers, the
cheapest one in rehearsals of the last days of the history is chosen. Days after the history judge
local play, the rule and the balancer. Work is deterministic, without latency.

The first 20 days after the history are divided into windows: days, or parts of a day if a day has
more than 300,000 requests. Windows are drawn until they have about two million requests. All
policies play the same ones. A sign is clear if the 95 % interval of the saving over local play
excludes 0, over windows.
An operator is a line of results/rehearsal_operators.jsonl, and is not played again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, append_row, kept_rows, machine, save
from operators_laws import COUNT, operator
from operators_more import MORE, more_operator
from rehearsal_common import interval, row_of

import corral
from corral.data import Trace
from corral.loads.rehearsal import rehearse
from corral.loads.rehearsal.balancers import DEFAULT
from corral.loads.rehearsal.policies import Entry
from corral.loads.rehearsal.result import PARTS
from corral.loads.textbook import fit

FILE = RESULTS / "rehearsal_operators.jsonl"
NUMBERS = (*range(COUNT), *MORE)
SEED = 0
DAYS, REQUESTS = 20, 2_000_000
"""First days after the history, and the requests to play."""
CHOICE_DAYS, CHOICE_REQUESTS = 10, 300_000
"""Last days of the history, and the requests to play for the choice of a balancer."""
WINDOW_REQUESTS, SHORTEST = 300_000, 16
"""Requests of a window, and its fewest steps."""
FEWEST = 10
"""Windows, even if they have more requests."""
PARTS_OF_DAY = (1, 2, 3, 4, 6, 8, 12, 24)
TEAM_STEPS = 20_000


def windows_of(trace: Trace, rows: tuple[int, int], requests: int) -> dict[str, Any]:
    """Return the arguments of a rehearsal for a sample of windows with about ``requests``."""
    a_day = trace.steps_per_day
    assert a_day is not None
    load = trace.section(*rows)
    daily = float(load.arrivals.sum()) / (len(load) / a_day)
    short = [k for k in PARTS_OF_DAY if a_day % k == 0 and a_day // k >= SHORTEST]
    parts = next((k for k in short if daily / k <= WINDOW_REQUESTS), short[-1])
    whole = len(load) * parts // a_day
    number = int(np.clip(requests * parts / daily, min(FEWEST, whole), whole))
    return {"rows": rows, "window": a_day // parts, "days": number}


def played(number: int, with_team: bool) -> dict[str, Any]:
    """Fit rule and balancer of an operator, judge them on later days, and return its line."""
    began = time.process_time()
    law = operator(number) if number < COUNT else more_operator(number)
    history, later = law.days()
    a_day = later.steps_per_day
    assert a_day is not None
    game = {**law.settings, "report_delay": max(1, law.settings["report_delay"])}
    rule = str(fit(history, arrivals="unknown", **game).rule)
    fitted_s = time.process_time() - began
    last = max(0, len(history) - CHOICE_DAYS * a_day), len(history)
    choice = rehearse(
        history,
        list(DEFAULT),
        seed=SEED,
        parts=False,
        compiled=True,
        **windows_of(history, last, CHOICE_REQUESTS),
        **game,
    )
    balancer = min(choice.costs, key=lambda label: float(choice.costs[label].sum()))
    policies: dict[str, Entry] = {"local": "local/equal", "rule": rule, "balancer": balancer}
    with tempfile.TemporaryDirectory() as folder:
        if with_team:
            advice = corral.advise(
                history,
                arrivals="unknown",
                steps=TEAM_STEPS,
                train=True,
                seed=SEED,
                out=folder,
                overwrite=True,
                progress=False,
                **game,
            )
            if advice.team is not None:
                policies["team"] = corral.load_run(advice.team.run.name)
        windows = windows_of(later, (0, DAYS * a_day), REQUESTS)
        rehearsal = rehearse(later, policies, seed=SEED, compiled=True, **windows, **game)
    return {
        "operator": number,
        "team": with_team,
        "nodes": len(later.nodes),
        "step": later.step,
        "mean": float(later.arrivals.mean()),
        "game": game,
        "rule": rule,
        "balancer": balancer,
        "windows": windows["days"],
        "hours": windows["window"] * later.step / 3600,
        "choice": {label: float(cost.sum()) for label, cost in choice.costs.items()},
        "rows": {label: row_of(rehearsal, label) for label in rehearsal.costs},
        "fit_cpu_s": round(fitted_s, 1),
        "cpu_s": round(time.process_time() - began, 1),
    }


# --- The report ----------------------------------------------------------------------------------


def saving(line: Mapping[str, Any], label: str, figure: str) -> tuple[float, float, float]:
    """Return the saving of a policy over local in % of the requests, and its 95 % interval."""
    local, policy = line["rows"]["local"], line["rows"][label]
    a_day = float(np.mean(local["requests"]))
    return interval(100 * np.subtract(local[figure], policy[figure]) / a_day)


def parts_of(line: Mapping[str, Any], label: str) -> dict[str, float]:
    """Return by how much each part lowers the saving of a plan, in % of the requests."""
    local, policy = line["rows"]["local"], line["rows"][label]
    a_day = float(np.mean(local["requests"]))
    return {
        name: 100 * float(np.mean(np.subtract(policy["parts"][name], local["parts"][name]))) / a_day
        for name in PARTS
    }


def sign(ends: tuple[float, float, float]) -> int:
    """Return the sign of a saving; 0 if its interval contains 0."""
    return int(ends[1] > 0) - int(ends[2] < 0)


def shown(ends: tuple[float, float, float]) -> str:
    return f"{ends[0]:+.2f} ({ends[1]:+.2f} to {ends[2]:+.2f})"


def compared(lines: Sequence[Mapping[str, Any]], label: str) -> list[str]:
    """Return the sentences about the signs of promised and rehearsed savings of a plan."""
    with_plan = [line for line in lines if label in line["rows"]]
    pairs = {
        line["operator"]: (saving(line, label, "promise"), saving(line, label, "cost"))
        for line in with_plan
    }
    clear = {k: (sign(a), sign(b)) for k, (a, b) in pairs.items() if sign(a) and sign(b)}
    same = [k for k, (a, b) in clear.items() if a == b]
    text = [
        f"- Both intervals of the {label}'s saving exclude 0 for {len(clear)} of {len(pairs)} "
        f"operators; {len(same)} of these have the same sign."
    ]
    for line in with_plan:
        promised, rehearsed = pairs[line["operator"]]
        if sign(promised) == sign(rehearsed):
            continue
        parts = parts_of(line, label)
        largest = max(parts, key=lambda name: abs(parts[name]))
        name = line["rule"] if label == "rule" else label
        text.append(
            f"- Operator {line['operator']}, {name}: promised "
            f"{shown(promised)}, rehearsed {shown(rehearsed)}; largest part: {largest}, "
            f"{-parts[largest]:+.2f}."
        )
    shares = [b[0] / a[0] for a, b in pairs.values() if sign(a) > 0]
    if shares:
        text.append(
            f"- Where the promise is clearly above 0 ({len(shares)} operators), a rehearsal keeps "
            f"{100 * np.median(shares):.0f} % of it in the median (from {100 * min(shares):.0f} to "
            f"{100 * max(shares):.0f} %)."
        )
    return text


def report(with_team: bool) -> None:
    lines = [line for line in kept_rows(FILE) if line["team"] == with_team]
    lines.sort(key=lambda line: line["operator"])
    if not lines:
        return
    text = [
        "# Thirty operators, rehearsed",
        "",
        "Savings over local play in % of the requests, with 95 % intervals over windows. times, "
        "competition and latency: changes of the saving from promise to rehearsal.",
        "",
        "| operator | nodes | requests per node, step | windows | hours | rule | promised | "
        "times | competition | latency | rehearsed | balancer | rehearsed |",
        "|--:|--:|--:|--:|--:|---|---|--:|--:|--:|---|---|---|",
    ]
    better = 0
    for line in lines:
        parts = parts_of(line, "rule")
        of_rule, of_balancer = (saving(line, label, "cost") for label in ("rule", "balancer"))
        rows = line["rows"]
        gain = interval(np.subtract(rows["rule"]["cost"], rows["balancer"]["cost"]))
        better += sign(gain) > 0
        changes = " | ".join(f"{-parts[name]:+.2f}" for name in PARTS)
        text.append(
            f"| {line['operator']} | {line['nodes']} | {line['mean']:,.0f} | {line['windows']} "
            f"| {line['hours']:g} "
            f"| {line['rule']} | {shown(saving(line, 'rule', 'promise'))} | {changes} "
            f"| {shown(of_rule)} | {line['balancer']} | {shown(of_balancer)} |"
        )
    text += ["", *compared(lines, "rule")]
    text.append(
        f"- The balancer is clearly cheaper than the rule for {better} of {len(lines)} operators."
    )
    if any("team" in line["rows"] for line in lines):
        text += compared(lines, "team")
    seconds = sum(line["cpu_s"] for line in lines)
    requests = [sum(line["rows"]["local"]["requests"]) for line in lines]
    text += [
        "",
        f"{min(requests):,} to {max(requests):,} requests a policy. Seed {SEED}; {seconds:,.0f} "
        f"CPU s, {sum(line['fit_cpu_s'] for line in lines):,.0f} of them to fit rules, with "
        "compiling.",
    ]
    name = "rehearsal_operators_team" if with_team else "rehearsal_operators"
    save(name, "\n".join(text), {"cpu_s": seconds}, machine("numba"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="numbers of operators, with commas")
    parser.add_argument("--jobs", type=int, default=1, metavar="PROCESSES")
    parser.add_argument("--team", action="store_true", help="train a team, too")
    parser.add_argument("--report", action="store_true", help="only write the table")
    args = parser.parse_args()
    if not args.report:
        wanted = [int(number) for number in args.only.split(",") if number] or NUMBERS
        lines = kept_rows(FILE)
        done = {line["operator"] for line in lines if line["team"] == args.team}
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(args.jobs, mp_context=context) as pool:
            jobs = [pool.submit(played, k, args.team) for k in wanted if k not in done]
            for job in as_completed(jobs):
                line = job.result()
                append_row(FILE, line)
                print(line["operator"], line["rule"], line["balancer"], line["cpu_s"], flush=True)
    report(args.team)


if __name__ == "__main__":
    main()
