"""The checks across the rows of a trace file: parsed rows become a Trace, or are refused."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice

import numpy as np

from corral.data.fields import Clock, format_time, names_zone
from corral.data.source import MAX_FAULTS, Faults
from corral.data.trace import Counts, Trace
from corral.errors import TraceWarning

__all__ = ["Table", "assemble"]

LONG = 200
"""Names that are compared with a strange one, and their letters: comparing takes time."""


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
    """Return the trace that the rows make up; ``data`` is quoted in errors.

    Raises TraceError where a (time, node) is given twice, nodes have different times, the step is
    not constant, or all arrivals are zero. Warns (TraceWarning) where the rows of a node do not
    stand in order of time; they are sorted.
    """
    times, rank = _ranks(table.time)  # [T], [R]
    shape = (len(times), len(table.nodes))
    cell = rank * shape[1] + table.node
    checks = _Checks(table, data, times, rank)
    if not _is_permutation(cell, shape[0] * shape[1]):
        checks.cells(cell)
    checks.values()
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


def _ranks(time: Counts) -> tuple[Counts, Counts]:
    """Return the distinct times [T] in order, and of each row [R] the place of its time there."""
    if (time[1:] < time[:-1]).any():
        return np.unique(time, return_inverse=True)
    new = np.append(True, time[1:] > time[:-1])
    return time[new], np.cumsum(new) - 1


def _is_permutation(cell: Counts, size: int) -> bool:
    """Return whether ``cell`` holds each of 0 .. size - 1 once."""
    if len(cell) != size:
        return False
    found = np.zeros(size, dtype=np.bool_)
    found[cell] = True
    return bool(found.all())


class _Checks:
    """Checks of a table whose row r has the time ``times[rank[r]]``."""

    def __init__(self, table: Table, data: bytes, times: Counts, rank: Counts) -> None:
        self.table, self.data = table, data
        self.times, self.rank = times, rank  # int64 [T], [R]
        self.faults = Faults(table.file)

    def cells(self, cell: Counts) -> None:
        """Raise TraceError: row r is number ``cell[r]`` of times x nodes, not each exactly once."""
        self._duplicates(cell)
        for find in (self._strays, self._incomplete):
            self.faults.check()
            find()
        self.faults.check()

    def values(self) -> None:
        """Raise TraceError where steps are not constant, or nothing arrives."""
        self._uneven()
        self.faults.check()
        if not self.table.arrivals.any():
            rule = "all arrivals are 0: there is nothing to serve; check the column"
            self.faults.add(rule, column="arrivals")
            self.faults.check()

    def _add(self, rule: str, row: int) -> None:
        """Add a fault of a row, and quote its time as the file writes it."""
        self.faults.add(rule, row + 2, "time", self._time(row))

    def _time(self, row: int) -> str:
        line = next(islice(io.BytesIO(self.data), row + 1, None)).decode()
        return line.split(",", 1)[0].strip('"')

    def _duplicates(self, cell: Counts) -> None:
        table = self.table
        order = np.argsort(cell, kind="stable")
        ranked = cell[order]
        again = ranked[1:] == ranked[:-1]  # a row whose cell the row before it in order has too
        rows = np.sort(order[1:][again])  # in file order
        if 2 * len(rows) >= len(cell) > 2:
            # Half of the rows, or more: no slip, but a column that is not there.
            row = int(rows[0])
            rule = (
                f"{len(rows):,} of {len(cell):,} rows have a time that their node already has, "
                f"as node {table.nodes[table.node[row]]!r} here: a column that tells these rows "
                "apart is missing, such as the server's name, or one row is one request. Give "
                "each server a name under node; corral trace import reads the original file"
            )
            return self._add(rule, row)
        for row in rows[: MAX_FAULTS + 1].tolist():
            first = int(np.flatnonzero(cell[:row] == cell[row])[-1])
            same = all(c is None or c[row] == c[first] for c in (table.arrivals, table.capacity))
            rule = (
                f"node {table.nodes[table.node[row]]!r} already has this time on line "
                f"{first + 2}, "
                + (
                    "with the same numbers; remove one of the two rows"
                    if same
                    else "with other numbers; if they are two servers, give them two names under "
                    "node; if they are parts of one count, add them up"
                )
            )
            self._add(rule, row)
        return None

    def _strays(self) -> None:
        """Find nodes with less than half of the rows that others have: mostly misspelt names."""
        table = self.table
        rows_of = np.bincount(table.node, minlength=len(table.nodes))
        most = int(rows_of.max())
        named = zip(table.nodes, rows_of, strict=True)
        usual = [name for name, rows in named if 2 * rows >= most and len(name) <= LONG][:LONG]
        for node in np.flatnonzero(2 * rows_of < most).tolist():
            row, name = int(np.flatnonzero(table.node == node)[0]), table.nodes[node]
            close = get_close_matches(name.lower()[:LONG], usual, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            rule = (
                f"this node has {rows_of[node]} of {most} rows{hint} "
                "Every node needs a row at every time: nothing is filled in"
            )
            self.faults.add(rule, row + 2, "node", name)

    def _incomplete(self) -> None:
        """Find times at which some node has no row."""
        nodes = self.table.nodes
        for at in np.flatnonzero(np.bincount(self.rank) < len(nodes)):
            rows = np.flatnonzero(self.rank == at)
            present = set(self.table.node[rows].tolist())
            absent = [name for node, name in enumerate(nodes) if node not in present]
            names = ", ".join(map(repr, absent[:3])) + (", ..." if len(absent) > 3 else "")
            rule = (
                f"only {len(present)} of {len(nodes)} nodes have a row at this time; missing: "
                f"{names}. Every node needs a row at every time: nothing is filled in"
            )
            self._add(rule, int(rows[0]))

    def _uneven(self) -> None:
        """Find times that do not follow the one before by the usual step."""
        steps = np.diff(self.times)
        if len(steps) == 0 or (steps == steps[0]).all():
            return
        values, counts = np.unique(steps, return_counts=True)
        usual = int(values[counts.argmax()])
        clock = self.table.clock
        unit = " s" if clock == "utc" else ""
        for at in np.flatnonzero(steps != usual):
            rows = [int(np.flatnonzero(self.rank == place)[0]) for place in (at, at + 1)]
            zoned = clock != "utc" or all(names_zone(self._time(row)) for row in rows)
            zones = "" if zoned else " (times that name no zone are taken as UTC)"
            rule = (
                f"{steps[at]}{unit} after {format_time(int(self.times[at]), clock)}, the step is "
                f"{usual}{unit} elsewhere; steps must be equal: add the missing rows{zones}"
            )
            self._add(rule, rows[1])
