"""A clock of work: time limits that other processes on the machine do not shorten."""

from __future__ import annotations

import time
from pathlib import Path

__all__ = ["PATIENCE", "Clock", "count_child"]

PATIENCE = 10
"""Elapsed seconds that count as one second, at least."""

SCHEDULED = Path("/proc/self/schedstat")
"""On Linux: nanoseconds that the main thread ran, and that it waited for a CPU."""


class Clock:
    """Seconds of this process and its forked games since the start, without waiting for a CPU.

    Sleep counts, such as of an environment that waits for a simulator. Systems that do not tell how
    long a process waits for a CPU count CPU time, and a share of the elapsed time in any case.
    """

    def __init__(self) -> None:
        self._cpu, self._awake, self._elapsed = _cpu_seconds(), _not_waiting(), time.monotonic()

    def seconds(self) -> float:
        elapsed = time.monotonic() - self._elapsed
        return max(_cpu_seconds() - self._cpu, _not_waiting() - self._awake, elapsed / PATIENCE)


def count_child(cpu: float, elapsed: float) -> None:
    """Count CPU time of a child process in ``elapsed`` seconds, in which this process waited.

    The system adds a child's CPU time only at its end, and does not tell how long it waited.
    """
    _children[0] += cpu
    _children[1] += elapsed - cpu


_children = [0.0, 0.0]
"""CPU time of children, and the other time that this process waited for them."""


def _cpu_seconds() -> float:
    return time.process_time() + _children[0]


def _not_waiting() -> float:
    """Return the time that passed except in waiting; 0 if that is unknown."""
    try:
        waited = float(SCHEDULED.read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
    return time.monotonic() - waited - _children[1]
