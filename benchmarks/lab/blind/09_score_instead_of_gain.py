"""Every step returns the total score so far as the reward, not what the step added to it.

Source: no thread; seen in practice
Harmful: partly: early points count many times, late ones and costs hardly
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

import corral


class Fields(gym.Env):
    """Collect berries: bush 0 gives 1 at once and is then bare; bush 1 grows and gives its age."""

    FAULT = True

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Box(0, 1, (2,), np.float32)
        self.action_space = Discrete(3)  # pick bush 0, pick bush 1, wait

    def _observe(self):
        return np.array([self.steps / 10, self.age / 10], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.age, self.score = 0, 0, 0.0
        return self._observe(), {}

    def step(self, action):
        self.steps += 1
        gain = 0.3 if action == 0 else self.age**2 / 10 - 0.5 if action == 1 else 0.0
        self.age = 0 if action == 1 else self.age + 1
        self.score += gain
        reward = self.score if self.FAULT else gain
        return self._observe(), reward, False, self.steps >= 10, {}


class SoundFields(Fields):
    FAULT = False


KIND = "corral"
ENV, TRAINER, MODEL = "Fields", None, None
JUDGE = "SoundFields"  # both are scored by its rewards
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}", trainer="ippo", steps=40000, seed=seed, out=out, progress=False, gamma=1.0
    )


def train(out, seed=0):
    return _train("Fields", out, seed)


def sound(out, seed=0):
    return _train("SoundFields", out, seed)
