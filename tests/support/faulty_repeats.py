"""Environments whose fault shows in few episodes only, or only after a whole long episode.

``Arena`` is a two-agent arena in the style of a tutorial. Its subclasses take a part of their
chance from a generator that ``reset(seed)`` does not seed. Chance decides only which agent gets a
field that both enter, so that about a third of the episodes differ.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

SIZE = 4


class Arena(ParallelEnv[str, Any, int]):  # type: ignore[misc]
    """Two agents on a board of 4 x 4 stay, or walk in four directions, for 12 steps.

    The corner ends the episode. If both enter the same field, ``coin`` decides which one gets it.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "arena_of_a_tutorial"}
    render_mode = None
    length = 12
    corner: int | None = SIZE - 1
    moves = np.array([[0, 0], [0, 1], [0, -1], [1, 0], [-1, 0]])

    def __init__(self) -> None:
        self.possible_agents = ["red", "blue"]
        self.agents: list[str] = []
        names = self.possible_agents
        self.observation_spaces: dict[str, Any] = {
            agent: spaces.Box(0, SIZE - 1, (4,), np.float32) for agent in names
        }
        self.action_spaces: dict[str, Any] = {agent: spaces.Discrete(5) for agent in names}
        self.rng = np.random.default_rng()

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def coin(self) -> float:
        return float(self.rng.random())

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.t = 0
        self.place = {agent: self.rng.integers(SIZE, size=2) for agent in self.agents}
        return self.seen(), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        self.t += 1
        aims = {
            agent: np.clip(self.place[agent] + self.moves[actions[agent]], 0, SIZE - 1)
            for agent in self.agents
        }
        if (aims["red"] == aims["blue"]).all():
            first = "red" if self.coin() < 0.5 else "blue"
            self.place[first] = aims[first]
        else:
            self.place = aims
        arrived = {agent: bool((self.place[agent] == self.corner).all()) for agent in self.agents}
        won, over = any(arrived.values()), self.t == self.length
        answer = (
            self.seen(),
            {agent: float(arrived[agent]) for agent in self.agents},
            dict.fromkeys(self.agents, won),
            dict.fromkeys(self.agents, over and not won),
            {agent: {} for agent in self.agents},
        )
        if over or won:
            self.agents = []
        return answer

    def seen(self) -> dict[str, Any]:
        red, blue = (self.place[agent] for agent in ("red", "blue"))
        seen = {"red": [*red, *blue], "blue": [*blue, *red]}
        return {agent: np.array(seen[agent], np.float32) for agent in self.agents}


class CoinOfRandom(Arena):
    """The coin comes from Python's global generator."""

    def coin(self) -> float:
        return random.random()


class CoinOfNumpy(Arena):
    """The coin comes from NumPy's global generator."""

    def coin(self) -> float:
        return float(np.random.random())  # noqa: NPY002


class CoinNeverSeeded(Arena):
    """The coin comes from a generator that the constructor makes without the seed of reset.

    Each environment of a process has another generator, as without a seed; but a test that fails
    fails again.
    """

    made: ClassVar[itertools.count[int]] = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.coins = np.random.default_rng(next(self.made))

    def coin(self) -> float:
        return float(self.coins.random())


class CoinSeededOnce(Arena):
    """The constructor seeds the coin's generator, the same for all; reset does not seed it."""

    def __init__(self) -> None:
        super().__init__()
        self.coins = np.random.default_rng(0)

    def coin(self) -> float:
        return float(self.coins.random())


class NeverCountsAnew(Arena):
    """``reset`` does not set the step counter, so every episode after the first has one step."""

    length = 1001
    corner = None

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        self.count += 1
        self.t = min(self.count, self.length) - 1
        return super().step(actions)
