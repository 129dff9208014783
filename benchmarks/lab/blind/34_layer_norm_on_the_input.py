"""A LayerNorm stands in front of the first layer; the observation has two numbers of which only the
order survives it.

Source: no thread; seen in practice
Harmful: yes, how far the needle is from the middle is lost
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

import corral


class Scales(gym.Env):
    """Two weights; name the quarter in which the difference between them lies."""

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Box(-1, 1, (2,), np.float32)
        self.action_space = Discrete(4)

    def _observe(self):
        self.weights = self.np_random.uniform(-1, 1, 2)
        return self.weights.astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        difference = self.weights[0] - self.weights[1]
        quarter = int(np.digitize(difference, [-0.6, 0.0, 0.6]))
        self.steps += 1
        return self._observe(), float(action == quarter), False, self.steps >= 15, {}


class Net(nn.Module):
    out_features = 64
    FAULT = True

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.LazyLinear(64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.norm = nn.LayerNorm(2, elementwise_affine=False)

    def forward(self, obs):
        x = torch.cat([o.flatten(1) for o in (obs.values() if isinstance(obs, dict) else [obs])], 1)
        return self.layers(self.norm(x) if self.FAULT else x)


class SoundNet(Net):
    FAULT = False


def make(observation_space, *, role):
    return Net()


def make_sound(observation_space, *, role):
    return SoundNet()


KIND = "corral"
ENV, TRAINER, MODEL = "Scales", None, "make"
JUDGE = "Scales"
HERE = Path(__file__)


def _train(model, out, seed):
    return corral.train(
        f"{HERE}:Scales",
        trainer="ippo",
        model=f"{HERE}:{model}",
        steps=30000,
        seed=seed,
        out=out,
        progress=False,
    )


def train(out, seed=0):
    return _train("make", out, seed)


def sound(out, seed=0):
    return _train("make_sound", out, seed)
