"""Augmented days of training: do teams that learn on them play better on days never seen?

    CORRAL_TRACES=FOLDER OMP_NUM_THREADS=1 python benchmarks/loads/augmentation.py [--seeds 0 1]

The hard days of ``hard_days.py``, divided so that a setting can be chosen: of NASA's 27 days every
third is held out as there, of the other 18 every fourth is for validation, and the rest are learned
from. mappo with its preset, 100,000 env steps: all settings learn the same days, augmented or not,
and are judged greedily on days as they were recorded. Cost = lost + 0.2 forwarded, in % of the
arrivals.

    OMP_NUM_THREADS=1 python benchmarks/loads/augmentation.py --speed

times a Batch of 32 environments of edge3, starts included, with each setting and without, in turn.

A queue: every run that ends is added to results/augmentation.jsonl, and what is there is not played
again, so that it can be stopped and started.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import (
    RESULTS,
    append_row,
    env_steps_per_second,
    kept_rows,
    machine,
    random_batch,
    ratio,
    save,
)
from hard_days import CAPACITY, DRAWS, WINDOW, draws, month
from reference_policies import HARD

import corral
from corral.data import Trace
from corral.loads.replay import replay
from corral.trainers.evaluation.players import Player

FILE = RESULTS / "augmentation.jsonl"
STEPS = 100_000
SETTINGS: dict[str, str | None] = {
    "none": None,
    "all": "shift=60,scale=0.2,noise=0.1,mix=0.5",
    "scale": "scale=0.2",
    "noise": "noise=0.2",
    "mix": "mix=0.5",
}
RULE = "patient-margin/spare"
PARTS = ("validation", "held out")


def load() -> tuple[Trace, dict[str, tuple[int, int]]]:
    """Return draws of three days each, and the rows of those to learn from and to judge on."""
    days = month()
    held_out = np.arange(len(days)) % 3 == 2
    rest = days[~held_out]
    chosen = np.arange(len(rest)) % 4 == 3
    parts = {
        "train": draws(rest[~chosen], DRAWS["learn"], seed=1),
        "validation": draws(rest[chosen], DRAWS["judge"], seed=3),
        "held out": draws(days[held_out], DRAWS["judge"], seed=2),
    }
    arrivals = np.concatenate([*parts.values()])
    trace = Trace(
        nodes=("node_a", "node_b", "node_c"),
        arrivals=arrivals,
        capacity=np.full_like(arrivals, CAPACITY),
        times=np.arange(len(arrivals)),
        name="nasa_days",
    )
    ends = np.cumsum([len(part) for part in parts.values()]).tolist()
    return trace, dict(zip(parts, zip([0, *ends], ends, strict=False), strict=True))


def judged(trace: Trace, rows: dict[str, tuple[int, int]], team: Any) -> dict[str, float]:
    """Return the cost in % on each part that is judged."""
    player = team if isinstance(team, str) else Player(team, settings={"route": "spare"})
    plan: dict[str, Any] = {"window": WINDOW, "optimum_windows": 0, **HARD}
    return {
        part: 100 * replay(trace, {"team": player}, rows=rows[part], **plan).scores[0].cost
        for part in PARTS
    }


def learned(trace: Trace, rows: dict[str, tuple[int, int]], setting: str, seed: int) -> Any:
    """Return the team that a setting's training ends with, and its seconds."""
    env_kwargs = {"trace": trace, "route": "spare", "reward": "team", "max_cycles": 240, **HARD}
    env_kwargs |= {"rows": rows["train"], "augment": SETTINGS[setting]}
    with tempfile.TemporaryDirectory() as folder:
        run = corral.train(
            "dfaas_v0",
            trainer="mappo",
            steps=STEPS,
            seed=seed,
            env_kwargs=env_kwargs,
            validation=0,
            gamma=0.8,
            gae_lambda=0.8,
            out=Path(folder) / "run",
            progress=False,
        )
        return dict(run.policies), float(run.progress["wall_s"].iloc[-1])


def report(found: list[dict[str, Any]]) -> None:
    """Save the table of all rows, the setting with the lowest cost on validation days first."""
    costs: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        costs.setdefault(row["setting"], []).append(row)

    def mean(name: str, part: str) -> float:
        return statistics.mean(row["cost"][part] for row in costs[name])

    lines = [
        "# Augmented days",
        "",
        f"{STEPS:,} env steps of mappo; cost in % of the arrivals, mean (lowest to highest).",
        "",
        "| setting | seeds | validation days | held-out days |",
        "|---|--:|--:|--:|",
    ]
    for name in sorted(costs, key=lambda name: mean(name, PARTS[0])):
        cells = []
        for part in PARTS:
            each = [row["cost"][part] for row in costs[name]]
            cells.append(f"{mean(name, part):.2f} ({min(each):.2f} to {max(each):.2f})")
        said = SETTINGS.get(name) or name
        lines.append(f"| {said} | {len(costs[name])} | {' | '.join(cells)} |")
    save("augmentation", "\n".join(lines), {"rows": found}, machine("torch"))


def speed() -> None:
    """Save how fast a Batch steps with each setting, in CPU seconds, as a share of without."""
    settings = {name: given for name, given in SETTINGS.items() if given is not None}
    contestants = {
        name: random_batch("dfaas_v0", 32, augment=each) for name, each in settings.items()
    }
    contestants = {"none": random_batch("dfaas_v0", 32), **contestants}
    speeds = env_steps_per_second(contestants, rounds=7, seconds=1.0, clock=time.process_time)
    lines = [
        "# Stepping augmented days",
        "",
        "| setting | env steps/s | of none |",
        "|---|--:|--:|",
    ]
    for name, found in speeds.items():
        said = settings.get(name, name)
        share = ratio(speeds, name, "none")
        lines.append(f"| {said} | {statistics.median(found):,.0f} | {share:.2f} |")
    save("augmentation_speed", "\n".join(lines), {"env_steps_per_second": speeds}, machine())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1])
    parser.add_argument("--settings", nargs="*", default=[*SETTINGS])
    asked = parser.parse_args()
    if asked.speed:
        speed()
        return
    trace, rows = load()
    done = {(row["setting"], row["seed"]) for row in kept_rows(FILE)}
    plan = [(RULE, 0), *((name, seed) for seed in asked.seeds for name in asked.settings)]
    for setting, seed in plan:
        if (setting, seed) in done:
            continue
        row: dict[str, Any] = {"setting": setting, "seed": seed}
        team: Any = setting
        if setting != RULE:
            team, row["wall_s"] = learned(trace, rows, setting, seed)
        row["cost"] = judged(trace, rows, team)
        append_row(FILE, row)
    report(kept_rows(FILE))


if __name__ == "__main__":
    main()
