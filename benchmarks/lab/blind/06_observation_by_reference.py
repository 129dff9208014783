"""reset and step return the same array, which the next step overwrites in place, so that a stored
observation shows the next state.

Source: https://github.com/Farama-Foundation/SuperSuit/pull/116
Harmful: probably not here: the trainer copies what it stores
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
        self.view = np.zeros(4, np.float32)

    def _observe(self):
        self.view[:2], self.view[2:] = self.here / 3 - 1, self.goal / 3 - 1
        return self.view if self.FAULT else self.view.copy()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.here, self.goal = self.np_random.integers(0, 7, 2), self.np_random.integers(0, 7, 2)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        self.steps += 1
        self.here = np.clip(self.here + self.MOVES[action], 0, 6)
        there = bool((self.here == self.goal).all())
        return self._observe(), 1.0 if there else -0.05, there, self.steps >= 30, {}


class SoundGrid(Grid):
    FAULT = False


KIND = "corral"
ENV, TRAINER, MODEL = "Grid", None, None
JUDGE = "SoundGrid"  # both are scored by its rewards
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}", trainer="ippo", steps=30000, seed=seed, out=out, progress=False
    )


def train(out, seed=0):
    return _train("Grid", out, seed)


def sound(out, seed=0):
    return _train("SoundGrid", out, seed)
