"""What an action of dfaas_v0 means: how many requests to forward, and with "choose" to whom.

Levels 0 .. A-1 stand for amounts (``Amounts``), or for shares of the arrivals (``Shares``).
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
"""Entries that the mask of one node may have under route "choose"."""


class Levels(ABC):
    """Actions that are levels 0 .. A-1, of which a node may take those up to a highest one."""

    count: int  # number of levels, A
    unit: int  # requests between two levels, at most
    by_room: bool = False  # whether legal levels follow from what a node holds, not from arrivals

    @abstractmethod
    def highest(self, arrivals: Array) -> Array:
        """Return the highest legal level of a node with neighbours, int64 like ``arrivals``; with
        ``by_room`` of what it can still hold, c + Q - q."""

    @abstractmethod
    def level(self, requests: Array, arrivals: Array) -> Array:
        """Return the level that forwards so many of the arrivals, or the next one above."""

    @abstractmethod
    def forwarded(self, level: Array, arrivals: Array, room: Array | None = None) -> Array:
        """Return the requests that a node with neighbours forwards; ``room`` is c + Q - q."""

    @abstractmethod
    def said(self) -> tuple[str, Array]:
        """Return a unit, and what each level amounts to in it: float64 [A]."""

    def read(self, action: Array, highest: Array) -> tuple[Array, Array, None]:
        """Return the level of each action, whether it is illegal, and whom it names: nobody."""
        return action, np.greater(action, highest), None

    def masks(self) -> Array:
        """Return all masks that there are, int8 [R, A]."""
        return np.tri(self.count, dtype=np.int8)  # row k allows 0..k

    def row(self, highest: Array) -> Array:
        """Return the row of ``masks`` of a node by its highest legal level."""
        return highest


class Amounts(Levels):
    """Levels that stand for a sorted table of requests, int64 [A]: 0 first, the largest load or
    more last. Level k forwards ``requests[k]`` of the arrivals, or all of them where there are
    fewer. It is legal where the level below does not forward all of them already."""

    def __init__(self, requests: Array, known: bool = True) -> None:
        """``known``: whether the arrivals are before a level is chosen; else all are legal."""
        self.requests = requests
        self.count = len(requests)  # number of levels, A
        self.unit = int(np.diff(requests).max())  # requests between two levels, at most
        self.known = known

    def highest(self, arrivals: Array) -> Array:
        if not self.known:
            return np.full_like(arrivals, self.count - 1)
        return self.level(arrivals, arrivals)

    def level(self, requests: Array, arrivals: Array) -> Array:
        return np.asarray(np.searchsorted(self.requests, requests))

    def forwarded(self, level: Array, arrivals: Array, room: Array | None = None) -> Array:
        return np.minimum(self.requests.take(level), arrivals)

    def said(self) -> tuple[str, Array]:
        return "requests", self.requests.astype(np.float64)


class Shares(Levels):
    """Levels of equal shares: level k of ``max_level`` forwards ceil(k * a / max_level) of a.

    All are legal, or with ``known`` arrivals those of a node that has some. Where fewer requests
    than ``max_level`` arrive, several levels forward the same.
    """

    unit = 1  # the finest difference between two amounts

    def __init__(self, max_level: int, known: bool = True) -> None:
        self.most = max_level
        self.count = max_level + 1
        self.known = known

    def highest(self, arrivals: Array) -> Array:
        if not self.known:
            return np.full_like(arrivals, self.most)
        return np.where(arrivals > 0, self.most, 0)

    def level(self, requests: Array, arrivals: Array) -> Array:
        """Return the level that forwards so many of the arrivals, or the next one above; of several
        that with the share itself, rounded down."""
        some = np.maximum(arrivals, 1)
        least = np.maximum(requests - 1, 0) * self.most // some + 1
        return np.where(requests > 0, np.maximum(least, requests * self.most // some), 0)

    def forwarded(self, level: Array, arrivals: Array, room: Array | None = None) -> Array:
        return np.asarray(-(-level * arrivals // self.most))

    def said(self) -> tuple[str, Array]:
        return "% of the arrivals", 100 * np.arange(self.count) / self.most


class Keeps(Levels):
    """Levels of what stays: 0 keeps all, level k >= 1 keeps (k - 1) * unit of the arrivals, or what
    the node can still hold where that is less. One level above that is legal."""

    by_room = True

    def __init__(self, most: float, max_level: int) -> None:
        """``most``: capacity and queue, the most that a node can hold."""
        self.unit = max(1, math.ceil(most / max_level))
        self.count = math.ceil(most / self.unit) + 2

    def highest(self, arrivals: Array) -> Array:
        return 1 + -(-arrivals // self.unit)

    def level(self, requests: Array, arrivals: Array) -> Array:
        """Return the level that keeps the most without keeping more than all but ``requests``."""
        return np.where(requests > 0, self.of_keep(np.maximum(arrivals - requests, 0)), 0)

    def of_keep(self, keep: Array) -> Array:
        """Return the level that keeps as many, or the nearest number, the smaller of two."""
        return 1 + (keep + (self.unit - 1) // 2) // self.unit

    def kept(self, level: Array, room: Array) -> Array:
        """Return how many arrivals a level above 0 keeps."""
        return np.asarray(np.minimum((level - 1) * self.unit, room))

    def forwarded(self, level: Array, arrivals: Array, room: Array | None = None) -> Array:
        assert room is not None
        return np.where(level > 0, np.maximum(arrivals - self.kept(level, room), 0), 0)

    def said(self) -> tuple[str, Array]:
        kept = np.arange(-1, self.count - 1) * float(self.unit)
        kept[0] = kept[-1] + self.unit  # all, which is more than a node can hold
        return "requests kept", kept


class Requests(Levels):
    """Actions that are numbers of requests: any up to the arrivals of a node with neighbours.

    A mask has two entries, however large the load: to forward nothing, and to forward any.
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
    """Actions that say how much and to whom: 0 forwards nothing, 1 + (k - 1) * m + d forwards level
    k to a node's neighbour d, m the largest number of neighbours (``degree`` [N]) of any node.

    Raises ValueError where there are more actions than a mask may have entries.
    """

    def __init__(self, levels: int, degree: Sequence[int], ranks: int | None = None) -> None:
        """``ranks``: neighbours that an action may name, whatever the nodes; default: all."""
        self.levels = levels
        self.most = max(1, *degree) if ranks is None else ranks  # m
        self.degree = np.minimum(np.array(degree, dtype=np.int64), self.most)
        self.count = 1 + (levels - 1) * self.most
        if self.count > LARGEST_MASK:
            fits = (LARGEST_MASK - 1) // self.most
            lower = f'max_level={fits} or less (amount="quantile" makes most of few levels), or '
            raise ValueError(
                f'route="choose": {levels - 1:,} levels to each of {self.most:,} neighbours make '
                f"{self.count:,} actions, and a mask may have {LARGEST_MASK:,} entries; give "
                f'{lower if fits else ""}observation="summary"'
            )

    def split(self, action: Array) -> tuple[Array, Array]:
        """Return the level and the neighbour of each action; any neighbour with level 0."""
        above = action + (self.most - 1)
        return above // self.most, above % self.most

    def action(self, level: Array, neighbour: Array) -> Array:
        """Return the action that forwards a level to a neighbour."""
        return np.where(level > 0, 1 + (level - 1) * self.most + neighbour, 0)

    def read(self, action: Array, highest: Array) -> tuple[Array, Array, Array]:
        """Return the level of each action [B, N], whether it is illegal, and which neighbour it
        names."""
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
    """Return the requests of each level, int64 [A], for those who train on ``rows`` of the trace.

    ``amount`` is the argument of that name. Raises ValueError where it is none.
    """
    largest = math.ceil(load_scale)
    if not isinstance(amount, str):
        return _given(amount, largest, max_level)
    kinds = ("unit", "quantile", "keep", "share")
    if one_of("amount", amount, kinds) == "quantile" and largest > max_level:
        return _quantiles(trace.arrivals[slice(*rows)], largest, max_level)
    unit = max(1, math.ceil(load_scale / max_level))
    return np.arange(math.ceil(load_scale / unit) + 1, dtype=np.int64) * unit


