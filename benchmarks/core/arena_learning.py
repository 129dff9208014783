"""arena_v0, learned: how soon the sum of both returns passes 15.0 and 20.9, and where it gets to.

    OMP_NUM_THREADS=1 python benchmarks/core/arena_learning.py

The default game and observation, two separate policies, each trained on its own reward, no shaping,
feed-forward. The figure is the sum of both agents' returns, mean of the last 100 episodes as they
are played in training (sampled actions). Env steps count moves of the whole game, both agents at
once; seconds are of training, from the first step to the end of the update that passed the mark.

One run of 300,000 env steps gives all figures of a seed: nothing is tuned for a mark alone.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save, temporary_run

SEEDS = (0, 1, 2, 3, 4)
STEPS = 300_000
MARKS = (15.0, 20.9)
LATER = (60_000, 80_000, 160_000, 300_000)
SETTINGS: dict[str, Any] = {
    "num_envs": 16,
    "n_minibatches": 4,
    "learning_rate": 2e-3,
    "gae_lambda": 0.9,
    "activation": "tanh",
}
TRAINERS = ("mappo", "ippo")


def learn(trainer: str, seed: int) -> dict[str, Any]:
    training = temporary_run(
        "arena_v0", trainer=trainer, policies="separate", steps=STEPS, seed=seed, **SETTINGS
    )
    with training as run:
        progress = run.progress
    full = progress[progress["episodes"] >= 100]
    marks = {}
    for mark in MARKS:
        passed = full[full["return_team"] >= mark]
        first = None if passed.empty else passed.iloc[0]
        marks[str(mark)] = (
            None if first is None else [int(first["env_steps"]), float(first["wall_s"])]
        )
    at = {}
    for steps in LATER:
        reached = progress[progress["env_steps"] <= steps]
        at[str(steps)] = float(reached["return_team"].iloc[-1])
    shares = {part: float(progress[f"share_{part}"].mean()) for part in PARTS}
    seconds = float(progress["wall_s"].iloc[-1])
    return {"marks": marks, "at": at, "seconds": seconds, "shares": shares}


PARTS = ("env", "inference", "learning")


def median(values: list[Any]) -> float | None:
    """None where fewer than half of the seeds got there."""
    ordered = sorted(float("inf") if value is None else float(value) for value in values)
    middle = statistics.median(ordered)
    return None if middle == float("inf") else middle


def main() -> None:
    lines = [
        "# arena_v0, learned",
        "",
        "Sum of both returns, mean of the last 100 episodes. Random play: -8.5; the arithmetic "
        "ceiling is 90.",
        "",
        "| trainer | seed | to 15.0: env steps, s | to 20.9: env steps, s | "
        + " | ".join(f"at {steps:,}" for steps in LATER)
        + " | s in all |",
        "|---|--:|--:|--:|" + "--:|" * (len(LATER) + 1),
    ]

    def cells(r: dict[str, Any]) -> str:
        marks = [
            "never"
            if r["marks"][str(mark)] is None
            else "{:,.0f}, {:.1f}".format(*r["marks"][str(mark)])
            for mark in MARKS
        ]
        later = [f"{r['at'][str(steps)]:.1f}" for steps in LATER]
        return " | ".join([*marks, *later, f"{r['seconds']:.0f}"])

    found: dict[str, Any] = {}
    for trainer in TRAINERS:
        seeds = found[trainer] = {}
        for seed in SEEDS:
            seeds[str(seed)] = learn(trainer, seed)
            lines.append(f"| {trainer} | {seed} | {cells(seeds[str(seed)])} |")
            print(lines[-1], file=sys.stderr)
        each = list(seeds.values())
        middle: dict[str, Any] = {"marks": {}, "at": {}}
        for mark in MARKS:
            pairs = [
                median([None if (m := r["marks"][str(mark)]) is None else m[i] for r in each])
                for i in (0, 1)
            ]
            middle["marks"][str(mark)] = None if pairs[0] is None else pairs
        for steps in LATER:
            middle["at"][str(steps)] = median([r["at"][str(steps)] for r in each])
        middle["seconds"] = median([r["seconds"] for r in each])
        found[f"{trainer}, median"] = middle
        lines.append(f"| {trainer} | median | {cells(middle)} |")
        shares = ", ".join(
            f"{part} {100 * statistics.mean(r['shares'][part] for r in each):.0f} %"
            for part in PARTS
        )
        found[f"{trainer}, shares"] = shares
    lines += ["", *(f"Time of {t}: {found[f'{t}, shares']}.  " for t in TRAINERS)]
    save("arena_learning", "\n".join(lines), {"settings": SETTINGS, **found}, machine("torch"))


if __name__ == "__main__":
    main()
