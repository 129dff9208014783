"""Read JSON and JSON lines as a table: each entry of the innermost list is a row.

A column has the name of its path: ``host``, ``request.host``, or ``data[].timeStamp`` with ``[]``
for a list. To add the answer of a program, insert a ``Shape`` into ``SHAPES``.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from corral.data.headers import rows_mention_times
from corral.data.importers.tables.cells import MAX_COLUMNS, MAX_TEXTS, Column, Table
from corral.data.importers.tables.columns import choose, quoted, stop
from corral.data.importers.tables.entries import PATHS, Flatten, Row, as_list, chain_of, follow
from corral.data.importers.tables.numbers import looks_numeric
from corral.data.importers.tables.roles import is_no_load
from corral.data.importers.tables.times import UNDATED, is_day, style_of
from corral.data.source import (
    MAX_CELLS,
    chunks,
    fault_error,
    head_of,
    lines,
    too_many_cells,
    weigh,
)

__all__ = [
    "MAX_JSON",
    "SHAPES",
    "Shape",
    "begins_like_json",
    "is_json",
    "is_lines",
    "load_json",
    "read_json",
    "table_of_records",
]

MAX_JSON = 64 * 2**20
"""Default limit on a document after unpacking, in bytes: 1.6 million values. The parsed JSON takes
many times as much memory."""

MAX_MARKS = 5_000_000
"""Maximum number of commas, colons and brackets in a document: three per value."""


@dataclass(frozen=True)
class Shape:
    """The answer of a program: the paths of time, node and load, in order of preference.

    An answer without ``value`` has an entry for each request. ``time_format`` is a format of
    ``datetime.strptime``.
    """

    time: tuple[str, ...]
    value: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    time_format: str | None = None


SHAPES = {
    "CloudWatch, get-metric-data": Shape(
        ("MetricDataResults[].Timestamps[]",),
        ("MetricDataResults[].Values[]",),
        ("MetricDataResults[].Label",),
    ),
    "CloudWatch, get-metric-statistics": Shape(("Datapoints[].Timestamp",), ("Datapoints[].Sum",)),
    "Azure Monitor": Shape(
        ("value[].timeseries[].data[].timeStamp",),
        ("value[].timeseries[].data[].total", "value[].timeseries[].data[].count"),
        ("value[].timeseries[].metadatavalues[].value",),
    ),
    "Google Cloud Monitoring": Shape(
        ("timeSeries[].points[].interval.startTime", "timeSeries[].points[].interval.endTime"),
        ("timeSeries[].points[].value.int64Value", "timeSeries[].points[].value.doubleValue"),
    ),
    "Wikimedia pageviews": Shape(
        ("items[].timestamp",),
        ("items[].views",),
        ("items[].article", "items[].project"),
        "%Y%m%d%H",
    ),
    "Loki": Shape(("data.result[].values[][0]",)),
}
"""The answers of programs that are recognized by their paths."""

COUNTS = {
    "unit": ("count", "none", "1", "", "{request}"),  # of CloudWatch and Azure Monitor
    "metrickind": ("delta", "gauge"),  # of Google Cloud: a cumulative value is no load
}
"""Cells, in lower case, of columns that describe the values of a ``Shape``."""

LEAST_CELLS = 50
"""Minimum number of cells that an entry of JSON counts as: 500,000 entries by default."""


def read_json(
    path: Path,
    notes: list[str],
    *,
    time: str | None,
    named: AbstractSet[str],
    arrivals: str | None,
    max_bytes: int,
    max_cells: int,
) -> Table:
    """Return the entries of a JSON document, or of JSON lines, as a table.

    ``time`` and ``arrivals`` are the paths of times and loads, and ``named`` are all paths that the
    caller named. Without ``time``, the answers in ``SHAPES`` are recognized.

    Raises TraceError for invalid JSON, without quoting it unless it holds times, and if several
    lists could hold the entries.
    """
    document: Any
    if is_lines(head_of(path, max_bytes=max_bytes)):
        weigh(path, max_bytes=max_bytes, max_cells=max_cells)
        document = _lines(path, notes, max_bytes)
    else:
        document = load_json(path, max_bytes=max_bytes)
    shape = None
    if isinstance(document, dict):
        shapes = [s for s in SHAPES if time is None or time in SHAPES[s].time]
        shape = next((s for s in shapes if any(follow(document, SHAPES[s].time[-1]))), None)
    paths = {*named}
    if shape is not None:
        notes.append(f"{path.name}: read as the answer of {shape}")
        time = SHAPES[shape].time[-1]
        paths |= {*SHAPES[shape].time, *SHAPES[shape].value, *SHAPES[shape].node}
    else:
        document = as_list(document)
    chain, of_loads = chain_of(time), chain_of(arrivals)
    if of_loads is not None and of_loads.startswith(chain or ""):
        chain = of_loads
    if chain is not None and not isinstance(document, Iterator):
        is_path = any(True for _ in follow(document, chain.removesuffix("[]")))
        chain = chain if is_path else None  # the end of a path, as columns are named
    is_list = isinstance(document, Iterator) or (
        isinstance(document, list) and not isinstance(next(iter(document), None), list)
    )
    flatten = Flatten(path, time, chain, paths)
    try:
        rows = (
            row
            for entry in (document if is_list else [document])
            for row in flatten.rows(entry, "", {}, is_entry=is_list)
        )
        table = table_of_records(path, rows, named=paths, max_cells=max_cells)
    except RecursionError:
        raise fault_error(path, "JSON nested too deeply") from None
    if shape is not None:
        _assign(table, SHAPES[shape], named, check=arrivals is None)
    elif time != "row" and not rows_mention_times(_first_rows(table), named):
        rule = "no entry of this JSON looks like a time, so its content is not shown"
        order = "or time_column=row if the entries are the steps in order"
        raise fault_error(path, f"{rule}. {PATHS}; {order}")
    if arrivals is None:
        _check_lists(table)
        _check_days(table)
        if shape is None:
            _name_nodes(table, named)
    return table


def _name_nodes(table: Table, named: AbstractSet[str]) -> None:
    """Name columns by their keys alone if one object of each entry holds all numbers."""
    loads = [name for name in _numbers(table) if not is_no_load(name)]
    objects = {name.rpartition(".")[0] for name in loads}
    keys = {name: name.rpartition(".")[2] for name in loads}
    if (
        len(objects) > 1
        or "" in objects
        or named & keys.keys()
        or {*keys.values()} & {*table.columns}
    ):
        return
    columns = [replace(c, name=keys.get(name, name)) for name, c in table.columns.items()]
    table.columns = {column.name: column for column in columns}


def _numbers(table: Table) -> list[str]:
    """Return the columns of numbers other than times."""
    cells = {name: column.sample() for name, column in table.columns.items()}
    return [n for n, c in cells.items() if looks_numeric(c) and style_of(c) in UNDATED]


def _check_lists(table: Table) -> None:
    """Raise TraceError if the loads may be a list of numbers in each entry, or other numbers."""
    lists = dict.fromkeys(re.sub(r"\d+\]$", "*]", n) for n in table.columns if _IN_LIST.search(n))
    further = [n for n in _numbers(table) if not (_IN_LIST.search(n) or is_no_load(n))]
    if lists and len(choices := [*further, *lists]) > 1:
        stop(table, f"several numbers could be the loads; pass {choose('arrivals', choices)}")


def _check_days(table: Table) -> None:
    """Raise TraceError if the numbers of a day may be of its hours, or of parts of an hour."""
    names = [name for name in _numbers(table) if _IN_DAY.search(name)]
    cells = [c.sample() for name, c in table.columns.items() if name not in names]
    days = [c for c in cells if c and all(is_day(_MIDNIGHT.sub("", str(cell))) for cell in c)]
    if not names or not days:
        return
    columns = [table.columns[name] for name in names]
    is_number = [np.array([cell is not None for cell in c.cells])[c.codes] for c in columns]
    num = int(np.median(np.sum(is_number, axis=0)))  # a change of the clock adds or skips an hour
    if ":" in "".join(names) or (num and num % 24 == 0 and 1440 % num == 0):
        pattern = re.sub(r"(?<=[.\[])[^.\[\]]+(?=\]?$)", "*", names[0])
        matches = [n for n in table.columns if fnmatchcase(n, pattern.replace("[", "[[]"))]
        loads = pattern if matches == names else ",".join(names)
        rule = "the numbers of a day may be of its hours, or of parts of an hour; write a time"
        stop(table, f"{rule} next to each, or pass arrivals={quoted(loads)} if each is of a node")


_IN_DAY = re.compile(r"(?:^|[^\d.][.\[])(?:hour|h)?_?\d[\d:h -]*\]?$", re.IGNORECASE)
"""The end of the name of a column that may be of a part of a day: 0, 00:00, h0 or values[0]."""

_MIDNIGHT = re.compile(r"[T ]00:00(?::00(?:\.0+)?)?(?:Z|\+00:00)?$")

_IN_LIST = re.compile(r"[^\]]\[\d+\]$")
"""The end of the name of a column with a number of a list, such as ``values[0]``."""


def is_json(path: Path, *, max_bytes: int) -> bool:
    """Return True if a file begins with a bracket of JSON."""
    return head_of(path, max_bytes=max_bytes).lstrip()[:1] in (b"{", b"[")


def begins_like_json(head: bytes) -> bool:
    """Return True if a file begins with an object, or with a list of objects or lists."""
    return re.match(rb"\s*(\{|\[\s*[\[{\]])", head) is not None


def is_lines(head: bytes) -> bool:
    """Return True if the first two lines of a file are JSON objects."""
    first, _, rest = head.partition(b"\n")
    return rest.lstrip()[:1] == b"{" and _is_object(first)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def load_json(path: Path, *, max_bytes: int) -> Any:
    """Return a JSON document. Raises TraceError for invalid, deep or large JSON."""
    content, marks = bytearray(), 0
    for piece in chunks(path, max_bytes=max_bytes, max_line=max_bytes):
        content += piece
        marks += sum(piece.count(mark) for mark in b"[{,:")
        if marks > MAX_MARKS:
            rule = f"more than {MAX_MARKS // 3:,} values; query a larger step, or a shorter time"
            raise fault_error(path, rule)
    if not content:
        raise fault_error(path, "the file is empty")
    try:
        return json.loads(content)
    except RecursionError:
        raise fault_error(path, "JSON nested too deeply") from None
    except ValueError as error:  # invalid JSON, invalid encoding, or a number with too many digits
        raise fault_error(path, f"invalid or truncated JSON: {error}") from None


def _lines(path: Path, notes: list[str], max_bytes: int) -> Iterator[Any]:
    for number, line in lines(path, max_bytes=max_bytes):
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                raise fault_error(path, "this line is not valid JSON", number) from None


# --- Columns -------------------------------------------------------------------------------------


def table_of_records(
    path: Path, rows: Iterable[Row], *, named: Collection[str] = (), max_cells: int = MAX_CELLS
) -> Table:
    """Return rows of path -> value as a table. A path loses its lists if the rest is unique.

    Raises TraceError for no rows, and more rows, columns or texts than the limits.
    """
    codes_of: dict[str, dict[Any, int]] = {}
    codes: dict[str, array[int]] = {}
    count = 0
    for count, row in enumerate(rows, 1):
        for name, cell in row.items():
            if isinstance(cell, str):
                cell = cell.strip()
            elif isinstance(cell, bool | list):
                cell = json.dumps(cell)
            column = codes.get(name)
            if column is None:
                column, codes_of[name] = codes.setdefault(name, array("i")), {}
            if len(column) < count - 1:
                column.extend([-1] * (count - 1 - len(column)))
            code = codes_of[name]
            column.append(code.setdefault(cell, len(code)))
        if count * max(LEAST_CELLS, len(codes)) > max_cells:
            raise fault_error(path, too_many_cells(max_cells))
        texts = 0 if count % 1000 else sum(map(len, codes_of.values()))
        if len(codes) > MAX_COLUMNS or texts > MAX_TEXTS:
            raise fault_error(path, "too many keys or different values; split the file")
    if not count:
        raise fault_error(path, "the JSON has no entries")
    short = Counter(map(_last, codes))
    columns = {}
    for name, column in codes.items():
        column.extend([-1] * (count - len(column)))
        of_row, cells = np.array(column, dtype=np.int32), list(codes_of[name])
        if (of_row < 0).any():
            of_row = np.where(of_row < 0, len(cells), of_row).astype(np.int32)
            cells.append(None)
        title = _last(name)
        title = title if name not in named and short[title] == 1 else name
        columns[title] = Column(title, of_row, cells)
    return Table(path, columns, np.arange(1, count + 1), None)


def _last(path: str) -> str:
    return path.rpartition("[].")[2].removesuffix("[]") or path


def _first_rows(table: Table) -> list[list[str]]:
    """Return the names and the first cells of all columns as text."""
    columns = list(table.columns.values())
    rows = [[str(c.cells[c.codes[row]]) for c in columns] for row in range(min(20, len(table)))]
    return [[*table.columns], *rows]


def _assign(table: Table, shape: Shape, named: Collection[str], *, check: bool) -> None:
    """Assign roles to the columns of a known answer. ``check`` its units if its load is used."""
    roles = {"time": shape.time, "node": shape.node, "arrivals": shape.value}
    for role, paths in roles.items():
        if present := [path for path in paths if path in table.columns]:
            table.roles[role] = present[0]
    if shape.time_format is not None:
        table.roles["time_format"] = shape.time_format
    for name, column in table.columns.items() if check else ():
        cells = [str(cell).lower() for cell in column.sample()]
        allowed = COUNTS.get(name.rpartition(".")[2].lower(), cells)
        if strange := [cell for cell in cells if cell not in allowed]:
            rule = f"{name} is {strange[0]!r}, so the values do not count requests. Export sums"
            raise fault_error(table.path, f"{rule}, or pass arrivals= to read a value as it is")
    if not shape.value:  # each entry is a request
        labels = [n for n in table.columns if n in named or n.startswith("stream.")]
        several = [n for n in labels if n in named or len(table.columns[n].cells) > 1]
        if len(several) > 1 and not set(named) & set(several):
            rule = f"several labels could name the node; pass {choose('node_column', several)}"
            stop(table, rule)
        used = [table.roles["time"], *(n for n in several if len(several) == 1 or n in named)]
        table.columns = {name: table.columns[name] for name in used}
        if len(used) > 1:
            table.roles["node"] = used[1]
