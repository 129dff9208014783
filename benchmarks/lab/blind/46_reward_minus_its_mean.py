"""A wrapper normalizes rewards with their running mean and deviation; in CartPole every reward is 1,
so what is left is zero.

Source: no thread; seen in practice
Harmful: yes, no reward is left
"""

from pathlib import Path

import gymnasium as gym
import numpy as np

import corral


class Pole(gym.Wrapper):
    FAULT = True

    def __init__(self, render_mode=None):
        super().__init__(gym.make("CartPole-v1", render_mode=render_mode))
        self.rewards = []

    def step(self, action):
        view, reward, terminated, truncated, info = self.env.step(action)
        if self.FAULT:
            self.rewards = [*self.rewards[-200:], reward]
            reward = (reward - np.mean(self.rewards)) / (np.std(self.rewards) + 1e-8)
        return view, float(reward), terminated, truncated, info


class SoundPole(Pole):
    FAULT = False


KIND = "sb3"
ENV, TRAINER, MODEL = "Pole", None, None
JUDGE = "SoundPole"  # both are scored by its rewards
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}",
        trainer="sb3_ppo",
        steps=20000,
        seed=seed,
        out=out,
        progress=False,
        num_envs=8,
        n_steps=64,
        batch_size=128,
    )


def train(out, seed=0):
    return _train("Pole", out, seed)


def sound(out, seed=0):
    return _train("SoundPole", out, seed)
