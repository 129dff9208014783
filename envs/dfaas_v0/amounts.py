"""How many requests an action of dfaas_v0 forwards.

Actions are levels 0 .. A-1: of equal units (``Amounts``), or shares of the arrivals (``Shares``).
"""

from __future__ import annotations

import math

import numpy as np

from corral.envs.core import Array

__all__ = ["Amounts", "Shares"]


class Amounts:
    """Levels of equal units: level k stands for k * unit requests, or all arrivals where there are
    fewer. It is legal where the level below does not forward all of them already.

    A unit is one request where ``load_scale``, the largest load, is at most ``max_level``.
    """

    def __init__(self, load_scale: float, max_level: int) -> None:
        self.unit = max(1, math.ceil(load_scale / max_level))
        self.count = math.ceil(load_scale / self.unit) + 1  # number of levels, A
        self.requests = np.arange(self.count, dtype=np.int64) * self.unit  # [A]

    def highest(self, arrivals: Array) -> Array:
        """Return the highest legal level of a node with neighbours, int64 like ``arrivals``."""
        return np.asarray(-(-arrivals // self.unit))

    def level(self, requests: Array, arrivals: Array) -> Array:
        """Return the level that forwards so many of the arrivals, or the next one above."""
        return np.asarray(-(-requests // self.unit))

    def forwarded(self, levels: Array, arrivals: Array) -> Array:
        """Return the requests that a node with neighbours forwards."""
        return np.asarray(np.minimum(levels * self.unit, arrivals))

    def said(self) -> tuple[str, Array]:
        """Return a unit, and what each level amounts to in it: float64 [A]."""
        return "requests", self.requests.astype(np.float64)


class Shares:
    """Levels of equal shares: level k of ``max_level`` forwards ceil(k * a / max_level) of a.

    All are legal where there is something to forward. Where fewer requests than ``max_level``
    arrive, several levels forward the same.
    """

    unit = 1  # the finest difference between two amounts

    def __init__(self, max_level: int) -> None:
        self.most = max_level
        self.count = max_level + 1

    def highest(self, arrivals: Array) -> Array:
        """Return the highest legal level of a node with neighbours, int64 like ``arrivals``."""
        return np.where(arrivals > 0, self.most, 0)

    def level(self, requests: Array, arrivals: Array) -> Array:
        """Return the level that forwards so many of the arrivals, or the next one above; of several
        that with the share itself, rounded down."""
        some = np.maximum(arrivals, 1)
        least = np.maximum(requests - 1, 0) * self.most // some + 1
        return np.where(requests > 0, np.maximum(least, requests * self.most // some), 0)

    def forwarded(self, levels: Array, arrivals: Array) -> Array:
        """Return the requests that a node with neighbours forwards."""
        return np.asarray(-(-levels * arrivals // self.most))

    def said(self) -> tuple[str, Array]:
        """Return a unit, and what each level amounts to in it: float64 [A]."""
        return "% of the arrivals", 100 * np.arange(self.count) / self.most
