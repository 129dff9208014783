"""Progress of long tasks, reported through a context variable to any listener."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = [
    "INTERVAL_S",
    "LogLines",
    "Progress",
    "cell_progress",
    "in_notebook",
    "is_quiet",
    "progress_to",
    "remaining_time",
    "report_progress",
    "without_setup_messages",
]

INTERVAL_S = 30.0
"""Seconds between two lines of progress in a log."""

Progress = Callable[[str, int, int], None]
"""A function that receives progress: label of the task, amount done, total amount."""

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)

_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def progress_to(progress: Progress | None) -> Iterator[None]:
    """Report the progress of tasks in this block to ``progress``; None: do not report it."""
    token = _progress.set(progress)
    try:
        yield
    finally:
        _progress.reset(token)


def report_progress(label: str, done: int, total: int) -> None:
    """Report to the current listener that ``done`` of ``total`` is done."""
    progress = _progress.get()
    if progress is not None:
        progress(label, done, total)


def remaining_time(seconds: float, done: int, total: int) -> str:
    """Return the estimated remaining time as text; "" if it is unknown.

    ``done`` of ``total`` took ``seconds``."""
    if not 0 < done < total:
        return ""
    return f", about {seconds * (total - done) / done:,.0f} s left"


class LogLines:
    """Progress in a log: a line every ``INTERVAL_S`` seconds, with a task's remaining time.

    An instance is a ``Progress`` function."""

    def __init__(self, write: Callable[[str], None]) -> None:
        """``write`` prints a line."""
        self._write, self._printed = write, time.monotonic()
        self._first = (0, 0, 0.0)  # total, amount done, and time at the first report of a task
        self._done = 0  # at the latest report

    def __call__(self, label: str, done: int, total: int) -> None:
        now = time.monotonic()
        task, first, began = self._first
        before, self._done = self._done, done
        if total != task or done < before:
            self._first = (total, done, now)
        elif now - self._printed >= INTERVAL_S:
            self._printed, seconds = now, now - began
            # The pace of a task that has just begun is unknown.
            reliable = seconds >= INTERVAL_S
            remaining = remaining_time(seconds, done - first, total - first) if reliable else ""
            self._write(f"{label}: {done:,} of {total:,}{remaining}")


def in_notebook() -> bool:
    """Return True if this code runs in a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


def cell_progress(label: str, done: int, total: int) -> None:
    """Show progress in the output of a notebook's running cell; elsewhere, do nothing.

    A ``Progress`` function, the default of functions that may take longer than a second."""
    if in_notebook():
        from corral.notebook import show_in_cell  # late: only for notebooks

        show_in_cell(label, done, total)


@contextmanager
def without_setup_messages() -> Iterator[None]:
    """Make training in this block print only problems, not its setup. See ``corral --quiet``."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def is_quiet() -> bool:
    """Whether training should not print its setup."""
    return _quiet.get()
