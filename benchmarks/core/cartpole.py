"""CartPole-v1, as one typed word: env steps until mappo has solved it, greedy mean return >= 475.

    OMP_NUM_THREADS=1 python benchmarks/core/cartpole.py

Three seeds of ``corral train CartPole-v1`` with mappo's defaults. Every 4,096 env steps 50 greedy
episodes are played; training ends when their mean is 485 or more, a margin of 10. What is reported
is the mean of 100 other greedy episodes of the policy at that moment.

Then 50,000 env steps by mappo, without evaluations, and by PPO of Stable-Baselines3, each with its
defaults, in turn for each seed. CPU seconds are of the whole call, after imports.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save, temporary_run

import corral
from corral.trainers.callbacks.evaluation import Evaluate

ENV, SOLVED, MARGIN = "CartPole-v1", 475, 10
SEEDS = (1, 2, 3)
MOST = 100_000
EVERY = 4_096
EQUAL = 50_000
"""Env steps of the comparison with Stable-Baselines3."""
EPISODES = 100


def ours(seed: int) -> tuple[float, float]:
    """Return CPU seconds of ``EQUAL`` env steps by mappo, and the greedy mean return."""
    began = time.process_time()
    with temporary_run(ENV, steps=EQUAL, seed=seed, progress=False) as run:
        seconds = time.process_time() - began
        return seconds, greedy_return(run)


def theirs(seed: int) -> tuple[float, float]:
    """Return the same of PPO by Stable-Baselines3."""
    began = time.process_time()
    model = PPO("MlpPolicy", ENV, seed=seed, device="cpu").learn(EQUAL)
    seconds = time.process_time() - began
    env = Monitor(gymnasium.make(ENV))
    env.reset(seed=10_000 + seed)
    return seconds, float(evaluate_policy(model, env, n_eval_episodes=EPISODES)[0])


def greedy_return(run: Any) -> float:
    table = corral.evaluate(run, ENV, episodes=EPISODES).to_dataframe()
    return float(table[table["mode"] == "greedy"]["return_team"].iloc[0])


def main() -> None:
    lines = [
        f"# {ENV}, mappo with its defaults",
        "",
        "| seed | env steps until solved | CPU seconds with evaluation | greedy, 100 episodes |",
        "|--:|--:|--:|--:|",
    ]
    found: dict[str, Any] = {}
    for seed in SEEDS:
        began = time.process_time()
        training = temporary_run(
            ENV,
            steps=MOST,
            seed=seed,
            callbacks=[Evaluate(EVERY, 50)],
            stop=[f"validation_return_team>={SOLVED + MARGIN}"],
        )
        with training as run:
            seconds = time.process_time() - began
            steps = int(run.progress["env_steps"].iloc[-1])
            mean = greedy_return(run)
        lines.append(f"| {seed} | {steps:,} | {seconds:.0f} | {mean:.1f} |")
        print(lines[-1], file=sys.stderr)
        found[f"seed {seed}"] = {"env_steps": steps, "seconds": seconds, "greedy": mean}
    steps = [each["env_steps"] for each in found.values()]
    solved = sum(each["greedy"] >= SOLVED for each in found.values())
    lines += ["", f"{solved} of {len(SEEDS)} have {SOLVED} or more."]
    lines += ["", f"Env steps: median {np.median(steps):,.0f}, most {max(steps):,}."]
    lines += [
        "",
        f"{EQUAL:,} env steps with the defaults of each, CPU seconds without evaluation:",
        "",
        "| seed | mappo, CPU s | greedy, 100 episodes | PPO of SB3, CPU s | greedy, 100 episodes |",
        "|--:|--:|--:|--:|--:|",
    ]
    for seed in SEEDS:
        (spent, mean), (sb3_spent, sb3_mean) = ours(seed), theirs(seed)
        lines.append(f"| {seed} | {spent:.1f} | {mean:.1f} | {sb3_spent:.1f} | {sb3_mean:.1f} |")
        print(lines[-1], file=sys.stderr)
        found[f"seed {seed}"] |= {
            "equal": {"mappo": [spent, mean], "sb3": [sb3_spent, sb3_mean]},
        }
    about = machine("torch", "stable-baselines3", "gymnasium", "pettingzoo")
    save("cartpole", "\n".join(lines), found, about)


if __name__ == "__main__":
    main()
