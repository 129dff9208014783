"""Times at both ends of the calendar: refused where a zone moves them out, told as text always."""

from __future__ import annotations

import pytest

from corral.data import Trace, fields, import_requests, import_series, read_trace, write_trace
from corral.data.fields import format_time, in_calendar, parse_instant, parse_time
from corral.errors import TraceError
from support.import_files import write
from support.messages import refused

FIRST = -62_135_596_800  # 0001-01-01T00:00:00Z
LAST = 253_402_300_799  # 9999-12-31T23:59:59Z

BEYOND = {
    "before the year 1": [f"0001-01-01T00:0{minute}:00+14:00" for minute in (0, 1, 3)],
    "after the year 9999": [f"9999-12-31T23:0{minute}:00-14:00" for minute in (0, 1, 3)],
}


def test_the_calendar_ends_where_datetime_does():
    assert parse_time("0001-01-01") == ("utc", FIRST)
    assert parse_time("9999-12-31T23:59:59Z") == ("utc", LAST)
    assert [in_calendar(time) for time in (FIRST - 1, FIRST, LAST, LAST + 1)] == [0, 1, 1, 0]
    assert format_time(FIRST, "utc") == "0001-01-01T00:00:00Z"
    assert format_time(LAST, "utc") == "9999-12-31T23:59:59Z"
    assert format_time(LAST + 1, "utc") == "10000-01-01T00:00:00Z"


@pytest.mark.parametrize("times", BEYOND.values(), ids=BEYOND)
def test_times_that_a_zone_moves_out_of_the_calendar_are_refused(tmp_path, times):
    trace = write(tmp_path, "trace.csv", "time,node,arrivals", *(f"{at},a,1" for at in times))
    with refused(TraceError, "trace.csv:2", "'time'", "1 to 9999"):
        read_trace(trace)
    series = write(tmp_path, "series.csv", "time,value", *(f"{at},1" for at in times))
    for read in (import_series, lambda path: import_requests(path, step=60)):
        with refused(TraceError, "series.csv:2", "'time'", "1 to 9999"):
            read(series)


@pytest.mark.parametrize("gaps", ["refuse", "zero"])
@pytest.mark.parametrize("day", ["0001-01-01", "9999-12-31"])
def test_gaps_and_steps_at_the_ends_of_the_calendar(tmp_path, day, gaps):
    rows = [f"{day}T23:59:{second}Z,1" for second in (40, 41, 59)]
    early = write(tmp_path, "early.csv", "time,value", *rows)
    late = write(tmp_path, "late.csv", "time,value", "2026-01-01,1", "2026-01-02,1")
    with pytest.raises(TraceError):
        import_series([early, late], gaps=gaps)
    with pytest.raises(TraceError):
        import_requests([early, late], step=86_400)


def test_a_step_that_begins_before_the_calendar_is_refused(tmp_path):
    path = write(tmp_path, "a.csv", "time,value", "0001-01-01T00:00:07Z,1")
    with refused(TraceError, "import", "1 to 9999"):
        import_requests(path, step=10_000_019)


def test_a_trace_outside_the_calendar_is_not_written(tmp_path):
    for start in (FIRST - 60, LAST):
        trace = Trace(("a",), [[1], [2]], None, [start, start + 60], clock="utc")
        with refused(TraceError, "out.csv", "1 to 9999"):
            write_trace(trace, tmp_path / "out.csv")


INSTANTS = ["2026-02-28T23:59:59Z", "2026-02-30T00:00:00", "2026-01-05 10:05:60.5+01:00"]
INSTANTS += ["0001-01-01T00:00:30+14:00", "9999-12-31T23:59:59-0100", "2026-01-05T24:00:00.250"]


@pytest.mark.parametrize("text", INSTANTS)
@pytest.mark.parametrize("zone", ["Z", "-04:00"])
def test_an_instant_is_the_same_by_minutes(monkeypatch, text, zone):
    quick = parse_instant(text, zone)
    monkeypatch.setattr(fields, "_MINUTE", fields._UNIX)  # matches none of them
    assert parse_instant(text, zone) == quick
