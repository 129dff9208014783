"""Import load traces from CSV files with one row per request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from corral.data.fields import check_zone, instant_rule, name_rule, parse_instant
from corral.data.importers.binning import (
    Counted,
    Imported,
    Paths,
    file_list,
    finish,
    first_names,
    node_names,
)
from corral.data.importers.kept import KeptRequests
from corral.data.importers.records import find_column, records
from corral.data.read import trace_name
from corral.data.request_log import WORK_RULE, parse_work
from corral.data.source import MAX_BYTES, MAX_CELLS, Faults

__all__ = ["import_requests"]


def import_requests(
    paths: Paths,
    *,
    step: int,
    column: str | None = None,
    node_column: str | None = None,
    names: Sequence[str] | None = None,
    zone: str = "Z",
    capacity: int | str | None = None,
    name: str | None = None,
    keep_requests: str | Path | None = None,
    work_column: str | None = None,
    overwrite: bool = False,
    max_bytes: int = MAX_BYTES,
    max_cells: int = MAX_CELLS,
) -> Imported:
    """Import files with one row per request, counted into steps of ``step`` seconds.

    Times are ISO-8601 or seconds since 1970, with or without fractions. Without ``node_column``,
    each file is one node, named after the file or by ``names``, and all nodes are cut to their
    common time range. With ``node_column`` nothing is cut. A step without rows counts 0. Steps
    begin at multiples of ``step`` seconds since 1970-01-01 UTC.

    Args:
        step: length of a step, in seconds.
        column: time column; default: the first.
        node_column: column that names the node, in all files.
        names: node names separated by commas; equal names join their files.
        zone: time zone of times without one, such as -04:00.
        capacity: see ``Trace.with_capacity``.
        name: name of the trace; default: the file names joined by +.
        keep_requests: file for the time and node of all requests in the trace: .csv or .csv.gz. See
            ``read_request_log``.
        work_column: column of the work of a request, such as its tokens, for keep_requests; A+B for
            the sum of two columns.
        overwrite: replace an existing file of ``keep_requests``.
        max_bytes: maximum size of a file after unpacking, in bytes; default: 192 MiB.
        max_cells: maximum number of cells: rows times columns, at least 10 per row; default:
            25 million.

    Raises TraceError for faults in the files, ValueError for options out of range, FileExistsError
    if the file of ``keep_requests`` exists and ``overwrite`` is not set.
    """
    check_zone(zone)
    if work_column is not None and keep_requests is None:
        raise ValueError(
            f"work_column={work_column} needs keep_requests=, the file to which works are written"
        )
    kept = None if keep_requests is None else KeptRequests(keep_requests, overwrite=overwrite)
    counted = Counted(step)
    valid: set[str] = set()  # node names that were checked
    notes: list[str] = []
    unread: list[str] = []
    files = file_list(paths)
    if node_column is not None and names is not None:
        raise ValueError("pass names= or node_column=, not both")
    nodes = [""] * len(files) if node_column is not None else node_names(files, names)
    named = [name for name in (column, node_column, *_summands(work_column)) if name]
    for path, node in zip(files, nodes, strict=True):
        faults = Faults(path)
        rows = records(path, faults, notes, max_bytes=max_bytes, max_cells=max_cells, named=named)
        _, header = next(rows)
        time_at = find_column(header, column, 0, faults)
        node_at = None if node_column is None else find_column(header, node_column, 0, faults)
        work_at = _work_columns(header, work_column, faults)
        used = {time_at, node_at, *work_at}
        unused_columns = [n for at, n in enumerate(header) if at not in used]
        if unused_columns:
            hint = "" if node_column else "; if one names the server, pass it as node_column="
            unread.append(f"{path.name}: columns not read: {first_names(unused_columns)}{hint}")
        line = 1
        for line, fields in rows:
            instant = parse_instant(fields[time_at], zone)
            if node_at is not None:
                node = fields[node_at]
                if node not in valid:
                    rule = name_rule(node)
                    if rule is not None:
                        faults.add(rule, line, header[node_at], node)
                    valid.add(node)
            work = _work(fields, work_at) if work_at else None
            if work_at and work is None:
                value = " + ".join(fields[at] for at in work_at)
                rule = f"{WORK_RULE}; for a sum of columns, pass work_column=A+B"
                faults.add(rule, line, work_column, value)
            if instant is None:
                faults.add(instant_rule(fields[time_at]), line, header[time_at], fields[time_at])
            else:
                counted.add(node, instant[0])
                if kept is not None:
                    kept.add(node, *instant, work)
        if line == 1:
            faults.add("the file has no rows below the header")
        faults.check()
    loads = counted.loads(notes, together=node_column is not None)
    title = name or "+".join(map(trace_name, files))
    imported = finish(loads, capacity, title, [*notes, *unread])
    if kept is None:
        return imported
    return replace(imported, notes=(*imported.notes, *kept.write(imported.trace, step)))


def _summands(work_column: str | None) -> list[str]:
    return [] if work_column is None else [part.strip() for part in work_column.split("+")]


def _work_columns(header: Sequence[str], work_column: str | None, faults: Faults) -> list[int]:
    """Return the indices of the columns with the sum ``work_column``. A name may contain a +."""
    if work_column in header:
        return [find_column(header, work_column, 0, faults)]
    return [find_column(header, part, 0, faults) for part in _summands(work_column)]


def _work(fields: Sequence[str], work_at: Sequence[int]) -> float | None:
    """Return the sum of the fields; None if it is not a finite number above 0."""
    works = [parse_work(fields[at]) for at in work_at]
    total = sum(work for work in works if work is not None)
    return total if None not in works and 0 < total < math.inf else None
