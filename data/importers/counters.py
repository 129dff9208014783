"""Recognize counters, which grow until a restart, and convert them to requests per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from corral.data.importers.binning import Gaps, counted, were
from corral.data.importers.prometheus_files import Series
from corral.data.importers.tables.grid import Grid
from corral.data.source import fault_error
from corral.data.trace import MAX_VALUE
from corral.errors import TraceError

__all__ = ["check_counters", "counters_error", "differences", "grows", "of_counters"]

ENOUGH = 5
"""Minimum number of values for recognizing a counter."""

ENOUGH_ROWS = 20
"""The same for a table, which rarely has counters, and for a single restart."""


def grows(series: Sequence[Series]) -> bool:
    """Return True if the series look like counters: they fall only at restarts, and most grow."""
    rising = 0
    for one in series:
        values = one.present()[1]
        steps = np.diff(values)
        falls = steps < 0
        restarts = values[1:][falls] <= values[:-1][falls] / 2
        num_allowed = max(len(values) >= ENOUGH_ROWS, 0.02 * len(steps))
        if not restarts.all() or falls.sum() > num_allowed:
            return False
        rising += len(values) >= ENOUGH and (steps > 0).sum() >= max(ENOUGH - 1, len(steps) / 4)
    return rising > len(series) / 2


def differences(series: Sequence[Series], step: int, gaps: Gaps, notes: list[str]) -> list[Series]:
    """Return the requests of each step of ``step`` seconds, at the start time of the step.

    A counter that falls restarted at 0, so it grew by its new value. With ``gaps="interpolate"``
    the growth over a hole is spread evenly. Otherwise the steps in the hole are missing.
    """
    results = [_differences(result, step, gaps) for result in series]
    restarts, holes = sum(result[1] for result in results), sum(result[2] for result in results)
    if restarts:
        notes.append(
            f"{counted(restarts, 'restart')} of counters {were(restarts)} found; a restarted "
            "counter begins at 0"
        )
    if holes and gaps == "interpolate":
        words = f"{counted(holes, 'hole')} {were(holes)} filled"
        notes.append(f"{words}: the growth of counters was spread evenly over missing steps")
    return [result[0] for result in results]


def of_counters(grid: Grid, gaps: Gaps, notes: list[str]) -> Grid:
    """Return the requests of each step instead of the counters. The last step has no growth."""
    arrivals = np.full_like(grid.arrivals, np.nan)
    for column, one in zip(
        arrivals.T, differences(_series(grid), grid.step, gaps, notes), strict=True
    ):
        column[(one.times - grid.start) // grid.step] = one.values
    return replace(grid, arrivals=arrivals[:-1])


def check_counters(grid: Grid) -> None:
    """Raise TraceError if the values of tables look like counters."""
    series = [one for one in _series(grid) if len(one.present()[1]) >= ENOUGH_ROWS]
    growing = [one for one in series if (np.diff(one.present()[1]) >= 0).all() and grows([one])]
    if growing or (series and grows(series)):
        raise counters_error(growing or series)


def counters_error(series: Sequence[Series]) -> TraceError:
    first = series[0].present()[1]
    return fault_error(
        series[0].path,
        "the values look like counters, not requests per step: they fall only at restarts. The "
        f"first series begins with {first[0]:.10g} and ends with {first[-1]:.10g}. Pass "
        "counter=True to import the growth per step, or counter=False if the values are requests "
        "per step",
    )


def _series(grid: Grid) -> list[Series]:
    times = grid.start + grid.step * np.arange(len(grid.arrivals))
    return [Series({}, times, column, Path(grid.source)) for column in grid.arrivals.T]


def _differences(series: Series, step: int, gaps: Gaps) -> tuple[Series, int, int]:
    """Return the requests of a counter, and its number of restarts and holes."""
    times, values = series.present()
    if len(times) < 2:
        raise fault_error(series.path, "a counter needs at least two values")
    steps = np.diff(values)
    restarts = int((steps < 0).sum())
    growth = np.where(steps < 0, values[1:], steps)  # [K - 1]
    if growth.max() > MAX_VALUE * step:
        raise fault_error(
            series.path,
            f"a counter grows by {growth.max():g} in one step, too much for a trace",
        )
    wide = np.diff(times) > 1.5 * step
    if gaps == "interpolate" and wide.any():
        num_steps = np.maximum(1, np.rint(np.diff(times) / step)).astype(np.int64)  # steps, [K - 1]
        offset = np.arange(num_steps.sum()) - np.repeat(np.cumsum(num_steps) - num_steps, num_steps)
        begins = np.repeat(times[:-1], num_steps) + offset * step
        per_step = np.repeat(growth / num_steps, num_steps)
        return replace(series, times=begins, values=per_step), restarts, int(wide.sum())
    growth = np.where(wide, np.nan, growth)
    return replace(series, times=times[:-1], values=growth), restarts, int(wide.sum())
