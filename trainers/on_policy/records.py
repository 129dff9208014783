"""On-policy algorithms as records of functions: ``mappo`` and ``ippo``.

The trainer (``corral.trainers.on_policy.trainer``) plays, masks, values and takes minibatches; a
record says what is learned from them. Each function is pure, and is replaced by itself:

    from corral import algorithms as alg

    long_sighted = alg.mappo.but(name="long_sighted", advantages=alg.reward_to_go)
    Trainer = alg.trainer_of(long_sighted)

Every function is given the settings last, an instance of the record's ``Settings``. Masks and value
heads are the trainer's: a loss gets distributions over legal actions, and values. ``metrics`` and
``reports`` name the terms of the loss: replace them with it where its terms have other names.

A trainer is made, and trains, as in

    trainer = Trainer(rules, Trainer.Settings(), seed=0, policies={"agent_0": "shared", ...},
                      policies_to_train=["shared"], steps=100_000)
    for update in trainer.learn():
        print(update.env_steps, update.metrics)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from corral.adapters.masked_distribution import Distribution
from corral.envs.core import Array
from corral.trainers.on_policy import maths
from corral.trainers.on_policy.learner import Learner
from corral.trainers.on_policy.settings import IPPOSettings, MAPPOSettings

__all__ = [
    "PPO_REPORTS",
    "Advantages",
    "Losses",
    "Minibatch",
    "OnPolicy",
    "Outputs",
    "Over",
    "Trajectories",
    "adam",
    "adapt_kl",
    "beyond_target_kl",
    "clip_norm",
    "gae",
    "ippo",
    "mappo",
    "normalize",
    "ppo_loss",
    "ppo_metrics",
    "reward_to_go",
]

Over = Literal["update", "first_epoch", "last_epoch"]
"""The minibatches that a metric is averaged over."""


# --- What functions are given, and what they return ----------------------------------------------


@dataclass(frozen=True)
class Trajectories:
    """A rollout of one policy's agents, in C columns. See ``maths.gae`` for what they mean."""

    reward: Array  # float32 [T, C]
    value: Array  # float32 [T, C] of the observation before step t
    acted: Array  # bool [T, C]
    ended: Array  # bool [T, C] by the rules or the time limit
    final_obs_value: Array  # float32 [T, C] where ended: 0 by the rules, V(final obs) by the limit
    bootstrap_value: Array  # float32 [C] of the observation after the last step
    valid: Array  # bool [T, C] the decisions that are learned from


@dataclass(frozen=True)
class Advantages:
    """Advantages of the decisions of a rollout: float32 [T, C]; only valid ones count."""

    advantage: Array
    value_target: Array  # by the environment's scale


@dataclass(frozen=True)
class Minibatch:
    """R decisions that are learned from, as they were made."""

    action: torch.Tensor  # [R, ...]
    mask: torch.Tensor  # bool [R, A]
    log_prob: torch.Tensor  # float32 [R]
    advantage: torch.Tensor  # float32 [R]
    value_target: torch.Tensor  # float32 [R] by the critic's scale
    old_value: torch.Tensor  # float32 [R] by the critic's scale
    epoch: int  # of this update, from 0
    progress: float  # of the training: 0 at its beginning, 1 at its end
    kl_coef: float  # weight of the KL penalty, as adapted so far
    extras: Mapping[str, torch.Tensor] = field(default_factory=dict)  # [R, ...], see GroupBuffer

    def __len__(self) -> int:
        return len(self.advantage)


@dataclass(frozen=True)
class Outputs:
    """The networks' outputs for a minibatch, as they are now."""

    distribution: Distribution  # over legal actions
    log_prob: torch.Tensor  # float32 [R] of the minibatch's actions
    value: torch.Tensor  # float32 [R] by the critic's scale

    @cached_property
    def entropy(self) -> torch.Tensor:
        """The mean entropy of the distributions, in nats: float32 []."""
        return self.distribution.entropy().mean()


@dataclass(frozen=True)
class Losses:
    """Named scalars, weights applied; their sum, in this order, is minimized."""

    terms: Mapping[str, torch.Tensor]

    @property
    def total(self) -> torch.Tensor:
        return reduce(torch.add, self.terms.values())


@dataclass(frozen=True)
class OnPolicy:
    """An algorithm that learns from what its own policies just played."""

    name: str
    advantages: Callable[[Trajectories, Any], Advantages]
    loss: Callable[[Minibatch, Outputs, Any], Losses]
    metrics: Callable[[Minibatch, Outputs, Losses, Any], dict[str, torch.Tensor]]
    reports: Mapping[str, Over]
    """The metrics that are reported, and what each is averaged over."""
    optimizer: Callable[[Iterable[nn.Parameter], Any], torch.optim.Optimizer]
    gradients: Callable[[Learner, Any], tuple[torch.Tensor, torch.Tensor]]
    """Changes gradients before a step; returns the norms of the actor's and the critic's before."""
    stop_early: Callable[[dict[str, float], Any], bool]
    """Is given the metrics of an epoch, and tells whether it was the last one."""
    after_update: Callable[[Learner, dict[str, float], Any], None]
    """Is given the reported metrics."""
    Settings: type
    critic_input: str | None = None
    """What the critic observes, see ``CriticInput``; None: what the settings say."""

    def but(self, **changes: Any) -> OnPolicy:
        """Return the same algorithm with some fields replaced."""
        return dataclasses.replace(self, **changes)


