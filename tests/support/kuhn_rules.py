"""Kuhn poker as rules, and policies told by tables: games of which answers are known.

Kuhn, A Simplified Two-Person Poker, 1950: three cards, one each, an ante of 1. player 0 checks or
bets 1; who meets a bet folds or calls; a bet after a check is answered by player 0. The value for
player 0 is -1/18. At uniformly random play NashConv is 11/12 (OpenSpiel's tests hold the same).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from corral.envs.core import Array, Observation
from corral.envs.masks import MASK, OBSERVATION, draw
from corral.envs.policy import Decision, Memoryless
from corral.envs.probes.base import Answer, Probe, ProbeState, one_hot

DEALS = np.array(list(itertools.permutations(range(3), 2)))  # [6, 2]


class Kuhn(Probe):
    """Action 0 checks or folds, 1 bets or calls."""

    name = "kuhn"
    simultaneous = False
    features = (7, 7)  # own card, step, whether the other's last action was a bet
    draws = (6,)

    def acting(self, state: ProbeState) -> Array:
        turn = np.stack([state.t != 1, state.t == 1], axis=1)
        return np.asarray(turn & ~self._ended(state))

    def obs(self, state: ProbeState) -> list[Array]:
        cards = DEALS[state.drawn[:, 0]]
        step = one_hot(np.minimum(state.t, 2), 3)
        other = state.played[:, ::-1] == 1
        return [np.column_stack([one_hot(cards[:, i], 3), step, other[:, i]]) for i in range(2)]

    def rewards(self, state: ProbeState, action: Array) -> Array:
        cards = DEALS[state.drawn[:, 0]]
        high = np.where(cards[:, 0] > cards[:, 1], 1.0, -1.0)
        first, second, t = state.played[:, 0], action[:, 1], state.t
        won = np.select(
            [(t == 1) & (first == 0) & (second == 0), (t == 1) & (first == 1)],
            [high, np.where(second == 1, 2 * high, 1.0)],
            np.where(t == 2, np.where(action[:, 0] == 1, 2 * high, -1.0), 0.0),
        )
        return np.stack([won, -won], axis=1)

    def answer(self, gamma: float = 0.9) -> Answer:
        raise NotImplementedError("a game of tests alone: nobody asks for its answer")

    def _ended(self, state: ProbeState) -> Array:
        raised = (state.played[:, 0] == 0) & (state.played[:, 1] == 1)
        return np.repeat(((state.t >= 3) | ((state.t == 2) & ~raised))[:, None], 2, axis=1)


class Table(Memoryless):
    """Plays with the probabilities that a function tells for an observation: [F] to [A]."""

    def __init__(self, chances: Callable[[Array], Any]) -> None:
        self.chances = chances

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        told = np.array([self.chances(row) for row in observation[OBSERVATION]], dtype=np.float64)
        assert told.shape == np.shape(observation[MASK])
        extra = {"probabilities": told}
        if deterministic:
            return Decision(told.argmax(axis=1), extra=extra)
        assert rng is not None
        return Decision(draw(told, rng), extra=extra)


def kuhn_equilibrium(alpha: float) -> dict[str, Table]:
    """Return the equilibrium in which player 0 bets the lowest card with probability ``alpha``."""
    bets = {0: (alpha, 0.0), 1: (0.0, alpha + 1 / 3), 2: (3 * alpha, 1.0)}  # first, then to a bet
    second = {0: (1 / 3, 0.0), 1: (0.0, 1 / 3), 2: (1.0, 1.0)}  # to a check, to a bet

    def opens(row: Array) -> tuple[float, float]:
        chance = bets[int(row[:3].argmax())][int(row[5])]
        return 1 - chance, chance

    def answers(row: Array) -> tuple[float, float]:
        chance = second[int(row[:3].argmax())][int(row[6])]
        return 1 - chance, chance

    return {"agent_0": Table(opens), "agent_1": Table(answers)}
