"""All reference policies beside the optimum: on edge3, and on a real trace, easy and hard.

    python benchmarks/loads/reference_policies.py

The real trace is NASA's web server of July 1995 (see data/README.md; the folder is named by
CORRAL_TRACES): requests per minute, and as nodes three shifts of the same month, by 0, 9 and 18
days, which share hours but not crowds. Capacity is 1.25 times the mean load of each node. The hard
setting has no second offer, late information, costs and limits.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import TRACES, machine, save

from corral.data import Trace, import_series
from corral.envs.dfaas_v0.baselines import PAIRS
from corral.loads.replay import Replay, replay
from corral.loads.text import describe, ordered

SHIFTS = (0, 9, 18)  # days
HARD: dict[str, Any] = {
    "second_offer": False,
    "forward_cost": 0.2,
    "queue": 50,
    "link_limit": 20,
}


def nasa_nodes() -> Trace:
    """Return three nodes: one web server's month, shifted by days."""
    path = TRACES / "nasa_http_1995" / "nasa_http_jul1995_per_minute.csv"
    month = import_series(path, zone="-04:00").trace
    load = np.concatenate([np.roll(month.arrivals, -1440 * shift, axis=0) for shift in SHIFTS], 1)
    return Trace(
        nodes=tuple(f"july_{shift + 1}" for shift in SHIFTS),
        arrivals=load,
        capacity=None,
        times=month.times,
        clock=month.clock,
        name="nasa_1995",
    )


def table(result: Replay) -> list[str]:
    """Return the scores of a replay as a table in Markdown."""

    def percent(value: float | None) -> str:
        return "" if value is None else f"{100 * value:.2f}"

    def interval(low: float | None, high: float | None) -> str:
        return "" if low is None else f"{percent(low)} to {percent(high)}"

    lines = [
        "| policy | served % | lost % | forwarded % | waiting | cost % | 95 % interval "
        "| of optimum % |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for s in ordered(result.scores):
        lines.append(
            f"| {s.policy} | {percent(s.served)} | {percent(s.lost)} | {percent(s.forwarded)} "
            f"| {s.mean_waiting:.2f} | {percent(s.cost)} | {interval(s.cost_low, s.cost_high)} "
            f"| {percent(s.share_of_optimum)} |"
        )
    return lines


def seeds_table(what: str, result: Replay, seconds: Mapping[str, float]) -> list[str]:
    """Return costs over the seeds of each team, whose runs are called "team seed"."""
    lines = [
        f"| {what} | cost %, greedy, mean of the seeds | least to most | sampled | least to most "
        "| training, s |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for team in dict.fromkeys(label.rpartition(" ")[0] for label in seconds):
        cells = []
        for mode in ("greedy", "sampled"):
            costs = [
                100 * score.cost
                for score in result.scores
                if score.policy.rpartition(",")[0].rpartition(" ")[0] == team and score.mode == mode
            ]
            cells += [f"{np.mean(costs):.2f}", f"{min(costs):.2f} to {max(costs):.2f}"]
        own = [spent for label, spent in seconds.items() if label.rpartition(" ")[0] == team]
        lines.append(f"| {team} | {' | '.join(cells)} | {np.mean(own):.0f} |")
    return lines


def main() -> None:
    nasa = nasa_nodes()
    hard_routes = [f"margin/{route}" for route in ("capacity", "shortest", "two")]
    found = {
        "edge3, default settings, all rows": replay("edge3", PAIRS),
        "NASA 1995, 1.25 x mean, second offer": replay(nasa, PAIRS, capacity="1.25x"),
        "NASA 1995, 1.25 x mean, hard": replay(
            nasa, [*PAIRS, *hard_routes], capacity="1.25x", optimum_windows=27, **HARD
        ),
    }
    lines = ["# Reference policies and the optimum"]
    for title, result in found.items():
        lines += ["", f"## {title}", "", *table(result), ""]
        lines += [f"{sentence}  " for sentence in describe(result)]
    data = {
        title: [dataclasses.asdict(score) for score in ordered(result.scores)]
        for title, result in found.items()
    }
    save("reference_policies", "\n".join(lines), data, machine("scipy"))


if __name__ == "__main__":
    main()
