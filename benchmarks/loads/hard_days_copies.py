"""Late information and costs, on days never seen: policy_iteration beside the best rule, paired.

    OMP_NUM_THREADS=1 python benchmarks/loads/hard_days_copies.py [--seeds 0,1,2,3,4] [--delays 1,0]

(About a minute for each of ten runs.) The days, the game and the windows are those of
``hard_days.py``. The best rule is the one of least cost on the draws that are learned from; it
plays the first rollouts, and trainer policy_iteration goes on from there. ``report_delay`` 1 is
hard_days' own game; with 0 nodes know each other's present spare before they choose. A run is a
line of results/hard_days_copies.jsonl, and is not played again. teams.py plays these days with
fitted rules, and with intervals.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, append_row, kept_rows, machine, save
from hard_days import HARD, MORE_PAIRS, WINDOW, load
from hard_days import now_casting as placed

import corral
from corral.envs.dfaas_v0.baselines import PAIRS
from corral.loads.replay import replay
from corral.loads.textbook import fit, play_rules
from corral.trainers.evaluation.judge import players

FILE = RESULTS / "hard_days_copies.jsonl"
STEPS = 40_960
SETTINGS: dict[str, Any] = {
    "num_envs": 128,
    "n_epochs": 12,
    "lookahead": 8,
    "learning_rate": 3e-3,
    "net_arch": (128, 128),
}
RULES = [*PAIRS, *MORE_PAIRS]


def best_rule(delay: int) -> str:
    """Return the rule of least cost on the draws that are learned from."""
    trace, (low, _) = load()
    game = {**HARD, "report_delay": delay}
    found = replay(trace, RULES, rows=(0, low), window=WINDOW, optimum_windows=0, **game)
    return min(found.scores, key=lambda score: score.cost).policy


def fitted_rule(delay: int) -> str:
    """Return what the textbook comes to, fitted to the draws that are learned from, on the days
    that the teams are judged on."""
    trace, rows = load()
    game = {**HARD, "report_delay": delay}
    rule = str(fit(trace, rows=(0, rows[0]), window=WINDOW, **game).rule)
    sums = play_rules(trace, [rule], rows=rows, window=WINDOW, **game)[rule]
    cost = 100 * float(sums.cost.sum()) / float(sums.arrivals.sum())
    return f"the fitted rule {rule} costs {cost:.2f}"


def played(seed: int, delay: int) -> dict[str, Any]:
    """Train one team, judge it, and return its line."""
    trace, rows = load()
    rule = best_rule(delay)
    route = rule.partition("/")[2]
    game = {**HARD, "report_delay": delay}
    learned = {"trace": trace, "route": route, "reward": "team", "max_cycles": 240, **game}
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = corral.train(
            "dfaas_v0",
            trainer="policy_iteration",
            teacher=rule,
            steps=STEPS,
            seed=seed,
            env_kwargs=learned,
            held_out=rows,
            validation=0,
            out=f"{folder}/run",
            **SETTINGS,
        )
        cpu = time.process_time() - began
        entries = {rule: rule, "team": players(run)[0]}
        plan: dict[str, Any] = {"rows": rows, "window": WINDOW, "optimum_windows": 0}
        result = replay(trace, entries, best_rule=(rule, "the other draws"), **plan, **game)
    scores = {score.policy: score for score in result.scores}
    team = scores["team"]
    return {
        "seed": seed,
        "delay": delay,
        "rule": rule,
        "rule_cost": 100 * scores[rule].cost,
        "cost": 100 * team.cost,
        "difference": 100 * (team.difference or 0.0),
        "cpu_s": round(cpu, 1),
        "about": machine("torch"),
    }


def report() -> None:
    rows = sorted(kept_rows(FILE), key=lambda row: (-row["delay"], row["seed"]))
    trace, held_out = load()
    windows = trace.arrivals[slice(*held_out)].reshape(-1, WINDOW, 3)
    present = min(placed(windows, keep) for keep in (50, 40, 30, 20, 10, 0))
    lines = [
        "# Days never seen: actions compared on copies",
        "",
        f"{STEPS:,} env steps of policy_iteration, taught by the best rule of the days before; "
        "cost in % of the arrivals. The 40 draws share their nine days, so the spread of windows "
        "is no interval of the difference. results/teams.md has divisions of these days, with "
        "intervals.",
        "",
        "| report_delay | seed | best rule | its cost | the team's | difference | CPU, s |",
        "|--:|--:|---|--:|--:|---|--:|",
    ]
    for row in rows:
        between = f"{row['difference']:+.2f}"
        cells = row["delay"], row["seed"], row["rule"], f"{row['rule_cost']:.2f}"
        lines.append(
            f"| {' | '.join(map(str, cells))} | {row['cost']:.2f} | {between} | {row['cpu_s']} |"
        )
    lines.append("")
    for delay in sorted({row["delay"] for row in rows}, reverse=True):
        costs = [row["cost"] for row in rows if row["delay"] == delay]
        lines.append(
            f"report_delay {delay}: {np.mean(costs):.2f} on average of {len(costs)} seeds, "
            f"{min(costs):.2f} to {max(costs):.2f}.  "
        )
    for delay in sorted({row["delay"] for row in rows}, reverse=True):
        lines.append(f"report_delay {delay}: {fitted_rule(delay)}.  ")
    lines.append(f"Now-casting, no policy, a dispatcher that knows the present: {present:.2f}.")
    save(
        "hard_days_copies", "\n".join(lines), {"rows": rows, "settings": SETTINGS}, machine("torch")
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--delays", default="1,0")
    given = parser.parse_args()
    for delay in map(int, given.delays.split(",")):
        for seed in map(int, given.seeds.split(",")):
            done = {(row["seed"], row["delay"]) for row in kept_rows(FILE)}
            if (seed, delay) not in done:
                append_row(FILE, played(seed, delay))
    report()


if __name__ == "__main__":
    main()
