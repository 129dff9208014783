"""What an algorithm is: a record of functions, and what they are given and return.

The trainer (``corral.trainers.on_policy.trainer``) plays, masks, values and takes minibatches; a
record says what is learned from them. Each function is pure, and is replaced by itself:

    from corral import algorithms as alg

    long_sighted = alg.mappo.but(name="long_sighted", advantages=alg.normalize(alg.reward_to_go))
    corral.train("dfaas_v0", trainer=long_sighted)

Every function is given the settings last, an instance of the record's ``Settings``. Masks and value
heads are the trainer's: a loss gets distributions over legal actions, and values. Each named term
of a loss is reported under its name; ``metrics`` adds to them.

A trainer is made, and trains, as in

    trainer = Trainer(rules, Trainer.Settings(), seed=0, policies={"agent_0": "shared", ...},
                      policies_to_train=["shared"], steps=100_000)
    for update in trainer.learn():
        print(update.env_steps, update.metrics)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, Literal

import torch
from torch import nn

from corral.adapters.masked_distribution import Distribution
from corral.envs.core import Array
from corral.errors import AlgorithmError, NonFiniteError
from corral.trainers.on_policy.learner import Learner
from corral.trainers.schedules import scheduled

__all__ = [
    "Advantages",
    "Losses",
    "Minibatch",
    "OnPolicy",
    "Outputs",
    "Over",
    "Trajectories",
    "backward",
    "finite_numbers",
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
    env_steps: int = 0  # played before this rollout
    extras: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """What the record's ``extras`` kept when the decisions were made: [R, ...] each."""

    def __len__(self) -> int:
        return len(self.advantage)

    def now(self, settings: Any, name: str) -> float:
        """Return the value that a setting has now: see ``corral.trainers.schedules``."""
        return scheduled(settings, name, env_steps=self.env_steps, progress=self.progress)


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
    metrics: Callable[[Minibatch, Outputs, Losses, Any], Mapping[str, torch.Tensor]]
    """Returns scalars that are reported beside the terms of the loss. It is not differentiated."""
    reports: Mapping[str, Over]
    """What metrics are averaged over, where not over the whole update."""
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
    extras: Callable[[Distribution], Mapping[str, torch.Tensor]] | None = None
    """Is given the distribution [R] that actions are drawn from, and returns what of it is kept
    for the loss: named tensors [R, ...]."""

    def but(self, **changes: Any) -> OnPolicy:
        """Return the same algorithm with some fields replaced."""
        return dataclasses.replace(self, **changes)

    def as_trainer(self) -> type:
        """Return the class of trainers that learn by it."""
        from corral.trainers.on_policy.trainer import trainer_of

        return trainer_of(self)


# --- What a loss must be -------------------------------------------------------------------------


def backward(losses: Any, learner: Learner, who: str) -> None:
    """Compute the gradients of ``losses``, which must be named scalars that hang on the actor.

    Raises AlgorithmError, naming ``who`` and the term.
    """
    if not isinstance(losses, Losses) or not losses.terms:
        raise AlgorithmError(
            f"{who}: the loss returned {type(losses).__name__}: return Losses of named terms, such "
            'as Losses({"policy_loss": scalar})'
        )
    _require_scalars(losses.terms, who)
    total = losses.total
    if total.requires_grad:
        total.backward()  # type: ignore[no-untyped-call]
    if all(each.grad is None for each in learner.actor_parameters):
        raise AlgorithmError(
            f"{who}: no gradient reaches the actor by any term ({', '.join(losses.terms)}): make "
            "one of outputs.log_prob or outputs.distribution, without detach(), item() or no_grad()"
        )


def finite_numbers(scalars: Mapping[str, Any], who: str) -> dict[str, float]:
    """Return ``scalars`` as floats. Raises NonFiniteError, or AlgorithmError for what is none."""
    _require_scalars(scalars, who)
    numbers: list[float] = torch.stack(list(scalars.values())).tolist()  # one transfer for all
    for name, number in zip(scalars, numbers, strict=True):
        if not math.isfinite(number):
            raise NonFiniteError(
                f"{who}: {name} is {number}. Training has diverged: try a smaller learning_rate, "
                "and look at the last rows of progress.csv; at the first update, mend the loss"
            )
    return dict(zip(scalars, numbers, strict=True))


def _require_scalars(found: Mapping[str, Any], who: str) -> None:
    for name, each in found.items():
        if not isinstance(each, torch.Tensor) or not each.is_floating_point():
            raise AlgorithmError(f"{who}: {name} is {each!r:.60}: give a tensor of one float")
        if each.dim():
            raise AlgorithmError(
                f"{who}: {name} has the shape {tuple(each.shape)}: give a scalar, such as its mean"
            )
