"""The traces that come with the package, and one way to any trace."""

from __future__ import annotations

import os
from functools import cache
from importlib.resources import as_file
from pathlib import Path

from corral.data.read import read_trace
from corral.data.source import bundled_files
from corral.data.trace import Trace
from corral.errors import UnknownNameError

__all__ = ["bundled", "load_trace"]


def bundled() -> tuple[str, ...]:
    """Return the names of the traces that come with the package, for ``load_trace``."""
    return tuple(bundled_files())


def load_trace(source: str | os.PathLike[str] | Trace) -> Trace:
    """Return the trace that ``source`` means: a bundled name, a path of a CSV file, or itself.

    A text that is no bundled name is a path where it has a folder or a suffix in it, or where such
    a file exists; write ``./edge3`` for a file that is called like a bundled trace.

    Raises UnknownNameError for a text that is neither, TraceError for a file that is missing or
    breaks the format. Bundled traces are read once and kept.
    """
    if isinstance(source, Trace):
        return source
    if not isinstance(source, str):
        return read_trace(Path(source))
    if source in bundled():
        return _bundled(source)
    path = Path(source)
    if path.suffix or len(path.parts) != 1 or source != path.name or path.exists():
        return read_trace(path)
    raise UnknownNameError.of("trace", source, bundled())


@cache
def _bundled(name: str) -> Trace:
    with as_file(bundled_files()[name]) as path:
        return read_trace(path)
