"""Why the header of a trace file is refused, and what reads a file that is no trace file."""

from __future__ import annotations

import csv
import difflib
import re
from collections import Counter
from collections.abc import Collection, Sequence

from corral.data.fields import parse_count, parse_instant, parse_time
from corral.data.source import DELIMITERS

__all__ = [
    "COLUMNS",
    "HEADERS",
    "TIME_WORDS",
    "delimiter",
    "foreign_rule",
    "header_rule",
    "looks_like_a_trace",
    "mentions_times",
    "unlike_rule",
    "words_of",
]

COLUMNS = ("time", "node", "arrivals", "capacity")
HEADERS = (COLUMNS, COLUMNS[:3])

WANTED = "the header must be time,node,arrivals or time,node,arrivals,capacity"
MANY = 3  # remarks on names
LONG = 64
"""Characters of a cell beyond which it is neither a time, nor a number, nor a misspelt name."""
_NUMBER = re.compile(r"\s*-?[0-9][0-9.,]*(?:e[+-]?[0-9]+)?\s*[A-Za-zµ%/]*\s*", re.ASCII)
_LOG = re.compile(r"\[[0-9]{2}/[A-Z][a-z]{2}/[0-9]{4}:")


# --- What may be quoted --------------------------------------------------------------------------

TIME_WORDS = frozenset(
    re.findall(
        r"\w+",
        "time timestamp date datetime ts t when start at epoch datum zeit zeitstempel zeitpunkt "
        "uhrzeit fecha hora data ora heure horodatage period minute hour tick step index",
    )
)
"""Words in the names of columns that hold times, of several languages."""

_WRITTEN_TIME = re.compile(
    r"\[?(?:[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-/.][0-9]{1,2}[-/.][0-9]{4}"
    r"|[0-9]{2}/[A-Z][a-z]{2}/[0-9]{4}:)(?:[T,:\s0-9].*)?"
    r"|(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])(?:[T ]?[0-9]{2,6})?"
    r"|(?:[0-9]{9,10}|[0-9]{12,13}|[0-9]{15,16}|[0-9]{18,19})(?:\.[0-9]*)?"
)


def words_of(name: str) -> set[str]:
    """Return the words in a column's name, in lower case: currentRps -> current, rps."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    return set(re.findall(r"[^\W\d_]+\d*", spaced.lower()))


def mentions_times(
    lines: Sequence[str], *, mark: str | None = None, named: Collection[str] = ()
) -> bool:
    """Tell whether a file, by its first lines, is a table with times: so it may be quoted.

    It is one if half of its rows hold a time in the same column, if a column is called like one of
    times and half of its cells have a digit, or if the caller ``named`` one of its columns, and so
    knows the file. Anything else may be a secret.
    """
    lines = [line for line in lines if line.strip()]
    if lines and lines[0].lower().startswith("sep=") and len(lines[0].strip()) == 5:
        mark, lines = mark or lines[0].strip()[-1], lines[1:]
    if not lines:
        return False
    mark = mark or max(DELIMITERS, key=lines[0].count)
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=mark)]
    except csv.Error:  # a cell without end
        return False
    header, body = rows[0], rows[1:] or rows
    if not set(named).isdisjoint(header):
        return True
    for at in range(max(map(len, body))):
        cells = [row[at] for row in body if at < len(row)]
        timed = sum(len(c) <= LONG and _WRITTEN_TIME.fullmatch(c) is not None for c in cells)
        if 2 * timed >= len(body):
            return True
        title = header[at] if at < len(header) else ""
        digits = sum(re.search("[0-9]", cell) is not None for cell in cells)
        words = words_of(title) if len(title) <= LONG else set()
        if words & TIME_WORDS and len(words) < MANY and (2 * digits >= len(body) or body is rows):
            return True
    return False


def looks_like_a_trace(lines: Sequence[str]) -> bool:
    """Tell whether a file that breaks the format is a trace with a slip, or a table of loads.

    It is where its header has two of the columns, well or badly spelt; where most rows read as a
    trace's do; and where ``mentions_times``.
    """
    header = re.split(r"[,;\t|]", lines[0])
    if len({_nearest(name) for name in header} - {None}) > 1:
        return True
    rows = [line.split(",") for line in lines]
    plain = [
        len(row) in (3, 4) and parse_time(row[0]) and None not in map(parse_count, row[2:])
        for row in rows
    ]
    return 2 * sum(map(bool, plain)) > len(rows) or mentions_times(lines)


# --- Why a header is refused ---------------------------------------------------------------------


def foreign_rule(line: str, file: str) -> str | None:
    """Return what ``line``, the first of ``file``, shows this file to be; None: it may be CSV."""
    importer = f"corral trace import {file}"
    if line.lstrip()[:1] in ("{", "["):
        return f"this is JSON, no CSV file: {importer} reads what Prometheus gives"
    if _LOG.search(line):
        return f"{WANTED}; this looks like an access log, which {importer} reads"
    hint = delimiter([line] if "," not in line else [])
    return f"{WANTED}{hint}, or try {importer}" if hint else None


def unlike_rule(file: str) -> str:
    """Return why a file that does not look like a trace is refused; nothing of it is quoted."""
    return (
        f"{WANTED}; this file does not look like a trace, so nothing of it is quoted; of other "
        f"tables: corral trace import {file}"
    )


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
    if len(name) > LONG:
        return None
    close = difflib.get_close_matches(name.strip().lower(), COLUMNS, n=1, cutoff=0.6)
    return close[0] if close else None


def _shape(header: Sequence[str], rows: Sequence[str]) -> str:
    """Return what kind of table this looks like, by the cells of its first rows."""
    cells = [row.split(",") for row in rows[:5]]
    columns = list(zip(*(row for row in cells if len(row) == len(header)), strict=True))
    times = [column for column in columns if all(_is_time(cell) for cell in column)]
    numbers = [c for c in columns if c not in times and all(map(_is_number, c))]
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


def _is_number(cell: str) -> bool:
    return len(cell) <= LONG and _NUMBER.fullmatch(cell) is not None


def _is_time(cell: str) -> bool:
    bare = cell.strip('" ')
    milliseconds_or_a_day = re.match(r"[0-9]{13}$|[0-9]+[./-][0-9]+[./-]", bare)
    return milliseconds_or_a_day is not None or parse_instant(bare, "Z") is not None
