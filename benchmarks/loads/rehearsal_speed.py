"""A rehearsal of a month at a million requests a day: CPU seconds of each policy, and memory.

    OMP_NUM_THREADS=1 python benchmarks/loads/rehearsal_speed.py [--days 30] [--only local,room]

Three nodes have a million requests a day in total, in steps of five minutes. Every policy is
compiled and played by one process on one core. A rehearsal of one short window comes first: its
time is that of compiling. Then three days are played with all policies, then all days with all
policies. If memory did not depend on the number of requests, the peak of the process would stay the
same in the second pass.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save

from corral.data import Trace, make_trace
from corral.loads.rehearsal import rehearse
from corral.loads.rehearsal.balancers import BALANCERS

SEED = 0
A_DAY = 1_000_000
STEPS = 288
FEW_DAYS = 3
AIM = 60
"""CPU seconds of a policy for 30 days."""
PLANS = ("backlog=0.75/equal", "backlog=0.75/least", "share=0.1/two-choices")
POLICIES = (*BALANCERS, *PLANS)


def month(days: int) -> tuple[Trace, dict[str, Any]]:
    """Return a load of a million requests a day, and its settings."""
    mean = A_DAY / STEPS / 3
    trace = make_trace(nodes=3, days=days, seed=SEED, mean=mean, largest=round(6 * mean))
    arrivals = np.rint(trace.arrivals * (A_DAY * days / trace.arrivals.sum()))
    game = {"queue": round(mean), "link_limit": round(mean / 2), "forward_cost": 0.2}
    load = Trace(
        nodes=trace.nodes,
        arrivals=arrivals.astype(np.int64),
        capacity=trace.capacity,
        times=trace.times,
        clock="utc",
        name="month",
    )
    return load, game


def peak_mb() -> float:
    """Return the largest memory of this process so far, in MB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def timed(load: Trace, game: dict[str, Any], policy: str, steps: int) -> tuple[float, Any]:
    """Play a policy on the first steps of a load; return CPU seconds and the rehearsal."""
    began = time.process_time()
    window = min(STEPS, steps)
    rehearsal = rehearse(
        load,
        [policy],
        rows=(0, steps),
        window=window,
        seed=SEED,
        parts=False,
        compiled=True,
        **game,
    )
    return time.process_time() - began, rehearsal


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--only", default="", help="policies, with commas")
    args = parser.parse_args()
    policies = [name for name in args.only.split(",") if name] or POLICIES
    load, game = month(args.days)
    rows = {}
    for policy in policies:
        rows[policy] = {"compile_s": round(timed(load, game, policy, 1)[0], 2)}
    memory = {"start": peak_mb()}
    for days in (FEW_DAYS, args.days):
        for policy in policies:
            seconds, rehearsal = timed(load, game, policy, days * STEPS)
            (label,) = rehearsal.sums
            requests = int(rehearsal.requests.sum())
            row = {"cpu_s": round(seconds, 2), "requests": requests, "peak_mb": peak_mb()}
            rows[policy][f"{days} days"] = row
            share = float(rehearsal.costs[label].sum() / requests)
            print(f"{days} days, {policy}: {row}, cost {share:.4f}", flush=True)
        memory[f"{days} days"] = peak_mb()
    text = [
        f"# A rehearsal of {args.days * A_DAY:,} requests",
        "",
        f"{args.days} days of three nodes with {A_DAY:,} requests a day in total. CPU seconds on "
        "one core, without compiling; the first line compiles the engine, too.",
        "",
        f"| policy | compiling, CPU s | {FEW_DAYS} days, CPU s | {args.days} days, CPU s | ns a "
        "request |",
        "|---|--:|--:|--:|--:|",
    ]
    for policy, row in rows.items():
        few, every = row[f"{FEW_DAYS} days"], row[f"{args.days} days"]
        text.append(
            f"| {policy} | {row['compile_s']:.1f} | {few['cpu_s']:.1f} | {every['cpu_s']:.1f} "
            f"| {1e9 * every['cpu_s'] / every['requests']:,.0f} |"
        )
    slow = [policy for policy in rows if rows[policy][f"{args.days} days"]["cpu_s"] > AIM]
    text += [
        "",
        f"Peak memory of the process: {memory['start']:,.0f} MB after compiling, "
        f"{memory[f'{FEW_DAYS} days']:,.0f} MB after {FEW_DAYS} days with all policies, "
        f"{memory[f'{args.days} days']:,.0f} MB after {args.days} days with all policies. Aim: "
        f"{AIM} CPU s a policy; {len(rows) - len(slow)} of {len(rows)} reach it"
        + (f", but not {', '.join(slow)}." if slow else "."),
    ]
    data = {"policies": rows, "memory_mb": memory, "days": args.days}
    save("rehearsal_speed", "\n".join(text), data, machine("numba"))


if __name__ == "__main__":
    main()
