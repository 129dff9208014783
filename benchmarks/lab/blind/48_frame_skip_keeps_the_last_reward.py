"""A frame-skip wrapper repeats each action three times but returns the reward of the last repetition
only, and does not stop at the end of an episode.

Source: no thread; seen in practice
Harmful: partly: two thirds of the rewards, and most prizes, are lost
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

import corral


class Coins(gym.Env):
    """Walk along 30 places; coins lie on every third one, and a pit at the end costs 5."""

    FAULT = True

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Box(0, 1, (2,), np.float32)
        self.action_space = Discrete(3)  # stay, walk, run

    def _observe(self):
        return np.array([self.place / 30, self.steps / 12], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = int(self.np_random.integers(0, 3)), 0
        return self._observe(), {}

    def _frame(self, action):
        before, self.place = self.place, self.place + int(action)
        coins = self.place // 3 - before // 3
        if self.place >= 30:
            return -5.0, True
        return float(coins), False

    def step(self, action):
        self.steps += 1
        total, ended = 0.0, False
        for _ in range(3):
            reward, over = self._frame(action)
            ended = ended or over
            total = reward if self.FAULT else total + reward
            if over and not self.FAULT:
                break
        self.place = min(self.place, 30)
        return self._observe(), total, ended, self.steps >= 12, {}


class SoundCoins(Coins):
    FAULT = False


KIND = "sb3"
ENV, TRAINER, MODEL = "Coins", None, None
JUDGE = "SoundCoins"  # both are scored by its rewards
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}",
        trainer="sb3_ppo",
        steps=25000,
        seed=seed,
        out=out,
        progress=False,
        num_envs=8,
        n_steps=64,
        batch_size=128,
    )


def train(out, seed=0):
    return _train("Coins", out, seed)


def sound(out, seed=0):
    return _train("SoundCoins", out, seed)
