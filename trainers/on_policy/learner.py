"""One trained policy: its networks, its optimizer, and its hidden states."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import nn

from corral.adapters.masked_distribution import Distribution, make_distribution
from corral.adapters.models import (
    GradientCheck,
    Make,
    Model,
    Role,
    View,
    make_model,
    require_separate_weights,
    view_of,
)
from corral.adapters.networks import Network, Parts
from corral.adapters.spaces import Grid, Image
from corral.envs.core import Array
from corral.trainers.on_policy.buffer import AgentGroup
from corral.trainers.on_policy.settings import OnPolicySettings

__all__ = [
    "START",
    "HiddenState",
    "Learner",
    "Sequences",
    "Start",
    "ValueNorm",
    "device_of",
    "load_moments",
    "require_device",
    "try_out",
    "unroll",
]

InputSize = tuple[int, Sequence[Image], Sequence[float], Sequence[Grid]]
"""Width of a network's input vector, shapes and divisors of its images, and grids in the vector."""


class Inputs(Protocol):
    """Inputs of critics: see ``corral.trainers.on_policy.critic``."""

    def size(self, group: AgentGroup) -> InputSize: ...

    def view(self, group: AgentGroup) -> View: ...


START = "start_"
"""Name prefix of the extras with the distribution parameters of the initial policy."""

PREFERENCE = 1.0
"""Logit of the action that an untrained actor prefers; the others have 0."""

SMALLEST_VARIANCE = 1e-8
"""Lower bound of the variance of returns; returns below it count as constant."""


class Learner(nn.Module):
    """One policy: its actor, its critic, and its optimizer."""

    def __init__(
        self,
        group: AgentGroup,
        settings: OnPolicySettings,
        critic_input: Inputs,
        model: Make | None,
        optimizer: Callable[[Iterable[nn.Parameter], Any], torch.optim.Optimizer],
        rng: torch.Generator,
        device: torch.device,
        trained: bool,
    ) -> None:
        """``model`` builds the observation encoders of actor and critic; None: corral's layers."""
        super().__init__()
        self.group, self.device, self.trained = group, device, trained
        self.kl_coef = float(getattr(settings, "kl_coef", 0.0))
        self.stay_coef = float(getattr(settings, "stay_coef", 0.0))

        def network(
            role: Role, *size: Any, view: View | None, outputs: int, gain: float
        ) -> Network:
            encoder = None
            if model is not None and view is not None:
                encoder = make_model(
                    model,
                    view,
                    role,
                    policy=group.policy,
                    identities=group.identities,
                    inputs=size[:2],
                    rng=rng,
                )
            return Network(
                *size,
                encoder=encoder,
                outputs=outputs,
                gain=gain,
                net_arch=settings.net_arch,
                activation=settings.activation,
                memory=settings.memory,
                cnn_arch=settings.cnn_arch,
                cnn_patch=settings.cnn_patch,
                grid_arch=settings.grid_arch,
                generator=rng,
            )

        layout, actions = group.layout, group.actions
        width = layout.width + group.identities
        size: InputSize = (width, layout.images, layout.scales, layout.grids())
        views = (view_of(layout), critic_input.view(group)) if model else (None, None)
        self.actor = network("actor", *size, view=views[0], outputs=actions.outputs, gain=0.01)
        size = critic_input.size(group)
        self.critic = network("critic", *size, view=views[1], outputs=1, gain=1.0)
        self.gradient_checks = [
            GradientCheck(network) for network in self.networks if network.encoder
        ]
        self.log_std: nn.Parameter | None = None
        if actions.continuous:
            first = torch.full((actions.outputs,), math.log(settings.action_std))
            self.log_std = nn.Parameter(first)
        self.value_norm = ValueNorm(settings.value_decay, settings.normalize_values)
        self.to(device)
        extra = [] if self.log_std is None else [self.log_std]
        self.actor_parameters = [*_trainable(self.actor), *extra]
        self.critic_parameters = _trainable(self.critic)
        self.make_optimizer, self.settings = optimizer, settings
        self._moments: Mapping[int, Mapping[str, torch.Tensor]] = {}
        self.start = Start(self) if trained and self.stay_coef else None

    @functools.cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer, created on first use because torch then imports its compiler (1 s)."""
        optimizer = self.make_optimizer(_trainable(self), self.settings)
        if self._moments:
            load_moments(optimizer, self._moments)
        return optimizer

    def prefer(self, action: int) -> None:
        """Let the untrained actor prefer ``action`` in all states, exactly."""
        with torch.no_grad():
            self.actor.head.weight.zero_()
            self.actor.head.bias.zero_()
            self.actor.head.bias[action] = PREFERENCE

    @property
    def networks(self) -> tuple[Network, Network]:
        return self.actor, self.critic

    def see_gradients(self) -> None:
        """Record the gradients of a step, until every parameter of custom models has had one."""
        for check in self.gradient_checks:
            check.see()

    def require_gradients(self) -> None:
        """Raise ModelError after an update if a parameter of a custom model gets no gradient."""
        for check in self.gradient_checks:
            check.require()

    def begin_from(self, moments: Mapping[int, Mapping[str, torch.Tensor]]) -> None:
        """Set the optimizer's ``moments``, by the number of the parameter."""
        self._moments = moments
        vars(self).pop("optimizer", None)  # drop the previous optimizer

    def set_penalties(self, kl_coef: float | None = None, stay_coef: float | None = None) -> None:
        """Set the penalty weights on leaving the old and the initial policy; None: unchanged."""
        self.kl_coef = self.kl_coef if kl_coef is None else kl_coef
        self.stay_coef = self.stay_coef if stay_coef is None else stay_coef

    def distribution(self, outputs: torch.Tensor, mask: torch.Tensor) -> Distribution:
        """Return the distribution of actions for the actor's ``outputs`` [R, ...] and ``mask``
        bool [R, A]."""
        return make_distribution(self.group.actions, outputs, mask, self.log_std)

    def tensor(self, values: Array) -> torch.Tensor:
        """Return ``values`` as a tensor on the learner's device; on the CPU it may share memory."""
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)


