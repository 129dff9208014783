"""Rules that pay 1 in every step and are cut every few steps: worth 1 / (1 - gamma) in all states.

Learners that take the cut for an end see less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from corral.envs.core import Array, Observation, Outcome, agent_views


@dataclass
class SteadyState:
    t: Array  # int64 [B]
    pay: Array  # float32 [B, N] 1 for all; the state's own array is handed out as the reward


class SteadyRules:
    """Two agents, three actions of which the last is illegal, and one observation: 1.

    ``nested`` shows it as a Dict, with an entry whose name Stable-Baselines3 could not keep.
    """

    name = "steady_v0"
    agents = ("agent_0", "agent_1")
    render_modes = ("ansi",)
    render_fps = 4
    simultaneous = True
    illegal: Literal["penalise", "raise"] = "raise"

    def __init__(self, max_cycles: int = 4, nested: bool = False) -> None:
        self.max_cycles = max_cycles
        self.nested = nested

    def observation_space(self, agent: str) -> spaces.Dict:
        seen: Any = spaces.Box(0, 1, (1,), np.float32)
        if self.nested:
            seen = spaces.Dict({"level.now": seen, "picture": spaces.Box(0, 255, (2, 3), np.uint8)})
        return spaces.Dict({"observation": seen, "action_mask": spaces.Box(0, 1, (3,), np.int8)})

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(3)

    def state_space(self) -> spaces.Box:
        return spaces.Box(0, np.inf, (1,), np.float32)

    def start(self, rngs: Sequence[np.random.Generator]) -> SteadyState:
        num_envs = len(rngs)
        return SteadyState(np.zeros(num_envs, dtype=np.int64), np.ones((num_envs, 2), np.float32))

    def observe(self, state: SteadyState) -> dict[str, Observation]:
        num_envs = len(state.t)
        mask = np.tile(np.array([1, 1, 0], np.int8), (num_envs, 2, 1))
        level = np.ones((num_envs, 2, 1), np.float32)
        if not self.nested:
            return agent_views(self.agents, observation=level, action_mask=mask)
        picture = np.arange(12, dtype=np.uint8).reshape(2, 2, 3) + state.t[:, None, None, None]
        picture = picture.astype(np.uint8)  # [B, N, 2, 3], another one for each agent and step
        return {
            agent: {
                "observation": {"level.now": level[:, i], "picture": picture[:, i]},
                "action_mask": mask[:, i],
            }
            for i, agent in enumerate(self.agents)
        }

    def acting(self, state: SteadyState) -> Array:
        return np.ones((len(state.t), 2), dtype=bool)

    def step(self, state: SteadyState, action: Array) -> Outcome[SteadyState]:
        state.t = state.t + 1
        return Outcome(state, state.pay, np.zeros(action.shape, dtype=bool), self.info(state))

    def info(self, state: SteadyState) -> dict[str, Array]:
        return {"half": np.repeat(state.t[:, None] / 2, 2, axis=1)}

    def global_state(self, state: SteadyState) -> Array:
        return state.t[:, None].astype(np.float32)

    def render(self, state: SteadyState, info: dict[str, Array], mode: str) -> Any:
        return f"step {state.t[0]}, half {info['half'][0, 0]}"
