"""Reading a trace: what is refused, and how each fault is named."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from corral.data import read_trace
from corral.errors import TraceError
from support.messages import refused, shown
from support.trace_files import GOOD, THREE, write


def lines(old: str, new: str) -> str:
    """GOOD with its first ``old`` replaced."""
    assert old in GOOD
    return GOOD.replace(old, new, 1)


ROW = "0,a,1,10"
SHIFTED = "".join(f"x,{row}\n" for row in GOOD.splitlines()[1:])

# content, line, column, value, a word of the rule
BAD = {
    "empty file": (b"", None, None, None, "empty"),
    "only a byte-order mark": (b"\xef\xbb\xbf", None, None, None, "empty"),
    "only line ends": (b"\n\n\n", None, None, None, "empty"),
    "only a header": (b"time,node,arrivals\n", None, None, None, "header"),
    "no header": (GOOD.split("\n", 1)[1], 1, None, "0,a,1,10", "data"),
    "missing column": (lines("node,", ""), 1, None, "time,arrivals,capacity", "node"),
    "misspelt column": (lines("arrivals", "arivals"), 1, None, None, "'arrivals'"),
    "capital column": (lines("time", "Time"), 1, None, None, "'time'"),
    "space in header": (lines("node", " node"), 1, None, None, "'node'"),
    "unknown column": (lines("capacity", "weather"), 1, None, None, "'weather'"),
    "fifth column": (lines("capacity", "capacity,x"), 1, None, None, "'x'"),
    "column twice": (lines("capacity", "arrivals"), 1, None, None, "once"),
    "wrong order": (lines("time,node", "node,time"), 1, None, None, "order"),
    "semicolons": (GOOD.replace(",", ";"), 1, None, None, "semicolons"),
    "tabs": (GOOD.replace(",", "\t"), 1, None, None, "tabs"),
    "bars": (GOOD.replace(",", "|"), 1, None, None, "bars"),
    "semicolons below": (lines(ROW, "0;a;1;10"), 2, None, "0;a;1;10", "semicolons"),
    "short row": (lines("60,b,4,40", "60,b,4"), 5, None, "60,b,4", "3 fields"),
    "long row": (lines("60,b,4,40", "60,b,4,40,"), 5, None, "60,b,4,40,", "5 fields"),
    "every row long": (GOOD.split("\n")[0] + "\n" + SHIFTED, 2, None, "x,0,a,1,10", "5 fields"),
    "decimal comma": (THREE.replace("0,a,1\n", "0,a,1,5\n"), 2, None, "0,a,1,5", "4 fields"),
    "blank line": (lines("60,a", "\n60,a"), 4, None, None, "blank"),
    "spaces alone": (GOOD + "  \n", 8, None, None, "blank"),
    "empty count": (lines(ROW, "0,a,,10"), 2, "arrivals", "", "empty"),
    "empty capacity": (lines(ROW, "0,a,1,"), 2, "capacity", "", "empty"),
    "NaN": (lines(ROW, "0,a,nan,10"), 2, "arrivals", "nan", "missing"),
    "NA": (lines("6,60\n", "NA,60\n"), 7, "arrivals", "NA", "missing"),
    "infinite": (lines(ROW, "0,a,inf,10"), 2, "arrivals", "inf", "infinite"),
    "minus infinite": (lines(ROW, "0,a,1,-Infinity"), 2, "capacity", "-Infinity", "infinite"),
    "negative": (lines(ROW, "0,a,-1,10"), 2, "arrivals", "-1", "negative"),
    "minus zero": (lines(ROW, "0,a,-0,10"), 2, "arrivals", "-0", "negative"),
    "plus": (lines(ROW, "0,a,+1,10"), 2, "arrivals", "+1", "digits"),
    "fraction": (lines(ROW, "0,a,1.5,10"), 2, "arrivals", "1.5", "fraction"),
    "whole fraction": (lines(ROW, "0,a,1.0,10"), 2, "arrivals", "1.0", "fraction"),
    "exponent": (lines(ROW, "0,a,1e3,10"), 2, "arrivals", "1e3", "exponent"),
    "overflowing exponent": (lines(ROW, "0,a,1e400,10"), 2, "arrivals", "1e400", "exponent"),
    "hexadecimal": (lines(ROW, "0,a,0x1F,10"), 2, "arrivals", "0x1F", "digits"),
    "underscore": (lines(ROW, "0,a,1_000,10"), 2, "arrivals", "1_000", "digits"),
    "other digits": (lines(ROW, "0,a,١,10"), 2, "arrivals", "١", "digits"),
    "truth value": (lines(ROW, "0,a,True,10"), 2, "arrivals", "True", "digits"),
    "too large": (lines(ROW, "0,a,2147483649,10"), 2, "arrivals", "2147483649", "larger"),
    "far too large": (lines(ROW, f"0,a,{10**19},10"), 2, "arrivals", str(10**19), "larger"),
    "space before": (lines(ROW, "0,a, 1,10"), 2, "arrivals", " 1", "space"),
    "space after": (lines(ROW, "0,a,1,10 "), 2, "capacity", "10 ", "space"),
    "empty name": (lines(ROW, "0,,1,10"), 2, "node", "", "empty"),
    "blank name": (lines(ROW, "0, ,1,10"), 2, "node", " ", "empty"),
    "name with space": (lines(ROW, "0,a ,1,10"), 2, "node", "a ", "space"),
    "invisible name": (lines(ROW, "0,a\u200b,1,10"), 2, "node", "a\u200b", "invisible"),
    "tab in a name": (lines(ROW, "0,a\tb,1,10"), 2, None, "0,a\tb,1,10", "control"),
    "empty time": (lines(ROW, ",a,1,10"), 2, "time", "", "empty"),
    "time with space": (lines(ROW, " 0,a,1,10"), 2, "time", " 0", "space"),
    "fractional time": (lines(ROW, "0.5,a,1,10"), 2, "time", "0.5", "ISO-8601"),
    "time in words": (lines(ROW, "noon,a,1,10"), 2, "time", "noon", "ISO-8601"),
    "American date": (lines(ROW, "01/02/2026,a,1,10"), 2, "time", "01/02/2026", "ISO-8601"),
    "no such day": (lines(ROW, "2026-02-30,a,1,10"), 2, "time", "2026-02-30", "day"),
    "no such hour": (
        lines(ROW, "2026-01-01T24:00:00,a,1,10"),
        2,
        "time",
        "2026-01-01T24:00:00",
        "ISO-8601",
    ),
    "part of a second": (
        lines(ROW, "2026-01-01T00:00:00.25Z,a,1,10"),
        2,
        "time",
        "2026-01-01T00:00:00.25Z",
        "second",
    ),
    "mixed times": (lines("60,b", "2026-01-01,b"), 5, "time", "2026-01-01", "kind"),
    "all zero": (re.sub(r",\d,", ",0,", GOOD), None, "arrivals", None, "0"),
    "duplicate": (
        lines("60,b,4,40", "60,a,4,40"),
        5,
        "time",
        "60",
        "line 4",
    ),
    "row missing": (lines("60,b,4,40\n", ""), 4, "time", "60", "'b'"),
    "nodes at other times": (GOOD.replace("60,b", "61,b"), 4, "time", "60", "'b'"),
    "uneven step": (
        GOOD.replace("120,", "130,") + "190,a,1,1\n190,b,1,1\n",
        6,
        "time",
        "130",
        "70",
    ),
    "time missing": (
        GOOD + "".join(f"{t},{n},1,1\n" for t in (180, 300) for n in "ab"),
        10,
        "time",
        "300",
        "120 after 180",
    ),
    "Latin-1": (lines("0,b", "0,é").encode("latin-1"), 3, None, "b'\\xe9,2,'", "UTF-8"),
    "UTF-16, cut": (GOOD.encode("utf-16")[:-1], None, None, None, "UTF-16"),
    "UTF-16 without": (GOOD.encode("utf-16-le"), 1, None, None, "NUL"),
    "NUL": (lines("3,30", "3\0,30"), 4, None, None, "NUL"),
    "open quote": (lines("60,a", '60,"a'), 4, None, '60,"a,3,30', "quote"),
    "stray quote": (lines("60,a", '60,a"'), 4, None, '60,a",3,30', "quote"),
    "line break in quotes": (lines("60,a", '60,"a\nb"'), 4, None, '60,"a', "quote"),
    "old Mac line ends": (GOOD.replace("\n", "\r"), 1, None, None, "carriage"),
    "no last line end": (GOOD[:-1], 7, None, "120,b,6,60", "line end"),
    "cut in a number": (GOOD[:-2], 7, None, "120,b,6,6", "line end"),
    "cut between CR and LF": (
        GOOD.replace("\n", "\r\n")[:-1],
        7,
        None,
        "120,b,6,60",
        "line end",
    ),
    "cut in a row": (GOOD[:-4], 7, None, "120,b,6", "line end"),
    "cut at a row": (GOOD.rsplit("\n", 2)[0] + "\n", 6, "time", "120", "'b'"),
    "cut gzip": (gzip.compress(GOOD.encode())[:-9], None, None, None, "cut"),
    "cut gzip header": (gzip.compress(GOOD.encode())[:6], None, None, None, "cut"),
    "damaged gzip": (b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 40, None, None, None, "damaged"),
    "wrong check sum": (gzip.compress(GOOD.encode())[:-8] + bytes(8), None, None, None, "damaged"),
    "rubbish after gzip": (gzip.compress(GOOD.encode()) + b"x", None, None, None, "damaged"),
    "zip": (b"PK\x03\x04" + bytes(30), None, None, None, "zip"),
    "Parquet": (b"PAR1" + bytes(30), None, None, None, "Parquet"),
    "xz": (b"\xfd7zXZ\0" + bytes(30), None, None, None, "xz"),
    "a line too long": (lines("0,b", "0," + "b" * 70_000), 3, None, None, "65536"),
}


def test_there_are_many_bad_files():
    assert len(BAD) >= 45


@pytest.mark.parametrize(("content", "line", "column", "value", "word"), BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_with_its_place(tmp_path, content, line, column, value, word):
    path = write(tmp_path, content)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    fault = caught.value.faults[0]
    assert word in fault.rule
    assert fault.file == str(path)
    assert (fault.line, fault.column) == (line, column)
    message = str(caught.value).splitlines()[0]
    assert message.startswith(f"{path}:{line}:" if line else f"{path}:")
    if column is not None:
        assert repr(column) in message
    if value is not None:
        assert fault.value == value
        assert repr(value) in message


def test_many_faults_are_told_at_once_but_not_all(tmp_path):
    rows = "".join(f"{t},a,{'x' if t % 2 else 1},5\n" for t in range(40))
    with pytest.raises(TraceError) as caught:
        read_trace(write(tmp_path, "time,node,arrivals,capacity\n" + rows))
    assert [fault.line for fault in caught.value.faults] == [3, 5, 7, 9, 11, 13, 15, 17]
    assert len(str(caught.value).splitlines()) == 9  # the last says that there are more


def test_exactly_eight_faults_are_not_said_to_be_more(tmp_path):
    rows = "".join(f"{t},a,{'x' if t < 8 else 1}\n" for t in range(20))
    with pytest.raises(TraceError) as caught:
        read_trace(write(tmp_path, "time,node,arrivals\n" + rows))
    assert len(caught.value.faults) == 8
    assert len(str(caught.value).splitlines()) == 8


def test_missing_file_and_folder_are_explained(tmp_path):
    with refused(TraceError, "none.csv", "edge3, edge8"):
        read_trace(tmp_path / "none.csv")


def test_a_misspelt_node_is_named_itself(tmp_path: Path) -> None:
    """Not every time at which its namesake is missing."""
    rows = [f"{t},{node},1\n" for t in range(9) for node in ("db", "web")]
    rows[7] = "3,Web,1\n"
    path = tmp_path / "loads.csv"
    path.write_text("time,node,arrivals\n" + "".join(rows))
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    (fault,) = caught.value.faults
    assert (fault.line, fault.column, fault.value) == (9, "node", "Web")
    shown(fault.rule, "1 of 9", "'web'")


def test_a_gap_says_how_long_in_which_unit(tmp_path: Path) -> None:
    path = tmp_path / "loads.csv"
    times = ["00:00", "00:05", "00:10", "01:15"]
    path.write_text("time,node,arrivals\n" + "".join(f"2026-01-01T{t},a,1\n" for t in times))
    with refused(
        TraceError, "loads.csv:5", "'2026-01-01T01:15'", "3900 s", "2026-01-01T00:10:00Z", "300 s"
    ):
        read_trace(path)


def test_zones_are_spoken_of_where_a_time_names_none(tmp_path: Path) -> None:
    for zone in ("", "Z", "+01:00"):
        times = [f"2026-01-01T00:{minute}:00{zone}" for minute in ("00", "05", "15")]
        path = tmp_path / "gap.csv"
        path.write_text("time,node,arrivals\n" + "".join(f"{time},a,1\n" for time in times))
        with refused(TraceError, "gap.csv:4", "600 s", "300 s") as caught:
            read_trace(path)
        assert ("UTC" in str(caught.value)) is (not zone)
