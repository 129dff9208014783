"""Write a load trace as the CSV file that ``read_trace`` reads back."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

from corral.data.fields import format_time, in_calendar
from corral.data.source import fault_error
from corral.data.trace import Trace
from corral.files import write_file

__all__ = ["write_trace"]

LARGEST_TIME = 10**18
"""Integer times stay below this, either side of 0: the reader takes up to 18 digits."""


def write_trace(trace: Trace, path: str | Path, *, overwrite: bool = False) -> None:
    """Write ``trace`` to ``path``: as text for a name in ``.csv``, packed for ``.csv.gz``.

    ``read_trace`` gives back an equal trace. The same trace always makes the same bytes (packed
    ones for the same zlib). The file appears whole or not at all; a link of that name is
    replaced, not followed.

    Raises FileExistsError where ``path`` exists and ``overwrite`` is not set, ValueError for
    another suffix, and TraceError where no trace file can hold the trace: all arrivals zero, or
    times out of range.
    """
    path = Path(path)
    if not path.name.endswith((".csv", ".csv.gz")):
        raise ValueError(f"{path}: the name must end in .csv or .csv.gz")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists; pass overwrite=True to replace it")
    content = _content(trace, path).encode()
    if path.name.endswith(".gz"):
        packed = io.BytesIO()
        # No name and no time in the gzip header: the bytes depend on the trace alone.
        with gzip.GzipFile("", mode="wb", fileobj=packed, mtime=0, compresslevel=6) as file:
            file.write(content)
        content = packed.getvalue()
    write_file(path, content)


def _content(trace: Trace, path: Path) -> str:
    if not trace.arrivals.any():
        raise fault_error(path, "all arrivals are 0: read_trace would refuse the file")
    if trace.clock == "integer" and not (
        trace.times[0] > -LARGEST_TIME and trace.times[-1] < LARGEST_TIME
    ):
        raise fault_error(path, "integer times must have at most 18 digits")
    if trace.clock == "utc" and not all(in_calendar(int(trace.times[row])) for row in (0, -1)):
        raise fault_error(path, "times must lie in the years 1 to 9999")
    times = [format_time(time, trace.clock) for time in trace.times.tolist()]

    names = [_quoted(name) for name in trace.nodes]
    columns = [trace.arrivals.tolist()]
    if trace.capacity is not None:
        columns.append(trace.capacity.tolist())
    rows = ["time,node,arrivals" + (",capacity" if trace.capacity is not None else "")]
    for time, *values in zip(times, *columns, strict=True):
        for name, *cells in zip(names, *values, strict=True):
            rows.append(f"{time},{name},{','.join(map(str, cells))}")
    return "\n".join(rows) + "\n"


def _quoted(name: str) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow([name])
    return text.getvalue()
