"""Explain why the header of a trace file is refused, and which command reads other files."""

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
    "is_written_time",
    "looks_like_a_trace",
    "mentions_times",
    "rows_mention_times",
    "unlike_rule",
    "words_of",
]

COLUMNS = ("time", "node", "arrivals", "capacity")
HEADERS = (COLUMNS, COLUMNS[:3])

REQUIRED = "the header must be time,node,arrivals or time,node,arrivals,capacity"
MAX_REMARKS = 3  # maximum number of remarks on names
MAX_LENGTH = 64
"""Maximum length of a time, a number or a misspelled column name, in characters."""
_NUMBER = re.compile(r"\s*-?[0-9][0-9.,]*(?:e[+-]?[0-9]+)?\s*[A-Za-zµ%/]*\s*", re.ASCII)
_LOG = re.compile(r"\[[0-9]{2}/[A-Z][a-z]{2}/[0-9]{4}:")


# --- Files that may be quoted --------------------------------------------------------------------

TIME_WORDS = frozenset(
    re.findall(
        r"\w+",
        "time times timestamp timestamps date datetime ts t when start at epoch datum zeit "
        "zeitstempel zeitpunkt uhrzeit fecha hora data ora heure horodatage period minute hour "
        "tick step index",
    )
)
"""Words in the names of time columns, in several languages."""

_WRITTEN_TIME = re.compile(
    r"\[?(?:[0-9]{4}[-/.年][0-9]{1,2}[-/.月][0-9]{1,2}日?|[0-9]{1,2}[-/.][0-9]{1,2}[-/.][0-9]{4}"
    r"|[0-9]{2}/[A-Z][a-z]{2}/[0-9]{4}:)(?:[T,:\s0-9].*)?"
    r"|(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])(?:[T ]?[0-9]{2,6})?"
    r"|(?:[0-9]{9,10}|[0-9]{12,13}|[0-9]{15,16}|[0-9]{18,19})(?:\.[0-9]*)?"
)


def is_written_time(cell: str) -> bool:
    """Return True for a date, a date and time, or seconds or their fractions since 1970."""
    return len(cell) <= MAX_LENGTH and _WRITTEN_TIME.fullmatch(cell) is not None


def words_of(name: str) -> set[str]:
    """Return the words in a column name, in lower case: currentRps -> current, rps."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    return set(re.findall(r"[^\W\d_]+\d*", spaced.lower()))


def mentions_times(
    lines: Sequence[str], *, mark: str | None = None, named: Collection[str] = ()
) -> bool:
    """Return True if the first lines of a file are a table with times, so errors may quote it.

    One of three conditions is enough. Half of the rows hold a time in the same column. A column has
    a name for times, and half of its cells have a digit. The caller ``named`` one of the columns,
    and so knows the file. Any other file may be secret.
    """
    lines = [line for line in lines if line.strip() and not line.startswith(("#", '"#'))]
    if lines and lines[0].lower().startswith("sep=") and len(lines[0].strip()) == 5:
        mark, lines = mark or lines[0].strip()[-1], lines[1:]
    if not lines:
        return False
    mark = mark or max(DELIMITERS, key=lines[0].count)
    mark = mark if mark in lines[0] else " "
    spaces = mark == " "
    try:
        parsed = csv.reader(lines, delimiter=mark, skipinitialspace=spaces)
        rows = [[cell.strip() for cell in row] for row in parsed]
    except csv.Error:  # an unterminated cell
        return False
    return rows_mention_times(rows, named)


def rows_mention_times(rows: Sequence[Sequence[str]], named: Collection[str] = ()) -> bool:
    """Return the same as ``mentions_times`` for the cells of the first lines."""
    header, body = rows[0], rows[1:] or rows
    if not set(named).isdisjoint(header):
        return True
    if 2 * sum(map(is_written_time, header)) > len(header) > 2:  # a column per time
        return True
    for at in range(max(map(len, body))):
        cells = [row[at] for row in body if at < len(row)]
        timed = sum(map(is_written_time, cells))
        if 2 * timed >= len(body):
            return True
        title = header[at] if at < len(header) else ""
        digits = sum(re.search("[0-9]", cell) is not None for cell in cells)
        words = words_of(title) if len(title) <= MAX_LENGTH else set()
        if (
            words & TIME_WORDS
            and len(words) < MAX_REMARKS
            and (2 * digits >= len(body) or body is rows)
        ):
            return True
    return False


def looks_like_a_trace(lines: Sequence[str]) -> bool:
    """Return True if an invalid file looks like a trace with an error, or like a table of loads.

    One of three conditions is enough: the header has two trace columns, correct or misspelled; most
    rows have the format of a trace; or ``mentions_times`` is True.
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


