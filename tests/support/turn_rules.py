"""Tiny rules for tests: a turn-based game, and a simultaneous one in which agents die.

Every number that comes of them can be worked out by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from corral.envs.core import Array, Observation, Outcome

# --- Taking stones in turn -----------------------------------------------------------------------


@dataclass
class PileState:
    pile: Array  # int64 [B] stones left
    mover: Array  # int64 [B] whose turn it is
    moves: Array  # int64 [B, N] moves made by each agent
    illegal: Array  # int64 [B, N] illegal moves of the last step


class PileRules:
    """Two agents take stones in turn; who takes the last wins 1, the other loses 1.

    Action k of the mover takes k + 1 stones, legal up to ``takes[agent]`` and what is left; an
    illegal action takes one. ``gift`` is paid to the agent that is not moving, in every step.
    ``last_move`` ends the episode of agent_1 with its move of that number; agent_0 goes on alone.
    ``tell`` says how often rules report an end: at every step after it, or once.
    """

    name = "pile_v0"
    agents = ("agent_0", "agent_1")
    render_modes = ("ansi",)
    render_fps = 4
    simultaneous = False

    def __init__(
        self,
        stones: tuple[int, int] = (6, 12),  # drawn from low .. high - 1
        *,
        takes: tuple[int, int] = (3, 3),
        gift: float = 0.0,
        last_move: int | None = None,
        max_cycles: int | None = None,
        illegal: Literal["penalise", "raise"] = "penalise",
        tell: Literal["always", "once"] = "always",
    ) -> None:
        self.stones = stones
        self.takes = np.array(takes)
        self.gift = gift
        self.last_move = last_move
        self.max_cycles = max_cycles
        self.illegal = illegal
        self.tell = tell

    def observation_space(self, agent: str) -> spaces.Dict:
        n = self.takes[self.agents.index(agent)]
        return spaces.Dict(
            {
                "observation": spaces.Box(0, 1, (3,), np.float32),
                "action_mask": spaces.Box(0, 1, (int(n),), np.int8),
            }
        )

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(int(self.takes[self.agents.index(agent)]))

    def state_space(self) -> spaces.Box:
        return spaces.Box(0, 1, (3,), np.float32)

    def start(self, rngs: Sequence[np.random.Generator]) -> PileState:
        b = len(rngs)
        return PileState(
            pile=np.array([rng.integers(*self.stones) for rng in rngs], dtype=np.int64),
            mover=np.zeros(b, dtype=np.int64),
            moves=np.zeros((b, 2), dtype=np.int64),
            illegal=np.zeros((b, 2), dtype=np.int64),
        )

    def observe(self, state: PileState) -> dict[str, Observation]:
        acting = self.acting(state)
        shown = {}
        for i, agent in enumerate(self.agents):
            moves = acting[:, i]
            vector = np.stack([state.pile / self.stones[1], moves, ~moves], axis=1)
            legal = np.arange(self.takes[i]) < state.pile[:, None]
            mask = (legal & moves[:, None]).astype(np.int8)
            shown[agent] = {"observation": vector.astype(np.float32), "action_mask": mask}
        return shown

    def acting(self, state: PileState) -> Array:
        return (state.mover[:, None] == np.arange(2)) & ~self._ended(state)

    def step(self, state: PileState, action: Array) -> Outcome[PileState]:
        before = self._ended(state)
        acting = self.acting(state)
        copy, mover = np.arange(len(state.pile)), state.mover
        stones = action[copy, mover] + 1
        wrong = stones > state.pile
        state.illegal[...] = 0
        state.illegal[copy, mover] = wrong & acting.any(axis=1)
        state.pile -= np.where(wrong, 1, stones)
        state.moves[copy, mover] += 1
        ended = self._ended(state)
        won = np.where(state.pile == 0, 1.0, 0.0)
        reward = np.where(acting, won[:, None], self.gift - won[:, None])
        reward = np.where(before, 0.0, reward).astype(np.float32)
        # The other moves next, unless its episode is over.
        other = 1 - mover
        state.mover = np.where(ended[copy, other], mover, other)
        told = ended & ~before if self.tell == "once" else ended
        return Outcome(state, reward, told, self.info(state))

    def info(self, state: PileState) -> dict[str, Array]:
        return {"moves": state.moves.copy(), "illegal_actions": state.illegal.copy()}

    def global_state(self, state: PileState) -> Array:
        parts = [state.pile / self.stones[1], state.mover == 0, state.mover == 1]
        return np.stack(parts, axis=1).astype(np.float32)

    def render(self, state: PileState, info: dict[str, Array], mode: str) -> Any:
        return f"{state.pile[0]} stones"

    def _ended(self, state: PileState) -> Array:
        ended = np.repeat(state.pile[:, None] == 0, 2, axis=1)
        if self.last_move is not None:
            ended[:, 1] |= state.moves[:, 1] >= self.last_move
        return ended


# --- Acting at once, and dying -------------------------------------------------------------------


@dataclass
class MortalState:
    t: Array  # int64 [B]
    lives: Array  # int64 [B, N] steps that each agent lives
    allowed: Array  # int8 [B, N, A] legal actions of the whole episode; 0 beyond an agent's own


class MortalRules:
    """All living agents act at once; agent i earns 10^i a step and dies after ``lives[i]`` steps.

    ``lives`` None: 1 to 6 steps, drawn. Which actions are legal is drawn too, at least one for
    each agent; agent i has ``sizes[i]`` actions.
    """

    name = "mortal_v0"
    render_modes = ("ansi",)
    render_fps = 4
    simultaneous = True

    def __init__(
        self,
        sizes: Sequence[int] = (4, 4, 4),
        *,
        lives: Sequence[int] | None = None,
        max_cycles: int | None = None,
        illegal: Literal["penalise", "raise"] = "penalise",
        tell: Literal["always", "once"] = "always",
    ) -> None:
        self.sizes = tuple(sizes)
        self.agents = tuple(f"agent_{i}" for i in range(len(sizes)))
        self.lives = lives
        self.max_cycles = max_cycles
        self.illegal = illegal
        self.tell = tell

    def observation_space(self, agent: str) -> spaces.Dict:
        n = self.sizes[self.agents.index(agent)]
        return spaces.Dict(
            {
                "observation": spaces.Box(0, np.inf, (2,), np.float32),
                "action_mask": spaces.Box(0, 1, (n,), np.int8),
            }
        )

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(self.sizes[self.agents.index(agent)])

    def state_space(self) -> spaces.Box:
        return spaces.Box(0, np.inf, (1 + len(self.agents),), np.float32)

    def start(self, rngs: Sequence[np.random.Generator]) -> MortalState:
        n = len(self.agents)
        lives = [rng.integers(1, 7, n) if self.lives is None else self.lives for rng in rngs]
        allowed = np.zeros((len(rngs), n, max(self.sizes)), dtype=np.int8)
        for copy, rng in enumerate(rngs):
            for i, size in enumerate(self.sizes):
                allowed[copy, i, :size] = rng.random(size) < rng.random()
                allowed[copy, i, rng.integers(size)] = 1
        t = np.zeros(len(rngs), dtype=np.int64)
        return MortalState(t=t, lives=np.array(lives, dtype=np.int64), allowed=allowed)

    def observe(self, state: MortalState) -> dict[str, Observation]:
        alive = self.acting(state)
        shown = {}
        for i, agent in enumerate(self.agents):
            vector = np.stack([state.t, state.lives[:, i]], axis=1).astype(np.float32)
            mask = state.allowed[:, i, : self.sizes[i]] * alive[:, i, None].astype(np.int8)
            shown[agent] = {"observation": vector, "action_mask": mask}
        return shown

    def acting(self, state: MortalState) -> Array:
        return np.asarray(state.t[:, None] < state.lives)

    def step(self, state: MortalState, action: Array) -> Outcome[MortalState]:
        alive = self.acting(state)
        pay = np.array([10.0**i for i in range(len(self.agents))])
        reward = np.where(alive, pay, 0.0).astype(np.float32)
        legal = np.take_along_axis(state.allowed, action[..., None], axis=2)[..., 0]
        illegal = ((legal == 0) & alive).astype(np.int64)
        state.t = state.t + 1
        ended = ~self.acting(state)
        told = ended & alive if self.tell == "once" else ended
        return Outcome(state, reward, told, {"t": self._times(state), "illegal_actions": illegal})

    def info(self, state: MortalState) -> dict[str, Array]:
        return {"t": self._times(state), "illegal_actions": np.zeros_like(state.lives)}

    def global_state(self, state: MortalState) -> Array:
        return np.concatenate([state.t[:, None], state.lives], axis=1).astype(np.float32)

    def render(self, state: MortalState, info: dict[str, Array], mode: str) -> Any:
        return f"step {state.t[0]}"

    def _times(self, state: MortalState) -> Array:
        return np.repeat(state.t[:, None], len(self.agents), axis=1)
