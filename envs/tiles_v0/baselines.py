"""Reference teams of tiles_v0, as a benchmark for a learned team.

| team | tile_0 picks | level_0 sends at |
|---|---|---|
| random | a random unsent tile | a random affordable level |
| raster-0 .. raster-3 | tiles in order, row by row | that level, or the finest affordable level |
| greedy | the tile of the best pair of tile and level | the best level for the picked tile |

Greedy knows the templates of the classes and the noise. The value of a pair of tile and level is
its expected information about the class (in nats), minus a price for each value sent. The expected
information equals the expected gain in the log-probability of the true class. At the price of the
reward, 0.002, greedy therefore maximizes the reward of the next turn. Greedy plans only one turn
ahead, and the budget is short. At a price of 0.01, the default, it sends half as many values and
gets a higher return.

The information I(class; block means) of a mixture of Gaussians has no closed form. Let p_i be the
class probabilities and d_ij^2 the squared distances between the templates' block means, in units
of their noise. A lower bound is

(Kolchinsky and Tracey, Estimating Mixture Entropy with Pairwise Distances, Entropy 19(7):361, 2017,
with the Bhattacharyya distance, the tightest of their lower bounds for equal covariances). It is
(Kolchinsky and Tracey, Estimating Mixture Entropy with Pairwise Distances, Entropy 19(7):361, 2017,
with the Bhattacharyya distance, the tightest of their lower bounds for equal covariances). The
bound is exact if each pair of classes is either distinguished with certainty or not at all.

Results in the default game (benchmarks/core/tiles_accuracy.py, 4096 episodes; the 95 % interval of
"right", the share of correct final guesses, is within 1.5 percentage points):
| team | right, % | values sent | tiles | log P(true class) | return |
|---|--:|--:|--:|--:|--:|
| random | 70.0 | 323.8 | 9.6 | -0.845 | 3.113 |
| raster-0 | 42.5 | 47.5 | 15.8 | -1.602 | 2.908 |
| raster-1 | 84.3 | 152.7 | 12.7 | -0.472 | 3.828 |
| raster-2 | 62.1 | 285.4 | 5.9 | -0.997 | 3.038 |
| raster-3 | 26.1 | 362.2 | 1.9 | -1.966 | 1.915 |
| greedy | 97.0 | 64.0 | 3.9 | -0.105 | 4.373 |
| greedy, price 0.002 | 98.8 | 137.4 | 2.5 | -0.053 | 4.277 |

Both agents see the receiver's knowledge, so level_0 picks the level that tile_0 expected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from corral.envs.core import Array, Observation
from corral.envs.masks import MASK, OBSERVATION, first, greedy, highest
from corral.envs.policy import Decision, Heuristic, Memoryless, Policy
from corral.envs.reference import Makers, reference_player
from corral.envs.tiles_v0.rules import TilesRules
from corral.envs.tiles_v0.templates import PIXELS, TILES, VALUES
from corral.errors import UnknownNameError

__all__ = [
    "Greedy",
    "InOrder",
    "SameLevel",
    "expected_information",
    "players_of",
    "teams_of",
    "tiles_team",
]

PRICE = 0.01
"""Greedy's price of each value, in nats; the price in the reward is 0.002."""


class InOrder(Heuristic):
    """A tile selector that picks tiles row by row, from left to right."""

    def __init__(self, rules: TilesRules) -> None:
        pass

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        return first(observation[MASK])


class SameLevel(Heuristic):
    """A resolution selector that picks ``level``, or the finest affordable level."""

    def __init__(self, level: int) -> None:
        self.level = level

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        return np.minimum(self.level, highest(observation[MASK]))


class Greedy(Memoryless):
    """Either agent of the greedy team; ``price`` is the cost per value sent, in nats."""

    def __init__(self, rules: TilesRules, price: float = PRICE) -> None:
        self.rules = rules
        self.price = price
        self.overlap = _overlaps(rules)

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """Return the first of the actions with the highest value."""
        mask = np.asarray(observation[MASK])
        vector = np.atleast_2d(observation[OBSERVATION]["vector"])
        k = len(self.rules.classes)
        worth = expected_information(vector[:, :k].astype(np.float64), self.overlap)  # [R, 16, L]
        values = np.array(VALUES[: self.rules.levels])
        worth = worth - self.price * values
        if mask.shape[-1] == TILES:
            left = np.rint(vector[:, k] * self.rules.budget)
            worth = np.where(values <= left[:, None, None], worth, -np.inf).max(axis=2)
        else:
            tile = np.rint(vector[:, k + 1] * TILES).astype(np.int64) - 1
            worth = worth[np.arange(len(worth)), tile]
        worth = np.where(mask != 0, worth.reshape(mask.shape), -np.inf)
        best = (worth == worth.max(axis=-1, keepdims=True)) & (mask != 0)
        return Decision(greedy(worth, mask), extra={"choices": best})


def expected_information(probability: Array, overlap: Array) -> Array:
    """Bound the nats that each tile gives at each level, float64 [R, 16, L]; see the module text.

    ``probability`` float64 [R, K] of the classes, ``overlap`` [16, L, K, K] exp(-d^2 / 8).
    """
    tiles, levels, k, _ = overlap.shape
    mixed = overlap.reshape(-1, k) @ probability.T  # [16 L K, R]
    logs = np.log(np.maximum(mixed, 1e-300, out=mixed), out=mixed)
    logs *= np.tile(probability.T, (tiles * levels, 1))
    nats = -logs.reshape(tiles, levels, k, -1).sum(axis=2)
    return np.asarray(nats.transpose(2, 0, 1))


def _overlaps(rules: TilesRules) -> Array:
    k = len(rules.classes)
    overlap = np.empty((TILES, rules.levels, k, k))
    for level in range(rules.levels):
        table = rules.classes.means[level]  # [16, V, K]
        dot = table.transpose(0, 2, 1) @ table
        norms = rules.classes.norms[level]  # [16, K] half the squared lengths
        squared = 2 * (norms[:, :, None] + norms[:, None, :] - dot)
        overlap[:, level] = np.exp(-squared.clip(0) * (PIXELS[level] / rules.noise**2) / 8)
    return overlap


# --- By name -------------------------------------------------------------------------------------


def players_of(rules: TilesRules, agent: str) -> Makers:
    makers: dict[str, Callable[[Any], Policy]] = {}
    for level in range(rules.levels):
        player: Any = InOrder if agent == rules.agents[0] else _same_level(level)
        makers[f"raster-{level}"] = player
    return {**makers, "greedy": Greedy}


def _same_level(level: int) -> Callable[[TilesRules], Policy]:
    return lambda rules: SameLevel(level)


def teams_of(rules: TilesRules) -> dict[str, dict[str, Policy]]:
    """Return all reference teams except random, by name."""
    return {name: tiles_team(name, rules) for name in players_of(rules, rules.agents[0])}


def tiles_team(name: str, rules: TilesRules) -> dict[str, Policy]:
    """Return the team of this name, by agent: "random", "raster-0", ..., "greedy".

    Raises UnknownNameError, which suggests the closest valid name.
    """
    names = ["random", *players_of(rules, rules.agents[0])]
    if name not in names:
        raise UnknownNameError.of("reference team", name, names)
    return {agent: reference_player(name, rules, agent) for agent in rules.agents}
