"""The rules of rps_v0 as array code. The manual is the docstring of ``corral.envs.rps_v0``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from corral.envs.arguments import nonnegative_int, one_of, optional_int
from corral.envs.core import Array, Observation, Outcome, agent_views
from corral.envs.masks import masked_space
from corral.envs.rps_v0.render import Frame, ansi, draw

__all__ = ["MOVES", "RpsRules", "RpsState"]

MOVES = ("rock", "paper", "scissors")  # each beats the previous move; the first beats the last
NONE = -1

ONE_HOT = np.eye(1 + len(MOVES), dtype=np.float32)  # [4, 4] by last move + 1

INFO = ("won", "lost", "drawn", "illegal_actions")


@dataclass
class RpsState:
    """B environments between two rounds."""

    t: Array  # int64 [B] rounds played
    played: Array  # int8 [B, 2, rounds] all moves so far; -1: not yet played


class RpsRules:
    """The rules of rps_v0 for B environments. The manual is the docstring of the package.

    Args:
        rounds: number of rounds in an episode.
        max_cycles: time limit in rounds. None: no time limit.
        illegal: treatment of an action outside the mask. In this game all actions are legal.

    Raises:
        ValueError: an argument is out of range.
    """

    name = "rps_v0"
    agents: tuple[str, ...] = ("player_0", "player_1")
    render_modes = ("human", "ansi", "rgb_array")
    render_fps = 1
    simultaneous = True

    def __init__(
        self,
        rounds: int = 10,
        *,
        max_cycles: int | None = None,
        illegal: Literal["penalise", "raise"] = "penalise",
    ) -> None:
        self.rounds = nonnegative_int("rounds", rounds, least=1)
        self.max_cycles = optional_int("max_cycles", max_cycles, least=1)
        self.illegal = one_of("illegal", illegal, ("penalise", "raise"))

    @property
    def identity(self) -> str:
        """Text that is equal for rules of the same game."""
        return f"{self.name}, {self.rounds} rounds, cut after {self.max_cycles}"

    # --- Spaces ----------------------------------------------------------------------------------

    def observation_space(self, agent: str) -> spaces.Dict:
        return masked_space(spaces.Box(0.0, 1.0, (2 * len(ONE_HOT),), np.float32), len(MOVES))

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(len(MOVES))

    def state_space(self) -> spaces.Box:
        return spaces.Box(0.0, 1.0, (2 * len(ONE_HOT) + 1,), np.float32)

    # --- An episode ------------------------------------------------------------------------------

    def start(self, rngs: Sequence[np.random.Generator]) -> RpsState:
        """Begin B episodes. Draws no random numbers."""
        b = len(rngs)
        return RpsState(
            t=np.zeros(b, dtype=np.int64), played=np.full((b, 2, self.rounds), NONE, dtype=np.int8)
        )

    def redraw(
        self, state: RpsState, rngs: Sequence[np.random.Generator], told: bool = False
    ) -> RpsState:
        """Return the state: the rules are deterministic."""
        return state

    def observe(self, state: RpsState) -> dict[str, Observation]:
        last = ONE_HOT[self._last(state) + 1]  # [B, 2, 4]
        observation = np.concatenate([last, last[:, ::-1]], axis=2)  # [B, 2, 8] own, opponent's
        masks = np.repeat(self.acting(state)[:, :, None], len(MOVES), axis=2)
        return agent_views(self.agents, observation, masks.view(np.int8))

    def acting(self, state: RpsState) -> Array:
        return np.repeat((state.t < self.rounds)[:, None], 2, axis=1)

    def step(self, state: RpsState, action: Array) -> Outcome[RpsState]:
        rows = np.flatnonzero(state.t < self.rounds)  # environments with rounds left to play
        playing = self.acting(state)
        state.played[rows, :, state.t[rows]] = action[rows]
        state.t = state.t + playing[:, 0]

        # 0: equal moves; 1: the own move is one after the opponent's and beats it; 2: it loses.
        lead = (action - action[:, ::-1]) % len(MOVES)
        won, lost, drawn = (playing & (lead == number) for number in (1, 2, 0))
        reward = won.astype(np.float32) - lost
        info = np.array([won, lost, drawn, np.zeros_like(won)], dtype=np.int64)
        over = np.repeat((state.t == self.rounds)[:, None], 2, axis=1)
        return Outcome(state, reward, over, dict(zip(INFO, info, strict=True)))

    def info(self, state: RpsState) -> dict[str, Array]:
        return {key: np.zeros((len(state.t), 2), dtype=np.int64) for key in INFO}

    def global_state(self, state: RpsState) -> Array:
        last = ONE_HOT[self._last(state) + 1].reshape(len(state.t), -1)  # [B, 8]
        done = (state.t / self.rounds).astype(np.float32)
        return np.concatenate([last, done[:, None]], axis=1)

    def _last(self, state: RpsState) -> Array:
        """Return the last moves of both players, int8 [B, 2]; -1 before the first round."""
        # Before the first round, index -1 is the last round, which is -1: not yet played.
        return np.asarray(state.played[np.arange(len(state.t)), :, state.t - 1])

    def future(self, state: RpsState) -> Array:
        """Return the number of rounds played and both last moves: int64 [B, 3]."""
        return np.column_stack([state.t, self._last(state)])

    def render(self, state: RpsState, info: dict[str, Array], mode: str) -> Any:
        frame = self.frame(state)
        return ansi(frame) if mode == "ansi" else draw(frame)

    def frame(self, state: RpsState) -> Frame:
        """Return environment 0 in plain numbers."""
        first, second = state.played[0, :, : int(state.t[0])].tolist()
        return Frame(moves=tuple(zip(first, second, strict=True)), rounds=self.rounds)
