"""A time limit of four steps from a first test was left in the wrapper, while most goals are six
steps away.

Source: no thread; seen in practice
Harmful: partly: only near goals are ever reached in training
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

import corral


class Grid(gym.Env):
    """Walk to a goal on a board of 7 x 7 fields."""

    FAULT = True
    MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Box(-1, 1, (4,), np.float32)
        self.action_space = Discrete(4)
        self.steps = 0

    def _observe(self):
        return np.concatenate([self.here / 3 - 1, self.goal / 3 - 1]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.here, self.goal = self.np_random.integers(0, 7, 2), self.np_random.integers(0, 7, 2)
        return self._observe(), {}

    def step(self, action):
        self.steps += 1
        limit = 4 if self.FAULT else 30
        self.here = np.clip(self.here + self.MOVES[action], 0, 6)
        there = bool((self.here == self.goal).all())
        return self._observe(), 1.0 if there else -0.05, there, self.steps >= limit, {}


class SoundGrid(Grid):
    FAULT = False


KIND = "sb3"
ENV, TRAINER, MODEL = "Grid", None, None
JUDGE = "SoundGrid"  # both are scored by its rewards
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}",
        trainer="sb3_ppo",
        steps=20000,
        seed=seed,
        out=out,
        progress=False,
        num_envs=8,
        n_steps=64,
        batch_size=128,
    )


def train(out, seed=0):
    return _train("Grid", out, seed)


def sound(out, seed=0):
    return _train("SoundGrid", out, seed)
