"""Mistakes with action masks: lost in the rollout, in the loss, in play, after a reload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from corral import algorithms as alg
from corral.adapters.masked_distribution import MaskedCategorical
from corral.envs.masks import MASK
from corral.envs.policy import Decision
from corral.trainers.on_policy.buffer import GroupBuffer
from corral.trainers.on_policy.learner import Learner
from corral.trainers.on_policy.trainer import IPPO, MAPPO
from corral.trainers.runs.run import Run
from faults.fault import fault, trained

WALLS: dict[str, Any] = {"walls": "mask"}
"""Makes moves off the grid illegal."""

OPEN_WALLS: dict[str, Any] = {**WALLS, "illegal": "penalise"}


# --- In the rollout ------------------------------------------------------------------------------


class BufferOf(MAPPO):
    """MAPPO with buffers of another ``kind``."""

    kind: type[GroupBuffer]

    def begin(self) -> None:
        super().begin()
        for buffer in self.rollout.groups:
            buffer.__class__ = self.kind


class ForgetsMasks(GroupBuffer):
    def store(self, at: Any, observations: Any) -> None:
        super().store(at, observations)
        self.mask[at] = True


@fault("mask-lost-in-rollout")
def mask_dropped_in_rollout(folder: Path) -> Run:
    """The buffer holds masks that forbid nothing."""
    kind = type("Forgets", (BufferOf,), {"kind": ForgetsMasks})
    return trained(folder, "tiles_v0", trainer=kind, env_kwargs={"illegal": "raise"})


@fault("mask-lost-in-rollout")
def mask_dropped_in_rollout_where_it_is_penalised(folder: Path) -> Run:
    """The buffer holds masks that forbid nothing, in an environment that takes any action."""
    kind = type("Forgets", (BufferOf,), {"kind": ForgetsMasks})
    return trained(folder, "arena_v0", trainer=kind, env_kwargs=OPEN_WALLS)


class LateMasks(GroupBuffer):
    def store(self, at: Any, observations: Any) -> None:
        super().store(at, observations)
        fresh = self.mask[at].copy()
        if hasattr(self, "before") and self.before.shape == fresh.shape:
            self.mask[at] = self.before
        self.before = fresh


@fault("mask-lost-in-rollout")
def mask_of_the_step_before(folder: Path) -> Run:
    """The buffer stores the masks of the step before."""
    kind = type("Late", (BufferOf,), {"kind": LateMasks})
    return trained(folder, "arena_v0", trainer=kind, env_kwargs=OPEN_WALLS)


class SwapsMasks(GroupBuffer):
    def store(self, at: Any, observations: Any) -> None:
        super().store(at, observations)
        self.mask[at] = self.mask[at][:, ::-1].copy()


@fault("mask-lost-in-rollout")
def mask_of_another_agent(folder: Path) -> Run:
    """The buffer stores masks in the reverse order of agents."""
    kind = type("Swaps", (BufferOf,), {"kind": SwapsMasks})
    return trained(folder, "arena_v0", trainer=kind, env_kwargs=OPEN_WALLS)


class Unmasked(MaskedCategorical):
    """Knows its mask, and draws as if there were none."""

    def __init__(self, logits: torch.Tensor, mask: torch.Tensor) -> None:
        super().__init__(logits, torch.ones_like(mask))


class SamplesUnmasked(MAPPO):
    def collect(self) -> Any:
        for learner in self.learners.values():
            learner.distribution = lambda outputs, mask: Unmasked(outputs, mask)
        try:
            return super().collect()
        finally:
            for learner in self.learners.values():
                del learner.distribution


@fault("mask-ignored-in-play", "mask-lost-in-rollout")
def mask_ignored_in_sampling(folder: Path) -> Run:
    """Actions are drawn from all, the masks are stored as they are."""
    return trained(folder, "arena_v0", trainer=SamplesUnmasked, env_kwargs=OPEN_WALLS)


# --- In the loss ---------------------------------------------------------------------------------


class LearnsUnmasked(MAPPO):
    def update(self) -> dict[str, float]:
        for buffer in self.rollout.groups:
            buffer.mask[...] = True
        return super().update()


@fault("mask-lost-in-ratio")
def mask_dropped_in_the_ratio(folder: Path) -> Run:
    """Play is masked; the update takes masks that were overwritten with ones."""
    return trained(folder, "dfaas_v0", trainer=LearnsUnmasked)


class ForgetsInTraining(Learner):
    """Masks as long as gradients are off, which is in play."""

    def distribution(self, outputs: torch.Tensor, mask: torch.Tensor) -> Any:
        if torch.is_grad_enabled():
            return MaskedCategorical(outputs, torch.ones_like(mask))
        return super().distribution(outputs, mask)


def learner_of(kind: type[Learner], base: type[MAPPO] = MAPPO) -> type[MAPPO]:
    """A trainer whose learners are of another kind."""

    def __init__(self: Any, *given: Any, **named: Any) -> None:
        base.__init__(self, *given, **named)
        for learner in self.learners.values():
            learner.__class__ = kind

    return type("With" + kind.__name__, (base,), {"__init__": __init__})


@fault("mask-lost-in-ratio")
def mask_dropped_where_gradients_are_on(folder: Path) -> Run:
    """The distribution of the loss is made without the mask."""
    kind = learner_of(ForgetsInTraining, IPPO)
    return trained(folder, "arena_v0", trainer=kind, env_kwargs=WALLS)


class CountsAll(MaskedCategorical):
    """Its entropy is of the logits before they were masked."""

    def __init__(self, logits: torch.Tensor, mask: torch.Tensor) -> None:
        super().__init__(logits, mask)
        self.raw = logits

    def entropy(self) -> torch.Tensor:
        return torch.distributions.Categorical(logits=self.raw).entropy()


class CountsAllEntropy(Learner):
    def distribution(self, outputs: torch.Tensor, mask: torch.Tensor) -> Any:
        return CountsAll(outputs, mask)


@fault("mask-lost-in-entropy")
def mask_dropped_in_the_entropy(folder: Path) -> Run:
    """The bonus pays for the entropy of all actions, illegal ones among them."""
    return trained(folder, "dfaas_v0", trainer=learner_of(CountsAllEntropy), ent_coef=0.01)


def filled(minibatch: Any, outputs: Any, settings: Any) -> Any:
    losses = alg.mappo.loss(minibatch, outputs, settings)
    logits = outputs.distribution.logits.masked_fill(~minibatch.mask, 0.0)
    entropy = torch.distributions.Categorical(logits=logits).entropy().mean()
    return alg.Losses({**losses.terms, "entropy_bonus": -0.01 * entropy})


@fault("mask-lost-in-entropy")
def entropy_of_logits_filled_with_zero(folder: Path) -> Run:
    """A loss of one's own writes 0 where a mask forbids, and takes the entropy of that."""
    own = alg.mappo.but(name="filled", loss=filled)
    return trained(folder, "arena_v0", trainer=own, env_kwargs=WALLS, n_minibatches=4)


