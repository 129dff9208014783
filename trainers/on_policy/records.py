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
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, reduce
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from corral.adapters.masked_distribution import Distribution
from corral.envs.core import Array
from corral.errors import AlgorithmError, ArgumentError, NonFiniteError
from corral.extensions import required_extension
from corral.hints import hint
from corral.trainers.on_policy import maths
from corral.trainers.on_policy.buffer import GroupBuffer, RolloutBuffer
from corral.trainers.on_policy.critic import Values
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
    "advantages_of",
    "backward",
    "extras_of",
    "finite_numbers",
    "optimizer_of",
    "scalars_of",
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

    @classmethod
    def of(cls, rollout: RolloutBuffer, buffer: GroupBuffer, values: Values) -> Trajectories:
        """Return the rollout of one group's agents, in columns, with the ``values`` of a critic."""
        group, acted = buffer.group, buffer.acted
        terminated = group.own(rollout.terminated)
        ended = terminated | group.own(rollout.truncated)
        acts_next = buffer.acting[-1].reshape(-1)
        reward = group.own(rollout.reward)
        if buffer.learned is not None:  # what frozen copies earn is nobody's who learns
            reward = np.where(buffer.learned.reshape(acted.shape), reward, np.float32(0))
        return cls(
            reward=reward,
            value=values.value,
            acted=acted,
            ended=ended,
            final_obs_value=np.where(terminated, 0.0, values.final_obs_value),
            bootstrap_value=values.bootstrap_value,
            valid=maths.valid_decisions(acted=acted, ended=ended, acts_next=acts_next),
        )


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
    stay_coef: float = 0.0  # the same of the penalty on leaving the start
    env_steps: int = 0  # played before this rollout
    extras: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """What the record's ``extras`` kept when the decisions were made: [R, ...] each."""

    def __len__(self) -> int:
        return len(self.advantage)

    def now(self, settings: Any, name: str) -> float:
        """Return the value that a setting has now: see ``corral.trainers.schedules``."""
        return scheduled(settings, name, env_steps=self.env_steps, progress=self.progress)


MINIBATCH_FIELDS = frozenset(each.name for each in fields(Minibatch))


class TrackedMinibatch(Minibatch):
    """A minibatch that knows which of its fields were read."""

    read: set[str]

    @classmethod
    def of(cls, minibatch: Minibatch) -> TrackedMinibatch:
        found = cls(**{name: getattr(minibatch, name) for name in MINIBATCH_FIELDS})
        object.__setattr__(found, "read", set())
        return found

    def __getattribute__(self, name: str) -> Any:
        if name in MINIBATCH_FIELDS and "read" in object.__getattribute__(self, "__dict__"):
            object.__getattribute__(self, "read").add(name)
        return object.__getattribute__(self, name)


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

    def __post_init__(self) -> None:
        """Raise AlgorithmError where a field holds what it cannot."""
        if not isinstance(self.name, str) or not self.name:
            raise AlgorithmError(f"an algorithm's name={self.name!r:.60}: give a name")
        if not (isinstance(self.Settings, type) and dataclasses.is_dataclass(self.Settings)):
            raise AlgorithmError(f"{self.name}: Settings={self.Settings!r:.60}: give a dataclass")
        for field_name, given in GIVEN.items():
            function = getattr(self, field_name)
            if function is not None or field_name != "extras":
                _require_function(function, f"{field_name}({', '.join(given)})", len(given), self)

    def but(self, **changes: Any) -> OnPolicy:
        """Return the same algorithm with some fields replaced.

        Raises ArgumentError for a field that there is not, AlgorithmError for what is no function.
        """
        known = [each.name for each in dataclasses.fields(self)]
        for name in changes:
            if name not in known:
                raise ArgumentError(
                    f"an algorithm has no field named {name!r}{hint(name, known)} "
                    f"Known: {', '.join(known)}"
                )
        return dataclasses.replace(self, **changes)

    def as_trainer(self) -> type:
        """Return the class of trainers that learn by it."""
        made: type = required_extension("trainers.trainer_of")(self)
        return made


GIVEN = {
    "advantages": ("trajectories", "settings"),
    "loss": ("minibatch", "outputs", "settings"),
    "metrics": ("minibatch", "outputs", "losses", "settings"),
    "optimizer": ("parameters", "settings"),
    "gradients": ("learner", "settings"),
    "stop_early": ("metrics", "settings"),
    "after_update": ("learner", "metrics", "settings"),
    "extras": ("distribution",),
}
"""The functions of a record, and what each is given."""


