"""Parse the cells of a trace file (counts, times, node names), and explain refused cells."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Literal

import numpy as np

from corral.data.trace import MAX_VALUE, is_name

__all__ = [
    "DAY",
    "Clock",
    "check_zone",
    "count_rule",
    "format_time",
    "in_calendar",
    "instant_rule",
    "integer",
    "midnight",
    "name_rule",
    "names_zone",
    "parse_count",
    "parse_instant",
    "parse_time",
    "second_of_day",
    "time_rule",
]

Clock = Literal["integer", "utc"]

DAY = 10
"""Length of the date in an ISO-8601 time, in characters. The time of day follows."""

_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_CLOCK = re.compile(
    r"[T ]([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:\.0+)?)?"
    r"(?:Z|([+-])([01][0-9]|2[0-3]):?([0-5][0-9]))?",
    re.ASCII,
)
_FRACTION_OF_A_SECOND = re.compile(r"[0-9]{4}-.*:[0-9]{2}[.,][0-9]*[1-9].*", re.ASCII)
_FRACTION = re.compile(r"(.*:[0-9]{2})[.,]([0-9]{1,9})(.*)", re.ASCII)
_UNIX = re.compile(r"([0-9]{9,10})(?:\.([0-9]{1,9}))?", re.ASCII)
_MINUTE = re.compile(
    r"([0-9-]{10}[T ][0-9]{2}:[0-9]{2}):([0-5][0-9])(?:[.,]([0-9]{1,9}))?"
    r"(Z|[+-][0-9]{2}:?[0-9]{2})?",
    re.ASCII,
)
_ZONE = re.compile(r".*:[0-9.,]+(Z|[+-][0-9]{2}:?[0-9]{2})", re.ASCII)
_EPOCH = date(1970, 1, 1).toordinal()
_CALENDAR = (
    (date.min.toordinal() - _EPOCH) * 86_400,
    (date.max.toordinal() + 1 - _EPOCH) * 86_400 - 1,
)


# --- Counts and names ----------------------------------------------------------------------------


def parse_count(text: str) -> int | None:
    """Return the number 0 .. MAX_VALUE in ``text``, in plain digits, or None."""
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        return None
    value = int(text)
    return value if value <= MAX_VALUE else None


def count_rule(text: str) -> str:
    """Return the reason why ``parse_count`` refuses ``text``, with a remedy."""
    bare = text.strip().lower()
    if not bare:
        return "empty cell; write the count, or 0 for no requests"
    if bare in {"nan", "na", "n/a", "null", "none", "-", "?"}:
        return "missing value; write the count, or 0 for no requests"
    if bare.lstrip("+-") in {"inf", "infinity"}:
        return "infinite; write a whole number"
    if bare != text.lower():
        return "space around the number; remove it"
    if re.fullmatch(r"-[0-9.]+", bare):
        return "negative; counts must be 0 or more"
    if re.fullmatch(r"[0-9]+", bare, re.ASCII):
        return f"larger than {MAX_VALUE:,}; write whole requests per step"
    if re.fullmatch(r"[0-9]*[.,][0-9]*", bare, re.ASCII):
        return "a fraction; counts must be whole: round the number, or scale the column"
    if re.fullmatch(r"[+-]?[0-9.]+e[+-]?[0-9]+", bare, re.ASCII):
        return "an exponent; write the whole number in plain digits"
    return "not a whole number in plain digits 0-9"


def name_rule(text: str) -> str | None:
    """Return the reason why ``text`` cannot name a node, or None for a valid name."""
    if is_name(text):
        return None
    if not text.strip():
        return "empty node name; every row needs one"
    if text != text.strip():
        return "space around the node name; remove it"
    return "control or invisible characters in the node name; remove them"


# --- Times ---------------------------------------------------------------------------------------


def parse_time(text: str) -> tuple[Clock, int] | None:
    """Return the clock and value of a time, or None for an invalid time.

    The value is an integer, or seconds since 1970-01-01 UTC.
    """
    if text[4:5] != "-":
        value = integer(text)
        return None if value is None else ("integer", value)
    day, clock = midnight(text[:DAY]), second_of_day(text[DAY:])
    if day is None or clock is None or not in_calendar(day + clock):
        return None
    return "utc", day + clock


def in_calendar(seconds: int) -> bool:
    """Return True if a time, in seconds since 1970, is in the years 1 to 9999 UTC."""
    return _CALENDAR[0] <= seconds <= _CALENDAR[1]


def integer(text: str) -> int | None:
    """Return the integer of up to 18 digits in ``text``, or None."""
    return int(text) if _INTEGER.fullmatch(text) else None


@lru_cache(maxsize=4096)
def midnight(day: str) -> int | None:
    """Return the seconds from 1970-01-01 to the day ``YYYY-MM-DD``; None for an invalid day."""
    try:
        return (date.fromisoformat(day).toordinal() - _EPOCH) * 86_400 if _DAY.match(day) else None
    except ValueError:  # 30 February
        return None


@lru_cache(maxsize=4096)
def second_of_day(clock: str) -> int | None:
    """Return the seconds from midnight UTC to ``THH:MM:SS`` with a zone; None if invalid.

    An empty text is midnight, because a date alone is a time.
    """
    if not clock:
        return 0
    match = _CLOCK.fullmatch(clock)
    if match is None:
        return None
    hour, minute, second, sign, east_hour, east_minute = match.groups()
    local = int(hour) * 3600 + int(minute) * 60 + int(second or 0)
    east = int(east_hour or 0) * 3600 + int(east_minute or 0) * 60
    return local + east if sign == "-" else local - east


def time_rule(text: str) -> str:
    """Return the reason why ``parse_time`` refuses ``text``, with a remedy."""
    if not text.strip():
        return "empty time; every row needs one"
    if text != text.strip():
        return "space around the time; remove it"
    if _DAY.fullmatch(text[:DAY]) and second_of_day(text[DAY:]) is not None:
        if midnight(text[:DAY]) is not None:
            return "outside the years 1 to 9999 in UTC; check the time"
        return "this day does not exist; check the date"
    if _FRACTION_OF_A_SECOND.fullmatch(text):
        return "a fraction of a second; times must be whole seconds: count requests per step first"
    return "not a time; write a whole number, or ISO-8601 such as 2026-01-05T00:05:00Z"


def format_time(time: int, clock: Clock) -> str:
    """Return a time as written in trace files. It may be outside the years 1 to 9999."""
    if clock == "integer":
        return str(time)
    if not in_calendar(time):
        return f"{np.datetime64(time, 's')}Z"
    return (datetime(1970, 1, 1) + timedelta(seconds=time)).isoformat() + "Z"


def parse_instant(text: str, zone: str) -> tuple[int, int] | None:
    """Return the seconds since 1970-01-01 UTC and the nanoseconds of a time; None if invalid.

    ``zone``, such as ``Z`` or ``-04:00``, applies to ISO-8601 times without a zone. Numbers of nine
    or ten digits, with or without a fraction, are seconds since 1970: the years 1973 to 2286.
    """
    usual = _MINUTE.fullmatch(text)  # requests of one minute share their date, hour and zone
    if usual:
        minute = _minute(usual[1], usual[4] or zone)
        if minute is None:
            return None
        return minute + int(usual[2]), int((usual[3] or "0").ljust(9, "0"))
    unix = _UNIX.fullmatch(text)
    if unix:
        return int(unix[1]), int((unix[2] or "").ljust(9, "0"))
    if len(text) > 10 and not names_zone(text):
        text += zone
    fraction = _FRACTION.fullmatch(text)
    if fraction:
        text = fraction[1] + fraction[3]
    parsed = parse_time(text)
    if parsed is None or parsed[0] != "utc":
        return None
    return parsed[1], int(fraction[2].ljust(9, "0")) if fraction else 0


@lru_cache(maxsize=4096)
def _minute(minute: str, zone: str) -> int | None:
    """Return the seconds from 1970-01-01 UTC to ``YYYY-MM-DDTHH:MM``; None for an invalid time."""
    parsed = parse_time(f"{minute}:00{zone}")
    return None if parsed is None else parsed[1]


def names_zone(text: str) -> bool:
    """Return True if an ISO-8601 time states its zone."""
    return _ZONE.fullmatch(text) is not None


def instant_rule(text: str) -> str:
    """Return the reason why ``parse_instant`` refuses ``text``, with a remedy."""
    if re.fullmatch(r"-?[0-9]+(\.[0-9]*)?", text, re.ASCII):
        return "not seconds since 1970, which have 9 or 10 digits; convert it, or write ISO-8601"
    return time_rule(text)


def check_zone(zone: str) -> None:
    """Raise ValueError unless ``zone`` is ``Z`` or an offset such as ``-04:00``."""
    if parse_time(f"2000-01-01T00:00{zone}") is None or not zone:
        raise ValueError(f"zone={zone!r} must be Z or an offset such as -04:00")
