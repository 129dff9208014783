"""Bugs in what is played and observed: masks, observations, memory, accounts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, TypeAlias

import numpy as np
import torch

from corral.envs.core import Array, Observation
from corral.envs.masks import MASK, OBSERVATION
from corral.envs.policy import Decision, Memoryless
from corral.trainers.on_policy.records import Losses
from corral.trainers.on_policy.trainer import OnPolicyTrainer
from support.planted_bugs.base import Kind, but, plant, with_methods

# --- Masks ---------------------------------------------------------------------------------------


def _distribution(kind: Kind, blind: Callable[[], bool]) -> Kind:
    """Return a trainer whose distributions know no mask where ``blind()``."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        kind.__init__(self, *args, **kwargs)
        for learner in self.learners.values():
            right = learner.distribution

            def distribution(_: Any, outputs: Any, mask: Any, right: Any = right) -> Any:
                return right(outputs, torch.ones_like(mask) if blind() else mask)

            learner.distribution = MethodType(distribution, learner)

    return with_methods(kind, __init__=init)


@plant
def mask_ignored_in_rollout(kind: Kind) -> Kind:
    """Actions are drawn, and learned from, as if all were legal."""
    return _distribution(kind, lambda: True)


@plant
def mask_lost_in_training(kind: Kind) -> Kind:
    """Play knows the mask, the update does not."""
    return _distribution(kind, torch.is_grad_enabled)


@plant
def mask_lost_in_play(kind: Kind) -> Kind:
    """What was trained with masks is played without."""
    return _played(kind, lambda deterministic: True)


@plant
def mask_lost_in_greedy_play(kind: Kind) -> Kind:
    return _played(kind, lambda deterministic: deterministic)


def _played(kind: Kind, blind: Callable[[bool], bool]) -> Kind:
    def policies(self: Any) -> dict[str, Any]:
        found = OnPolicyTrainer.policies.__get__(self)
        return {agent: _Unmasked(policy, blind) for agent, policy in found.items()}

    return with_methods(kind, policies=property(policies))


class _Unmasked(Memoryless):
    """Plays as ``policy`` would if all actions were legal, where ``blind(deterministic)``."""

    def __init__(self, policy: Any, blind: Callable[[bool], bool]) -> None:
        self.policy, self.blind = policy, blind

    def initial_state(self, num_envs: int) -> Any:
        return self.policy.initial_state(num_envs)

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        if self.blind(deterministic):
            observation = {**observation, MASK: np.ones_like(observation[MASK])}
        found: Decision = self.policy.act(observation, state, rng, deterministic)
        return found


@plant
def mask_lost_in_entropy(kind: Kind) -> Kind:
    """The bonus is paid for the entropy over all actions, the illegal ones among them."""

    def loss(minibatch: Any, outputs: Any, settings: Any) -> Losses:
        found = kind.algorithm.loss(minibatch, outputs, settings)
        logits = outputs.distribution.logits.masked_fill(~minibatch.mask, -4.0)
        chances = logits.softmax(dim=-1)
        everywhere = -(chances * logits.log_softmax(dim=-1)).sum(dim=-1).mean()
        return Losses({**found.terms, "entropy_bonus": -0.1 * everywhere})

    return but(kind, loss=loss)


# --- Observations --------------------------------------------------------------------------------


Views: TypeAlias = Mapping[str, Observation]


def _observed(kind: Kind, change: Callable[[Any, Views], Views]) -> Kind:
    """Return a trainer that learns from, and decides by, ``change(trainer, observations)``."""

    def begin(self: Any) -> None:
        kind.begin(self)
        store = self.rollout.store_obs

        def store_obs(t: int, observations: Views, *rest: Any) -> None:
            store(t, change(self, observations), *rest)

        self.rollout.store_obs = store_obs

    return with_methods(kind, begin=begin)


@plant
def observation_one_step_late(kind: Kind) -> Kind:
    def late(trainer: Any, observations: Views) -> Views:
        copied = _copied(observations)
        before = vars(trainer).get("_shown", copied)
        trainer._shown = copied
        return {a: {**before[a], MASK: own[MASK]} for a, own in copied.items()}

    return _observed(kind, late)


@plant
def observation_of_another_agent(kind: Kind) -> Kind:
    """Features change places; masks stay."""

    def swapped(trainer: Any, observations: Views) -> Views:
        copied = _copied(observations)
        others = [*list(copied)[1:], next(iter(copied))]
        shapes = {np.shape(own[OBSERVATION]) for own in copied.values()}
        if len(shapes) > 1:
            return copied
        return {
            agent: {**own, OBSERVATION: copied[other][OBSERVATION]}
            for (agent, own), other in zip(copied.items(), others, strict=True)
        }

    return _observed(kind, swapped)


def _copied(observations: Views) -> dict[str, dict[str, Array]]:
    return {a: {k: np.array(part) for k, part in own.items()} for a, own in observations.items()}


def _blinded(kind: Kind, roles: tuple[str, ...]) -> Kind:
    """Return a trainer with networks that observe which agent it is, and nothing else."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        kind.__init__(self, *args, **kwargs)
        for learner in self.learners.values():
            for role in roles:
                width = learner.group.layout.width if role == "actor" else None
                first = getattr(learner, role).layers[0]
                identities = learner.group.identities
                first.register_forward_pre_hook(_Blind(width, identities))

    return with_methods(kind, __init__=init)


class _Blind:
    def __init__(self, width: int | None, identities: int) -> None:
        self.width, self.identities = width, identities

    def __call__(self, module: Any, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        seen = given[0].clone()
        seen[..., : seen.shape[-1] - self.identities] = 0
        return (seen,)


@plant
def actor_does_not_look(kind: Kind) -> Kind:
    return _blinded(kind, ("actor",))


@plant
def critic_does_not_look(kind: Kind) -> Kind:
    return _blinded(kind, ("critic",))


# --- Memory, accounts ----------------------------------------------------------------------------


@plant
def memory_outlives_episodes(kind: Kind) -> Kind:
    """Recurrent state is not reset, in play nor in training."""

    def begin(self: Any) -> None:
        kind.begin(self)
        over = self.rollout.over

        def never(group: Any) -> Array:
            return np.zeros((len(over), over.shape[1] * len(group.agents)), dtype=bool)

        self.rollout.begins = never
        for hidden in self.hidden.values():
            hidden.reset = lambda env_rows: None

    return with_methods(kind, begin=begin)


@plant
def memory_lost_in_training(kind: Kind) -> Kind:
    """Each decision is learned from as if an episode began with it."""

    def begin(self: Any) -> None:
        kind.begin(self)
        over = self.rollout.over

        def always(group: Any) -> Array:
            return np.ones((len(over), over.shape[1] * len(group.agents)), dtype=bool)

        self.rollout.begins = always

    return with_methods(kind, begin=begin)


def returns_cut_with_the_rollout(kind: Kind) -> Kind:
    """Returns forget the rewards from before the rollout's beginning."""

    def collect(self: Any) -> Any:
        self.batch._returns[...] = 0
        return kind.collect(self)

    return with_methods(kind, collect=collect)
