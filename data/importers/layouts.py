"""The file layouts that ``import_trace`` supports, recognized by the first bytes of a file.

To add a layout, insert a ``Layout`` into ``LAYOUTS``, before the tables. Its ``load`` takes the
paths and, as keyword arguments, the options that it supports. ``import_trace`` refuses all other
options. If ``load`` has an argument ``guesses``, it receives a list and appends each ``Guess``. The
command prints these guesses even if the import fails later.
"""

from __future__ import annotations

import csv
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from corral.data.headers import mentions_times
from corral.data.importers.access_log import import_access_log
from corral.data.importers.azure import KEYS, import_azure_functions
from corral.data.importers.binning import Guess, Imported, Paths, file_list
from corral.data.importers.log_formats import FORMATS, log_rows, recognized
from corral.data.importers.prometheus import import_prometheus
from corral.data.importers.prometheus_files import has_labels
from corral.data.importers.tables.binary import binary_kind
from corral.data.importers.tables.documents import begins_like_json, is_json, is_lines
from corral.data.importers.tables.head import HEAD_LINES
from corral.data.importers.tables.table import import_table
from corral.data.read import COLUMNS
from corral.data.source import DELIMITERS, MAX_BYTES, fault_error, head_of
from corral.data.trace import about_capacity

__all__ = ["LAYOUTS", "Head", "Layout", "import_trace", "looks_like"]


PATTERNS = (
    f"For a log, pass format={', '.join(FORMATS)}, w3c or json, or a pattern= such as "
    "'(?P<time>[^ ]+) (?P<node>[^ ]+) .*'"
)


@dataclass(frozen=True)
class Head:
    """The beginning of a file: its first 64 KiB after unpacking, without a byte-order mark."""

    path: Path
    data: bytes

    @cached_property
    def rows(self) -> list[str]:
        """The first lines as text, without blank lines."""
        text = self.data.decode(errors="replace").splitlines()
        return [line for line in text if line.strip()]


@dataclass(frozen=True)
class Layout:
    """One file layout: its display name, the test that recognizes it, and its importer."""

    name: str
    recognize: Callable[[Head], bool]
    load: Callable[..., Imported]  # (paths, **options, guesses=[...])

    @property
    def options(self) -> list[str]:
        """The names of the options that ``load`` takes."""
        parameters = inspect.signature(self.load).parameters.values()
        return [
            parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY
        ]


def looks_like(path: Path, *, max_bytes: int = MAX_BYTES) -> Layout:
    """Return the layout of a file.

    Raises TraceError for an unknown layout. The error does not quote the file.
    """
    if binary_kind(path) is not None:
        return TABLE
    head = Head(path, head_of(path, max_bytes=max_bytes))
    for layout in LAYOUTS:
        if layout.recognize(head):
            return layout
    if not head.rows:
        raise fault_error(path, "the file is empty")
    known = ", ".join(layout.name for layout in LAYOUTS)
    raise fault_error(
        path,
        f"unknown layout, so its content is not shown. Export the loads as one of: {known}. For a "
        f"table without a header, pass columns=, a name for each column. {PATTERNS}",
    )


def import_trace(files: Paths, *, guesses: list[Guess] | None = None, **options: Any) -> Imported:
    """Import files of any supported layout. The first lines of a file show its layout.

    ``options`` are the options of the layout, see ``import_table``; other options are refused. The
    ``guesses`` of the result list each guess, and the argument that changes it. If the import
    fails, the list ``guesses`` of the caller holds the guesses up to the error.

    Raises TraceError for faulty or ambiguous files, ValueError for options out of range.
    """
    paths = file_list(files)
    limit = options.get("max_bytes") or MAX_BYTES
    if options.get("format") or options.get("pattern"):
        layouts = [LOG for _ in paths]
    elif options.get("columns") or options.get("delimiter") or options.get("header"):
        layouts = [TABLE for _ in paths]  # the caller knows that these are tables
    else:
        layouts = [looks_like(path, max_bytes=limit) for path in paths]
    if options.get("arrivals") and all(is_json(path, max_bytes=limit) for path in paths):
        layouts = [JSON if layout is LOG else layout for layout in layouts]
    layout = layouts[0]
    for path, other in zip(paths, layouts, strict=True):
        if other is not layout:
            rule = (
                f"this is {other.name}, but {paths[0].name} is {layout.name}; import files of one "
                "layout at a time"
            )
            raise fault_error(path, rule)
    guess_list = [] if guesses is None else guesses
    guess_list.append(Guess("layout", layout.name))
    unsupported = [name for name in options if name not in layout.options]
    if unsupported:
        if "keep_requests" in unsupported:
            raise ValueError(
                f"keep_requests= does not apply to {layout.name}, because only an access log has "
                "the time of each request. For a table with one row per request, run corral trace "
                "import requests FILE --step 60 --out LOADS.csv --keep-requests REQUESTS.csv"
            )
        supported = ", ".join(
            f"{name}=" for name in layout.options if name not in ("guesses", "overwrite")
        )
        raise ValueError(
            f"{unsupported[0]}= does not apply to {layout.name}; its options are {supported}"
        )
    if "guesses" in layout.options:
        options["guesses"] = guess_list
    imported = layout.load(paths, **options)
    notes = (*imported.notes, *about_capacity(imported.trace))
    return replace(imported, notes=notes, guesses=tuple(guess_list))


