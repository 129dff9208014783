import torch
from torch import nn

from corral.adapters.masked_distribution import masked_logits


class Actor(nn.Module):
    def __init__(self, features, actions):
        super().__init__()
        self.first = nn.Linear(features, 32)
        self.second = nn.Linear(32, 32)
        self.logits = nn.Linear(32, actions)

    def forward(self, observation, mask):
        hidden = torch.relu(self.first(observation))
        hidden = torch.tanh(self.second(hidden))
        return masked_logits(self.logits(hidden), mask)


def make_actor(features, actions):
    return Actor(features, actions)
