"""Reading a trace: what is accepted, what is refused and how, limits, and both ways agreeing."""

from __future__ import annotations

import gzip
import random
import re
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.data import read_trace
from corral.data.checks import Table, assemble
from corral.data.read import _Careful
from corral.data.scan import scan
from corral.errors import TraceError, TraceWarning

GOOD = (
    "time,node,arrivals,capacity\n"
    "0,a,1,10\n"
    "0,b,2,20\n"
    "60,a,3,30\n"
    "60,b,4,40\n"
    "120,a,5,50\n"
    "120,b,6,60\n"
)


def write(folder, content, name="loads.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def lines(old: str, new: str) -> str:
    """GOOD with its first ``old`` replaced."""
    assert old in GOOD
    return GOOD.replace(old, new, 1)


def test_a_good_file(tmp_path):
    trace = read_trace(write(tmp_path, GOOD))
    assert trace.name == "loads"
    assert trace.nodes == ("a", "b")
    assert trace.clock == "integer"
    assert trace.times.tolist() == [0, 60, 120]
    assert trace.arrivals.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert trace.capacity.tolist() == [[10, 20], [30, 40], [50, 60]]


ROW = "0,a,1,10"
THREE = GOOD.replace(",capacity", "").replace(",10", "").replace(",20", "").replace(",30", "")
THREE = re.sub(r",[456]0\n", "\n", THREE)
SHIFTED = "".join(f"x,{row}\n" for row in GOOD.splitlines()[1:])

# content, line, column, value, words of the rule
BAD = {
    "empty file": (b"", None, None, None, "empty"),
    "only a byte-order mark": (b"\xef\xbb\xbf", None, None, None, "empty"),
    "only line ends": (b"\n\n\n", None, None, None, "empty"),
    "only a header": (b"time,node,arrivals\n", None, None, None, "only a header"),
    "no header": (GOOD.split("\n", 1)[1], 1, None, "0,a,1,10", "row of data"),
    "missing column": (lines("node,", ""), 1, None, "time,arrivals,capacity", "missing: node"),
    "misspelt column": (lines("arrivals", "arivals"), 1, None, None, "did you mean 'arrivals'"),
    "capital column": (lines("time", "Time"), 1, None, None, "did you mean 'time'"),
    "space in header": (lines("node", " node"), 1, None, None, "did you mean 'node'"),
    "unknown column": (lines("capacity", "weather"), 1, None, None, "'weather' is unknown"),
    "fifth column": (lines("capacity", "capacity,x"), 1, None, None, "'x' is unknown"),
    "column twice": (lines("capacity", "arrivals"), 1, None, None, "more than once"),
    "wrong order": (lines("time,node", "node,time"), 1, None, None, "this order"),
    "semicolons": (GOOD.replace(",", ";"), 1, None, None, "semicolons"),
    "tabs": (GOOD.replace(",", "\t"), 1, None, None, "tabs"),
    "bars": (GOOD.replace(",", "|"), 1, None, None, "bars"),
    "semicolons below": (lines(ROW, "0;a;1;10"), 2, None, "0;a;1;10", "semicolons"),
    "short row": (lines("60,b,4,40", "60,b,4"), 5, None, "60,b,4", "3 fields, the header has 4"),
    "long row": (lines("60,b,4,40", "60,b,4,40,"), 5, None, "60,b,4,40,", "5 fields"),
    "every row long": (GOOD.split("\n")[0] + "\n" + SHIFTED, 2, None, "x,0,a,1,10", "5 fields"),
    "decimal comma": (THREE.replace("0,a,1\n", "0,a,1,5\n"), 2, None, "0,a,1,5", "4 fields"),
    "blank line": (lines("60,a", "\n60,a"), 4, None, None, "blank line"),
    "spaces alone": (GOOD + "  \n", 8, None, None, "blank line"),
    "empty count": (lines(ROW, "0,a,,10"), 2, "arrivals", "", "empty cell"),
    "empty capacity": (lines(ROW, "0,a,1,"), 2, "capacity", "", "empty cell"),
    "NaN": (lines(ROW, "0,a,nan,10"), 2, "arrivals", "nan", "missing value"),
    "NA": (lines("6,60\n", "NA,60\n"), 7, "arrivals", "NA", "missing value"),
    "infinite": (lines(ROW, "0,a,inf,10"), 2, "arrivals", "inf", "infinite"),
    "minus infinite": (lines(ROW, "0,a,1,-Infinity"), 2, "capacity", "-Infinity", "infinite"),
    "negative": (lines(ROW, "0,a,-1,10"), 2, "arrivals", "-1", "negative"),
    "minus zero": (lines(ROW, "0,a,-0,10"), 2, "arrivals", "-0", "negative"),
    "plus": (lines(ROW, "0,a,+1,10"), 2, "arrivals", "+1", "plain digits"),
    "fraction": (lines(ROW, "0,a,1.5,10"), 2, "arrivals", "1.5", "fraction"),
    "whole fraction": (lines(ROW, "0,a,1.0,10"), 2, "arrivals", "1.0", "fraction"),
    "exponent": (lines(ROW, "0,a,1e3,10"), 2, "arrivals", "1e3", "exponent"),
    "overflowing exponent": (lines(ROW, "0,a,1e400,10"), 2, "arrivals", "1e400", "exponent"),
    "hexadecimal": (lines(ROW, "0,a,0x1F,10"), 2, "arrivals", "0x1F", "plain digits"),
    "underscore": (lines(ROW, "0,a,1_000,10"), 2, "arrivals", "1_000", "plain digits"),
    "other digits": (lines(ROW, "0,a,١,10"), 2, "arrivals", "١", "plain digits"),
    "truth value": (lines(ROW, "0,a,True,10"), 2, "arrivals", "True", "plain digits"),
    "too large": (lines(ROW, "0,a,2147483649,10"), 2, "arrivals", "2147483649", "larger than"),
    "far too large": (lines(ROW, f"0,a,{10**19},10"), 2, "arrivals", str(10**19), "larger than"),
    "space before": (lines(ROW, "0,a, 1,10"), 2, "arrivals", " 1", "space around"),
    "space after": (lines(ROW, "0,a,1,10 "), 2, "capacity", "10 ", "space around"),
    "empty name": (lines(ROW, "0,,1,10"), 2, "node", "", "empty node name"),
    "blank name": (lines(ROW, "0, ,1,10"), 2, "node", " ", "empty node name"),
    "name with space": (lines(ROW, "0,a ,1,10"), 2, "node", "a ", "space around"),
    "invisible name": (lines(ROW, "0,a\u200b,1,10"), 2, "node", "a\u200b", "invisible"),
    "tab in a name": (lines(ROW, "0,a\tb,1,10"), 2, None, "0,a\tb,1,10", "control character"),
    "empty time": (lines(ROW, ",a,1,10"), 2, "time", "", "empty time"),
    "time with space": (lines(ROW, " 0,a,1,10"), 2, "time", " 0", "space around"),
    "fractional time": (lines(ROW, "0.5,a,1,10"), 2, "time", "0.5", "not a time"),
    "time in words": (lines(ROW, "noon,a,1,10"), 2, "time", "noon", "not a time"),
    "American date": (lines(ROW, "01/02/2026,a,1,10"), 2, "time", "01/02/2026", "ISO-8601"),
    "no such day": (lines(ROW, "2026-02-30,a,1,10"), 2, "time", "2026-02-30", "no such day"),
    "no such hour": (
        lines(ROW, "2026-01-01T24:00:00,a,1,10"),
        2,
        "time",
        "2026-01-01T24:00:00",
        "not a time",
    ),
    "part of a second": (
        lines(ROW, "2026-01-01T00:00:00.25Z,a,1,10"),
        2,
        "time",
        "2026-01-01T00:00:00.25Z",
        "fraction of a second",
    ),
    "mixed times": (lines("60,b", "2026-01-01,b"), 5, "time", "2026-01-01", "one kind"),
    "all zero": (re.sub(r",\d,", ",0,", GOOD), None, "arrivals", None, "all arrivals are 0"),
    "duplicate": (
        lines("60,b,4,40", "60,a,4,40"),
        5,
        "time",
        "60",
        "already has this time on line 4",
    ),
    "row missing": (lines("60,b,4,40\n", ""), 4, "time", "60", "missing: 'b'"),
    "nodes at other times": (GOOD.replace("60,b", "61,b"), 4, "time", "60", "missing: 'b'"),
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
        "120 after 180, the step is 60",
    ),
    "Latin-1": (lines("0,b", "0,é").encode("latin-1"), 3, None, "b'\\xe9,2,'", "not UTF-8"),
    "UTF-16 with mark": (GOOD.encode("utf-16"), None, None, None, "UTF-16"),
    "UTF-16 without": (GOOD.encode("utf-16-le"), 1, None, None, "NUL byte"),
    "NUL": (lines("3,30", "3\0,30"), 4, None, None, "NUL byte"),
    "open quote": (lines("60,a", '60,"a'), 4, None, '60,"a,3,30', "quote"),
    "stray quote": (lines("60,a", '60,a"'), 4, None, '60,a",3,30', "quote"),
    "line break in quotes": (lines("60,a", '60,"a\nb"'), 4, None, '60,"a', "quote"),
    "old Mac line ends": (GOOD.replace("\n", "\r"), 1, None, None, "carriage return"),
    "no last line end": (GOOD[:-1], 7, None, "120,b,6,60", "no line end"),
    "cut in a number": (GOOD[:-2], 7, None, "120,b,6,6", "no line end"),
    "cut between CR and LF": (
        GOOD.replace("\n", "\r\n")[:-1],
        7,
        None,
        "120,b,6,60",
        "no line end",
    ),
    "cut in a row": (GOOD[:-4], 7, None, "120,b,6", "no line end"),
    "cut at a row": (GOOD.rsplit("\n", 2)[0] + "\n", 6, "time", "120", "missing: 'b'"),
    "cut gzip": (gzip.compress(GOOD.encode())[:-9], None, None, None, "cut short"),
    "cut gzip header": (gzip.compress(GOOD.encode())[:6], None, None, None, "cut short"),
    "damaged gzip": (b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 40, None, None, None, "damaged"),
    "wrong check sum": (gzip.compress(GOOD.encode())[:-8] + bytes(8), None, None, None, "damaged"),
    "rubbish after gzip": (gzip.compress(GOOD.encode()) + b"x", None, None, None, "damaged"),
    "zip": (b"PK\x03\x04" + bytes(30), None, None, None, "zip"),
    "Parquet": (b"PAR1" + bytes(30), None, None, None, "Parquet"),
    "xz": (b"\xfd7zXZ\0" + bytes(30), None, None, None, "xz"),
    "a line too long": (lines("0,b", "0," + "b" * 70_000), 3, None, None, "longer than 65536"),
}


