"""The algorithms of ``corral.algorithms`` as records, and the functions that they consist of.

``.but(...)`` derives a record from another one. ``corral.trainers.on_policy.records`` documents the
arguments of the functions; docs/algorithms.md shows how to write an algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from corral.adapters.masked_distribution import Distribution
from corral.errors import AlgorithmError
from corral.trainers.on_policy import maths
from corral.trainers.on_policy.learner import START, Learner
from corral.trainers.on_policy.records import (
    Advantages,
    Losses,
    Minibatch,
    OnPolicy,
    Outputs,
    Over,
    Trajectories,
)
from corral.trainers.on_policy.settings import (
    A2CSettings,
    IPPOSettings,
    MAPPOSettings,
    PGSettings,
    PPOKLSettings,
)
from corral.trainers.schedules import changes

__all__ = [
    "PPO_REPORTS",
    "a2c",
    "adam",
    "adapt_kl",
    "adapt_penalties",
    "also",
    "approx_kl",
    "beyond_target_kl",
    "clip_fraction",
    "clip_norm",
    "entropy",
    "entropy_bonus",
    "episode_return",
    "exact_kl",
    "gae",
    "ippo",
    "mappo",
    "no_change",
    "normalize",
    "one_epoch",
    "pg",
    "pg_episode",
    "played_distribution",
    "policy_gradient_loss",
    "ppo_kl",
    "ppo_kl_loss",
    "ppo_loss",
    "ppo_metrics",
    "reward_to_go",
    "stay_kl",
    "stay_penalty",
    "value_loss",
    "without_baseline",
]

Advantage = Callable[[Trajectories, Any], Advantages]
Metric = Callable[[Minibatch, Outputs, Losses, Any], Mapping[str, torch.Tensor]]


# --- Advantages ----------------------------------------------------------------------------------


def gae(trajectories: Trajectories, settings: Any) -> Advantages:
    """Return generalized advantages and the value targets they imply. See ``maths.gae``."""
    return _advantages(trajectories, settings.gamma, settings.gae_lambda)


def reward_to_go(trajectories: Trajectories, settings: Any) -> Advantages:
    """Return the discounted reward to go minus the value; a cut episode is bootstrapped.

    This is GAE with lambda = 1, in which all intermediate values cancel out.
    """
    return _advantages(trajectories, settings.gamma, 1.0)


def _advantages(trajectories: Trajectories, gamma: float, gae_lambda: float) -> Advantages:
    advantage = maths.gae(**vars(trajectories), gamma=gamma, gae_lambda=gae_lambda)
    return Advantages(advantage, advantage + trajectories.value)


def episode_return(trajectories: Trajectories, settings: Any) -> Advantages:
    """Return the discounted return of the whole episode for each decision, without baseline.

    If the rollout contains only a part of the episode, the return starts at the first decision in
    the rollout. The return bootstraps with the value at the end of the rollout or at a time limit.
    The value targets are the rewards to go.
    """
    value_target = reward_to_go(trajectories, settings).value_target
    weight = np.zeros_like(value_target)
    whole, started = np.zeros_like(value_target[0]), np.zeros(value_target.shape[1], dtype=bool)
    for t, acted in enumerate(trajectories.acted):
        whole = np.where(acted & ~started, value_target[t], whole)
        started = (started | acted) & ~trajectories.ended[t]
        weight[t] = whole
    return Advantages(weight, value_target)


def without_baseline(advantages: Advantage) -> Advantage:
    """Return ``advantages`` without the baseline: the values are added back."""

    def plain(trajectories: Trajectories, settings: Any) -> Advantages:
        value_target = advantages(trajectories, settings).value_target
        return Advantages(value_target, value_target)

    return plain


def normalize(advantages: Advantage) -> Advantage:
    """Normalize ``advantages`` to mean 0 and deviation 1 over the valid decisions of a rollout."""

    def normalized(trajectories: Trajectories, settings: Any) -> Advantages:
        estimate, valid = advantages(trajectories, settings), trajectories.valid
        scaled = np.zeros_like(estimate.advantage)
        scaled[valid] = maths.normalized(estimate.advantage[valid])
        return Advantages(scaled, estimate.value_target)

    return normalized


# --- Losses and metrics --------------------------------------------------------------------------


def ppo_loss(minibatch: Minibatch, outputs: Outputs, settings: Any) -> Losses:
    """Return PPO's losses: clipped surrogate, value loss, and the bonus and penalties in use."""
    log_ratio = outputs.log_prob - minibatch.log_prob
    clip_range = minibatch.now(settings, "clip_range")
    surrogate = maths.clipped_surrogate(log_ratio, minibatch.advantage, clip_range)
    terms = {"policy_loss": surrogate.mean(), **entropy_bonus(minibatch, outputs, settings)}
    if minibatch.kl_coef:
        terms["kl_penalty"] = minibatch.kl_coef * maths.kl_estimate(log_ratio).mean()
    terms |= stay_penalty(minibatch, outputs)
    return Losses({**terms, "value_loss": value_loss(minibatch, outputs, settings)})


