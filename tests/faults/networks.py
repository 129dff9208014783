"""Mistakes in networks: what they leave out, what is cut from the gradient, what is dead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from corral.adapters.networks import Network, Parts
from corral.trainers.on_policy.trainer import IPPO, MAPPO
from corral.trainers.runs.run import Run
from faults.fault import fault, trained
from faults.sound import Pictured, depots


class Columns(nn.Module):
    """Layers for all columns of a vector, or for ``some`` of them."""

    out_features = 16

    def __init__(self, width: int, some: Any = slice(None), activation: Any = nn.Tanh) -> None:
        super().__init__()
        self.some = some
        self.layers = nn.Sequential(nn.Linear(width, 16), activation())

    def forward(self, obs: Any) -> torch.Tensor:
        while isinstance(obs, dict):
            obs = obs["observation"] if "observation" in obs else next(iter(obs.values()))
        found: torch.Tensor = self.layers(obs[:, self.some])
        return found


def whole(observation_space: Any) -> int:
    while not hasattr(observation_space, "low"):
        observation_space = observation_space["observation"]
    return int(observation_space.shape[0])


# --- Left out ------------------------------------------------------------------------------------


def without_capacity(observation_space: Any, *, role: str) -> nn.Module:
    return Columns(whole(observation_space) - 1, [0, 2, 3])


@fault("observation-ignored")
def capacity_not_fed(folder: Path) -> Run:
    """A network of one's own leaves a column of the observation out."""
    return trained(folder, depots(), model=without_capacity, trainer="ippo")


class Rounds(Columns):
    def forward(self, obs: Any) -> torch.Tensor:
        scale = torch.tensor([1.0, 0.0, 1.0, 1.0])
        found: torch.Tensor = self.layers(obs * scale)
        return found


def multiplied_away(observation_space: Any, *, role: str) -> nn.Module:
    return Rounds(whole(observation_space))


@fault("observation-ignored")
def capacity_scaled_to_zero(folder: Path) -> Run:
    """A column is multiplied by a scale that was rounded to 0."""
    return trained(folder, depots(), model=multiplied_away, trainer="ippo")


class NoCapacity(Network):
    def encode(self, parts: Parts) -> torch.Tensor:
        vector = parts[0].clone()
        vector[:, 1] = 0.0
        return super().encode([vector, *parts[1:]])


def actor_of(kind: type[Network], base: type[MAPPO] = IPPO) -> type[MAPPO]:
    """A trainer whose actors are of another kind."""

    def __init__(self: Any, *given: Any, **named: Any) -> None:
        base.__init__(self, *given, **named)
        for learner in self.learners.values():
            learner.actor.__class__ = kind

    return type("With" + kind.__name__, (base,), {"__init__": __init__})


@fault("observation-ignored")
def capacity_overwritten_in_the_encoder(folder: Path) -> Run:
    """The encoder writes 0 over a column before its first layer."""
    return trained(folder, depots(), trainer=actor_of(NoCapacity), memory=8)


class NoIdentity(Network):
    def encode(self, parts: Parts) -> torch.Tensor:
        vector = parts[0].clone()
        vector[:, -3:] = 0.0
        return super().encode([vector, *parts[1:]])


@fault("observation-ignored")
def identity_not_fed(folder: Path) -> Run:
    """The columns that tell which agent it is do not reach the layers."""
    return trained(folder, depots(), trainer=actor_of(NoIdentity))


# --- Cut from the gradient -----------------------------------------------------------------------


class Detached(Network):
    def encode(self, parts: Parts) -> torch.Tensor:
        pictures = [
            cnn(image.float() / 255).detach()
            for cnn, image in zip(self.cnns, parts[1:], strict=True)
        ]
        found: torch.Tensor = self.layers(torch.cat([parts[0], *pictures], dim=-1))
        return found


@fault("no-gradient")
def image_branch_detached(folder: Path) -> Run:
    """The features of images are detached before they are joined to the vector."""
    return trained(folder, depots(Pictured), trainer=actor_of(Detached))


