"""Tic-tac-toe as a plain PettingZoo class, as a tutorial would have it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv

LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


class TicTacToe(AECEnv[str, Any, int]):  # type: ignore[misc]  # PettingZoo ships no types
    """The winner earns 1, the loser -1."""

    metadata: ClassVar[dict[str, Any]] = {"name": "tictactoe_class", "is_parallelizable": False}
    render_mode = None

    def __init__(self) -> None:
        self.possible_agents = ["player_1", "player_2"]
        self._space = spaces.Dict(
            {
                "observation": spaces.Box(-1, 1, (9,), np.int8),
                "action_mask": spaces.Box(0, 1, (9,), np.int8),
            }
        )

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(9)

    def observe(self, agent: str) -> Any:
        sign = 1 if agent == "player_1" else -1
        board = np.array(self.board, np.int8)
        return {"observation": sign * board, "action_mask": (board == 0).astype(np.int8)}

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.board = [0] * 9
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self.agent_selection = self.agents[0]

    def step(self, action: int | None) -> None:
        mover = self.agent_selection
        if self.terminations[mover]:
            self._was_dead_step(action)
            return
        assert action is not None
        self._cumulative_rewards[mover] = 0.0
        self._clear_rewards()
        mark = 1 if mover == "player_1" else -1
        self.board[int(action)] = mark
        if any(all(self.board[place] == mark for place in line) for line in LINES):
            self.rewards = {agent: 1.0 if agent == mover else -1.0 for agent in self.agents}
            self.terminations = dict.fromkeys(self.agents, True)
        elif 0 not in self.board:
            self.terminations = dict.fromkeys(self.agents, True)
        self.agent_selection = self.agents[1 - self.agents.index(mover)]
        self._accumulate_rewards()
