"""How far a long piece of work is: told to whoever asked, by code that knows nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Progress", "is_quiet", "quietly", "tell", "telling"]

Progress = Callable[[str, int, int], None]
"""What is told: what goes on, how much is done, and of how much."""

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)

_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def telling(progress: Progress | None) -> Iterator[None]:
    """Let ``progress`` be told of the work that goes on inside; None: nobody."""
    token = _progress.set(progress)
    try:
        yield
    finally:
        _progress.reset(token)


def tell(what: str, done: int, total: int) -> None:
    """Tell whoever wants to know that ``done`` of ``total`` is done."""
    progress = _progress.get()
    if progress is not None:
        progress(what, done, total)


@contextmanager
def quietly() -> Iterator[None]:
    """Let trainings that begin inside say nothing of how they are set up, only what goes wrong."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def is_quiet() -> bool:
    """Return whether nobody wants to read how a training is set up."""
    return _quiet.get()
