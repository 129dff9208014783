"""Convert the local times of a place to UTC, including daylight saving time."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import numpy as np
import numpy.typing as npt
import pandas as pd

from corral.data.fields import format_time
from corral.data.importers.tables.cells import Table
from corral.data.trace import Counts

__all__ = ["Zone", "find_zone", "to_utc", "zones_by_node"]

Zone = ZoneInfo | int  # a named zone, or seconds east of Greenwich

HALF_AN_HOUR = 1800


def find_zone(text: str) -> Zone:
    """Return the zone for Z, an offset such as +01:00, or a name such as Europe/Rome.

    Raises ValueError for any other text, with the most similar name.
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
        names = sorted(available_timezones())
        places = {name.rpartition("/")[2].lower(): name for name in names}
        similar = difflib.get_close_matches(text.rpartition("/")[2].lower(), list(places), n=1)
        hint = f"; did you mean {places[similar[0]]}?" if similar else ""
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
    """Return local times of ``zone`` as seconds since 1970-01-01 UTC, [R].

    When clocks are set back, one hour occurs twice. In a table, ``series`` [R] is the node of each
    row. The first row of a time and node belongs to the first pass of the hour, the second row to
    the second pass. In a file that runs backwards in time, the order is reversed. In a log,
    ``series`` is None. Its second pass begins when times jump back by half an hour or more.

    Raises TraceError for a time in the hour that is skipped in spring.
    """
    wall = pd.DatetimeIndex(seconds.astype("datetime64[s]"))
    everywhere = np.ones(len(wall), dtype=bool)
    early = wall.tz_localize(zone, ambiguous=everywhere, nonexistent="NaT")
    late = wall.tz_localize(zone, ambiguous=~everywhere, nonexistent="NaT")
    skipped = np.asarray(early.isna())
    if skipped.any():
        row = int(skipped.argmax())
        table.fault(
            f"this time does not exist in {zone.key}: clocks are set forward over it. Pass the "
            "zone of the file, such as zone=Z, or an offset such as zone=+01:00",
            row,
            value=format_time(int(seconds[row]), "utc").removesuffix("Z"),
        )
    utc = np.asarray(early.asi8, dtype=np.int64) // _per_second(early)
    late_utc = np.asarray(late.asi8, dtype=np.int64) // _per_second(late)
    repeated = np.flatnonzero(utc != late_utc)  # rows in a repeated hour
    second_pass = (
        _jumps_back(seconds, repeated) if series is None else _repeated(seconds, series, repeated)
    )
    if series is not None and len(seconds) > 1 and seconds[0] > seconds[-1]:
        # In a file that runs backwards, the first of two rows belongs to the second pass.
        keys = list(zip(series[repeated].tolist(), seconds[repeated].tolist(), strict=True))
        pairs = {key for key, is_second in zip(keys, second_pass, strict=True) if is_second}
        second_pass = np.array([key in pairs for key in keys], dtype=bool) & ~second_pass
    utc[repeated[second_pass]] = late_utc[repeated[second_pass]]
    _add_notes(utc, seconds, zone, repeated, second_pass, notes)
    return utc


def _per_second(index: pd.DatetimeIndex) -> int:
    return int(pd.Timedelta(1, "s") / pd.Timedelta(1, index.unit))


def _repeated(seconds: Counts, series: Counts, rows: Counts) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that repeat a time of their node."""
    keys = pd.DataFrame({"node": series[rows], "time": seconds[rows]})
    return np.asarray(keys.groupby(["node", "time"]).cumcount() == 1)


def _jumps_back(seconds: Counts, rows: Counts) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows after a jump back in time, within one night."""
    after_jump = np.zeros(len(rows), dtype=bool)
    latest, passed = 0, False
    for at, row in enumerate(rows.tolist()):
        time = int(seconds[row])
        if abs(time - latest) > 4 * 3600:  # another night
            latest, passed = time, False
        passed = passed or time <= latest - HALF_AN_HOUR
        latest = max(latest, time)
        after_jump[at] = passed
    return after_jump


def _add_notes(
    utc: Counts,
    seconds: Counts,
    zone: ZoneInfo,
    repeated: Counts,
    second_pass: npt.NDArray[np.bool_],
    notes: list[str],
) -> None:
    """Add notes about the clock changes in the file, and their treatment."""
    order = np.argsort(utc, kind="stable")
    ahead = (seconds - utc)[order]
    for at in np.flatnonzero(np.diff(ahead)).tolist():
        when = format_time(int(utc[order[at + 1]]), "utc")
        if ahead[at + 1] > ahead[at]:
            notes.append(f"{zone.key}: clocks went forward before {when}; no time is missing there")
    for day in np.unique(seconds[repeated] // 86_400).tolist():
        on_day = seconds[repeated] // 86_400 == day
        passes = (
            "the second row of each time was read as one hour later"
            if second_pass[on_day].any()
            else ("the file has it once, and it was read as the first pass (summer time)")
        )
        date = format_time(day * 86_400, "utc")[:10]
        notes.append(f"{zone.key}: on {date} clocks went back and one hour occurs twice; {passes}")


def zones_by_node(text: str | Mapping[str, str]) -> dict[str, str] | str:
    """Return one zone, or node -> zone for a text such as "a=Europe/Rome,b=Z"."""
    if not isinstance(text, str):
        return dict(text)
    if "=" not in text:
        return text
    pairs = [part.partition("=") for part in text.split(",")]
    return {node.strip(): zone.strip() for node, _, zone in pairs}
