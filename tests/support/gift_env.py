"""A PettingZoo AECEnv in which an agent is paid before its first turn."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv


class Gift(AECEnv[str, Any, int]):  # type: ignore[misc]
    """``giver`` moves; ``taker`` has its first turn with 0.5 in hand, moves, and is paid 1."""

    metadata = {"name": "gift_v0"}  # noqa: RUF012
    render_mode = None

    def __init__(self, giver_ends: bool = False) -> None:
        self.possible_agents = ["giver", "taker"]
        self.giver_ends = giver_ends

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        part = spaces.Box(0, 1, (1,), np.float32)
        return spaces.Dict(observation=part, action_mask=spaces.Box(0, 1, (2,), np.int8))

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def observe(self, agent: str) -> Any:
        return {"observation": np.zeros(1, np.float32), "action_mask": np.ones(2, np.int8)}

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents = list(self.possible_agents)
        for name, value in (("rewards", 0.0), ("_cumulative_rewards", 0.0)):
            setattr(self, name, dict.fromkeys(self.agents, value))
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}
        self._skip_agent_selection = None
        self.agent_selection = "giver"
        self.turn = 0

    def step(self, action: int | None) -> None:
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self.turn += 1
        self.rewards["taker"] = 0.5 if self.turn == 1 else 1.0
        if self.turn == 1:
            self.terminations["giver"] = self.giver_ends
        if self.turn == 2:
            self.terminations = dict.fromkeys(self.agents, True)
        self.agent_selection = "taker"
        self._accumulate_rewards()
        if self.turn == 2 or self.giver_ends:
            self._deads_step_first()
