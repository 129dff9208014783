"""Limits that hold while a file is read, and what is told of how far the reading is."""

from __future__ import annotations

import tracemalloc
import warnings

import pytest

from corral.data import import_series, read_trace, scan
from corral.errors import TraceError
from corral.progress import progress_to
from support.import_files import write as write_rows
from support.messages import refused, shown
from support.trace_files import GOOD, QUOTED, write

HEAD = b"time,node,arrivals\n"
ROWS = 50_000

SMALL = {  # the shortest rows there are: most rows, and most memory, for a byte of file
    "one cell": b"0,a,1\n" * ROWS,
    "in order": b"".join(b"%d,a,1\n" % row for row in range(ROWS)),
    "backwards": b"".join(b"%d,a,1\n" % -row for row in range(ROWS)),
    "in quotes": b"".join(b'"%d",a,1\n' % row for row in range(ROWS)),
    "many nodes": b"".join(b"%d,%x,1\n" % divmod(row, 10_000) for row in range(ROWS)),
}


@pytest.mark.parametrize("rows", SMALL.values(), ids=SMALL)
def test_memory_is_bounded_per_row(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(scan, "CHUNK", 2**12)  # what a block takes is no matter here
    path = write(tmp_path, HEAD + rows)
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read_trace(path)
        except TraceError as error:
            shown(str(error), f"{ROWS - 1:,}", f"{ROWS:,}")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    # 8.3 million rows at most: 1.1 GB. It was 250 bytes a row, and twice as many rows.
    assert peak < 1e6 + 130 * ROWS


def test_too_many_nodes_are_refused(tmp_path):
    for quote in ("", '"'):
        rows = "".join(f"0,{quote}n{node}{quote},1\n" for node in range(10_001))
        path = write(tmp_path, "time,node,arrivals\n" + rows)
        with refused(TraceError, "loads.csv:10002", "'node'", "'n10000'", "max_nodes"):
            read_trace(path)
        assert len(read_trace(path, max_nodes=10_001).nodes) == 10_001


@pytest.mark.parametrize("content", [GOOD, QUOTED], ids=["fast", "careful"])
def test_progress_is_told_to_the_end(tmp_path, content):
    told: list[tuple[str, int, int]] = []
    path = write(tmp_path, content)
    read_trace(path, progress=lambda *each: told.append(each))
    assert told[-1] == ("reading", len(content), len(content))
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_importers_tell_how_far_they_are(tmp_path):
    told: list[tuple[str, int, int]] = []
    path = write_rows(tmp_path, "a.csv", "time,value", "2026-01-05,1", "2026-01-06,1")
    with progress_to(lambda *each: told.append(each)):
        import_series(path)
    assert set(told) == {("reading", path.stat().st_size, path.stat().st_size)}


def test_the_end_is_told_of_a_file_that_is_refused(tmp_path):
    told: list[tuple[str, int, int]] = []
    path = write(tmp_path, "time,node,arrivals\n" + '"x",a,1\n' * 20_000)
    with refused(TraceError, ":2:", "'x'", "ISO-8601"):
        read_trace(path, progress=lambda *each: told.append(each))
    assert told[-1][1] == told[-1][2]


def test_a_line_is_not_longer_in_an_importer(tmp_path):
    path = write_rows(tmp_path, "a.csv", "time,value", "2026-01-05," + "1" * 70_000)
    with refused(TraceError, "a.csv:2", "65536 bytes"):
        import_series(path)
