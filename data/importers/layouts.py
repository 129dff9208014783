"""The layouts that ``import_trace`` knows, and how each is told by a file's first bytes.

To add one: a ``Layout`` in ``LAYOUTS``, before the tables. Its ``load`` takes the paths and, as
keyword arguments, the options that have a meaning for it; others are refused by name. A ``load``
with an argument ``guesses`` is given a list, to which it appends what it found (``Guess``) as it
goes: the command prints them even where the import then stops.
"""

from __future__ import annotations

import csv
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from corral.data.importers.access_log import LINE, import_access_log
from corral.data.importers.azure import KEYS
from corral.data.importers.binning import Guess, Imported, Paths, file_list
from corral.data.importers.prometheus import import_prometheus
from corral.data.importers.prometheus_files import has_labels
from corral.data.importers.tables.table import import_table
from corral.data.read import COLUMNS
from corral.data.source import DELIMITERS, MAX_BYTES, MAX_CELLS, fault_error, head_of

__all__ = ["LAYOUTS", "Head", "Layout", "import_trace", "looks_like"]


@dataclass(frozen=True)
class Head:
    """The beginning of a file: its first 64 KiB after unpacking, without a byte-order mark."""

    path: Path
    data: bytes

    @cached_property
    def rows(self) -> list[str]:
        """The first lines as text, without those that are blank."""
        text = self.data.decode(errors="replace").splitlines()
        return [line for line in text if line.strip()]


@dataclass(frozen=True)
class Layout:
    """One kind of file: its name for people, how it is told, and what reads it."""

    name: str
    recognize: Callable[[Head], bool]
    load: Callable[..., Imported]  # (paths, **options, guesses=[...])

    @property
    def options(self) -> list[str]:
        """The names of the options that ``load`` takes."""
        taken = inspect.signature(self.load).parameters.values()
        return [each.name for each in taken if each.kind is each.KEYWORD_ONLY]


def looks_like(path: Path, *, max_bytes: int = MAX_BYTES) -> Layout:
    """Return the layout of a file. Raises TraceError for none, which quotes nothing of it."""
    head = Head(path, head_of(path, max_bytes=max_bytes))
    for layout in LAYOUTS:
        if layout.recognize(head):
            return layout
    if not head.rows:
        raise fault_error(path, "the file is empty")
    known = ", ".join(layout.name for layout in LAYOUTS)
    raise fault_error(path, f"no layout that is known: {known}; nothing of it is quoted")


def import_trace(files: Paths, *, guesses: list[Guess] | None = None, **options: Any) -> Imported:
    """Import files of any known layout: look what they are, and read them as that.

    ``options`` are those of the layout, see ``import_table``; one that has no meaning for it is
    refused. What was found, and which argument changes it, is in ``guesses`` of the result (and
    in the list of that name, as far as it got, where the import stops with an error).

    Raises TraceError for faults in the files and for what only the caller can decide, ValueError
    for options out of range.
    """
    paths = file_list(files)
    most = options.get("max_bytes") or MAX_BYTES
    found = [looks_like(path, max_bytes=most) for path in paths]
    layout = found[0]
    for path, other in zip(paths, found, strict=True):
        if other is not layout:
            rule = f"this is {other.name}, but {paths[0].name} is {layout.name}: import one kind"
            raise fault_error(path, rule)
    told = [] if guesses is None else guesses
    told.append(Guess("layout", layout.name))
    unused = [name for name in options if name not in layout.options]
    if unused:
        taken = ", ".join(f"{name}=" for name in layout.options if name != "guesses")
        raise ValueError(f"{unused[0]}= has no meaning for {layout.name}; it takes {taken}")
    if "guesses" in layout.options:
        options["guesses"] = told
    return replace(layout.load(paths, **options), guesses=tuple(told))


# --- Access logs and Azure -----------------------------------------------------------------------


def _is_access_log(head: Head) -> bool:
    return any(LINE.fullmatch(row.encode()) for row in head.rows[:20])


def _access_log(
    paths: Sequence[Path],
    *,
    step: int = 60,
    names: Sequence[str] | None = None,
    capacity: int | str | None = None,
    name: str | None = None,
    max_bytes: int = MAX_BYTES,
    max_cells: int = MAX_CELLS,
    guesses: list[Guess],
) -> Imported:
    guesses.append(Guess("step", f"{step} s", "step=300"))
    guesses.append(Guess("nodes", "one per file", "names=a,b"))
    return import_access_log(
        paths,
        step=step,
        names=names,
        capacity=capacity,
        name=name,
        max_bytes=max_bytes,
        max_cells=max_cells,
    )


def _is_prometheus(head: Head) -> bool:
    """Tell whether this is JSON of query_range, or a table whose columns are named by labels."""
    start = "".join(head.rows[:20])
    if start.lstrip()[:1] in ("{", "["):
        return any(f'"{key}"' in start for key in ("resultType", "metric", "status"))
    mark = max(DELIMITERS, key=start.count)
    try:
        first = next(csv.reader(head.rows[:1], delimiter=mark), [])
    except csv.Error:
        return False
    return len(first) > 1 and all(has_labels(name) for name in first[1:])


def _is_azure(head: Head) -> bool:
    return bool(head.rows) and head.rows[0].startswith(",".join(KEYS))


def _azure(paths: Sequence[Path]) -> Imported:
    raise fault_error(
        paths[0],
        "invocations of Azure Functions have to be grouped onto nodes: "
        "corral trace import azure-functions FILES --nodes 8 --out loads.csv",
    )


def _is_own(head: Head) -> bool:
    return bool(head.rows) and head.rows[0] in (",".join(COLUMNS), ",".join(COLUMNS[:3]))


def _is_table(head: Head) -> bool:
    """Tell whether the first rows have as many cells, two or more."""
    rows = head.rows[:4] if not head.rows[:1] or head.rows[0][:4] != "sep=" else head.rows[1:5]
    if len(rows) < 2 or rows[0].lstrip()[:1] in ("{", "[", "<"):
        return False
    for mark in DELIMITERS:
        try:
            widths = {len(row) for row in csv.reader(rows, delimiter=mark)}
        except csv.Error:
            continue
        if min(widths) > 1 and mark in rows[0]:
            return True
    return False


LAYOUTS: list[Layout] = [
    Layout("an access log", _is_access_log, _access_log),
    Layout("an answer of Prometheus", _is_prometheus, import_prometheus),
    Layout("a day of Azure Functions", _is_azure, _azure),
    Layout("a trace of corral's own", _is_own, import_table),
    Layout("a table", _is_table, import_table),
]
"""In the order in which they are asked; the first that recognizes a file reads it."""
