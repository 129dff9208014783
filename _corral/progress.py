"""Progress of long tasks, reported through a context variable to any listener."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Progress", "is_quiet", "progress_to", "report_progress", "without_setup_messages"]

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


@contextmanager
def without_setup_messages() -> Iterator[None]:
    """Make training in this block print only problems, not its setup."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def is_quiet() -> bool:
    """Whether training should not print its setup."""
    return _quiet.get()
