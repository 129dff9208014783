"""How fast arena_v0 steps: Batch against SuperSuit over PettingZoo, and against plain loops.

    OMP_NUM_THREADS=1 python benchmarks/core/arena_stepping.py

Everybody plays the default game (10 x 10 fields, 100 steps, observations of 200 floats) with random
actions, observations built; one env step moves both agents of one copy. SuperSuit (num_cpus=0) runs
the scalar re-statement of the rules in tests/support as a plain PettingZoo environment; the plain
scalar loop is that environment without SuperSuit. All are timed in turn, in several rounds, and the
ratios are taken within a round, so that a machine that slows down slows all of them. Seconds are
those of the process on its core, so that waiting for a busy machine does not count.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import supersuit

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import Step, env_steps_per_second, machine, random_batch, ratio, save, speed_table

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from corral.envs import arena_v0
from support.arena_scalar import PlainArena

ROUNDS = 7
SECONDS = 1.0  # per measurement
COPIES = (1, 16, 64, 256, 1024, 4096)


def over_supersuit(num_envs: int) -> Step:
    vector = supersuit.pettingzoo_env_to_vec_env_v1(PlainArena())
    vector = supersuit.concat_vec_envs_v1(vector, num_envs, num_cpus=0, base_class="gymnasium")
    rng = np.random.default_rng(0)
    vector.reset(seed=0)

    def step() -> int:
        vector.step(rng.integers(4, size=2 * num_envs))
        return num_envs

    return step


def single(env: object) -> Step:
    """Return the steps of one parallel environment, played as a PettingZoo user would."""
    rng = np.random.default_rng(0)
    env.reset(seed=0)

    def step() -> int:
        if not env.agents:
            env.reset()
        one, other = rng.integers(4, size=2).tolist()
        env.step({"agent_1": one, "agent_2": other})
        return 1

    return step


def main() -> None:
    contestants: dict[str, Step] = {
        "SuperSuit, 64 copies": over_supersuit(64),
        "plain scalar environment, one copy": single(PlainArena()),
        "PettingZoo, one copy": single(arena_v0.parallel_env()),
        **{f"Batch, {num_envs} copies": random_batch("arena_v0", num_envs) for num_envs in COPIES},
    }
    speeds = env_steps_per_second(
        contestants, rounds=ROUNDS, seconds=SECONDS, clock=time.process_time
    )
    ratios = {
        f"Batch, {num_envs} copies, over {theirs}": ratio(
            speeds, f"Batch, {num_envs} copies", theirs
        )
        for theirs in ("SuperSuit, 64 copies", "plain scalar environment, one copy")
        for num_envs in (64, 1024)
    }
    text = speed_table("Stepping arena_v0", speeds, ratios)
    about = machine("supersuit", "pettingzoo", "gymnasium")
    save("arena_stepping", text, {"env_steps_per_second": speeds, "ratios": ratios}, about)


if __name__ == "__main__":
    main()
