"""How fast tiles_v0 steps: Batch by the number of copies, and a scalar loop.

    OMP_NUM_THREADS=1 python benchmarks/tiles_stepping.py

An env step is one agent's move in one copy; every second one sends a tile. Random legal play sends
many values; "raster-1" sends tiles as four means, as learned teams mostly do. The plain loop is the
scalar re-statement of the rules in tests/support, which draws no images and shows nothing. All are
timed in turn, in several rounds, and the ratios are taken within a round.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from common import Step, env_steps_per_second, machine, random_batch, ratio, save, speed_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from corral.adapters import make_batch
from corral.envs import tiles_v0
from corral.envs.tiles_v0 import TilesRules
from support.tiles_scalar import ScalarTiles

ROUNDS = 5
SECONDS = 0.6  # per measurement
COPIES = (1, 16, 64, 256, 1024)


def raster(num_envs: int) -> Step:
    games = make_batch("tiles_v0", num_envs=num_envs, seed=0)
    observations = games.reset()

    def step() -> int:
        nonlocal observations
        tile = observations["tile_0"]["action_mask"].argmax(axis=1)
        level = observations["level_0"]["action_mask"][:, 1]
        observations = games.step(np.stack([tile, level], axis=1)).observations
        return num_envs

    return step


def single() -> Step:
    """Return the steps of one AEC environment, played as a PettingZoo user would."""
    env = tiles_v0.env()
    rng = np.random.default_rng(0)
    env.reset(seed=0)

    def step() -> int:
        observation, _, ended, cut, _ = env.last()
        if ended or cut:
            env.reset()
            return 0
        env.step(int(rng.choice(np.flatnonzero(observation["action_mask"]))))
        return 1

    return step


def plain_loop() -> Step:
    rules = TilesRules()
    state = rules.start([np.random.default_rng(0)])
    picture = state.image[0].reshape(4, 4, 3, 8, 8).transpose(2, 0, 3, 1, 4).reshape(3, 32, 32)
    scalar = ScalarTiles(rules.templates.tolist())
    scalar.reset(int(state.truth[0]), picture.tolist())
    rng = np.random.default_rng(0)

    def step() -> int:
        if scalar.over:
            scalar.reset(scalar.truth, scalar.image)
        scalar.step(int(rng.choice(np.flatnonzero(scalar.mask(scalar.turn)))))
        return 1

    return step


def main() -> None:
    contestants: dict[str, Step] = {
        "plain scalar loop, one copy": plain_loop(),
        "PettingZoo, one copy": single(),
        **{f"Batch, {num_envs} copies": random_batch("tiles_v0", num_envs) for num_envs in COPIES},
        **{f"Batch, {num_envs} copies, raster-1": raster(num_envs) for num_envs in (64, 1024)},
    }
    speeds = env_steps_per_second(contestants, rounds=ROUNDS, seconds=SECONDS)
    ratios = {
        f"Batch, {num_envs} copies, over {theirs}": ratio(
            speeds, f"Batch, {num_envs} copies", theirs
        )
        for theirs in ("PettingZoo, one copy", "plain scalar loop, one copy")
        for num_envs in (64, 1024)
    }
    text = speed_table("Stepping tiles_v0", speeds, ratios)
    about = machine("pettingzoo", "gymnasium")
    save("tiles_stepping", text, {"env_steps_per_second": speeds, "ratios": ratios}, about)


if __name__ == "__main__":
    main()
