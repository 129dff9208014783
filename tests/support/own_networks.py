"""Networks as a user writes them: sound ones, and one for each fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from corral.envs.core import Array


def leaves(tree: Any) -> Iterator[Any]:
    """All tensors of an observation, Dicts by their keys."""
    if isinstance(tree, dict):
        for key in sorted(tree):
            yield from leaves(tree[key])
    elif isinstance(tree, tuple):
        for part in tree:
            yield from leaves(part)
    else:
        yield tree


class Flat(nn.Module):
    """One layer for everything that is observed."""

    def __init__(self, units: int = 6) -> None:
        super().__init__()
        self.out_features = units
        self.layer = nn.LazyLinear(units)

    def join(self, obs: Any) -> torch.Tensor:
        return torch.cat([each.reshape(len(each), -1).float() for each in leaves(obs)], dim=1)

    def forward(self, obs: Any) -> Any:
        return self.layer(self.join(obs)).tanh()


def make(observation_space: Any, *, role: str) -> nn.Module:
    return Flat()


def made_of(forward: Callable[[Flat, Any], Any]) -> Callable[..., nn.Module]:
    """A make whose networks have another ``forward``."""
    kind = type("Changed", (Flat,), {"forward": forward})
    return lambda observation_space, *, role: kind()


def with_parts(**parts: Callable[[], nn.Module]) -> Callable[..., nn.Module]:
    """A make whose networks have other modules besides."""

    def make_it(observation_space: Any, *, role: str) -> nn.Module:
        network = Flat()
        for name, part in parts.items():
            setattr(network, name, part())
        return network

    return make_it


class Counting(Flat):
    """Has a buffer that says how its features are scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.rand(6))

    def forward(self, obs: Any) -> Any:
        return super().forward(obs) * self.scale


def weights_of(network: nn.Module) -> list[Array]:
    return [values.detach().numpy().copy() for values in network.parameters()]
