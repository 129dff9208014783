"""Residual teams of dfaas_v0 that learned on 3 nodes play on 5, 20 and 200, beside the best rule.

    OMP_NUM_THREADS=1 python benchmarks/loads/transfer.py [--seeds 0 1 2] [--nodes 3 5 20 200]
        [--arrivals unknown known] [--observations summary neighborhood]

(About 2 minutes for each seed and observation; the fit of the rules takes 5 s, 5 s, 20 s and some
minutes. Every policy on every load is a row of results/transfer_rows.jsonl; rows that are there are
not played again, so that it can be stopped and started. ``--fresh`` begins anew.)

Loads are generated, each with its seed: 28 days of 144 steps, capacities that vary. Forwarding
costs 0.2, waiting 0.02 a step, nothing is offered twice, 20 requests can wait.

The rule of a load is that of the textbook fitted to its first 14 days; with 200 nodes to the last
of these days, because of the time that it takes. A team learns on these days
of the load of 3 nodes, with the rule of this load as ``residual``.
It plays each load with the rule of that load as ``residual`` instead: offset 0 is the rule that it
is compared with. So a difference comes from the learned offsets alone. Nodes observe their last 4
counts, and their mean load by time of day in the first 14 days of the load that they play. Nothing
else is learned on the loads that a team is carried to, and no checkpoint is chosen.

The last 14 days are judged. Differences are paired, the team's cost minus the rule's on the same
days, in points of the arrivals, with Student's 95 % interval over the 14 days.
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

import corral
from corral.data import Trace, make_trace
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.means import table_of_means
from corral.loads.replay import play_windows
from corral.loads.textbook import fit, play_rules
from corral.trainers.evaluation.intervals import difference_interval
from corral.trainers.evaluation.judge import players

ROWS = RESULTS / "transfer_rows.jsonl"
SEEDS, NODES = (0, 1, 2), (3, 5, 20, 200)
ARRIVALS, OBSERVATIONS = ("unknown", "known"), ("summary", "neighborhood")
DAY, DAYS = 144, 28
FITTED = 14  # days; the others are judged
FIT_DAYS = {200: 1}
"""Days that the rule is fitted to, with many nodes; a fit to 14 days would take half an hour."""
JUDGED = FITTED * DAY, DAYS * DAY
HARD: dict[str, Any] = {
    **{"queue": 20, "forward_cost": 0.2, "wait_cost": 0.02, "second_offer": False},
}
COUNTS = 4  # past counts that nodes observe
STEPS = 40_960
SETTINGS: dict[str, Any] = {
    **{"num_envs": 128, "n_epochs": 12, "lookahead": 8, "reach": 2},
    **{"learning_rate": 0.002667, "net_arch": (128, 128)},
}
"""Those of from_rule when these teams were trained."""


def load(nodes: int) -> Trace:
    """Return the load of so many nodes; that of 3 is learned from."""
    return make_trace(nodes=nodes, days=DAYS, step=86_400 // DAY, seed=1_000 + nodes, headroom=1.3)


def arguments(nodes: int, arrivals: str, observation: str, rule: str) -> dict[str, Any]:
    """Return the arguments of dfaas_v0 for a team on a load."""
    trace = load(nodes)
    means = table_of_means(True, trace, (0, FITTED * DAY))
    assert means is not None
    return {
        **{"trace": trace, "observation": observation, "arrivals": arrivals, "residual": rule},
        **{"last_counts": COUNTS, "daily_mean": means.tolist(), "max_cycles": DAY},
        **HARD,
    }


def learned(seed: int, arrivals: str, observation: str, folder: Path) -> Any:
    """Return a run of policy_iteration on the load of 3 nodes, residual to its rule."""
    rule = fitted_rule(3, arrivals)
    kwargs = {**arguments(3, arrivals, observation, rule), "reward": "team"}
    return corral.train(
        "dfaas_v0",
        trainer="policy_iteration",
        steps=STEPS,
        seed=seed,
        env_kwargs=kwargs,
        held_out=1 - FITTED / DAYS,
        validation=0,
        out=folder,
        progress=False,
        preset="none",
        **SETTINGS,
    )


def costs_of_team(nodes: int, arrivals: str, observation: str, team: Any) -> dict[str, Any]:
    """Return the cost in requests of a team on every judged day, and its share of offsets not 0."""
    rule = fitted_rule(nodes, arrivals)
    rules = DfaasRules(**arguments(nodes, arrivals, observation, rule), rows=JUDGED)
    offsets: list[float] = []
    ended, _ = play_windows(
        rules,
        dict.fromkeys(rules.agents, team),
        DAY,
        on_turn=lambda turn: offsets.append(float((turn.actions != 0).mean())),
    )
    return {
        "costs": (-ended.returns.sum(axis=1) * rules.load_scale).tolist(),
        "moved": np.mean(offsets),
    }


# --- Rows ----------------------------------------------------------------------------------------


def add(row: dict[str, Any]) -> None:
    append_row(ROWS, row)
    print(row["policy"], row["nodes"], row["arrivals"], round(sum(row["costs"])), flush=True)


def play(options: argparse.Namespace) -> None:
    """Play all loads and policies without a row."""
    for arrivals in options.arrivals:
        for nodes in options.nodes:
            if row_of("rule", nodes, arrivals) is None:
                add(fitted(nodes, arrivals))
        for seed in options.seeds:
            for observation in options.observations:
                play_team(seed, arrivals, observation, options)


def fitted(nodes: int, arrivals: str) -> dict[str, Any]:
    """Return the row of the rule that is fitted to a load."""
    trace, began = load(nodes), time.process_time()
    days = FIT_DAYS.get(nodes, FITTED)
    found = fit(trace, rows=((FITTED - days) * DAY, FITTED * DAY), arrivals=arrivals, **HARD)
    seconds, rule = time.process_time() - began, str(found.rule)
    sums = play_rules(trace, [rule], rows=JUDGED, arrivals=arrivals, **HARD)
    more = {"rule": rule, "days": days, "tried": found.tried, "cpu_seconds": round(seconds, 1)}
    row = {"policy": "rule", "nodes": nodes, "arrivals": arrivals, **more}
    return {**row, "costs": sums[rule].cost.tolist()}


def play_team(seed: int, arrivals: str, observation: str, options: argparse.Namespace) -> None:
    name = f"{observation}, seed {seed}"
    missing = [count for count in options.nodes if row_of(name, count, arrivals) is None]
    if not missing:
        return
    with tempfile.TemporaryDirectory() as place:
        folder, began = (
            Path(options.runs or place) / f"{arrivals}-{observation}-{seed}",
            time.process_time(),
        )
        if not folder.exists():
            learned(seed, arrivals, observation, folder)
        seconds = round(time.process_time() - began, 1)
        team = next(iter(players(corral.load_run(folder))[0].team.values()))  # greedy
        for count in missing:
            played = costs_of_team(count, arrivals, observation, team)
            row = {"policy": name, "nodes": count, "arrivals": arrivals, "cpu_seconds": seconds}
            add({**row, **played})


def row_of(policy: str, nodes: int, arrivals: str) -> dict[str, Any] | None:
    key = policy, nodes, arrivals
    rows = kept_rows(ROWS)
    return next(
        (row for row in rows if (row["policy"], row["nodes"], row["arrivals"]) == key), None
    )


def fitted_rule(nodes: int, arrivals: str) -> str:
    row = row_of("rule", nodes, arrivals)
    assert row is not None
    return str(row["rule"])


# --- Results -------------------------------------------------------------------------------------


def table(options: argparse.Namespace) -> str:
    lines = [
        "| arrivals | nodes | policy | cost, % | minus the rule, points | offsets not 0, % |",
        "|---|--:|---|--:|---|--:|",
    ]
    for arrivals in options.arrivals:
        for nodes in options.nodes:
            lines += rows_of_load(nodes, arrivals, options)
    return "\n".join(lines)


def rows_of_load(nodes: int, arrivals: str, options: argparse.Namespace) -> list[str]:
    came = load(nodes).arrivals[slice(*JUDGED)].reshape(-1, DAY * nodes).sum(axis=1)
    rule = row_of("rule", nodes, arrivals)
    if rule is None:
        return []
    of_rule = np.array(rule["costs"])
    cost = 100 * of_rule.sum() / came.sum()
    lines = [f"| {arrivals} | {nodes} | {rule['rule']} | {cost:.3f} | the rule | |"]
    for observation in options.observations:
        teams = {
            f"seed {seed}": row_of(f"{observation}, seed {seed}", nodes, arrivals)
            for seed in options.seeds
        }
        played = {name: row for name, row in teams.items() if row is not None}
        shown = {name: (np.array(row["costs"]), row["moved"]) for name, row in played.items()}
        if len(shown) > 1:  # the mean over seeds, day by day
            costs, moved = zip(*shown.values(), strict=True)
            shown[f"mean of {len(shown)} seeds"] = np.mean(costs, axis=0), float(np.mean(moved))
        for name, (costs_a_day, moved_share) in shown.items():
            difference = costs_a_day - of_rule
            ends = [100 * float(end or 0) for end in difference_interval(difference, came)]
            points = 100 * difference.sum() / came.sum()
            lines.append(
                f"| {arrivals} | {nodes} | {observation}, {name} | "
                f"{100 * costs_a_day.sum() / came.sum():.3f} | "
                f"{points:+.3f} ({ends[0]:+.3f} to {ends[1]:+.3f}) | {100 * moved_share:.0f} |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES)
    parser.add_argument("--arrivals", nargs="+", choices=ARRIVALS, default=ARRIVALS)
    parser.add_argument("--observations", nargs="+", choices=OBSERVATIONS, default=OBSERVATIONS)
    parser.add_argument("--runs", help="folder of trained runs; default: a temporary one")
    parser.add_argument("--fresh", action="store_true")
    options = parser.parse_args()
    options.nodes = list(dict.fromkeys([3, *options.nodes]))
    if options.fresh:
        ROWS.unlink(missing_ok=True)
    play(options)
    settings = {**HARD, "steps": STEPS, "last_counts": COUNTS, **SETTINGS}
    title = f"Trained on 3 nodes, judged on the last {DAYS - FITTED} days of each load"
    text = f"{title}\n\n{table(options)}\n"
    save("transfer", text, {"settings": settings, "rows": kept_rows(ROWS)}, machine("torch"))


if __name__ == "__main__":
    main()
