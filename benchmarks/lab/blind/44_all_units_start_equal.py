"""The own network starts with the same weight in every connection, so all units of a layer compute
the same and learn the same.

Source: no thread; seen in practice
Harmful: partly: each layer is one unit wide
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

import corral


class Chess(gym.Env):
    """Name the colour of a field (equal signs or not) and which half it is in."""

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Box(-1, 1, (2,), np.float32)
        self.action_space = Discrete(4)

    def _observe(self):
        self.field = self.np_random.uniform(-1, 1, 2)
        return self.field.astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        equal, half = self.field[0] * self.field[1] > 0, self.field[0] > 0
        self.steps += 1
        return self._observe(), float(action == 2 * equal + half), False, self.steps >= 15, {}


class Net(nn.Module):
    out_features = 64
    FAULT = True

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.LazyLinear(64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.layers = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        if self.FAULT:
            for layer in (self.layers[0], self.layers[2]):
                nn.init.constant_(layer.weight, 0.05)
                nn.init.constant_(layer.bias, 0.01)

    def forward(self, obs):
        x = torch.cat([o.flatten(1) for o in (obs.values() if isinstance(obs, dict) else [obs])], 1)
        return self.layers(x)


class SoundNet(Net):
    FAULT = False


def make(observation_space, *, role):
    return Net()


def make_sound(observation_space, *, role):
    return SoundNet()


KIND = "corral"
ENV, TRAINER, MODEL = "Chess", None, "make"
JUDGE = "Chess"
HERE = Path(__file__)


def _train(model, out, seed):
    return corral.train(
        f"{HERE}:Chess",
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