def _quantiles(arrivals: Array, largest: int, max_level: int) -> Array:
    """Return levels that are quantiles of the load, in which every request counts once: k of
    max_level equal parts of all requests arrive with no more than level k at once.

    Quantiles by steps would leave few levels to the peaks, where most of a heavy tail's requests
    are. Levels that fall together make room for the smallest amounts that are missing.
    """
    positive = np.sort(arrivals[arrivals > 0])
    total = positive.cumsum()
    table = np.array([0, largest], dtype=np.int64)
    if len(positive):
        parts = -(-int(total[-1]) * np.arange(1, max_level) // max_level)
        table = np.union1d(table, positive[np.searchsorted(total, parts)])
    missing = np.setdiff1d(np.arange(1, min(largest, 2 * max_level + 1)), table)
    return np.union1d(table, missing[: max_level + 1 - len(table)])


def _given(amount: Sequence[int], largest: int, max_level: int) -> Array:
    """Return the list ``amount`` as a table. Raises ValueError where it is none of levels."""
    try:
        table = np.array(amount)
        whole = table.ndim == 1 and len(table) > 1 and table.dtype.kind in "iu"
    except ValueError:  # rows of different lengths
        whole = False
    if not whole:
        raise ValueError(
            f'amount={amount!r}: give "unit", "quantile", "keep", "share" or a list of requests, '
            "such as [0, 1, 5]"
        )
    shown = f"amount=[{', '.join(map(str, amount[:4]))}{', ...' if len(table) > 4 else ''}]"
    if table[0] != 0 or not (np.diff(table) > 0).all():
        raise ValueError(f"{shown}: give whole numbers from 0, each larger than the one before")
    if table[-1] < largest:
        raise ValueError(
            f"{shown}: the last is {table[-1]}, and a node may have to forward {largest}; append "
            f"{largest}"
        )
    if len(table) > max_level + 1:
        raise ValueError(
            f"{shown}: {len(table)} amounts, more than max_level={max_level} and 0; give fewer, or "
            f"max_level={len(table) - 1}"
        )
    return table.astype(np.int64)
