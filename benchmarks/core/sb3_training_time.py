"""Wall time of training with Stable-Baselines3: over Batch, and over SuperSuit.

    OMP_NUM_THREADS=1 python benchmarks/core/sb3_training_time.py

The same trainer, settings, seed and env steps of dfaas_v0 on edge3; the two play the same episodes
and end with the same weights, which is checked. Timed is ``corral.train``, in turn, in rounds.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save

import corral
from corral.trainers.runs.checkpoint import latest_checkpoint, load_checkpoint
from corral.trainers.runs.run import CHECKPOINTS, Run

STEPS = 100_000
ROUNDS = 2
TRAINERS = ("sb3_ppo", "sb3_maskable_ppo")


def timed(trainer: str, vec_env: str, folder: Path) -> tuple[float, Run]:
    began = time.perf_counter()
    run = corral.train(
        "dfaas_v0", trainer=trainer, steps=STEPS, seed=0, vec_env=vec_env, out=folder
    )
    return time.perf_counter() - began, run


def same_weights(one: Run, other: Run) -> bool:
    first, second = (
        load_checkpoint(latest_checkpoint(run.folder / CHECKPOINTS)).arrays["policy_shared"]
        for run in (one, other)
    )
    return all(np.array_equal(first[key], second[key]) for key in first)


def main() -> None:
    lines = [
        f"# Training with Stable-Baselines3: {STEPS:,} env steps of dfaas_v0",
        "",
        "| trainer | over Batch, s | over SuperSuit, s | ratio, median of the rounds "
        "| share of time in the environments, Batch | SuperSuit | same weights |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    found = {}
    for trainer in TRAINERS:
        seconds: dict[str, list[float]] = {"batch": [], "supersuit": []}
        shares: dict[str, float] = {}
        same = []
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as folder:
                runs = {}
                for vec_env, spent in seconds.items():
                    took, runs[vec_env] = timed(trainer, vec_env, Path(folder) / vec_env)
                    spent.append(took)
                    shares[vec_env] = float(runs[vec_env].progress["share_env"].mean())
                    print(f"{trainer} {vec_env}: {took:.1f} s", file=sys.stderr)
                same.append(same_weights(runs["batch"], runs["supersuit"]))
        pairs = zip(seconds["supersuit"], seconds["batch"], strict=True)
        ratio = statistics.median(a / b for a, b in pairs)
        found[trainer] = {"seconds": seconds, "ratio": ratio, "same_weights": all(same)}
        lines.append(
            f"| {trainer} | {statistics.median(seconds['batch']):.1f} "
            f"| {statistics.median(seconds['supersuit']):.1f} | {ratio:.1f} "
            f"| {100 * shares['batch']:.0f} % | {100 * shares['supersuit']:.0f} % "
            f"| {'yes' if all(same) else 'NO'} |"
        )
    about = machine("torch", "stable-baselines3", "sb3-contrib", "supersuit", "pettingzoo")
    save("sb3_training_time", "\n".join(lines), found, about)


if __name__ == "__main__":
    main()
