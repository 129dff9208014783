"""Turn-based games in PettingZoo's parallel API: at each step only the mover's action counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class Alternating(ParallelEnv[str, Any, int]):  # type: ignore[misc]
    """Two agents in turn move one token on a ring of 9 fields, for 10 steps."""

    metadata: ClassVar[dict[str, Any]] = {"name": "alternating"}
    render_mode = None

    def __init__(self) -> None:
        self.possible_agents = ["one", "two"]
        self.agents: list[str] = []
        self.observation_spaces = {agent: self.space() for agent in self.possible_agents}
        self.action_spaces = {agent: spaces.Discrete(3) for agent in self.possible_agents}
        self.rng = np.random.default_rng()

    def space(self) -> spaces.Space[Any]:
        return spaces.Box(0, 8, (2,), np.float32)

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.t, self.token = 0, int(self.rng.integers(9))
        return self.observations(), {agent: {} for agent in self.agents}

    @property
    def mover(self) -> str:
        return self.possible_agents[self.t % 2]

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        self.token = (self.token + int(actions[self.mover]) - 1) % 9
        self.t += 1
        over = self.t == 10
        answer = (
            self.observations(),
            {agent: float(self.token == 4) for agent in self.agents},
            dict.fromkeys(self.agents, over),
            dict.fromkeys(self.agents, False),
            {agent: {} for agent in self.agents},
        )
        if over:
            self.agents = []
        return answer

    def observation(self, agent: str) -> Any:
        return np.array([self.token, agent == self.mover], np.float32)

    def observations(self) -> dict[str, Any]:
        return {agent: self.observation(agent) for agent in self.agents}


class AlternatingWithMasks(Alternating):
    """The mask of the waiting agent is all zero."""

    def space(self) -> spaces.Space[Any]:
        mask = spaces.Box(0, 1, (3,), np.int8)
        return spaces.Dict({"observation": super().space(), "action_mask": mask})

    def observation(self, agent: str) -> Any:
        mask = np.full(3, agent == self.mover, np.int8)
        return {"observation": super().observation(agent), "action_mask": mask}