def test_there_are_many_bad_files():
    assert len(BAD) >= 45


@pytest.mark.parametrize(("content", "line", "column", "value", "words"), BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_with_its_place(tmp_path, content, line, column, value, words):
    path = write(tmp_path, content)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    fault = caught.value.faults[0]
    assert words in fault.rule
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
    assert str(caught.value).endswith("and more faults after these")


def test_exactly_eight_faults_are_not_said_to_be_more(tmp_path):
    rows = "".join(f"{t},a,{'x' if t < 8 else 1}\n" for t in range(20))
    with pytest.raises(TraceError) as caught:
        read_trace(write(tmp_path, "time,node,arrivals\n" + rows))
    assert len(caught.value.faults) == 8
    assert "more faults" not in str(caught.value)


def test_missing_file_and_folder_are_explained(tmp_path):
    with pytest.raises(TraceError, match=r"no such file.*edge3, edge8"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(TraceError, match="this is a folder"):
        read_trace(tmp_path)


BY_NODE = "".join(
    line for node in ("node", "a", "b") for line in GOOD.splitlines(True) if f",{node}," in line
)
QUOTED = GOOD.replace("0,a,", '"0","a",').replace('6"0"', '"60"').replace('12"0"', '"120"')


@pytest.mark.parametrize(
    "content",
    [
        GOOD.replace("\n", "\r\n"),
        "\ufeff" + GOOD,
        "\ufeff" + GOOD.replace("\n", "\r\n"),
        GOOD + "\n",
        GOOD + "\n\r\n\n",
        QUOTED,
        GOOD.replace("0,a,1", "000,a,001"),
        gzip.compress(GOOD.encode()),
        gzip.compress(GOOD[:30].encode()) + gzip.compress(GOOD[30:].encode()),
        BY_NODE,
    ],
    ids=["CRLF", "BOM", "both", "blank", "blanks", "quotes", "zeros", "gzip", "members", "by-node"],
)
def test_harmless_variations_read_alike(tmp_path, content):
    assert read_trace(write(tmp_path, content)) == read_trace(write(tmp_path, GOOD, "good.csv"))


def test_the_content_tells_gzip_not_the_name(tmp_path):
    plain = read_trace(write(tmp_path, GOOD, "plain.csv.gz"))
    packed = read_trace(write(tmp_path, gzip.compress(GOOD.encode()), "packed.csv"))
    assert plain == packed
    assert (plain.name, packed.name) == ("plain", "packed")


def test_without_capacity(tmp_path):
    trace = read_trace(write(tmp_path, THREE))
    assert trace.capacity is None
    assert trace.arrivals.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_nodes_keep_the_order_of_first_appearance(tmp_path):
    content = "time,node,arrivals\n" + "".join(f"{t},{n},1\n" for t in (0, 1) for n in "zaм")
    assert read_trace(write(tmp_path, content)).nodes == ("z", "a", "м")


def test_quoted_names_may_hold_commas_and_quotes(tmp_path):
    content = 'time,node,arrivals\n0,"a,b",1\n0,"say ""hi""",2\n'
    assert read_trace(write(tmp_path, content)).nodes == ("a,b", 'say "hi"')


@pytest.mark.parametrize(
    "times",
    [
        ("2026-01-05T00:00:00Z", "2026-01-05T00:05:00Z"),
        ("2026-01-05T00:00:00", "2026-01-05 00:05:00"),
        ("2026-01-05", "2026-01-05T00:05"),
        ("2026-01-05T02:00:00+02:00", "2026-01-04T18:35:00-0530"),
        ("2026-01-05T00:00:00.000Z", "2026-01-05T00:05:00.0+00:00"),
    ],
)
def test_iso_times_become_seconds_in_utc(tmp_path, times):
    content = "time,node,arrivals\n" + "".join(f"{t},a,1\n" for t in times)
    trace = read_trace(write(tmp_path, content))
    assert trace.clock == "utc"
    assert trace.times.tolist() == [1767571200, 1767571500]
    assert trace.step == 300


def test_negative_integer_times(tmp_path):
    content = "time,node,arrivals\n" + "".join(f"{t},a,1\n" for t in (-20, -10, 0, 10))
    trace = read_trace(write(tmp_path, content))
    assert (trace.times.tolist(), trace.clock) == ([-20, -10, 0, 10], "integer")


def test_unsorted_rows_are_sorted_with_a_warning(tmp_path):
    header, *rows = GOOD.splitlines(keepends=True)
    shuffled = header + "".join([rows[i] for i in (2, 0, 5, 1, 3, 4)])
    with pytest.warns(TraceWarning, match="not in order of time") as caught:
        trace = read_trace(write(tmp_path, shuffled))
    assert caught[0].filename == __file__
    assert trace == read_trace(write(tmp_path, GOOD, "good.csv"))


# Limits: a file is refused before it fills memory.

HEAD = b"time,node,arrivals\n"


def _packed(head: bytes, block: bytes, times: int) -> bytes:
    """A gzip file of many members, each a few kilobytes for a few megabytes."""
    return gzip.compress(head) + gzip.compress(block, 9) * times


BOMBS = {  # most unpack to a gigabyte
    "zeros": (lambda: _packed(b"", bytes(2**22), 256), "NUL byte"),
    "zeros below a header": (lambda: _packed(HEAD, bytes(2**22), 256), "NUL byte"),
    "one line": (lambda: _packed(HEAD, b"1" * 2**22, 256), "longer than 65536"),
    "line ends": (lambda: _packed(HEAD, b"\n" * 2**22, 256), "more than 50,000,000 cells"),
    "short rows": (lambda: _packed(HEAD, b"1,a,1\n" * 2**19, 350), "more than 50,000,000 cells"),
    "long rows": (
        lambda: _packed(HEAD, (b"2026-01-01T00:00:00Z," + b"n" * 9999 + b",1\n") * 420, 256),
        "more than 201,326,592 bytes",
    ),
    "commas": (lambda: _packed(b"", (b"," * 60_000 + b"\n") * 70, 256), "cells"),
    "many members": (
        lambda: gzip.compress(HEAD) + gzip.compress(b"a" * 2**26) * 1000,
        "longer than",
    ),
}


@pytest.mark.parametrize(("make", "words"), BOMBS.values(), ids=BOMBS)
def test_a_gzip_bomb_is_refused_in_a_second(tmp_path, make, words):
    path = write(tmp_path, make(), "bomb.csv.gz")
    seconds = []
    for _ in range(2):  # the better of two: others may keep the machine busy
        begin = time.process_time()
        with pytest.raises(TraceError, match=words):
            read_trace(path)
        seconds.append(time.process_time() - begin)
    assert min(seconds) < 1


def test_a_large_plain_file_is_refused_by_its_size(tmp_path):
    path = tmp_path / "sparse.csv"
    with path.open("wb") as file:
        file.truncate(2**40)
    begin = time.process_time()
    with pytest.raises(TraceError, match="more than 201,326,592 bytes"):
        read_trace(path)
    assert time.process_time() - begin < 0.1


def test_limits_are_exact_and_can_be_raised(tmp_path):
    path = write(tmp_path, GOOD)  # 6 rows of 4 columns
    assert len(read_trace(path, max_cells=24, max_bytes=len(GOOD))) == 3
    with pytest.raises(TraceError, match="more than 23 cells"):
        read_trace(path, max_cells=23)
    with pytest.raises(TraceError, match=f"more than {len(GOOD) - 1} bytes"):
        read_trace(path, max_bytes=len(GOOD) - 1)


# Two ways through a file: whatever the fast one takes, the careful one takes too, and alike.


def outcome(table: Table | None, data: bytes):
    """The trace, or the faults, with or without a warning."""
    if table is None:
        return None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            trace = assemble(table, data, name="x")
            return trace.nodes, trace.clock, trace.digest, len(caught)
        except TraceError as error:
            return str(error)


def assert_agreement(data: bytes) -> bool:
    """Whether the fast way took ``data``; fails where the careful one differs."""
    fast = scan(data, file="x")
    if fast is None:
        return False
    careful = _Careful("x").read(data)  # must not raise
    assert outcome(fast, data) == outcome(careful, data)
    return True


def test_the_fast_way_is_taken_by_plain_files(tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError("the careful way was taken")

    monkeypatch.setattr("corral.data.read._Careful.read", refuse)
    for count, clock in ((3, "integer"), (40, "iso")):
        times = [
            str(60 * t) if clock == "integer" else f"2026-01-{t // 24 + 1:02d}T{t % 24:02d}:00:00Z"
            for t in range(200)
        ]
        names = [f"node-{n}-in-a-long-street" if n % 2 else f"é{n}" for n in range(count)]
        for end in ("\n", "\r\n"):
            rows = [f"{t},{n},{len(n)},2147483648" for t in times for n in names]
            content = end.join(["time,node,arrivals,capacity", *rows, ""])
            trace = read_trace(write(tmp_path, content))
            assert trace.arrivals.shape == (200, count)
            assert trace.nodes == tuple(names)
    with pytest.raises(AssertionError, match="careful"):
        read_trace(write(tmp_path, QUOTED))


def test_mutated_files_are_read_alike_both_ways():
    rng = random.Random(1)
    iso = GOOD.replace("\n120,", "\n2026-01-01T00:02:00Z,").replace("\n60,", "\n2026-01-01T00:01Z,")
    iso = iso.replace("\n0,", "\n2026-01-01,")
    seeds = [GOOD, THREE, GOOD.replace("\n", "\r\n"), iso, GOOD.replace("b", "é")]
    pieces = b'0 1 5 9 12 - , \n \r " . a b e T Z : + 99999999999 \t \0 \x7f'.split(b" ")
    pieces += [b"\xc3", b"\xa0", b"\xc2\x85"]
    pieces += [b"", b" ", b"0", b"7", b"3"]
    taken = 0
    for _ in range(8000):
        data = bytearray(rng.choice(seeds).encode())
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(data) + 1)
            data[at : at + rng.choice((0, 1, 1, 2, 9))] = rng.choice(pieces)
        taken += assert_agreement(bytes(data))
    assert taken > 250  # enough of the mutants were plain


names = st.text(
    st.characters(codec="utf-8", exclude_characters="\0\r\n"), min_size=1, max_size=20
).filter(lambda text: "," not in text)


@settings(max_examples=150, deadline=None, database=None)
@given(
    names=st.lists(names, min_size=1, max_size=4, unique=True),
    start=st.integers(-(10**9), 10**9),
    step=st.integers(1, 10**6),
    rows=st.integers(1, 5),
    data=st.data(),
)
def test_drawn_files_are_read_alike_both_ways(names, start, step, rows, data):
    cells = [(t, n) for t in range(rows) for n in names]
    counts = data.draw(
        st.lists(st.integers(0, 2**31 + 1), min_size=len(cells), max_size=len(cells))
    )
    order = data.draw(st.permutations(range(len(cells))))
    text = "time,node,arrivals\n" + "".join(
        f"{start + step * cells[i][0]},{cells[i][1]},{counts[i]}\n" for i in order
    )
    plain = all(c <= 2**31 for c in counts) and all(
        n.isprintable() and n.strip() == n and '"' not in n for n in names
    )
    assert assert_agreement(text.encode()) == plain


def test_the_fast_way_reads_what_was_written():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 2**31 + 1, size=(500, 3)) >> rng.integers(0, 32, size=(500, 3))
    counts[0] = (0, 2**31, 10)
    text = "time,node,arrivals,capacity\n" + "".join(
        f"{t},n{i},{counts[t, i]},{counts[t, -i]}\n" for t in range(500) for i in range(3)
    )
    table = scan(text.encode(), file="x")
    assert table is not None
    assert table.capacity is not None
    assert table.arrivals.reshape(500, 3).tolist() == counts.tolist()
    assert table.capacity.reshape(500, 3).tolist() == counts[:, [0, -1, -2]].tolist()


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
    assert "1 of 9 rows; did you mean 'web'?" in fault.rule


def test_a_gap_says_how_long_in_which_unit(tmp_path: Path) -> None:
    path = tmp_path / "loads.csv"
    times = ["00:00", "00:05", "00:10", "01:15"]
    path.write_text("time,node,arrivals\n" + "".join(f"2026-01-01T{t},a,1\n" for t in times))
    with pytest.raises(TraceError, match=r"3900 s after 2026-01-01T00:10:00Z, the step is 300 s"):
        read_trace(path)
