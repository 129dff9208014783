"""The meaning of actions in dfaas_v0: the number of requests to forward, with "choose" also the
target.

Levels 0 .. A-1 stand for amounts (``Amounts``), shares of the arrivals (``Shares``) or kept
requests (``Keeps``).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from corral.data import Trace
from corral.envs.arguments import one_of
from corral.envs.core import Array
from corral.envs.dfaas_v0.rows import Section

__all__ = [
    "LARGEST_MASK",
    "Amounts",
    "Choices",
    "Keeps",
    "Levels",
    "Requests",
    "Shares",
    "levels_in",
]

LARGEST_MASK = 4096
"""Largest number of entries in the mask of one node under route "choose"."""


class Levels(ABC):
    """Actions that are levels 0 .. A-1. The legal levels of a node are 0 up to a highest level."""

    count: int  # number of levels, A
    unit: int  # largest difference between two levels, in requests
    by_room: bool = False  # whether legal levels depend on the room c + Q - q, not on arrivals

    @abstractmethod
    def highest(self, arrivals: Array) -> Array:
        """Return the highest legal level of a node with neighbors, int64 like ``arrivals``.

        With ``by_room``, pass the room c + Q - q in place of the arrivals.
        """

    @abstractmethod
    def level(self, requests: Array, arrivals: Array) -> Array:
        """Return the lowest level that forwards at least ``requests`` of the arrivals."""

    @abstractmethod
    def forwarded(self, level: Array, arrivals: Array, room: Array | None = None) -> Array:
        """Return the requests that a node with neighbors forwards. ``room`` is c + Q - q."""

    @abstractmethod
    def said(self) -> tuple[str, Array]:
        """Return a unit, and the amount of each level in this unit: float64 [A]."""

    def read(self, action: Array, highest: Array) -> tuple[Array, Array, None]:
        """Return the level of each action, whether it is illegal, and None for the neighbor."""
        return action, np.greater(action, highest), None

    def masks(self) -> Array:
        """Return all possible masks, int8 [R, A]."""
        return np.tri(self.count, dtype=np.int8)  # row k allows 0..k

    def row(self, highest: Array) -> Array:
        """Return the row of ``masks`` for a node with this highest legal level."""
        return highest


class Amounts(Levels):
    """Levels that stand for a sorted table of requests, int64 [A].

    The table starts with 0 and ends with at least the largest load. Level k forwards
    min(``requests[k]``, arrivals). It is legal if level k - 1 does not already forward all
    arrivals.
    """

    def __init__(self, requests: Array, known: bool = True) -> None:
        """``known``: whether nodes know the arrivals in advance; if not, all levels are legal."""
        self.requests = requests
        self.count = len(requests)  # number of levels, A
        self.unit = int(np.diff(requests).max())  # largest difference between two levels
        self.known = known

    def highest(self, arrivals: Array) -> Array:
        if not self.known:
            return np.full_like(arrivals, self.count - 1)
        return np.minimum(self.level(arrivals, arrivals), self.count - 1)

    def level(self, requests: Array, arrivals: Array) -> Array:
        return np.asarray(np.searchsorted(self.requests, requests))

    def forwarded(self, level: Array, arrivals: Array, room: Array | None = None) -> Array:
        return np.minimum(self.requests.take(level), arrivals)

    def said(self) -> tuple[str, Array]:
        return "requests", self.requests.astype(np.float64)


class Shares(Levels):
    """Levels of equal shares: level k forwards ceil(k * a / max_level) of a arrivals.

    All levels are legal; with ``known`` arrivals only level 0 is legal if none arrive. If fewer
    requests than ``max_level`` arrive, several levels forward the same number.
    """

    unit = 1  # smallest difference between two amounts

    def __init__(self, max_level: int, known: bool = True) -> None:
        self.most = max_level
        self.count = max_level + 1
        self.known = known

    def highest(self, arrivals: Array) -> Array:
        if not self.known:
            return np.full_like(arrivals, self.most)
        return np.where(arrivals > 0, self.most, 0)

    def level(self, requests: Array, arrivals: Array) -> Array:
        """Return a level that forwards ``requests`` of the arrivals, or the next larger number.

        Of several such levels, returns the one with the share requests / arrivals, rounded down.
        """
        positive = np.maximum(arrivals, 1)
        lowest = np.maximum(requests - 1, 0) * self.most // positive + 1
        return np.where(requests > 0, np.maximum(lowest, requests * self.most // positive), 0)

    def forwarded(self, level: Array, arrivals: Array, room: Array | None = None) -> Array:
        return np.asarray(-(-level * arrivals // self.most))

    def said(self) -> tuple[str, Array]:
        return "% of the arrivals", 100 * np.arange(self.count) / self.most


class Keeps(Levels):
    """Levels of kept requests: 0 keeps all arrivals, level k >= 1 keeps (k - 1) * unit of them.

    A node keeps at most its room c + Q - q. Exactly one level at or above the room is legal.
    """

    by_room = True

    def __init__(self, most: float, max_level: int) -> None:
        """``most``: capacity plus queue limit, the most requests that a node can hold."""
        self.unit = max(1, math.ceil(most / max_level))
        self.count = math.ceil(most / self.unit) + 2

    def highest(self, arrivals: Array) -> Array:
        return np.asarray(np.minimum(1 + -(-arrivals // self.unit), self.count - 1))

    def level(self, requests: Array, arrivals: Array) -> Array:
        """Return the level that keeps the nearest number to arrivals - ``requests``.

        Returns 0, which keeps all, if ``requests`` is 0.
        """
        return np.where(requests > 0, self.of_keep(np.maximum(arrivals - requests, 0)), 0)

    def of_keep(self, keep: Array) -> Array:
        """Return the level that keeps the number nearest to ``keep``, in a tie the smaller."""
        return 1 + (keep + (self.unit - 1) // 2) // self.unit

    def kept(self, level: Array, room: Array) -> Array:
        """Return the number of arrivals that a level above 0 keeps."""
        return np.asarray(np.minimum((level - 1) * self.unit, room))

    def forwarded(self, level: Array, arrivals: Array, room: Array | None = None) -> Array:
        assert room is not None
        return np.where(level > 0, np.maximum(arrivals - self.kept(level, room), 0), 0)

    def said(self) -> tuple[str, Array]:
        kept = np.arange(-1, self.count - 1) * float(self.unit)
        kept[0] = kept[-1] + self.unit  # level 0 keeps all, more than a node can hold
        return "requests kept", kept


class Requests(Levels):
    """Actions that are numbers of requests, up to the arrivals of a node with neighbors.

    A mask has two entries for any load: forward nothing, and forward any number.
    """

    unit = 1

    def __init__(self, load_scale: float) -> None:
        self.count = math.ceil(load_scale) + 1

    def highest(self, arrivals: Array) -> Array:
        return arrivals

    def level(self, requests: Array, arrivals: Array) -> Array:
        return requests

    def forwarded(self, level: Array, arrivals: Array, room: Array | None = None) -> Array:
        return np.minimum(level, arrivals)

    def said(self) -> tuple[str, Array]:
        return "requests", np.arange(self.count, dtype=np.float64)

    def masks(self) -> Array:
        return np.tri(2, dtype=np.int8)

    def row(self, highest: Array) -> Array:
        return np.minimum(highest, 1)


class Choices:
    """Actions that name a level and a neighbor.

    Let m be the largest number of neighbors (``degree`` [N]) of any node. Action 0 forwards
    nothing. Action 1 + (k - 1) * m + d forwards level k to neighbor d.

    Raises ValueError if a mask would have too many entries.
    """

    def __init__(self, levels: int, degree: Sequence[int], ranks: int | None = None) -> None:
        """``ranks``: number of neighbors that an action can name, for any node. None: all."""
        self.levels = levels
        self.most = max(1, *degree) if ranks is None else ranks  # m
        self.degree = np.minimum(np.array(degree, dtype=np.int64), self.most)
        self.count = 1 + (levels - 1) * self.most
        if self.count > LARGEST_MASK:
            fits = (LARGEST_MASK - 1) // self.most
            lower = f'max_level={fits} or less (amount="quantile" suits few levels), or '
            raise ValueError(
                f'route="choose": {levels - 1:,} levels for each of {self.most:,} neighbors make '
                f"{self.count:,} actions, more than the limit of {LARGEST_MASK:,}; give "
                f'{lower if fits else ""}observation="summary"'
            )

    def split(self, action: Array) -> tuple[Array, Array]:
        """Return the level and the neighbor of each action; any neighbor for level 0."""
        above = action + (self.most - 1)
        return above // self.most, above % self.most

    def action(self, level: Array, neighbour: Array) -> Array:
        """Return the action that forwards a level to a neighbor."""
        return np.where(level > 0, 1 + (level - 1) * self.most + neighbour, 0)

    def read(self, action: Array, highest: Array) -> tuple[Array, Array, Array]:
        """Return the level of each action [B, N], whether it is illegal, and its neighbor."""
        level, neighbour = self.split(action)
        illegal = (level > 0) & ((level > highest) | (neighbour >= self.degree))
        return level, illegal, neighbour

    def masks(self) -> Array:
        """Return masks int8 [levels * (m + 1), A]: by the highest legal level, then the degree."""
        level, neighbour = self.split(np.arange(self.count))
        highest, degree = np.ogrid[: self.levels, : self.most + 1]
        legal = (level <= highest[..., None]) & (neighbour < degree[..., None])
        legal[..., 0] = True
        return legal.reshape(-1, self.count).astype(np.int8)

    def row(self, highest: Array) -> Array:
        return highest * (self.most + 1) + self.degree


# --- Tables of amounts ---------------------------------------------------------------------------


def levels_in(
    trace: Trace, amount: str | Sequence[int], load_scale: float, max_level: int, rows: Section
) -> Array:
    """Return the requests of each level, int64 [A], for training on ``rows`` of the trace.

    ``amount`` is the environment argument. Raises ValueError if it is invalid.
    """
    largest = math.ceil(load_scale)
    if not isinstance(amount, str):
        return _listed(amount, largest, max_level)
    kinds = ("unit", "quantile", "keep", "share")
    if one_of("amount", amount, kinds) == "quantile" and largest > max_level:
        return _quantiles(trace.arrivals[slice(*rows)], largest, max_level)
    unit = max(1, math.ceil(load_scale / max_level))
    return np.arange(math.ceil(load_scale / unit) + 1, dtype=np.int64) * unit


def _quantiles(arrivals: Array, largest: int, max_level: int) -> Array:
    """Return levels that are quantiles of the load, weighted by requests.

    At least k / max_level of all requests arrive in loads up to quantile k. Unweighted quantiles of
    the steps would leave few levels to the peaks, which hold most requests of a heavy tail. If
    quantiles coincide, the smallest missing amounts complete the table.
    """
    positive = np.sort(arrivals[arrivals > 0])
    total = positive.cumsum()
    table = np.array([0, largest], dtype=np.int64)
    if len(positive):
        parts = -(-int(total[-1]) * np.arange(1, max_level) // max_level)
        table = np.union1d(table, positive[np.searchsorted(total, parts)])
    missing = np.setdiff1d(np.arange(1, min(largest, 2 * max_level + 1)), table)
    return np.union1d(table, missing[: max_level + 1 - len(table)])


def _listed(amount: Sequence[int], largest: int, max_level: int) -> Array:
    """Return the list ``amount`` as a table of levels. Raises ValueError if it is not valid."""
    try:
        table = np.array(amount)
        whole = table.ndim == 1 and len(table) > 1 and table.dtype.kind in "iu"
    except ValueError:  # rows of different lengths
        whole = False
    if not whole:
        raise ValueError(
            f'amount={amount!r}: give "unit", "quantile", "keep", "share" or a list of requests '
            "such as [0, 1, 5]"
        )
    shown = f"amount=[{', '.join(map(str, amount[:4]))}{', ...' if len(table) > 4 else ''}]"
    if table[0] != 0 or not (np.diff(table) > 0).all():
        raise ValueError(f"{shown}: give whole numbers from 0, each larger than the previous one")
    if table[-1] < largest:
        raise ValueError(
            f"{shown}: the last amount is {table[-1]}, but a node may have to forward {largest}; "
            f"append {largest}"
        )
    if len(table) > max_level + 1:
        raise ValueError(
            f"{shown}: {len(table)} amounts, more than max_level={max_level} and 0; give fewer, or "
            f"max_level={len(table) - 1}"
        )
    return table.astype(np.int64)
