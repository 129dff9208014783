"""A parallel environment without masks, with any observation and action space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

BOX = spaces.Box(-1, 1, (3,), np.float32)
OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "box": BOX,
    "number": spaces.Discrete(4),
    "dict": spaces.Dict({"near": BOX, "kind": spaces.Discrete(3)}),
    "nested": spaces.Dict({"near": BOX, "pair": spaces.Tuple((BOX, spaces.Discrete(2)))}),
    "observation": spaces.Dict({"observation": BOX}),
}
ACTIONS: dict[str, spaces.Space[Any]] = {
    "one": spaces.Discrete(3),
    "from 1": spaces.Discrete(3, start=1),
    "several": spaces.MultiDiscrete([2, 3]),
    "numbers": spaces.Box(-1, 1, (2,), np.float32),
}


class NoMasks(ParallelEnv[str, Any, Any]):  # type: ignore[misc]
    """Two agents observe random values for 8 steps, and earn their action."""

    metadata: ClassVar[dict[str, Any]] = {"name": "no_masks"}
    render_mode = None

    def __init__(self, observed: str = "box", action: str = "one") -> None:
        self.possible_agents = ["one", "two"]
        self.agents: list[str] = []
        self.observed, self.action = OBSERVATIONS[observed], ACTIONS[action]
        self.rng = np.random.default_rng()

    def observation_space(self, agent: str) -> Any:
        return self.observed

    def action_space(self, agent: str) -> Any:
        return self.action

    def observations(self) -> dict[str, Any]:
        self.observed.seed(int(self.rng.integers(2**31)))
        return {agent: self.observed.sample() for agent in self.agents}

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents, self.t = list(self.possible_agents), 0
        return self.observations(), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        assert all(self.action.contains(action) for action in actions.values()), actions
        self.t += 1
        over = self.t == 8
        answer = (
            self.observations(),
            {agent: float(np.sum(actions[agent])) for agent in self.agents},
            dict.fromkeys(self.agents, False),
            dict.fromkeys(self.agents, over),
            {agent: {} for agent in self.agents},
        )
        if over:
            self.agents = []
        return answer
