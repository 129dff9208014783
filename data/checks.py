"""Rows of a trace file, parsed but not yet proven to be a trace: the checks across rows."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from itertools import islice

import numpy as np

from corral.data.fields import Clock
from corral.data.trace import Counts, Trace
from corral.errors import Fault, TraceError, TraceWarning

__all__ = ["MAX_FAULTS", "Table", "assemble", "format_time"]

MAX_FAULTS = 8
"""As many faults are listed at once; a file with more says so."""


@dataclass(frozen=True)
class Table:
    """The rows of a file in file order. Row r stands on line r + 2, below the header.

    ``time`` [R] int64 on ``clock``; ``node`` [R] int64 indexes ``nodes``, which are in order of
    first appearance; ``arrivals`` and ``capacity`` [R] int64, in requests per step.
    """

    file: str
    nodes: tuple[str, ...]
    clock: Clock
    time: Counts
    node: Counts
    arrivals: Counts
    capacity: Counts | None


def assemble(table: Table, data: bytes, *, name: str) -> Trace:
    """The trace that the rows make up; ``data`` is quoted in errors.

    Raises TraceError where a (time, node) is given twice, nodes have different times, the step is
    not constant, or all arrivals are zero. Warns (TraceWarning) where the rows of a node do not
    stand in order of time; they are sorted.
    """
    times, rank = np.unique(table.time, return_inverse=True)
    shape = (len(times), len(table.nodes))
    faults = (
        _duplicates(table, rank, data)
        or _incomplete(table, rank, data)
        or _uneven(table, times, rank, data)
    )
    if not faults and not table.arrivals.any():
        rule = "all arrivals are 0: there is nothing to serve; check the column"
        faults = [Fault(file=table.file, rule=rule, column="arrivals")]
    if faults:
        raise TraceError(faults[:MAX_FAULTS], more=len(faults) > MAX_FAULTS)

    cell = rank * shape[1] + table.node  # a permutation of 0 .. T*N - 1, proven above
    row_of = np.empty(len(cell), dtype=np.int64)
    row_of[cell] = np.arange(len(cell))
    row_of = row_of.reshape(shape)  # [T, N]
    if (np.diff(row_of, axis=0) < 0).any():
        message = f"{table.file}: rows are not in order of time; they were sorted"
        warnings.warn(message, TraceWarning, stacklevel=3)
    return Trace(
        nodes=table.nodes,
        arrivals=table.arrivals[row_of],
        capacity=None if table.capacity is None else table.capacity[row_of],
        times=times,
        clock=table.clock,
        name=name,
    )


def _duplicates(table: Table, rank: Counts, data: bytes) -> list[Fault]:
    cell = rank * len(table.nodes) + table.node  # fits: both factors are at most the row count
    order = np.argsort(cell, kind="stable")
    again = np.flatnonzero(cell[order][1:] == cell[order][:-1])
    pairs = np.stack([order[again + 1], order[again]], axis=1)
    pairs = pairs[np.argsort(pairs[:, 0])][: MAX_FAULTS + 1]  # in file order
    return [
        Fault(
            file=table.file,
            line=row + 2,
            column="time",
            value=_cell(data, row),
            rule=(
                f"node {table.nodes[table.node[row]]!r} already has this time on line "
                f"{first + 2}; keep one of the two rows"
            ),
        )
        for row, first in pairs.tolist()
    ]


def _incomplete(table: Table, rank: Counts, data: bytes) -> list[Fault]:
    """One fault per time at which some node has no row; first the nodes that have hardly any."""
    strays = _strays(table, data)
    if strays:
        return strays
    count = len(table.nodes)
    short = np.flatnonzero(np.bincount(rank) < count)[: MAX_FAULTS + 1]
    faults = []
    for at in short:
        rows = np.flatnonzero(rank == at)
        present = {int(node) for node in table.node[rows]}
        absent = [name for node, name in enumerate(table.nodes) if node not in present]
        names = ", ".join(map(repr, absent[:3])) + (", ..." if len(absent) > 3 else "")
        rule = (
            f"only {len(present)} of {count} nodes have a row at this time; missing: {names}. "
            "Every node needs a row at every time: nothing is filled in"
        )
        row = int(rows[0])
        value = _cell(data, row)
        faults.append(Fault(table.file, rule, line=row + 2, column="time", value=value))
    return faults


def _strays(table: Table, data: bytes) -> list[Fault]:
    """Nodes with less than half of the times, where others have all: most often misspelt names."""
    rows_of = np.bincount(table.node, minlength=len(table.nodes))
    most = int(rows_of.max())
    usual = [name for name, rows in zip(table.nodes, rows_of, strict=True) if 2 * rows >= most]
    faults = []
    for node in np.flatnonzero(2 * rows_of < most)[: MAX_FAULTS + 1].tolist():
        row, name = int(np.flatnonzero(table.node == node)[0]), table.nodes[node]
        close = get_close_matches(name.lower(), usual, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        rule = (
            f"this node has {rows_of[node]} of {most} rows{hint} "
            "Every node needs a row at every time: nothing is filled in"
        )
        faults.append(Fault(table.file, rule, line=row + 2, column="node", value=name))
    return faults


def _uneven(table: Table, times: Counts, rank: Counts, data: bytes) -> list[Fault]:
    """One fault per time that does not follow the one before by the usual step."""
    steps = np.diff(times)
    if len(steps) == 0 or (steps == steps[0]).all():
        return []
    values, counts = np.unique(steps, return_counts=True)
    usual = int(values[counts.argmax()])
    unit = " s" if table.clock == "utc" else ""
    zones = " (times that name no zone are taken as UTC)" if table.clock == "utc" else ""
    faults = []
    for at in np.flatnonzero(steps != usual)[: MAX_FAULTS + 1]:
        row = int(np.flatnonzero(rank == at + 1)[0])
        rule = (
            f"{steps[at]}{unit} after {format_time(int(times[at]), table.clock)}, the step is "
            f"{usual}{unit} elsewhere; steps must be equal: add the missing rows{zones}"
        )
        value = _cell(data, row)
        faults.append(Fault(table.file, rule, line=row + 2, column="time", value=value))
    return faults


def _cell(data: bytes, row: int) -> str:
    """The time of a row as the file writes it."""
    line = next(islice(io.BytesIO(data), row + 1, None)).decode()
    return line.split(",", 1)[0].strip('"')


def format_time(time: int, clock: Clock) -> str:
    """The time as a trace file writes it. Raises OverflowError outside the years 1 to 9999."""
    if clock == "integer":
        return str(time)
    return (datetime(1970, 1, 1) + timedelta(seconds=time)).isoformat() + "Z"
