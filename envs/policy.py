"""Policies: the one interface of heuristics and networks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from corral.envs.core import Array, Observation
from corral.envs.masks import MASK, greedy

__all__ = ["Decision", "Heuristic", "Memoryless", "Policy", "RandomPolicy"]


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


class Heuristic(Memoryless, ABC):
    """Base of policies without a hidden state that choose alike whether deterministic or not."""

    @abstractmethod
    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        """Return an action for each observation, int [B], or one for a single observation."""

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """Return what ``choose`` chooses."""
        return Decision(self.choose(observation, rng))


class RandomPolicy(Heuristic):
    """Plays uniformly random legal actions, of any environment; always by chance."""

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        if rng is None:
            raise ValueError("the random policy needs rng=, a numpy Generator")
        mask = np.asarray(observation[MASK])
        return greedy(rng.random(mask.shape), mask)
