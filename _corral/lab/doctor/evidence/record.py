"""Containers for everything recorded about a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from corral.envs.core import Array
from corral.lab.doctor.evidence.learning import Learning, mean_log_legal
from corral.trainers.on_policy.records import Advantages, Outputs, Trajectories

__all__ = ["EnvRecord", "Evidence", "Playing", "PolicyEvidence"]


@dataclass
class Playing:
    """Record of one policy in play. T steps, C columns, B environment copies, P agents."""

    images_wrong: list[Array] = field(default_factory=list)
    """[images, 2] shares of decisions: stored image wrong; wrong and equal to the one before."""
    repeats: list[Array] = field(default_factory=list)
    """True if an observation equals the one before: bool [T, C]; the first is False."""
    identity_wrong: float = 0.0  # share of decisions stored with another agent's id
    played: list[tuple[Array, Array]] = field(default_factory=list)
    """Actions that the environment got, and the stored ones: [T, B, P, ...] both."""
    chances: list[tuple[Array, Array]] = field(default_factory=list)
    """Log-probabilities of all actions at the observations [T, B, P, A]; stored ones [T, B, P]."""
    looked_at: dict[str, Any] = field(default_factory=dict)  # agent -> observations [R, ...]
    sampled_illegal: int = 0  # in play outside of training
    play_differs: float = 0.0  # largest difference of a probability between policy and actor
    cut: list[str] = field(default_factory=list)  # inputs that change outputs without a gradient
    dead: list[str] = field(default_factory=list)  # layers with the same output for all inputs
    equal_units: list[str] = field(default_factory=list)  # layers of equal units
    probabilities: int = 0  # decisions in which all inputs of the last layer sum to 1
    scale_free: int = 0  # decisions in which x and 3 x + 1 have the same outputs
    steps: int = 0  # decisions of the greedy and sampled test play


@dataclass
class EnvRecord:
    """Record of the environment's data, and of the trainer's reports about them."""

    witness: Any = None  # a Witness; None: the environment was not recorded
    not_finite: list[str] = field(default_factory=list)  # descriptions
    illegal: Array | None = None  # [N] illegal actions that the environment counted
    reported: list[tuple[dict[str, float], dict[str, float]]] = field(default_factory=list)
    """Mean rewards per step by agent and rollout: from the environment, and as reported."""
    missing: int = 0  # ended episodes minus reported episodes
    twins: Any = None  # ``Twins`` of the environment, see evidence.environment
    states: list[Array] = field(default_factory=list)  # float32 [T + 1, B, G], rollout by rollout
    begins: list[Array] = field(default_factory=list)  # bool [T + 1, B] first steps of episodes

    def count_illegal(self, counted: Array) -> None:
        """Add the environment's counts of illegal actions in a step: [B, N]."""
        sums = np.asarray(counted, dtype=np.float64).sum(axis=0)
        self.illegal = sums if self.illegal is None else self.illegal + sums


@dataclass
class PolicyEvidence:
    """Record of one policy. T steps, C columns (environment copy x agent), A actions."""

    policy: str
    agents: tuple[str, ...]
    playing: Playing = field(default_factory=Playing)
    # The environment's data and the trainer's stored data, per rollout.
    obs: list[tuple[Array, Array]] = field(default_factory=list)  # [T, C, F] both
    masks: list[tuple[Array, Array]] = field(default_factory=list)  # bool [T, C, A] both
    rewards: list[tuple[Array, Array]] = field(default_factory=list)  # [T, C] both
    all_rewards: list[Array] = field(default_factory=list)  # [T, B, N] rewards of all agents
    actions: list[Array] = field(default_factory=list)  # [T, C]
    acted: list[Array] = field(default_factory=list)  # bool [T, C]
    terminated: list[Array] = field(default_factory=list)  # bool [T, C], from the environment
    truncated: list[Array] = field(default_factory=list)  # bool [T, C]
    final_value: list[Array] = field(default_factory=list)  # [T, C] V(final obs) if truncated
    # Inputs of an update.
    trajectories: list[Trajectories] = field(default_factory=list)
    advantages: list[Advantages] = field(default_factory=list)
    log_ratio: list[Array] = field(default_factory=list)  # [R] before the first step of an update
    entropy: list[tuple[float, float]] = field(default_factory=list)  # in the loss, legal actions
    entropies: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Entropy term or metric -> (its value, of legal actions) by minibatch of the first update."""
    max_entropy: list[float] = field(default_factory=list)  # mean log(legal actions)
    targets: list[Array] = field(default_factory=list)  # of values, in the first minibatch
    # Results of an update.
    gradients: dict[str, float] = field(default_factory=dict)  # parameter -> largest |gradient|
    moved: dict[str, float] = field(default_factory=dict)  # parameter -> largest |change|
    kept: float | None = None  # norm of the actor's weights after the updates, divided by before
    learning_rates: list[float] = field(default_factory=list)
    greedy_illegal: int = 0
    reloaded_illegal: int = 0
    reloaded_differs: float = 0.0  # largest difference of a probability after save and load
    ignored: list[str] = field(default_factory=list)  # varying inputs that change no output
    metrics: list[dict[str, float]] = field(default_factory=list)
    learning: Learning = field(default_factory=Learning)

    def note_entropy(self, mask: torch.Tensor, outputs: Outputs, legal: float | None) -> None:
        """Record the entropy in the loss, that of the ``legal`` actions, and its maximum."""
        if (log_legal := mean_log_legal(mask)) is not None:
            self.max_entropy.append(log_legal)
        if legal is not None:
            self.entropy.append((float(outputs.entropy.detach()), legal))

    @property
    def advantages_differ(self) -> bool:
        """True if the valid decisions of a rollout have different advantages."""
        return any(
            np.ptp(learned.advantage[trajectories.valid]) > 1e-9
            for trajectories, learned in zip(self.trajectories, self.advantages, strict=False)
            if trajectories.valid.any()
        )


@dataclass
class Evidence:
    """Record of a run."""

    trainer: Any
    policies: dict[str, PolicyEvidence]
    returns: list[tuple[dict[str, float], dict[str, float]]]  # (environment's, reported) episodes
    error: str = ""  # message of the trainer's exception
    error_kind: str = ""
    env: EnvRecord = field(default_factory=EnvRecord)
