"""Base class of all probes. A subclass defines sizes, observations and rewards."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from corral.envs.arguments import one_of
from corral.envs.core import Array, Observation, Outcome, agent_views
from corral.envs.masks import MASK, OBSERVATION, masked_space

__all__ = ["NEVER", "Answer", "Probe", "ProbeState", "annuity", "one_hot", "signs"]

NEVER = np.iinfo(np.int64).max
ILLEGAL_REWARD = -100.0


@dataclass
class ProbeState:
    """State of B episodes of a probe between two steps."""

    t: Array  # int64 [B] steps since the start of the episode
    drawn: Array  # int64 [B, D] random draws at the start of the episode
    played: Array  # int64 [B, N] last action of each agent; -1 before its first action


@dataclass(frozen=True)
class Answer:
    """The correct values and actions in K situations, which are the rows of ``state``."""

    state: ProbeState
    value: Array  # float64 [K, N] value of the best play; NaN if undefined
    best: Array  # int64 [K, N] best action; -1 if the agent does not act, or all actions are equal
    masked: Array | None = None  # float64 [K, N] for critics that see the mask; None: as ``value``


class Probe(ABC):
    """The rules of a probe. A subclass defines sizes, observations and rewards.

    Under "penalise" an illegal action pays -100. By default the global state is the features of all
    agents, concatenated.

    Args:
        illegal: reaction to an action outside the mask: "penalise" or "raise".
    """

    name: str
    agents: tuple[str, ...] = ("agent_0", "agent_1")
    render_modes = ("ansi",)
    render_fps = 4
    simultaneous = True
    max_cycles: int | None = None

    features: tuple[int, ...] = (1, 1)  # F of each agent's observation
    actions: tuple[int, ...] = (2, 2)  # A of each agent
    lengths: tuple[int, ...] = (1, 1)  # steps until each agent terminates
    draws: tuple[int, ...] = ()  # random draws at the start: one of 0 .. k - 1 for each k
    largest = 1.0  # features lie in -largest .. largest

    budget: int = 10_000  # env steps after which a learner must reach the answer
    tolerance: tuple[float, ...] = (0.1, 0.1)  # for each agent's values

    def __init__(self, *, illegal: Literal["penalise", "raise"] = "penalise") -> None:
        self.illegal: Literal["penalise", "raise"] = one_of(
            "illegal", illegal, ("penalise", "raise")
        )

    @property
    def identity(self) -> str:
        """Return a text that is equal for equal rules."""
        settings = {key: value for key, value in vars(self).items() if key != "illegal"}
        return f"{self.name} {settings}"

    # Methods for subclasses.

    def obs(self, state: ProbeState) -> list[Array]:
        """Return the features of each agent, [B, F]. Default: 1."""
        return [np.ones((len(state.t), size)) for size in self.features]

    def legal(self, state: ProbeState) -> list[Array]:
        """Return the legal actions of each agent, [B, A]. Default: all."""
        return [np.ones((len(state.t), size), dtype=np.int8) for size in self.actions]

    @abstractmethod
    def rewards(self, state: ProbeState, action: Array) -> Array:
        """Return the rewards [B, N] of the joint ``action`` [B, N] in ``state``."""

    @abstractmethod
    def answer(self, gamma: float = 0.9) -> Answer:
        """Return the correct values and actions under discount ``gamma``."""

    # Methods derived from these.

    def observation_space(self, agent: str) -> spaces.Dict:
        i = self.agents.index(agent)
        features = spaces.Box(-self.largest, self.largest, (self.features[i],), np.float32)
        return masked_space(features, self.actions[i])

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(self.actions[self.agents.index(agent)])

    def state_space(self) -> spaces.Box:
        size = self.global_state(self.situations([0])).shape[1]
        return spaces.Box(-self.largest, self.largest, (size,), np.float32)

    def start(self, rngs: Sequence[np.random.Generator]) -> ProbeState:
        # One call per number: the same numbers as with a single call, in half the time.
        drawn = [[rng.integers(high) for high in self.draws] for rng in rngs]
        return self.situations([0] * len(rngs), drawn)

    def starts(self) -> tuple[ProbeState, Array]:
        """Return all K initial states and their probabilities float64 [K].

        There is one state for each combination of the random draws; all are equally likely.
        """
        drawn = np.array(list(itertools.product(*map(range, self.draws))))  # [K, D]
        return self.situations([0] * len(drawn), drawn), np.full(len(drawn), 1 / len(drawn))

    def best_returns(self, rngs: Sequence[np.random.Generator]) -> Array | None:
        """See ``OptionalRules.best_returns``; tries all joint actions."""
        return self._best(self.start(rngs))

    def _best(self, state: ProbeState) -> Array:
        """Return the largest sum of all later rewards, over agents and joint actions: [B]."""
        b, last = len(state.t), self._last
        if state.t[0] >= last:
            return np.zeros(b)
        joint = np.array(list(itertools.product(*map(range, self.actions))))  # [J, N]
        j = len(joint)
        tried = ProbeState(*(np.repeat(part, j, axis=0) for part in vars(state).values()))
        action = np.tile(joint, (b, 1))  # [B J, N]
        acting = self.acting(tried)
        allowed = np.ones(len(action), dtype=bool)
        for i, mask in enumerate(self._masks(tried)):
            chosen = np.take_along_axis(mask, action[:, [i]], axis=1)[:, 0] != 0
            allowed &= np.where(acting[:, i], chosen, action[:, i] == 0)
        outcome = self.step(tried, action)
        after = outcome.state
        # Different actions often lead to the same state.
        keys = np.column_stack([after.drawn, after.played])
        _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        later = self._best(ProbeState(*(part[first] for part in vars(after).values())))
        total = outcome.reward.sum(axis=1, dtype=np.float64) + later[inverse.reshape(-1)]
        return np.asarray(np.where(allowed, total, -np.inf).reshape(b, j).max(axis=1))

    @property
    def _last(self) -> int:
        """The step at which all episodes are over."""
        limit = NEVER if self.max_cycles is None else self.max_cycles
        return int(min(max(self.lengths), limit))

    def situations(
        self, t: Sequence[int] | Array, drawn: Any = None, played: Any = None
    ) -> ProbeState:
        """Return a state of len(t) rows. Default: draws of 0, and no action yet (-1)."""
        b, n = len(t), len(self.agents)
        draws = np.zeros((b, len(self.draws))) if drawn is None else drawn
        moves = np.full((b, n), -1) if played is None else played
        return ProbeState(
            t=np.array(t, dtype=np.int64),
            drawn=np.array(draws, dtype=np.int64).reshape(b, len(self.draws)),
            played=np.array(moves, dtype=np.int64),
        )

    def acting(self, state: ProbeState) -> Array:
        return ~self._ended(state)

    def observe(self, state: ProbeState) -> dict[str, Observation]:
        acting = self.acting(state)
        features = [np.asarray(part, dtype=np.float32) for part in self.obs(state)]
        masks = [mask * acting[:, i, None] for i, mask in enumerate(self._masks(state))]
        if len(set(self.features)) == len(set(self.actions)) == 1:
            return agent_views(
                self.agents,
                observation=np.stack(features, axis=1),
                action_mask=np.stack(masks, axis=1),
            )
        return {
            agent: {OBSERVATION: features[i].copy(), MASK: masks[i]}
            for i, agent in enumerate(self.agents)
        }

    def step(self, state: ProbeState, action: Array) -> Outcome[ProbeState]:
        acting = self.acting(state)
        allowed = [
            np.take_along_axis(mask, action[:, i, None], axis=1)[:, 0]
            for i, mask in enumerate(self._masks(state))
        ]
        illegal = acting & (np.stack(allowed, axis=1) == 0)
        legal = self.rewards(state, np.where(acting, action, 0))
        reward = np.where(illegal, ILLEGAL_REWARD, legal)
        reward = np.where(self._ended(state), 0.0, reward).astype(np.float32)
        state.played = np.where(acting, action, state.played)
        state.t = state.t + 1
        info = {"illegal_actions": illegal.astype(np.int64)}
        return Outcome(state, reward, self._ended(state), info)

    def info(self, state: ProbeState) -> dict[str, Array]:
        return {"illegal_actions": np.zeros((len(state.t), len(self.agents)), dtype=np.int64)}

    def global_state(self, state: ProbeState) -> Array:
        return np.concatenate(self.obs(state), axis=1).astype(np.float32)

    def render(self, state: ProbeState, info: dict[str, Array], mode: str) -> Any:
        """Return one line: the step, the random draws and the last actions."""
        parts = [f"{self.name} step {state.t[0]}"]
        if self.draws:
            parts.append("drawn " + " ".join(map(str, state.drawn[0])))
        moves = ["-" if move < 0 else str(move) for move in state.played[0]]
        return ", ".join([*parts, "played " + " ".join(moves)])

    def _ended(self, state: ProbeState) -> Array:
        return np.asarray(state.t[:, None] >= np.array(self.lengths))

    def _masks(self, state: ProbeState) -> list[Array]:
        return [np.asarray(mask, dtype=np.int8) for mask in self.legal(state)]

    def _answer(self, state: ProbeState, value: Any, best: Any = None) -> Answer:
        shape = (len(state.t), len(self.agents))
        values = np.broadcast_to(np.asarray(value, dtype=np.float64), shape)
        moves = np.full(shape, -1) if best is None else np.broadcast_to(best, shape)
        return Answer(state, values.copy(), moves.astype(np.int64))


def annuity(gamma: float, steps: Array | int) -> Any:
    """Return the discounted sum of a reward of 1 in each of ``steps`` steps."""
    return (1 - gamma**steps) / (1 - gamma)


def signs(drawn: Array) -> Array:
    """Return -1 for 0 and 1 for 1."""
    return 2 * drawn - 1


def one_hot(index: Array, size: int) -> Array:
    """Return float [B, size], 1.0 at ``index`` [B]."""
    return np.eye(size)[index]
