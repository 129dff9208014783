"""simple_spread_v3 of mpe2, learned through ``corral.adapters.zoo_rules``.

    pip install --no-deps mpe2
    OMP_NUM_THREADS=1 python benchmarks/simple_spread.py [SEED ...]

(Without dependencies: mpe2 asks for pygame-ce, which would overwrite pygame.) N=3, local_ratio=0.5,
episodes of 25 steps, default observations, five moves. The unit is the return of an episode per
agent, mean over the three agents, as mpe2 pays it; the sum over the agents is three times that.
Random play is the row to compare with. Wall time holds mpe2's own steps, which are plain Python:
their share is stated. A seed that is given is trained alone, and added to the results.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from typing import Any

import numpy as np
from common import RESULTS, machine, save, temporary_run
from mpe2 import simple_spread_v3

import corral
from corral.adapters import zoo_rules

SEEDS = (0, 1, 2)
STEPS = 1_000_000
MARKS = (50_000, 100_000, 200_000, 400_000, 600_000, 800_000, 1_000_000)
SETTINGS: dict[str, Any] = {
    "num_envs": 64,
    "n_steps": 25,
    "n_minibatches": 4,
    "n_epochs": 8,
    "learning_rate": 1e-3,
    "ent_coef": 0.01,
    "ent_coef_end": 0.0,
    "gamma": 0.97,
}


def train_and_judge(seed: int) -> dict[str, Any]:
    rules = zoo_rules(
        functools.partial(simple_spread_v3.parallel_env, N=3, local_ratio=0.5, max_cycles=25)
    )
    began = time.perf_counter()
    with temporary_run(rules, trainer="mappo", steps=STEPS, seed=seed, **SETTINGS) as run:
        seconds = time.perf_counter() - began
        progress = run.progress
        curve = {}
        for mark in MARKS:
            reached = progress[progress["env_steps"] <= mark]
            curve[str(mark)] = float(reached["return_team"].iloc[-1]) / 3
        scores = corral.evaluate(run, episodes=1000)
    return {
        "curve": curve,
        "seconds": seconds,
        "share_env": float(progress["share_env"].mean()),
        "judged": {
            score.policy: {
                "return": score.return_team / 3,
                "low": None if score.low is None else score.low / 3,
                "high": None if score.high is None else score.high / 3,
            }
            for score in scores
        },
    }


def main() -> None:
    file = RESULTS / "simple_spread.json"
    found: dict[str, Any] = {}
    if sys.argv[1:] and file.exists():
        found = json.loads(file.read_text())["seeds"]
    for seed in map(int, sys.argv[1:] or SEEDS):
        found[str(seed)] = train_and_judge(seed)
        print(f"seed {seed}: {found[str(seed)]}", file=sys.stderr)
    found = dict(sorted(found.items()))
    lines = [
        "# simple_spread_v3, learned by mappo",
        "",
        "Return of an episode per agent. While learning (mean of the last 100 episodes), after so "
        "many env steps:",
        "",
        "| seed | " + " | ".join(f"{mark:,}" for mark in MARKS) + " | wall, s | in mpe2 |",
        "|---|" + "--:|" * (len(MARKS) + 2),
    ]
    for seed, r in found.items():
        cells = " | ".join(f"{value:.2f}" for value in r["curve"].values())
        lines.append(f"| {seed} | {cells} | {r['seconds']:.0f} | {100 * r['share_env']:.0f} % |")
    lines += [
        "",
        "Judged over 1,000 episodes:",
        "",
        "| seed | policy | return per agent | 95 % interval |",
        "|---|---|--:|--:|",
    ]
    for seed, r in found.items():
        for policy, score in r["judged"].items():
            lines.append(
                f"| {seed} | {policy} | {score['return']:.2f} | {score['low']:.2f} to "
                f"{score['high']:.2f} |"
            )
    greedy = [r["judged"]["mappo, greedy"]["return"] for r in found.values()]
    lines += ["", f"Greedy, mean of {len(greedy)} seeds: {np.mean(greedy):.2f}."]
    data = {"settings": SETTINGS, "env_steps": STEPS, "seeds": found}
    save("simple_spread", "\n".join(lines), data, machine("torch", "pettingzoo", "mpe2"))


if __name__ == "__main__":
    main()
