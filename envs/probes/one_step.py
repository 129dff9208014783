"""Probes of one step: values, actions, masks, who gets which reward."""

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

    Catches rewards mixed between agents, and an end that is taken for a cut (V would be
    r / (1 - gamma) = 10, -20).
    """

    name = "probe_p01_v0"

    def rewards(self, state: ProbeState, action: Array) -> Array:
        return np.tile([1.0, -2.0], (len(action), 1))

    def answer(self, gamma: float = 0.9) -> Answer:
        return self._answer(self.situations([0]), [1, -2])


class ShownReward(Probe):
    """P2: one step; both see o = -1 or 1, and are paid o and -o. V0(o) = o, V1(o) = -o.

    Catches a critic that does not look, and rewards mixed between agents.
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
    """P4: one step, nothing to see; agent 0 is paid 1 for action 0, agent 1 for action 1.

    The best actions are (0, 1), V = (1, 1). A policy that both share and that is not told which of
    them it plays gets 1/2 each on average. Catches that, and zeroed advantages.
    """

    name = "probe_p04_v0"

    def rewards(self, state: ProbeState, action: Array) -> Array:
        return np.asarray(action == np.array([0, 1]))

    def answer(self, gamma: float = 0.9) -> Answer:
        return self._answer(self.situations([0]), 1, [0, 1])


class BitOrOpposite(Probe):
    """P5: one step; each agent sees a bit of its own. Agent 0 is paid 1 for the action equal to its
    bit, agent 1 for the other one. V = (1, 1) in all four situations.

    Catches zeroed advantages, and a policy that does not look. One update of it shows whether all
    parameters learn (P19): a frozen random encoder solves all of these probes.
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
    """P6: one step, nothing to see but the mask: each agent gets one of the 15 non-empty masks of
    four actions, drawn. Action k pays k; illegal actions pay -100.

    The best is the highest legal action, on average 34/15 = 2.2667; uniform legal play gets 1.5.
    Critics that do not see the mask: V = 34/15; that do: V = the highest legal action. Catches a
    mask that is ignored in play, and one that is lost between play and training (ratios are not 1
    before the first optimiser step).
    """

    name = "probe_p06_v0"
    actions = (4, 4)
    draws = (15, 15)

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
    """P7: one step; action 0 of agent 0 pays it 1, its action 1 pays agent 1 two.

    ``reward="own"``: action 0, returns (1, 0). ``reward="team"``, where each is paid the mean:
    action 1, returns (1, 1), of what the two earned (0, 2). Catches rewards that leak from agent to
    agent, and zeroed advantages. Agent 1's actions change nothing.

    Args:
        reward: each agent its "own", or both the "team"'s mean.
        illegal: what an action outside the mask does: "penalise" or "raise".
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
    """P8: one step; agent 0 is paid o = -1 or 1, which agent 1 alone sees; agent 1 is paid nothing.

    A central critic: V0 = o, V1 = 0. One that sees its own view only: V0 = 0. Catches the latter
    where the former is meant, and rewards mixed between agents. What agent 1 sees must not move the
    actor of agent 0.
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
    """P11: one step; agent 0 sees one of 2 things and has 2 actions, agent 1 one of 5 and 3.

    Each is paid 1 for the action that is the thing's number, modulo 3. Returns 1 and 1.

    Catches learners that take agents for alike, and zeroed advantages.
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
    """P16: one step; one of four actions is legal, drawn, and pays 1 or -1 by another draw.

    Log-probability, entropy, KL and the gradient of all logits are exactly 0, ratios are 1: the
    actor must not move, whatever the advantages. Catches a mask that is lost in training.
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
    """P17: one agent, one step, nothing to see, reward 1: all advantages are equal.

    Normalised they are 0: the actor must not move, nothing may become NaN, nor in a batch of one.
    Catches the division by a spread of 0.
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

    Against a policy that is frozen and plays rock, agent 0 must come to play paper, and the frozen
    policy's weights must stay as they are, byte for byte.
    """

    name = "probe_p18_v0"
    actions = (3, 3)
    budget = 60_000

    def rewards(self, state: ProbeState, action: Array) -> Array:
        won = (action[:, 0] - action[:, 1] + 1) % 3 - 1
        return np.stack([won, -won], axis=1)

    def answer(self, gamma: float = 0.9) -> Answer:
        return self._answer(self.situations([0]), [1, -1], [PAPER, ROCK])
