"""Times on the wall of a place, as seconds of UTC: daylight saving by stated rules."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Mapping
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import numpy as np
import numpy.typing as npt
import pandas as pd

from corral.data.fields import format_time
from corral.data.importers.tables.cells import Table
from corral.data.trace import Counts

__all__ = ["Zone", "find_zone", "to_utc", "zones_by_node"]

Zone = ZoneInfo | int  # of a name, or seconds east of Greenwich

HALF_AN_HOUR = 1800


def find_zone(text: str) -> Zone:
    """Return the zone of a text: Z, an offset such as +01:00, or a name such as Europe/Rome.

    Raises ValueError for anything else, with the nearest names.
    """
    if text in ("Z", "UTC", "z", "utc"):
        return 0
    offset = re.fullmatch(r"([+-])([01]?[0-9]|2[0-3])(?::?([0-5][0-9]))?", text)
    if offset:
        east = int(offset[2]) * 3600 + int(offset[3] or 0) * 60
        return -east if offset[1] == "-" else east
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        known = sorted(available_timezones())
        places = {name.rpartition("/")[2].lower(): name for name in known}
        near = difflib.get_close_matches(text.rpartition("/")[2].lower(), list(places), n=1)
        hint = f"; did you mean {places[near[0]]}?" if near else ""
        raise ValueError(
            f"zone={text!r} must be Z, an offset such as -04:00, or a name such as Europe/Rome"
            f"{hint}"
        ) from None


def to_utc(
    table: Table,
    seconds: Counts,
    zone: ZoneInfo,
    series: npt.NDArray[np.int64] | None,
    notes: list[str],
) -> Counts:
    """Return times on the wall of ``zone`` as seconds since 1970-01-01 UTC, [R].

    Where the clock is set back, an hour comes twice. Rows of tables have ``series`` [R], the node
    that each belongs to: the first row of a time and node is of the first pass, the second of the
    second (the other way round in a file that runs backwards in time). Rows of a log (``series``
    None) are of the second pass once the clock jumps back by half an hour or more within that hour.

    Raises TraceError for a time that is on no clock: the hour that is left out in spring.
    """
    wall = pd.DatetimeIndex(seconds.astype("datetime64[s]"))
    everywhere = np.ones(len(wall), dtype=bool)
    early = wall.tz_localize(zone, ambiguous=everywhere, nonexistent="NaT")
    late = wall.tz_localize(zone, ambiguous=~everywhere, nonexistent="NaT")
    nowhere = np.asarray(early.isna())
    if nowhere.any():
        row = int(nowhere.argmax())
        table.fault(
            f"no clock in {zone.key} shows this time: it is set forward then. The times may be in "
            "another zone: zone=Z, or an offset such as zone=+01:00",
            row,
            value=format_time(int(seconds[row]), "utc").removesuffix("Z"),
        )
    utc = np.asarray(early.asi8, dtype=np.int64) // _per_second(early)
    after = np.asarray(late.asi8, dtype=np.int64) // _per_second(late)
    twice = np.flatnonzero(utc != after)  # rows in an hour that comes twice
    second = _jumps_back(seconds, twice) if series is None else _repeated(seconds, series, twice)
    if series is not None and len(seconds) > 1 and seconds[0] > seconds[-1]:
        # Backwards in time, what comes first is the second pass, where there are two.
        keys = list(zip(series[twice].tolist(), seconds[twice].tolist(), strict=True))
        pairs = {key for key, is_second in zip(keys, second, strict=True) if is_second}
        second = np.array([key in pairs for key in keys], dtype=bool) & ~second
    utc[twice[second]] = after[twice[second]]
    _tell(utc, seconds, zone, twice, second, notes)
    return utc


def _per_second(index: pd.DatetimeIndex) -> int:
    return int(pd.Timedelta(1, "s") / pd.Timedelta(1, index.unit))


def _repeated(seconds: Counts, series: Counts, rows: Counts) -> npt.NDArray[np.bool_]:
    """Tell which of the rows repeat a time of their node."""
    seen: Counter[tuple[int, int]] = Counter()
    second = np.zeros(len(rows), dtype=bool)
    for at, row in enumerate(rows.tolist()):
        key = int(series[row]), int(seconds[row])
        second[at] = seen[key] == 1
        seen[key] += 1
    return second


def _jumps_back(seconds: Counts, rows: Counts) -> npt.NDArray[np.bool_]:
    """Tell which of the rows stand after a jump back in time, in the same night."""
    second = np.zeros(len(rows), dtype=bool)
    latest, passed = 0, False
    for at, row in enumerate(rows.tolist()):
        time = int(seconds[row])
        if abs(time - latest) > 4 * 3600:  # another night
            latest, passed = time, False
        passed = passed or time <= latest - HALF_AN_HOUR
        latest = max(latest, time)
        second[at] = passed
    return second


def _tell(
    utc: Counts,
    seconds: Counts,
    zone: ZoneInfo,
    twice: Counts,
    second: npt.NDArray[np.bool_],
    notes: list[str],
) -> None:
    """Note when the clock of the zone was changed, and what was made of it."""
    order = np.argsort(utc, kind="stable")
    ahead = (seconds - utc)[order]
    for at in np.flatnonzero(np.diff(ahead)).tolist():
        when = format_time(int(utc[order[at + 1]]), "utc")
        if ahead[at + 1] > ahead[at]:
            notes.append(f"{zone.key}: clocks went forward before {when}; no time is missing there")
    for day in np.unique(seconds[twice] // 86_400).tolist():
        here = seconds[twice] // 86_400 == day
        passes = (
            "the second row of a time is an hour later"
            if second[here].any()
            else ("it is there once, and was taken as the first pass (summer time)")
        )
        date = format_time(day * 86_400, "utc")[:10]
        notes.append(f"{zone.key}: on {date} clocks went back and an hour came twice; {passes}")


def zones_by_node(text: str | Mapping[str, str]) -> dict[str, str] | str:
    """Return what ``zone=`` says: one zone, or node -> zone of "a=Europe/Rome,b=Z"."""
    if not isinstance(text, str):
        return dict(text)
    if "=" not in text:
        return text
    pairs = [part.partition("=") for part in text.split(",")]
    return {node.strip(): zone.strip() for node, _, zone in pairs}
