"""Cells of a delimited file: the line of each row, and the encoding."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.data import import_trace
from corral.data.importers.tables.cells import BATCH, read_table


def test_lines_count_breaks_inside_cells(tmp_path: Path) -> None:
    rows = ['"a\nb",1\n' if row % 7 == 0 else "a,1\n" for row in range(2 * BATCH)]
    path = tmp_path / "rows.csv"
    path.write_text("name,load\n" + "".join(rows))
    table = read_table(path, [], max_bytes=10**6, max_cells=10**6, has_times=False)
    ends = [1]
    for row in rows:
        ends.append(ends[-1] + row.count("\n"))
    assert table.lines.tolist() == ends[1:]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "UTF_16_LE"])
def test_utf_16_may_be_named(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("time,Zürich\n2026-03-02T00:00Z,1\n2026-03-02T00:01Z,2\n", "utf-16")
    trace = import_trace(path, encoding=encoding).trace
    assert (trace.nodes, trace.arrivals.tolist()) == (("Zürich",), [[1], [2]])
