"""How fast dfaas_v0 steps: Batch and the PettingZoo environment against SuperSuit.

    OMP_NUM_THREADS=1 python benchmarks/core/stepping.py

Everybody plays 3 nodes of edge3 with random legal actions, observations built; one env step moves
all nodes of one copy. SuperSuit (num_cpus=0) runs the scalar re-statement of the rules in
tests/support as a plain PettingZoo environment. All are timed in turn, in several rounds, and the
ratios are taken within a round, so that a machine that slows down slows all of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import supersuit

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import (
    Step,
    env_steps_per_second,
    machine,
    random_batch,
    random_columns,
    ratio,
    save,
    speed_table,
)

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from corral.data import Trace, load_trace, make_trace
from corral.envs import dfaas_v0
from support.dfaas_plain_env import PlainDfaas

ROUNDS = 5
SECONDS = 1.5  # per measurement


def over_supersuit(trace: Trace, num_envs: int) -> Step:
    vector = supersuit.pettingzoo_env_to_vec_env_v1(PlainDfaas(trace))
    vector = supersuit.concat_vec_envs_v1(vector, num_envs, num_cpus=0, base_class="gymnasium")
    return random_columns(vector, num_envs)


def single(env: object) -> Step:
    """Return the steps of one parallel environment, played as a PettingZoo user would."""
    rng = np.random.default_rng(0)
    observations, _ = env.reset(seed=0)

    def step() -> int:
        nonlocal observations
        if not env.agents:
            observations, _ = env.reset()
        draws = rng.random(len(env.agents)).tolist()
        actions = {
            agent: int(u * np.count_nonzero(observations[agent]["action_mask"]))
            for agent, u in zip(env.agents, draws, strict=True)
        }
        observations = env.step(actions)[0]
        return 1

    return step


def main() -> None:
    trace = load_trace("edge3")
    many = make_trace(nodes=200, days=2, seed=0)
    contestants: dict[str, Step] = {
        "SuperSuit, 64 copies": over_supersuit(trace, 64),
        "SuperSuit, 1024 copies": over_supersuit(trace, 1024),
        "Batch, 64 copies": random_batch("dfaas_v0", 64, trace=trace),
        "Batch, 1024 copies": random_batch("dfaas_v0", 1024, trace=trace),
        "Batch, 8192 copies": random_batch("dfaas_v0", 8192, trace=trace),
        "PettingZoo, one copy": single(dfaas_v0.parallel_env(trace=trace)),
        "plain scalar environment, one copy": single(PlainDfaas(trace)),
        "Batch, 64 copies of 200 nodes": random_batch("dfaas_v0", 64, trace=many),
    }
    speeds = env_steps_per_second(contestants, rounds=ROUNDS, seconds=SECONDS)
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
