"""The requests of a load one by one: the time, the node and optionally the work of each request."""

from __future__ import annotations

import io
import math
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corral.data.fields import name_rule
from corral.data.read import load_bytes, split_row
from corral.data.scan import unquoted
from corral.data.source import (
    CHUNK,
    LEAST_CELLS,
    MAX_BYTES,
    MAX_CELLS,
    MAX_NODES,
    Faults,
    fault_error,
)
from corral.data.trace import Counts, Trace, is_name
from corral.data.write import check_csv_path, quoted, write_csv
from corral.errors import Fault, TraceError
from corral.progress import progress_to, report_progress

__all__ = [
    "END_OF_TIME",
    "WORK_RULE",
    "RequestLog",
    "RequestWindow",
    "parse_work",
    "read_request_log",
    "write_request_log",
]

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int32]

END_OF_TIME = 2**33
"""Limit on times, in seconds since 1970 (year 2242). Below it, float64 resolves microseconds."""

HEADERS = ([b"time", b"node"], [b"time", b"node", b"work"])
SOURCE = "request log"  # the file name in errors about a log in memory
ROWS = 100_000  # rows that are formatted at once

# Numbers of limited length, because a long number takes long to parse.
_TIME = r"[0-9]{1,10}(?:\.[0-9]{1,6})?"
_WORK = r"[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?"
_NODE = r'[^,"\x00-\x1f]{1,64}'
_PLAIN_ROWS = {
    2: re.compile(rf"(?:{_TIME},{_NODE}\n)*+".encode()),
    3: re.compile(rf"(?:{_TIME},{_NODE},{_WORK}\n)*+".encode()),
}
"""Number of columns -> whole lines without quotes."""

TIME_RULE = "not seconds since 1970 with at most 6 decimals, such as 1767571200.25"
WORK_RULE = "the work of a request must be a finite number above 0"


class RequestWindow(NamedTuple):
    """The R requests of some rows of a trace, in order of time."""

    step: Counts  # [R] int64: row of the trace
    node: Counts  # [R] int64: index into the nodes of the trace
    offset: Floats  # [R]: time since the start of the step, in steps: 0 <= offset < 1
    work: Floats | None  # [R]: as in the log