class Pictures(nn.Module):
    """Joins features of the picture to the vector."""

    out_features = 16

    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(100, 8))
        self.join = nn.Linear(9, 16)

    def features(self, bars: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.look(bars)
        return found

    def forward(self, obs: Any) -> torch.Tensor:
        return self.join(torch.cat([obs["capacity"], self.features(obs["bars"])], dim=1)).tanh()


class NoGrad(Pictures):
    def features(self, bars: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return super().features(bars)


def no_grad(observation_space: Any, *, role: str) -> nn.Module:
    return NoGrad() if role == "actor" else Pictures()


@fault("no-gradient")
def own_image_branch_without_gradient(folder: Path) -> Run:
    """A network of one's own runs its convolutions under no_grad."""
    return trained(folder, depots(Pictured), model=no_grad, trainer="ippo")


class Unused(Pictures):
    def forward(self, obs: Any) -> torch.Tensor:
        features = self.features(obs["bars"]) * 0.0
        return self.join(torch.cat([obs["capacity"], features], dim=1)).tanh()


def unused(observation_space: Any, *, role: str) -> nn.Module:
    return Unused() if role == "actor" else Pictures()


@fault("no-gradient", "observation-ignored")
def image_multiplied_by_zero(folder: Path) -> Run:
    """The features of the picture are weighed with 0."""
    return trained(folder, depots(Pictured), model=unused, trainer="ippo")


class VectorOnly(nn.Module):
    out_features = 16

    def __init__(self) -> None:
        super().__init__()
        self.join = nn.Linear(1, 16)

    def forward(self, obs: Any) -> torch.Tensor:
        return self.join(obs["capacity"]).tanh()


def blind(observation_space: Any, *, role: str) -> nn.Module:
    return VectorOnly() if role == "actor" else Pictures()


@fault("observation-ignored")
def image_not_read(folder: Path) -> Run:
    """A network of one's own reads the vector and forgets the picture."""
    return trained(folder, depots(Pictured), model=blind, trainer="ippo")


def frozen(observation_space: Any, *, role: str) -> nn.Module:
    made = Pictures()
    for parameter in made.look.parameters():
        parameter.requires_grad_(False)
    return made


@fault("frozen-weights", sure=False)
def image_branch_frozen(folder: Path) -> Run:
    """The convolutions keep requires_grad=False from a former experiment."""
    return trained(folder, depots(Pictured), model=frozen, trainer="ippo")


# --- Dead ----------------------------------------------------------------------------------------


def killed(folder: Path, env: Any, kind: type, bias: float, **given: Any) -> Run:
    """A run whose first layer of the actor begins with a bias of its own."""

    def __init__(self: Any, *positional: Any, **named: Any) -> None:
        IPPO.__init__(self, *positional, **named)
        for learner in self.learners.values():
            first = next(m for m in learner.actor.modules() if isinstance(m, kind))
            nn.init.constant_(first.bias, bias)

    return trained(folder, env, trainer=type("Killed", (IPPO,), {"__init__": __init__}), **given)


@fault("dead-layer")
def dead_encoder(folder: Path) -> Run:
    """A large negative bias lets no unit of the first layer fire."""
    return killed(folder, depots(), nn.Linear, -100.0, activation="relu")


@fault("dead-layer")
def dead_convolutions(folder: Path) -> Run:
    """No filter of the first convolution fires."""
    return killed(folder, depots(Pictured), nn.Conv2d, -100.0)


@fault("dead-layer")
def saturated_encoder(folder: Path) -> Run:
    """Every unit of the first layer is saturated."""
    return killed(folder, depots(), nn.Linear, 1000.0, activation="tanh")


class Functional(Columns):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.first, self.second = nn.Linear(width, 16), nn.Linear(16, 16)
        nn.init.constant_(self.first.bias, -50.0)
        del self.layers

    def forward(self, obs: Any) -> torch.Tensor:
        found: torch.Tensor = self.second(torch.relu(self.first(obs))).tanh()
        return found


def functional(observation_space: Any, *, role: str) -> nn.Module:
    return Functional(whole(observation_space))


@fault("dead-layer", "no-gradient")
def dead_functional_relu(folder: Path) -> Run:
    """A network of one's own whose relu, a function, lets nothing through."""
    return trained(folder, depots(), model=functional, trainer="ippo")


# --- What raises ---------------------------------------------------------------------------------


class Breaks(IPPO):
    def update_minibatch(self, learner: Any, minibatch: Any, outputs: Any) -> Any:
        if self.env_steps:
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied (64x16 and 32x3)")
        return super().update_minibatch(learner, minibatch, outputs)


@fault("training-raises")
def raises_in_the_second_update(folder: Path) -> Run:
    """A trainer of one's own fails after its first update."""
    return trained(folder, depots(), updates=1, trainer=Breaks)
