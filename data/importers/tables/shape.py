"""Filter the rows of a table, turn columns of times into rows, and add columns of file and row."""

from __future__ import annotations

import re
from collections.abc import Collection

import numpy as np

from corral.data.importers.tables.cells import Column, Table
from corral.data.importers.tables.columns import column_of, stop
from corral.data.importers.tables.numbers import looks_numeric
from corral.data.importers.tables.times import PLAIN, style_of
from corral.data.source import MAX_CELLS

__all__ = ["shaped"]


def shaped(table: Table, where: str | None, named: Collection[str], notes: list[str]) -> Table:
    """Return the table with the rows of ``where``, one row per time, and the columns of ``named``.

    ``where`` is column=value or column!=value, separated by commas. In a table with times as column
    names, each cell below a time becomes a row. If ``named`` has the names "file" or "row", and the
    table has no such columns, these columns are the name of the file and the number of the row.
    """
    if "file" in named and "file" not in table.columns:
        codes = np.zeros(len(table), dtype=np.int32)
        name = table.path.name.removesuffix(".gz")
        table.columns["file"] = Column("file", codes, [name])
    if "row" in named and "row" not in table.columns:
        codes = np.arange(len(table), dtype=np.int32)
        table.columns["row"] = Column("row", codes, list(map(str, codes.tolist())))
    if where is not None:
        table = _filtered(table, where, notes)
    return _melted(table)


def _filtered(table: Table, where: str, notes: list[str]) -> Table:
    rows = np.ones(len(table), dtype=bool)
    for part in re.split(r",(?=[^,=]+=)", where):
        name, mark, value = part.partition("=")
        is_not = name.endswith("!")
        if not mark:
            raise ValueError(f"where={where!r} must be column=value, separated by commas")
        column = column_of(table, name.removesuffix("!").strip(), "where")
        matches = np.array([str(cell) == value.strip() for cell in column.cells], dtype=bool)
        if not matches.any():
            samples = ", ".join(map(str, column.sample()[:6]))
            stop(table, f"where={part}: no row has this value; column {name!r} has {samples}")
        rows &= matches[column.codes] != is_not
    if not rows.any():
        stop(table, f"where={where}: no row is left")
    num_rows = int(rows.sum())
    notes.append(f"{table.path.name}: {num_rows:,} of {len(table):,} rows have {where}")
    columns = {}
    for name, column in table.columns.items():
        used, codes = np.unique(column.codes[rows], return_inverse=True)
        cells = [column.cells[code] for code in used.tolist()]
        columns[name] = Column(name, codes.astype(np.int32), cells)
    return Table(table.path, columns, table.lines[rows], table.delimiter)


def _melted(table: Table) -> Table:
    """Return a row per cell for columns that have times as names; other tables as they are."""
    times = [name for name in table.columns if style_of([name]) not in (None, *PLAIN)]
    labels = [name for name in table.columns if name not in times]
    numeric = all(looks_numeric(table.columns[name].sample()) for name in times)
    if len(times) < 2 or len(times) < len(labels) or not numeric:
        return table
    num_rows = len(table)
    if num_rows * len(times) > MAX_CELLS:
        stop(table, f"{num_rows:,} rows x {len(times):,} times exceed {MAX_CELLS:,} cells")
    columns = {
        name: Column(
            name, np.tile(table.columns[name].codes, len(times)), table.columns[name].cells
        )
        for name in labels
    }
    codes = np.repeat(np.arange(len(times), dtype=np.int32), num_rows)
    columns["time"] = Column("time", codes, times)
    texts = list(dict.fromkeys(str(c) for name in times for c in table.columns[name].cells))
    code_of = {text: code for code, text in enumerate(texts)}
    values = [
        np.array([code_of[str(c)] for c in table.columns[name].cells], dtype=np.int32)[
            table.columns[name].codes
        ]
        for name in times
    ]
    columns["requests"] = Column("requests", np.concatenate(values), texts)
    return Table(table.path, columns, np.tile(table.lines, len(times)), table.delimiter)
