"""How fast dfaas_v0 steps: Batch and the PettingZoo environment against SuperSuit.

    OMP_NUM_THREADS=1 python benchmarks/stepping.py

Everybody plays 3 nodes of edge3 with random legal actions, observations built; one env step moves
all nodes of one copy. SuperSuit (num_cpus=0) runs the scalar re-statement of the rules in
tests/support as a plain PettingZoo environment. All are timed in turn, in several rounds, and the
ratios are taken within a round, so that a machine that slows down slows all of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import supersuit
from common import machine, ratio, save, speed_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from corral.adapters import make_batch
from corral.data import Trace, load_trace, make_trace
from corral.envs import dfaas_v0
from support.dfaas_plain_env import PlainDfaas

ROUNDS = 5
SECONDS = 1.5  # per measurement


def env_steps_per_second(step: Callable[[], None], num_envs: int) -> float:
    step()
    count, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < SECONDS:
        step()
        count += 1
    return num_envs * count / spent


def batch(trace: Trace, num_envs: int) -> Callable[[], None]:
    games = make_batch("dfaas_v0", num_envs=num_envs, seed=0, trace=trace)
    games.reset()
    rng = np.random.default_rng(0)

    def step() -> None:
        games.step(games.sample_actions(rng))

    return step


def over_supersuit(trace: Trace, num_envs: int) -> Callable[[], None]:
    vector = supersuit.pettingzoo_env_to_vec_env_v1(PlainDfaas(trace))
    vector = supersuit.concat_vec_envs_v1(vector, num_envs, num_cpus=0, base_class="gymnasium")
    rng = np.random.default_rng(0)
    seen, _ = vector.reset(seed=0)
    columns = len(seen["action_mask"])

    def step() -> None:
        nonlocal seen
        highest = seen["action_mask"].sum(axis=1)  # legal are 0 .. highest - 1
        actions = (rng.random(columns) * highest).astype(np.int64)
        seen = vector.step(actions)[0]

    return step


def single(env: object) -> Callable[[], None]:
    """One parallel environment, played as a PettingZoo user would."""
    rng = np.random.default_rng(0)
    seen, _ = env.reset(seed=0)

    def step() -> None:
        nonlocal seen
        if not env.agents:
            seen, _ = env.reset()
        draws = rng.random(len(env.agents)).tolist()
        actions = {
            agent: int(u * np.count_nonzero(seen[agent]["action_mask"]))
            for agent, u in zip(env.agents, draws, strict=True)
        }
        seen = env.step(actions)[0]

    return step


def main() -> None:
    trace = load_trace("edge3")
    many = make_trace(nodes=200, days=2, seed=0)
    contestants: dict[str, tuple[Callable[[], None], int]] = {
        "SuperSuit, 64 copies": (over_supersuit(trace, 64), 64),
        "SuperSuit, 1024 copies": (over_supersuit(trace, 1024), 1024),
        "Batch, 64 copies": (batch(trace, 64), 64),
        "Batch, 1024 copies": (batch(trace, 1024), 1024),
        "Batch, 8192 copies": (batch(trace, 8192), 8192),
        "PettingZoo, one copy": (single(dfaas_v0.parallel_env(trace=trace)), 1),
        "plain scalar environment, one copy": (single(PlainDfaas(trace)), 1),
        "Batch, 64 copies of 200 nodes": (batch(many, 64), 64),
    }
    speeds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(ROUNDS):
        for name, (step, num_envs) in contestants.items():
            speeds[name].append(env_steps_per_second(step, num_envs))

    ratios = {
        f"Batch over SuperSuit, {num_envs} copies": ratio(
            speeds, f"Batch, {num_envs} copies", f"SuperSuit, {num_envs} copies"
        )
        for num_envs in (64, 1024)
    }
    text = speed_table("Stepping dfaas_v0", speeds, ratios)
    about = machine("supersuit", "pettingzoo", "gymnasium")
    save("stepping", text, {"env_steps_per_second": speeds, "ratios": ratios}, about)


if __name__ == "__main__":
    main()