@dataclass(frozen=True, eq=False, repr=False)
class RequestLog:
    """R requests in order of time, as read-only arrays.

    ``node`` is int32 [R] and indexes ``nodes``. ``time`` is float64 [R], in seconds since
    1970-01-01 UTC, and never decreases. ``work`` is float64 [R], positive and finite, in any unit;
    None for requests of unknown work.

    Raises TraceError for disagreeing shapes, an empty log, a time before 1970, after 2242 or before
    the previous time, and a work other than a finite number above 0. The error has the first such
    row, counted from 0. Node names must not be empty, repeated, unprintable or surrounded by space.
    """

    nodes: tuple[str, ...]
    node: Indices
    time: Floats
    work: Floats | None = None

    def __post_init__(self) -> None:
        node = np.asarray(self.node)
        object.__setattr__(self, "nodes", tuple(self.nodes))
        object.__setattr__(self, "time", _frozen(np.array(self.time, dtype=np.float64)))
        if self.work is not None:
            object.__setattr__(self, "work", _frozen(np.array(self.work, dtype=np.float64)))
        self._check(node)
        object.__setattr__(self, "node", _frozen(node.astype(np.int32)))

    def _check(self, node: npt.NDArray[np.integer]) -> None:
        if self.time.shape == (0,):
            raise fault_error(SOURCE, "a request log needs at least one request")
        if self.time.ndim != 1:
            raise fault_error(SOURCE, f"time must have 1 dimension, not {self.time.ndim}")
        for name, values in (("node", node), ("work", self.work)):
            if values is not None and values.shape != self.time.shape:
                raise fault_error(
                    SOURCE, f"{name} has shape {values.shape}, but time has {self.time.shape}"
                )
        if node.dtype.kind not in "iu":
            raise fault_error(SOURCE, f"node must be whole numbers, not {node.dtype}")
        bad = [name for name in self.nodes if not is_name(name)]
        if bad:
            raise fault_error(
                SOURCE, f"node names must be printable, without space around: {bad[:3]}"
            )
        if len(set(self.nodes)) != len(self.nodes):
            raise fault_error(SOURCE, f"node names must differ: {list(self.nodes)}")
        outside = (node < 0) | (node >= len(self.nodes))
        if outside.any():
            row = int(outside.argmax())
            rule = f"row {row}: an index of nodes must be 0 .. {len(self.nodes) - 1}"
            raise TraceError([Fault(SOURCE, rule, column="node", value=str(node[row]))])
        wrong = _first_wrong_row(self.time, self.work)
        if wrong is not None:
            row, column, value, rule = wrong
            raise TraceError([Fault(SOURCE, f"row {row}: {rule}", column=column, value=value)])

    def __len__(self) -> int:
        """Return the number of requests, R."""
        return len(self.time)

    def __repr__(self) -> str:
        work = "no work" if self.work is None else "work"
        return f"<RequestLog: {len(self):,} requests of {len(self.nodes)} nodes, {work}>"

    def check_counts(self, trace: Trace) -> None:
        """Raise TraceError unless the log has the arrivals of ``trace`` in all steps and nodes.

        Nodes are compared as in ``window``. Requests before and after the trace are ignored.
        """
        self.window(trace, 0, len(trace))

    def window(self, trace: Trace, low: int, high: int) -> RequestWindow:
        """Return the requests of the rows low, low + 1, ... high - 1 of ``trace``.

        Log and trace must have the same nodes, in any order. Only a node without arrivals may be
        absent from the log. Requests with equal times are in the order of the log.

        Raises TraceError if the trace has no UTC clock or a single step, if nodes differ, or if
        the numbers of requests of a node in a step differ. Raises ValueError if the trace does not
        have these rows.
        """
        if not 0 <= low < high <= len(trace):
            raise ValueError(
                f"rows {low}..{high} must be within 0..{len(trace)}, the rows of the trace"
            )
        index_of = self._indices(trace)  # [nodes of the log]
        length, num_nodes = trace.step, len(trace.nodes)
        begin, end = int(trace.times[low]), int(trace.times[high - 1]) + length
        first, last = np.searchsorted(self.time, [begin, end])
        time = self.time[first:last]
        whole = np.floor(time)
        seconds = whole.astype(np.int64) - begin
        step, node = seconds // length, index_of[self.node[first:last]]
        offset = np.minimum((seconds % length + (time - whole)) / length, np.nextafter(1, 0))
        counts = np.bincount(step * num_nodes + node, minlength=(high - low) * num_nodes)
        counts = counts.reshape(high - low, num_nodes)
        differs = counts != trace.arrivals[low:high]
        if differs.any():
            at, n = divmod(int(differs.argmax()), num_nodes)
            raise fault_error(
                trace.name,
                f"node {trace.nodes[n]!r} has {trace.arrivals[low + at, n]:,} arrivals in the step "
                f"at {trace.clock_text(low + at)}, but {counts[at, n]:,} requests in the request "
                "log. Write both files with one import: corral trace import requests FILE --out "
                "LOADS.csv --keep-requests REQUESTS.csv",
            )
        work = None if self.work is None else self.work[first:last]
        return RequestWindow(step + low, node, offset, work)

    def _indices(self, trace: Trace) -> Counts:
        """Return the index of each node of the log among the nodes of ``trace``."""
        if trace.clock != "utc":
            rule = "its times are integers; a request log needs a trace with UTC times"
            raise fault_error(trace.name, rule)
        if len(trace) == 1:
            rule = "it has one step, of unknown length; a request log needs two steps or more"
            raise fault_error(trace.name, rule)
        totals = trace.arrivals.sum(axis=0)
        active = {node for node, total in zip(trace.nodes, totals, strict=True) if total}
        if not active <= set(self.nodes) <= set(trace.nodes):
            raise fault_error(
                trace.name,
                f"its nodes are {_listed(trace.nodes)}, but those of the request log are "
                f"{_listed(self.nodes)}; they must be the same, in any order",
            )
        index_of = {node: index for index, node in enumerate(trace.nodes)}
        return np.array([index_of[node] for node in self.nodes], dtype=np.int64)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "")


