"""Write a load trace as a CSV file for ``read_trace``; write CSV files completely or not at all."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

from corral.data.fields import format_time, in_calendar
from corral.data.source import fault_error
from corral.data.trace import Trace
from corral.files import write_file

__all__ = ["check_csv_path", "quoted", "write_csv", "write_trace"]

LARGEST_TIME = 10**18
"""Limit on the absolute value of integer times: the reader accepts up to 18 digits."""


def write_trace(trace: Trace, path: str | Path, *, overwrite: bool = False) -> None:
    """Write ``trace`` to ``path``: as text for the suffix ``.csv``, packed for ``.csv.gz``.

    ``read_trace`` returns an equal trace. Equal traces give equal bytes (for ``.csv.gz``, with the
    same version of zlib). The file is written completely or not at all. An existing link is
    replaced, not followed.

    Raises FileExistsError if ``path`` exists and ``overwrite`` is not set, ValueError for another
    suffix. Raises TraceError if all arrivals are zero or times are out of range, because no trace
    file can hold the trace.
    """
    path = Path(path)
    check_csv_path(path, overwrite=overwrite)
    write_csv(path, _content(trace, path).encode())


def check_csv_path(path: Path, *, overwrite: bool) -> None:
    """Raise ValueError for a suffix other than .csv and .csv.gz.

    Raise FileExistsError if ``path`` exists and ``overwrite`` is not set.
    """
    if not path.name.endswith((".csv", ".csv.gz")):
        raise ValueError(f"{path}: the name must end in .csv or .csv.gz")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists; pass overwrite=True to replace it")


def write_csv(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``, packed with gzip for ``.gz``; see ``write_file``."""
    if path.name.endswith(".gz"):
        packed = io.BytesIO()
        # No name and no time in the gzip header: the bytes depend only on the content.
        with gzip.GzipFile("", mode="wb", fileobj=packed, mtime=0, compresslevel=6) as file:
            file.write(content)
        content = packed.getvalue()
    write_file(path, content)


def _content(trace: Trace, path: Path) -> str:
    if not trace.arrivals.any():
        raise fault_error(path, "all arrivals are 0, which read_trace would refuse")
    if trace.clock == "integer" and not (
        trace.times[0] > -LARGEST_TIME and trace.times[-1] < LARGEST_TIME
    ):
        raise fault_error(path, "integer times must have at most 18 digits")
    if trace.clock == "utc" and not all(in_calendar(int(trace.times[row])) for row in (0, -1)):
        raise fault_error(path, "times must be in the years 1 to 9999")
    times = [format_time(time, trace.clock) for time in trace.times.tolist()]

    names = [quoted(name) for name in trace.nodes]
    columns = [trace.arrivals.tolist()]
    if trace.capacity is not None:
        columns.append(trace.capacity.tolist())
    rows = ["time,node,arrivals" + (",capacity" if trace.capacity is not None else "")]
    for time, *values in zip(times, *columns, strict=True):
        for name, *cells in zip(names, *values, strict=True):
            rows.append(f"{time},{name},{','.join(map(str, cells))}")
    return "\n".join(rows) + "\n"


def quoted(name: str) -> str:
    """Return a node name as a CSV field, in quotes if it needs them."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow([name])
    return text.getvalue()
