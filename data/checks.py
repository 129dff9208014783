"""The checks across the rows of a trace file: parsed rows become a Trace, or are refused."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice

import numpy as np

from corral.data.fields import Clock, format_time, names_zone
from corral.data.source import Faults
from corral.data.trace import Counts, Trace
from corral.errors import TraceWarning

__all__ = ["Table", "assemble"]


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
    times, rank = np.unique(table.time, return_inverse=True)  # [T], [R]
    shape = (len(times), len(table.nodes))
    _Checks(table, data, times, rank).run()
    cell = rank * shape[1] + table.node  # a permutation of 0 .. T*N - 1, as checked
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


class _Checks:
    """Checks of a table whose row r has the time ``times[rank[r]]``."""

    def __init__(self, table: Table, data: bytes, times: Counts, rank: Counts) -> None:
        self.table, self.data = table, data
        self.times, self.rank = times, rank  # int64 [T], [R]
        self.faults = Faults(table.file)

    def run(self) -> None:
        """Raise TraceError with the faults of the first check that finds any."""
        for find in (self._duplicates, self._strays, self._incomplete, self._uneven):
            find()
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

    def _duplicates(self) -> None:
        table = self.table
        cell = self.rank * len(table.nodes) + table.node  # fits: both are below the row count
        order = np.argsort(cell, kind="stable")
        again = np.flatnonzero(cell[order][1:] == cell[order][:-1])
        pairs = np.stack([order[again + 1], order[again]], axis=1)
        for row, first in pairs[np.argsort(pairs[:, 0])].tolist():  # in file order
            rule = (
                f"node {table.nodes[table.node[row]]!r} already has this time on line "
                f"{first + 2}; keep one of the two rows"
            )
            self._add(rule, row)

    def _strays(self) -> None:
        """Find nodes with less than half of the rows that others have: mostly misspelt names."""
        table = self.table
        rows_of = np.bincount(table.node, minlength=len(table.nodes))
        most = int(rows_of.max())
        usual = [name for name, rows in zip(table.nodes, rows_of, strict=True) if 2 * rows >= most]
        for node in np.flatnonzero(2 * rows_of < most).tolist():
            row, name = int(np.flatnonzero(table.node == node)[0]), table.nodes[node]
            close = get_close_matches(name.lower(), usual, n=1)
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