def _require_function(function: Any, form: str, given: int, algorithm: OnPolicy) -> None:
    name = form.partition("(")[0]
    if not callable(function):
        raise AlgorithmError(f"{algorithm.name}: {name}={function!r:.60}: give a function {form}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # of what is built in
    try:
        signature.bind(*range(given))
    except TypeError:
        raise AlgorithmError(
            f"{algorithm.name}: {name} takes other arguments than it is given: {form}"
        ) from None


# --- What functions must return ------------------------------------------------------------------

TAKEN = re.compile(
    "env_steps|wall_s|updates|episodes|length|env_steps_per_s|reward_per_step|(return|share|kpi|warning)_.*"
    "|warnings|learning_rate|value_scale|explained_variance|grad_norm_(actor|critic)"
)
"""Columns of progress.csv that are written by others than the loss and the metrics of a record."""


def optimizer_of(algorithm: OnPolicy, policy: str, parameters: Any, settings: Any) -> Any:
    """Return the optimizer of a policy. Raises AlgorithmError where the function gives none."""
    found = algorithm.optimizer(parameters, settings)
    if not all(hasattr(found, part) for part in ("param_groups", "step", "zero_grad")):
        raise AlgorithmError(
            f"{algorithm.name}, policy {policy}: optimizer returned {_what(found)}: return one of "
            "torch.optim, such as torch.optim.Adam(parameters, lr=0.0)"
        )
    return found


def extras_of(algorithm: OnPolicy, policy: str) -> Callable[[Distribution], Any] | None:
    """Return the function ``extras``, checked: it raises AlgorithmError for what is no mapping."""
    function = algorithm.extras
    if function is None:
        return None

    def extras(distribution: Distribution) -> Mapping[str, torch.Tensor]:
        found = function(distribution)
        if not isinstance(found, Mapping):
            raise AlgorithmError(
                f"{algorithm.name}, policy {policy}: extras returned {_what(found)}: return a dict "
                "of tensors [R, ...]"
            )
        return found

    return extras


def advantages_of(
    algorithm: OnPolicy, policy: str, trajectories: Trajectories, settings: Any
) -> Advantages:
    """Return the advantages of a rollout. Raises AlgorithmError where they do not fit it."""
    who = f"{algorithm.name}, policy {policy}: advantages"
    found: Any = algorithm.advantages(trajectories, settings)
    if not isinstance(found, Advantages):
        raise AlgorithmError(
            f"{who} returned {_what(found)}: return Advantages(advantage, value_target)"
        )
    shape, valid = trajectories.reward.shape, trajectories.valid
    sound = all(
        np.isfinite(each[valid]).all() for each in (trajectories.reward, trajectories.value)
    )
    for name, values in vars(found).items():
        if not isinstance(values, np.ndarray) or values.dtype.kind != "f":
            kind = getattr(values, "dtype", type(values).__name__)
            kind = kind if isinstance(values, np.ndarray) else type(values).__name__
            raise AlgorithmError(f"{who}: {name} is of {kind}: give a NumPy array of floats")
        if values.shape != shape:
            raise AlgorithmError(
                f"{who}: {name} has the shape {values.shape}: give float32 [T, C], here {shape}"
            )
        if sound and not np.isfinite(values[valid]).all():
            raise AlgorithmError(
                f"{who}: {name} is nan or infinite, of rewards and values that are"
                " neither: mend the function"
            )
    return found


def scalars_of(losses: Losses, statistics: Any, norms: Any, who: str) -> dict[str, torch.Tensor]:
    """Return all scalars of a minibatch by name: terms, statistics, and the norms of gradients.

    Raises AlgorithmError where these are none, or one has the name of something else.
    """
    if not (isinstance(norms, tuple | list) and len(norms) == 2):
        raise AlgorithmError(
            f"{who}: gradients returned {_what(norms)}: return two scalar tensors, the norms of "
            "the actor's and the critic's gradients before it changed them, as clip_norm does"
        )
    if not isinstance(statistics, Mapping):
        raise AlgorithmError(
            f"{who}: metrics returned {_what(statistics)}: return a dict of named scalars"
        )
    for what, names in (("the loss", losses.terms), ("metrics", statistics)):
        if taken := [name for name in names if TAKEN.fullmatch(name)]:
            raise AlgorithmError(
                f"{who}: {what} gives {', '.join(taken)}, which is a column of progress.csv "
                "already; call it something else"
            )
    terms = losses.terms
    if twice := [
        name for name in statistics if statistics[name] is not terms.get(name, statistics[name])
    ]:
        raise AlgorithmError(
            f"{who}: metrics gives {', '.join(twice)}, which is a term of the loss too; call one "
            "of them something else"
        )
    norm_of = dict(zip(("grad_norm_actor", "grad_norm_critic"), norms, strict=True))
    return {**losses.terms, **statistics, **norm_of}


def _what(found: Any) -> str:
    return "None" if found is None else type(found).__name__


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
