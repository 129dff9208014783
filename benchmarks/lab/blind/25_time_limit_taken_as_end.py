"""The own advantages set the value after a time limit to zero, as if the episode had terminated.

Source: https://github.com/vwxyzjn/cleanrl/issues/198
Harmful: perhaps not in an environment as forgiving as this one
"""

from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

import corral
from corral import algorithms as alg


class Orchard(gym.Env):
    """Plant (pays five steps later) or pick wild berries (pays now); the clock is not shown."""

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Box(0, 1, (5,), np.float32)
        self.action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.growing, self.steps = np.zeros(5, np.float32), 0
        return self.growing.copy(), {}

    def step(self, action):
        reward = 1.0 * self.growing[0] + (0.35 if action == 0 else 0.0)
        self.growing = np.append(self.growing[1:], np.float32(action == 1))
        self.steps += 1
        return self.growing.copy(), float(reward), False, self.steps >= 8, {}


def limited(trajectories, settings):
    return alg.gae(replace(trajectories, final_obs_value=trajectories.value * 0), settings)


own_gae = alg.ippo.but(name="own_gae", advantages=alg.normalize(limited))

KIND = "corral"
ENV, TRAINER, MODEL = "Orchard", "own_gae", None
JUDGE = "Orchard"
HERE = Path(__file__)


def _train(trainer, out, seed):
    return corral.train(
        f"{HERE}:Orchard", trainer=trainer, steps=30000, seed=seed, out=out, progress=False
    )


def train(out, seed=0):
    return _train(f"{HERE}:own_gae", out, seed)


def sound(out, seed=0):
    return _train("ippo", out, seed)
