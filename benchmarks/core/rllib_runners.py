"""How many env steps a second RLlib's runners play, one and two of them.

    OMP_NUM_THREADS=1 python benchmarks/core/rllib_runners.py

Needs pip install '.[rllib]', which excludes other extras: in an environment of its own. Each
runner has a core to itself, as far as there are cores; the learner works while they wait. Sampling
alone, and full updates of trainer rllib_ppo, in rounds that alternate between the contestants.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save

from corral.trainers.rllib.trainer import RLlibPPO
from corral.trainers.runs.env_config import EnvConfig

RUNNERS = (1, 2)
ROUNDS = 5
BATCH = 2048  # env steps of an update
ENVS = 16


def trainer(runners: int) -> RLlibPPO:
    rules = EnvConfig.of("dfaas_v0", {"trace": "edge3", "max_cycles": 48}).rules()
    settings = RLlibPPO.Settings(
        runners=runners, envs_per_runner=ENVS, train_batch_size=BATCH, gamma=0.5
    )
    return RLlibPPO(
        rules,
        settings,
        seed=0,
        policies=dict.fromkeys(rules.agents, "shared"),
        policies_to_train=["shared"],
        steps=10**9,
    )


def sampled(learner: RLlibPPO, runners: int) -> float:
    """Env steps/s of all runners together, while nothing is learned."""
    group = learner._algorithm.env_runner_group
    each = BATCH // runners
    began = time.perf_counter()
    group.foreach_env_runner(
        lambda runner: len(runner.sample(num_timesteps=each)), local_env_runner=False
    )
    seconds = time.perf_counter() - began
    group.foreach_env_runner(lambda runner: runner.get_metrics(), local_env_runner=False)
    return BATCH / seconds  # its steps are taken out of the metrics, and out of the next update's


def main() -> None:
    import ray

    os.environ |= {"RAY_worker_niceness": "0"}  # else whatever runs beside would be measured
    ray.init(num_cpus=sum(RUNNERS), include_dashboard=False, object_store_memory=200 * 2**20)
    learners = {runners: trainer(runners) for runners in RUNNERS}
    updates = {runners: learner.learn() for runners, learner in learners.items()}
    for each in updates.values():
        next(each)  # starts the runners
    sampling: dict[int, list[float]] = {runners: [] for runners in RUNNERS}
    training: dict[int, list[float]] = {runners: [] for runners in RUNNERS}
    for turn in range(ROUNDS):
        for runners in RUNNERS:
            sampling[runners].append(sampled(learners[runners], runners))
            began, before = time.perf_counter(), learners[runners].env_steps
            next(updates[runners])
            steps = learners[runners].env_steps - before
            assert steps == BATCH, steps
            training[runners].append(steps / (time.perf_counter() - began))
        print(f"round {turn + 1} of {ROUNDS}", file=sys.stderr)
    for learner in learners.values():
        learner.close()
    ray.shutdown()

    lines = [
        "# Runners of rllib_ppo on one machine",
        "",
        f"dfaas_v0 on edge3, {ENVS} copies per runner, {BATCH:,} env steps per update; medians of "
        f"{ROUNDS} rounds, in brackets least and most.",
        "",
        "| runners | sampled, env steps/s | with learning, env steps/s | of it sampling |",
        "|--:|--:|--:|--:|",
    ]
    found: dict[str, Any] = {}
    for runners in RUNNERS:
        alone, full = sampling[runners], training[runners]
        share = statistics.median(w / a for a, w in zip(alone, full, strict=True))
        lines.append(f"| {runners} | {_cell(alone)} | {_cell(full)} | {share:.0%} |")
        found[str(runners)] = {"sampling": alone, "training": full}
    ratios = {
        name: statistics.median(b / a for a, b in zip(speeds[1], speeds[2], strict=True))
        for name, speeds in (("sampling", sampling), ("with learning", training))
    }
    lines += ["", "| 2 runners over 1, median of the rounds | |", "|---|--:|"]
    lines += [f"| {name} | {value:.2f} |" for name, value in ratios.items()]
    data = {"env_steps_per_s": found, "ratios": ratios}
    save("rllib_runners", "\n".join(lines), data, machine("ray", "torch", "gymnasium"))


def _cell(speeds: list[float]) -> str:
    return f"{statistics.median(speeds):,.0f} ({min(speeds):,.0f}-{max(speeds):,.0f})"


if __name__ == "__main__":
    main()
