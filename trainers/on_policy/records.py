"""Algorithm records: a record of functions, and their arguments and results.

The trainer (``corral.trainers.on_policy.trainer``) plays, applies masks, computes values and splits
minibatches. A record defines what is learned from them. Each function is pure and can be replaced
separately:

    from corral import algorithms as alg

    long_sighted = alg.mappo.but(name="long_sighted", advantages=alg.normalize(alg.reward_to_go))
    corral.train("dfaas_v0", trainer=long_sighted)

The last argument of most functions is the settings, an instance of the record's ``Settings``. The
trainer handles masks and value heads: a loss gets distributions over legal actions, and values.
Each named term of a loss is reported under its name; ``metrics`` adds further columns.

To create a trainer and train:

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
"""The minibatches over which a metric is averaged."""


# --- Arguments and results of the functions ------------------------------------------------------


@dataclass(frozen=True)
class Trajectories:
    """A rollout of one policy's agents, in C columns. ``maths.gae`` explains the arrays."""

    reward: Array  # float32 [T, C]
    value: Array  # float32 [T, C] values of the observations before step t
    acted: Array  # bool [T, C]
    ended: Array  # bool [T, C] episode ended, terminated or truncated
    final_obs_value: Array  # float32 [T, C] if ended: 0 if terminated, V(final obs) if truncated
    bootstrap_value: Array  # float32 [C] values of the observations after the last step
    valid: Array  # bool [T, C] the decisions to train on

    @classmethod
    def of(cls, rollout: RolloutBuffer, buffer: GroupBuffer, values: Values) -> Trajectories:
        """Return the rollout of one group's agents, in columns, with the critic's ``values``."""
        group, acted = buffer.group, buffer.acted
        terminated = group.own(rollout.terminated)
        ended = terminated | group.own(rollout.truncated)
        acts_next = buffer.acting[-1].reshape(-1)
        reward = group.own(rollout.reward)
        if buffer.learned is not None:  # ignore rewards of frozen copies
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
    """Advantages and value targets of a rollout: float32 [T, C]; only valid decisions count."""

    advantage: Array
    value_target: Array  # in the scale of the rewards


@dataclass(frozen=True)
class Minibatch:
    """R decisions to train on, with the data recorded when they were made."""

    action: torch.Tensor  # [R, ...]
    mask: torch.Tensor  # bool [R, A]
    log_prob: torch.Tensor  # float32 [R]
    advantage: torch.Tensor  # float32 [R]
    value_target: torch.Tensor  # float32 [R] in the critic's scale
    old_value: torch.Tensor  # float32 [R] in the critic's scale
    epoch: int  # epoch of this update, from 0
    progress: float  # progress of the training: 0 at the start, 1 at the end
    kl_coef: float  # current weight of the KL penalty
    stay_coef: float = 0.0  # current weight of the penalty on leaving the initial policy
    env_steps: int = 0  # env steps before this rollout
    extras: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Tensors stored by the record's ``extras`` for each decision: [R, ...] each."""

    def __len__(self) -> int:
        return len(self.advantage)

    def now(self, settings: Any, name: str) -> float:
        """Return the current value of a setting: see ``corral.trainers.schedules``."""
        return scheduled(settings, name, env_steps=self.env_steps, progress=self.progress)


MINIBATCH_FIELDS = frozenset(entry.name for entry in fields(Minibatch))


class TrackedMinibatch(Minibatch):
    """A minibatch that records which of its fields were read."""

    read: set[str]

    @classmethod
    def of(cls, minibatch: Minibatch) -> TrackedMinibatch:
        tracked = cls(**{name: getattr(minibatch, name) for name in MINIBATCH_FIELDS})
        object.__setattr__(tracked, "read", set())
        return tracked

    def __getattribute__(self, name: str) -> Any:
        if name in MINIBATCH_FIELDS and "read" in object.__getattribute__(self, "__dict__"):
            object.__getattribute__(self, "read").add(name)
        return object.__getattribute__(self, name)


@dataclass(frozen=True)
class Outputs:
    """The current outputs of the networks for a minibatch."""

    distribution: Distribution  # over legal actions
    log_prob: torch.Tensor  # float32 [R] log-probabilities of the minibatch's actions
    value: torch.Tensor  # float32 [R] in the critic's scale

    @cached_property
    def entropy(self) -> torch.Tensor:
        """The mean entropy of the distributions, in nats: float32 []."""
        return self.distribution.entropy().mean()


@dataclass(frozen=True)
class Losses:
    """Named scalar terms, already weighted; the optimizer minimizes their sum, in this order."""

    terms: Mapping[str, torch.Tensor]

    @property
    def total(self) -> torch.Tensor:
        return reduce(torch.add, self.terms.values())


