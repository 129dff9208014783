"""Mistakes in losses: signs, what is cut off, what is bounded, whose row it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from corral import algorithms as alg
from corral.trainers.on_policy.trainer import MAPPO
from corral.trainers.runs.run import Run
from faults.fault import fault, trained


def with_loss(folder: Path, loss: Any, env: str = "dfaas_v0", **given: Any) -> Run:
    """Train MAPPO with a loss of one's own."""
    return trained(folder, env, trainer=alg.mappo.but(name="mine", loss=loss), **given)


def but(minibatch: Any, outputs: Any, settings: Any, **terms: torch.Tensor) -> alg.Losses:
    """Return PPO's losses with some terms replaced."""
    return alg.Losses({**alg.ppo_loss(minibatch, outputs, settings).terms, **terms})


# --- The actor's part ----------------------------------------------------------------------------


@fault("advantage-sign")
def loss_sign_flipped(folder: Path) -> Run:
    """The loss is +ratio * advantage, which is minimized."""

    def loss(minibatch, outputs, settings):
        ratio = (outputs.log_prob - minibatch.log_prob).exp()
        return but(minibatch, outputs, settings, policy_loss=(ratio * minibatch.advantage).mean())

    return with_loss(folder, loss)


@fault("policy-loss-cut")
def log_prob_detached(folder: Path) -> Run:
    """The log-probability is detached: the bonus for entropy alone teaches the actor."""

    def loss(minibatch, outputs, settings):
        ratio = (outputs.log_prob.detach() - minibatch.log_prob).exp()
        policy_loss = -(ratio * minibatch.advantage).mean()
        return but(minibatch, outputs, settings, policy_loss=policy_loss)

    return with_loss(folder, loss, ent_coef=0.01)


@fault("policy-loss-cut")
def normalized_in_loss_by_itself(folder: Path) -> Run:
    """The loss normalizes advantages over an axis of one: 0 everywhere."""

    def loss(minibatch, outputs, settings):
        each = minibatch.advantage[:, None]
        scaled = (each - each.mean(1, keepdim=True)) / (each.abs() + 1e-8)
        return alg.ppo_loss(replace(minibatch, advantage=scaled[:, 0]), outputs, settings)

    return with_loss(folder, loss, ent_coef=0.01)


@fault("advantage-shuffled")
def advantages_shuffled_in_loss(folder: Path) -> Run:
    """The loss permutes advantages alone."""

    def loss(minibatch, outputs, settings):
        mixed = minibatch.advantage[torch.randperm(len(minibatch))]
        return alg.ppo_loss(replace(minibatch, advantage=mixed), outputs, settings)

    return with_loss(folder, loss)


@fault("advantage-shuffled")
def advantages_broadcast(folder: Path) -> Run:
    """Ratios [R, 1] times advantages [R] are [R, R]: each by the mean of all."""

    def loss(minibatch, outputs, settings):
        ratio = (outputs.log_prob - minibatch.log_prob).exp()[:, None]
        return but(minibatch, outputs, settings, policy_loss=-(ratio * minibatch.advantage).mean())

    return with_loss(folder, loss)


class ShufflesOne(MAPPO):
    """Draws a permutation of its own for advantages, after they were made."""

    def update_minibatch(self, learner, minibatch, outputs):
        mixed = minibatch.advantage[torch.randperm(len(minibatch))]
        return super().update_minibatch(learner, replace(minibatch, advantage=mixed), outputs)


@fault("advantage-shuffled")
def minibatch_shuffles_advantages(folder: Path) -> Run:
    """The trainer shuffles the advantages of a minibatch, and nothing else."""
    return trained(folder, "dfaas_v0", trainer=ShufflesOne)


class Recomputes(MAPPO):
    """Takes the policy's log-probabilities of now for those of the rollout."""

    def update_minibatch(self, learner, minibatch, outputs):
        again = replace(minibatch, log_prob=outputs.log_prob.detach())
        return super().update_minibatch(learner, again, outputs)


@fault("old-log-prob-recomputed")
def old_log_prob_recomputed(folder: Path) -> Run:
    """The old log-probabilities are computed anew in each epoch: the ratio is always 1."""
    return trained(folder, "dfaas_v0", trainer=Recomputes)