def stay_penalty(minibatch: Minibatch, outputs: Outputs) -> dict[str, torch.Tensor]:
    """Return the mean KL(policy || initial policy) times its weight; {} if ``stay_coef`` is 0."""
    start = {
        name.removeprefix(START): parameter
        for name, parameter in minibatch.extras.items()
        if name.startswith(START)
    }
    if not start:
        return {}
    return {"stay_penalty": minibatch.stay_coef * outputs.distribution.kl_to(start).mean()}


def ppo_kl_loss(minibatch: Minibatch, outputs: Outputs, settings: Any) -> Losses:
    """Return the losses of PPO with a KL penalty: section 4 of Schulman et al. (2017).

    The penalty is the exact KL(old || new), from the parameters stored by ``played_distribution``.
    """
    ratio = torch.exp(outputs.log_prob - minibatch.log_prob)
    divergence = outputs.distribution.kl_from(minibatch.extras)
    return Losses(
        {
            "policy_loss": -(ratio * minibatch.advantage).mean(),
            **entropy_bonus(minibatch, outputs, settings),
            "kl_penalty": minibatch.kl_coef * divergence.mean(),
            "value_loss": value_loss(minibatch, outputs, settings),
        }
    )


def policy_gradient_loss(minibatch: Minibatch, outputs: Outputs, settings: Any) -> Losses:
    """Return the policy gradient losses: log-probabilities weighted by advantages."""
    return Losses(
        {
            "policy_loss": -(outputs.log_prob * minibatch.advantage).mean(),
            **entropy_bonus(minibatch, outputs, settings),
            "value_loss": value_loss(minibatch, outputs, settings),
        }
    )


def entropy_bonus(minibatch: Minibatch, outputs: Outputs, settings: Any) -> dict[str, torch.Tensor]:
    """Return the entropy bonus as a loss term; {} if ``ent_coef`` is 0 for the whole run."""
    ent_coef = minibatch.now(settings, "ent_coef")
    if not ent_coef and not changes(settings, "ent_coef"):
        return {}
    return {"entropy_bonus": -ent_coef * outputs.entropy}


def value_loss(minibatch: Minibatch, outputs: Outputs, settings: Any) -> torch.Tensor:
    """Return the critic's loss, float32 []: see ``maths.value_loss``."""
    return maths.value_loss(
        outputs.value,
        minibatch.value_target,
        huber_delta=settings.huber_delta,
        old_value=minibatch.old_value,
        clip_range=getattr(settings, "clip_range_vf", None),
    ).mean()


def entropy(
    minibatch: Minibatch, outputs: Outputs, losses: Losses, settings: Any
) -> dict[str, torch.Tensor]:
    """Return the entropy of the policy before the update, in nats."""
    first = minibatch.epoch == 0  # reported for the first epoch only
    return {"entropy": outputs.entropy if first else torch.zeros_like(losses.total)}


def approx_kl(
    minibatch: Minibatch, outputs: Outputs, losses: Losses, settings: Any
) -> dict[str, torch.Tensor]:
    """Return an estimate of KL(old || new), from the actions that were taken."""
    log_ratio = outputs.log_prob - minibatch.log_prob
    return {"approx_kl": maths.kl_estimate(log_ratio).mean()}


def exact_kl(
    minibatch: Minibatch, outputs: Outputs, losses: Losses, settings: Any
) -> dict[str, torch.Tensor]:
    """Return the exact KL(old || new), from the parameters stored by ``played_distribution``."""
    return {"kl": outputs.distribution.kl_from(minibatch.extras).mean()}


def clip_fraction(
    minibatch: Minibatch, outputs: Outputs, losses: Losses, settings: Any
) -> dict[str, torch.Tensor]:
    """Return the share of decisions with a probability change above ``clip_range``."""
    log_ratio = outputs.log_prob - minibatch.log_prob
    changed = torch.expm1(log_ratio).abs() > minibatch.now(settings, "clip_range")
    return {"clip_fraction": changed.float().mean()}


def stay_kl(
    minibatch: Minibatch, outputs: Outputs, losses: Losses, settings: Any
) -> dict[str, torch.Tensor]:
    """Return KL(policy || initial policy); {} without the penalty on leaving the initial policy."""
    if "stay_penalty" not in losses.terms:
        return {}
    return {"stay_kl": losses.terms["stay_penalty"] / minibatch.stay_coef}


