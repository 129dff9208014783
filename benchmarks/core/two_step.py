"""two_step_v0, learned: who reaches the optimum of 8, and who settles for the safe 7.

    OMP_NUM_THREADS=1 python benchmarks/core/two_step.py

Five seeds of each in-house trainer, with an entropy bonus that fades and without one. Judged is
the greedy team in one episode: the game has no chance.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save, temporary_run

from corral.envs.two_step_v0 import TwoStepRules
from corral.trainers.runs.run import Run

TRAINERS = ("mappo", "ippo")
SEEDS = (0, 1, 2, 3, 4)
STEPS = 20_000
SETTINGS: dict[str, Any] = {
    "num_envs": 64,
    "n_steps": 8,
    "n_minibatches": 1,
    "n_epochs": 4,
    "learning_rate": 5e-3,
    "gamma": 0.99,
    "net_arch": (32,),
}
BONUSES = {"0.1, fading to 0": {"ent_coef": 0.1, "ent_coef_end": 0.0}, "none": {"ent_coef": 0.0}}


def greedy_return(run: Run) -> float:
    rules = TwoStepRules(illegal="raise")
    state = rules.start([np.random.default_rng(0)])
    total = 0.0
    for _ in range(2):
        seen = rules.observe(state)
        moves = [run.policies[a].act(seen[a], deterministic=True).action for a in rules.agents]
        outcome = rules.step(state, np.stack(moves, axis=1))
        state, total = outcome.state, total + float(outcome.reward.sum())
    return total


def main() -> None:
    lines = [
        f"# two_step_v0, {STEPS:,} env steps",
        "",
        "The greedy team's return: 8 is the optimum, 7 the safe choice. In brackets what training "
        "itself returned, mean of its last 100 episodes.",
        "",
        "| trainer | entropy bonus | " + " | ".join(f"seed {s}" for s in SEEDS) + " | at 8 "
        "| CPU seconds, mean |",
        "|---|---|" + "--:|" * (len(SEEDS) + 2),
    ]
    found: dict[str, Any] = {}
    for trainer in TRAINERS:
        for bonus, extra in BONUSES.items():
            greedy, sampled, seconds = [], [], []
            for seed in SEEDS:
                began = time.process_time()
                training = temporary_run(
                    "two_step_v0", trainer=trainer, steps=STEPS, seed=seed, **SETTINGS, **extra
                )
                with training as run:
                    seconds.append(time.process_time() - began)
                    greedy.append(greedy_return(run))
                    sampled.append(float(run.progress["return_team"].iloc[-1]))
            cells = " | ".join(f"{g:g} ({s:.2f})" for g, s in zip(greedy, sampled, strict=True))
            lines.append(
                f"| {trainer} | {bonus} | {cells} | {sum(g == 8 for g in greedy)} of {len(SEEDS)} "
                f"| {np.mean(seconds):.1f} |"
            )
            print(lines[-1], file=sys.stderr)
            found[f"{trainer}, {bonus}"] = {"greedy": greedy, "sampled": sampled, "s": seconds}
    save("two_step", "\n".join(lines), found, machine("torch", "gymnasium", "pettingzoo"))


if __name__ == "__main__":
    main()
