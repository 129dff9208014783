"""Probes: tiny environments whose values can be worked out by hand, for telling what a learner
does wrong.

A probe is made for one mistake. A learner that does not make it comes out at the exact values of
``answer``, within ``tolerance``, in ``budget`` env steps; one that makes it cannot.

| probe | about | a learner fails it that |
|---|---|---|
| ``probe_p01_v0`` | constant rewards, one for each | mixes the rewards, or goes on at the end |
| ``probe_p02_v0`` | the reward is shown | does not look |
| ``probe_p03_v0`` | the reward comes one step later | does not discount, or goes on at the end |
| ``probe_p04_v0`` | equal observations, other tasks | shares a policy without telling who plays |
| ``probe_p05_v0`` | the right action is shown | does not learn from its advantages |
| ``probe_p06_v0`` | all 15 masks of four actions | loses or ignores a mask anywhere |
| ``probe_p07_v0`` | one agent's action pays the other | pays one agent for another's reward |
| ``probe_p08_v0`` | the other sees what one is paid | has a central critic that sees its own view |
| ``probe_p09_v0`` | a time limit beside an end | takes the one for the other |
| ``probe_p10_v0`` | agents that end early | learns from the dead |
| ``probe_p11_v0`` | unlike observations and actions | takes the agents for alike |
| ``probe_p12_v0`` | in turns: pay comes with the reply | loses what is paid in between |
| ``probe_p13_v0`` | in turns: pay before the first move | credits it to a move |
| ``probe_p14_v0`` | a cue to be remembered | has no memory, or one that outlives episodes |
| ``probe_p15_v0`` | rewards 1, 10 and 100 | loses account of who got what |
| ``probe_p16_v0`` | one legal action | learns where there is nothing to choose |
| ``probe_p17_v0`` | all advantages are equal | divides by their spread of 0 |
| ``probe_p18_v0`` | rock-paper-scissors, one step | cannot learn against a frozen opponent |

The idea is Andy Jones's (Debugging Reinforcement Learning, 2021) and bsuite's (Osband et al.,
2020). ``parallel_env``, ``env`` and ``raw_env`` take the probe's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pettingzoo import AECEnv

from corral.envs.arguments import known_arguments, one_of
from corral.envs.core import Array
from corral.envs.probes.base import NEVER, Answer, Probe, ProbeState, annuity, one_hot, signs
from corral.envs.shells import ParallelShell, TurnShell, checked_aec, ordered
from corral.errors import UnknownNameError

__all__ = ["PROBES", "env", "parallel_env", "raw_env"]


# --- Values --------------------------------------------------------------------------------------


class ConstantReward(Probe):
    """P1: one step, rewards 1 and -2. V = (1, -2).

    Catches rewards mixed between agents, and an end that is taken for a cut (V would be
    r / (1 - gamma) = 10, -20).
    """

    name = "probe_p01_v0"

    def pay(self, state: ProbeState, action: Array) -> Array:
        return np.tile([1.0, -2.0], (len(action), 1))

    def answer(self, gamma: float = 0.9) -> Answer:
        return self._says(self.situations([0]), [1, -2])


class ShownReward(Probe):
    """P2: one step; both see o = -1 or 1, and are paid o and -o. V0(o) = o, V1(o) = -o.

    Catches a critic that does not look, and rewards mixed between agents.
    """

    name = "probe_p02_v0"
    draws = (2,)

    def shown(self, state: ProbeState) -> list[Array]:
        return [signs(state.drawn)] * 2

    def pay(self, state: ProbeState, action: Array) -> Array:
        return np.asarray(signs(state.drawn) * np.array([1.0, -1.0]))

    def answer(self, gamma: float = 0.9) -> Answer:
        return self._says(self.situations([0, 0], [[0], [1]]), [[-1, 1], [1, -1]])


class LaterReward(Probe):
    """P3: two steps, nothing in the first, o and -o in the last; o = -1 or 1 and the step are
    shown. V0(first) = 0.9 o, V0(last) = o; V1 = -V0.

    Catches a discount that is not applied, or applied once too often, an end taken for a cut, and
    rewards mixed between agents.
    """

    name = "probe_p03_v0"
    features = (2, 2)
    lengths = (2, 2)
    draws = (2,)

    def shown(self, state: ProbeState) -> list[Array]:
        return [np.stack([signs(state.drawn[:, 0]), np.minimum(state.t, 1)], axis=1)] * 2

    def pay(self, state: ProbeState, action: Array) -> Array:
        last = (state.t == 1)[:, None]
        return np.asarray(signs(state.drawn) * last * np.array([1.0, -1.0]))

    def answer(self, gamma: float = 0.9) -> Answer:
        own = np.array([-gamma, gamma, -1, 1])
        state = self.situations([0, 0, 1, 1], [[0], [1], [0], [1]])
        return self._says(state, np.stack([own, -own], axis=1))


# --- Actions -------------------------------------------------------------------------------------


class WhoPlays(Probe):
    """P4: one step, nothing to see; agent 0 is paid 1 for action 0, agent 1 for action 1.

    The best actions are (0, 1), V = (1, 1). A policy that both share and that is not told which of
    them it plays gets 1/2 each on average. Catches that, and zeroed advantages.
    """

    name = "probe_p04_v0"

    def pay(self, state: ProbeState, action: Array) -> Array:
        return np.asarray(action == np.array([0, 1]))

    def answer(self, gamma: float = 0.9) -> Answer:
        return self._says(self.situations([0]), 1, [0, 1])


class BitOrOpposite(Probe):
    """P5: one step; each agent sees a bit of its own. Agent 0 is paid 1 for the action equal to its
    bit, agent 1 for the other one. V = (1, 1) in all four situations.

    Catches zeroed advantages, and a policy that does not look. One update of it shows whether all
    parameters learn (P19): a frozen random encoder solves all of these probes.
    """

    name = "probe_p05_v0"
    draws = (2, 2)

    def shown(self, state: ProbeState) -> list[Array]:
        return [signs(state.drawn[:, [i]]) for i in range(2)]

    def pay(self, state: ProbeState, action: Array) -> Array:
        return np.asarray((action == state.drawn) == np.array([True, False]))

    def answer(self, gamma: float = 0.9) -> Answer:
        drawn = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
        return self._says(self.situations([0] * 4, drawn), 1, drawn ^ np.array([0, 1]))


FIFTEEN = np.array([[k >> a & 1 for a in range(4)] for k in range(1, 16)], np.int8)  # [15, 4]


class FifteenMasks(Probe):
    """P6: one step, nothing to see but the mask: each agent gets one of the 15 non-empty masks of
    four actions, drawn. Action k pays k; illegal actions pay -100.

    The best is the highest legal action, on average 34/15 = 2.2667; uniform legal play gets 1.5.
    Critics that do not see the mask: V = 34/15. Catches a mask that is ignored in play, and one
    that is lost between play and training (ratios are not 1 before the first optimiser step).
    """

    name = "probe_p06_v0"
    actions = (4, 4)
    draws = (15, 15)

    def legal(self, state: ProbeState) -> list[Array]:
        return [FIFTEEN[state.drawn[:, i]] for i in range(2)]

    def pay(self, state: ProbeState, action: Array) -> Array:
        return action

    def answer(self, gamma: float = 0.9) -> Answer:
        drawn = np.arange(15).repeat(2).reshape(15, 2)
        highest = 3 - FIFTEEN[drawn[:, 0], ::-1].argmax(axis=1)
        return self._says(self.situations([0] * 15, drawn), 34 / 15, highest[:, None])


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

    def pay(self, state: ProbeState, action: Array) -> Array:
        earned = np.array([[1.0, 0.0], [0.0, 2.0]])[action[:, 0]]
        if self.reward == "team":
            return np.broadcast_to(earned.mean(axis=1, keepdims=True), earned.shape)
        return earned

    def answer(self, gamma: float = 0.9) -> Answer:
        if self.reward == "team":
            return self._says(self.situations([0]), 1, [1, -1])
        return self._says(self.situations([0]), [1, 0], [0, -1])


class OtherSees(Probe):
    """P8: one step; agent 0 is paid o = -1 or 1, which agent 1 alone sees; agent 1 is paid nothing.

    A central critic: V0 = o, V1 = 0. One that sees its own view only: V0 = 0. Catches the latter
    where the former is meant, and rewards mixed between agents. What agent 1 sees must not move the
    actor of agent 0.
    """

    name = "probe_p08_v0"
    draws = (2,)

    def shown(self, state: ProbeState) -> list[Array]:
        return [np.ones((len(state.t), 1)), signs(state.drawn)]

    def pay(self, state: ProbeState, action: Array) -> Array:
        return np.asarray(signs(state.drawn) * np.array([1.0, 0.0]))

    def answer(self, gamma: float = 0.9) -> Answer:
        return self._says(self.situations([0, 0], [[0], [1]]), [[-1, 0], [1, 0]])


# --- Ends ----------------------------------------------------------------------------------------


class CutOrEnd(Probe):
    """P9: four steps, then agent 0 is cut by the time limit, and agent 1's episode ends.

    Agent 0 sees 0, 1, 1, 1, at last 1, and is paid 0, 1, 1, 1: 1 is worth 1 / (1 - gamma), so
    V0 = 9, 10, 10, 10. Agent 1 sees the step and is paid 1: V1 = 3.439, 2.71, 1.9, 1. Catches a cut
    taken for an end, an end taken for a cut, and a bootstrap from the observation after the reset
    (which is 0, worth 9). The global state is agent 0's observation: the step in it would make
    the state at the cut one that is never learned about.
    """

    name = "probe_p09_v0"
    lengths = (NEVER, 4)
    max_cycles = 4
    largest = 4.0
    budget = 50_000
    tolerance = (0.5, 0.2)

    def shown(self, state: ProbeState) -> list[Array]:
        return [np.minimum(state.t, 1)[:, None], np.minimum(state.t, 4)[:, None]]

    def pay(self, state: ProbeState, action: Array) -> Array:
        return np.stack([state.t > 0, np.ones(len(state.t))], axis=1)

    def global_state(self, state: ProbeState) -> Array:
        return np.asarray(self.shown(state)[0], dtype=np.float32)

    def answer(self, gamma: float = 0.9) -> Answer:
        t = np.arange(4)
        steady = np.where(t > 0, 1, gamma) / (1 - gamma)
        return self._says(self.situations(t), np.stack([steady, annuity(gamma, 4 - t)], axis=1))


class Death(Probe):
    """P10: each is paid 1 a step; agent 0's episode ends after two steps, agent 1's after four.

    V0 = 1.9, 1; V1(0) = 3.439; returns are exactly 2 and 4, transitions exactly 2 and 4. Catches
    learning from the dead, an end taken for a cut, and rewards mixed between agents.
    """

    name = "probe_p10_v0"
    features = (5, 5)
    lengths = (2, 4)
    budget = 30_000

    def shown(self, state: ProbeState) -> list[Array]:
        return [one_hot(np.minimum(state.t, 4), 5)] * 2

    def pay(self, state: ProbeState, action: Array) -> Array:
        return np.ones(action.shape)

    def answer(self, gamma: float = 0.9) -> Answer:
        t = np.arange(4)
        value = np.stack([annuity(gamma, np.maximum(2 - t, 0)), annuity(gamma, 4 - t)], axis=1)
        value[2:, 0] = np.nan  # the dead are worth nothing said
        return self._says(self.situations(t), value)


class UnlikeAgents(Probe):
    """P11: one step; agent 0 sees one of 2 things and has 2 actions, agent 1 one of 5 and 3.

    Each is paid 1 for the action that is the thing's number, modulo 3. Returns 1 and 1.

    Catches learners that take agents for alike, and zeroed advantages.
    """

    name = "probe_p11_v0"
    features = (2, 5)
    actions = (2, 3)
    draws = (2, 5)

    def shown(self, state: ProbeState) -> list[Array]:
        return [one_hot(state.drawn[:, i], size) for i, size in enumerate(self.features)]

    def pay(self, state: ProbeState, action: Array) -> Array:
        return np.asarray(action == state.drawn % 3)

    def answer(self, gamma: float = 0.9) -> Answer:
        drawn = np.array([[0, 0], [1, 1], [0, 2], [1, 3], [0, 4]])
        return self._says(self.situations([0] * 5, drawn), 1, drawn % 3)


# --- Turns ---------------------------------------------------------------------------------------


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

    def shown(self, state: ProbeState) -> list[Array]:
        a = np.where(state.t > 0, signs(state.played[:, 0]), 0)
        return [np.column_stack([one_hot(np.minimum(state.t, 2), 3), a])] * 2

    def pay(self, state: ProbeState, action: Array) -> Array:
        last = state.t == self.replies
        paid = np.where(last, signs(state.played[:, 0]), 0)
        return np.stack([paid, -paid], axis=1)

    def answer(self, gamma: float = 0.9) -> Answer:
        """Of agent 1's values those after a = 1, which is what it meets."""
        t = np.arange(1 + self.replies)
        value = np.full((len(t), 2), np.nan)
        value[0, 0] = 1
        value[1:, 1] = -(gamma ** (self.replies - t[1:]))
        played = np.where(t[:, None] > 0, [[1, -1]], -1)
        best = np.where(t[:, None] > 0, -1, [[1, -1]])
        return self._says(self.situations(t, None, played), value, best)


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

    def shown(self, state: ProbeState) -> list[Array]:
        return [np.minimum(state.t, 1)[:, None]] * 2

    def pay(self, state: ProbeState, action: Array) -> Array:
        return np.stack([np.zeros(len(state.t)), np.where(state.t == 0, 0.5, 1.0)], axis=1)

    def answer(self, gamma: float = 0.9) -> Answer:
        return self._says(self.situations([0, 1]), [[0, np.nan], [np.nan, 1]])


