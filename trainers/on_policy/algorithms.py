"""Algorithms: the functions they are made of, and each of them as a record (``corral.algorithms``).

A record is made of another one with ``.but(...)``: see ``corral.trainers.on_policy.records`` for
what its functions are given, and docs/algorithms.md for how to write one.
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


def episode_return(trajectories: Trajectories, settings: Any) -> Advantages:
    """Return the whole episode's discounted return for every decision of it, and no value less.

    Of an episode that the rollout cuts it is the part inside: from its first decision here, and
    with the value of what follows where the rollout, or a time limit, ends. Values themselves
    learn from the rewards to go.
    """
    value_target = reward_to_go(trajectories, settings).value_target
    weight = np.zeros_like(value_target)
    whole, begun = np.zeros_like(value_target[0]), np.zeros(value_target.shape[1], dtype=bool)
    for t, acted in enumerate(trajectories.acted):
        whole = np.where(acted & ~begun, value_target[t], whole)
        begun = (begun | acted) & ~trajectories.ended[t]
        weight[t] = whole
    return Advantages(weight, value_target)


def without_baseline(advantages: Advantage) -> Advantage:
    """Return ``advantages`` with the values added again that were taken from them."""

    def plain(trajectories: Trajectories, settings: Any) -> Advantages:
        value_target = advantages(trajectories, settings).value_target
        return Advantages(value_target, value_target)

    return plain


def normalize(advantages: Advantage) -> Advantage:
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
    clip_range = minibatch.now(settings, "clip_range")
    surrogate = maths.clipped_surrogate(log_ratio, minibatch.advantage, clip_range)
    terms = {"policy_loss": surrogate.mean(), **entropy_bonus(minibatch, outputs, settings)}
    if minibatch.kl_coef:
        terms["kl_penalty"] = minibatch.kl_coef * maths.kl_estimate(log_ratio).mean()
    terms |= stay_penalty(minibatch, outputs)
    return Losses({**terms, "value_loss": value_loss(minibatch, outputs, settings)})


def stay_penalty(minibatch: Minibatch, outputs: Outputs) -> dict[str, torch.Tensor]:
    """Return the penalty on leaving the start, the mean KL(policy || start) by its weight; none
    where ``stay_coef`` is 0."""
    start = {
        name.removeprefix(START): each
        for name, each in minibatch.extras.items()
        if name.startswith(START)
    }
    if not start:
        return {}
    return {"stay_penalty": minibatch.stay_coef * outputs.distribution.kl_to(start).mean()}


def ppo_kl_loss(minibatch: Minibatch, outputs: Outputs, settings: Any) -> Losses:
    """Return the losses of PPO with a penalty: section 4 of Schulman et al. (2017).

    The penalty is the exact KL(old || new), of what ``played_distribution`` kept.
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
    """Return the losses of policy gradient: log-probabilities, weighed by their advantages."""
    return Losses(
        {
            "policy_loss": -(outputs.log_prob * minibatch.advantage).mean(),
            **entropy_bonus(minibatch, outputs, settings),
            "value_loss": value_loss(minibatch, outputs, settings),
        }
    )


def entropy_bonus(minibatch: Minibatch, outputs: Outputs, settings: Any) -> dict[str, torch.Tensor]:
    """Return the term that pays for entropy; none where ``ent_coef`` is and stays 0."""
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
    first = minibatch.epoch == 0  # later epochs do not report it
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
    """Return KL(old || new) of what ``played_distribution`` kept."""
    return {"kl": outputs.distribution.kl_from(minibatch.extras).mean()}


def clip_fraction(
    minibatch: Minibatch, outputs: Outputs, losses: Losses, settings: Any
) -> dict[str, torch.Tensor]:
    """Return the share of decisions whose probability changed by more than ``clip_range``."""
    log_ratio = outputs.log_prob - minibatch.log_prob
    changed = torch.expm1(log_ratio).abs() > minibatch.now(settings, "clip_range")
    return {"clip_fraction": changed.float().mean()}


def stay_kl(
    minibatch: Minibatch, outputs: Outputs, losses: Losses, settings: Any
) -> dict[str, torch.Tensor]:
    """Return KL(policy || start), where leaving the start has a penalty."""
    if "stay_penalty" not in losses.terms:
        return {}
    return {"stay_kl": losses.terms["stay_penalty"] / minibatch.stay_coef}


def also(*metrics: Metric) -> Metric:
    """Return all of several metrics, as one function."""

    def all_of(*given: Any) -> dict[str, torch.Tensor]:
        return {name: each for function in metrics for name, each in function(*given).items()}

    return all_of


