"""Counters that only grow until a restart: recognized, and turned into requests per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from corral.data.importers.binning import Gaps, counted, were
from corral.data.importers.prometheus_files import Series
from corral.data.source import fault_error
from corral.data.trace import MAX_VALUE

__all__ = ["differences", "grows"]

ENOUGH = 5
"""Values of a series that can show whether it only grows."""


def grows(series: Sequence[Series]) -> bool:
    """Return whether these look like counters: none falls, but to begin again, and some grow."""
    rising = 0
    for each in series:
        values = each.known()[1]
        steps = np.diff(values)
        falls = steps < 0
        restarts = values[1:][falls] <= values[:-1][falls] / 2
        if not restarts.all() or falls.sum() > 0.02 * len(steps):
            return False
        rising += len(values) >= ENOUGH and (steps > 0).sum() >= max(ENOUGH - 1, len(steps) / 4)
    return rising > len(series) / 2


def differences(series: Sequence[Series], step: int, gaps: Gaps, notes: list[str]) -> list[Series]:
    """Return the requests of each step of ``step`` seconds, at the time at which it begins.

    A counter that is smaller than before began again at 0: it grew by all that it shows. Over a
    hole the growth is spread evenly with ``gaps="interpolate"``; otherwise those steps are missing.
    """
    found = [_differences(each, step, gaps) for each in series]
    restarts, holes = sum(each[1] for each in found), sum(each[2] for each in found)
    if restarts:
        notes.append(
            f"{counted(restarts, 'restart')} of counters {were(restarts)} found: they began again "
            "at 0"
        )
    if holes and gaps == "interpolate":
        words = f"{counted(holes, 'hole')} {were(holes)} filled"
        notes.append(f"{words}: what the counters grew by was spread evenly over them")
    return [each[0] for each in found]


def _differences(series: Series, step: int, gaps: Gaps) -> tuple[Series, int, int]:
    """Return the requests of a counter, and how many restarts and holes it has."""
    times, values = series.known()
    if len(times) < 2:
        raise fault_error(series.path, "a counter of one value has no difference")
    steps = np.diff(values)
    restarts = int((steps < 0).sum())
    growth = np.where(steps < 0, values[1:], steps)  # [K - 1]
    if growth.max() > MAX_VALUE * step:
        raise fault_error(series.path, f"a counter grows by {growth.max():g} in one step")
    wide = np.diff(times) > 1.5 * step
    if gaps == "interpolate" and wide.any():
        many = np.maximum(1, np.rint(np.diff(times) / step)).astype(np.int64)  # steps, [K - 1]
        offset = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
        begins = np.repeat(times[:-1], many) + offset * step
        each = np.repeat(growth / many, many)
        return replace(series, times=begins, values=each), restarts, int(wide.sum())
    growth = np.where(wide, np.nan, growth)
    return replace(series, times=times[:-1], values=growth), restarts, int(wide.sum())
