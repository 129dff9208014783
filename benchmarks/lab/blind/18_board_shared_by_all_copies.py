"""The board is a class attribute that is changed in place, so all copies of the environment play on
one and the same board.

Source: no thread; seen in practice
Harmful: yes, in training the board changes under the agent's feet
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

import corral


class Lights(gym.Env):
    """Five lamps: switch all of them on; a switch turns one lamp on or off."""

    FAULT = True
    lamps = np.zeros(5, np.int64)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Box(0, 1, (5,), np.float32)
        self.action_space = Discrete(5)
        if not self.FAULT:
            self.lamps = np.zeros(5, np.int64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.lamps[:] = self.np_random.integers(0, 2, 5)
        self.steps = 0
        return self.lamps.astype(np.float32), {}

    def step(self, action):
        self.lamps[action] = 1 - self.lamps[action]
        self.steps += 1
        done = bool(self.lamps.all())
        return self.lamps.astype(np.float32), 1.0 if done else -0.1, done, self.steps >= 20, {}


class SoundLights(Lights):
    FAULT = False


KIND = "corral"
ENV, TRAINER, MODEL = "Lights", None, None
JUDGE = "SoundLights"  # both are scored by its rewards
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}", trainer="ippo", steps=30000, seed=seed, out=out, progress=False
    )


def train(out, seed=0):
    return _train("Lights", out, seed)


def sound(out, seed=0):
    return _train("SoundLights", out, seed)
