"""Read the columns of a delimited file, storing each distinct cell text once."""

from __future__ import annotations

import codecs
import csv
import io
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, count, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corral.data.importers.binning import counted, were
from corral.data.importers.records import require_times
from corral.data.importers.tables.binary import binary_kind, sheet_lines
from corral.data.importers.tables.head import HEAD_LINES, find_start, quotes_rule
from corral.data.source import Faults, chunks, fault_error, weigh
from corral.data.trace import Counts

__all__ = ["MISSING", "Column", "Table", "joined", "read_table"]

MISSING = frozenset(
    ["", "nan", "na", "n/a", "#n/a", "null", "none", "-", "undefined", "no data", "nat"]
)
"""Cells without a value, in lower case."""

BATCH = 500
"""Rows that are added to the columns at once: few, as a row may have 60,000 cells."""

MAX_COLUMNS, LONGEST_NAME = 25_000, 2_000

MAX_TEXTS = 5_000_000
"""Maximum number of distinct texts in memory, about 600 MB."""


@dataclass
class Column:
    """One column: row r holds ``cells[codes[r]]``.

    Cells of a file are stripped texts. Cells of a DataFrame keep their types.
    """

    name: str
    codes: npt.NDArray[np.int32]  # [R]
    cells: Sequence[Any]  # distinct

    def sample(self) -> list[Any]:
        """Return the first 200 distinct cells that are not missing."""
        return list(islice((cell for cell in self.cells if not is_missing(cell)), 200))


@dataclass
class Table:
    """The columns of a file or DataFrame, and the line number of each row."""

    path: Path
    columns: dict[str, Column]
    lines: Counts  # [R] line of each row
    delimiter: str | None  # None if the table is not from a delimited file
    roles: dict[str, str] = field(default_factory=dict)
    """Columns by role (time, node, arrivals) and time_format, if the kind of file defines them."""

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
    """Return several columns as one, with ``mark`` between their cells."""
    first, *rest = columns
    for column in rest:
        pair = first.codes.astype(np.int64) * len(column.cells) + column.codes
        pairs, codes = np.unique(pair, return_inverse=True)
        width = len(column.cells)
        cells = [
            f"{first.cells[p // width]}{mark}{column.cells[p % width]}" for p in pairs.tolist()
        ]
        first = Column(f"{first.name}+{column.name}", codes.astype(np.int32), cells)
    return first


