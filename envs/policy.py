"""Policies: the one interface of heuristics and networks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from corral.envs.core import Array, Observation
from corral.envs.masks import MASK, greedy

__all__ = ["Decision", "Memoryless", "Policy", "RandomPolicy"]


@dataclass(frozen=True)
class Decision:
    """The choice of a policy."""

    action: Array  # int [B], or a single integer for a single observation
    state: Any = None  # of a recurrent policy, to be given back at the next step
    extra: dict[str, Array] = field(default_factory=dict)  # log-probability, value, ...


class Policy(Protocol):
    """Chooses actions for one agent, for a single observation or a batch of them.

    The shape of the action mask tells which of the two it is: int8 [A] or [B, A].
    """

    def initial_state(self, num_envs: int) -> Any:
        """Return the hidden state before an episode's first step; None where there is none."""
        ...

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """Choose legal actions; ``rng`` serves policies that draw them."""
        ...


class Memoryless:
    """Base of policies without a hidden state."""

    def initial_state(self, num_envs: int) -> None:
        """Return None: there is no hidden state."""
        return None


class RandomPolicy(Memoryless):
    """Plays uniformly random legal actions, of any environment; always by chance."""

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """Return a legal action for each mask; needs ``rng``."""
        if rng is None:
            raise ValueError("the random policy needs rng=, a numpy Generator")
        mask = np.asarray(observation[MASK])
        return Decision(greedy(rng.random(mask.shape), mask))
