"""Trainers that were tried against greedy play far below sampled play. LOG.md has the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from corral import algorithms
from corral.trainers.on_policy.learner import Learner
from corral.trainers.on_policy.players import LearnedPlayer
from corral.trainers.on_policy.records import Advantages, Losses, Trajectories
from corral.trainers.on_policy.settings import MAPPOSettings
from corral.trainers.on_policy.trainer import MAPPO
from corral.trainers.settings import setting

__all__ = ["HAPPO", "Leaning", "Sharpening", "entropy_cost"]


class HAPPO(MAPPO):  # type: ignore[misc,valid-type]
    """Sequential updates of separate policies, in a fixed order.

    Kuba et al., Trust Region Policy Optimisation in Multi-Agent Reinforcement Learning (2022),
    equation 30: an agent's advantage is multiplied by the probability ratios of the agents that
    were updated before it.
    """

    name = "happo"

    def update_policy(self, i: int, learner: Learner) -> dict[str, float]:
        """Update a policy with the ratios of the earlier ones, and include its own."""
        if i == 0:
            self.ratio = np.ones(self.rollout.reward.shape[:2], dtype=np.float32)  # [T, B]

        def advantages(trajectories: Trajectories, settings: Any) -> Advantages:
            own = algorithms.mappo.advantages(trajectories, settings)
            return Advantages(own.advantage * self.ratio, own.value_target)

        self.algorithm = algorithms.mappo.but(advantages=advantages)  # type: ignore[misc]
        metrics: dict[str, float] = super().update_policy(i, learner)
        buffer = self.rollout.groups[i]
        rows = np.flatnonzero(buffer.acted)
        parts, mask = buffer.tensors(slice(None, -1), rows, learner.device)
        actions = learner.tensor(buffer.action[:-1].reshape(buffer.acted.size, -1)[rows, 0])
        with torch.no_grad():
            new = learner.distribution(learner.actor(parts), mask).log_prob(actions)
        change = new.cpu().numpy() - buffer.log_prob.reshape(-1)[rows]
        self.ratio.reshape(-1)[rows] *= np.exp(change)
        return metrics


# --- More greedy play while learning -------------------------------------------------------------


@dataclass(frozen=True)
class LeaningSettings(MAPPOSettings):
    greedy_share: float = setting(0.9, "Final share of greedy decisions.", least=0, most=1)
    greedy_from: float = setting(0.5, "Share of the run at which they begin.", least=0, most=1)
    greedy_to: float = setting(0.9, "Share of the run at which they are final.", least=0)


class LeaningPlayer(LearnedPlayer):
    """Plays a share of its decisions greedily, and samples the others."""

    share = 0.0

    def _sample(self, *arguments: Any) -> Any:
        distribution, sampled, after = super()._sample(*arguments)
        if self.share:
            greedy = torch.rand(len(sampled), generator=self.rng) < self.share
            sampled = torch.where(greedy, distribution.mode, sampled)
        return distribution, sampled, after


class Leaning(MAPPO):  # type: ignore[misc,valid-type]
    """Plays a growing share of its decisions greedily while it learns.

    The critic then learns the values of nearly greedy play. An action that has no effect if it is
    repeated gets a low advantage.
    """

    name = "leaning"
    Settings = LeaningSettings

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.players = [
            LeaningPlayer(player.learner, player.hidden, player.rng) for player in self.players
        ]

    def collect(self) -> Any:
        """Play a rollout with the current share of greedy decisions."""
        begin, end = self.settings.greedy_from, self.settings.greedy_to
        reached = _reached(self.env_steps / self.steps, begin, end)
        for player in self.players:
            player.share = self.settings.greedy_share * reached
        return super().collect()


# --- A sharpening phase --------------------------------------------------------------------------


@dataclass(frozen=True)
class SharpeningSettings(MAPPOSettings):
    sharpen: float = setting(10.0, "Factor of the logits at the end.", least=1)
    sharpen_from: float = setting(0.7, "Share of the run at which it begins.", least=0, below=1)
    sharpen_to: float = setting(0.9, "Share of the run at which it is reached.", above=0, most=1)


class Sharpening(MAPPO):  # type: ignore[misc,valid-type]
    """Multiplies the actor's logits by a growing factor towards the end of the run."""

    name = "sharpening"
    Settings = SharpeningSettings

    def update_policy(self, i: int, learner: Learner) -> dict[str, float]:
        """Update a policy, then sharpen it."""
        metrics: dict[str, float] = super().update_policy(i, learner)
        settings = self.settings
        now, later = (
            _reached(steps / self.steps, settings.sharpen_from, settings.sharpen_to)
            for steps in (self.env_steps, self.env_steps + self.rollout_steps)
        )
        with torch.no_grad():
            for parameter in (learner.actor.head.weight, learner.actor.head.bias):
                parameter.mul_(settings.sharpen ** (later - now))
        return metrics


def entropy_cost(minibatch: Any, outputs: Any, settings: Any) -> Losses:
    """Return PPO's losses, and a cost of entropy that grows from 0 to 0.03 in the last fifth."""
    terms = dict(algorithms.ppo_loss(minibatch, outputs, settings).terms)
    weight = 0.03 * _reached(minibatch.progress, 0.8, 1.0)
    return Losses({**terms, "entropy_cost": weight * outputs.entropy})


def _reached(progress: float, begin: float, end: float) -> float:
    """Return the completed share of the phase from ``begin`` to ``end``."""
    return min(max((progress - begin) / (end - begin), 0.0), 1.0)
