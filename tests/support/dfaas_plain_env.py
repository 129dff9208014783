"""dfaas_v0 as one would write it by hand: a plain PettingZoo environment, one copy, Python loops.

The baseline of the throughput benchmark: the same rules, vectorised by SuperSuit.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from corral.data.trace import Trace
from support.dfaas_scalar import INFO_KEYS, ScalarDfaas


class PlainDfaas(ParallelEnv):
    """The scalar rules behind PettingZoo's parallel interface.

    Takes the keyword arguments of ScalarDfaas, except that ``start`` may be "random" (the
    default): each reset then draws a row of the section from the environment's own generator.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "dfaas_plain", "render_modes": []}
    render_mode = None

    def __init__(self, trace: Trace, *, start: int | str = "random", **rules: Any) -> None:
        self.rules = ScalarDfaas(trace, **rules)
        self.start = start
        self.possible_agents = [f"node_{i}" for i in range(self.rules.n)]
        self.agents: list[str] = []
        self.generator = np.random.default_rng()
        self._numbered = list(enumerate(self.possible_agents))
        features = 3 + 2 * (self.rules.n - 1)
        self.observation_spaces = {
            agent: spaces.Dict(
                {
                    "observation": spaces.Box(0.0, 1.0, (features,), np.float32),
                    "action_mask": spaces.Box(0, 1, (self.rules.actions,), np.int8),
                }
            )
            for agent in self.possible_agents
        }
        self.action_spaces = {
            agent: spaces.Discrete(self.rules.actions) for agent in self.possible_agents
        }

    def observation_space(self, agent: str) -> spaces.Dict:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, dict[str, int]]]:
        if seed is not None:
            self.generator = np.random.default_rng(seed)
        rules = self.rules
        if self.start == "random":
            rules.start = int(self.generator.integers(len(rules.arrivals)))
        else:
            rules.start = int(self.start)
        if rules.route == "two":
            rules.draws = self._draw_pairs()
        rules.reset()
        self.agents = list(self.possible_agents)
        return self._observations(), self._infos()

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        rules = self.rules
        rewards = rules.step([int(actions[agent]) for agent in self.possible_agents])
        time_is_up = rules.t >= rules.max_cycles
        observations = self._observations()
        infos = self._infos()
        if time_is_up:
            self.agents = []
        return (
            observations,
            dict(zip(self.possible_agents, rewards, strict=True)),
            dict.fromkeys(self.possible_agents, False),
            dict.fromkeys(self.possible_agents, time_is_up),
            infos,
        )

    def state(self) -> np.ndarray:
        return self.rules.global_state()

    def _draw_pairs(self) -> list[list[list[int]]]:
        counts = [max(1, len(near)) for near in self.rules.neighbours]
        shape = (self.rules.max_cycles, 2, self.rules.n)
        drawn = self.generator.integers(counts, size=shape)
        return drawn.transpose(0, 2, 1).tolist()

    def _observations(self) -> dict[str, dict[str, np.ndarray]]:
        rules = self.rules
        return {
            agent: {"observation": rules.observation(i), "action_mask": rules.mask(i)}
            for i, agent in self._numbered
        }

    def _infos(self) -> dict[str, dict[str, int]]:
        info = self.rules.info
        return {agent: {key: info[key][i] for key in INFO_KEYS} for i, agent in self._numbered}
