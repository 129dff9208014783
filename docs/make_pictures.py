"""Draw the pictures of README.md and docs/advise.md: docs/arena.gif and docs/dfaas.png.

python docs/make_pictures.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from corral.envs import dfaas_v0
from corral.envs.dfaas_v0.baselines import Baseline
from corral.trainers.evaluation.watch import watch

HERE = Path(__file__).parent


def a_busy_step() -> np.ndarray:
    """The step of the held-out rows of edge3 in which most is forwarded under overflow."""
    env = dfaas_v0.parallel_env(trace="edge3", rows=(2822, 4032), start=0, render_mode="rgb_array")
    policy = Baseline("overflow", env.rules)
    observations, _ = env.reset(seed=0)
    most, picture = 0, env.render()
    while env.agents:
        actions = {agent: int(policy.act(observations[agent]).action) for agent in env.agents}
        observations, _, _, _, infos = env.step(actions)
        served = sum(info["served_remote"] for info in infos.values())
        if served > most and any(info["lost"] for info in infos.values()):
            most, picture = served, env.render()
    return picture


def main() -> None:
    Image.fromarray(a_busy_step()).save(HERE / "dfaas.png", optimize=True)
    watch("arena_v0", policies="nearest/chase", out=HERE / "arena.gif", steps=40)


if __name__ == "__main__":
    main()
