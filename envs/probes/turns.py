"""Turn-based probes: rewards between an agent's moves, or before its first move."""

from __future__ import annotations

from typing import Literal

import numpy as np

from corral.envs.core import Array
from corral.envs.probes.base import Answer, Probe, ProbeState, one_hot, signs

__all__ = ["EarlyGift", "ReplyPays"]


class ReplyPays(Probe):
    """P12: turn-based; agent 0 plays a, agent 1 makes ``replies`` moves, and the last move pays
    2a - 1 to agent 0 and 1 - 2a to agent 1.

    The best a is 1: V0 = 1. The moves of agent 1 do not discount it, because an agent's time
    counts its own decisions only. Rewards sum to exactly 0. Agent 0 has one transition, agent 1 has
    ``replies``. Catches rewards that are lost, or discounted, between own decisions.

    Args:
        replies: number of moves of agent 1, 1 or 2.
        illegal: reaction to an action outside the mask: "penalise" or "raise".
    """

    name = "probe_p12_v0"
    simultaneous = False
    features = (4, 4)

    def __init__(
        self, *, replies: Literal[1, 2] = 1, illegal: Literal["penalise", "raise"] = "penalise"
    ) -> None:
        super().__init__(illegal=illegal)
        if replies not in (1, 2):
            raise ValueError(f"replies={replies!r}: pass 1 or 2")
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
        """Return the values if agent 0 plays a = 1, and the best actions."""
        t = np.arange(1 + self.replies)
        value = np.full((len(t), 2), np.nan)
        value[0, 0] = 1
        value[1:, 1] = -(gamma ** (self.replies - t[1:]))
        played = np.where(t[:, None] > 0, [[1, -1]], -1)
        best = np.where(t[:, None] > 0, -1, [[1, -1]])
        return self._answer(self.situations(t, None, played), value, best)


class EarlyGift(Probe):
    """P13: turn-based; agent 0 moves, agent 1 gets 0.5 before its first move, then agent 1 moves
    and is paid 1.

    The return of agent 1 is 1.5 and V1 = 1: a reward before an agent's first move belongs to its
    return and to no transition. Catches learners that credit it to a move (V1 = 1.5 or V0 = 0.5).
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