# --- Access logs and Azure -----------------------------------------------------------------------


def _is_access_log(head: Head) -> bool:
    return recognized(log_rows(head.data)) is not None


_REQUEST = re.compile(rb"\b(GET|POST|PUT|HEAD|PATCH|DELETE|OPTIONS) \S*/|\bHTTP/[0-9.]+")


def _is_unknown_log(head: Head) -> bool:
    """Return True if the first line and most others have the request of a web server."""
    requests = [_REQUEST.search(row) is not None for row in log_rows(head.data)[:20]]
    return requests[:1] == [True] and 2 * sum(requests) > len(requests)


def _unknown_log(paths: Sequence[Path]) -> Imported:
    raise fault_error(paths[0], f"unknown format, so the content is not shown. {PATTERNS}")


_PROMETHEUS = re.compile(
    r'"resultType":\s*"(?!streams)|"status":\s*"(success|error)"(?!.*"streams")'
    r'|"metric":\s*\{.*("value":\s*\[|"values":\s*\[\s*\[)',
    re.DOTALL,
)


def _is_prometheus(head: Head) -> bool:
    """Return True for JSON of ``query_range``, or a table with labels as column names."""
    start = "".join(head.rows[:20])
    if start.lstrip()[:1] in ("{", "["):
        return not is_lines(head.data) and _PROMETHEUS.search(start) is not None
    mark = max(DELIMITERS, key=start.count)
    try:
        first = next(csv.reader(head.rows[:1], delimiter=mark), [])
    except csv.Error:
        return False
    return len(first) > 1 and all(has_labels(name) for name in first[1:])


def _is_azure(head: Head) -> bool:
    return bool(head.rows) and head.rows[0].startswith(",".join(KEYS))


def _azure(
    paths: Sequence[Path],
    *,
    nodes: int | None = None,
    step: int = 60,
    capacity: int | str | None = None,
    max_bytes: int = MAX_BYTES,
    guesses: list[Guess],
) -> Imported:
    if nodes is None:
        raise fault_error(
            paths[0],
            "the functions of an Azure Functions file must be grouped onto nodes; pass nodes=8, or "
            "run corral trace import azure-functions FILES --nodes 8 --out loads.csv",
        )
    guesses.append(Guess("nodes", f"applications grouped onto {nodes} by a hash", "nodes=8"))
    return import_azure_functions(
        paths, nodes=nodes, step=step, capacity=capacity, max_bytes=max_bytes
    )


def _is_corral_trace(head: Head) -> bool:
    return bool(head.rows) and head.rows[0] in (",".join(COLUMNS), ",".join(COLUMNS[:3]))


def _is_table(head: Head) -> bool:
    """Return True if each of the first rows has at least two cells.

    Cells may be separated by spaces if all rows have the same number of cells, and hold times.
    """
    rows = head.rows[1:] if head.rows and head.rows[0][:4] == "sep=" else head.rows
    rows = [row for row in rows[:HEAD_LINES] if not row.lstrip('"').startswith("#")]
    if not rows or rows[0].lstrip()[:1] in ("{", "[", "<"):
        return False
    for mark in DELIMITERS:
        try:
            widths = [len(row) for row in csv.reader(rows, delimiter=mark)]
        except csv.Error:
            continue
        if len(widths) > 1 and min(widths[-4:]) > 1 and mark in rows[-1]:
            return True
    return len({len(row.split()) for row in rows}) == 1 and mentions_times(rows, mark=" ")


LOG = Layout("an access log", _is_access_log, import_access_log)
JSON = Layout("JSON", lambda head: begins_like_json(head.data), import_table)
TABLE = Layout("a table", _is_table, import_table)

LAYOUTS: list[Layout] = [
    LOG,
    Layout("a Prometheus response", _is_prometheus, import_prometheus),
    Layout("a day of Azure Functions", _is_azure, _azure),
    Layout("a corral trace", _is_corral_trace, import_table),
    JSON,
    Layout("an unknown log", _is_unknown_log, _unknown_log),
    TABLE,
]
"""The layouts in order of precedence: the first that recognizes a file reads it."""