ppo_metrics = also(entropy, approx_kl, clip_fraction, stay_kl)
"""The metrics of PPO, of one minibatch before its step of the optimizer."""

PPO_REPORTS: dict[str, Over] = {
    "entropy": "first_epoch",
    "approx_kl": "last_epoch",
    "kl": "last_epoch",
    "stay_kl": "last_epoch",
}


def played_distribution(distribution: Distribution) -> Mapping[str, torch.Tensor]:
    """Keep all that tells the distribution that actions were drawn from, for an exact KL."""
    return distribution.parameters


# --- Steps of the optimizer ----------------------------------------------------------------------


def adam(parameters: Iterable[nn.Parameter], settings: Any) -> torch.optim.Optimizer:
    """Return Adam; the trainer sets its learning rate before each update."""
    return torch.optim.Adam(parameters, lr=0.0, eps=1e-5, fused=True)


def clip_norm(learner: Learner, settings: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale the gradients of actor and critic to ``max_grad_norm`` each; return their norms."""
    return (
        maths.clip_gradient(learner.actor_parameters, settings.max_grad_norm),
        maths.clip_gradient(learner.critic_parameters, settings.max_grad_norm),
    )


def beyond_target_kl(metrics: Mapping[str, float], settings: Any) -> bool:
    """Tell whether an epoch moved the policy further than ``target_kl``."""
    return settings.target_kl is not None and _divergence(metrics) > settings.target_kl


def one_epoch(metrics: Mapping[str, float], settings: Any) -> bool:
    """End an update after its first epoch."""
    return True


def adapt_kl(learner: Learner, metrics: Mapping[str, float], settings: Any) -> None:
    """Adapt the weight of the KL penalty to ``kl_target``."""
    if settings.kl_target is not None:
        found = maths.adapted_penalty(learner.kl_coef, _divergence(metrics), settings.kl_target)
        learner.set_penalties(kl_coef=found)


def adapt_penalties(learner: Learner, metrics: Mapping[str, float], settings: Any) -> None:
    """Adapt the weight of the KL penalty to ``kl_target``, and that of the penalty on leaving the
    start to ``stay_target``: this one is never below ``stay_coef``."""
    adapt_kl(learner, metrics, settings)
    target = getattr(settings, "stay_target", None)
    if target is not None and "stay_kl" in metrics:
        found = maths.adapted_penalty(learner.stay_coef, metrics["stay_kl"], target)
        learner.set_penalties(stay_coef=max(settings.stay_coef, found))


def no_change(learner: Learner, metrics: Mapping[str, float], settings: Any) -> None:
    """Leave the learner as it is."""


def _divergence(metrics: Mapping[str, float]) -> float:
    """Return how far an update went: the exact KL divergence, where it is known."""
    for name in ("kl", "approx_kl"):
        if name in metrics:
            return metrics[name]
    raise AlgorithmError(
        "target_kl and kl_target need the metric approx_kl, which this algorithm does not have: "
        "give metrics=also(approx_kl, ...)"
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
"""PPO for teams: the critic observes more than the actor (Yu et al., 2022)."""

ippo = mappo.but(name="ippo", Settings=IPPOSettings, critic_input="own")
"""PPO for each agent by itself: the critic observes what the actor does."""

ppo_kl = ippo.but(
    name="ppo_kl",
    loss=ppo_kl_loss,
    metrics=also(entropy, exact_kl),
    extras=played_distribution,
    after_update=adapt_kl,
    Settings=PPOKLSettings,
)
"""PPO with an adaptive penalty on the KL divergence instead of clipping (Schulman et al., 2017)."""

a2c = ippo.but(
    name="a2c",
    loss=policy_gradient_loss,
    metrics=entropy,
    stop_early=one_epoch,
    after_update=no_change,
    Settings=A2CSettings,
)
"""Advantage actor-critic (Mnih et al., 2016): one step on each rollout, and no ratio."""

pg = a2c.but(
    name="pg",
    advantages=normalize(without_baseline(reward_to_go)),
    Settings=PGSettings,
)
"""Policy gradient (Williams, 1992): each decision is weighed by the rewards that come after it.

The critic learns, and stands for what follows where an episode is cut; it is no baseline.
"""

pg_episode = pg.but(name="pg_episode", advantages=normalize(episode_return))
"""Policy gradient without reward to go: each decision is weighed by its whole episode's return."""
