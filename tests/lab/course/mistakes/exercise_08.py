"""Wrong answers to exercise 8, each named after its mistake."""

import torch
from torch import nn


class Base(nn.Module):
    def __init__(self, features, actions):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, 24), nn.ReLU(), nn.Linear(24, 24), nn.Tanh())
        self.out = nn.Linear(24, actions)


class MaskForgotten(Base):
    def forward(self, observation, mask):
        return self.out(self.body(observation))


class DeadEncoder(Base):
    def forward(self, observation, mask):
        with torch.no_grad():
            features = self.body(observation)
        return torch.where(mask, self.out(features), -torch.inf)


class OneOutput(Base):
    def __init__(self, features, actions):
        super().__init__(features, 1)

    def forward(self, observation, mask):
        logit = self.out(self.body(observation))
        return logit.repeat(1, mask.shape[1]).masked_fill(~mask, -1e9)


class Logarithm(Base):
    def forward(self, observation, mask):
        probs = torch.softmax(self.out(self.body(observation)), -1) * mask.float()
        return torch.log(probs / probs.sum(-1, keepdim=True))


mask_forgotten = MaskForgotten
dead_encoder = DeadEncoder
one_output_for_all = OneOutput
logarithm_of_zero = Logarithm


class NoHiddenLayer(nn.Module):
    def __init__(self, features, actions):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, 8), nn.Linear(8, actions))

    def forward(self, observation, mask):
        return self.net(observation).masked_fill(~mask, -1e9)


class LayersInAList(nn.Module):
    def __init__(self, features, actions):
        super().__init__()
        self.net = [nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, actions)]

    def forward(self, observation, mask):
        for layer in self.net:
            observation = layer(observation)
        return observation.masked_fill(~mask, -1e9)


class HiddenLayersInAList(Base):
    def __init__(self, features, actions):
        super().__init__(features, actions)
        del self.body
        self.hidden = [nn.Linear(features, 24), nn.ReLU()]

    def forward(self, observation, mask):
        for layer in self.hidden:
            observation = layer(observation)
        return self.out(observation).masked_fill(~mask, -1e9)


class Probabilities(Base):
    def forward(self, observation, mask):
        return self.out(self.body(observation)).masked_fill(~mask, -torch.inf).softmax(dim=-1)


class ProbabilitiesOfAll(Base):
    def forward(self, observation, mask):
        return self.out(self.body(observation)).softmax(dim=-1).masked_fill(~mask, -1e9)


class Times(Base):
    def forward(self, observation, mask):
        return self.out(self.body(observation)) * mask


class Inverted(Base):
    def forward(self, observation, mask):
        return self.out(self.body(observation)).masked_fill(mask, -1e9)


no_hidden_layer = NoHiddenLayer
layers_not_registered = LayersInAList
layers_not_registered_2 = HiddenLayersInAList
probabilities_not_logits = Probabilities
probabilities_not_logits_2 = ProbabilitiesOfAll
logits_times_mask = Times
mask_inverted = Inverted