# --- Memory --------------------------------------------------------------------------------------

STEPS_BACK_BY_ONE = 2**128 - 1
"""PCG64 counts modulo 2**128."""


class Memory(Probe):
    """P14: a cue, -1 or 1, is shown in the first step, nothing in the next three; in the fifth the
    agent says which it was, and is paid 1 or -1. Each agent has a cue of its own.

    With a memory the return is 1; without, 0. ``cue="last"`` asks for the cue of the episode
    before, and shows the new one once that is answered: the return is 0, unless a memory outlives
    episodes. Catches recurrent state that is not kept, not trained through, or not reset.

    Args:
        cue: which is asked for: the episode's "own", or the "last" episode's.
        illegal: what an action outside the mask does: "penalise" or "raise".
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
        self.draws = (2,) * 4  # the cues of this episode, and those of the one before
        self.asked_at = 4 if self.cue == "own" else 0
        self.shown_at = 4 - self.asked_at

    def start(self, rngs: Sequence[np.random.Generator]) -> ProbeState:
        """Each generator draws one number; it alone outlives an episode, so that stepping it back
        tells what it drew for the one before."""
        numbers = []
        for rng in rngs:
            rng.bit_generator.advance(STEPS_BACK_BY_ONE)  # type: ignore[attr-defined]
            before, now = rng.random(2)
            numbers.append([int(4 * now), int(4 * before)])
        cues = np.array(numbers)  # [B, 2] two bits each
        return self.situations([0] * len(rngs), np.stack([cues & 1, cues >> 1], 2).reshape(-1, 4))

    def shown(self, state: ProbeState) -> list[Array]:
        asked = state.t == self.asked_at
        cues = signs(state.drawn) * (state.t == self.shown_at)[:, None]
        return [np.stack([cues[:, i], asked], axis=1) for i in range(2)]

    def pay(self, state: ProbeState, action: Array) -> Array:
        which = state.drawn[:, :2] if self.cue == "own" else state.drawn[:, 2:]
        return np.where((state.t == self.asked_at)[:, None], signs(action == which), 0)

    def global_state(self, state: ProbeState) -> Array:
        """What the agents see, and the step."""
        return np.column_stack([super().global_state(state), state.t / 5]).astype(np.float32)

    def answer(self, gamma: float = 0.9) -> Answer:
        """No values: critics without a memory do not know the cue."""
        drawn = np.array([[a, b, 0, 0] for a in range(2) for b in range(2)])
        best = drawn[:, :2] if self.cue == "own" else None
        return self._says(self.situations([self.asked_at] * 4, drawn), np.nan, best)


# --- Accounts, degenerate cases, opponents -------------------------------------------------------


class Accounts(Probe):
    """P15: five steps; three agents are paid 1, 10 and 100 in each. Returns 5, 50 and 500.

    Whatever the rollouts and whoever shares a policy: the sum over agents, over policies and the
    team's return are 555. Catches episodes that lose what was paid before a rollout's end.
    """

    name = "probe_p15_v0"
    agents = ("agent_0", "agent_1", "agent_2")
    features = (6, 6, 6)
    actions = (2, 2, 2)
    lengths = (5, 5, 5)
    tolerance = (0.1, 1.0, 10.0)

    def shown(self, state: ProbeState) -> list[Array]:
        return [one_hot(np.minimum(state.t, 5), 6)] * 3

    def pay(self, state: ProbeState, action: Array) -> Array:
        return np.tile([1.0, 10.0, 100.0], (len(action), 1))

    def answer(self, gamma: float = 0.9) -> Answer:
        t = np.arange(5)
        return self._says(self.situations(t), annuity(gamma, 5 - t)[:, None] * [1, 10, 100])


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

    def pay(self, state: ProbeState, action: Array) -> Array:
        return signs(state.drawn[:, 2:])

    def answer(self, gamma: float = 0.9) -> Answer:
        drawn = np.array([[k, k, 0, 0] for k in range(4)])
        return self._says(self.situations([0] * 4, drawn), 0, drawn[:, :2])


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

    def pay(self, state: ProbeState, action: Array) -> Array:
        return np.ones(action.shape)

    def answer(self, gamma: float = 0.9) -> Answer:
        return self._says(self.situations([0]), 1)


ROCK, PAPER, SCISSORS = range(3)


class RockPaperScissors(Probe):
    """P18: one step of rock (0), paper (1), scissors (2): 1 to the winner, -1 to the loser.

    Against a policy that is frozen and plays rock, agent 0 must come to play paper, and the frozen
    policy's weights must stay as they are, byte for byte.
    """

    name = "probe_p18_v0"
    actions = (3, 3)
    budget = 60_000

    def pay(self, state: ProbeState, action: Array) -> Array:
        won = (action[:, 0] - action[:, 1] + 1) % 3 - 1
        return np.stack([won, -won], axis=1)

    def answer(self, gamma: float = 0.9) -> Answer:
        return self._says(self.situations([0]), [1, -1], [PAPER, ROCK])


PROBES: dict[str, type[Probe]] = {
    probe.name: probe
    for probe in (
        *(ConstantReward, ShownReward, LaterReward, WhoPlays, BitOrOpposite, FifteenMasks),
        *(Credit, OtherSees, CutOrEnd, Death, UnlikeAgents, ReplyPays, EarlyGift, Memory),
        *(Accounts, OneLegal, EqualAdvantages, RockPaperScissors),
    )
}
"""The probes by name."""


# --- PettingZoo ----------------------------------------------------------------------------------


def _rules(name: str, kwargs: dict[str, Any]) -> Probe:
    if name not in PROBES:
        raise UnknownNameError.of("probe", name, PROBES)
    known_arguments(PROBES[name], kwargs)
    return PROBES[name](**kwargs)


def parallel_env(name: str, render_mode: str | None = None, **kwargs: Any) -> ParallelShell:
    """A probe in which all act at once, as a PettingZoo ParallelEnv."""
    rules = _rules(name, kwargs)
    if not rules.simultaneous:
        raise ValueError(f"{name} is played in turns: it has env() and raw_env() only")
    return ParallelShell(rules, render_mode)


def raw_env(name: str, render_mode: str | None = None, **kwargs: Any) -> AECEnv:
    """A probe as a PettingZoo AECEnv, without the wrapper that checks the order of calls."""
    rules = _rules(name, kwargs)
    if rules.simultaneous:
        return checked_aec(ParallelShell(rules, render_mode))
    return TurnShell(rules, render_mode)


def env(name: str, render_mode: str | None = None, **kwargs: Any) -> AECEnv:
    """A probe as a PettingZoo AECEnv."""
    return ordered(raw_env(name, render_mode, **kwargs))
