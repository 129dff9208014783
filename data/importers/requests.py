"""Import load traces from CSV files with one row per request."""

from __future__ import annotations

from collections.abc import Sequence

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
from corral.data.importers.records import find_column, records
from corral.data.read import trace_name
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
        max_bytes: maximum size of a file after unpacking, in bytes; default: 192 MiB.
        max_cells: maximum number of cells: rows times columns, at least 10 per row; default:
            25 million.

    Raises TraceError for faults in the files, ValueError for options out of range.
    """
    check_zone(zone)
    counted = Counted(step)
    notes: list[str] = []
    unread: list[str] = []
    files = file_list(paths)
    if node_column is not None and names is not None:
        raise ValueError("pass names= or node_column=, not both")
    nodes = [""] * len(files) if node_column is not None else node_names(files, names)
    named = [name for name in (column, node_column) if name]
    for path, node in zip(files, nodes, strict=True):
        faults = Faults(path)
        rows = records(path, faults, notes, max_bytes=max_bytes, max_cells=max_cells, named=named)
        _, header = next(rows)
        time_at = find_column(header, column, 0, faults)
        node_at = None if node_column is None else find_column(header, node_column, 0, faults)
        unused_columns = [n for at, n in enumerate(header) if at not in (time_at, node_at)]
        if unused_columns:
            hint = "" if node_column else "; if one names the server, pass it as node_column="
            unread.append(f"{path.name}: columns not read: {first_names(unused_columns)}{hint}")
        line = 1
        for line, fields in rows:
            instant = parse_instant(fields[time_at], zone)
            if node_at is not None:
                node = fields[node_at]
                rule = name_rule(node)
                if rule is not None:
                    faults.add(rule, line, header[node_at], node)
            if instant is None:
                faults.add(instant_rule(fields[time_at]), line, header[time_at], fields[time_at])
            else:
                counted.add(node, instant[0])
        if line == 1:
            faults.add("the file has no rows below the header")
        faults.check()
    loads = counted.loads(notes, together=node_column is not None)
    title = name or "+".join(map(trace_name, files))
    return finish(loads, capacity, title, [*notes, *unread])
