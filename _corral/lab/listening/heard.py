"""Records of a training: rollouts, minibatches, optimizer steps and episodes of a policy.

Every field may be missing (None or empty): rules use what there is, and the report names the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch

from corral.envs.core import Array
from corral.lab.doctor.findings.finding import Finding

__all__ = [
    "Gradients",
    "Heard",
    "Layer",
    "Minibatch",
    "Place",
    "Rollout",
    "Step",
    "as_array",
    "guarded",
]


@dataclass(eq=False)  # a key of caches
class Rollout:
    """Decisions in order of time: T steps in B columns, one for each environment copy and agent.

    A framework that collects whole episodes puts them into one column, one after the other.
    """

    obs: Any = None  # [T, B, ...], or a dict or tuple of arrays
    actions: Array | None = None  # [T, B] or [T, B, D]
    mask: Array | None = None  # bool [T, B, A]
    rewards: Array | None = None  # float64 [T, B] of the decision in step t
    terminated: Array | None = None  # bool [T, B]: the episode ended after the decision in step t
    truncated: Array | None = None  # bool [T, B]
    values: Array | None = None  # float64 [T, B]
    final_values: Array | None = None  # float64 [T, B] V(final observation) where truncated
    last_values: Array | None = None  # float64 [B] values of the observations after the last step
    log_probs: Array | None = None  # float64 [T, B] when the action was played
    advantages: Array | None = None  # float64 [T, B]
    returns: Array | None = None  # float64 [T, B] the targets of the values
    valid: Array | None = None  # bool [T, B]: False for padding; None: all are valid
    update: int = 0  # number of the update that learns from it, from 1


@dataclass
class Minibatch:
    """R decisions in a loss. Tensors of the user are copied to arrays."""

    obs: Any = None  # [R, ...]
    actions: Array | None = None
    mask: Array | None = None  # bool [R, A]
    rewards: Array | None = None
    terminated: Array | None = None  # bool [R]
    truncated: Array | None = None  # bool [R]
    log_probs: Array | None = None  # [R] when the action was played
    new_log_probs: Array | None = None  # [R] in the loss
    logits: Array | None = None  # [R, A] inputs of the distribution in the loss, after any mask
    entropy: Array | None = None  # [R] or [] in the loss
    values: Array | None = None  # [R] in the loss
    advantages: Array | None = None  # [R] in the loss
    returns: Array | None = None  # [R]
    action_values: Array | None = None  # [R, A] of all actions, of which ``values`` has one
    next_obs: Any = None  # [R, ...] after the decision
    next_values: Array | None = None  # [R] V or max Q of the next observations, in the targets
    losses: dict[str, float] = field(default_factory=dict)  # terms by name; "loss": their sum
    first: bool = False  # first minibatch of an update: no optimizer step since the rollout
    update: int = 0  # number of the update, from 1
    step: int = 0  # number of optimizer steps heard before this minibatch
    gradients: Gradients | None = None  # complete after the user's backward()


@dataclass
class Gradients:
    """Gradients of the user's loss with regard to outputs of the network; None: not part of it."""

    log_probs: Array | None = None  # [R]
    values: Array | None = None  # [R]
    entropy: Array | None = None  # [R] or []
    logits: Array | None = None  # [R, A]
    done: bool = False  # backward() ran for this minibatch
    watched: list[str] = field(default_factory=list)  # outputs that backward() can reach
    cut: list[str] = field(default_factory=list)  # tensors without a graph
    reach: dict[str, frozenset[int]] = field(default_factory=dict)
    """Output -> ids of the parameters that it depends on, in the first minibatch of an update."""


@dataclass
class Step:
    """One optimizer step."""

    learning_rate: float
    gradients: dict[str, float]  # parameter -> largest |gradient| that the optimizer gets
    norm: float  # of all gradients that the optimizer gets
    fresh_norm: float | None = None  # of the gradients of the last backward(), before any clipping
    kept_norm: float | None = None  # norm of gradients of earlier steps that they were added to
    changes: dict[str, float] = field(default_factory=dict)  # parameter -> largest |change|
    update: int = 0  # number of the update, from 1
    weight_decay: float = 0.0  # largest of the groups
    weights: float | None = None  # norm of the optimizer's weights before the step
    uphill: bool = False  # the optimizer maximizes: maximize=True or a negative learning rate