# --- Advantages ----------------------------------------------------------------------------------


def gae(trajectories: Trajectories, settings: Any) -> Advantages:
    """Return generalized advantages, and the values that they imply. See ``maths.gae``."""
    return _advantages(trajectories, settings.gamma, settings.gae_lambda)


def reward_to_go(trajectories: Trajectories, settings: Any) -> Advantages:
    """Return the discounted rewards to come, less the value; they bootstrap where they are cut.

    That is GAE with lambda = 1, in which all values in between cancel out.
    """
    return _advantages(trajectories, settings.gamma, 1.0)


def _advantages(trajectories: Trajectories, gamma: float, gae_lambda: float) -> Advantages:
    advantage = maths.gae(**vars(trajectories), gamma=gamma, gae_lambda=gae_lambda)
    return Advantages(advantage, advantage + trajectories.value)


def normalize(
    advantages: Callable[[Trajectories, Any], Advantages],
) -> Callable[[Trajectories, Any], Advantages]:
    """Return ``advantages`` scaled to mean 0 and deviation 1 over a rollout's valid decisions."""

    def normalized(trajectories: Trajectories, settings: Any) -> Advantages:
        found, valid = advantages(trajectories, settings), trajectories.valid
        scaled = np.zeros_like(found.advantage)
        scaled[valid] = maths.normalized(found.advantage[valid])
        return Advantages(scaled, found.value_target)

    return normalized


# --- Losses and metrics --------------------------------------------------------------------------


def ppo_loss(minibatch: Minibatch, outputs: Outputs, settings: Any) -> Losses:
    """Return PPO's losses: clipped surrogate, values, and bonus and penalty that have a weight."""
    log_ratio = outputs.log_prob - minibatch.log_prob
    surrogate = maths.clipped_surrogate(log_ratio, minibatch.advantage, settings.clip_range)
    terms = {"policy_loss": surrogate.mean()}
    end = settings.ent_coef if settings.ent_coef_end is None else settings.ent_coef_end
    if ent_coef := maths.linear(settings.ent_coef, end, minibatch.progress):
        terms["entropy_bonus"] = -ent_coef * outputs.entropy
    if minibatch.kl_coef:
        terms["kl_penalty"] = minibatch.kl_coef * maths.kl_estimate(log_ratio).mean()
    terms["value_loss"] = maths.value_loss(
        outputs.value,
        minibatch.value_target,
        huber_delta=settings.huber_delta,
        old_value=minibatch.old_value,
        clip_range=settings.clip_range_vf,
    ).mean()
    return Losses(terms)


def ppo_metrics(
    minibatch: Minibatch, outputs: Outputs, losses: Losses, settings: Any
) -> dict[str, torch.Tensor]:
    """Return the metrics of one minibatch, before its step of the optimizer: scalars."""
    log_ratio = outputs.log_prob - minibatch.log_prob
    changed = torch.expm1(log_ratio).abs() > settings.clip_range
    first = minibatch.epoch == 0  # later epochs do not report it
    return {
        "policy_loss": losses.terms["policy_loss"],
        "value_loss": losses.terms["value_loss"],
        "entropy": outputs.entropy if first else torch.zeros_like(losses.terms["value_loss"]),
        "approx_kl": maths.kl_estimate(log_ratio).mean(),
        "clip_fraction": changed.float().mean(),
    }


PPO_REPORTS: dict[str, Over] = {
    "policy_loss": "update",
    "value_loss": "update",
    "entropy": "first_epoch",
    "approx_kl": "last_epoch",
    "clip_fraction": "update",
}


# --- Steps of the optimizer ----------------------------------------------------------------------


def adam(parameters: Iterable[nn.Parameter], settings: Any) -> torch.optim.Optimizer:
    """Return Adam; the trainer sets its learning rate before each update."""
    return torch.optim.Adam(parameters, lr=settings.learning_rate, eps=1e-5, fused=True)


def clip_norm(learner: Learner, settings: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale the gradients of actor and critic to ``max_grad_norm`` each; return their norms."""
    return (
        maths.clip_gradient(learner.actor_parameters, settings.max_grad_norm),
        maths.clip_gradient(learner.critic_parameters, settings.max_grad_norm),
    )


def beyond_target_kl(metrics: dict[str, float], settings: Any) -> bool:
    """Tell whether an epoch moved the policy further than ``target_kl``."""
    return settings.target_kl is not None and metrics["approx_kl"] > settings.target_kl


def adapt_kl(learner: Learner, metrics: dict[str, float], settings: Any) -> None:
    """Adapt the weight of the KL penalty to ``kl_target``."""
    if settings.kl_target is not None:
        learner.kl_coef = maths.adapted_penalty(
            learner.kl_coef, metrics["approx_kl"], settings.kl_target
        )


# --- Algorithms ----------------------------------------------------------------------------------

mappo = OnPolicy(
    name="mappo",
    advantages=normalize(gae),
    loss=ppo_loss,
    metrics=ppo_metrics,
    reports=PPO_REPORTS,
    optimizer=adam,
    gradients=clip_norm,
    stop_early=beyond_target_kl,
    after_update=adapt_kl,
    Settings=MAPPOSettings,
)
"""PPO for teams: the critic observes more than the actor (Yu et al., 2022)."""

ippo = mappo.but(name="ippo", Settings=IPPOSettings, critic_input="own")
"""PPO for each agent by itself: the critic observes what the actor does."""
