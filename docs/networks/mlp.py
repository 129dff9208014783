"""The smallest network of one's own: corral train dfaas_v0 --model docs/networks/mlp.py:make."""

import torch
from torch import nn


class MLP(nn.Module):
    out_features = 64

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.LazyLinear(64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())

    def forward(self, obs):
        entries = obs.values() if isinstance(obs, dict) else [obs]
        return self.layers(torch.cat([entry.flatten(1) for entry in entries], dim=1))


def make(observation_space, *, role):
    return MLP()
