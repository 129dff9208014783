"""The arena of RLlib's tutorial, as a user's class and as arena_v0: learning, and env steps/s.

    OMP_NUM_THREADS=1 python benchmarks/core/users_arena.py

docs/environments/multi_agent_arena.py runs through ``from_multi_agent_env`` in a ZooBatch,
arena_v0, whose rules are the same, as array code in a Batch. mappo trains in both with equal
settings for equally many env steps, too few to learn it well; then random agents step both, in
turn. Seconds are the process's CPU seconds, so that others on the machine do not count.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import Step, env_steps_per_second, machine, random_batch, ratio, save, temporary_run

import corral
from corral.adapters import make_batch

CLASS = f"{Path(__file__).parents[2] / 'docs/environments/multi_agent_arena.py'}:MultiAgentArena"
CONTESTANTS = {"arena_v0": "arena_v0", "MultiAgentArena": CLASS}
SEEDS = (1, 2)
STEPS, NUM_ENVS = 8_192, 16


def random_class(num_envs: int) -> Step:
    batch = make_batch(CLASS, num_envs=num_envs, seed=0)
    batch.reset()
    rng = np.random.default_rng(0)

    def step() -> int:
        batch.step(batch.sample_actions(rng))
        return num_envs

    return step


def main() -> None:
    lines = [
        f"# The tutorial's arena, as a user's class and as arena_v0: mappo, {STEPS:,} env steps",
        "",
        "| environment | seed | env steps per CPU second, training | greedy return | sampled |",
        "|---|--:|--:|--:|--:|",
    ]
    found: dict[str, Any] = {}
    with temporary_run("arena_v0", steps=1_024, num_envs=NUM_ENVS, n_steps=64):
        pass  # what the first training imports is not timed
    for seed in SEEDS:
        for name, env in CONTESTANTS.items():
            began = time.process_time()
            with temporary_run(env, steps=STEPS, seed=seed, preset="every-step") as run:
                speed = STEPS / (time.process_time() - began)
                again = {} if env == name else {"env": env}
                table = corral.evaluate(run, episodes=64, **again).to_dataframe()
                greedy, sampled = (
                    float(table[table["mode"] == mode]["return_team"].iloc[0])
                    for mode in ("greedy", "sampled")
                )
            lines.append(f"| {name} | {seed} | {speed:,.0f} | {greedy:.1f} | {sampled:.1f} |")
            print(lines[-1], file=sys.stderr)
            figures = {"speed": speed, "greedy": greedy, "sampled": sampled}
            found[f"{name}, seed {seed}"] = figures
    contestants = {
        "arena_v0": random_batch("arena_v0", NUM_ENVS),
        "MultiAgentArena": random_class(NUM_ENVS),
    }
    clock = time.process_time
    speeds = env_steps_per_second(contestants, rounds=5, seconds=1.0, clock=clock)
    trained = [
        found[f"arena_v0, seed {s}"]["speed"] / found[f"MultiAgentArena, seed {s}"]["speed"]
        for s in SEEDS
    ]
    medians = {name: f"{statistics.median(each):,.0f}" for name, each in speeds.items()}
    lines += [
        "",
        f"Random agents alone, {NUM_ENVS} environments, env steps per CPU second: "
        f"{medians}; "
        f"arena_v0 is {ratio(speeds, 'arena_v0', 'MultiAgentArena'):.1f} times as fast, in "
        f"training {statistics.median(trained):.1f} times.",
    ]
    save("users_arena", "\n".join(lines), {**found, "random": speeds}, machine("torch"))


if __name__ == "__main__":
    main()
