"""How far a long piece of work is: told to whoever asked, by code that knows nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Progress", "tell", "telling"]

Progress = Callable[[str, int, int], None]
"""What is told: what goes on, how much is done, and of how much."""

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
