"""The default game, learned: dfaas_v0 with its default arguments, every backend, several seeds.

    OMP_NUM_THREADS=1 python benchmarks/core/default_game.py [TRAINER ...]

Trained on the first 70 % of the rows of edge3 with the trainers' own settings and the presets of
the package, judged on the other 30 % beside the optimum. Then on fixed loads (20, 50, 60) with
capacities (30, 10, 40), where the answer is known: node 0 keeps its requests, and 80 of the 130
are served in every step, whatever the other two forward beyond their overflow.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine, save

import corral
from corral.data import Trace
from corral.envs.core import generator
from corral.envs.dfaas_v0 import DfaasRules
from corral.trainers.runs.run import Run

SEEDS = {
    "sb3_ppo": range(3),
    "sb3_maskable_ppo": range(3),
    "mappo": range(5),
    "ippo": range(5),
}
STEPS = 150_000
LOADS, CAPACITIES = (20, 50, 60), (30, 10, 40)
FIXED_STEPS = 30_000


def on_edge3(trainer: str, seed: int, folder: Path) -> dict[str, Any]:
    began = time.perf_counter()
    run = corral.train(
        "dfaas_v0", trainer=trainer, steps=STEPS, seed=seed, validation=0, out=folder
    )
    seconds = time.perf_counter() - began  # of all of it: imports, checkpoints, and training
    result = corral.evaluate(run, references=["overflow/equal", "random/equal"])
    shares = {score.mode: score for score in result if score.mode}
    return {
        "env_steps": int(run.progress["env_steps"].iloc[-1]),
        "seconds": seconds,
        "greedy": shares["greedy"].share_of_optimum,
        "sampled": shares["sampled"].share_of_optimum,
        "illegal_actions": sum(score.illegal_actions for score in shares.values()),
    }


def fixed_trace() -> Trace:
    rows = 288
    return Trace(
        nodes=("node_a", "node_b", "node_c"),
        arrivals=np.tile(np.array(LOADS, dtype=np.int64), (rows, 1)),
        capacity=np.tile(np.array(CAPACITIES, dtype=np.int64), (rows, 1)),
        times=np.arange(rows, dtype=np.int64),
        name="fixed",
    )


def on_fixed_loads(trainer: str, seed: int, folder: Path) -> dict[str, Any]:
    env = {"trace": fixed_trace()}
    run = corral.train(
        "dfaas_v0", trainer=trainer, steps=FIXED_STEPS, seed=seed, env_kwargs=env, out=folder
    )
    return greedy_on_fixed_loads(run)


def greedy_on_fixed_loads(run: Run) -> dict[str, Any]:
    """One greedy episode: whether equal observations give equal actions, and what was served."""
    rules = DfaasRules(fixed_trace(), start=0, illegal="raise")
    state = rules.start([generator(0, "env")])
    chosen: dict[tuple[str, bytes], set[int]] = {}
    served, forwarded = [], []
    for _ in range(rules.max_cycles):
        actions = []
        for agent, obs in rules.observe(state).items():
            action = int(run.policies[agent].act(obs, deterministic=True).action[0])
            chosen.setdefault((agent, obs["observation"].tobytes()), set()).add(action)
            actions.append(action)
        outcome = rules.step(state, np.array([actions]))
        state = outcome.state
        served.append(int((outcome.info["served_local"] + outcome.info["served_remote"]).sum()))
        forwarded.append(outcome.info["forwarded"][0].tolist())
    return {
        "observations": len(chosen),
        "with_one_action_each": sum(len(actions) == 1 for actions in chosen.values()),
        "served": [min(served), max(served)],
        "forwarded_at_first": forwarded[0],
        "forwarded_at_last": forwarded[-1],
        "node_0_forwards_at_most": max(each[0] for each in forwarded),
    }


def main() -> None:
    found: dict[str, Any] = {"edge3": {}, "fixed loads": {}}
    file = RESULTS / "default_game.json"
    if sys.argv[1:] and file.exists():  # what is named is done anew, the rest is kept
        found = json.loads(file.read_text())
        found.pop("about")
    with tempfile.TemporaryDirectory() as folder:
        for trainer in sys.argv[1:] or SEEDS:
            for seed in SEEDS[trainer]:
                label = f"{trainer}, seed {seed}"
                out = Path(folder) / f"{trainer}-{seed}"
                found["edge3"][label] = on_edge3(trainer, seed, out)
                fixed = out.with_name(f"fixed-{out.name}")
                found["fixed loads"][label] = on_fixed_loads(trainer, seed, fixed)
                print(f"{label}: {found['edge3'][label]}", file=sys.stderr)
    lines = [
        "# The default game of dfaas_v0, learned",
        "",
        f"edge3, {STEPS:,} env steps on rows 0:2822, judged on rows 2822:4032 (share of what the "
        "optimum serves).",
        "",
        "| trainer | seed | env steps | training, s | greedy, of optimum % | sampled | illegal |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for label, r in found["edge3"].items():
        trainer, seed = label.split(", seed ")
        lines.append(
            f"| {trainer} | {seed} | {r['env_steps']:,} | {r['seconds']:.0f} "
            f"| {100 * r['greedy']:.2f} | {100 * r['sampled']:.2f} | {r['illegal_actions']} |"
        )
    lines += [
        "",
        f"Fixed loads {LOADS}, capacities {CAPACITIES}, {FIXED_STEPS:,} env steps; a greedy "
        "episode of 288 steps:",
        "",
        "| trainer | seed | observations met | with one action each | served, least to most "
        "| node 0 forwards at most | all nodes forward, last step |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for label, f in found["fixed loads"].items():
        trainer, seed = label.split(", seed ")
        low, high = f["served"]
        lines.append(
            f"| {trainer} | {seed} | {f['observations']} | {f['with_one_action_each']} "
            f"| {low} to {high} | {f['node_0_forwards_at_most']} | {f['forwarded_at_last']} |"
        )
    about = machine("torch", "stable-baselines3", "sb3-contrib", "gymnasium", "pettingzoo")
    save("default_game", "\n".join(lines), found, about)


if __name__ == "__main__":
    main()
