"""Arguments of dfaas_v0 that the trace completes: capacity and scales."""

from __future__ import annotations

import math
from typing import Any

from corral.data import Trace
from corral.envs.core import Array
from corral.envs.dfaas_v0.rows import Section, section
from corral.errors import Fault, ScaleError, TraceError

__all__ = ["measured_on", "scale", "with_capacity"]


def with_capacity(trace: Trace, capacity: int | str | None, rows: Section | None) -> Trace:
    """Return the trace with that capacity, or its own. Raises TraceError where there is none."""
    if capacity is None and trace.capacity is None:
        rule = "has no capacity column; pass capacity=, a number or a text such as '1.25x'"
        raise TraceError([Fault(file=trace.name, rule=rule)])
    rows = rows and section(rows, len(trace))
    return trace if capacity is None else trace.with_capacity(capacity, rows)


def measured_on(
    trace: Trace,
    rows: Section,
    capacity: int | str | None,
    capacity_rows: Section | None,
    capacity_scale: float | None,
) -> dict[str, Any]:
    """Return which arguments differ in training on those rows: of a capacity such as "1.25x" its
    mean is over them, unless other rows are given."""
    if not isinstance(capacity, str) or capacity_rows is not None:
        return {}
    levels = trace.with_capacity(capacity, rows).capacity
    found = scale("capacity_scale", capacity_scale, levels)
    return {"capacity_rows": rows, "capacity_scale": found}


def scale(name: str, value: float | None, numbers: Array | None) -> float:
    """Return the scale of ``numbers`` [T, N]. Raises ScaleError where they exceed ``value``."""
    assert numbers is not None
    largest = max(1, int(numbers.max()))
    if value is None:
        return largest
    if isinstance(value, bool) or not (math.isfinite(value) and value >= 1):
        raise ValueError(f"{name}={value!r}: give a finite number, 1 or more")
    if value < largest:
        what = f"{name.removesuffix('_scale')} of {largest}"
        raise ScaleError(f"{name}={value:g}, but the trace has a {what}; pass {name}={largest}")
    return value
