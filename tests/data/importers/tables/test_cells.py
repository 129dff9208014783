"""Cells of a delimited file: the line of each row."""

from __future__ import annotations

from pathlib import Path

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
