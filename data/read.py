"""Read a load trace from a CSV file, strictly: every cell is used unchanged, or refused.

``scan`` reads plain files quickly. For all other files, the reader in this module reads line by
line, and explains each fault. Both readers end with the same checks across rows.
"""

from __future__ import annotations

import csv
import io
import os
import re
from array import array
from contextlib import nullcontext
from functools import cache
from importlib.resources import as_file
from pathlib import Path

import numpy as np

from corral.data.checks import Table, assemble
from corral.data.fields import (
    Clock,
    count_rule,
    name_rule,
    parse_count,
    parse_time,
    time_rule,
)
from corral.data.headers import (
    COLUMNS,
    HEADERS,
    delimiter,
    foreign_rule,
    header_rule,
    looks_like_a_trace,
    unlike_rule,
)
from corral.data.scan import scan
from corral.data.source import (
    CHUNK,
    MAX_BYTES,
    MAX_CELLS,
    MAX_LINE,
    MAX_NODES,
    Faults,
    bundled_files,
    chunks,
    fault_error,
    too_many_cells,
)
from corral.data.trace import Counts, Trace
from corral.errors import Fault, TraceError, UnknownNameError
from corral.progress import Progress, progress_to, report_progress

__all__ = [
    "COLUMNS",
    "MAX_CELLS",
    "bundled",
    "load_bytes",
    "load_trace",
    "read_trace",
    "split_row",
    "trace_name",
]

# A row with quotes as in RFC 4180: around whole fields, doubled inside.
_QUOTED_ROW = re.compile(r'(?:"(?:[^"]|"")*"|[^",]*)(?:,(?:"(?:[^"]|"")*"|[^",]*))*')
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def read_trace(
    path: str | Path,
    *,
    max_cells: int = MAX_CELLS,
    max_bytes: int = MAX_BYTES,
    max_nodes: int = MAX_NODES,
    progress: Progress | None = None,
) -> Trace:
    """Return the trace in the CSV file ``path``, plain or gzip (by content, not by name).

    The header is ``time,node,arrivals`` or ``time,node,arrivals,capacity``. Each row holds the
    number of requests that arrive at a node in the step from a time on, and the number that the
    node can serve. Every node needs one row for every time. Times are whole numbers or ISO-8601
    (UTC without a zone), with one constant step. Counts are plain digits, 0 .. 2**31. Nodes keep
    the order of their first rows. ``corral/data/README.md`` specifies the format.

    Nothing is dropped, filled or rounded. The last line must end with a line end: otherwise a file
    that is cut inside its last number would look complete. Blank lines are allowed only at the end.

    Limits apply while the file is read, before memory fills. ``max_cells`` limits rows x columns,
    counting at least four per row. ``max_bytes`` limits the bytes after unpacking, ``max_nodes``
    the nodes. With the default limits, no file takes more than 1 GB of memory. ``progress`` is
    called with the current activity, the bytes read, and the bytes in total.

    Raises TraceError with ``faults``: the line, column, value and rule of the first few faults.
    Warns (TraceWarning) if rows had to be sorted by time.
    """
    path = Path(path)
    file = str(path)
    with progress_to(progress) if progress is not None else nullcontext():
        with progress_to(None):  # quick: only the parsing below reports its progress
            data = load_bytes(path, max_cells, max_bytes)
        try:
            table = scan(data, file=file, max_nodes=max_nodes)
            if table is None:
                table = _Careful(file, max_nodes).read(data)
        finally:
            report_progress("reading", len(data), len(data))  # the last report
    return assemble(table, data, name=trace_name(path))


def bundled() -> tuple[str, ...]:
    """Return the names of the traces that come with the package, for ``load_trace``."""
    return tuple(bundled_files())


