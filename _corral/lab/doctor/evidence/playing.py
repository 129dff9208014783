"""What is noted of play: of one policy, and of the environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corral.envs.core import Array

__all__ = ["Playing", "Said"]


@dataclass
class Playing:
    """What was seen of one policy at play. T steps, C columns, B environments, P agents."""

    images_wrong: list[Array] = field(default_factory=list)
    """[images, 2] shares of decisions: stored otherwise than said; and that as said before."""
    repeats: list[Array] = field(default_factory=list)
    """Whether a moment shows just what the one before showed: bool [T, C]; at first False."""
    identity_wrong: float = 0.0  # share of decisions that were stored as another agent's
    played: list[tuple[Array, Array]] = field(default_factory=list)
    """Actions that the environment was given, and those stored: [T, B, P, ...] both."""
    chances: list[tuple[Array, Array]] = field(default_factory=list)
    """Log-probabilities of all actions at what was said [T, B, P, A], stored ones [T, B, P]."""
    legal: list[tuple[float, float]] = field(default_factory=list)
    """Actions that are possible in the first epoch's loss, and by what was stored: sums."""
    entropies: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """By the name of a term or metric: what it is, and the legal actions' entropy, of each
    minibatch of the first update."""
    looked_at: dict[str, Any] = field(default_factory=dict)  # agent -> observations [R, ...]
    sampled_illegal: int = 0  # in play outside of training
    play_differs: float = 0.0  # largest difference of a probability: its policy's, the actor's
    cut: list[str] = field(default_factory=list)  # inputs that change outputs without a gradient
    dead: list[str] = field(default_factory=list)  # layers that put out the same for all inputs
    steps: int = 0  # decisions that the last three were asked for


@dataclass
class Said:
    """What the environment said, and what was reported of it."""

    witness: Any = None  # a Witness; None: the environment was not listened to
    not_finite: list[str] = field(default_factory=list)  # in words
    illegal: Array | None = None  # [N] illegal actions that the environment counted
    reported: list[tuple[dict[str, float], dict[str, float]]] = field(default_factory=list)
    """Mean rewards of a step by agent, rollout by rollout: as said, and as reported."""
    missing: int = 0  # episodes that ended, less those that were reported
    twins: Any = None  # Twins of the environment, see evidence.environment
    states: list[Array] = field(default_factory=list)  # float32 [T + 1, B, G], rollout by rollout
    begins: list[Array] = field(default_factory=list)  # bool [T + 1, B] first moments of episodes

    def count_illegal(self, counted: Array) -> None:
        """Add what the environment counted in a step: [B, N]."""
        sums = np.asarray(counted, dtype=np.float64).sum(axis=0)
        self.illegal = sums if self.illegal is None else self.illegal + sums
