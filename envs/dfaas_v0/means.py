"""The mean load of each node by time of day, as a feature of dfaas_v0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from corral.data import Trace
from corral.envs.core import Array
from corral.envs.dfaas_v0.rows import Section
from corral.errors import ArgumentError

__all__ = ["means_by_row", "table_of_means"]

SECONDS_PER_DAY = 86_400


def table_of_means(
    given: bool | Sequence[Sequence[float]] | Array, trace: Trace, rows: Section
) -> Array | None:
    """Return the mean arrivals at each step of a day, from midnight: float64 [S, N].

    ``given`` selects the table. True: the means over ``rows``; a time of day without rows gets the
    mean of all rows. False: None is returned. Otherwise ``given`` is the table.

    Raises ArgumentError if the trace has no days, or if a table has another shape.
    """
    if given is False:
        return None
    steps = trace.steps_per_day
    if steps is None:
        raise ArgumentError(
            f"daily_mean: {trace.name} has no days (its clock counts steps, or its step does not "
            "divide a day); leave daily_mean out"
        )
    shape = steps, len(trace.nodes)
    if given is True:
        section = trace.section(*rows)
        slots = _slots(section, steps)
        total = np.zeros(shape)
        np.add.at(total, slots, section.arrivals)
        count = np.bincount(slots, minlength=steps)[:, None]
        mean = section.arrivals.mean(axis=0)
        return np.where(count > 0, total / np.maximum(count, 1), mean)
    try:
        table = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        table = np.empty(0)
    if table.shape != shape or not np.isfinite(table).all() or (table < 0).any():
        raise ArgumentError(
            f"daily_mean: the table has the shape {table.shape}; give True, or a table of "
            f"{shape[0]} steps of a day and {shape[1]} nodes with finite numbers of 0 or more"
        )
    return table


def means_by_row(table: Array, section: Trace) -> Array:
    """Return the means of ``table`` [S, N] at the time of day of each row: [L, N]."""
    return np.asarray(table[_slots(section, len(table))])


def _slots(section: Trace, steps: int) -> Array:
    """Return the step of the day of each row, from 0 at midnight UTC: int64 [L]."""
    step = SECONDS_PER_DAY // steps  # a section of one row does not have its step
    return np.asarray(section.times % SECONDS_PER_DAY // step, dtype=np.int64)
