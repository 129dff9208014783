"""The rules of arena_v0 once more, in plain integers, sets and loops: a second reading.

Nothing here is vectorised and nothing is shared with ``corral.envs``. Tests compare the two; as a
plain PettingZoo environment it is the baseline of the throughput benchmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

EXPLORER, BLOCKER = 0, 1
STEPS = {0: (-1, 0), 1: (0, 1), 2: (1, 0), 3: (0, -1)}
INFO_KEYS = ("new_field", "fields_visited", "collision", "illegal_actions")


class ScalarArena:
    """One copy of arena_v0; ``blocker_first[t]`` says who moves first in step t.

    After ``reset`` and every ``step``: ``places`` of both (row, column), the set ``visited``, and
    ``info[key]`` with one entry per agent.
    """

    def __init__(
        self,
        width: int = 10,
        height: int = 10,
        max_cycles: int = 100,
        observation: str = "positions",
        planes: bool = False,
        walls: str = "bump",
    ) -> None:
        self.width, self.height, self.max_cycles = width, height, max_cycles
        self.shows_visited, self.planes = observation == "visited", planes
        self.walls = walls

    def reset(self, blocker_first: Sequence[bool]) -> None:
        self.blocker_first = blocker_first
        self.t = 0
        self.places = [(0, 0), (self.height - 1, self.width - 1)]
        self.visited: set[tuple[int, int]] = set()
        self.info = {key: [0, 0] for key in INFO_KEYS}

    def on_grid(self, place: tuple[int, int]) -> bool:
        return 0 <= place[0] < self.height and 0 <= place[1] < self.width

    def ahead(self, agent: int, action: int) -> tuple[int, int]:
        row, column = self.places[agent]
        down, right = STEPS[action]
        return row + down, column + right

    def step(self, actions: Sequence[int]) -> list[float]:
        """Play one action each; the rewards."""
        self.info = {key: [0, 0] for key in INFO_KEYS}
        order = [BLOCKER, EXPLORER] if self.blocker_first[self.t] else [EXPLORER, BLOCKER]
        for agent in order:
            self.move(agent, actions[agent])
        self.t += 1
        if any(self.info["collision"]):
            return [-1.0, 1.0]
        if self.info["fields_visited"][EXPLORER]:
            self.info["new_field"][EXPLORER] = 1
            return [1.0, -0.1]
        return [-0.5, -0.1]

    def move(self, agent: int, action: int) -> None:
        place = self.ahead(agent, action)
        if place == self.places[1 - agent]:
            self.info["collision"][agent] = 1
            return
        if not self.on_grid(place):
            if self.walls == "mask":
                self.info["illegal_actions"][agent] = 1
                return
            place = self.places[agent]
        self.places[agent] = place
        if agent == EXPLORER and place not in self.visited:
            self.visited.add(place)
            self.info["fields_visited"][EXPLORER] = 1

    def mask(self, agent: int) -> list[int]:
        if self.walls == "bump":
            return [1, 1, 1, 1]
        return [int(self.on_grid(self.ahead(agent, action))) for action in range(4)]

    def observation(self, agent: int) -> np.ndarray:
        fields = self.width * self.height
        seen = np.zeros(fields * (3 if self.shows_visited else 2), dtype=np.float32)
        for part, (row, column) in enumerate((self.places[agent], self.places[1 - agent])):
            seen[part * fields + row * self.width + column] = 1
        if self.shows_visited:
            for row, column in self.visited:
                seen[2 * fields + row * self.width + column] = 1
        return seen.reshape(-1, self.height, self.width) if self.planes else seen

    def global_state(self) -> np.ndarray:
        fields = self.width * self.height
        seen = np.zeros(3 * fields, dtype=np.float32)
        for part, places in enumerate(([self.places[0]], [self.places[1]], self.visited)):
            for row, column in places:
                seen[part * fields + row * self.width + column] = 1
        return seen


class PlainArena(ParallelEnv):
    """The scalar rules behind PettingZoo's parallel interface, as one would write it by hand."""

    metadata: ClassVar[dict[str, Any]] = {"name": "arena_plain", "render_modes": []}
    render_mode = None

    def __init__(self, **rules: Any) -> None:
        self.rules = ScalarArena(**rules)
        self.possible_agents = ["agent_1", "agent_2"]
        self.agents: list[str] = []
        self.generator = np.random.default_rng()
        parts = 3 if self.rules.shows_visited else 2
        shape = (parts, self.rules.height, self.rules.width)
        shape = shape if self.rules.planes else (int(np.prod(shape)),)
        self.observation_spaces = {
            agent: spaces.Dict(
                {
                    "observation": spaces.Box(0.0, 1.0, shape, np.float32),
                    "action_mask": spaces.Box(0, 1, (4,), np.int8),
                }
            )
            for agent in self.possible_agents
        }
        self.action_spaces = {agent: spaces.Discrete(4) for agent in self.possible_agents}

    def observation_space(self, agent: str) -> spaces.Dict:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        if seed is not None:
            self.generator = np.random.default_rng(seed)
        self.rules.reset((self.generator.random(self.rules.max_cycles) >= 0.5).tolist())
        self.agents = list(self.possible_agents)
        return self._observations(), self._infos()

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        rewards = self.rules.step([int(actions[agent]) for agent in self.possible_agents])
        time_is_up = self.rules.t >= self.rules.max_cycles
        if time_is_up:
            self.agents = []
        return (
            self._observations(),
            dict(zip(self.possible_agents, rewards, strict=True)),
            dict.fromkeys(self.possible_agents, False),
            dict.fromkeys(self.possible_agents, time_is_up),
            self._infos(),
        )

    def state(self) -> np.ndarray:
        return self.rules.global_state()

    def _observations(self) -> dict[str, dict[str, np.ndarray]]:
        return {
            agent: {
                "observation": self.rules.observation(i),
                "action_mask": np.array(self.rules.mask(i), dtype=np.int8),
            }
            for i, agent in enumerate(self.possible_agents)
        }

    def _infos(self) -> dict[str, dict[str, int]]:
        info = self.rules.info
        return {
            agent: {key: info[key][i] for key in INFO_KEYS}
            for i, agent in enumerate(self.possible_agents)
        }
