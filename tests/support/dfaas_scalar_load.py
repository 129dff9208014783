"""What an episode of the plain dfaas_v0 is made of: levels, augmented load, daily means."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any


def augmented(
    rng: Any,
    arrivals: list[list[int]],
    capacity: list[list[int]],
    most: int,
    *,
    start: int,
    steps: int,
    day: int,
    shift: int = 0,
    scale: float = 0.0,
    noise: float = 0.0,
    mix: float = 0.0,
) -> tuple[list[list[int]], list[list[int]]]:
    """The load of one episode, row by row, from the section's."""
    length, n = len(arrivals), len(arrivals[0])
    own = [start] * n  # the row at which each node begins
    factor = [1.0] * n
    moved, mixed, other = rng.random((3, n)).tolist()
    common, *alone = rng.standard_normal(1 + n).tolist()
    days = [row for row in range(start % day, length, day) if row != start]
    for i in range(n):
        own[i] += int(moved[i] * (2 * shift + 1)) - shift
        if mixed[i] < mix and days:
            own[i] += days[int(other[i] * len(days))] - start
        # Half of what scales a node is common to all.
        factor[i] = math.exp(scale * (common + alone[i]) / math.sqrt(2))
    jumps = rng.standard_normal((steps, n)).tolist() if noise else [[0.0] * n] * steps
    load, served = [], []
    for t in range(steps):
        rows = [(own[i] + t) % length for i in range(n)]
        wanted = [
            arrivals[row][i] * factor[i] * math.exp(noise * jumps[t][i])
            for i, row in enumerate(rows)
        ]
        load.append([min(round(each), most) for each in wanted])
        served.append([capacity[row][i] for i, row in enumerate(rows)])
    return load, served


def ceil_of(a: int, b: int) -> int:
    return -(-a // b)


def units(load_scale: float, max_level: int) -> list[int]:
    # A unit of so many requests that at most max_level of them are needed.
    unit = max(1, ceil_of(load_scale, max_level))
    return [k * unit for k in range(ceil_of(load_scale, unit) + 1)]


@functools.lru_cache(maxsize=8)  # one configuration is made several times
def quantiles(arrivals: tuple[tuple[int, ...], ...], largest: int, max_level: int) -> list[int]:
    table = {0, largest}
    if positive := sorted(a for row in arrivals for a in row if a > 0):
        for k in range(1, max_level):
            # The load of the node and step in which k of max_level parts of all have arrived.
            came, place = positive[0], 0
            while came * max_level < sum(positive) * k:
                place += 1
                came += positive[place]
            table.add(positive[place])
    # What is left of the levels goes to the smallest numbers that are missing.
    for requests in range(1, largest):
        if len(table) > max_level:
            break
        table.add(requests)
    return sorted(table)


def daily_means(
    arrivals: Sequence[Sequence[int]], slots: Sequence[int], steps_per_day: int
) -> list[list[float]]:
    """The mean load at every step of a day and node; ``slots`` names the step of a day of a row."""
    table = []
    for slot in range(steps_per_day):
        rows = [row for row, of_day in zip(arrivals, slots, strict=True) if of_day == slot]
        columns = zip(*rows, strict=True) if rows else [[0]] * len(arrivals[0])
        table.append([sum(column) / max(1, len(rows)) for column in columns])
    return table
