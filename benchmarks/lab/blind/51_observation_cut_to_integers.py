"""The observation is put into an array of integers (the first reading happened to be 0), which cuts
off all decimals.

Source: no thread; seen in practice
Harmful: yes, nearly every observation is zero
"""

from pathlib import Path

import gymnasium as gym
import numpy as np

import corral


class Pole(gym.Wrapper):
    FAULT = True

    def __init__(self, render_mode=None):
        super().__init__(gym.make("CartPole-v1", render_mode=render_mode))
        self.readings = np.array([0, 0, 0, 0])

    def _read(self, view):
        if not self.FAULT:
            return view
        self.readings[:] = view
        return self.readings.astype(np.float32)

    def reset(self, **kwargs):
        view, info = self.env.reset(**kwargs)
        return self._read(view), info

    def step(self, action):
        view, *rest = self.env.step(action)
        return self._read(view), *rest


class SoundPole(Pole):
    FAULT = False


KIND = "sb3"
ENV, TRAINER, MODEL = "Pole", None, None
JUDGE = "Pole"  # both are scored by its rewards
SOUND_JUDGE = "SoundPole"
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
