"""The frame stack is not cleared at reset, so the first observations of an episode contain frames of
the one before.

Source: https://github.com/automl/DACBench/issues/94
Harmful: perhaps: only the first steps of an episode are affected
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

import corral


class Catch(gym.Env):
    """A ball falls eight rows; catch it. Three frames show where it goes; episodes are short."""

    FAULT = True

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Box(-1, 1, (9,), np.float32)
        self.action_space = Discrete(3)
        self.frames = np.zeros((3, 3), np.float32)

    def _observe(self):
        frame = np.array([self.ball / 5, self.row / 4 - 1, self.basket / 5], np.float32)
        self.frames = np.concatenate([self.frames[1:], frame[None]])
        return self.frames.reshape(-1).clip(-1, 1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.ball, self.row = self.np_random.uniform(-4, 4), 0
        self.drift, self.basket = self.np_random.choice([-0.8, 0.0, 0.8]), 0
        if not self.FAULT:
            self.frames[:] = 0
        return self._observe(), {}

    def step(self, action):
        self.row += 1
        self.ball = np.clip(self.ball + self.drift, -5, 5)
        self.basket = int(np.clip(self.basket + int(action) - 1, -5, 5))
        over = self.row == 8
        reward = 1.0 if over and abs(self.ball - self.basket) <= 1 else 0.0
        return self._observe(), reward, over, False, {}


class SoundCatch(Catch):
    FAULT = False


KIND = "sb3"
ENV, TRAINER, MODEL = "Catch", None, None
JUDGE = "Catch"  # both are scored by its rewards
SOUND_JUDGE = "SoundCatch"
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}",
        trainer="sb3_ppo",
        steps=30000,
        seed=seed,
        out=out,
        progress=False,
        num_envs=8,
        n_steps=64,
        batch_size=128,
    )


def train(out, seed=0):
    return _train("Catch", out, seed)


def sound(out, seed=0):
    return _train("SoundCatch", out, seed)
