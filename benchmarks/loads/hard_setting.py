"""Late information and costs, on a real load: learned teams beside every reference and the optimum.

    OMP_NUM_THREADS=1 python benchmarks/loads/hard_setting.py [TRAINER ...]

NASA's web server of July 1995 as three nodes, and the hard setting of ``reference_policies.py``: no
second offer, forwarding costs 0.2, a queue of 50, 20 requests per link and step; route "spare".
Teams learn on the first 70 % of the days and are judged on the others, which they never saw, day by
day: cost = lost + 0.2 forwarded, as a share of the arrivals. The optimum is a linear program that
knows each day beforehand; no policy need reach it.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save
from reference_policies import HARD, nasa_nodes, seeds_table, table

import corral
from corral.envs.dfaas_v0.baselines import PAIRS
from corral.loads.replay import replay
from corral.loads.text import describe, ordered
from corral.trainers.evaluation.judge import players

TRAINERS = ("sb3_ppo",)
"""sb3_maskable_ppo learns the same weights, bit for bit: tests/trainers/sb3/test_trainer.py."""
SEEDS = (0, 1, 2)
STEPS = 200_000
SETTINGS: dict[str, Any] = {
    # Queues carry what was decided over a few steps, no more.
    "gamma": 0.7,
    "gae_lambda": 0.8,
    "num_envs": 32,
    "batch_size": 1024,
    "learning_rate": 1e-3,
    "net_arch": (128, 128),
}
MORE_PAIRS = [f"margin/{route}" for route in ("capacity", "shortest", "two")]


def main() -> None:
    wanted = sys.argv[1:] or TRAINERS
    trace = nasa_nodes()
    env_kwargs = {"trace": trace, "capacity": "1.25x", "route": "spare", **HARD}
    entries: dict[str, Any] = {pair: pair for pair in (*PAIRS, *MORE_PAIRS)}
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for trainer in wanted:
            for seed in SEEDS:
                began = time.perf_counter()
                run = corral.train(
                    "dfaas_v0",
                    trainer=trainer,
                    steps=STEPS,
                    seed=seed,
                    env_kwargs=env_kwargs,
                    validation=0,
                    out=Path(folder) / f"{trainer}-{seed}",
                    **SETTINGS,
                )
                label = f"{trainer} {seed}"
                seconds[label] = time.perf_counter() - began
                print(f"{label}: {seconds[label]:.0f} s", file=sys.stderr)
                entries |= {f"{label}, {player.mode}": player for player in players(run)}
        result = replay(
            trace,
            entries,
            rows=run.config.env_config.held_out["rows"],
            capacity="1.25x",
            optimum_windows=len(trace) // 1440,
            **HARD,
        )
    lines = [
        "# A hard setting on a real load",
        "",
        f"{STEPS:,} env steps of training; the number behind a trainer is its seed.",
        "",
        *table(result),
        "",
        *seeds_table("trainer", result, seconds),
    ]
    lines += ["", *(f"{sentence}  " for sentence in describe(result))]
    data = {
        "settings": {**SETTINGS, "steps": STEPS},
        "seconds": seconds,
        "rows": [dataclasses.asdict(score) for score in ordered(result.scores)],
    }
    about = machine("torch", "stable-baselines3", "sb3-contrib", "scipy")
    save("hard_setting", "\n".join(lines), data, about)


if __name__ == "__main__":
    main()
