"""Games in which there is nothing to learn, each for a reason of its own; and sound twins."""

from __future__ import annotations

from typing import Any

import numpy as np

from corral.envs.arena_v0 import ArenaRules
from corral.envs.core import Array, Outcome
from corral.envs.masks import OBSERVATION
from corral.envs.probes.base import Answer, Probe, ProbeState, signs
from corral.envs.probes.one_step import BitOrOpposite
from corral.envs.shells import ParallelShell

__all__ = ["BlindArena", "DeafArena", "Guess", "Lottery", "OneCounts", "Swapped"]


class BlindArena(ArenaRules):
    """arena_v0, whose observation never changes."""

    def observe(self, state: Any) -> Any:
        observed = super().observe(state)
        for each in observed.values():
            each[OBSERVATION][...] = 0.0
        return observed


class DeafArena(ArenaRules):
    """arena_v0, whose rewards depend on nothing but the time."""

    def step(self, state: Any, action: Array) -> Outcome[Any]:
        outcome = super().step(state, action)
        when = np.sin(outcome.state.t).astype(np.float32)
        outcome.reward = np.repeat(when[:, None], 2, axis=1)
        return outcome


class Guess(Probe):
    """Four steps; an agent observes eight numbers, and is paid for the action that a bit says. The
    bit is ``shown`` among the numbers, or is not."""

    name = "guess"
    features = (8, 8)
    lengths = (4, 4)
    largest = 3.0
    draws = (2,) * 18

    def __init__(self, shown: bool = True) -> None:
        super().__init__()
        self.shown = shown

    def obs(self, state: ProbeState) -> list[Array]:
        first = 0 if self.shown else 1
        return [signs(state.drawn[:, 9 * i + first : 9 * i + first + 8]) for i in range(2)]

    def rewards(self, state: ProbeState, action: Array) -> Array:
        return np.asarray(action == state.drawn[:, [0, 9]])

    def answer(self, gamma: float = 0.9) -> Answer:
        raise NotImplementedError


class Lottery(Probe):
    """Each action is paid by lot, drawn at the start: none is better than another on average."""

    name = "lottery"
    draws = (100,) * 4
    max_cycles = 1

    def rewards(self, state: ProbeState, action: Array) -> Array:
        return np.take_along_axis(state.drawn.reshape(-1, 2, 2), action[..., None], 2)[..., 0]

    def redraw(self, state: ProbeState, rngs: Any, told: bool) -> ProbeState:
        state.drawn = np.array([rng.integers(self.draws) for rng in rngs])
        return state

    def answer(self, gamma: float = 0.9) -> Answer:
        raise NotImplementedError


class Swapped(BitOrOpposite):
    """Each agent gets the other's reward."""

    name = "swapped"
    max_cycles = 2

    def rewards(self, state: ProbeState, action: Array) -> Array:
        return super().rewards(state, action)[:, ::-1]


class OneCounts(Probe):
    """Three steps; both are paid for what agent 0 does: agent 1's actions are wired to nothing."""

    name = "one-counts"
    lengths = (3, 3)
    max_cycles = 4

    def rewards(self, state: ProbeState, action: Array) -> Array:
        return np.repeat(action[:, :1] + state.t[:, None], 2, axis=1)

    def obs(self, state: ProbeState) -> list[Array]:
        return [np.minimum(state.t, 1)[:, None]] * 2

    def answer(self, gamma: float = 0.9) -> Answer:
        raise NotImplementedError


def guess(shown: bool = True) -> ParallelShell:
    """Return ``Guess`` as a PettingZoo environment."""
    return ParallelShell(Guess(shown))
