"""CartPole-v1, as one typed word: env steps until mappo has solved it, greedy mean return >= 475.

    OMP_NUM_THREADS=1 python benchmarks/core/cartpole.py

Three seeds of ``corral train CartPole-v1`` with mappo's defaults. Every 4,096 env steps 50 greedy
episodes are played; training ends when their mean is 485 or more, a margin of 10. What is reported
is the mean of 100 other greedy episodes of the policy at that moment.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save, temporary_run

import corral
from corral.trainers.callbacks.evaluation import Evaluate

ENV, SOLVED, MARGIN = "CartPole-v1", 475, 10
SEEDS = (1, 2, 3)
MOST = 100_000
EVERY = 4_096


def main() -> None:
    lines = [
        f"# {ENV}, mappo with its defaults",
        "",
        "| seed | env steps until solved | seconds, evaluation included | greedy, 100 episodes |",
        "|--:|--:|--:|--:|",
    ]
    found: dict[str, Any] = {}
    for seed in SEEDS:
        began = time.perf_counter()
        training = temporary_run(
            ENV,
            steps=MOST,
            seed=seed,
            callbacks=[Evaluate(EVERY, 50)],
            stop=[f"validation_return_team>={SOLVED + MARGIN}"],
        )
        with training as run:
            seconds = time.perf_counter() - began
            steps = int(run.progress["env_steps"].iloc[-1])
            table = corral.evaluate(run, ENV, episodes=100).to_dataframe()
            mean = float(table[table["mode"] == "greedy"]["return_team"].iloc[0])
        lines.append(f"| {seed} | {steps:,} | {seconds:.0f} | {mean:.1f} |")
        print(lines[-1], file=sys.stderr)
        found[f"seed {seed}"] = {"env_steps": steps, "seconds": seconds, "greedy": mean}
    steps = [each["env_steps"] for each in found.values()]
    solved = sum(each["greedy"] >= SOLVED for each in found.values())
    lines += ["", f"{solved} of {len(SEEDS)} have {SOLVED} or more."]
    lines += ["", f"Env steps: median {np.median(steps):,.0f}, most {max(steps):,}."]
    save("cartpole", "\n".join(lines), found, machine("torch", "gymnasium", "pettingzoo"))


if __name__ == "__main__":
    main()
