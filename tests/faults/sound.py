"""A sound environment of three depots, and one with pictures, for mistakes to be made in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from corral.adapters.zoo.batch import ZooRules, zoo_rules

NAMES = ["depot_0", "depot_1", "depot_2"]
STEPS = 12


class Depots(ParallelEnv[str, Any, int]):  # type: ignore[misc]
    """Three depots work off what arrives, up to a capacity that each episode draws anew.

    Observation: own load, own capacity, and the loads of the next depot and the one after it.
    Actions: keep, or send half of the load to the next one or the one after, if there is some.
    """

    metadata = {"name": "depots_v0"}  # noqa: RUF012
    render_mode = None

    def __init__(self) -> None:
        self.possible_agents = list(NAMES)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        part = spaces.Box(0, 10, (4,), np.float32)
        return spaces.Dict(observation=part, action_mask=spaces.Box(0, 1, (3,), np.int8))

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(3)

    def state(self) -> Any:
        return np.concatenate([self.load, self.capacity]).astype(np.float32)

    @property
    def state_space(self) -> spaces.Space[Any]:
        return spaces.Box(0, 10, (6,), np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None or not hasattr(self, "rng"):
            self.rng = np.random.default_rng(seed)
        self.agents, self.t = list(NAMES), 0
        self.capacity = self.rng.uniform(0.2, 1.0, 3)
        self.load = self.arrivals()
        return self.looks(), {agent: {} for agent in NAMES}

    def step(self, actions: Any) -> Any:
        sent = np.zeros(3)
        for i, agent in enumerate(NAMES):
            half = self.load[i] / 2 if actions[agent] else 0.0
            sent[i] -= half
            sent[(i + actions[agent]) % 3] += half
        self.load = self.load + sent
        done = np.minimum(self.load, self.capacity)
        rewards = dict(zip(NAMES, (done - 0.2 * (self.load - done)).tolist(), strict=True))
        self.load = np.minimum(self.load - done + self.arrivals(), 10)
        self.t += 1
        over = dict.fromkeys(NAMES, self.t == STEPS)
        found = self.looks(), rewards, over, dict.fromkeys(NAMES, False)
        self.agents = [] if self.t == STEPS else self.agents
        return *found, {agent: {} for agent in NAMES}

    def arrivals(self) -> Any:
        return self.rng.uniform(0, 1.2, 3) * (self.rng.random(3) < 0.7)

    def looks(self) -> dict[str, Any]:
        return {
            agent: {"observation": self.look(i), "action_mask": self.mask(i)}
            for i, agent in enumerate(NAMES)
        }

    def mask(self, i: int) -> Any:
        return np.array([1, self.load[i] > 0, self.load[i] > 0], np.int8)

    def look(self, i: int) -> Any:
        peers = [self.load[(i + 1) % 3], self.load[(i + 2) % 3]]
        return np.array([self.load[i], self.capacity[i], *peers], np.float32)


class Pictured(Depots):
    """The same, with the loads as bars of a picture beside the capacities."""

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        part = spaces.Dict(
            bars=spaces.Box(0, 255, (12, 12, 3), np.uint8),
            capacity=spaces.Box(0, 1, (1,), np.float32),
        )
        return spaces.Dict(observation=part, action_mask=spaces.Box(0, 1, (3,), np.int8))

    def look(self, i: int) -> Any:
        bars = np.zeros((12, 12, 3), np.uint8)
        for j in range(3):
            bars[: 1 + int(4 * min(self.load[(i + j) % 3], 2.5)), 4 * j : 4 * j + 4, j] = 200
        return {"bars": bars, "capacity": self.capacity[i : i + 1].astype(np.float32)}


def depots(kind: Callable[[], Any] = Depots) -> ZooRules:
    """What ``corral.train`` takes of such an environment."""
    return zoo_rules(kind)
