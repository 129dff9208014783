"""Sums of a rehearsal per policy: means a day with intervals, waits, and the promise of a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from corral.data import Trace
from corral.envs.core import Array
from corral.loads.rehearsal import world as worlds
from corral.loads.rehearsal.played import Sums
from corral.loads.rehearsal.setting import Setting
from corral.trainers.evaluation.episodes import Interval
from corral.trainers.evaluation.intervals import difference_interval, share_interval

__all__ = [
    "PARTS",
    "Estimate",
    "Promise",
    "PromiseSummary",
    "Summary",
    "Units",
    "Waits",
    "difference_of",
    "estimate",
    "promise_summary",
    "rounded_parts",
    "seconds",
    "waits_of",
]

PARTS = ("times", "competition", "latency")
"""Parts of the difference between a replay and a rehearsal, in the order in which they are added:
times within the step, with own requests first; all requests in order of arrival; latency."""

WEEK = 7


@dataclass(frozen=True)
class Promise:
    """The cost of a plan in a replay, float64 [W], and the parts of the difference, [W] each.

    Promise and parts sum to the cost of the rehearsal in every window.
    """

    cost: Array
    parts: dict[str, Array]


@dataclass(frozen=True)
class Units:
    """Units of all figures of a rehearsal."""

    a_day: str  # "a day" if windows are days, else "a window"
    season: int  # windows of a week; 1: windows that are not consecutive days
    time: str  # "s" or "steps"
    step: float  # length of a step in that unit
    deadline: float  # in that unit

    @classmethod
    def of(cls, trace: Trace, setting: Setting, window: int, windows: Sequence[int]) -> Units:
        """Return the units for ``windows`` of ``window`` steps each."""
        whole = tuple(windows) == tuple(range(len(windows)))
        step = float(trace.step) if trace.clock == "utc" else 1.0
        is_day = window == trace.steps_per_day
        return cls(
            a_day="a day" if is_day else "a window",
            season=WEEK if whole and is_day else 1,
            time="s" if trace.clock == "utc" else "steps",
            step=step,
            deadline=step if setting.deadline is None else float(setting.deadline),
        )


@dataclass(frozen=True)
class Estimate:
    """A mean in requests a window, with its 95 % interval; None: fewer than ``FEWEST_WINDOWS``."""

    mean: float
    low: float | None
    high: float | None


def estimate(values: Array, load: Array, units: Units) -> Estimate:
    """Return the mean of ``values`` [W], which are 0 or more; ``load`` [W]: all requests."""
    interval = share_interval(values, load, season=units.season)
    return _scaled(values, interval, load)


def difference_of(values: Array, baseline: Array, load: Array, units: Units) -> Estimate:
    """Return the mean of ``values`` minus ``baseline``, [W] each, window by window.

    The interval is that of the ratio to the requests ``load`` [W], as in replays.
    """
    differences = values - baseline
    interval = difference_interval(differences, load, season=units.season)
    return _scaled(differences, interval, load)


def _scaled(values: Array, interval: Interval, load: Array) -> Estimate:
    """Return the mean of ``values``, with the interval of their ratio to ``load``."""
    mean_load = float(load.mean())
    low, high = (None if end is None else end * mean_load for end in interval)
    return Estimate(float(values.mean()), low, high)


# --- Waits ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Waits:
    """Waits of the requests that entered service, in the unit of ``Units.time``.

    None: no request entered service.
    """

    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    late: float | None  # share of waits above the deadline


def waits_of(sums: Sums, setting: Setting, units: Units) -> Waits:
    """Return the waits of a policy over all windows."""
    started = sums.counts["started"]
    total = int(started.sum())
    if not total:
        return Waits(None, None, None, None, None)
    waits = sums.waits.sum(axis=0)
    p50, p95, p99 = (seconds(waits, share, setting, units) for share in (0.5, 0.95, 0.99))
    mean = float(sums.mean_wait @ started) / total * units.step
    return Waits(mean, p50, p95, p99, float(sums.counts["late"].sum()) / total)


def seconds(waits: Array, share: float, setting: Setting, units: Units) -> float | None:
    """Return the wait within which a ``share`` of the requests enter service; None without any.

    ``waits`` is int64 [BINS]. The result is exact to 0.5 %; with service "step" it is exact.
    """
    steps = wait_at(waits, share)
    if math.isnan(steps):
        return None
    return (float(round(steps)) if setting.service == "step" else steps) * units.step


def wait_at(waits: Array, share: float) -> float:
    """Return the wait within which a ``share`` of the requests enter service, in steps.

    ``waits`` is int64 [BINS]. The result is exact to 0.5 %. NaN: no request entered service.
    """
    total = waits.cumsum()
    if not total[-1]:
        return math.nan
    place = int(np.searchsorted(total, share * total[-1]))
    if place == 0:
        return 0.0
    return float(worlds.FIRST_BIN * np.exp((place - 0.5) * worlds.RESOLUTION))


# --- Promises ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PromiseSummary:
    """The cost of a plan in a replay, and the difference to the rehearsal, in requests a window."""

    cost: float
    difference: Estimate  # of the rehearsal minus the replay
    parts: dict[str, float]  # of the difference, by ``PARTS``


def promise_summary(promise: Promise, cost: Array, load: Array, units: Units) -> PromiseSummary:
    """Return the promise of a plan that costs ``cost`` [W] in the rehearsal of ``load`` [W]."""
    return PromiseSummary(
        cost=float(promise.cost.mean()),
        difference=difference_of(cost, promise.cost, load, units),
        parts={name: float(part.mean()) for name, part in promise.parts.items()},
    )


def rounded_parts(promise: PromiseSummary, cost: float) -> tuple[int, int, list[int]]:
    """Return promise, difference and parts as whole numbers that sum to the rounded ``cost``."""
    promised = round(promise.cost)
    difference = round(cost) - promised
    exact = [promise.parts[name] for name in PARTS]
    parts = [math.floor(part) for part in exact]
    remainders = [part - math.floor(part) for part in exact]
    order = sorted(range(len(parts)), key=remainders.__getitem__, reverse=True)
    missing = difference - sum(parts)
    for k in range(abs(missing)):
        parts[order[k % len(order)]] += 1 if missing > 0 else -1
    return promised, difference, parts


@dataclass(frozen=True)
class Summary:
    """One policy, in requests a window. ``difference``: to the cost of the first policy."""

    policy: str
    needs: str
    cost: Estimate
    difference: Estimate | None  # None: the first policy
    lost: Estimate
    refused: Estimate  # offers
    forwarded: Estimate
    lost_share: float  # of the arrivals
    waits: Waits
    promise: PromiseSummary | None  # None: no plan
