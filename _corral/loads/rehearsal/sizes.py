"""Loads with a size of each request: capacity is work per second.

Inside a rehearsal the unit of work is the mean size of a request, so that one request is one unit
of work on average, as without sizes.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from corral.data import RequestLog, Trace
from corral.envs.core import Array
from corral.errors import ArgumentError

__all__ = ["SizedLoad", "sized_load"]


@dataclass(frozen=True)
class SizedLoad:
    """A load and the speed of its nodes."""

    trace: Trace  # its capacity is the number of mean requests per step, rounded: for plans
    capacity: Array  # float64 [N] mean requests per step
    mean_work: float


def sized_load(trace: Trace, log: RequestLog, capacity: object) -> SizedLoad:
    """Return a load with the sizes of ``log``.

    Args:
        trace: the load in requests.
        log: its requests, with work.
        capacity: work per second of each node; or a text such as "1.25x", for that multiple of each
            node's mean work per second.

    Raises ArgumentError for a missing or invalid capacity, TraceError if log and load differ.
    """
    window = log.window(trace, 0, len(trace))
    assert window.work is not None  # the caller has checked it
    mean_work = float(window.work.mean())
    factor, is_multiple = _parsed(capacity)
    nodes = len(trace.nodes)
    if is_multiple:
        work = np.bincount(window.node, weights=window.work, minlength=nodes)
        per_step = factor * work / mean_work / len(trace)
    else:
        per_step = np.full(nodes, factor * trace.step / mean_work)
    whole = np.tile(np.rint(per_step).astype(np.int64), (len(trace), 1))
    return SizedLoad(dataclasses.replace(trace, capacity=whole), per_step, mean_work)


def _parsed(capacity: object) -> tuple[float, bool]:
    """Return a capacity as a number, and whether it is a multiple of the mean load."""
    if capacity is None:
        raise ArgumentError(
            "capacity= is missing: the requests have sizes, so give the work that a node does in a "
            "second, or a multiple of its mean work such as '1.25x'"
        )
    text = str(capacity).strip()
    try:
        value = float(text.removesuffix("x"))
    except ValueError:
        value = math.nan
    if not (0 < value < math.inf):
        raise ArgumentError(
            f"capacity={capacity!r}: the requests have sizes, so give the work that a node does in "
            "a second, above 0, or a multiple of its mean work such as '1.25x'"
        )
    return value, text.endswith("x")
