"""The columns of a delimited file, each cell's text kept once."""

from __future__ import annotations

import csv
import io
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corral.data.importers.binning import counted, were
from corral.data.importers.records import require_times
from corral.data.source import DELIMITERS, Faults, chunks, fault_error, weigh
from corral.data.trace import Counts

__all__ = ["MISSING", "Column", "Table", "joined", "read_table"]

MISSING = frozenset(
    ["", "nan", "na", "n/a", "#n/a", "null", "none", "-", "undefined", "no data", "nat"]
)
"""Cells without a value, in lower case."""

BATCH = 500
"""Rows that are put into their columns at once: few, as a row may have 60,000 cells."""

MAX_COLUMNS, LONGEST_NAME = 25_000, 2_000

MAX_TEXTS = 5_000_000
"""As many different texts are kept, about 600 MB of them."""


@dataclass
class Column:
    """One column: row r holds ``cells[codes[r]]``. Cells of a file are texts without space around;
    those of a DataFrame are what it holds."""

    name: str
    codes: npt.NDArray[np.int32]  # [R]
    cells: Sequence[Any]  # each once

    def sample(self) -> list[Any]:
        """Return the first cells that hold something."""
        return list(islice((each for each in self.cells if not is_missing(each)), 200))


@dataclass
class Table:
    """The columns of a file or DataFrame, and where its rows stand."""

    path: Path
    columns: dict[str, Column]
    lines: Counts  # [R] line of each row
    delimiter: str | None  # None: no file

    def __len__(self) -> int:
        return len(self.lines)

    def fault(self, rule: str, row: int, column: str | None = None, value: object = None) -> None:
        """Raise TraceError for a row."""
        faults = Faults(self.path)
        faults.add(rule, int(self.lines[row]), column, None if value is None else str(value))
        faults.check()


def is_missing(cell: object) -> bool:
    if isinstance(cell, str):
        return cell.lower() in MISSING
    return cell is None or cell != cell  # NaN, NaT


def joined(columns: Sequence[Column], mark: str) -> Column:
    """Return one column of several: their cells with ``mark`` between."""
    first, *others = columns
    for other in others:
        pair = first.codes.astype(np.int64) * len(other.cells) + other.codes
        pairs, codes = np.unique(pair, return_inverse=True)
        width = len(other.cells)
        cells = [f"{first.cells[p // width]}{mark}{other.cells[p % width]}" for p in pairs.tolist()]
        first = Column(f"{first.name}+{other.name}", codes.astype(np.int32), cells)
    return first


