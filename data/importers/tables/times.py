"""Parse times in common notations: ISO-8601, dd.mm.yyyy, Unix times, zone abbreviations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from corral.data.fields import midnight
from corral.data.importers.tables.cells import Column, Table, is_missing
from corral.data.trace import Counts

__all__ = [
    "UNDATED",
    "DateOrder",
    "Times",
    "is_clock",
    "is_day",
    "reader_of",
    "style_of",
    "times_of",
]

DateOrder = Literal["dmy", "mdy"]
Parsed = tuple[int, bool, bool]  # seconds, has a zone, was truncated

_CLOCK = (
    r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?\s*([AaPp]\.?[Mm]\.?)?"
    r"\s*(Z|[+-][0-9]{2}(?::?[0-9]{2})?|[A-Z]{3,4})?"
)
_ISO = re.compile(rf"([0-9]{{4}})[-/.]([0-9]{{1,2}})[-/.]([0-9]{{1,2}})(?:[T,\s]\s*{_CLOCK})?")
_DAY_FIRST = re.compile(rf"([0-9]{{1,2}})([./-])([0-9]{{1,2}})\2([0-9]{{4}})(?:[T,\s]\s*{_CLOCK})?")
_LOG = re.compile(r"\[?([0-9]{2})/([A-Z][a-z]{2})/([0-9]{4})[: ]([0-9:., +-]{8,24})\]?")
_MONTHS = re.findall("...", "JanFebMarAprMayJunJulAugSepOctNovDec")
_EPOCH = {
    "seconds since 1970": (re.compile(r"([0-9]{9,10})(?:\.([0-9]*))?"), 1),
    "milliseconds since 1970": (re.compile(r"([0-9]{12,13})(?:\.([0-9]*))?"), 10**3),
    "microseconds since 1970": (re.compile(r"([0-9]{15,16})(?:\.([0-9]*))?"), 10**6),
    "nanoseconds since 1970": (re.compile(r"([0-9]{18,19})(?:\.([0-9]*))?"), 10**9),
}
_WHOLE = re.compile(r"-?[0-9]{1,8}(?:\.0*)?")

ZONES = {"Z": 0, "UTC": 0, "GMT": 0, "WET": 0, "WEST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3}
ZONES |= {"EST": -5, "EDT": -4, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7}
"""Zone abbreviations, in hours east of Greenwich. Ambiguous ones, such as CST, are missing."""


@dataclass(frozen=True)
class Times:
    """The times of a column, as ``seconds`` [R] since 1970.

    Times are UTC if ``zoned`` [R], otherwise local times. For the ``style`` "whole numbers" they
    are plain integers.
    """

    seconds: Counts
    zoned: npt.NDArray[np.bool_]
    style: str
    cut: bool  # fractions of a second were dropped


LOG_STYLE = "day/month/year:clock of access logs"

UNDATED = (None, "whole numbers")
"""Styles that no date has."""

LONGEST = 64
"""Maximum length of a time, in characters. Matching longer cells would be slow."""


def is_day(cell: Any) -> bool:
    """Return True if a cell is a date without a time of day."""
    match = _is_short(cell) and (_ISO.fullmatch(cell) or _DAY_FIRST.fullmatch(cell))
    return bool(match) and ":" not in cell


def is_clock(cell: Any) -> bool:
    """Return True if a cell is a time of day without a date."""
    return _is_short(cell) and re.fullmatch(_CLOCK, cell) is not None


def _is_short(cell: Any) -> bool:
    return isinstance(cell, str) and len(cell) <= LONGEST


def style_of(cells: Sequence[Any]) -> str | None:
    """Return the notation of times in most of these cells; None if most are not times.

    Whole numbers count as times, too.
    """
    styles = Counter(map(_style, cells))
    style, num_cells = styles.most_common(1)[0] if styles else (None, 0)
    return style if 2 * num_cells > len(cells) else None


def _style(cell: Any) -> str | None:
    if isinstance(cell, datetime | date | np.datetime64):
        return "times of pandas"
    text = _text(cell)
    if len(text) > LONGEST:
        return None
    if _iso(text):
        return "ISO-8601"
    if _DAY_FIRST.fullmatch(text):
        return "day.month.year" if "." in text[:3] else "numbers of day, month and year"
    if _LOG.fullmatch(text):
        return LOG_STYLE
    for style, (pattern, _) in _EPOCH.items():
        if pattern.fullmatch(text):
            return style
    return "whole numbers" if _WHOLE.fullmatch(text) else None


def times_of(
    table: Table, column: Column, *, order: DateOrder | None, time_format: str | None
) -> Times:
    """Return the times of a column.

    ``order`` says if 05/01/2026 begins with the day or the month. If None, a number above 12
    decides. ``time_format`` is a format of ``datetime.strptime``. Raises TraceError for a cell that
    is not a time, or if the order stays ambiguous.
    """
    cells = column.cells
    style = f"{time_format!r}" if time_format else style_of(column.sample())
    if style is None:
        style = "ISO-8601"  # the first fault then quotes the cell
    if style == "numbers of day, month and year":
        order = order or _order(table, column)
        style = "day/month/year" if order == "dmy" else "month/day/year"
    whole = _whole_epochs(cells, style)
    if whole is not None:
        zoned = np.ones(len(column.codes), dtype=bool)
        return Times(whole[0][column.codes], zoned, style, whole[1])
    parse = reader_of(style, time_format)
    seconds = np.zeros(len(cells), dtype=np.int64)
    zoned = np.zeros(len(cells), dtype=bool)
    cut = False
    for at, cell in enumerate(cells):
        parsed = None if is_missing(cell) else parse(cell)
        if parsed is None:
            row = int(np.argmax(column.codes == at))
            rule = f"not a time; the format of this column is {style}"
            rule += "" if time_format else "; for another format, pass time_format='%d %b %Y %H:%M'"
            table.fault(rule, row, column.name, cell)
            continue
        seconds[at], zoned[at] = parsed[:2]
        cut = cut or parsed[2]
    return Times(seconds[column.codes], zoned[column.codes], style, cut)


def _whole_epochs(cells: Sequence[Any], style: str) -> tuple[Counts, bool] | None:
    """Return seconds since 1970 for cells of plain digits, and if a fraction was dropped.

    Return None for other cells. Most tables have plain digits, which are parsed all at once.
    """
    if style not in _EPOCH or not all(isinstance(cell, str) for cell in cells):
        return None
    pattern, unit = _EPOCH[style]
    lengths = {len(cell): cell for cell in cells}
    plain = "".join(cells)
    if not (plain.isascii() and plain.isdigit()) or max(lengths) > 18:  # 18 digits fit into int64
        return None
    if not all(pattern.fullmatch(cell) for cell in lengths.values()):
        return None
    seconds, rest = np.divmod(np.fromiter(map(int, cells), np.int64, len(cells)), unit)
    return seconds, bool(rest.any())


def _text(cell: Any) -> str:
    """Return a cell as text, without a decimal point for whole numbers of a DataFrame."""
    if isinstance(cell, float | np.floating) and float(cell).is_integer():
        return str(int(cell))
    return str(cell)


def reader_of(style: str, time_format: str | None) -> Callable[[Any], Parsed | None]:
    """Return a function from a cell to its seconds, if it has a zone, and if it was truncated."""
    if time_format:
        return lambda cell: _strptime(cell, time_format)
    if style in _EPOCH:
        pattern, unit = _EPOCH[style]
        return lambda cell: _epoch(_text(cell), pattern, unit)
    if style == "whole numbers":
        return lambda cell: (
            (int(float(_text(cell))), False, False) if _WHOLE.fullmatch(_text(cell)) else None
        )
    if style == "times of pandas":
        return _stamp
    if style == LOG_STYLE:
        return lambda cell: _logged(_text(cell))
    if style == "ISO-8601":
        return lambda cell: _iso_in_parts(_text(cell))
    return lambda cell: _day_first(_text(cell), month_first=style.startswith("month"))


def _order(table: Table, column: Column) -> DateOrder:
    pairs = [m for cell in column.cells if (m := _DAY_FIRST.fullmatch(_text(cell)[:LONGEST]))]
    if any(int(match[1]) > 12 for match in pairs):
        return "dmy"
    if any(int(match[3]) > 12 for match in pairs):
        return "mdy"
    rule = "ambiguous date; pass date_order=dmy for day first, or date_order=mdy for month first"
    table.fault(rule, 0, column.name, column.cells[0])
    raise AssertionError


def _strptime(cell: Any, time_format: str) -> Parsed | None:
    try:
        return _stamp(datetime.strptime(str(cell), time_format))
    except ValueError:
        return None


def _stamp(cell: Any) -> Parsed | None:
    if isinstance(cell, np.datetime64):
        cell = cell.astype("datetime64[us]").item()
    if not isinstance(cell, datetime):
        cell = datetime(cell.year, cell.month, cell.day)
    zoned = cell.tzinfo is not None
    if not zoned:
        cell = cell.replace(tzinfo=UTC)  # keeps the local time
    since = cell - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(seconds=1), zoned, since % timedelta(seconds=1) > timedelta(0)


def _epoch(text: str, pattern: re.Pattern[str], unit: int) -> Parsed | None:
    match = pattern.fullmatch(text)
    if match is None:
        return None
    seconds, rest = divmod(int(match[1]), unit)
    return seconds, True, bool(rest or (match[2] or "").strip("0"))


def _iso(text: str) -> Parsed | None:
    match = _ISO.fullmatch(text) if len(text) <= LONGEST else None
    if match is None:
        return None
    year, month, day, *clock = match.groups()
    return _instant(year, month, day, clock)


_iso_part = lru_cache(2**17)(_iso)


def _iso_in_parts(text: str) -> Parsed | None:
    """Return the same as ``_iso``, but parse each date and each time of day only once."""
    day, clock = _iso_part(text[:10]), _iso_part(f"1970-01-01{text[10:]}")
    if day is None or clock is None:
        return _iso(text)
    return day[0] + clock[0], clock[1], clock[2]


def _logged(text: str) -> Parsed | None:
    match = _LOG.fullmatch(text) if len(text) <= LONGEST else None
    if match is None or match[2] not in _MONTHS:
        return None
    return _iso_in_parts(f"{match[3]}-{_MONTHS.index(match[2]) + 1:02d}-{match[1]} {match[4]}")


def _day_first(text: str, *, month_first: bool) -> Parsed | None:
    match = _DAY_FIRST.fullmatch(text) if len(text) <= LONGEST else None
    if match is None:
        return None
    day, _, month, year, *clock = match.groups()
    if month_first:
        day, month = month, day
    return _instant(year, month, day, clock)


def _instant(year: str, month: str, day: str, clock: Sequence[str | None]) -> Parsed | None:
    start = midnight(f"{year}-{int(month):02d}-{int(day):02d}")
    if start is None:
        return None
    hour, minute, second, fraction, half, zone = clock
    hours = int(hour or 0)
    if half:
        if not 1 <= hours <= 12:
            return None
        hours = hours % 12 + 12 * (half[0] in "pP")
    east = _east(zone)
    if hours > 23 or int(minute or 0) > 59 or int(second or 0) > 59 or east is None:
        return None
    seconds = start + hours * 3600 + int(minute or 0) * 60 + int(second or 0)
    return seconds - east, zone is not None, bool((fraction or "").strip("0"))


def _east(zone: str | None) -> int | None:
    """Return the seconds east of Greenwich; None for an unknown abbreviation."""
    if zone is None:
        return 0
    if zone[0] in "+-":
        east = int(zone[1:3]) * 3600 + int(zone[3:].lstrip(":") or 0) * 60
        return -east if zone[0] == "-" else east
    hours = ZONES.get(zone)
    return None if hours is None else hours * 3600
