"""For tiles_v0, whose agents observe an image and a vector: three convolutions beside two layers.

corral train tiles_v0 --policies separate --model docs/networks/tiles.py:make
"""

import torch
from torch import nn


class ImageAndVector(nn.Module):
    """Features of "image" [R, C, H, W] and "vector" [R, F], one after the other."""

    def __init__(self, space, more=0):
        super().__init__()
        channels, *sides = space["image"].shape
        layers = []
        for filters in (32, 64, 128):
            layers += [nn.Conv2d(channels, filters, kernel_size=4, stride=2), nn.ReLU()]
            channels, sides = filters, [(side - 4) // 2 + 1 for side in sides]
        self.image = nn.Sequential(*layers, nn.Flatten())
        numbers = space["vector"].shape[0] + more
        self.vector = nn.Sequential(nn.Linear(numbers, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.out_features = 128 * sides[0] * sides[1] + 64

    def forward(self, obs, *more):
        vector = torch.cat([obs["vector"], *more], dim=1)
        return torch.cat([self.image(obs["image"]), self.vector(vector)], dim=1)


class WithState(nn.Module):
    """The same for mappo's critic, which observes the global state besides."""

    def __init__(self, space):
        super().__init__()
        self.own = ImageAndVector(space["observation"], more=space["state"].shape[0])
        self.out_features = self.own.out_features

    def forward(self, obs):
        return self.own(obs["observation"], obs["state"])


def make(observation_space, *, role):
    if role == "critic":
        return WithState(observation_space)
    return ImageAndVector(observation_space)
