"""An environment in which nothing can be learned."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

__all__ = ["Busy", "Chance"]


class Chance(ParallelEnv[str, Any, int]):
    """Rewards and observations are noise: no action is better than another."""

    metadata: ClassVar[dict[str, Any]] = {"name": "chance"}
    length = 10

    def __init__(self) -> None:
        self.possible_agents = ["agent_0", "agent_1"]
        self.rng = np.random.default_rng()
        self.spaces = spaces.Box(-5.0, 5.0, (3,), np.float32), spaces.Discrete(3)

    def observation_space(self, agent: str) -> spaces.Box:
        return self.spaces[0]

    def action_space(self, agent: str) -> spaces.Discrete[Any]:
        return self.spaces[1]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents, self.t = list(self.possible_agents), 0
        return self._noise(), {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> tuple[Any, ...]:
        self.t += 1
        rewards = {agent: float(self.rng.normal()) for agent in self.agents}
        over = dict.fromkeys(self.agents, self.t >= self.length)
        never = dict.fromkeys(self.agents, False)
        noise, infos = self._noise(), {agent: {} for agent in self.agents}
        self.agents = [] if self.t >= self.length else self.agents
        return noise, rewards, never, over, infos

    def _noise(self) -> dict[str, Any]:
        drawn = self.rng.uniform(-1, 1, size=(2, 3)).astype(np.float32)
        return dict(zip(self.possible_agents, drawn, strict=True))


class Busy(Chance):
    """Each step takes some CPU time, and episodes are long."""

    length = 100
    seconds = 0.0003
    steps = 0  # of all environments of this process

    def step(self, actions: Any) -> tuple[Any, ...]:
        Busy.steps += 1
        ends = time.process_time() + self.seconds
        while time.process_time() < ends:
            pass
        return super().step(actions)
