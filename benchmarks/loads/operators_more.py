"""Ten more made operators: one plain law of load each, for verdicts.py.

They are numbered 20 to 29, after those of operators_laws.py. Their laws were written from a list of
ten names (anti-phase, one hot server, ...) before any rule was fitted to any load. A law gives the
expected requests of every step; the counts are Poisson draws, cut at ``largest``. The history and
the 200 later days have separate streams of random numbers: nothing is shared between them but the
law.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from operators_laws import COUNT, FRESH_DAYS

from corral.data import Trace

__all__ = ["MORE", "MoreOperator", "describe_more", "more_operator"]

SEED = 26
MONDAY = 1772409600  # 2026-03-02T00:00:00Z

Reals = npt.NDArray[np.float64]
Law = Callable[[Reals, np.random.Generator], Reals]
"""Hours since Monday 00:00 [T] and random numbers, to expected values [T, N]."""


@dataclass(frozen=True)
class MoreOperator:
    """One operator: the law of its load, its servers, and its settings of dfaas_v0."""

    name: str
    load: Law  # requests per step [T, N]
    capacity: tuple[int, ...]  # per server, in requests per step
    largest: int  # loads above are cut
    step: int  # seconds
    history_days: int
    settings: dict[str, Any]
    away: Law | None = None  # share of the capacity that is missing [T, N]
    number: int = 0

    def days(self) -> tuple[Trace, Trace]:
        """Return the history, and the later days after it."""
        return self._trace(0, self.history_days, 0), self._trace(self.history_days, FRESH_DAYS, 1)

    def _trace(self, first_day: int, days: int, stream: int) -> Trace:
        rng = np.random.default_rng([SEED, self.number, stream])
        rows = np.arange(days * 86400 // self.step)
        times = MONDAY + 86400 * first_day + self.step * rows
        hours = (times - MONDAY) / 3600
        arrivals = np.minimum(rng.poisson(self.load(hours, rng)), self.largest)  # [T, N]
        capacity = np.tile(self.capacity, (len(rows), 1))
        if self.away is not None:
            capacity = np.rint(capacity * (1 - self.away(hours, rng)))
        names = tuple(f"n{node}" for node in range(len(self.capacity)))
        return Trace(
            nodes=names,
            arrivals=arrivals.astype(np.int64),
            capacity=capacity.astype(np.int64),
            times=times.astype(np.int64),
            clock="utc",
            name=f"operator_{self.number}",
        )


# --- Parts of laws -------------------------------------------------------------------------------


def wave(hours: Reals, peak: float) -> Reals:
    """Return a daily cosine, 1 at hour ``peak``."""
    return np.cos(2 * math.pi * (hours - peak) / 24)


def office(hours: Reals, zone: float) -> Reals:
    """Return 0 at night and 1 in working hours, 8 to 18 in a zone ``zone`` hours ahead of UTC."""
    local = (hours + zone) % 24
    up, down = np.clip(local - 7.5, 0, 1), np.clip(local - 17.5, 0, 1)
    return up - down


def weekday(hours: Reals) -> npt.NDArray[np.int64]:
    """Return 0 for Mondays to 6 for Sundays."""
    return (hours // 24).astype(np.int64) % 7


def noise(
    rng: np.random.Generator, rows: int, nodes: int, deviation: float, memory: float
) -> Reals:
    """Return log-normal factors of mean 1 [T, N], correlated from one step to the next."""
    fresh = rng.standard_normal((rows, nodes))
    fresh[1:] *= math.sqrt(1 - memory * memory)
    for row in range(1, rows):
        fresh[row] += memory * fresh[row - 1]
    return np.exp(deviation * fresh - deviation * deviation / 2)


def spells(hours: Reals, rng: np.random.Generator, per_day: float, length: float) -> Reals:
    """Return 1 inside spells [T]: so many a day, of exponential length in hours, else 0."""
    inside = np.zeros(len(hours))
    span = hours[-1] - hours[0]
    for begin in rng.uniform(hours[0], hours[-1], rng.poisson(per_day * span / 24)):
        inside[(hours >= begin) & (hours < begin + rng.exponential(length))] = 1
    return inside


# --- Ten laws ------------------------------------------------------------------------------------


def anti_phase(hours: Reals, rng: np.random.Generator) -> Reals:
    """Two servers, one busiest at 14 h, the other at 2 h: each has room when the other has none."""
    day = wave(hours, 14)
    load = np.stack([80 * (1 + 0.6 * day), 60 * (1 - 0.6 * day)], axis=1)
    return load * noise(rng, len(hours), 2, 0.2, 0.9)


def one_hot(hours: Reals, rng: np.random.Generator) -> Reals:
    """One of six servers gets twice what it can serve, all day; the others are half idle."""
    means = np.array([200.0, 45, 55, 40, 60, 50])
    return means * (1 + 0.15 * wave(hours, 15))[:, None] * noise(rng, len(hours), 6, 0.15, 0.7)


def correlated_bursts(hours: Reals, rng: np.random.Generator) -> Reals:
    """Bursts of about half an hour that strike all five servers at once, four times a day."""
    burst = 1 + 1.2 * spells(hours, rng, 4.0, 0.5)
    return 30 * burst[:, None] * noise(rng, len(hours), 5, 0.2, 0.8)


def weekdays(hours: Reals, rng: np.random.Generator) -> Reals:
    """A shop for firms (Monday to Friday), one for families (weekends), and one that is even."""
    firms = np.array([1.25, 1.2, 1.15, 1.2, 1.1, 0.3, 0.25])[weekday(hours)]
    families = np.array([0.6, 0.6, 0.65, 0.7, 1.1, 1.9, 1.8])[weekday(hours)]
    even = np.ones(len(hours))
    load = 120 * np.stack([firms, families, even], axis=1)
    return load * (1 + 0.35 * wave(hours, 16))[:, None] * noise(rng, len(hours), 3, 0.15, 0.8)


def trend(hours: Reals, rng: np.random.Generator) -> Reals:
    """A load that grows every day by 0.4 % of what it was at first, with a wave by day."""
    means = np.array([500.0, 350, 420, 280])
    peaks = np.stack([wave(hours, peak) for peak in (10, 13, 17, 21)], axis=1)
    growth = (1 + 0.004 * hours / 24)[:, None]
    return means * growth * (1 + 0.4 * peaks) * noise(rng, len(hours), 4, 0.1, 0.6)


def heavy_tails(hours: Reals, rng: np.random.Generator) -> Reals:
    """Eight servers whose steps are Pareto (index 1.7), independent of each other and of time."""
    return 9 * (1 + rng.pareto(1.7, (len(hours), 8)))


def flash_crowds(hours: Reals, rng: np.random.Generator) -> Reals:
    """Quiet servers; once in five days a crowd of four to eight times the load comes to one."""
    factor = np.ones((len(hours), 7))
    for node in range(7):
        crowds = rng.poisson((hours[-1] - hours[0]) / 24 / 5)
        begins = rng.uniform(hours[0], hours[-1], crowds)
        for begin, height in zip(begins, rng.uniform(3, 7, crowds), strict=True):
            past = hours - begin
            factor[:, node] += height * np.exp(-np.maximum(past, 0) / 1.5) * (past >= 0)
    day = (1 + 0.3 * wave(hours, 20))[:, None]
    return 40 * factor * day * noise(rng, len(hours), 7, 0.2, 0.9)


def constant(hours: Reals, rng: np.random.Generator) -> Reals:
    """A load that never changes, but for chance; one of three servers has too much of it."""
    return np.tile([900.0, 1500.0, 1200.0], (len(hours), 1))


def two_zones(hours: Reals, rng: np.random.Generator) -> Reals:
    """Three servers in Europe and three in East Asia: working hours, 8 hours apart, no weekends."""
    zones = [office(hours, zone) for zone in (1, 1, 1, 9, 9, 9)]
    sizes = np.array([220.0, 180, 140, 200, 160, 240])
    week = np.where(weekday(hours) < 5, 1, 0.4)[:, None]
    load = sizes * (0.25 + np.stack(zones, axis=1) * week)
    return load * noise(rng, len(hours), 6, 0.2, 0.85)


def maintenance(hours: Reals, rng: np.random.Generator) -> Reals:
    """A calm load on five servers, one of which is away, wholly or by half, on most days."""
    means = np.array([70.0, 55, 90, 60, 75])
    return means * (1 + 0.25 * wave(hours, 12))[:, None] * noise(rng, len(hours), 5, 0.15, 0.8)


def windows(hours: Reals, rng: np.random.Generator) -> Reals:
    """Missing capacity: on 5 days of 7 some server, for 2 to 5 hours, wholly or by half."""
    away = np.zeros((len(hours), 5))
    for day in range(int(hours[0] // 24), int(hours[-1] // 24) + 1):
        node, depth = rng.integers(5), rng.choice([0.5, 1.0])
        begin = 24 * day + rng.uniform(0, 19)
        end = begin + rng.uniform(2, 5)
        if rng.random() < 5 / 7:
            away[(hours >= begin) & (hours < end), node] = depth
    return away


# --- Ten operators -------------------------------------------------------------------------------


def settings(
    queue: int,
    forward_cost: float,
    wait_cost: float,
    second_offer: bool,
    link_limit: int | None,
    report_delay: int,
) -> dict[str, Any]:
    """Return settings of dfaas_v0, by name."""
    return {
        "queue": queue,
        "forward_cost": forward_cost,
        "wait_cost": wait_cost,
        "second_offer": second_offer,
        "link_limit": link_limit,
        "report_delay": report_delay,
    }


OPERATORS = (
    MoreOperator(
        "anti-phase", anti_phase, (95, 75), 400, 300, 21, settings(40, 0.1, 0, False, 25, 1)
    ),
    MoreOperator(
        "one hot server",
        one_hot,
        (100, 95, 110, 90, 120, 100),
        600,
        600,
        28,
        settings(0, 0.05, 0, False, None, 1),
    ),
    MoreOperator(
        "correlated bursts",
        correlated_bursts,
        (45, 35, 60, 40, 50),
        300,
        300,
        21,
        settings(90, 0.2, 0.02, True, 8, 2),
    ),
    MoreOperator(
        "weekdays", weekdays, (138, 138, 138), 700, 900, 35, settings(100, 0.15, 0, True, 40, 1)
    ),
    MoreOperator(
        "trend",
        trend,
        (650, 520, 580, 450),
        2500,
        1800,
        30,
        settings(600, 0.12, 0.01, False, None, 1),
    ),
    MoreOperator(
        "heavy tails", heavy_tails, (30,) * 8, 1000, 600, 24, settings(90, 0.02, 0, True, 6, 1)
    ),
    MoreOperator(
        "flash crowds", flash_crowds, (70,) * 7, 800, 300, 30, settings(0, 0.3, 0, True, None, 1)
    ),
    MoreOperator(
        "constant",
        constant,
        (1150, 1260, 1370),
        2000,
        3600,
        14,
        settings(300, 0, 0, False, None, 0),
    ),
    MoreOperator(
        "two time zones",
        two_zones,
        (140, 130, 120, 150, 110, 160),
        1000,
        900,
        35,
        settings(300, 0.08, 0.05, True, 60, 2),
    ),
    MoreOperator(
        "maintenance",
        maintenance,
        (85, 70, 105, 72, 90),
        400,
        1200,
        28,
        settings(45, 0.2, 0, False, None, 1),
        windows,
    ),
)
MORE = range(COUNT, COUNT + len(OPERATORS))
"""Their numbers."""


def more_operator(number: int) -> MoreOperator:
    """Return operator 20 .. 29."""
    return dataclasses.replace(OPERATORS[number - COUNT], number=number)


def describe_more(each: MoreOperator) -> dict[str, Any]:
    """Return what defines an operator, as plain values."""
    return {
        "law": each.name,
        "nodes": len(each.capacity),
        "step": each.step,
        "history_days": each.history_days,
        "capacity": each.capacity,
        "largest": each.largest,
        **each.settings,
    }