@dataclass(frozen=True)
class OnPolicy:
    """An on-policy algorithm: it learns only from rollouts of the current policies."""

    name: str
    advantages: Callable[[Trajectories, Any], Advantages]
    loss: Callable[[Minibatch, Outputs, Any], Losses]
    metrics: Callable[[Minibatch, Outputs, Losses, Any], Mapping[str, torch.Tensor]]
    """Returns scalars to report in addition to the loss terms. Computed without gradients."""
    reports: Mapping[str, Over]
    """Averaging range of metrics that are not averaged over the whole update."""
    optimizer: Callable[[Iterable[nn.Parameter], Any], torch.optim.Optimizer]
    gradients: Callable[[Learner, Any], tuple[torch.Tensor, torch.Tensor]]
    """Modifies the gradients before a step; returns the actor's and critic's norms before that."""
    stop_early: Callable[[dict[str, float], Any], bool]
    """Gets the metrics of an epoch, and returns True to end the update."""
    after_update: Callable[[Learner, dict[str, float], Any], None]
    """Called after an update with the reported metrics."""
    Settings: type
    critic_input: str | None = None
    """The critic's input, see ``CriticInput``; None: use the setting ``critic_input``."""
    extras: Callable[[Distribution], Mapping[str, torch.Tensor]] | None = None
    """Gets the distribution [R] from which actions are sampled; returns named tensors [R, ...] to
    store for the loss."""

    def __post_init__(self) -> None:
        """Raises AlgorithmError for an invalid field."""
        if not isinstance(self.name, str) or not self.name:
            raise AlgorithmError(f"an algorithm's name={self.name!r:.60}: pass a name")
        if not (isinstance(self.Settings, type) and dataclasses.is_dataclass(self.Settings)):
            raise AlgorithmError(f"{self.name}: Settings={self.Settings!r:.60}: pass a dataclass")
        for field_name, arguments in ARGUMENTS.items():
            function = getattr(self, field_name)
            if function is not None or field_name != "extras":
                _require_function(
                    function, f"{field_name}({', '.join(arguments)})", len(arguments), self
                )

    def but(self, **changes: Any) -> OnPolicy:
        """Return a copy of the algorithm with some fields replaced.

        Raises ArgumentError for an unknown field, and AlgorithmError for an invalid function.
        """
        names = [entry.name for entry in dataclasses.fields(self)]
        for name in changes:
            if name not in names:
                raise ArgumentError(
                    f"an algorithm has no field named {name!r}{hint(name, names)} "
                    f"Known: {', '.join(names)}"
                )
        return dataclasses.replace(self, **changes)

    def as_trainer(self) -> type:
        """Return the trainer class of this algorithm."""
        kind: type = required_extension("trainers.trainer_of")(self)
        return kind


ARGUMENTS = {
    "advantages": ("trajectories", "settings"),
    "loss": ("minibatch", "outputs", "settings"),
    "metrics": ("minibatch", "outputs", "losses", "settings"),
    "optimizer": ("parameters", "settings"),
    "gradients": ("learner", "settings"),
    "stop_early": ("metrics", "settings"),
    "after_update": ("learner", "metrics", "settings"),
    "extras": ("distribution",),
}
"""The functions of a record, and their arguments."""