def read_table(
    path: Path,
    notes: list[str],
    *,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    max_bytes: int,
    max_cells: int,
    named: Collection[str] = (),
    has_times: bool = True,
) -> Table:
    """Return the columns of a delimited file, plain or gzip.

    ``delimiter`` is found where None: the one of , ; tab | that the header has most of. A first
    line such as ``sep=;``, and blank lines, are passed over.

    ``named``: columns that the caller named; ``has_times``: see ``require_times``.

    Raises TraceError where rows are not as long as the header, quotes are not in order, names of
    columns repeat or are too long, or there are more than ``max_cells`` cells.
    """
    faults = Faults(path)
    try:
        if has_times:
            require_times(path, max_bytes=max_bytes, named=named, mark=delimiter, encoding=encoding)
        weigh(path, max_bytes=max_bytes, max_cells=max_cells)
        raw = io.BufferedReader(_Raw(chunks(path, max_bytes=max_bytes)), 2**20)
        text = io.TextIOWrapper(raw, encoding, newline="")
        start = text.readline()
        skipped = 0
        if start.lower().startswith("sep=") and len(start.strip()) == 5:
            delimiter = delimiter or start.strip()[-1]
            start, skipped = text.readline(), 1
        while start and not start.strip():
            start, skipped = text.readline(), skipped + 1
        mark = delimiter or max(DELIMITERS, key=start.count)
        rows = csv.reader(_chained(start, text), delimiter=mark, strict=True)
        titles = next(rows, [])
        header = [name.strip() for name in titles]
        if not header:
            raise fault_error(path, "the file is empty")
        if len(header) > MAX_COLUMNS:
            raise fault_error(path, f"{len(header):,} columns: no table of loads has so many")
        if max(map(len, header)) > LONGEST_NAME:
            rule = f"a column's name is longer than {LONGEST_NAME:,} characters"
            raise fault_error(path, rule)
        columns = _Columns(path, header)
        blank = again = 0
        while batch := [(rows.line_num + skipped, row) for row in islice(rows, BATCH)]:
            if {len(row) for _, row in batch} == {len(header)} and titles not in map(_row, batch):
                columns.add(batch)
                continue
            good = []
            for line, row in batch:
                if row == titles:
                    again += 1
                elif len(row) == len(header):
                    good.append((line, row))
                elif not row:
                    blank += 1
                else:
                    many = f"{len(row)} {'cell' if len(row) == 1 else 'cells'}"
                    rule = f"{many}, the header has {len(header)}"
                    faults.add(rule, line, value=mark.join(row[:60]))
            columns.add(good)
        faults.check()
    except UnicodeError:
        raise fault_error(
            path, f"not {encoding}: save it as UTF-8, or give its encoding, such as encoding=cp1252"
        ) from None
    except LookupError:
        raise ValueError(f"encoding={encoding!r} is not known; try cp1252 or utf-8") from None
    except csv.Error as error:
        raise fault_error(path, f"quotes are not in order ({error})", rows.line_num) from None
    if blank:
        notes.append(f"{path.name}: {counted(blank, 'blank line')} {were(blank)} passed over")
    if again:
        notes.append(f"{path.name}: the header stands there {counted(again, 'time')} again")
    return columns.table(mark, notes)


class _Raw(io.RawIOBase):
    """A file of pieces of bytes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.pieces, self.rest = pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.rest = self.rest or next(self.pieces, b"")
        size = min(len(buffer), len(self.rest))
        buffer[:size], self.rest = self.rest[:size], self.rest[size:]
        return size


def _chained(first: str, others: Iterable[str]) -> Iterator[str]:
    yield first
    yield from others


_row = itemgetter(1)


class _Columns:
    """Columns that grow by batches of rows."""

    def __init__(self, path: Path, header: list[str]) -> None:
        self.path, self.header = path, header
        # A new cell gets the next number.
        self.seen = [defaultdict[str, int](count().__next__) for _ in header]
        self.codes = [array("i") for _ in header]
        self.lines = array("q")

    def add(self, rows: list[tuple[int, list[str]]]) -> None:
        if not rows:
            return
        lines, cells = zip(*rows, strict=True)
        self.lines.extend(lines)
        for seen, codes, column in zip(
            self.seen, self.codes, zip(*cells, strict=True), strict=True
        ):
            codes.extend(map(seen.__getitem__, column))
        if sum(map(len, self.seen)) > MAX_TEXTS:
            raise fault_error(
                self.path,
                f"more than {MAX_TEXTS:,} different cells; split the file. Of one row per request, "
                "corral trace import requests reads files row by row",
            )

    def table(self, delimiter: str, notes: list[str]) -> Table:
        if not self.lines:
            raise fault_error(self.path, "no rows below the header")
        columns: dict[str, Column] = {}
        for at, (name, seen, codes) in enumerate(
            zip(self.header, self.seen, self.codes, strict=True), 1
        ):
            cells = [str(cell).strip() for cell in seen]
            if not name and not any(cells):
                notes.append(f"{self.path.name}: column {at} has neither a name nor cells")
                continue
            name = name or f"column {at}"
            if name in columns:
                raise fault_error(self.path, f"two columns are called {name!r}: rename one", 1)
            columns[name] = Column(name, np.frombuffer(codes, dtype=np.int32), cells)
        return Table(self.path, columns, np.frombuffer(self.lines, dtype=np.int64), delimiter)
