"""Why the header of a trace file is refused, and what reads a file that is no trace file."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Sequence

from corral.data.fields import parse_instant, parse_time

__all__ = ["COLUMNS", "delimiter", "foreign_rule", "header_rule"]

COLUMNS = ("time", "node", "arrivals", "capacity")

WANTED = "the header must be time,node,arrivals or time,node,arrivals,capacity"
MANY = 3  # remarks on names
_NUMBER = re.compile(r"\s*-?[0-9][0-9.,]*(?:e[+-]?[0-9]+)?\s*[A-Za-zµ%/]*\s*", re.ASCII)
_LOG = re.compile(r"\[[0-9]{2}/[A-Z][a-z]{2}/[0-9]{4}:")


def foreign_rule(line: str, file: str) -> str | None:
    """Return what ``line``, the first of ``file``, shows this file to be; None: it may be CSV."""
    importer = f"corral trace import {file}"
    if line.lstrip()[:1] in ("{", "["):
        return f"this is JSON, no CSV file: {importer} reads what Prometheus gives"
    if _LOG.search(line):
        return f"{WANTED}; this looks like an access log, which {importer} reads"
    hint = delimiter([line] if "," not in line else [])
    return f"{WANTED}{hint}, or try {importer}" if hint else None


def header_rule(found: Sequence[str], rows: Sequence[str], file: str) -> str:
    """Return why ``found`` is no header, and what to do.

    ``rows`` are the first lines of ``file``, the header's first.
    """
    if parse_time(found[0]):
        return f"{WANTED}; this looks like a row of data: put the header above it"
    repeated = [name for name, times in Counter(found).items() if times > 1]
    if repeated:
        return f"{WANTED}; {min(repeated)!r} stands there more than once"
    if set(found) in (set(COLUMNS), set(COLUMNS[:3])):
        return f"{WANTED}; put the columns into this order"
    unknown = [name for name in found if name not in COLUMNS]
    close = {name: _nearest(name) for name in unknown[:MANY]}
    remarks = [
        f"{name!r} is unknown" + (f", did you mean {meant!r}?" if meant else "")
        for name, meant in close.items()
    ]
    if len(unknown) > MANY:
        remarks.append(f"so are {len(unknown) - MANY:,} more names")
    missing = [name for name in COLUMNS[:3] if name not in found]
    if missing:
        remarks.append(f"missing: {', '.join(missing)}")
    if missing and set(missing) - set(close.values()):  # more than a slip of the pen
        remarks.append(f"{_shape(found, rows[1:])}: corral trace import {file}")
    return f"{WANTED}; {'; '.join(remarks)}"


def delimiter(fields: Sequence[str]) -> str:
    """Return a hint where the fields seem to be separated by something else than commas."""
    for mark, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if len(fields) == 1 and mark in fields[0]:
            return f"; {name} separate the fields: use commas"
    return ""


def _nearest(name: str) -> str | None:
    close = difflib.get_close_matches(name.strip().lower(), COLUMNS, n=1, cutoff=0.6)
    return close[0] if close else None


def _shape(header: Sequence[str], rows: Sequence[str]) -> str:
    """Return what kind of table this looks like, by the cells of its first rows."""
    cells = [row.split(",") for row in rows[:5]]
    columns = list(zip(*(row for row in cells if len(row) == len(header)), strict=True))
    times = [column for column in columns if all(_is_time(cell) for cell in column)]
    numbers = [c for c in columns if c not in times and all(map(_NUMBER.fullmatch, c))]
    words = len(columns) - len(times) - len(numbers)
    if not columns or not times:
        return "what reads other tables is"
    if not numbers:
        return "this looks like a log with a row per request; what counts them is"
    if words:
        return "this looks like a table under other names; what reads it is"
    if len(numbers) > 1:
        return "this looks like a wide table, with a column per server; what reads it is"
    return "this looks like the load of one server; what reads it is"


def _is_time(cell: str) -> bool:
    bare = cell.strip('" ')
    milliseconds_or_a_day = re.match(r"[0-9]{13}$|[0-9]+[./-][0-9]+[./-]", bare)
    return milliseconds_or_a_day is not None or parse_instant(bare, "Z") is not None
