"""The mask is filled with range(n - 1), so the last action, which is the best one in most states, is
never allowed.

Source: no thread; seen in practice
Harmful: yes, the best action is out of reach
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

import corral


class Shop(gym.Env):
    """Sell up to as many pieces as there are; each sold piece pays 1, what is left spoils."""

    FAULT = True

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Box(0, 1, (4,), np.float32)
        self.action_space = Discrete(4)

    def _result(self):
        self.stock = int(self.np_random.integers(1, 4))
        mask = np.zeros(4, np.int8)
        for pieces in range(self.stock if self.FAULT else self.stock + 1):
            mask[pieces] = 1
        return np.eye(4, dtype=np.float32)[self.stock], {"action_mask": mask}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._result()

    def step(self, action):
        reward = float(action) - 0.5 * (self.stock - action)
        self.steps += 1
        view, info = self._result()
        return view, reward, False, self.steps >= 20, info


class SoundShop(Shop):
    FAULT = False


KIND = "sb3"
ENV, TRAINER, MODEL = "Shop", None, None
JUDGE = "Shop"  # both are scored by its rewards
SOUND_JUDGE = "SoundShop"
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}",
        trainer="sb3_maskable_ppo",
        steps=15000,
        seed=seed,
        out=out,
        progress=False,
        num_envs=8,
        n_steps=64,
        batch_size=128,
    )


def train(out, seed=0):
    return _train("Shop", out, seed)


def sound(out, seed=0):
    return _train("SoundShop", out, seed)
