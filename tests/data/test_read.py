"""Reading a trace: what is accepted, and limits that hold before memory fills."""

from __future__ import annotations

import gzip
import time

import pytest

from corral.data import read_trace
from corral.errors import TraceError, TraceWarning
from support.messages import refused, shown
from support.trace_files import GOOD, QUOTED, THREE, write


def test_a_good_file(tmp_path):
    trace = read_trace(write(tmp_path, GOOD))
    assert trace.name == "loads"
    assert trace.nodes == ("a", "b")
    assert trace.clock == "integer"
    assert trace.times.tolist() == [0, 60, 120]
    assert trace.arrivals.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert trace.capacity.tolist() == [[10, 20], [30, 40], [50, 60]]


BY_NODE = "".join(
    line for node in ("node", "a", "b") for line in GOOD.splitlines(True) if f",{node}," in line
)


@pytest.mark.parametrize(
    "content",
    [
        GOOD.replace("\n", "\r\n"),
        "\ufeff" + GOOD,
        GOOD.encode("utf-16"),
        b"\xfe\xff" + GOOD.encode("utf-16-be"),
        "\ufeff" + GOOD.replace("\n", "\r\n"),
        GOOD + "\n",
        GOOD + "\n\r\n\n",
        QUOTED,
        GOOD.replace("0,a,1", "000,a,001"),
        gzip.compress(GOOD.encode()),
        gzip.compress(GOOD[:30].encode()) + gzip.compress(GOOD[30:].encode()),
        BY_NODE,
    ],
    ids=[
        *("CRLF", "BOM", "UTF-16", "UTF-16-BE", "both", "blank", "blanks", "quotes", "zeros"),
        *("gzip", "members", "by-node"),
    ],
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
    with pytest.warns(TraceWarning) as caught:
        trace = read_trace(write(tmp_path, shuffled))
    assert caught[0].filename == __file__
    shown(str(caught[0].message), "loads.csv", "order")
    assert trace == read_trace(write(tmp_path, GOOD, "good.csv"))


# Limits: a file is refused before it fills memory.

HEAD = b"time,node,arrivals\n"


def _packed(head: bytes, block: bytes, times: int) -> bytes:
    """A gzip file of many members, each a few kilobytes for a few megabytes."""
    return gzip.compress(head) + gzip.compress(block, 9) * times


BOMBS = {  # most unpack to a gigabyte
    "zeros": (lambda: _packed(b"", bytes(2**22), 256), (":1:", "NUL")),
    "zeros below a header": (lambda: _packed(HEAD, bytes(2**22), 256), (":2:", "NUL")),
    "one line": (lambda: _packed(HEAD, b"1" * 2**22, 256), ("65536 bytes",)),
    "line ends": (lambda: _packed(HEAD, b"\n" * 2**22, 256), ("25,000,000", "max_cells=")),
    "short rows": (lambda: _packed(HEAD, b"1,a,1\n" * 2**19, 350), ("100 times",)),
    "long rows": (
        lambda: _packed(HEAD, (b"2026-01-01T00:00:00Z," + b"n" * 9999 + b",1\n") * 420, 256),
        ("100 times",),
    ),
    "commas": (lambda: _packed(b"", (b"," * 60_000 + b"\n") * 70, 256), ("100 times",)),
    "empty members": (
        lambda: gzip.compress(HEAD) + gzip.compress(b"") * 10**6,
        ("10,000 members",),
    ),
    "many members": (
        lambda: gzip.compress(HEAD) + gzip.compress(b"a" * 2**26) * 1000,
        ("65536 bytes",),
    ),
}


@pytest.mark.parametrize(("make", "values"), BOMBS.values(), ids=BOMBS)
def test_a_gzip_bomb_is_refused_at_once(tmp_path, make, values):
    path = write(tmp_path, make(), "bomb.csv.gz")
    begin = time.process_time()
    with refused(TraceError, *values):
        read_trace(path)
    assert time.process_time() - begin < 20  # a second on an idle machine; unpacked, minutes


def test_a_large_plain_file_is_refused_by_its_size(tmp_path):
    path = tmp_path / "sparse.csv"
    with path.open("wb") as file:
        file.truncate(2**40)
    begin = time.process_time()
    with refused(TraceError, "201,326,592", "max_bytes="):
        read_trace(path)
    assert time.process_time() - begin < 20  # a terabyte would take many minutes


def test_limits_are_exact_and_can_be_raised(tmp_path):
    path = write(tmp_path, GOOD)  # 6 rows of 4 columns
    assert len(read_trace(path, max_cells=24, max_bytes=len(GOOD))) == 3
    with refused(TraceError, 23, "max_cells="):
        read_trace(path, max_cells=23)
    with refused(TraceError, len(GOOD) - 1, "max_bytes="):
        read_trace(path, max_bytes=len(GOOD) - 1)
