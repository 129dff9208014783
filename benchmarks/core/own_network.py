"""tiles_v0 with a network of one's own beside corral's, at equal env steps.

    OMP_NUM_THREADS=1 python benchmarks/core/own_network.py [--steps 50000] [--seeds 2]

The network is docs/networks/tiles.py: three convolutions (k=4, s=2; 32, 64, 128) beside two layers
of 64 for the vector. All else is the preset of tiles_v0, actor and critic of each agent separate.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save, temporary_run
from tiles_curves import play

from corral.envs.tiles_v0 import TilesRules
from corral.envs.tiles_v0.baselines import tiles_team

MODEL = Path(__file__).parents[2] / "docs" / "networks" / "tiles.py"
EPISODES = 1024
SEED = 1000  # of the episodes that judge: none is one of training's


def learned(rules: TilesRules, model: str | None, steps: int, seed: int) -> dict[str, Any]:
    """Train once; return what is right in the end, the team's return, and seconds."""
    began = time.process_time()
    own = {} if model is None else {"model": model}
    training = temporary_run(
        "tiles_v0", trainer="mappo", policies="separate", steps=steps, seed=seed, **own
    )
    with training as run:
        seconds = time.process_time() - began
        found = play(rules, run.policies, episodes=EPISODES, seed=SEED)
        progress = run.progress
        return {
            "right": found.at(found.values)[0],
            "values": found.values,
            "first": float(progress["return_team"].dropna().iloc[0]),
            "last": float(progress["return_team"].iloc[-1]),
            "cpu_s": seconds,
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    rules = TilesRules(illegal="raise")
    random = play(rules, tiles_team("random", rules), episodes=EPISODES, seed=SEED)
    models = {"corral's own (preset)": None, "docs/networks/tiles.py": f"{MODEL}:make"}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in models}
    for seed in range(given.seeds):
        for name, model in models.items():
            found[name].append(learned(rules, model, given.steps, seed))
            print(name, seed, found[name][-1], file=sys.stderr, flush=True)
    lines = [
        f"# tiles_v0 with a network of one's own, {given.steps:,} env steps",
        "",
        f"mappo, {given.seeds} seeds, greedy play of {EPISODES} episodes. Random play: "
        f"{100 * random.at(random.values)[0]:.1f} % right.",
        "",
        "| network | right, % | values sent | team return at first | in the end | processor s |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, runs in found.items():
        right = ", ".join(f"{100 * each['right']:.1f}" for each in runs)
        mean = {key: float(np.mean([each[key] for each in runs])) for key in runs[0]}
        lines.append(
            f"| {name} | {right} | {mean['values']:.0f} | {mean['first']:.3f} "
            f"| {mean['last']:.3f} | {mean['cpu_s']:.0f} |"
        )
    results = {"steps": given.steps, "seeds": given.seeds, "networks": found}
    save("own_network", "\n".join(lines), results, machine("torch", "gymnasium", "pettingzoo"))


if __name__ == "__main__":
    main()
