"""A third party's PettingZoo game that can be learned in seconds, in many forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec

STEPS = 5


class BitsEnv(ParallelEnv[str, Any, Any]):  # type: ignore[misc]  # PettingZoo ships no types
    """Two agents see a symbol of four each, in a Dict or alone, and are paid 1 for naming it.

    With a mask the symbol and the one after it alone are legal; others raise. ``kind`` is that of
    the actions: of a Box the sign of the one number counts, of a MultiDiscrete both bits. ``state``
    raises after the end where ``stateful``. Pictures are the step, as a shade.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "bits_v0",
        "is_parallelizable": True,
        "render_modes": ["rgb_array"],
        "render_fps": 7,
    }

    def __init__(
        self,
        mask: Literal["observation", "info"] | None = None,
        kind: Literal["discrete", "box", "bits"] = "discrete",
        render_mode: str | None = None,
        stateful: bool = False,
    ) -> None:
        self.possible_agents = ["a", "b"]
        self.mask, self.kind, self.render_mode, self.stateful = mask, kind, render_mode, stateful
        seen: spaces.Space[Any] = spaces.Box(0, 1, (4,), np.float32)
        if mask == "observation":
            legal = spaces.Box(0, 1, (4,), np.int8)
            seen = spaces.Dict({"observation": seen, "action_mask": legal})
        acts: spaces.Space[Any] = spaces.Discrete(4)
        if kind != "discrete":
            acts = (
                spaces.Box(-1, 1, (1,), np.float32)
                if kind == "box"
                else spaces.MultiDiscrete([2, 2])
            )
        self._seen, self._acts = seen, acts
        self.rng = np.random.default_rng()
        self.closed = False

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._seen

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._acts

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.t = 0
        self.agents = list(self.possible_agents)
        self.symbols = dict(zip(self.agents, self.rng.integers(4, size=2).tolist(), strict=True))
        return self._shown(), self._infos()

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        rewards = {}
        for agent in self.agents:
            assert self._acts.contains(actions[agent]), f"{agent}: {actions[agent]!r}"
            symbol, action = self.symbols[agent], actions[agent]
            if self.kind == "box":
                right = (float(action[0]) > 0) == (symbol >= 2)
            elif self.kind == "bits":
                right = [int(bit) for bit in action] == [symbol // 2, symbol % 2]
            else:
                right = int(action) == symbol
            if self.mask and not self._legal(agent)[int(action)]:
                raise RuntimeError(f"{agent}: {action} is illegal")
            rewards[agent] = float(right)
        self.t += 1
        self.symbols = dict(zip(self.agents, self.rng.integers(4, size=2).tolist(), strict=True))
        shown, infos = self._shown(), self._infos()
        over = dict.fromkeys(self.agents, self.t == STEPS)
        if self.t == STEPS:
            self.agents = []
        return shown, rewards, over, dict.fromkeys(over, False), infos

    def state(self) -> Any:
        if not self.stateful:
            raise NotImplementedError
        if not self.agents:
            raise AttributeError("'NoneType' object has no attribute 'position'")
        return np.array([self.t, *self.symbols.values()], np.float32)

    def render(self) -> Any:
        return np.full((2, 2, 3), self.t, np.uint8)

    def close(self) -> None:
        self.closed = True

    def _shown(self) -> dict[str, Any]:
        each = {agent: np.eye(4, dtype=np.float32)[self.symbols[agent]] for agent in self.agents}
        if self.mask != "observation":
            return each
        return {a: {"observation": own, "action_mask": self._legal(a)} for a, own in each.items()}

    def _infos(self) -> dict[str, Any]:
        extra = {a: {"action_mask": self._legal(a)} for a in self.agents}
        return {a: {"t": self.t} | (extra[a] if self.mask == "info" else {}) for a in self.agents}

    def _legal(self, agent: str) -> Any:
        legal = np.zeros(4, np.int8)
        legal[[self.symbols[agent], (self.symbols[agent] + 1) % 4]] = 1
        return legal


def bits(mask: Any = None, turns: bool = False, **options: Any) -> Any:
    """Return the game, at once or in turns."""
    env = BitsEnv(mask, **options)
    return parallel_to_aec(env) if turns else env
