"""CPU time: time limits that other processes on the machine do not shorten."""

from __future__ import annotations

import time

__all__ = ["PATIENCE", "Clock", "count_child"]

PATIENCE = 10
"""Elapsed seconds that count as one second of CPU time, at least."""


class Clock:
    """CPU time of this process since the start, with that of its forked games.

    An environment that waits, such as for a simulator, uses little CPU time: a share of the elapsed
    time counts in any case.
    """

    def __init__(self) -> None:
        self._cpu, self._elapsed = _cpu_seconds(), time.monotonic()

    def seconds(self) -> float:
        elapsed = time.monotonic() - self._elapsed
        return max(_cpu_seconds() - self._cpu, elapsed / PATIENCE)


def count_child(seconds: float) -> None:
    """Count CPU time of a child process that runs on: the system adds it only at its end."""
    _children.append(_children.pop() + seconds)


_children = [0.0]


def _cpu_seconds() -> float:
    return time.process_time() + _children[0]
