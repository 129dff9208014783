"""Unknown arrivals: actions compared on recorded rows, and on rows of other days.

    OMP_NUM_THREADS=1 python benchmarks/loads/redraw.py [--seeds 0,1,2]
    OMP_NUM_THREADS=1 python benchmarks/loads/redraw.py --observed "4 counts, daily mean"

A run takes about 45 s of CPU time. A node chooses before it knows the arrivals of the step. Trainer
policy_iteration plays copies of each moment on, either on the rows that follow in the trace
(``futures="recorded"``) or on those of another training day (``futures="redrawn"``). The load is
made by the settings of ``make demo``. A rule teaches the teams on the first 25 days, and 200 later
days judge them. Differences are paired by days, with Student's interval over days. Each run is a
line of results/redraw.jsonl, and is not played again.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, append_row, kept_rows, machine, save

import corral
from corral.data.generator import make_trace
from corral.loads.replay import replay
from corral.trainers.evaluation.judge import players

FILE = RESULTS / "redraw.jsonl"
TRAINED, LATER = 25, 200
"""Days that are learned from, and days that follow them."""

WINDOW = 288
STEPS = 40_960
RULE, ROUTE = "backlog=0.75", "least"
FUTURES = ("recorded", "redrawn")
LOAD: dict[str, Any] = {
    **{"nodes": 3, "seed": 1, "mean": 16, "largest": 60, "headroom": 1.25, "spread": 0},
    **{"uneven": 0, "scaling": 0, "maintenance": 0, "noise": 0.25, "bursts": 3, "shared": 0},
}
GAME: dict[str, Any] = {
    **{"arrivals": "unknown", "queue": 16, "forward_cost": 0.2, "link_limit": 7},
    "second_offer": False,
}
OBSERVED: dict[str, dict[str, Any]] = {
    "last count": {},
    "4 counts, daily mean": {"last_counts": 4, "daily_mean": True},
}
SETTINGS: dict[str, Any] = {
    "num_envs": 128,
    "n_epochs": 12,
    "lookahead": 8,
    "learning_rate": 2.667e-3,
    "net_arch": (128, 128),
}


def played(observed: str, futures: str, seed: int) -> dict[str, Any]:
    """Train one team, judge it, and return its line."""
    trace = make_trace(days=TRAINED + LATER, **LOAD)
    later = TRAINED * WINDOW, len(trace)
    learned = {"trace": trace, "amount": "keep", "route": ROUTE, "reward": "team", **GAME}
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = corral.train(
            "dfaas_v0",
            trainer="policy_iteration",
            teacher=RULE,
            futures=futures,
            steps=STEPS,
            seed=seed,
            env_kwargs={**learned, **OBSERVED[observed]},
            held_out=later,
            validation=0,
            out=f"{folder}/run",
            progress=False,
            **SETTINGS,
        )
        cpu = time.process_time() - began
        costs = {}
        rule = f"{RULE}/{ROUTE}"
        for where, rows in (("trained", (0, later[0])), ("later", later)):
            entries = {rule: rule, "team": players(run)[0]}
            plan: dict[str, Any] = {"rows": rows, "window": WINDOW, "optimum_windows": 0}
            found = replay(trace, entries, **plan, **GAME).sums
            costs[where] = {name: found[name].cost.tolist() for name in entries}
    return {
        "observed": observed,
        "futures": futures,
        "seed": seed,
        "rule": costs["later"][rule],
        "team": costs["later"]["team"],
        "rule, trained": float(np.mean(costs["trained"][rule])),
        "team, trained": float(np.mean(costs["trained"]["team"])),
        "cpu_s": round(cpu, 1),
    }


def between(differences: Any) -> str:
    """Return a mean over days and its 95 % interval, in words."""
    mean, error = np.mean(differences), stats.sem(differences)
    half = stats.t.ppf(0.975, len(differences) - 1) * error
    return f"{mean:+.1f} ({mean - half:+.1f} to {mean + half:+.1f})"


def report() -> None:
    rows = sorted(kept_rows(FILE), key=lambda row: (row["observed"], row["futures"], row["seed"]))
    if not rows:
        return
    rule = np.array(rows[0]["rule"])
    lines = [
        "# Actions compared on recorded and on redrawn futures",
        "",
        f"policy_iteration, {STEPS:,} env steps, arrivals unknown; cost in requests a day on "
        f"{LATER} later days, on which {RULE}/{ROUTE} costs {rule.mean():,.1f}.",
        "",
        "| observed | futures | seed | cost on days learned from | on later days | less the "
        "rule's, 95 % | CPU, s |",
        "|---|---|--:|--:|--:|---|--:|",
    ]
    for row in rows:
        cells = row["observed"], row["futures"], row["seed"], f"{row['team, trained']:,.1f}"
        after = f"{np.mean(row['team']):,.1f}", between(np.subtract(row["team"], rule))
        lines.append(f"| {' | '.join(map(str, (*cells, *after)))} | {row['cpu_s']} |")
    lines += ["", "Redrawn less recorded, means over the seeds, 95 % over days:", ""]
    data = {}
    for observed in OBSERVED:
        of = {
            each: np.array(
                [
                    row["team"]
                    for row in rows
                    if (row["observed"], row["futures"]) == (observed, each)
                ]
            )
            for each in FUTURES
        }
        if all(len(each) for each in of.values()):
            means = [each.mean(axis=0) for each in of.values()]
            text = between(means[1] - means[0])
            data[observed] = {name: each.mean(axis=1).tolist() for name, each in of.items()}
            pairs = list(zip(*(each.mean(axis=1) for each in of.values()), strict=True))
            lower = sum(after < before for before, after in pairs)
            lines.append(f"- {observed}: {text}; lower with {lower} of {len(pairs)} seeds")
    slim = [{k: v for k, v in row.items() if k not in ("rule", "team")} for row in rows]
    about = machine("torch")
    save("redraw", "\n".join(lines), {"rows": slim, "costs": data, "settings": SETTINGS}, about)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--observed", default=",".join(OBSERVED).partition(",")[0])
    given = parser.parse_args()
    seeds = map(int, given.seeds.split(","))
    for seed, futures in itertools.product(seeds, FUTURES):
        key = given.observed, futures, seed
        done = {(row["observed"], row["futures"], row["seed"]) for row in kept_rows(FILE)}
        if key not in done:
            append_row(FILE, played(*key))
    report()


if __name__ == "__main__":
    main()
