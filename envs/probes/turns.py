"""Probes played in turns: rewards that come between an agent's moves, or before its first."""

from __future__ import annotations

from typing import Literal

import numpy as np

from corral.envs.core import Array
from corral.envs.probes.base import Answer, Probe, ProbeState, one_hot, signs

__all__ = ["EarlyGift", "ReplyPays"]


class ReplyPays(Probe):
    """P12, in turns: agent 0 plays a; agent 1 replies with ``replies`` moves, and the last of them
    pays 2a - 1 to agent 0 and 1 - 2a to agent 1.

    The best a is 1: V0 = 1, not discounted however many moves the other makes in between, for an
    agent's time is its own decisions. Rewards sum to exactly 0; agent 0 has one transition, agent 1
    ``replies``. Catches rewards lost, or discounted, between own decisions.

    Args:
        replies: moves of agent 1, 1 or 2.
        illegal: what an action outside the mask does: "penalise" or "raise".
    """

    name = "probe_p12_v0"
    simultaneous = False
    features = (4, 4)

    def __init__(
        self, *, replies: Literal[1, 2] = 1, illegal: Literal["penalise", "raise"] = "penalise"
    ) -> None:
        super().__init__(illegal=illegal)
        if replies not in (1, 2):
            raise ValueError(f"replies={replies!r}: give 1 or 2")
        self.replies = replies
        self.lengths = (1 + self.replies,) * 2

    def acting(self, state: ProbeState) -> Array:
        turn = np.stack([state.t == 0, state.t > 0], axis=1)
        return turn & ~self._ended(state)

    def obs(self, state: ProbeState) -> list[Array]:
        a = np.where(state.t > 0, signs(state.played[:, 0]), 0)
        return [np.column_stack([one_hot(np.minimum(state.t, 2), 3), a])] * 2

    def rewards(self, state: ProbeState, action: Array) -> Array:
        last = state.t == self.replies
        reward = np.where(last, signs(state.played[:, 0]), 0)
        return np.stack([reward, -reward], axis=1)

    def answer(self, gamma: float = 0.9) -> Answer:
        """Return the values after a = 1, which agent 1 meets, and the best actions."""
        t = np.arange(1 + self.replies)
        value = np.full((len(t), 2), np.nan)
        value[0, 0] = 1
        value[1:, 1] = -(gamma ** (self.replies - t[1:]))
        played = np.where(t[:, None] > 0, [[1, -1]], -1)
        best = np.where(t[:, None] > 0, -1, [[1, -1]])
        return self._answer(self.situations(t, None, played), value, best)


class EarlyGift(Probe):
    """P13, in turns: agent 0 moves, and agent 1, which has not moved yet, is given 0.5; then
    agent 1 moves and is paid 1.

    Agent 1's return is 1.5, and V1 = 1: what came before its first move is in its return and in no
    transition. Catches learners that credit it to a move (V1 = 1.5, or V0 = 0.5).
    """

    name = "probe_p13_v0"
    simultaneous = False
    lengths = (2, 2)

    def acting(self, state: ProbeState) -> Array:
        return np.stack([state.t == 0, state.t == 1], axis=1)

    def obs(self, state: ProbeState) -> list[Array]:
        return [np.minimum(state.t, 1)[:, None]] * 2

    def rewards(self, state: ProbeState, action: Array) -> Array:
        return np.stack([np.zeros(len(state.t)), np.where(state.t == 0, 0.5, 1.0)], axis=1)

    def answer(self, gamma: float = 0.9) -> Answer:
        return self._answer(self.situations([0, 1]), [[0, np.nan], [np.nan, 1]])
