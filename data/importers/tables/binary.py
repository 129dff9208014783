"""Read spreadsheets as lines of text, and Parquet and Feather files as DataFrames."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from corral.data.source import fault_error, too_many_cells
from corral.extras import require
from corral.files import open_regular

__all__ = ["binary_kind", "read_frame", "sheet_lines"]

Kind = Literal["xlsx", "parquet", "feather"]

MAGIC: dict[bytes, Kind] = {b"PK\x03\x04": "xlsx", b"PAR1": "parquet", b"ARROW1": "feather"}


def binary_kind(path: Path) -> Kind | None:
    """Return the kind of a binary file by its first bytes; None for any other file."""
    try:
        with open_regular(path) as file:
            start = file.read(6)
            kind = next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), None)
            if kind == "xlsx" and not _is_spreadsheet(file):
                return None
            return kind
    except OSError:  # the reader of text files names the problem
        return None


def _is_spreadsheet(file: io.BufferedReader) -> bool:
    try:
        with zipfile.ZipFile(file) as archive:
            return "xl/workbook.xml" in archive.namelist()
    except zipfile.BadZipFile:
        return False


def sheet_lines(path: Path, notes: list[str], *, max_bytes: int, max_cells: int) -> Iterator[str]:
    """Return the first sheet of an Excel file as lines of CSV.

    Raises TraceError for a damaged file and for more than ``max_bytes`` unpacked or ``max_cells``
    cells, MissingExtraError if openpyxl is not installed.
    """
    require("openpyxl", extra="exports", purpose="read Excel files")
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > max_bytes:
            rule = f"holds more than {max_bytes:,} bytes unpacked; pass a larger max_bytes="
            raise fault_error(path, rule)
    sheets = _read(path, pd.ExcelFile)
    with sheets:
        first, *further = sheets.sheet_names
        frame = _read(
            path, lambda _: pd.read_excel(sheets, sheet_name=first, header=None, dtype=object)
        )
    if further:
        names = ", ".join(map(str, further[:3]))
        notes.append(f"{path.name}: only the first sheet, {first!r}, was read, not {names}")
    if frame.size > max_cells:
        raise fault_error(path, too_many_cells(max_cells))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [_text(cell) for cell in row] for row in frame.itertuples(index=False)
    )
    text.seek(0)
    return iter(text)


def _text(cell: Any) -> str:
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, date):
        return str(cell.isoformat())
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def read_frame(path: Path, kind: Literal["parquet", "feather"], *, max_cells: int) -> pd.DataFrame:
    """Return a Parquet or Feather file as a DataFrame.

    Raises TraceError for a damaged file or more than ``max_cells`` cells, MissingExtraError if
    pyarrow is not installed.
    """
    require("pyarrow", extra="exports", purpose="read Parquet and Feather files")
    if kind == "parquet":
        num_rows, num_columns = _read(path, _parquet_size)
        if num_rows * num_columns > max_cells:
            raise fault_error(path, too_many_cells(max_cells))
    frame: pd.DataFrame = _read(path, pd.read_parquet if kind == "parquet" else pd.read_feather)
    if frame.size > max_cells:
        raise fault_error(path, too_many_cells(max_cells))
    return frame


def _parquet_size(path: Path) -> tuple[int, int]:
    import pyarrow.parquet

    meta = pyarrow.parquet.read_metadata(path)
    return meta.num_rows, meta.num_columns


def _read(path: Path, reader: Any) -> Any:
    """Return ``reader(path)``. Raises TraceError for a damaged file."""
    try:
        return reader(path)
    except MemoryError:
        raise
    except Exception as error:  # the libraries raise errors of many classes
        raise fault_error(path, f"the file is damaged ({type(error).__name__})") from error
