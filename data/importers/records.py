"""Read CSV files row by row, in layouts other than the trace format."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from corral.data.fields import parse_instant
from corral.data.headers import mentions_times
from corral.data.source import HEAD, Faults, fault_error, head_of, lines, weigh
from corral.errors import TraceError

__all__ = ["find_column", "records", "require_times"]


def require_times(
    path: Path,
    *,
    max_bytes: int,
    named: Collection[str] = (),
    mark: str | None = None,
    encoding: str = "utf-8",
) -> None:
    """Raise TraceError, without quoting the file, if its first lines hold no times.

    ``named`` are the columns that the caller named. A file with one of them always passes. See
    ``mentions_times``.
    """
    head = head_of(path, max_bytes=max_bytes)
    rows = head.decode(encoding, errors="replace").splitlines()
    if len(head) == HEAD and len(rows) > 1:
        rows.pop()  # it may be incomplete
    if any(rows) and not mentions_times(rows, mark=mark, named=named):
        rule = (
            "no time column in the first lines. This does not look like a file of loads, so its "
            f"content is not shown. If it is one, run corral trace import {path} --time-column "
            "NAME --time-format FORMAT. If it has no header, pass --columns NAME,NAME. For a log, "
            "pass --pattern '(?P<time>[^ ]+) (?P<node>[^ ]+) .*'"
        )
        raise fault_error(path, rule)


def records(
    path: Path,
    faults: Faults,
    notes: list[str],
    *,
    max_bytes: int,
    max_cells: int,
    named: Collection[str] = (),
) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and fields of each row, beginning with the header.

    A row and the header must have the same length. Blank lines are allowed at the end. A last line
    without line end is accepted with a note, as public data sets have such files. Raises TraceError
    as ``chunks``, ``weigh`` and ``require_times`` do, and for an empty file. Other faults are added
    to ``faults``.
    """
    require_times(path, max_bytes=max_bytes, named=named)
    weigh(path, max_bytes=max_bytes, max_cells=max_cells)
    width = blank = 0
    for number, raw in lines(path, max_bytes=max_bytes):
        try:
            line = raw.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            faults.add("not UTF-8: save the file as UTF-8", number)
            continue
        if not line:
            blank = blank or number
            continue
        if blank:
            faults.add("blank line in the middle of the file; remove it", blank)
            blank = 0
        if not raw.endswith(b"\n"):
            notes.append(f"{path.name}: the last line has no line end; it was read as complete")
        try:
            fields = next(csv.reader([line], strict=True)) if '"' in line else line.split(",")
        except csv.Error as error:
            faults.add(
                f"invalid quotes ({error}); quote whole fields, and double the quotes inside them",
                number,
                value=line,
            )
            continue
        width = width or len(fields)
        if len(fields) == width:
            yield number, fields
        else:
            faults.add(f"{len(fields)} fields, the header has {width}", number, value=line)
    if not width:
        faults.add("the file is empty")
    faults.check()


def find_column(header: Sequence[str], requested: str | None, default: int, faults: Faults) -> int:
    """Return the index of column ``wanted``, or ``default`` if it is None.

    Raises TraceError for a missing column.
    """
    if any(parse_instant(name, "Z") for name in header):
        faults.add(
            "missing header: this is a row of data; add a header line", 1, value=",".join(header)
        )
        faults.check()
    if requested is None and default < len(header):
        return default
    if requested is not None and header.count(requested) == 1:
        return header.index(requested)
    missing = "another column is required" if requested is None else f"no column {requested!r}"
    similar = difflib.get_close_matches(requested or "", header, n=1)
    hint = f"; did you mean {similar[0]!r}?" if similar else ""
    faults.add(f"{missing}; the header has: {', '.join(header)}{hint}", 1)
    raise TraceError(faults.faults)
