"""The rules of tiles_v0 once more, in plain lists and loops: a second reading.

Nothing here is vectorised and nothing is shared with ``corral.envs``. The posterior comes straight
from Bayes' rule: the density of every value that was received, class by class, in logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

BLOCKS_PER_SIDE = {0: 1, 1: 2, 2: 4, 3: 8}
INFO_KEYS = ("values", "tiles", "gain", "correct", "illegal_actions")

Image = Sequence[Sequence[Sequence[float]]]  # [3][32][32]


def block_means(image: Image, tile: int, level: int) -> list[float]:
    """What is sent of a tile: channel by channel, its blocks row by row."""
    top, left = 8 * (tile // 4), 8 * (tile % 4)
    blocks = BLOCKS_PER_SIDE[level]
    side = 8 // blocks
    means = []
    for channel in image:
        for i in range(blocks):
            for j in range(blocks):
                x = left + j * side
                rows = channel[top + i * side : top + (i + 1) * side]
                means.append(math.fsum(p for row in rows for p in row[x : x + side]) / side**2)
    return means


class ScalarTiles:
    """One copy of tiles_v0, given its class and its image.

    After ``reset`` and ``step``: ``turn`` (0: tile_0, 1: level_0), ``over``, ``probabilities``,
    and ``info[key]`` with one entry per agent.
    """

    def __init__(
        self,
        templates: Sequence[Image],
        levels: int = 4,
        budget: int = 384,
        noise: float = 0.3,
        value_cost: float = 0.002,
        confidence: float = 0.95,
    ) -> None:
        self.templates = templates
        self.levels, self.budget, self.noise = levels, budget, noise
        self.value_cost, self.confidence = value_cost, confidence
        self.known_means: dict[tuple[int, int, int], list[float]] = {}

    def reset(self, truth: int, image: Image) -> None:
        self.truth, self.image = truth, image
        self.logs = [0.0] * len(self.templates)  # of the likelihoods so far
        self.sent: dict[int, int] = {}
        self.left = self.budget
        self.turn, self.tile, self.over = 0, -1, False
        self.last = [-1, -1]
        self.received = np.full((3, 32, 32), 128, dtype=np.uint8)
        self.take_stock()
        self.info: dict[str, list[Any]] = {key: [0, 0] for key in INFO_KEYS}

    def means_of_class(self, k: int, tile: int, level: int) -> list[float]:
        key = (k, tile, level)
        if key not in self.known_means:
            self.known_means[key] = block_means(self.templates[k], tile, level)
        return self.known_means[key]

    def take_stock(self) -> None:
        """Bayes' rule, with a uniform prior."""
        highest = max(self.logs)
        whole = highest + math.log(math.fsum(math.exp(log - highest) for log in self.logs))
        self.log_probabilities = [log - whole for log in self.logs]
        self.probabilities = [math.exp(log) for log in self.log_probabilities]
        guess = self.probabilities.index(max(self.probabilities))
        self.right = int(bool(self.sent) and guess == self.truth)

    def mask(self, agent: int) -> list[int]:
        actions = 16 if agent == 0 else self.levels
        if self.over or self.turn != agent:
            return [0] * actions
        if agent == 0:
            return [int(tile not in self.sent) for tile in range(16)]
        return [int(self.values(level) <= self.left) for level in range(self.levels)]

    def values(self, level: int) -> int:
        return int(3 * BLOCKS_PER_SIDE[level] ** 2)

    def step(self, action: int) -> float:
        """Play the action of whoever's turn it is; what each of the two agents is paid."""
        self.info = {key: [0, 0] for key in INFO_KEYS}
        agent = self.turn
        self.last[agent] = action
        if not self.mask(agent)[action]:
            self.info["illegal_actions"][agent] = 1
            self.turn, self.tile = 0, -1
            return -0.5
        if agent == 0:
            self.turn, self.tile = 1, action
            return 0.0
        return self.send(action)

    def send(self, level: int) -> float:
        before, was_right = self.log_probabilities[self.truth], self.right
        tile, values = self.tile, self.values(level)
        means = block_means(self.image, tile, level)
        variance = self.noise**2 / (64 / BLOCKS_PER_SIDE[level] ** 2)
        for k in range(len(self.templates)):
            expected = self.means_of_class(k, tile, level)
            squares = [(got - is_) ** 2 for got, is_ in zip(means, expected, strict=True)]
            self.logs[k] += -0.5 * len(means) * math.log(2 * math.pi * variance)
            self.logs[k] += -math.fsum(squares) / (2 * variance)
        self.show(tile, level, means)
        self.sent[tile] = level
        self.take_stock()
        self.left -= values
        self.turn, self.tile = 0, -1
        gain = self.log_probabilities[self.truth] - before
        self.info["values"][1], self.info["tiles"][1] = values, 1
        self.info["gain"][1], self.info["correct"][1] = gain, self.right - was_right
        sure = max(self.probabilities) >= self.confidence
        self.over = sure or len(self.sent) == 16 or self.left < self.values(0)
        return (gain - self.value_cost * values) / 2

    def show(self, tile: int, level: int, means: list[float]) -> None:
        side = 8 // BLOCKS_PER_SIDE[level]
        blocks = BLOCKS_PER_SIDE[level]
        for channel in range(3):
            for y in range(8):
                for x in range(8):
                    block = channel * blocks**2 + (y // side) * blocks + x // side
                    shade = round(min(1.0, max(0.0, means[block])) * 255)
                    self.received[channel, 8 * (tile // 4) + y, 8 * (tile % 4) + x] = shade

    def vector(self, agent: int) -> np.ndarray:
        other = 1 - agent
        actions = 16 if other == 0 else self.levels
        seen = [
            *self.probabilities,
            self.left / self.budget,
            (self.last[other] + 1) / actions,
            *(float(tile in self.sent) for tile in range(16)),
        ]
        return np.array(seen, dtype=np.float32)

    def global_state(self) -> np.ndarray:
        classes = range(len(self.templates))
        seen = [
            *(float(k == self.truth) for k in classes),
            *self.probabilities,
            self.left / self.budget,
            *((self.sent.get(tile, -1) + 1) / self.levels for tile in range(16)),
            *(float(tile == self.tile) for tile in range(16)),
        ]
        return np.array(seen, dtype=np.float32)
