"""Teams of dfaas_v0 that learned on 3 nodes play on 5, 20 and 200, beside the best rule there.

    OMP_NUM_THREADS=1 python benchmarks/loads/transfer.py [--seeds 0 1 2 3 4] [--nodes 3 5 20 200]

(About 3 minutes for each seed, and 15 for the rules. Every policy on every load is a row of
results/transfer_rows.jsonl; rows that are there are not played again, so that it can be stopped and
started. ``--fresh`` begins anew.)

Loads are generated, each with its seed: 28 days of 144 steps, capacities that vary. Forwarding
costs 0.2, waiting 0.02 a step, nothing is offered twice, 20 requests can wait. A team observes a
summary: the best rule of its own load plays the first rollouts, with its route, and
policy_iteration goes on from there. Nothing is learned on the loads that it is carried to.

The best rule of a load is the one of least cost on its first 14 days; the last 14 are judged.
Differences are paired, the team's cost minus the rule's on the same days, in points of the
arrivals, with Student's 95 % interval over the 14 days.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, append_row, kept_rows, machine, save

import corral
from corral.data import Trace, make_trace
from corral.envs.dfaas_v0.baselines import PAIRS
from corral.loads.replay import replay
from corral.trainers.evaluation.intervals import difference_interval
from corral.trainers.evaluation.judge import players

ROWS = RESULTS / "transfer_rows.jsonl"
SEEDS, NODES = (0, 1, 2, 3, 4), (3, 5, 20, 200)
DAY, DAYS = 144, 28
JUDGED = 14  # days
HARD: dict[str, Any] = {
    **{"queue": 20, "forward_cost": 0.2, "wait_cost": 0.02, "second_offer": False},
}
RULES = [pair for pair in PAIRS if pair != "random/equal"] + ["patient/spare", "threshold/spare"]
STEPS = 40_960
SETTINGS: dict[str, Any] = {
    "num_envs": 128,
    "n_epochs": 12,
    "lookahead": 8,
    "learning_rate": 2.7e-3,
    "net_arch": (128, 128),
}


def load(nodes: int) -> Trace:
    """Return the load of so many nodes; that of 3 is learned from."""
    return make_trace(nodes=nodes, days=DAYS, step=86_400 // DAY, seed=1_000 + nodes, headroom=1.3)


def costs(trace: Trace, policies: dict[str, Any]) -> dict[str, list[float]]:
    """Return the cost in requests of each policy on every day."""
    result = replay(trace, policies, window=DAY, optimum_windows=0, **HARD)
    scale = max(1, int(trace.arrivals.max()))
    return {label: (-returns * scale).tolist() for label, returns in result.returns.items()}


def learned(seed: int, rule: str, folder: Path) -> Any:
    """Return a run of policy_iteration on the load of 3 nodes, taught by ``rule``."""
    kwargs = {"trace": load(3), "observation": "summary", "max_cycles": DAY, "reward": "team"}
    return corral.train(
        "dfaas_v0",
        trainer="policy_iteration",
        teacher=rule,
        steps=STEPS,
        seed=seed,
        env_kwargs={**kwargs, "route": rule.partition("/")[2], **HARD},
        held_out=JUDGED / DAYS,
        validation=0,
        out=folder / "run",
        progress=False,
        **SETTINGS,
    )


# --- Rows ----------------------------------------------------------------------------------------


def add(row: dict[str, Any]) -> None:
    append_row(ROWS, row)
    print(row["policy"], row["nodes"], round(sum(row["costs"])), flush=True)


def play(nodes: list[int], seeds: list[int]) -> None:
    """Play what has no row yet."""
    done = {(row["policy"], row["nodes"]) for row in kept_rows(ROWS)}
    for count in nodes:
        for rule in RULES:
            if (rule, count) not in done:
                add({"policy": rule, "nodes": count, "costs": costs(load(count), {"": rule})[""]})
    for seed in seeds:
        name = f"team, seed {seed}"
        missing = [count for count in nodes if (name, count) not in done]
        if not missing:
            continue
        with tempfile.TemporaryDirectory() as place:
            team = players(learned(seed, best_rule(3), Path(place)))[0]  # greedy
            for count in missing:
                add({"policy": name, "nodes": count, "costs": costs(load(count), {"": team})[""]})


def best_rule(nodes: int) -> str:
    """Return the rule of least cost on the days that are not judged."""
    of_rules = {row["policy"]: row["costs"] for row in kept_rows(ROWS) if row["nodes"] == nodes}
    known = [rule for rule in RULES if rule in of_rules]
    return min(known, key=lambda rule: sum(of_rules[rule][: DAYS - JUDGED]))


# --- What comes of them --------------------------------------------------------------------------


def table(nodes: list[int]) -> str:
    lines = ["| nodes | policy | cost, % | minus the best rule, points |", "|---|---|---|---|"]
    for count in nodes:
        arrived = load(count).arrivals.reshape(DAYS, DAY, count).sum(axis=(1, 2))[-JUDGED:]
        found = {
            row["policy"]: np.array(row["costs"][-JUDGED:])
            for row in kept_rows(ROWS)
            if row["nodes"] == count
        }
        rule = best_rule(count)
        teams = sorted(name for name in found if "seed" in name)
        if len(teams) > 1:  # the mean over seeds, day by day
            found[name := f"team, mean of {len(teams)} seeds"] = np.mean(
                [found[team] for team in teams], axis=0
            )
            teams.append(name)
        for name in (rule, *teams):
            cost = 100 * found[name].sum() / arrived.sum()
            difference = found[name] - found[rule]
            low, high = difference_interval(difference, arrived)
            between = f"{100 * low:+.2f} to {100 * high:+.2f}"
            more = f"{100 * difference.sum() / arrived.sum():+.2f} ({between})"
            more = "the best rule" if name == rule else more
            lines.append(f"| {count} | {name} | {cost:.3f} | {more} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES)
    parser.add_argument("--fresh", action="store_true")
    given = parser.parse_args()
    if given.fresh:
        ROWS.unlink(missing_ok=True)
    nodes = list(dict.fromkeys([3, *given.nodes]))
    play(nodes, list(given.seeds))
    settings = {**HARD, "steps": STEPS, **SETTINGS}
    text = f"Trained on 3 nodes, judged on the last {JUDGED} days of each load\n\n{table(nodes)}\n"
    save("transfer", text, {"settings": settings, "rows": kept_rows(ROWS)}, machine("torch"))


if __name__ == "__main__":
    main()
