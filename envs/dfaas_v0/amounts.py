"""How many requests an action of dfaas_v0 forwards.

Actions are levels 0 .. A-1. Level k forwards ``requests[k]`` of the arrivals, or all of them where
there are fewer. It is legal where the level below does not forward all of them already.
"""

from __future__ import annotations

import math

import numpy as np

from corral.envs.core import Array

__all__ = ["Amounts"]


class Amounts:
    """Levels of equal units: level k stands for k * unit requests.

    A unit is one request where ``load_scale``, the largest load, is at most ``max_level``.
    """

    def __init__(self, load_scale: float, max_level: int) -> None:
        self.unit = max(1, math.ceil(load_scale / max_level))
        self.count = math.ceil(load_scale / self.unit) + 1  # number of levels, A
        self.requests = np.arange(self.count, dtype=np.int64) * self.unit  # [A]

    def highest(self, arrivals: Array) -> Array:
        """Return the highest legal level of a node with neighbours, int64 like ``arrivals``."""
        return np.asarray(-(-arrivals // self.unit))

    def level(self, requests: Array) -> Array:
        """Return the level that forwards so many requests, or the next one above."""
        return np.asarray(-(-requests // self.unit))