# --- Reasons to refuse a header ------------------------------------------------------------------


def foreign_rule(line: str, file: str) -> str | None:
    """Return the reason why ``file`` is not CSV, by its first ``line``; None if it may be CSV."""
    importer = f"corral trace import {file}"
    if line.lstrip()[:1] in ("{", "["):
        return f"this is JSON, not CSV; run {importer}"
    if _LOG.search(line):
        return f"{REQUIRED}; this looks like an access log: run {importer}"
    hint = delimiter([line] if "," not in line else [])
    return f"{REQUIRED}{hint}, or run {importer}" if hint else None


def unlike_rule(file: str) -> str:
    """Return the reason why a file that does not look like a trace is refused, without quotes."""
    return (
        f"{REQUIRED}; this file does not look like a trace, so its content is not shown. For other "
        f"tables, run corral trace import {file}"
    )


def header_rule(header: Sequence[str], rows: Sequence[str], file: str) -> str:
    """Return the reason why ``found`` is not a valid header, with a remedy.

    ``rows`` are the first lines of ``file``, including the header.
    """
    if parse_time(header[0]):
        return f"{REQUIRED}; this looks like a row of data: put the header above it"
    repeated = [name for name, times in Counter(header).items() if times > 1]
    if repeated:
        return f"{REQUIRED}; column {min(repeated)!r} occurs more than once"
    if set(header) in (set(COLUMNS), set(COLUMNS[:3])):
        return f"{REQUIRED}; put the columns into this order"
    unknown = [name for name in header if name not in COLUMNS]
    similar_of = {name: _nearest(name) for name in unknown[:MAX_REMARKS]}
    remarks = [
        f"{name!r} is unknown" + (f", did you mean {similar!r}?" if similar else "")
        for name, similar in similar_of.items()
    ]
    if len(unknown) > MAX_REMARKS:
        remarks.append(f"{len(unknown) - MAX_REMARKS:,} more names are unknown")
    missing = [name for name in COLUMNS[:3] if name not in header]
    if missing:
        remarks.append(f"missing: {', '.join(missing)}")
    if missing and set(missing) - set(similar_of.values()):  # more than a misspelling
        remarks.append(f"{_table_kind(header, rows[1:])}: run corral trace import {file}")
    return f"{REQUIRED}; {'; '.join(remarks)}"


def delimiter(fields: Sequence[str]) -> str:
    """Return a hint if the fields seem to be separated by another character than commas."""
    for mark, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if len(fields) == 1 and mark in fields[0]:
            return f"; {name} separate the fields: use commas"
    return ""


def _nearest(name: str) -> str | None:
    if len(name) > MAX_LENGTH:
        return None
    matches = difflib.get_close_matches(name.strip().lower(), COLUMNS, n=1, cutoff=0.6)
    return matches[0] if matches else None


def _table_kind(header: Sequence[str], rows: Sequence[str]) -> str:
    """Return the kind of table that the cells of the first rows suggest."""
    cells = [row.split(",") for row in rows[:5]]
    columns = list(zip(*(row for row in cells if len(row) == len(header)), strict=True))
    times = [column for column in columns if all(_is_time(cell) for cell in column)]
    numbers = [c for c in columns if c not in times and all(map(_is_number, c))]
    words = len(columns) - len(times) - len(numbers)
    if not columns or not times:
        return "for other tables"
    if not numbers:
        return "this looks like a log with a row per request"
    if words:
        return "this looks like a table with other column names"
    if len(numbers) > 1:
        return "this looks like a wide table, with a column per server"
    return "this looks like the load of one server"


def _is_number(cell: str) -> bool:
    return len(cell) <= MAX_LENGTH and _NUMBER.fullmatch(cell) is not None


def _is_time(cell: str) -> bool:
    bare = cell.strip('" ')
    milliseconds_or_a_day = re.match(r"[0-9]{13}$|[0-9]+[./-][0-9]+[./-]", bare)
    return milliseconds_or_a_day is not None or parse_instant(bare, "Z") is not None