def _require_function(function: Any, form: str, count: int, algorithm: OnPolicy) -> None:
    name = form.partition("(")[0]
    if not callable(function):
        raise AlgorithmError(f"{algorithm.name}: {name}={function!r:.60}: pass a function {form}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # built-in functions may have no signature
    try:
        signature.bind(*range(count))
    except TypeError:
        raise AlgorithmError(
            f"{algorithm.name}: {name} must accept these arguments: {form}"
        ) from None


# --- Validation of the results -------------------------------------------------------------------

RESERVED = re.compile(
    "env_steps|wall_s|updates|episodes|length|env_steps_per_s|reward_per_step|(return|share|kpi|warning)_.*"
    "|warnings|learning_rate|value_scale|explained_variance|grad_norm_(actor|critic)"
)
"""Columns of progress.csv that are not available as names of loss terms and metrics."""


def optimizer_of(algorithm: OnPolicy, policy: str, parameters: Any, settings: Any) -> Any:
    """Return a policy's optimizer. Raises AlgorithmError if the result is not an optimizer."""
    optimizer = algorithm.optimizer(parameters, settings)
    if not all(hasattr(optimizer, part) for part in ("param_groups", "step", "zero_grad")):
        raise AlgorithmError(
            f"{algorithm.name}, policy {policy}: optimizer returned {_type_name(optimizer)}: "
            "return an optimizer of torch.optim, such as torch.optim.Adam(parameters, lr=0.0)"
        )
    return optimizer


def extras_of(algorithm: OnPolicy, policy: str) -> Callable[[Distribution], Any] | None:
    """Return the function ``extras`` with a check: it raises AlgorithmError for a non-mapping."""
    function = algorithm.extras
    if function is None:
        return None

    def extras(distribution: Distribution) -> Mapping[str, torch.Tensor]:
        extras = function(distribution)
        if not isinstance(extras, Mapping):
            raise AlgorithmError(
                f"{algorithm.name}, policy {policy}: extras returned {_type_name(extras)}: return "
                "a dict of tensors [R, ...]"
            )
        return extras

    return extras


def advantages_of(
    algorithm: OnPolicy, policy: str, trajectories: Trajectories, settings: Any
) -> Advantages:
    """Return the advantages of a rollout. Raises AlgorithmError for an invalid result."""
    who = f"{algorithm.name}, policy {policy}: advantages"
    advantages: Any = algorithm.advantages(trajectories, settings)
    if not isinstance(advantages, Advantages):
        raise AlgorithmError(
            f"{who} returned {_type_name(advantages)}: return Advantages(advantage, value_target)"
        )
    shape, valid = trajectories.reward.shape, trajectories.valid
    inputs_finite = all(
        np.isfinite(values[valid]).all() for values in (trajectories.reward, trajectories.value)
    )
    for name, values in vars(advantages).items():
        if not isinstance(values, np.ndarray) or values.dtype.kind != "f":
            kind = getattr(values, "dtype", type(values).__name__)
            kind = kind if isinstance(values, np.ndarray) else type(values).__name__
            raise AlgorithmError(f"{who}: {name} has type {kind}: return a NumPy array of floats")
        if values.shape != shape:
            raise AlgorithmError(
                f"{who}: {name} has shape {values.shape}: return float32 [T, C], here {shape}"
            )
        if inputs_finite and not np.isfinite(values[valid]).all():
            raise AlgorithmError(
                f"{who}: {name} is nan or infinite, although rewards and values are finite: "
                "correct the function"
            )
    return advantages


def scalars_of(losses: Losses, statistics: Any, norms: Any, who: str) -> dict[str, torch.Tensor]:
    """Return all scalars of a minibatch by name: loss terms, metrics, and gradient norms.

    Raises AlgorithmError for invalid results, and for a name that is already in use.
    """
    if not (isinstance(norms, tuple | list) and len(norms) == 2):
        raise AlgorithmError(
            f"{who}: gradients returned {_type_name(norms)}: return two scalar tensors, the norms "
            "of the actor's and the critic's gradients before the change, as clip_norm does"
        )
    if not isinstance(statistics, Mapping):
        raise AlgorithmError(
            f"{who}: metrics returned {_type_name(statistics)}: return a dict of named scalars"
        )
    for source, names in (("the loss", losses.terms), ("metrics", statistics)):
        if reserved := [name for name in names if RESERVED.fullmatch(name)]:
            raise AlgorithmError(
                f"{who}: {source} uses the name {', '.join(reserved)}, which is a reserved column "
                "of progress.csv; rename it"
            )
    terms = losses.terms
    if duplicates := [
        name for name in statistics if statistics[name] is not terms.get(name, statistics[name])
    ]:
        raise AlgorithmError(
            f"{who}: metrics uses the name {', '.join(duplicates)}, which is already a loss term; "
            "rename one of them"
        )
    norm_of = dict(zip(("grad_norm_actor", "grad_norm_critic"), norms, strict=True))
    return {**losses.terms, **statistics, **norm_of}


def _type_name(value: Any) -> str:
    return "None" if value is None else type(value).__name__


def backward(losses: Any, learner: Learner, who: str) -> None:
    """Compute the gradients of ``losses``: named scalars that must depend on the actor.

    Raises AlgorithmError with ``who`` and the name of the term.
    """
    if not isinstance(losses, Losses) or not losses.terms:
        raise AlgorithmError(
            f"{who}: the loss returned {type(losses).__name__}: return Losses with named terms, "
            'such as Losses({"policy_loss": scalar})'
        )
    _require_scalars(losses.terms, who)
    total = losses.total
    if total.requires_grad:
        total.backward()  # type: ignore[no-untyped-call]
    if all(parameter.grad is None for parameter in learner.actor_parameters):
        raise AlgorithmError(
            f"{who}: none of the terms ({', '.join(losses.terms)}) gives the actor a gradient: use "
            "outputs.log_prob or outputs.distribution, without detach(), item() or no_grad()"
        )


def finite_numbers(scalars: Mapping[str, Any], who: str) -> dict[str, float]:
    """Return ``scalars`` as floats. Raises NonFiniteError, or AlgorithmError for a non-scalar."""
    _require_scalars(scalars, who)
    numbers: list[float] = torch.stack(list(scalars.values())).tolist()  # a single device transfer
    for name, number in zip(scalars, numbers, strict=True):
        if not math.isfinite(number):
            raise NonFiniteError(
                f"{who}: {name} is {number}. Training has diverged: try a smaller learning_rate, "
                "and check the last rows of progress.csv; in the first update, correct the loss"
            )
    return dict(zip(scalars, numbers, strict=True))


def _require_scalars(scalars: Mapping[str, Any], who: str) -> None:
    for name, scalar in scalars.items():
        if not isinstance(scalar, torch.Tensor) or not scalar.is_floating_point():
            raise AlgorithmError(f"{who}: {name} is {scalar!r:.60}: return a scalar float tensor")
        if scalar.dim():
            raise AlgorithmError(
                f"{who}: {name} has shape {tuple(scalar.shape)}: return a scalar, such as its mean"
            )
