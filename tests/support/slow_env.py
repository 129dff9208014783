"""An environment with many actions and slow, long episodes: what a check's time budget is for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

__all__ = ["Slow"]

ACTIONS, STEPS, SECONDS = 100, 1_000, 0.02


class Slow(ParallelEnv[str, Any, int]):  # type: ignore[misc]  # PettingZoo ships no types
    """One agent, a hundred actions of which half are legal."""

    metadata: ClassVar[dict[str, Any]] = {"name": "slow_v0", "render_modes": []}

    def __init__(self) -> None:
        self.possible_agents = ["walker"]
        self.agents: list[str] = []
        parts = {
            "observation": spaces.Box(0, 1, (4,), np.float32),
            "action_mask": spaces.Box(0, 1, (ACTIONS,), np.int8),
        }
        self._observed, self._actions = spaces.Dict(parts), spaces.Discrete(ACTIONS)
        self.rng = np.random.default_rng(0)
        self.t = 0

    def observation_space(self, agent: str) -> Any:
        return self._observed

    def action_space(self, agent: str) -> Any:
        return self._actions

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.t, self.agents = 0, list(self.possible_agents)
        return self._shown(), {"walker": {}}

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        time.sleep(SECONDS)
        self.t += 1
        over = self.t >= STEPS
        answer = (
            self._shown(),
            {"walker": float(actions["walker"])},
            {"walker": False},
            {"walker": over},
            {"walker": {}},
        )
        self.agents = [] if over else self.agents
        return answer

    def _shown(self) -> Any:
        mask = (self.rng.random(ACTIONS) < 0.5).astype(np.int8)
        mask[0] = 1
        seen = self.rng.random(4).astype(np.float32)
        return {"walker": {"observation": seen, "action_mask": mask}}
