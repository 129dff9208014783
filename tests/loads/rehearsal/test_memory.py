"""The memory of a rehearsal does not grow with the number of windows."""

from __future__ import annotations

import tracemalloc

from corral.data import make_trace
from corral.loads.rehearsal import rehearse

TABLE = 24 * 3_000 * 8
"""Bytes of the waits of a window."""


def peak(days: int) -> int:
    """Return the peak of the memory of a rehearsal of ``days`` days, in bytes."""
    trace = make_trace(nodes=2, days=days, step=3600, mean=1, largest=2)
    tracemalloc.start()
    try:
        rehearsal = rehearse(trace, ["local"])
        assert len(rehearsal.windows) == days
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_waits_of_windows_are_added_at_once() -> None:
    peak(2)  # imports
    assert peak(24) - peak(4) < 6 * TABLE