def _frozen(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    values.flags.writeable = False
    return values


def _first_wrong_row(time: Floats, work: Floats | None) -> tuple[int, str, str, str] | None:
    """Return row, column, value and rule of the first invalid time or work; None without any."""
    in_range = (time >= 0) & (time < END_OF_TIME)
    in_order = np.append(True, ~(time[1:] < time[:-1]))
    has_work = np.True_ if work is None else (work > 0) & (work < math.inf)
    valid = in_range & in_order & has_work  # [R]
    if valid.all():
        return None
    row = int(valid.argmin())
    if not in_range[row]:
        rule = "times must be in the years 1970 to 2242; check the time"
        return row, "time", _number(time[row]), rule
    if not in_order[row]:
        previous = _number(time[row - 1])
        rule = f"before {previous}, the time of the previous row; sort the rows by time"
        return row, "time", _number(time[row]), rule
    assert work is not None
    return row, "work", _number(work[row]), WORK_RULE


def _number(value: float) -> str:
    """Return the shortest text that float() reads as ``value``."""
    return repr(float(value)).removesuffix(".0")


def parse_work(text: str) -> float | None:
    """Return the finite number, 0 or more, in ``text``, or None for any other text."""
    value = float(text) if re.fullmatch(_WORK, text) else math.inf
    return value if value < math.inf else None


# --- Writing -------------------------------------------------------------------------------------


def write_request_log(log: RequestLog, path: str | Path, *, overwrite: bool = False) -> None:
    """Write ``log`` to ``path``: as text for the suffix ``.csv``, packed for ``.csv.gz``.

    Times are rounded to microseconds, but never to the next second. ``read_request_log`` returns
    the same requests, with nodes in the order of their first requests. The file is written
    completely or not at all. An existing link is replaced, not followed.

    Raises FileExistsError if ``path`` exists and ``overwrite`` is not set, ValueError for another
    suffix.
    """
    path = Path(path)
    check_csv_path(path, overwrite=overwrite)
    write_csv(path, b"".join(_pieces(log)))


def _pieces(log: RequestLog) -> Iterator[bytes]:
    """Yield the lines of a log in pieces, because lists of texts take several times their size."""
    yield b"time,node\n" if log.work is None else b"time,node,work\n"
    names = [quoted(name) for name in log.nodes]
    for low in range(0, len(log), ROWS):
        rows = slice(low, low + ROWS)
        seconds = np.floor(log.time[rows])
        micros = np.minimum(np.rint((log.time[rows] - seconds) * 1e6), 999_999)
        lines = [
            f"{second:.0f}.{micro:06.0f}".rstrip("0") if micro else f"{second:.0f}"
            for second, micro in zip(seconds.tolist(), micros.tolist(), strict=True)
        ]
        nodes = log.node[rows].tolist()
        lines = [f"{line},{names[node]}" for line, node in zip(lines, nodes, strict=True)]
        if log.work is not None:
            works = log.work[rows].tolist()
            lines = [f"{line},{_number(work)}" for line, work in zip(lines, works, strict=True)]
        yield ("\n".join(lines) + "\n").encode()


# --- Reading -------------------------------------------------------------------------------------


def read_request_log(
    path: str | Path,
    *,
    max_cells: int = MAX_CELLS,
    max_bytes: int = MAX_BYTES,
    max_nodes: int = MAX_NODES,
) -> RequestLog:
    """Return the request log in the CSV file ``path``, plain or gzip (by content, not by name).

    The header is ``time,node`` or ``time,node,work``. Times are seconds since 1970-01-01 UTC with
    at most 6 decimals, and never decrease. Works are numbers above 0. Nodes are in the order of
    their first requests. ``corral/data/README.md`` specifies the format.

    The limits are those of ``import_requests``: a row counts as at least ten cells, so the default
    limits allow 2.5 million requests.

    Raises TraceError with ``faults``: the line, column, value and rule of the first few faults.
    """
    path = Path(path)
    with progress_to(None):  # quick: only the parsing below reports its progress
        data = load_bytes(path, max_cells, max_bytes, least_cells=LEAST_CELLS)
    try:
        return _Reader(str(path), max_nodes).read(data)
    finally:
        report_progress("reading", len(data), len(data))  # the last report


class _Reader:
    """Reads a file block by block: plain blocks at once, other blocks line by line."""

    def __init__(self, file: str, max_nodes: int) -> None:
        self.faults = Faults(file)
        self.max_nodes = max_nodes
        self.codes: dict[str, int] = {}  # node -> its number, by first appearance

    def read(self, data: bytes) -> RequestLog:
        """Return the log in ``data``. Raises TraceError with the first few faults."""
        begin = data.find(b"\n") + 1 or len(data)
        columns = self._columns(data[:begin])
        parts: list[tuple[Floats, Indices, Floats]] = []
        number = 2  # of the first line of a block
        while begin < len(data):
            report_progress("reading", begin, len(data))
            end = data.rfind(b"\n", begin, begin + CHUNK) + 1
            end = end or data.find(b"\n", begin) + 1 or len(data)
            block = data[begin:end]
            parts.append(self._plain(block, columns) or self._careful(block, columns, number))
            begin, number = end, number + block.count(b"\n")
        self.faults.check()
        if not parts:
            raise fault_error(self.faults.file, "only a header: the file needs rows below it")
        time = np.concatenate([part[0] for part in parts])
        node = np.concatenate([part[1] for part in parts])
        work = np.concatenate([part[2] for part in parts]) if columns == 3 else None
        wrong = _first_wrong_row(time, work)
        if wrong is not None:
            row, column, value, rule = wrong
            self.faults.add(rule, row + 2, column, value)
            self.faults.check()
        return RequestLog(tuple(self.codes), node, time, work)

    def _columns(self, line: bytes) -> int:
        """Return the number of columns. Raises TraceError for a header of another format."""
        header = line.rstrip(b"\r\n").split(b",")
        if header in HEADERS:
            return len(header)
        if not line.strip():
            rule = "the file is empty; it needs a header and rows"
        elif line.startswith(b"time,node,arrivals"):
            rule = "this is a trace, with the number of requests per step, not a request log"
        else:  # the line is not quoted, because this may be any file
            rule = (
                "the first line of a request log is time,node or time,node,work. To convert a file "
                "with one row per request, run corral trace import requests FILE --step 60 --out "
                "LOADS.csv --keep-requests REQUESTS.csv"
            )
        raise fault_error(self.faults.file, rule, 1)

    def _plain(self, block: bytes, columns: int) -> tuple[Floats, Indices, Floats] | None:
        """Return time, node and work of whole lines; None if the careful reader must read them.

        Without a work column, the array of works is empty.
        """
        block = block.replace(b"\r\n", b"\n")
        has_quotes = b'"' in block
        plain = unquoted(block) if has_quotes else block
        if plain is None or not _PLAIN_ROWS[columns].fullmatch(plain):
            return None
        cells = plain.replace(b"\n", b",").split(b",")[:-1]
        names = cells[1::columns]
        comma = "\x7f" if has_quotes else ","  # in a name
        try:
            distinct = {name: name.decode().replace(comma, ",") for name in dict.fromkeys(names)}
        except UnicodeDecodeError:
            return None
        new = [name for name in distinct.values() if name not in self.codes]
        if not all(map(is_name, new)) or len(self.codes) + len(new) > self.max_nodes:
            return None
        for name in new:
            self.codes[name] = len(self.codes)
        code_of = {cell: self.codes[name] for cell, name in distinct.items()}
        node = np.fromiter(map(code_of.__getitem__, names), np.int32, len(names))
        time = np.fromiter(map(float, cells[::columns]), np.float64, len(names))
        works = cells[2::3] if columns == 3 else []
        return time, node, np.fromiter(map(float, works), np.float64, len(works))

    def _careful(self, block: bytes, columns: int, number: int) -> tuple[Floats, Indices, Floats]:
        """Return the same for the lines from line ``number`` on, and collect their faults."""
        times, nodes, works = array("d"), array("i"), array("d")
        for line, raw in enumerate(io.BytesIO(block), start=number):
            fields = split_row(raw, line, self.faults)
            if fields is None:
                continue
            if len(fields) != columns:
                rule = f"{len(fields)} fields, the header has {columns}"
                self.faults.add(rule, line, value=",".join(fields))
                continue
            time, name = fields[:2]
            if re.fullmatch(_TIME, time):
                times.append(float(time))
            else:
                self.faults.add(TIME_RULE, line, "time", time)
            name_fault = name_rule(name)
            if name_fault is not None:
                self.faults.add(name_fault, line, "node", name)
            nodes.append(self.codes.setdefault(name, len(self.codes)))
            if len(self.codes) > self.max_nodes:
                rule = (
                    f"this is node {len(self.codes):,}; the column may hold request ids. If the "
                    f"file has this many nodes, pass max_nodes above {self.max_nodes:,}"
                )
                raise TraceError([Fault(self.faults.file, rule, line, "node", name)])
            if columns == 3:
                work = parse_work(fields[2])
                if work:
                    works.append(work)
                else:
                    self.faults.add(WORK_RULE, line, "work", fields[2])
        return (
            np.frombuffer(times, dtype=np.float64),
            np.frombuffer(nodes, dtype=np.int32),
            np.frombuffer(works, dtype=np.float64),
        )
