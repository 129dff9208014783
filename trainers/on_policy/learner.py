"""One policy that learns: who plays it, its networks, and what trains them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from corral.adapters.masked_distribution import Distribution, make_distribution
from corral.adapters.networks import Network
from corral.adapters.spaces import ActionCodec, ObservationCodec
from corral.envs.core import Rules
from corral.errors import UnsupportedSpaceError
from corral.trainers.on_policy.buffer import Seat
from corral.trainers.on_policy.settings import IPPOSettings
from corral.trainers.on_policy.value_norm import ValueNorm

__all__ = ["CriticInput", "Learner", "device_of", "make_seats"]

CriticInput = tuple[int, Sequence[tuple[int, int, int]], Sequence[float]]
"""What a critic sees: the columns of its vector, its images, and what scales them."""


class Learner(nn.Module):
    """One policy: its actor, its critic, and what trains them."""

    def __init__(
        self,
        seat: Seat,
        settings: IPPOSettings,
        critic_sees: CriticInput,
        *,
        rng: torch.Generator,
        device: torch.device,
        trained: bool,
    ) -> None:
        super().__init__()
        self.seat = seat
        self.device = device
        self.trained = trained
        self.kl_coef = settings.kl_coef

        def network(width: int, *images: Any, outputs: int, gain: float) -> Network:
            return Network(
                width,
                *images,
                outputs=outputs,
                gain=gain,
                net_arch=settings.net_arch,
                activation=settings.activation,
                memory=settings.memory,
                cnn_arch=settings.cnn_arch,
                cnn_patch=settings.cnn_patch,
                generator=rng,
            )

        layout, actions = seat.layout, seat.actions
        width = layout.width + seat.identities
        scales = layout.scales
        self.actor = network(width, layout.images, scales, outputs=actions.outputs, gain=0.01)
        self.critic = network(*critic_sees, outputs=1, gain=1.0)
        self.log_std: nn.Parameter | None = None
        if actions.continuous:
            first = torch.full((actions.outputs,), math.log(settings.action_std))
            self.log_std = nn.Parameter(first)
        self.value_norm = ValueNorm(settings.value_decay, settings.normalize_values)
        self.to(device)
        own = [] if self.log_std is None else [self.log_std]
        self.actor_parameters = [*self.actor.parameters(), *own]
        self.critic_parameters = list(self.critic.parameters())
        self.optimizer = torch.optim.Adam(self.parameters(), lr=1.0, eps=1e-5, fused=True)

    def distribution(self, outputs: torch.Tensor, mask: torch.Tensor) -> Distribution:
        """What is played: of the actor's ``outputs`` [R, ...] and ``mask`` bool [R, ...]."""
        return make_distribution(self.seat.actions, outputs, mask, self.log_std)


def make_seats(rules: Rules[Any], policies: Mapping[str, str], agent_id: bool) -> list[Seat]:
    """A seat for each policy. Raises UnsupportedSpaceError where its agents differ."""
    seats = []
    agents = list(rules.agents)
    for name in dict.fromkeys(policies.values()):
        own = [agent for agent in agents if policies[agent] == name]
        spaces = {
            agent: (rules.observation_space(agent), rules.action_space(agent)) for agent in own
        }
        for agent in own[1:]:
            for first, other in zip(spaces[own[0]], spaces[agent], strict=True):
                if first != other:
                    raise UnsupportedSpaceError(
                        f"policy {name} plays {own[0]} with {first} and {agent} with {other}: "
                        "agents of one policy must be alike. Give policies='separate', or a "
                        "mapping that keeps them apart"
                    )
        seen, played = spaces[own[0]]
        layout, actions = ObservationCodec.of(own[0], seen), ActionCodec(own[0], played)
        actions.require_mask(own[0], seen)
        places = np.array([agents.index(agent) for agent in own])
        identities = len(own) if agent_id and len(own) > 1 else 0
        seats.append(Seat(name, tuple(own), places, layout, actions, identities))
    return seats


def device_of(name: str, seats: Sequence[Seat]) -> torch.device:
    """Small networks are faster on the CPU: "auto" takes CUDA for images alone."""
    if name == "auto":
        pictures = any(seat.layout.images for seat in seats)
        name = "cuda" if pictures and torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda': torch finds no CUDA device here; give 'cpu' or 'auto'")
    return torch.device(name)
