"""Rows of foreign CSV files, one at a time, and what is wrong with them."""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from corral.data.checks import MAX_FAULTS
from corral.data.fields import parse_time, time_rule
from corral.data.source import lines
from corral.errors import Fault, TraceError

__all__ = [
    "IMPORT_BYTES",
    "Faults",
    "check_zone",
    "find_column",
    "instant_rule",
    "parse_instant",
    "records",
]

IMPORT_BYTES = 2**33
"""Default limit on an imported file after unpacking: 8 GiB; it is read in constant memory."""

_FRACTION = re.compile(r"(.*:[0-9]{2})[.,]([0-9]{1,9})(.*)", re.ASCII)
_UNIX = re.compile(r"([0-9]{9,10})(?:\.([0-9]{1,9}))?", re.ASCII)
_ZONE = re.compile(r".*:[0-9.,]+(Z|[+-][0-9]{2}:?[0-9]{2})", re.ASCII)


class Faults:
    """Collects the faults of one file; raises them all once there are many, or when asked to."""

    def __init__(self, path: Path) -> None:
        self.file = str(path)
        self.found: list[Fault] = []

    def add(
        self,
        rule: str,
        line: int | None = None,
        column: str | None = None,
        value: str | None = None,
    ) -> None:
        """Note a fault. Raises TraceError where it is one too many."""
        if len(self.found) == MAX_FAULTS:
            raise TraceError(self.found, more=True)
        short = value if value is None or len(value) <= 60 else value[:60] + "..."
        self.found.append(Fault(self.file, rule, line=line, column=column, value=short))

    def check(self) -> None:
        """Raise TraceError where anything was found."""
        if self.found:
            raise TraceError(self.found)


def records(
    path: Path, faults: Faults, notes: list[str], *, max_bytes: int
) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of each row, the header first; rows as long as the header only.

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
    """The place of the column ``wanted``, or ``default`` for None. Raises TraceError if missing."""
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


def parse_instant(text: str, zone: str) -> tuple[int, int] | None:
    """Seconds since 1970-01-01 UTC and nanoseconds of a time; None if ``text`` is no time.

    ``zone`` such as ``Z`` or ``-04:00`` holds where ISO-8601 names none. Numbers of nine or ten
    digits, with a fraction or not, are seconds since 1970: the years 1973 to 2286.
    """
    unix = _UNIX.fullmatch(text)
    if unix:
        return int(unix[1]), int((unix[2] or "").ljust(9, "0"))
    if len(text) > 10 and not _ZONE.fullmatch(text):
        text += zone
    fraction = _FRACTION.fullmatch(text)
    if fraction:
        text = fraction[1] + fraction[3]
    parsed = parse_time(text)
    if parsed is None or parsed[0] != "utc":
        return None
    return parsed[1], int(fraction[2].ljust(9, "0")) if fraction else 0


def instant_rule(text: str) -> str:
    """Why a time is refused, and what to do."""
    if re.fullmatch(r"-?[0-9]+(\.[0-9]*)?", text, re.ASCII):
        return "not seconds since 1970, which have 9 or 10 digits; divide, or write ISO-8601"
    return time_rule(text)


def check_zone(zone: str) -> None:
    """Raise ValueError where ``zone`` is neither ``Z`` nor an offset such as ``-04:00``."""
    if parse_time(f"2000-01-01T00:00{zone}") is None or not zone:
        raise ValueError(f"zone={zone!r} must be Z or an offset such as -04:00")
