"""The action space is declared as -1000 to 1000 while the heater clips to -1 to 1, so nearly every
action is full heat or full cold.

Source: https://github.com/hill-a/stable-baselines/issues/553
Harmful: yes, fine control is impossible
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

import corral


class Heater(gym.Env):
    """Keep a room at 20 degrees; heat is the action."""

    FAULT = True

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Box(-5, 5, (2,), np.float32)
        reach = 1000.0 if self.FAULT else 1.0
        self.action_space = Box(-reach, reach, (1,), np.float32)

    def _observe(self):
        return np.array([(self.room - 20) / 5, (self.outside - 10) / 5], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.room, self.outside = self.np_random.uniform(17, 23), self.np_random.uniform(5, 15)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        heat = float(np.clip(np.asarray(action).reshape(-1)[0], -1, 1))
        self.room += 0.1 * (self.outside - self.room) + 3.0 * heat
        self.outside += self.np_random.normal(0, 0.3)
        self.steps += 1
        return self._observe(), -abs(self.room - 20) / 3, False, self.steps >= 25, {}


class SoundHeater(Heater):
    FAULT = False


KIND = "corral"
ENV, TRAINER, MODEL = "Heater", None, None
JUDGE = "Heater"  # both are scored by its rewards
SOUND_JUDGE = "SoundHeater"
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}", trainer="ippo", steps=40000, seed=seed, out=out, progress=False
    )


def train(out, seed=0):
    return _train("Heater", out, seed)


def sound(out, seed=0):
    return _train("SoundHeater", out, seed)
