"""Probes of one step: values, actions, masks and rewards per agent."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from corral.envs.arguments import one_of
from corral.envs.core import Array
from corral.envs.probes.base import Answer, Probe, ProbeState, one_hot, signs

__all__ = [
    "PAPER",
    "BitOrOpposite",
    "ConstantReward",
    "Credit",
    "EqualAdvantages",
    "FifteenMasks",
    "OneLegal",
    "OtherSees",
    "RockPaperScissors",
    "ShownReward",
    "UnlikeAgents",
    "WhoPlays",
]


class ConstantReward(Probe):
    """P1: one step, rewards 1 and -2. V = (1, -2).

    Catches rewards mixed between agents, and a termination treated as truncation (V would be
    r / (1 - gamma) = 10, -20).
    """

    name = "probe_p01_v0"

    def rewards(self, state: ProbeState, action: Array) -> Array:
        return np.tile([1.0, -2.0], (len(action), 1))

    def answer(self, gamma: float = 0.9) -> Answer:
        return self._answer(self.situations([0]), [1, -2])


class ShownReward(Probe):
    """P2: one step; both agents see o = -1 or 1 and are paid o and -o. V0(o) = o, V1(o) = -o.

    Catches a critic that ignores the observation, and rewards mixed between agents.
    """

    name = "probe_p02_v0"
    draws = (2,)

    def obs(self, state: ProbeState) -> list[Array]:
        return [signs(state.drawn)] * 2

    def rewards(self, state: ProbeState, action: Array) -> Array:
        return np.asarray(signs(state.drawn) * np.array([1.0, -1.0]))

    def answer(self, gamma: float = 0.9) -> Answer:
        return self._answer(self.situations([0, 0], [[0], [1]]), [[-1, 1], [1, -1]])


class WhoPlays(Probe):
    """P4: one step; agent 0 is paid 1 for action 0, agent 1 for action 1.

    Observations are constant. The best actions are (0, 1), V = (1, 1). A shared policy without
    agent ids gets only 1/2 per agent on average. Catches such sharing, and zeroed advantages.
    """

    name = "probe_p04_v0"

    def rewards(self, state: ProbeState, action: Array) -> Array:
        return np.asarray(action == np.array([0, 1]))

    def answer(self, gamma: float = 0.9) -> Answer:
        return self._answer(self.situations([0]), 1, [0, 1])


class BitOrOpposite(Probe):
    """P5: one step; each agent sees a random bit, agent 0 is paid 1 for the action equal to its
    bit, agent 1 for the opposite action. V = (1, 1) in all four situations.

    Catches zeroed advantages, and a policy that ignores its observation. One update on this probe
    also shows whether all parameters learn (P19); a frozen random encoder solves all these probes.
    """

    name = "probe_p05_v0"
    draws = (2, 2)

    def obs(self, state: ProbeState) -> list[Array]:
        return [signs(state.drawn[:, [i]]) for i in range(2)]

    def rewards(self, state: ProbeState, action: Array) -> Array:
        return np.asarray((action == state.drawn) == np.array([True, False]))

    def answer(self, gamma: float = 0.9) -> Answer:
        drawn = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
        return self._answer(self.situations([0] * 4, drawn), 1, drawn ^ np.array([0, 1]))


FIFTEEN = np.array([[k >> a & 1 for a in range(4)] for k in range(1, 16)], np.int8)  # [15, 4]


class FifteenMasks(Probe):
    """P6: one step; each agent gets one of the 15 non-empty masks of four actions at random.
    Action k pays k, and illegal actions pay -100. Observations are constant except for the mask.

    The best action is the highest legal one; it pays 34/15 = 2.2667 on average. Uniform legal play
    gets 1.5. Critics without the mask: V = 34/15. Critics with the mask: V = the highest legal
    action. Catches a mask that is ignored in play, and a mask that is lost between play and
    training (ratios differ from 1 before the first optimizer step).
    """

    name = "probe_p06_v0"
    actions = (4, 4)
    draws = (15, 15)
    budget = 30_000
    tolerance = (0.25, 0.25)  # returns differ by chance, with a standard deviation of 0.9

    def legal(self, state: ProbeState) -> list[Array]:
        return [FIFTEEN[state.drawn[:, i]] for i in range(2)]

    def rewards(self, state: ProbeState, action: Array) -> Array:
        return action

    def answer(self, gamma: float = 0.9) -> Answer:
        drawn = np.arange(15).repeat(2).reshape(15, 2)
        highest = 3 - FIFTEEN[drawn[:, 0], ::-1].argmax(axis=1)
        answer = self._answer(self.situations([0] * 15, drawn), 34 / 15, highest[:, None])
        return replace(answer, masked=answer.best.astype(np.float64))


class Credit(Probe):
    """P7: one step; action 0 of agent 0 pays 1 to agent 0, its action 1 pays 2 to agent 1.

    With ``reward="own"`` the best is action 0, with returns (1, 0). With ``reward="team"`` each
    agent gets the mean of both rewards. The best is then action 1: it earns (0, 2) and returns
    (1, 1). Catches rewards that leak between agents, and zeroed advantages. The actions of agent 1
    have no effect.

    Args:
        reward: "own": each agent gets its own reward; "team": both get the mean.
        illegal: reaction to an action outside the mask: "penalise" or "raise".
    """

    name = "probe_p07_v0"

    def __init__(
        self,
        *,
        reward: Literal["own", "team"] = "own",
        illegal: Literal["penalise", "raise"] = "penalise",
    ) -> None:
        super().__init__(illegal=illegal)
        self.reward = one_of("reward", reward, ("own", "team"))

    def rewards(self, state: ProbeState, action: Array) -> Array:
        earned = np.array([[1.0, 0.0], [0.0, 2.0]])[action[:, 0]]
        if self.reward == "team":
            return np.broadcast_to(earned.mean(axis=1, keepdims=True), earned.shape)
        return earned

    def answer(self, gamma: float = 0.9) -> Answer:
        if self.reward == "team":
            return self._answer(self.situations([0]), 1, [1, -1])
        return self._answer(self.situations([0]), [1, 0], [0, -1])


class OtherSees(Probe):
    """P8: one step; agent 0 is paid o = -1 or 1, which only agent 1 sees; agent 1 is paid 0.

    With a central critic V0 = o and V1 = 0. With a local critic V0 = 0. Catches a local critic
    used in place of a central one, and rewards mixed between agents. Agent 1's observation must
    not affect the actor of agent 0.
    """

    name = "probe_p08_v0"
    draws = (2,)

    def obs(self, state: ProbeState) -> list[Array]:
        return [np.ones((len(state.t), 1)), signs(state.drawn)]

    def rewards(self, state: ProbeState, action: Array) -> Array:
        return np.asarray(signs(state.drawn) * np.array([1.0, 0.0]))

    def answer(self, gamma: float = 0.9) -> Answer:
        return self._answer(self.situations([0, 0], [[0], [1]]), [[-1, 0], [1, 0]])


class UnlikeAgents(Probe):
    """P11: one step; agent 0 has 2 observations and 2 actions, agent 1 has 5 and 3.

    Each agent is paid 1 for the action equal to its observation's number modulo 3. Returns 1 and 1.

    Catches learners that assume identical agents, and zeroed advantages.
    """

    name = "probe_p11_v0"
    features = (2, 5)
    actions = (2, 3)
    draws = (2, 5)

    def obs(self, state: ProbeState) -> list[Array]:
        return [one_hot(state.drawn[:, i], size) for i, size in enumerate(self.features)]

    def rewards(self, state: ProbeState, action: Array) -> Array:
        return np.asarray(action == state.drawn % 3)

    def answer(self, gamma: float = 0.9) -> Answer:
        drawn = np.array([[0, 0], [1, 1], [0, 2], [1, 3], [0, 4]])
        return self._answer(self.situations([0] * 5, drawn), 1, drawn % 3)


class OneLegal(Probe):
    """P16: one step; one of four actions is legal, and it pays 1 or -1. Both are drawn at random.

    Log-probability, entropy, KL and the gradient of all logits are exactly 0, and ratios are 1. The
    actor must not change, for any advantages. Catches a mask that is lost in training.
    """

    name = "probe_p16_v0"
    actions = (4, 4)
    draws = (4, 4, 2, 2)

    def legal(self, state: ProbeState) -> list[Array]:
        return [one_hot(state.drawn[:, i], 4) for i in range(2)]

    def rewards(self, state: ProbeState, action: Array) -> Array:
        return signs(state.drawn[:, 2:])

    def answer(self, gamma: float = 0.9) -> Answer:
        drawn = np.array([[k, k, 0, 0] for k in range(4)])
        return self._answer(self.situations([0] * 4, drawn), 0, drawn[:, :2])


class EqualAdvantages(Probe):
    """P17: one agent, one step, a constant observation and reward 1: all advantages are equal.

    Normalized advantages are 0. The actor must not change and no value may become NaN, even in a
    batch of one. Catches the division by a standard deviation of 0.
    """

    name = "probe_p17_v0"
    agents = ("agent_0",)
    features = (1,)
    actions = (2,)
    lengths = (1,)
    tolerance = (0.1,)

    def rewards(self, state: ProbeState, action: Array) -> Array:
        return np.ones(action.shape)

    def answer(self, gamma: float = 0.9) -> Answer:
        return self._answer(self.situations([0]), 1)


ROCK, PAPER, SCISSORS = range(3)


class RockPaperScissors(Probe):
    """P18: one step of rock (0), paper (1), scissors (2): 1 to the winner, -1 to the loser.

    Against a frozen policy that plays rock, agent 0 must learn to play paper. The weights of the
    frozen policy must stay unchanged, byte for byte.
    """

    name = "probe_p18_v0"
    actions = (3, 3)
    budget = 60_000

    def rewards(self, state: ProbeState, action: Array) -> Array:
        won = (action[:, 0] - action[:, 1] + 1) % 3 - 1
        return np.stack([won, -won], axis=1)

    def answer(self, gamma: float = 0.9) -> Answer:
        return self._answer(self.situations([0]), [1, -1], [PAPER, ROCK])
