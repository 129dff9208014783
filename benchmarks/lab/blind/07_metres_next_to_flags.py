"""One feature is a position in millimetres up to 100,000 and the others are flags of 0 and 1;
nothing scales them, so the network hears only the position.

Source: https://github.com/hill-a/stable-baselines/issues/694
Harmful: yes, the flags that decide are drowned
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

import corral


class Sorter(gym.Env):
    """Parcels on a belt: two flags say into which of four chutes each one goes."""

    FAULT = True

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Box(0, 100_000, (3,), np.float32)
        self.action_space = Discrete(4)

    def _observe(self):
        self.flags = self.np_random.integers(0, 2, 2)
        place = self.np_random.uniform(0, 100_000)
        return np.array([place if self.FAULT else place / 100_000, *self.flags], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        right = action == 2 * self.flags[0] + self.flags[1]
        self.steps += 1
        return self._observe(), float(right), False, self.steps >= 20, {}


class SoundSorter(Sorter):
    FAULT = False


KIND = "corral"
ENV, TRAINER, MODEL = "Sorter", None, None
JUDGE = "Sorter"  # both are scored by its rewards
SOUND_JUDGE = "SoundSorter"
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}", trainer="ippo", steps=20000, seed=seed, out=out, progress=False
    )


def train(out, seed=0):
    return _train("Sorter", out, seed)


def sound(out, seed=0):
    return _train("SoundSorter", out, seed)
