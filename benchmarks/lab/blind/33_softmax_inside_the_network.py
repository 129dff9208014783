"""The own network ends in a softmax and the trainer puts its own logits and softmax on top, so the
features are small and almost equal.

Source: https://github.com/suragnair/alpha-zero-general/issues/45
Harmful: partly: learning is slower
"""

from pathlib import Path

import torch
from torch import nn

import corral


class Net(nn.Module):
    out_features = 64
    FAULT = True

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.LazyLinear(64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())

    def forward(self, obs):
        x = torch.cat([o.flatten(1) for o in (obs.values() if isinstance(obs, dict) else [obs])], 1)
        x = self.layers(x)
        return torch.softmax(x, dim=1) if self.FAULT else x


class SoundNet(Net):
    FAULT = False


def make(observation_space, *, role):
    return Net()


def make_sound(observation_space, *, role):
    return SoundNet()


KIND = "corral"
ENV, TRAINER, MODEL = "CartPole-v1", None, "make"
JUDGE = "CartPole-v1"
HERE = Path(__file__)


def _train(model, out, seed):
    return corral.train(
        "CartPole-v1",
        trainer="ippo",
        model=f"{HERE}:{model}",
        steps=24000,
        seed=seed,
        out=out,
        progress=False,
        num_envs=8,
    )


def train(out, seed=0):
    return _train("make", out, seed)


def sound(out, seed=0):
    return _train("make_sound", out, seed)
