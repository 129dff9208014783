"""Parse times in common notations: ISO-8601, dd.mm.yyyy, Unix times, zone abbreviations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from corral.data.fields import midnight
from corral.data.headers import words_of
from corral.data.importers.binning import LONGEST_GAP, length_of
from corral.data.importers.tables.cells import Column, Table, is_missing
from corral.data.source import fault_error
from corral.data.trace import Counts

__all__ = [
    "PLAIN",
    "UNDATED",
    "DateOrder",
    "TimeUnit",
    "Times",
    "check_numbers",
    "first_hour",
    "has_format",
    "is_clock",
    "is_day",
    "parse_epoch",
    "reader_of",
    "style_of",
    "times_of",
    "with_clock",
    "without_midnight",
]

DateOrder = Literal["dmy", "mdy"]
TimeUnit = Literal["s", "ms", "us", "ns", "min", "h", "d"]
Parsed = tuple[int, bool, bool]  # seconds, has a zone, was truncated

_CLOCK = (
    r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?\s*([AaPp]\.?[Mm]\.?)?"
    r"\s*(Z|[+-][0-9]{2}(?::?[0-9]{2})?|[A-Z]{3,4})?"
)
_ISO = re.compile(
    rf"([0-9]{{4}})[-/.年]([0-9]{{1,2}})[-/.月]([0-9]{{1,2}})日?(?:[T,\s]\s*{_CLOCK})?"
)
_DAY_FIRST = re.compile(rf"([0-9]{{1,2}})([./-])([0-9]{{1,2}})\2([0-9]{{4}})(?:[T,\s]\s*{_CLOCK})?")
_NAMED = re.compile(  # 02/Mar/2026:00:00:00 +0000, Mon, 02 Mar 2026, March 2, 2026 12:00 AM
    r"\[?(?:[A-Z][a-z]+,? )?"
    r"(?:([0-9]{1,2})[ /-]([A-Z][a-z]{2})[a-z]*|([A-Z][a-z]{2})[a-z]* +([0-9]{1,2})),?[ /-]"
    r"(?:([0-9]{4})(?:[:, @]+([0-9][0-9:.,+ APMZ-]+(?:[A-Z]{3,4})?))?"
    r"|([0-9:.]{5,}(?: [A-Z]{3,4})?) ([0-9]{4}))\]?"
)
_HOUR = re.compile(r"([0-9]{1,2})(?:\.0)?")
_MIDNIGHT = re.compile(r"[T ]00:00:00(?= [0-9]|$)")
_DAY_AND_HOUR = re.compile(r"(\S+) ([0-9]{1,2})(?:\.0)?(?: ([0-9]{1,2})(?:\.0)?)?")
_MONTHS = re.findall("...", "JanFebMarAprMayJunJulAugSepOctNovDec")
_DIGITS = re.compile(
    r"((?:199|20[0-9])[0-9])(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])"
    r"(?:T?([01][0-9]|2[0-3])(?:([0-5][0-9])([0-5][0-9])?)?(Z)?)?"
)
_EPOCH = {
    "seconds since 1970": (re.compile(r"([0-9]{9,10})(?:\.([0-9]*))?"), 1),
    "milliseconds since 1970": (re.compile(r"([0-9]{12,13})(?:\.([0-9]*))?"), 10**3),
    "microseconds since 1970": (re.compile(r"([0-9]{15,16})(?:\.([0-9]*))?"), 10**6),
    "nanoseconds since 1970": (re.compile(r"([0-9]{18,19})(?:\.([0-9]*))?"), 10**9),
}
_WHOLE = re.compile(r"-?[0-9]{1,8}(?:\.0*)?")
_FRACTION = re.compile(r"-?[0-9]{1,8}\.[0-9]+(?:e[+-]?[0-9]+)?")
PLAIN = ("whole numbers", "fractions")
"""Styles of numbers without a unit."""

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_NAMES |= {"min": "minutes", "h": "hours", "d": "days"}

EARLIEST, LATEST = 631_152_000, 4_102_444_800
"""Plausible range of times since 1970, in seconds: the years 1990 to 2099. Numbers outside of it
may be relative times in another unit."""

YEAR_ONE = -62_135_596_800
"""The year 1, in seconds since 1970."""

LONGEST_LOAD = 10 * 366 * 86_400
"""Plausible length of a recording, in seconds."""

ZONES = {"Z": 0, "UTC": 0, "GMT": 0, "WET": 0, "WEST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3}
ZONES |= {"EST": -5, "EDT": -4, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7}
"""Zone abbreviations, in hours east of Greenwich. Ambiguous ones, such as CST, are missing."""


@dataclass(frozen=True)
class Times:
    """The times of a column, as ``seconds`` [R] since 1970.

    Times are UTC if ``zoned`` [R], otherwise local times. With ``is_plain`` they are plain integers
    without a date.
    """

    seconds: Counts
    zoned: npt.NDArray[np.bool_]
    style: str
    cut: bool  # fractions of a second were dropped
    is_plain: bool = False


NAMED_STYLE = "dates with the name of the month"

UNDATED = (None, *PLAIN)
"""Styles that no date has."""

LONGEST = 64
"""Maximum length of a time, in characters. Matching longer cells would be slow."""


def is_day(cell: Any) -> bool:
    """Return True if a cell is a date without a time of day."""
    match = _is_short(cell) and (_ISO.fullmatch(cell) or _DAY_FIRST.fullmatch(cell))
    return (bool(match) and ":" not in cell) or _is_compact(cell)


def without_midnight(cell: Any) -> str:
    """Return a date as text, without the midnight that spreadsheets and DataFrames add."""
    return _MIDNIGHT.sub("", str(cell), count=1)


def _is_compact(cell: Any) -> bool:
    return _is_short(cell) and len(cell) == 8 and _DIGITS.fullmatch(cell) is not None


def is_clock(cell: Any) -> bool:
    """Return True if a cell is a time of day without a date."""
    return _is_short(cell) and re.fullmatch(_CLOCK, cell) is not None


def first_hour(table: Table, columns: Sequence[Column]) -> int:
    """Return 1 if the hours in all ``columns`` count from 1 to 24, otherwise 0.

    Raises TraceError, with the file of ``table``, if hours 0 and 24 occur.
    """
    texts = [_text(cell)[:LONGEST] for column in columns for cell in column.cells]
    hours = {int(match[1]) for text in texts if (match := _HOUR.fullmatch(text))}
    if 24 not in hours and not any("ending" in words_of(column.name) for column in columns):
        return 0
    if 0 in hours:
        rule = (
            f"column {columns[0].name!r}: hour 0 occurs among hours that count to 24, in some row "
            "of some file; replace hour 24 by hour 0 of the next day"
        )
        raise fault_error(table.path, rule)
    return 1


def with_clock(table: Table, column: Column, first: int, notes: list[str]) -> Column:
    """Return a column of date, hour and minute, such as "2026-03-02 9 5", as times.

    Other columns are returned as they are, but with marks in dates such as 20260302, and without
    the midnight of each date. Hour ``first`` begins at midnight.
    """
    if all(_MIDNIGHT.search(_text(cell)[:LONGEST]) for cell in column.cells):
        column = Column(column.name, column.codes, list(map(without_midnight, column.cells)))
    if all(_is_compact(str(cell).partition(" ")[0]) for cell in column.cells):
        cells = [f"{cell[:4]}-{cell[4:6]}-{cell[6:]}" for cell in column.cells]
        column = Column(column.name, column.codes, cells)
    parts = [_DAY_AND_HOUR.fullmatch(_text(cell)[:LONGEST]) for cell in column.cells]
    matches = [match for match in parts if match and is_day(match[1])]
    if len(matches) < len(parts):
        return column
    if first:
        notes.append(f"{table.path.name}: hours 1 to 24 were read as 00:00 to 23:00")
    cells = [f"{m[1]} {int(m[2]) - first:02d}:{int(m[3] or 0):02d}" for m in matches]
    return Column(column.name, column.codes, cells)


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
    if _NAMED.fullmatch(text):
        return NAMED_STYLE
    if _DIGITS.fullmatch(text):
        return "digits of a date, such as 20260105 or 2026010500"
    for style, (pattern, _) in _EPOCH.items():
        if pattern.fullmatch(text):
            return style
    if _WHOLE.fullmatch(text):
        return "whole numbers"
    return "fractions" if _FRACTION.fullmatch(text) else None


def times_of(
    table: Table,
    column: Column,
    *,
    order: DateOrder | None = None,
    time_format: str | None = None,
    unit: TimeUnit | None = None,
    epoch: int | None = None,
) -> Times:
    """Return the times of a column.

    ``order`` says if 05/01/2026 begins with the day or the month. If None, a number above 12
    decides. ``time_format`` is a format of ``datetime.strptime``. With ``unit``, times are numbers
    of this unit since ``epoch``, in seconds since 1970. Without ``epoch``, numbers after 1990 count
    from 1970, and smaller ones from an unknown time.

    Raises TraceError for a cell that is not a time, if the order of day and month is ambiguous, and
    for numbers that are implausible as times since 1970.
    """
    cells = column.cells
    if unit is not None:
        return _relative(table, column, unit, epoch)
    style = f"{time_format!r}" if time_format else style_of(column.sample())
    if style == "fractions":  # refused without a unit
        rule = unit_rule(column.name, 0)
        if all(_is_serial_day(_text(cell)) for cell in column.sample()):
            rule += ". For the days of a spreadsheet, pass time_unit=d and epoch=1899-12-30"
        raise fault_error(table.path, rule)
    if style is None:
        style = "ISO-8601"  # the first fault then quotes the cell
    if style == "numbers of day, month and year":
        order = order or _order(table, column)
        style = "day/month/year" if order == "dmy" else "month/day/year"
    whole = _whole_epochs(cells, style)
    if whole is not None:
        zoned = np.ones(len(column.codes), dtype=bool)
        return Times(whole[0][column.codes], zoned, style, whole[1])
    if style == "ISO-8601" and (blocks := _iso_columns(cells)) is not None:
        seconds, zoned, cut = blocks
        return Times(seconds[column.codes], zoned[column.codes], style, cut)
    parse = reader_of(style, time_format)
    seconds = np.zeros(len(cells), dtype=np.int64)
    zoned = np.zeros(len(cells), dtype=bool)
    cut = False
    for at, cell in enumerate(cells):
        parsed = None if is_missing(cell) else parse(cell)
        if parsed is None:
            row = int(np.argmax(column.codes == at))
            rule = f"not a time; the format of this column is {style}"
            if style in _EPOCH or style in PLAIN:
                rule += "; for numbers of another unit, pass time_unit=ms, us, s or another unit"
            elif not time_format:
                rule += "; for another format, pass time_format='%d %b %Y %H:%M'"
            table.fault(rule, row, column.name, cell)
            continue
        seconds[at], zoned[at] = parsed[:2]
        cut = cut or parsed[2]
    is_plain = style in PLAIN
    return Times(seconds[column.codes], zoned[column.codes], style, cut, is_plain)


# --- Numbers with and without a unit -------------------------------------------------------------


def parse_epoch(text: str) -> int:
    """Return the seconds since 1970 of a date such as 2021-01-31, or 2021-01-31T00:00+01:00.

    Raises ValueError for any other text.
    """
    parsed = _iso(text)
    if parsed is None:
        raise ValueError(f"epoch={text!r} must be a date and time, such as 2026-01-05T00:00Z")
    return parsed[0]


def _relative(table: Table, column: Column, unit: TimeUnit, epoch: int | None) -> Times:
    """Return the times of numbers since ``epoch``, in whole seconds.

    Seconds and their parts are truncated. Minutes, hours and days are rounded to seconds, because a
    fraction such as .000694 of a day has few digits.
    """
    per_second, length = _PER_SECOND.get(unit, 1), _SECONDS.get(unit, 1)
    seconds = np.zeros(len(column.cells), dtype=np.int64)
    cut = False
    for at, cell in enumerate(column.cells):
        try:
            number = Decimal(_text(cell)[:LONGEST]) * length
            number = number if length == 1 else number.to_integral_value()
            seconds[at] = int(number // per_second) - (number < 0 and number % per_second != 0)
            cut = cut or number % per_second != 0
        except (ArithmeticError, ValueError):
            row = int(np.argmax(column.codes == at))
            table.fault(f"not a number of {_NAMES[unit]}", row, column.name, cell)
    middle = int(np.median(seconds)) if len(seconds) else 0
    if epoch is None and middle > LATEST:
        span = int(seconds.max() - seconds.min()) * per_second
        raise fault_error(table.path, unit_rule(column.name, span, f"{_NAMES[unit]} since 1970"))
    is_plain = epoch is None and middle < EARLIEST and len(seconds) > 0
    start = "an unknown time" if is_plain else "1970" if epoch is None else _date(epoch)
    zoned = np.ones(len(column.codes), dtype=bool)
    style = f"{_NAMES[unit]} since {start}"
    return Times(seconds[column.codes] + (epoch or 0), zoned, style, cut, is_plain)


def _is_serial_day(text: str) -> bool:
    """Return True for a number of days since 1899-12-30, in the years 2000 to 2099."""
    return _FRACTION.fullmatch(text) is not None and 36_526 <= float(text) < 73_051


def _date(seconds: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat()


def check_numbers(table: Table, column: Column, times: Times, *, is_log: bool) -> None:
    """Raise TraceError for numbers without a unit, or implausible as times since 1970.

    Whole multiples of 1,000 suggest a smaller unit, such as milliseconds taken for seconds. In a
    table, the unit of plain numbers does not matter; in a request log, it does.
    """
    numbers = np.unique(times.seconds)
    in_thousands = len(numbers) > 2 and not (numbers % 1000).any()
    if times.is_plain and not (is_log or in_thousands):
        return
    low, high, middle = int(numbers[0]), int(numbers[-1]), int(np.median(numbers))
    is_long = high - low > LONGEST_LOAD and np.diff(numbers).max() <= LONGEST_GAP
    if times.is_plain or not EARLIEST <= middle <= LATEST or is_long or in_thousands:
        unit = next((unit for unit, name in _NAMES.items() if times.style.startswith(name)), "s")
        style = "" if times.is_plain else times.style
        rule = unit_rule(column.name, (high - low) * _PER_SECOND[unit], style)
        raise fault_error(table.path, rule)


def unit_rule(name: str, span: int, style: str = "") -> str:
    """Return the reason to refuse numbers without a known unit, and the units they may have.

    ``span`` is the difference of the largest and smallest number; 0 if unknown.
    """
    lengths = {unit: span // per_second for unit, per_second in _PER_SECOND.items()}
    units = {unit: length for unit, length in lengths.items() if 1 <= length <= LONGEST_LOAD}
    choices = [f"time_unit={unit} ({length_of(s)} in all)" for unit, s in units.items()]
    problem = f"are implausible as {style}" if style else "have no unit"
    return (
        f"the numbers in column {name!r} {problem}. Pass their unit: "
        f"{' or '.join(choices or [f'time_unit={unit}' for unit in lengths])}; and "
        "epoch=2026-01-05T00:00Z if 0 is the time of a known date"
    )


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


_ISO_LINES = re.compile(
    r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?Z?\n)*+"
)


def _iso_columns(cells: Sequence[Any]) -> tuple[Counts, npt.NDArray[np.bool_], bool] | None:
    """Return the times of cells such as 2026-01-05T00:00:01.25Z, as ``times_of`` does.

    Return None if a cell has another form, or is not a time. Most logs have only this form, which
    is parsed at once: many times as quick.
    """
    if set(map(type, cells)) != {str}:
        return None
    text = "\n".join([*cells, ""])
    if _ISO_LINES.fullmatch(text) is None or text.count("\n") > len(cells):
        return None
    try:
        stamps = np.array([cell[:19] for cell in cells], dtype="datetime64[s]")
    except ValueError:  # such as the 30th of February
        return None
    seconds = stamps.astype(np.int64)
    if seconds.min() < YEAR_ONE:
        return None
    zoned = np.array([cell[-1] == "Z" for cell in cells])
    return seconds, zoned, re.search("[.,]0*[1-9]", text) is not None


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
    if style == NAMED_STYLE:
        return lambda cell: _named(_text(cell))
    if style == "ISO-8601":
        return lambda cell: _iso_in_parts(_text(cell))
    if style.startswith("digits"):
        return lambda cell: _digits(_text(cell))
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


def has_format(cells: Sequence[Any], time_format: str) -> bool:
    """Return True if all of these cells are times in a format of ``datetime.strptime``."""
    return bool(cells) and all(_strptime(cell, time_format) is not None for cell in cells)


def _strptime(cell: Any, time_format: str) -> Parsed | None:
    try:
        return _stamp(datetime.strptime(str(cell), time_format))
    except (ValueError, re.error):  # re.error: a directive occurs twice
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


def _named(text: str) -> Parsed | None:
    match = _NAMED.fullmatch(text) if len(text) <= LONGEST else None
    month = match and (match[2] or match[3])
    if match is None or month not in _MONTHS:
        return None
    day, year, clock = match[1] or match[4], match[5] or match[8], match[6] or match[7]
    date = f"{year}-{_MONTHS.index(month) + 1:02d}-{int(day):02d}"
    return _iso_in_parts(f"{date} {clock}" if clock else date)


def _digits(text: str) -> Parsed | None:
    match = _DIGITS.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, zone = match.groups()
    return _instant(year, month, day, (hour, minute, second, None, None, zone))


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
