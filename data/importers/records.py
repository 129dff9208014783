"""Rows of CSV files in other shapes than a trace file's, one at a time."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path

from corral.data.fields import parse_instant
from corral.data.source import Faults, lines
from corral.errors import TraceError

__all__ = ["IMPORT_BYTES", "find_column", "records"]

IMPORT_BYTES = 2**33
"""Default limit on an imported file after unpacking: 8 GiB; it is read row by row."""


def records(
    path: Path, faults: Faults, notes: list[str], *, max_bytes: int
) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields of each row, the header first; rows as long as the header only.

    Blank lines are allowed at the end. A last line without line end is taken as complete, and
    noted: public data sets have such files. Raises TraceError as ``chunks`` does, and where the
    file is empty; other faults go to ``faults``.
    """
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
