"""Each copy of the environment keeps a running mean and deviation of its own observations, starting
at zero, so the same state looks different in every copy, and in evaluation.

Source: https://github.com/kuds/mesozoic-labs/pull/131
Harmful: perhaps, for as long as the statistics have not settled
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

import corral


class Gauge(gym.Env):
    """A needle between 100 and 300; push the lever of the quarter in which it stands."""

    FAULT = True

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Box(-10, 10, (1,), np.float32)
        self.action_space = Discrete(4)
        self.seen = []

    def _observe(self):
        self.needle = self.np_random.uniform(100, 300)
        self.seen = [*self.seen[-3:], self.needle]
        if self.FAULT:
            mean, spread = np.mean(self.seen), np.std(self.seen) + 1e-8
        else:
            mean, spread = 200.0, 60.0
        return np.array([np.clip((self.needle - mean) / spread, -10, 10)], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        right = int((self.needle - 100) // 50) == action
        self.steps += 1
        return self._observe(), float(right), False, self.steps >= 15, {}


class SoundGauge(Gauge):
    FAULT = False


KIND = "corral"
ENV, TRAINER, MODEL = "Gauge", None, None
JUDGE = "Gauge"  # both are scored by its rewards
SOUND_JUDGE = "SoundGauge"
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}", trainer="ippo", steps=30000, seed=seed, out=out, progress=False
    )


def train(out, seed=0):
    return _train("Gauge", out, seed)


def sound(out, seed=0):
    return _train("SoundGauge", out, seed)