# --- Outside of training -------------------------------------------------------------------------


class Greedy:
    """A policy whose greedy action is the argmax of logits that no mask has touched."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)

    def act(
        self, observation: Any, state: Any = None, rng: Any = None, deterministic: bool = False
    ) -> Decision:
        decision = self.policy.act(observation, state, rng, deterministic)
        if not deterministic:
            return decision
        open_mask = {**observation, MASK: np.ones_like(observation[MASK])}
        return self.policy.act(open_mask, state, rng, deterministic)


class GreedyUnmasked(MAPPO):
    @property
    def policies(self) -> Any:
        return {agent: Greedy(policy) for agent, policy in super().policies.items()}


@fault("mask-lost-in-greedy")
def mask_dropped_in_greedy_play(folder: Path) -> Run:
    """Greedy play takes the largest logit, legal or not."""
    return trained(folder, "dfaas_v0", trainer=GreedyUnmasked)


class Unweighted(Greedy):
    def act(self, observation: Any, *given: Any, **named: Any) -> Decision:
        open_mask = {**observation, MASK: np.ones_like(observation[MASK])}
        return self.policy.act(open_mask, *given, **named)


class PlaysUnmasked(IPPO):
    @property
    def policies(self) -> Any:
        return {agent: Unweighted(policy) for agent, policy in super().policies.items()}


@fault("mask-lost-in-greedy")
def mask_dropped_in_deployment(folder: Path) -> Run:
    """Whoever plays the trained policy hands it a mask of ones."""
    return trained(folder, "arena_v0", trainer=PlaysUnmasked, env_kwargs=WALLS)


class LosesMask(MAPPO):
    loaded = False

    def load(self, content: Any) -> None:
        super().load(content)
        self.loaded = True

    @property
    def policies(self) -> Any:
        found = super().policies
        if not self.loaded:
            return found
        return {agent: Unweighted(policy) for agent, policy in found.items()}


@fault("mask-lost-after-reload")
def mask_lost_after_reload(folder: Path) -> Run:
    """What is loaded plays without the mask."""
    return trained(folder, "arena_v0", trainer=LosesMask, env_kwargs=WALLS)


class ForgetsHead(MAPPO):
    def load(self, content: Any) -> None:
        kept = {
            name: learner.actor.head.weight.detach().clone()
            for name, learner in self.learners.items()
        }
        super().load(content)
        for name, learner in self.learners.items():
            with torch.no_grad():
                learner.actor.head.weight.copy_(kept[name])


@fault("reload-differs")
def head_lost_after_reload(folder: Path) -> Run:
    """Loading leaves the last layer as it was drawn."""
    return trained(folder, "dfaas_v0", trainer=ForgetsHead)
