"""Read JSON and JSON lines as a table: each entry of the innermost list is a row.

A column has the name of its path: ``host``, ``request.host``, or ``data[].timeStamp`` with ``[]``
for a list. To add the answer of a program, insert a ``Shape`` into ``SHAPES``.
"""

from __future__ import annotations

import csv
import io
import json
import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from corral.data.headers import mentions_times
from corral.data.importers.tables.cells import MAX_COLUMNS, MAX_TEXTS, Column, Table
from corral.data.importers.tables.columns import choose, stop
from corral.data.importers.tables.times import UNDATED, style_of
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
    "flat",
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

PATHS = (
    "Pass the paths of times, nodes and loads, such as time_column='data[].timeStamp', "
    "node_column=host, arrivals='data[].total'"
)


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

Row = Mapping[str, Any]

LEAST_CELLS = 50
"""Minimum number of cells that an entry of JSON counts as: 500,000 entries by default."""


def read_json(
    path: Path,
    notes: list[str],
    *,
    time: str | None,
    named: Collection[str],
    has_arrivals: bool,
    max_bytes: int,
    max_cells: int,
) -> Table:
    """Return the entries of a JSON document, or of JSON lines, as a table.

    ``time`` is the path of the times, and ``named`` are all paths that the caller named, with the
    loads if ``has_arrivals``. Without ``time``, the answers in ``SHAPES`` are recognized.

    Raises TraceError for invalid JSON, without quoting it unless it holds times, and if several
    lists could hold the entries.
    """
    if is_lines(head_of(path, max_bytes=max_bytes)):
        weigh(path, max_bytes=max_bytes, max_cells=max_cells)
        document = _lines(path, notes, max_bytes)
    else:
        document = load_json(path, max_bytes=max_bytes)
    shape = None
    if isinstance(document, dict):
        shapes = [s for s in SHAPES if time is None or time in SHAPES[s].time]
        shape = next((s for s in shapes if any(_follow(document, SHAPES[s].time[-1]))), None)
    paths = {*named}
    if shape is not None:
        notes.append(f"{path.name}: read as the answer of {shape}")
        time = SHAPES[shape].time[-1]
        paths |= {*SHAPES[shape].time, *SHAPES[shape].value, *SHAPES[shape].node}
    chain = time[: time.rfind("[]") + 2] if time is not None and "[]" in time else None
    is_list = isinstance(document, list | Iterator)
    flatten = _Flatten(path, time, chain, paths)
    try:
        rows = (
            row
            for entry in (document if is_list else [document])
            for row in flatten.rows(entry, "[]" * isinstance(entry, list), {}, is_entry=is_list)
        )
        table = table_of_records(path, rows, named=paths, max_cells=max_cells)
    except RecursionError:
        raise fault_error(path, "JSON nested too deeply") from None
    if shape is not None:
        _assign(table, SHAPES[shape], named, check=not has_arrivals)
    elif not mentions_times(_csv_lines(table), mark=",", named=named):
        rule = "no entry of this JSON looks like a time, so its content is not shown"
        raise fault_error(path, f"{rule}. {PATHS}")
    return table


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


# --- Entries -------------------------------------------------------------------------------------


def flat(value: Any, path: str = "", lists: dict[str, list[Any]] | None = None) -> dict[str, Any]:
    """Return path -> value for the values in nested objects. Lists are added to ``lists``.

    A list of values in a list, such as [time, value], has the paths ``[][0]`` and ``[][1]``. An
    object with times as keys is a list of [time, value].
    """
    if isinstance(value, dict):
        leaves: dict[str, Any] = {}
        for key, item in value.items():
            name = f"{path}.{key}" if path else key
            item = list(map(list, item.items())) if _has_time_keys(item) else item
            if isinstance(item, dict | list):
                leaves |= flat(item, name, lists)
            else:
                leaves[name] = item
        return leaves
    if not isinstance(value, list):
        return {path: value}
    if path.endswith("[]") and not any(isinstance(item, dict | list) for item in value):
        return {f"{path}[{at}]": item for at, item in enumerate(value)}
    if lists is not None and value:
        lists[f"{path}[]"] = value
    return {}


