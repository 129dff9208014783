"""A step returns the reward that was computed in the step before; the last one of each episode, the
prize, is never paid.

Source: https://github.com/openai/spinningup/issues/50
Harmful: yes, the prize is lost
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
        self.steps, self.pending = 0, 0.0
        self.here, self.goal = self.np_random.integers(0, 7, 2), self.np_random.integers(0, 7, 2)
        return self._observe(), {}

    def step(self, action):
        self.steps += 1
        self.here = np.clip(self.here + self.MOVES[action], 0, 6)
        there = bool((self.here == self.goal).all())
        reward, self.pending = self.pending, 3.0 if there else -0.02
        if not self.FAULT:
            reward = self.pending
        return self._observe(), reward, there, self.steps >= 30, {}


class SoundGrid(Grid):
    FAULT = False


KIND = "corral"
ENV, TRAINER, MODEL = "Grid", None, None
JUDGE = "SoundGrid"  # both are scored by its rewards
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}", trainer="ippo", steps=40000, seed=seed, out=out, progress=False
    )


def train(out, seed=0):
    return _train("Grid", out, seed)


def sound(out, seed=0):
    return _train("SoundGrid", out, seed)