class Start(nn.Module):
    """The initial policy of a learner: a frozen copy of its actor, with hidden states."""

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        self.actor, self.log_std = copy.deepcopy(learner.actor), copy.deepcopy(learner.log_std)
        self.requires_grad_(False)
        settings = learner.settings
        self.hidden = HiddenState(learner.group, settings.num_envs, settings.memory)

    def become(self, learner: Learner) -> None:
        """Copy the current weights of ``learner``."""
        weights = learner.state_dict()
        self.load_state_dict({key: weights[key] for key in self.state_dict()})

    def extras(
        self, learner: Learner, parts: Parts, mask: torch.Tensor, at: Any
    ) -> dict[str, torch.Tensor]:
        """Return the distribution parameters [R, ...] of the initial policy in the columns ``at``,
        and update their hidden states."""
        hidden = self.hidden.actor
        outputs, after = self.actor.step(parts, learner.tensor(hidden[at]))
        if hidden.shape[1]:
            hidden[at] = after.cpu().numpy()
        distribution = make_distribution(learner.group.actions, outputs, mask, self.log_std)
        return {f"{START}{name}": parameter for name, parameter in distribution.parameters.items()}


def _trainable(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def load_moments(
    optimizer: torch.optim.Optimizer, moments: Mapping[int, Mapping[str, torch.Tensor]]
) -> None:
    """Set the state of an optimizer, by the number of the parameter."""
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": moments, "param_groups": groups})


def device_of(name: str, groups: Sequence[AgentGroup]) -> torch.device:
    """Return the device for ``name``. "auto" selects CUDA only for images, because small networks
    are faster on the CPU. Without CUDA it is always the CPU, so that a team trained with CUDA can
    still be played; ``require_device`` checks the device before training."""
    has_images = any(group.layout.images for group in groups)
    wanted = name == "cuda" or (name == "auto" and has_images)
    return torch.device("cuda" if wanted and torch.cuda.is_available() else "cpu")


def try_out(device: str, learners: Mapping[str, Learner]) -> None:
    """Raise ValueError if ``device`` is "cuda" and not available, and ModelError if a custom model
    cannot be trained."""
    require_device(device)
    networks: dict[str, nn.Module] = {}
    for policy, learner in learners.items():
        for role, network in zip(("actor", "critic"), learner.networks, strict=True):
            if isinstance(network.encoder, Model):
                networks[f"{role} of policy {policy}"] = network.encoder
                network.encoder.try_out(learner.device)
    require_separate_weights(networks)


def require_device(name: str) -> None:
    """Raise ValueError if ``name`` is "cuda" and torch finds no CUDA device."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device='cuda': torch {torch.__version__} finds no CUDA device; pass 'cpu' or 'auto'"
        )


class ValueNorm(nn.Module):
    """A running mean and variance of returns, with bias correction.

    m <- d m + (1 - d) mean(batch); the squares and the weight w (1 per batch) are averaged in the
    same way. The mean is m / w. This is ValueNorm of Yu et al. (The Surprising Effectiveness of PPO
    in Cooperative Multi-Agent Games, 2022), with Adam's bias correction. The sums are float64 and
    part of the ``state_dict``. Before the first ``update``, values are not scaled.
    """

    total: torch.Tensor
    squares: torch.Tensor
    weight: torch.Tensor

    def __init__(self, decay: float = 0.99, enabled: bool = True) -> None:
        super().__init__()
        self.decay = decay
        self.enabled = enabled
        for name in ("total", "squares", "weight"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    @property
    def mean(self) -> float:
        return float(self.total / self.weight) if self._used else 0.0

    @property
    def scale(self) -> float:
        """The standard deviation of returns."""
        if not self._used:
            return 1.0
        variance = float(self.squares / self.weight) - self.mean**2
        return math.sqrt(max(variance, SMALLEST_VARIANCE, 1e-12 * self.mean**2))

    def update(self, returns: torch.Tensor) -> None:
        """Include ``returns`` [R]; an empty batch has no effect."""
        if not self.enabled or not returns.numel():
            return
        wide = returns.detach().to(torch.float64)
        for mean, new in (
            (self.total, wide.mean()),
            (self.squares, wide.square().mean()),
            (self.weight, torch.ones((), dtype=torch.float64)),
        ):
            mean.mul_(self.decay).add_(new.to(mean.device), alpha=1 - self.decay)

    def normalize(self, returns: torch.Tensor) -> torch.Tensor:
        """Normalize ``returns`` [R] for the critic."""
        return (returns - self.mean) / self.scale

    def restore(self, values: torch.Tensor) -> torch.Tensor:
        """Convert the critic's normalized ``values`` to returns."""
        return values * self.scale + self.mean

    @property
    def _used(self) -> bool:
        return self.enabled and float(self.weight) > 0


# --- Recurrent networks --------------------------------------------------------------------------


class Picked(NamedTuple):
    """The R decisions of selected sequences, and their layout for unrolling."""

    decisions: Array  # int64 [R] decision numbers, see Sequences
    padded: Array  # int64 [L, S] index in ``decisions`` of step l of sequence s
    at: Array  # int64 [R] index of each decision in the flattened ``padded``


class Sequences:
    """The decisions of a rollout, arranged as sequences for a recurrent network.

    A sequence contains the decisions of one column in one episode, without steps in which it does
    not act. Decisions are numbered in the order of the flattened ``acted`` [T, C].
    """

    def __init__(self, acted: Array, begins: Array) -> None:
        """``begins`` bool [T, C] is True if an episode starts at that step of the rollout."""
        columns = acted.shape[1]
        self.acted = acted
        self.episode = begins.cumsum(axis=0)  # [T, C] 0: started before the rollout
        t, c = np.nonzero(acted)
        self.rows = t * columns + c  # int64 [R] index of each decision in [T * C]
        keys, self.sequence = np.unique(self.episode[t, c] * columns + c, return_inverse=True)
        self.column = keys % columns  # int64 [S]
        self.continues = keys < columns  # bool [S] started before the rollout
        self.lengths = np.bincount(self.sequence, minlength=len(keys))
        self._starts = np.concatenate([[0], self.lengths.cumsum()[:-1]]).astype(np.int64)
        # decision numbers, sorted by sequence
        self._order = np.argsort(self.sequence, kind="stable")

    def __len__(self) -> int:
        return len(self.lengths)

    def pick(self, chosen: Array) -> Picked:
        """Return the decisions of the ``chosen`` sequences [S], with their layout."""
        lengths = self.lengths[chosen]
        rank = np.arange(int(lengths.max(initial=0)))[:, None]  # [L, 1]
        inside = rank < lengths  # [L, S]
        decisions = self._order[(self._starts[chosen] + rank)[inside]]
        padded = np.zeros(inside.shape, dtype=np.int64)
        padded[inside] = np.arange(len(decisions))
        return Picked(decisions, padded, np.flatnonzero(inside))

    def hidden_at_start(self, chosen: Array, hidden: Array) -> Array:
        """Return the initial hidden states [S, H] of the ``chosen`` sequences. ``hidden`` [C, H] is
        the state of the columns at the start of the rollout."""
        continues = self.continues[chosen][:, None]
        return np.where(continues, hidden[self.column[chosen]], np.float32(0))

    def last_decision(self) -> Array:
        """Return the number of the latest decision in the same episode: int64 [T, C]; -1: none."""
        t = np.arange(len(self.acted))[:, None]
        latest = np.maximum.accumulate(np.where(self.acted, t, -1))
        first = np.maximum.accumulate(np.where(np.diff(self.episode, axis=0, prepend=0) > 0, t, 0))
        number = np.cumsum(self.acted).reshape(self.acted.shape) - 1
        columns = np.arange(self.acted.shape[1])
        return np.where(latest >= first, number[np.maximum(latest, 0), columns], -1)


def unroll(
    learner: Learner,
    network: Network,
    parts: Parts,
    sequences: Sequences,
    chosen: Array,
    hidden: Array,
) -> tuple[torch.Tensor, Array]:
    """Return the hidden states [R, H] of ``network`` after the decisions of the ``chosen``
    sequences, and the decision numbers [R].

    ``parts`` [T * C, ...] are the network inputs, ``hidden`` is as in ``Sequences``."""
    to = sequences.pick(chosen)
    rows = learner.tensor(sequences.rows[to.decisions])
    states = network.unroll(
        [part.index_select(0, rows) for part in parts],
        learner.tensor(sequences.hidden_at_start(chosen, hidden)),
        learner.tensor(to.padded),
        learner.tensor(to.at),
    )
    return states, to.decisions


class HiddenState:
    """Hidden states of a policy's actor and critic before the next step: float32 [C, H] each.

    They are 0 at the start of an episode. ``actor_before`` and ``critic_before`` are the states
    before the first step of the rollout.
    """

    def __init__(self, group: AgentGroup, num_envs: int, units: int) -> None:
        self.shape = num_envs, len(group.agents), units
        self.actor = np.zeros((num_envs * len(group.agents), units), np.float32)
        self.critic = np.zeros_like(self.actor)
        self.begin_rollout()

    def begin_rollout(self) -> None:
        """Store the current states as the initial states of the rollout."""
        self.actor_before, self.critic_before = self.actor.copy(), self.critic.copy()

    def reset(self, env_rows: Array) -> None:
        """Reset the actor's states in ``env_rows``; ``compute_values`` resets the critic's."""
        self.actor.reshape(self.shape)[env_rows] = 0
