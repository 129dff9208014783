"""Rows of CSV files in other shapes than a trace file's, one at a time."""

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
    """Raise TraceError, which quotes nothing, where a file has no times in its first lines.

    ``named`` are the columns that the caller named; a file that has one of them is what it should
    be. See ``mentions_times``.
    """
    head = head_of(path, max_bytes=max_bytes)
    rows = head.decode(encoding, errors="replace").splitlines()
    if len(head) == HEAD and len(rows) > 1:
        rows.pop()  # is cut
    if any(rows) and not mentions_times(rows, mark=mark, named=named):
        rule = (
            "no column of times in its first lines: this does not look like a file of loads, so "
            f"nothing of it is quoted; if it is one: corral trace import {path} --time-column NAME "
            "--time-format FORMAT"
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
    """Yield line number and fields of each row, the header first; rows as long as the header only.

    Blank lines are allowed at the end. A last line without line end is taken as complete, and
    noted: public data sets have such files. Raises TraceError as ``chunks``, ``weigh`` and
    ``require_times`` do, and where the file is empty; other faults go to ``faults``.
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
            notes.append(f"{path.name}: the last line has no line end; it was taken as complete")
        try:
            fields = next(csv.reader([line], strict=True)) if '"' in line else line.split(",")
        except csv.Error as error:
            faults.add(f"quotes are not in order ({error})", number, value=line)
            continue
        width = width or len(fields)
        if len(fields) == width:
            yield number, fields
        else:
            faults.add(f"{len(fields)} fields, the header has {width}", number, value=line)
    if not width:
        faults.add("the file is empty")
    faults.check()


def find_column(header: Sequence[str], wanted: str | None, default: int, faults: Faults) -> int:
    """Return the index of column ``wanted``; None: ``default``. Raises TraceError if missing."""
    if any(parse_instant(name, "Z") for name in header):
        faults.add("a header is needed, this is a row of data", 1, value=",".join(header))
        faults.check()
    if wanted is None and default < len(header):
        return default
    if wanted is not None and header.count(wanted) == 1:
        return header.index(wanted)
    missing = "another column is needed" if wanted is None else f"no column {wanted!r}"
    close = difflib.get_close_matches(wanted or "", header, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    faults.add(f"{missing}, the header has: {', '.join(header)}{hint}", 1)
    raise TraceError(faults.found)