def load_trace(source: str | os.PathLike[str] | Trace) -> Trace:
    """Return the trace of ``source``: a bundled name, the path of a CSV file, or a Trace.

    A text other than a bundled name is a path if it has a folder or a suffix, or if the file
    exists. Write ``./edge3`` for a file with the name of a bundled trace.

    Raises UnknownNameError for a text that is neither a name nor a path, TraceError for a missing
    or invalid file. Bundled traces are read once and cached.
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


def trace_name(path: Path) -> str:
    """Return the name of a file without its folder and without .csv, .gz or .csv.gz."""
    name = path.name.removesuffix(".gz")
    return name.removesuffix(".csv") or path.name


def load_bytes(
    path: Path, max_cells: int, max_bytes: int, *, least_cells: int = len(COLUMNS)
) -> bytes:
    """Return all bytes of the file, without blank lines at its end.

    A row counts as at least ``least_cells`` cells. Raises TraceError as soon as the file exceeds a
    limit, and as ``chunks`` does.
    """
    pieces: list[bytes] = []
    rows, columns = 0, 1
    for piece in chunks(path, max_bytes=max_bytes):
        if not rows:
            columns += piece.partition(b"\n")[0].count(b",")
        pieces.append(piece)
        rows += piece.count(b"\n")
        if (rows - 1) * max(least_cells, columns) > max_cells:
            raise fault_error(path, too_many_cells(max_cells))
    data = b"".join(pieces)
    del pieces
    end = len(data)  # skips blank lines at the end
    while end:
        piece = data[max(0, end - CHUNK) : end]
        end -= len(piece) - len(piece.rstrip(b"\r\n"))
        if not piece.endswith((b"\r", b"\n")) or piece.strip(b"\r\n"):
            break
    return data[: end + (2 if data.startswith(b"\r\n", end) else 1)]


def split_row(raw: bytes, number: int, faults: Faults) -> list[str] | None:
    """Return the fields of line ``number``. If the line is faulty, add a fault and return None."""
    if len(raw) > MAX_LINE:
        faults.add(f"this line is longer than {MAX_LINE} bytes, the limit", number)
        return None
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        bad = raw[error.start : error.start + 4]
        faults.add("not UTF-8: save the file as UTF-8", number, value=repr(bad))
        return None
    line = text.removesuffix("\n").removesuffix("\r")
    control = _CONTROL.search(line)
    if not text.endswith("\n") and "\r" not in line:
        rule = (
            "the last line has no line end, so its last number may be cut; "
            "if the file is complete, add a line end: echo >> FILE"
        )
        faults.add(rule, number, value=line)
    elif not line.strip():
        faults.add("blank line; remove it", number)
    elif control and not (control[0] == "\t" and "," not in line):
        rule = "a control character, such as a tab or a carriage return; remove it"
        faults.add(rule, number, value=line)
    elif '"' not in line:
        return line.split(",")
    elif not _QUOTED_ROW.fullmatch(line):
        rule = "an open or stray quote; quote whole fields on one line, and double quotes inside"
        faults.add(rule, number, value=line)
    else:
        return next(csv.reader([line]))
    return None


class _Careful:
    """Reads a file line by line, and collects its faults."""

    def __init__(self, file: str, max_nodes: int = MAX_NODES) -> None:
        self.faults = Faults(file)
        self.max_nodes = max_nodes
        self.rows: list[str] = []  # the first few, for errors about the header
        self.columns: tuple[str, ...] = COLUMNS
        self.clock: Clock | None = None
        self.codes: dict[str, int] = {}  # node -> its number, by first appearance
        self.time, self.node = array("q"), array("q")
        self.counts = {"arrivals": array("q"), "capacity": array("q")}

    def read(self, data: bytes) -> Table:
        """Return the rows of ``data``. Raises TraceError with the first few faults."""
        if not data.strip(b"\r\n"):
            self.faults.add("the file is empty; it needs a header and rows")
            self.faults.check()
        number = 0
        self.rows = data[:MAX_LINE].decode(errors="replace").splitlines()[:20]
        header = self.rows[0].split(",")
        if tuple(header) not in HEADERS:
            rule = foreign_rule(self.rows[0], self.faults.file)
            quoted = looks_like_a_trace(self.rows)
            if rule is not None or not quoted:
                value = self.rows[0] if quoted else None
                self.faults.add(rule or unlike_rule(self.faults.file), 1, value=value)
                self.faults.check()
        done = 0
        for number, raw in enumerate(io.BytesIO(data), start=1):
            self._line(number, raw)
            done += len(raw)
            if number % 10_000 == 0 or done == len(data):
                report_progress("reading", done, len(data))
            if number == 1:  # a wrong header makes every row a fault, so report it alone
                self.faults.check()
        if number == 1:
            self.faults.add("only a header: the file needs rows below it")
        self.faults.check()
        assert self.clock is not None  # a row without a time is a fault
        return Table(
            file=self.faults.file,
            nodes=tuple(self.codes),
            clock=self.clock,
            time=_column(self.time),
            node=_column(self.node),
            arrivals=_column(self.counts["arrivals"]),
            capacity=_column(self.counts["capacity"]) if "capacity" in self.columns else None,
        )

    def _line(self, number: int, raw: bytes) -> None:
        fields = split_row(raw, number, self.faults)
        if fields is None:
            return None
        return self._header(fields) if number == 1 else self._row(number, fields)

    def _header(self, header: list[str]) -> None:
        if tuple(header) in HEADERS:
            self.columns = tuple(header)
            return
        rule = header_rule(header, self.rows[:6], self.faults.file)
        self.faults.add(rule, 1, value=",".join(header))

    def _row(self, number: int, fields: list[str]) -> None:
        if len(fields) != len(self.columns):
            rule = f"{len(fields)} fields, the header has {len(self.columns)}{delimiter(fields)}"
            return self.faults.add(rule, number, value=",".join(fields))
        time, node, *counts = fields
        self._time(number, time)
        name_fault = name_rule(node)
        if name_fault is not None:
            self.faults.add(name_fault, number, "node", node)
        self.node.append(self.codes.setdefault(node, len(self.codes)))
        if len(self.codes) > self.max_nodes:
            rule = (
                f"this is node {len(self.codes):,}; the column may hold request ids. If the file "
                f"has this many nodes, pass max_nodes above {self.max_nodes:,}"
            )
            raise TraceError([Fault(self.faults.file, rule, number, "node", node)])
        for column, text in zip(self.columns[2:], counts, strict=True):
            value = parse_count(text)
            if value is None:
                self.faults.add(count_rule(text), number, column, text)
            self.counts[column].append(value or 0)
        return None

    def _time(self, number: int, text: str) -> None:
        parsed = parse_time(text)
        if parsed is None:
            return self.faults.add(time_rule(text), number, "time", text)
        clock, value = parsed
        if self.clock is None:
            self.clock = clock
        if clock != self.clock:
            first = "integers" if self.clock == "integer" else "ISO-8601"
            rule = f"times were {first} so far; use one kind in the whole file"
            return self.faults.add(rule, number, "time", text)
        return self.time.append(value)


def _column(values: array[int]) -> Counts:
    return np.frombuffer(values, dtype=np.int64)
