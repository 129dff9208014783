"""Rules made of masks alone, and rules that show a picture: for policies that must mind both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from corral.envs.core import Array, Observation, Outcome, agent_views
from support.steady_rules import SteadyRules, SteadyState

FIFTEEN = np.array([[k >> a & 1 for a in range(4)] for k in range(1, 16)], np.int8)  # [15, 4]
"""All non-empty masks of four actions."""

BEST_OF_FIFTEEN = 34
"""The sum of the highest legal action over them; that of the lowest is 11."""


@dataclass
class FifteenState:
    t: Array  # int64 [B]
    order: Array  # int64 [B, 16] in which the masks come; the last is seen but never played


class FifteenRules:
    """One agent, four actions, the 15 masks once each in a random order; action k pays k.

    The observation is always 1: only the mask tells what can be played. Illegal actions raise.
    """

    name = "fifteen_v0"
    agents = ("agent_0",)
    render_modes = ("ansi",)
    render_fps = 4
    simultaneous = True
    illegal: Literal["penalise", "raise"] = "raise"
    max_cycles = 15

    def observation_space(self, agent: str) -> spaces.Dict:
        return spaces.Dict(
            {
                "observation": spaces.Box(0, 1, (1,), np.float32),
                "action_mask": spaces.Box(0, 1, (4,), np.int8),
            }
        )

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(4)

    def state_space(self) -> spaces.Box:
        return spaces.Box(0, np.inf, (1,), np.float32)

    def start(self, rngs: Sequence[np.random.Generator]) -> FifteenState:
        order = np.array([np.append(rng.permutation(15), 0) for rng in rngs])
        return FifteenState(np.zeros(len(rngs), dtype=np.int64), order)

    def observe(self, state: FifteenState) -> dict[str, Observation]:
        rows = np.arange(len(state.t))
        mask = FIFTEEN[state.order[rows, state.t]][:, None]  # [B, 1, 4]
        seen = np.ones((len(rows), 1, 1), np.float32)
        return agent_views(self.agents, observation=seen, action_mask=mask)

    def acting(self, state: FifteenState) -> Array:
        return np.ones((len(state.t), 1), dtype=bool)

    def step(self, state: FifteenState, action: Array) -> Outcome[FifteenState]:
        state.t = state.t + 1
        reward = action.astype(np.float32)
        return Outcome(state, reward, np.zeros(action.shape, dtype=bool), self.info(state))

    def info(self, state: FifteenState) -> dict[str, Array]:
        return {"t": state.t[:, None]}

    def global_state(self, state: FifteenState) -> Array:
        return state.t[:, None].astype(np.float32)

    def render(self, state: FifteenState, info: dict[str, Array], mode: str) -> Any:
        return f"step {state.t[0]}"


class PictureRules(SteadyRules):
    """SteadyRules that also show a picture of 32 x 32 pixels, another one in every step.

    ``channels_last`` shows the same pictures as [height, width, 3] instead of [3, height, width].
    """

    def __init__(self, channels_last: bool, side: int = 32) -> None:
        super().__init__(nested=True)
        self.channels_last = channels_last
        shape = (self.max_cycles + 1, 2, 3, side, side)  # by step and agent
        self._pictures = np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)
        if channels_last:
            self._pictures = self._pictures.transpose(0, 1, 3, 4, 2)

    def observation_space(self, agent: str) -> spaces.Dict:
        space = super().observation_space(agent)
        parts = dict(space["observation"].spaces)  # type: ignore[attr-defined]
        parts["picture"] = spaces.Box(0, 255, self._pictures.shape[2:], np.uint8)
        return spaces.Dict({**space.spaces, "observation": spaces.Dict(parts)})

    def observe(self, state: SteadyState) -> dict[str, Observation]:
        seen = super().observe(state)
        for i, agent in enumerate(self.agents):
            seen[agent]["observation"]["picture"] = self._pictures[state.t, i].copy()
        return seen
