"""Containers for everything recorded about a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from corral.envs.core import Array
from corral.lab.doctor.evidence.learning import Learning
from corral.lab.doctor.evidence.playing import EnvRecord, Playing
from corral.trainers.on_policy.records import Advantages, Trajectories

__all__ = ["Evidence", "PolicyEvidence"]


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
    max_entropy: list[float] = field(default_factory=list)  # mean log(legal actions)
    targets: list[tuple[Array, Array, Array]] = field(default_factory=list)  # value, target, old
    terms: list[dict[str, float]] = field(default_factory=list)  # of the loss, first minibatch
    term_gradients: dict[str, float] = field(default_factory=dict)  # norm at the actor, by term
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


@dataclass
class Evidence:
    """Record of a run."""

    trainer: Any
    policies: dict[str, PolicyEvidence]
    returns: list[tuple[dict[str, float], dict[str, float]]]  # (environment's, reported) episodes
    error: str = ""  # message of the trainer's exception
    error_kind: str = ""
    env: EnvRecord = field(default_factory=EnvRecord)
