"""Positions are uint8, and the distance in the reward is computed from their difference, which wraps
around below zero.

Source: no thread; seen in practice
Harmful: yes, being left of the goal looks like being 255 away
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

import corral


class Rail(gym.Env):
    """A wagon on a rail of 30 places; the nearer to the loading point, the better."""

    FAULT = True

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Box(0, 1, (2,), np.float32)
        self.action_space = Discrete(3)

    def _observe(self):
        return np.array([self.wagon / 30, self.point / 30], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.wagon = self.np_random.integers(0, 31, dtype=np.uint8)
        self.point = self.np_random.integers(8, 23, dtype=np.uint8)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        self.wagon = np.uint8(np.clip(int(self.wagon) + 2 * (int(action) - 1), 0, 30))
        with np.errstate(over="ignore"):
            away = self.wagon - self.point if self.FAULT else abs(int(self.wagon) - int(self.point))
        self.steps += 1
        return self._observe(), -float(abs(away)) / 30, False, self.steps >= 25, {}


class SoundRail(Rail):
    FAULT = False


KIND = "corral"
ENV, TRAINER, MODEL = "Rail", None, None
JUDGE = "SoundRail"  # both are scored by its rewards
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}", trainer="ippo", steps=40000, seed=seed, out=out, progress=False
    )


def train(out, seed=0):
    return _train("Rail", out, seed)


def sound(out, seed=0):
    return _train("SoundRail", out, seed)