@dataclass(frozen=True)
class _Flatten:
    """How the entries of a document become rows.

    ``chain`` is the list of the entries. Without it, the only list of objects or lists on each
    level is followed, down to an entry with the path ``time``. ``named`` are the paths that
    the caller named, which may be in other lists.
    """

    file: Path
    time: str | None
    chain: str | None
    named: Collection[str]

    def rows(self, value: Any, prefix: str, outer: Row, *, is_entry: bool) -> Iterator[Row]:
        """Yield a row for each entry in ``value``, with the values ``outer`` around it."""
        lists: dict[str, list[Any]] = {}
        row = {**outer, **flat(value, prefix, lists)}
        inner = self._inner(row, lists, is_entry) if lists else None
        if inner is None:
            if self.chain is None or prefix == self.chain:
                yield row
            return
        parallel = {}
        for name, key in ((n, k) for n in self.named for k in lists if n.startswith(k)):
            if key == inner:
                continue
            if name == key and not isinstance(lists[inner][0], dict | list):
                parallel[name] = lists[key]
                if len(lists[key]) != len(lists[inner]):
                    raise fault_error(self.file, f"the lists {name} and {inner} differ in length")
            else:
                row[name] = "/".join(map(str, _follow(lists[key], name[len(key) :].lstrip("."))))
        for at, item in enumerate(lists[inner]):
            values = {name: items[at] for name, items in parallel.items()}
            yield from self.rows(item, inner, {**row, **values}, is_entry=True)

    def _inner(self, row: Row, lists: Mapping[str, list[Any]], is_entry: bool) -> str | None:
        """Return the list with the entries of this level; None if the level is an entry."""
        if self.chain is not None:
            return next((key for key in lists if self.chain.startswith(key)), None)
        inner = [key for key, items in lists.items() if isinstance(items[0], dict | list)]
        if not inner or self.time in row:
            return None
        if len(inner) > 1:
            timed = [key for key in inner if _has_time(flat(lists[key][0], key))]
            inner = timed if len(timed) == 1 else inner
        if len(inner) > 1 or (is_entry and _has_time(row)):
            raise fault_error(self.file, f"several lists could hold the entries. {PATHS}")
        return inner[0]


def _has_time(row: Row) -> bool:
    return any(style_of([cell]) not in UNDATED for cell in row.values())


def _has_time_keys(value: Any) -> bool:
    if not isinstance(value, dict) or len(value) < 2 or not next(iter(value))[:1].isdigit():
        return False
    return style_of([*value][:9]) not in UNDATED


def _follow(value: Any, path: str) -> Iterator[Any]:
    """Yield the values at a path, such as ``items[].views``."""
    if isinstance(value, list) and (not path or path[0] != "["):
        for item in value:
            yield from _follow(item, path)
    elif not path:
        yield value
    elif match := re.match(r"\[(\d*)\]\.?|([^.\[]+)\.?", path):
        rest = path[match.end() :]
        if match[2] is not None:
            if isinstance(value, dict) and match[2] in value:
                yield from _follow(value[match[2]], rest)
        elif isinstance(value, list):
            items = value if not match[1] else value[int(match[1]) : int(match[1]) + 1]
            for item in items:
                yield from _follow(item, rest)


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
    short = Counter(name.rpartition("[].")[2] for name in codes)
    columns = {}
    for name, column in codes.items():
        column.extend([-1] * (count - len(column)))
        of_row, cells = np.array(column, dtype=np.int32), list(codes_of[name])
        if (of_row < 0).any():
            of_row = np.where(of_row < 0, len(cells), of_row).astype(np.int32)
            cells.append(None)
        title = name.rpartition("[].")[2]
        title = title if name not in named and short[title] == 1 else name
        columns[title] = Column(title, of_row, cells)
    return Table(path, columns, np.arange(1, count + 1), None)


def _csv_lines(table: Table) -> list[str]:
    """Return the first rows as lines of CSV."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(table.columns)
    for row in range(min(20, len(table))):
        writer.writerow([c.cells[c.codes[row]] for c in table.columns.values()])
    return text.getvalue().splitlines()


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