def read_table(
    path: Path,
    notes: list[str],
    *,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    header: int | None = None,
    columns: Sequence[str] | None = None,
    max_bytes: int,
    max_cells: int,
    named: Collection[str] = (),
    has_times: bool = True,
) -> Table:
    """Return the columns of a delimited file, plain or gzip, or of an Excel file.

    The default ``delimiter`` is the most frequent of , ; tab | in the header, or spaces if the file
    has none of them. ``header`` is the number of the header line; default: see ``find_start``.
    ``columns`` are the names of the columns of a file without header. Blank lines are skipped.

    ``named`` are the columns that the caller named. With ``has_times``, ``require_times`` checks
    the file.

    Raises TraceError if a row and the header differ in length, quotes are invalid, column names
    repeat or are too long, or the file has more than ``max_cells`` cells.
    """
    faults = Faults(path)
    try:
        if binary_kind(path) == "xlsx":
            text: Iterator[str] = sheet_lines(path, notes, max_bytes=max_bytes, max_cells=max_cells)
            delimiter = ","
        else:
            if codecs.lookup(encoding).name.startswith("utf-16"):
                encoding = "utf-8"  # see chunks
            if has_times and columns is None:
                require_times(
                    path, max_bytes=max_bytes, named=named, mark=delimiter, encoding=encoding
                )
            weigh(path, max_bytes=max_bytes, max_cells=max_cells)
            raw = io.BufferedReader(_Raw(chunks(path, max_bytes=max_bytes)), 2**20)
            text = io.TextIOWrapper(raw, encoding, newline="")
        start = find_start(path, list(islice(text, HEAD_LINES)), delimiter, header, columns)
        notes += start.notes
        mark, names = start.delimiter, start.names
        rows = csv.reader(
            chain(start.lines, text if mark != " " else (line.rstrip() for line in text)),
            delimiter=mark,
            strict=True,
            skipinitialspace=mark == " ",
        )
        if not names:
            raise fault_error(path, "the file is empty")
        if len(names) > MAX_COLUMNS:
            raise fault_error(path, f"{len(names):,} columns exceed the limit of {MAX_COLUMNS:,}")
        if max(map(len, names)) > LONGEST_NAME:
            rule = f"a column name is longer than {LONGEST_NAME:,} characters; shorten it"
            raise fault_error(path, rule)
        filled = _Columns(path, names)
        blank = repeated = comments = 0
        line = start.skipped
        while batch := list(islice(rows, BATCH)):
            numbers: Sequence[int] = range(line + 1, line + 1 + len(batch))
            if start.skipped + rows.line_num > line + len(batch):  # cells with line breaks
                heights = [1 + sum(cell.count("\n") for cell in row) for row in batch]
                numbers = [line + height for height in accumulate(heights)]
            line = start.skipped + rows.line_num
            is_plain = set(map(len, batch)) == {len(names)} and not start.has_comments
            if is_plain and start.titles not in batch:
                filled.add(numbers, batch)
                continue
            good = []
            for number, row in zip(numbers, batch, strict=True):
                if row == start.titles:
                    repeated += 1
                elif start.has_comments and row and row[0].startswith("#"):
                    comments += 1
                elif len(row) == len(names):
                    good.append((number, row))
                elif not row:
                    blank += 1
                else:
                    num_cells = f"{len(row)} {'cell' if len(row) == 1 else 'cells'}"
                    rule = f"the row has {num_cells}, the header has {len(names)}"
                    faults.add(rule, number, value=mark.join(row[:60]))
            if good:
                filled.add(*zip(*good, strict=True))
        faults.check()
    except UnicodeError:
        raise fault_error(
            path,
            f"the file is not valid {encoding}; save it as UTF-8, or pass its encoding, such as "
            "encoding=cp1252",
        ) from None
    except LookupError:
        raise ValueError(
            f"unknown encoding={encoding!r}; pass one such as cp1252 or utf-8"
        ) from None
    except csv.Error as error:
        raise fault_error(path, quotes_rule(error), rows.line_num + start.skipped) from None
    if blank:
        notes.append(f"{path.name}: {counted(blank, 'blank line')} {were(blank)} skipped")
    if repeated:
        notes.append(
            f"{path.name}: {counted(repeated, 'repeated header')} {were(repeated)} skipped"
        )
    if comments:
        notes.append(f"{path.name}: {counted(comments, 'comment')} {were(comments)} skipped")
    return filled.table(mark, notes)


class _Raw(io.RawIOBase):
    """A raw stream that reads from an iterator of bytes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.pieces, self.rest = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.rest = self.rest or memoryview(next(self.pieces, b""))
        size = min(len(buffer), len(self.rest))
        buffer[:size], self.rest = self.rest[:size], self.rest[size:]
        return size


class _Columns:
    """Columns that are filled in batches of rows."""

    def __init__(self, path: Path, header: list[str]) -> None:
        self.path, self.header = path, header
        # A new text gets the next code.
        self.codes_of_texts = [defaultdict[str, int](count().__next__) for _ in header]
        self.codes: list[list[npt.NDArray[np.int32]]] = [[] for _ in header]
        self.lines = array("q")

    def add(self, lines: Iterable[int], rows: Sequence[Sequence[str]]) -> None:
        self.lines.extend(lines)
        for code_of_text, codes, column in zip(
            self.codes_of_texts, self.codes, zip(*rows, strict=True), strict=True
        ):
            codes.append(np.fromiter(map(code_of_text.__getitem__, column), np.int32, len(rows)))
        if sum(map(len, self.codes_of_texts)) > MAX_TEXTS:
            raise fault_error(
                self.path,
                f"more than {MAX_TEXTS:,} different cells; split the file. If each row is one "
                "request, use corral trace import requests, which reads files row by row",
            )

    def table(self, delimiter: str, notes: list[str]) -> Table:
        if not self.lines:
            raise fault_error(self.path, "the file has no rows below the header")
        columns: dict[str, Column] = {}
        for at, (name, code_of_text, codes) in enumerate(
            zip(self.header, self.codes_of_texts, self.codes, strict=True), 1
        ):
            cells = list(map(str.strip, code_of_text))
            if not name and not any(cells):
                notes.append(f"{self.path.name}: column {at} is empty and was skipped")
                continue
            name = name or f"column {at}"
            if name in columns:
                rule = (
                    f"two columns have the name {name!r}; rename one, or pass columns=, a name for "
                )
                raise fault_error(self.path, f"{rule}each column, if the file has no header", 1)
            columns[name] = Column(name, np.concatenate(codes), cells)
        return Table(self.path, columns, np.frombuffer(self.lines, dtype=np.int64), delimiter)
