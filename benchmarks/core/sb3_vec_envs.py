"""How fast a Stable-Baselines3 VecEnv of dfaas_v0 steps: over Batch, and through SuperSuit.

    OMP_NUM_THREADS=1 python benchmarks/core/sb3_vec_envs.py

All play 64 copies of 3 nodes of edge3 with random legal actions; Batch and ``vectorize`` play the
same episodes. "SuperSuit as it is" steps the same PettingZoo environment without what ``vectorize``
puts back. Timed is ``VecEnv.step`` with the choice of the actions, which is the same for all. One
env step moves all nodes of one copy. They are timed in turn, in several rounds, and the ratios are
taken within a round, so that a machine that slows down slows all of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import supersuit
from stable_baselines3.common.vec_env import VecEnv

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import env_steps_per_second, machine, random_columns, ratio, save, speed_table

from corral.adapters import make_vec_env, vectorize
from corral.envs import dfaas_v0

COPIES = 64
ROUNDS = 5
SECONDS = 1.5  # per measurement


def stock() -> VecEnv:
    vector = supersuit.pettingzoo_env_to_vec_env_v1(dfaas_v0.parallel_env())
    return supersuit.concat_vec_envs_v1(vector, COPIES, base_class="stable_baselines3")


def main() -> None:
    contestants = {
        "Batch": make_vec_env("dfaas_v0", num_envs=COPIES, seed=0),
        "vectorize, cpus=0": vectorize(dfaas_v0.parallel_env(), COPIES, cpus=0, seed=0),
        "vectorize, cpus=2": vectorize(dfaas_v0.parallel_env(), COPIES, cpus=2, seed=0),
        "SuperSuit as it is, num_cpus=0": stock(),
    }
    steps = {name: random_columns(vec_env, COPIES) for name, vec_env in contestants.items()}
    speeds = env_steps_per_second(steps, rounds=ROUNDS, seconds=SECONDS)
    for vec_env in contestants.values():
        vec_env.close()

    ratios = {
        f"Batch over {name}": ratio(speeds, "Batch", name)
        for name in contestants
        if name != "Batch"
    }
    text = speed_table(f"Stepping a VecEnv of dfaas_v0, {COPIES} copies", speeds, ratios)
    about = machine("stable-baselines3", "supersuit", "pettingzoo", "gymnasium")
    data = {"env_steps_per_second": speeds, "ratios": ratios}
    save("sb3_vec_envs", text, data, about)


if __name__ == "__main__":
    main()