@fault("old-log-prob-recomputed")
def ratio_to_itself(folder: Path) -> Run:
    """The ratio divides the new probability by itself, detached."""

    def loss(minibatch, outputs, settings):
        ratio = (outputs.log_prob - outputs.log_prob.detach()).exp()
        return but(minibatch, outputs, settings, policy_loss=-(ratio * minibatch.advantage).mean())

    return with_loss(folder, loss)


@fault("entropy-too-large")
def entropy_bonus_too_large(folder: Path) -> Run:
    """The bonus for entropy is 10, as of returns in the thousands."""
    return trained(folder, "dfaas_v0", trainer="mappo", ent_coef=10.0)


@fault("entropy-sign")
def entropy_bonus_of_wrong_sign(folder: Path) -> Run:
    """Entropy is added to what is minimized."""

    def loss(minibatch, outputs, settings):
        surer = 0.5 * outputs.entropy
        return but(minibatch, outputs, settings, entropy_bonus=surer)

    return with_loss(folder, loss)


@fault("ratio-wrong-in-loss")
def ratio_of_zeroed_logits(folder: Path) -> Run:
    """The loss fills the logits of illegal actions with 0, for fear of NaN."""

    def loss(minibatch, outputs, settings):
        logits = outputs.distribution.logits.masked_fill(~minibatch.mask, 0.0)
        log_prob = torch.distributions.Categorical(logits=logits).log_prob(minibatch.action)
        again = replace(outputs, log_prob=log_prob)
        return alg.ppo_loss(minibatch, again, settings)

    return with_loss(folder, loss)


@fault("clip-too-tight")
def clip_range_too_small(folder: Path) -> Run:
    """The clip range is 0.0002, a slip of the comma."""
    return trained(folder, "dfaas_v0", trainer="mappo", clip_range=0.0002)


# --- The critic's part ---------------------------------------------------------------------------


@fault("value-clipped")
def value_clip_tiny(folder: Path) -> Run:
    """Values may move by 0.0001 in an update."""
    return trained(folder, "dfaas_v0", trainer="mappo", clip_range_vf=1e-4)


@fault("value-clipped")
def value_loss_clamped(folder: Path) -> Run:
    """The loss of values is clamped, and has no gradient where it is large."""

    def loss(minibatch, outputs, settings):
        error = (outputs.value - minibatch.value_target).square()
        return but(minibatch, outputs, settings, value_loss=error.clamp(max=0.01).mean())

    return with_loss(folder, loss)


@fault("value-clipped")
def huber_range_tiny(folder: Path) -> Run:
    """The value loss is linear from an error of 0.001 on."""
    return trained(folder, "dfaas_v0", trainer="mappo", huber_delta=1e-3)


@fault("value-clipped")
def value_targets_clamped(folder: Path) -> Run:
    """Value targets are clamped to -1 .. 1; returns are far outside."""

    def advantages(trajectories, settings):
        found = alg.gae(trajectories, settings)
        return alg.Advantages(found.advantage, found.value_target.clip(-0.01, 0.01))

    mine = alg.mappo.but(name="mine", advantages=alg.normalize(advantages))
    return trained(folder, "dfaas_v0", trainer=mine)


@fault("targets-changed")
def value_targets_clamped_in_loss(folder: Path) -> Run:
    """The loss clamps targets that are far outside."""

    def loss(minibatch, outputs, settings):
        target = minibatch.value_target.clamp(-0.1, 0.1)
        error = (outputs.value - target).square().mean()
        return but(minibatch, outputs, settings, value_loss=error)

    return with_loss(folder, loss, normalize_values=False)


@fault("critic-untaught")
def value_loss_missing(folder: Path) -> Run:
    """The loss has no term for values."""

    def loss(minibatch, outputs, settings):
        terms = dict(alg.ppo_loss(minibatch, outputs, settings).terms)
        del terms["value_loss"]
        return alg.Losses(terms)

    return with_loss(folder, loss)


@fault("critic-untaught")
def value_detached(folder: Path) -> Run:
    """The value is detached in its own loss."""

    def loss(minibatch, outputs, settings):
        return alg.ppo_loss(minibatch, replace(outputs, value=outputs.value.detach()), settings)

    return with_loss(folder, loss)


@fault("targets-shuffled")
def value_broadcast(folder: Path) -> Run:
    """Values [R, 1] less targets [R] are [R, R]: all learn the mean target."""

    def loss(minibatch, outputs, settings):
        error = outputs.value[:, None] - minibatch.value_target
        return but(minibatch, outputs, settings, value_loss=error.square().mean())

    return with_loss(folder, loss)