@dataclass
class Layer:
    """A module without children, in its first call of the last recorded update that had a
    gradient and enough different rows."""

    kind: str  # its class
    calls: int = 0  # all calls in recorded updates
    graph: bool = False  # called with a gradient
    playing: set[bool] = field(default_factory=set)  # ``training`` in calls without a gradient
    learning: set[bool] = field(default_factory=set)  # and in calls with one
    rows: int = 0  # different rows of its input
    dead: int = 0  # recorded updates in a row in which all of these had the same output
    saturated: float = 0.0  # share of outputs at the ends of tanh or sigmoid
    inputs: Array | None = None  # [F] largest |input| of each column, for data from outside
    probabilities: Array | None = None  # [R, A] outputs, if they are positive and sum to 1


@dataclass(frozen=True)
class Place:
    """A place in the user's code that a finding is about."""

    module: str = ""  # class or module
    name: str = ""  # method, parameter or key
    file: str = ""
    line: int | None = None

    def __str__(self) -> str:
        named = ".".join(filter(None, (self.module, self.name)))
        where = f"{self.file}:{self.line}" if self.line is not None else self.file
        return f"{named} ({where})" if named and where else named or where


@dataclass
class Heard:
    """The records of one policy."""

    policy: str
    framework: str = ""  # "rllib", "sb3", "torchrl", "tianshou", "corral", or "" for own loops
    network: torch.nn.Module | None = None
    gamma: float | None = None
    gae_lambda: float | None = None
    rollouts: list[Rollout] = field(default_factory=list)
    minibatches: list[Minibatch] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)  # of ended episodes, in order
    batch_rewards: list[float] = field(default_factory=list)  # means, without rollouts
    lengths: list[int] = field(default_factory=list)
    counted: bool = False  # without rollouts: an update is a number of minibatches
    output: torch.Tensor | None = None  # [R, A] of the network's last call with a gradient
    updates: int = 0  # all updates, also those in which nothing was recorded
    outside: list[str] = field(default_factory=list)  # trainable parameters in no optimizer
    restored: int = 0  # updates after which the weights were those of before it
    dead: list[str] = field(default_factory=list)  # layers: one output for all different inputs
    layers: dict[str, Layer] = field(default_factory=dict)  # by name
    traps: list[Finding] = field(default_factory=list)  # found by the listener of a framework
    places: dict[str, Place] = field(default_factory=dict)  # quantity or cause -> place
    failed: dict[str, str] = field(default_factory=dict)  # rule -> exception

    def heard(self, name: str) -> bool:
        """Return True if a field of rollouts or minibatches was heard at least once."""
        items: Sequence[Any] = (*self.rollouts, *self.minibatches)
        return any(getattr(item, name, None) is not None for item in items)

    @property
    def missing(self) -> list[str]:
        """Return the names of the fields that were never heard."""
        names = {entry.name: None for kind in (Rollout, Minibatch) for entry in fields(kind)}
        internal = {"valid", "update", "losses", "first", "step", "gradients"}
        if self.heard("advantages") or self.rollouts:  # the targets are known by the rollouts
            internal |= {"action_values", "next_obs", "next_values"}
        return [name for name in names if name not in internal and not self.heard(name)]


def as_array(values: Any, dtype: Any = None) -> Array:
    """Return a copy of a tensor or sequence as an array."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    return np.array(values, dtype=dtype)


def guarded(heard: Heard, hook: Callable[..., None]) -> Callable[..., None]:
    """Return a hook that names its exception in the report, and does not stop the training."""

    def call(*args: Any) -> None:
        try:
            hook(*args)
        except Exception as error:  # from a tensor or optimizer of an unknown form
            heard.failed[hook.__name__] = f"{type(error).__name__}: {error}"

    return call
