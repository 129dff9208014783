"""Probes of several steps: discount, termination, truncation, early ends, memory, sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from corral.envs.arguments import one_of
from corral.envs.core import Array
from corral.envs.probes.base import NEVER, Answer, Probe, ProbeState, annuity, one_hot, signs

__all__ = ["Accounts", "CutOrEnd", "Death", "LaterReward", "Memory"]


class LaterReward(Probe):
    """P3: two steps; the first pays 0 and the last pays o to agent 0 and -o to agent 1. Both see
    the step and o = -1 or 1. V0(first) = 0.9 o, V0(last) = o; V1 = -V0.

    Catches a discount that is missing or applied once too often, a termination that is treated as
    truncation, and rewards mixed between agents.
    """

    name = "probe_p03_v0"
    features = (2, 2)
    lengths = (2, 2)
    draws = (2,)

    def obs(self, state: ProbeState) -> list[Array]:
        return [np.stack([signs(state.drawn[:, 0]), np.minimum(state.t, 1)], axis=1)] * 2

    def rewards(self, state: ProbeState, action: Array) -> Array:
        last = (state.t == 1)[:, None]
        return np.asarray(signs(state.drawn) * last * np.array([1.0, -1.0]))

    def answer(self, gamma: float = 0.9) -> Answer:
        own = np.array([-gamma, gamma, -1, 1])
        state = self.situations([0, 0, 1, 1], [[0], [1], [0], [1]])
        return self._answer(state, np.stack([own, -own], axis=1))


class CutOrEnd(Probe):
    """P9: four steps, then agent 0 is truncated by the time limit and agent 1 terminates.

    Agent 0 sees 0, 1, 1, 1 and finally 1, and is paid 0, 1, 1, 1. Observation 1 is worth
    1 / (1 - gamma), so V0 = 9, 10, 10, 10. Agent 1 sees the step number and is paid 1:
    V1 = 3.439, 2.71, 1.9, 1. Catches a truncation treated as termination, a termination treated as
    truncation, and a bootstrap from the observation after the reset (which is 0, worth 9). The
    global state is agent 0's observation. With the step number, the final state would never occur
    in training.
    """

    name = "probe_p09_v0"
    lengths = (NEVER, 4)
    max_cycles = 4
    largest = 4.0
    budget = 50_000
    tolerance = (0.5, 0.2)

    def obs(self, state: ProbeState) -> list[Array]:
        return [np.minimum(state.t, 1)[:, None], np.minimum(state.t, 4)[:, None]]

    def rewards(self, state: ProbeState, action: Array) -> Array:
        return np.stack([state.t > 0, np.ones(len(state.t))], axis=1)

    def global_state(self, state: ProbeState) -> Array:
        return np.asarray(self.obs(state)[0], dtype=np.float32)

    def answer(self, gamma: float = 0.9) -> Answer:
        t = np.arange(4)
        steady = np.where(t > 0, 1, gamma) / (1 - gamma)
        return self._answer(self.situations(t), np.stack([steady, annuity(gamma, 4 - t)], axis=1))


class Death(Probe):
    """P10: each agent is paid 1 per step; agent 0 terminates after two steps, agent 1 after four.

    V0 = 1.9, 1; V1(0) = 3.439. Returns are exactly 2 and 4, with exactly 2 and 4 transitions.
    Catches learning from terminated agents, a termination treated as truncation, and rewards mixed
    between agents.
    """

    name = "probe_p10_v0"
    features = (5, 5)
    lengths = (2, 4)
    budget = 30_000

    def obs(self, state: ProbeState) -> list[Array]:
        return [one_hot(np.minimum(state.t, 4), 5)] * 2

    def rewards(self, state: ProbeState, action: Array) -> Array:
        return np.ones(action.shape)

    def answer(self, gamma: float = 0.9) -> Answer:
        t = np.arange(4)
        value = np.stack([annuity(gamma, np.maximum(2 - t, 0)), annuity(gamma, 4 - t)], axis=1)
        value[2:, 0] = np.nan  # undefined after termination
        return self._answer(self.situations(t), value)


STEPS_BACK_BY_ONE = 2**128 - 1
"""Advance that steps a PCG64 generator back by one; PCG64 counts modulo 2**128."""


class Memory(Probe):
    """P14: the first step shows a cue, -1 or 1, and the fifth step pays 1 for repeating it, -1
    otherwise. Each agent has its own cue. The steps in between show nothing.

    With a memory the return is 1, without it 0. ``cue="last"`` asks in the first step for the cue
    of the previous episode, and shows the new cue in the last step. The return is then 0, unless
    the memory persists across episodes. Catches recurrent state that is not kept, not trained
    through, or not reset.

    Args:
        cue: the requested cue: the "own" cue of the episode, or that of the "last" episode.
        illegal: reaction to an action outside the mask: "penalise" or "raise".
    """

    name = "probe_p14_v0"
    features = (2, 2)
    lengths = (5, 5)
    budget = 60_000

    def __init__(
        self,
        *,
        cue: Literal["own", "last"] = "own",
        illegal: Literal["penalise", "raise"] = "penalise",
    ) -> None:
        super().__init__(illegal=illegal)
        self.cue = one_of("cue", cue, ("own", "last"))
        self.draws = (2,) * 4  # cues of this episode, cues of the previous episode
        self.asked_at = 4 if self.cue == "own" else 0
        self.shown_at = 4 - self.asked_at

    def start(self, rngs: Sequence[np.random.Generator]) -> ProbeState:
        """Draw the cues of this and of the previous episode.

        Each generator draws one number per episode. Only the generator persists across episodes,
        so it is stepped back by one to repeat the previous number.
        """
        numbers = []
        for rng in rngs:
            rng.bit_generator.advance(STEPS_BACK_BY_ONE)  # type: ignore[attr-defined]
            before, now = rng.random(2)
            numbers.append([int(4 * now), int(4 * before)])
        cues = np.array(numbers)  # [B, 2] two bits each
        return self.situations([0] * len(rngs), np.stack([cues & 1, cues >> 1], 2).reshape(-1, 4))

    def obs(self, state: ProbeState) -> list[Array]:
        prompt = state.t == self.asked_at
        cues = signs(state.drawn) * (state.t == self.shown_at)[:, None]
        return [np.stack([cues[:, i], prompt], axis=1) for i in range(2)]

    def rewards(self, state: ProbeState, action: Array) -> Array:
        which = state.drawn[:, :2] if self.cue == "own" else state.drawn[:, 2:]
        return np.where((state.t == self.asked_at)[:, None], signs(action == which), 0)

    def global_state(self, state: ProbeState) -> Array:
        """Return the features of both agents, and the step."""
        return np.column_stack([super().global_state(state), state.t / 5]).astype(np.float32)

    def best_returns(self, rngs: Sequence[np.random.Generator]) -> Array | None:
        """See ``OptionalRules.best_returns``. None: no agent can know the last episode's cue."""
        return super().best_returns(rngs) if self.cue == "own" else None

    def answer(self, gamma: float = 0.9) -> Answer:
        """Return no values (NaN), because a critic without memory does not know the cue."""
        drawn = np.array([[a, b, 0, 0] for a in range(2) for b in range(2)])
        best = drawn[:, :2] if self.cue == "own" else None
        return self._answer(self.situations([self.asked_at] * 4, drawn), np.nan, best)


class Accounts(Probe):
    """P15: five steps; three agents are paid 1, 10 and 100 in each. Returns 5, 50 and 500.

    The sum over agents, the sum over policies and the team return are 555, for any rollout length
    and any sharing of policies. Catches accounting that loses rewards at the end of a rollout.
    """

    name = "probe_p15_v0"
    agents = ("agent_0", "agent_1", "agent_2")
    features = (6, 6, 6)
    actions = (2, 2, 2)
    lengths = (5, 5, 5)
    tolerance = (0.1, 1.0, 10.0)

    def obs(self, state: ProbeState) -> list[Array]:
        return [one_hot(np.minimum(state.t, 5), 6)] * 3

    def rewards(self, state: ProbeState, action: Array) -> Array:
        return np.tile([1.0, 10.0, 100.0], (len(action), 1))

    def answer(self, gamma: float = 0.9) -> Answer:
        t = np.arange(5)
        return self._answer(self.situations(t), annuity(gamma, 5 - t)[:, None] * [1, 10, 100])
