"""Containers for the record of play: of one policy and of the environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corral.envs.core import Array

__all__ = ["EnvRecord", "Playing"]


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
    legal: list[tuple[float, float]] = field(default_factory=list)
    """Number of possible actions in the loss of the first epoch, and in the stored masks."""
    entropies: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Entropy term or metric -> (its value, entropy of the legal actions) for each minibatch.

    Only the minibatches of the first update are recorded.
    """
    looked_at: dict[str, Any] = field(default_factory=dict)  # agent -> observations [R, ...]
    sampled_illegal: int = 0  # in play outside of training
    play_differs: float = 0.0  # largest difference of a probability between policy and actor
    cut: list[str] = field(default_factory=list)  # inputs that change outputs without a gradient
    dead: list[str] = field(default_factory=list)  # layers with the same output for all inputs
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
