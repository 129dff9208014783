"""The observation has the number of steps since the environment was made, divided by 100, which
grows without end instead of starting anew in each episode.

Source: no thread; seen in practice
Harmful: perhaps: the input leaves the range in which the network was trained
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

import corral


class Tide(gym.Env):
    """A ferry may leave at high water, every fourth hour of the day; the clock tells the hour."""

    FAULT = True

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = Discrete(2)
        self.clock = 0

    def _observe(self):
        clock = self.clock if self.FAULT else self.hour
        water = np.sin(self.hour * np.pi / 2), np.cos(self.hour * np.pi / 2)
        return np.array([clock / 100, *water], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.hour = int(self.np_random.integers(4))
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        high = self.hour % 4 == 3
        reward = (1.0 if high else -0.5) if action == 1 else 0.0
        self.hour, self.clock, self.steps = self.hour + 1, self.clock + 1, self.steps + 1
        return self._observe(), reward, False, self.steps >= 20, {}


class SoundTide(Tide):
    FAULT = False


KIND = "corral"
ENV, TRAINER, MODEL = "Tide", None, None
JUDGE = "Tide"  # both are scored by its rewards
SOUND_JUDGE = "SoundTide"
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}", trainer="ippo", steps=60000, seed=seed, out=out, progress=False
    )


def train(out, seed=0):
    return _train("Tide", out, seed)


def sound(out, seed=0):
    return _train("SoundTide", out, seed)