def also(*metrics: Metric) -> Metric:
    """Combine several metrics into one function."""

    def all_of(*arguments: Any) -> dict[str, torch.Tensor]:
        return {name: value for function in metrics for name, value in function(*arguments).items()}

    return all_of


ppo_metrics = also(entropy, approx_kl, clip_fraction, stay_kl)
"""The metrics of PPO for one minibatch, before its optimizer step."""

PPO_REPORTS: dict[str, Over] = {
    "entropy": "first_epoch",
    "approx_kl": "last_epoch",
    "kl": "last_epoch",
    "stay_kl": "last_epoch",
}


def played_distribution(distribution: Distribution) -> Mapping[str, torch.Tensor]:
    """Store the parameters of the distribution that actions were sampled from, for an exact KL."""
    return distribution.parameters


# --- Steps of the optimizer ----------------------------------------------------------------------


def adam(parameters: Iterable[nn.Parameter], settings: Any) -> torch.optim.Optimizer:
    """Return an Adam optimizer; the trainer sets its learning rate before each update."""
    return torch.optim.Adam(parameters, lr=0.0, eps=1e-5, fused=True)


def clip_norm(learner: Learner, settings: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Clip the gradients of actor and critic each to ``max_grad_norm``; return their norms."""
    return (
        maths.clip_gradient(learner.actor_parameters, settings.max_grad_norm),
        maths.clip_gradient(learner.critic_parameters, settings.max_grad_norm),
    )


def beyond_target_kl(metrics: Mapping[str, float], settings: Any) -> bool:
    """Return True if an epoch moved the policy further than ``target_kl``."""
    return settings.target_kl is not None and _divergence(metrics) > settings.target_kl


def one_epoch(metrics: Mapping[str, float], settings: Any) -> bool:
    """Stop an update after its first epoch."""
    return True


def adapt_kl(learner: Learner, metrics: Mapping[str, float], settings: Any) -> None:
    """Adapt the weight of the KL penalty towards ``kl_target``."""
    if settings.kl_target is not None:
        weight = maths.adapted_penalty(learner.kl_coef, _divergence(metrics), settings.kl_target)
        learner.set_penalties(kl_coef=weight)


def adapt_penalties(learner: Learner, metrics: Mapping[str, float], settings: Any) -> None:
    """Adapt the KL penalty towards ``kl_target``, and the penalty on leaving the initial policy
    towards ``stay_target``. The weight of the latter is never below ``stay_coef``."""
    adapt_kl(learner, metrics, settings)
    target = getattr(settings, "stay_target", None)
    if target is not None and "stay_kl" in metrics:
        weight = maths.adapted_penalty(learner.stay_coef, metrics["stay_kl"], target)
        learner.set_penalties(stay_coef=max(settings.stay_coef, weight))


def no_change(learner: Learner, metrics: Mapping[str, float], settings: Any) -> None:
    """Do nothing."""


def _divergence(metrics: Mapping[str, float]) -> float:
    """Return the KL divergence of an update: the exact one if available, else the estimate."""
    for name in ("kl", "approx_kl"):
        if name in metrics:
            return metrics[name]
    raise AlgorithmError(
        "target_kl and kl_target need the metric approx_kl, which this algorithm does not report: "
        "pass metrics=also(approx_kl, ...)"
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
    after_update=adapt_penalties,
    Settings=MAPPOSettings,
)
"""Multi-agent PPO: the critic sees more than the actor (Yu et al., 2022)."""

ippo = mappo.but(name="ippo", Settings=IPPOSettings, critic_input="own")
"""Independent PPO: the critic of an agent sees the same as its actor."""

ppo_kl = ippo.but(
    name="ppo_kl",
    loss=ppo_kl_loss,
    metrics=also(entropy, exact_kl),
    extras=played_distribution,
    after_update=adapt_kl,
    Settings=PPOKLSettings,
)
"""PPO with an adaptive KL penalty instead of clipping (Schulman et al., 2017)."""

a2c = ippo.but(
    name="a2c",
    loss=policy_gradient_loss,
    metrics=entropy,
    stop_early=one_epoch,
    after_update=no_change,
    Settings=A2CSettings,
)
"""Advantage actor-critic (Mnih et al., 2016): one optimizer step per rollout, no ratio."""

pg = a2c.but(
    name="pg",
    advantages=normalize(without_baseline(reward_to_go)),
    Settings=PGSettings,
)
"""Policy gradient (Williams, 1992): each decision is weighted by its reward to go.

The critic is trained, but only to bootstrap cut episodes; it is not a baseline.
"""

pg_episode = pg.but(name="pg_episode", advantages=normalize(episode_return))
"""Policy gradient without reward to go: each decision is weighted by its episode's return."""
