"""Check the parsed rows of a trace file against each other, and assemble them into a Trace."""

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

MAX_COMPARED = 200
"""Maximum number and length of names in a search for similar names, which takes time."""


@dataclass(frozen=True)
class Table:
    """The rows of a file in file order. Row r is on line r + 2, below the header.

    ``time`` [R] int64 is on ``clock``. ``node`` [R] int64 indexes ``nodes``, in order of first
    appearance. ``arrivals`` and ``capacity`` [R] int64 are in requests per step.
    """

    file: str
    nodes: tuple[str, ...]
    clock: Clock
    time: Counts
    node: Counts
    arrivals: Counts
    capacity: Counts | None


def assemble(table: Table, data: bytes, *, name: str) -> Trace:
    """Return the trace of the rows. Errors quote ``data``.

    Raises TraceError if a (time, node) repeats, nodes have different times, the step is not
    constant, or all arrivals are zero. Sorts the rows of a node that are not in order of time, with
    a TraceWarning.
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
        message = f"{table.file}: rows were out of order, and were sorted by time"
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
    """Return the distinct times [T] in order, and the index of each row's time in them [R]."""
    if (time[1:] < time[:-1]).any():
        return np.unique(time, return_inverse=True)
    new = np.append(True, time[1:] > time[:-1])
    return time[new], np.cumsum(new) - 1


def _is_permutation(cell: Counts, size: int) -> bool:
    """Return True if ``cell`` holds each of 0 .. size - 1 once."""
    if len(cell) != size:
        return False
    is_present = np.zeros(size, dtype=np.bool_)
    is_present[cell] = True
    return bool(is_present.all())


class _Checks:
    """Checks of a table in which row r has the time ``times[rank[r]]``."""

    def __init__(self, table: Table, data: bytes, times: Counts, rank: Counts) -> None:
        self.table, self.data = table, data
        self.times, self.rank = times, rank  # int64 [T], [R]
        self.faults = Faults(table.file)

    def cells(self, cell: Counts) -> None:
        """Raise TraceError for a table without exactly one row per time and node.

        Row r has the index ``cell[r]`` in times x nodes.
        """
        self._duplicates(cell)
        for find in (self._rare_nodes, self._incomplete):
            self.faults.check()
            find()
        self.faults.check()

    def values(self) -> None:
        """Raise TraceError if steps are not constant, or all arrivals are 0."""
        self._uneven()
        self.faults.check()
        if not self.table.arrivals.any():
            rule = "all arrivals are 0; check this column"
            self.faults.add(rule, column="arrivals")
            self.faults.check()

    def _add(self, rule: str, row: int) -> None:
        """Add a fault of a row, and quote its time as in the file."""
        self.faults.add(rule, row + 2, "time", self._time(row))

    def _time(self, row: int) -> str:
        line = next(islice(io.BytesIO(self.data), row + 1, None)).decode()
        return line.split(",", 1)[0].strip('"')

    def _duplicates(self, cell: Counts) -> None:
        table = self.table
        order = np.argsort(cell, kind="stable")
        ranked = cell[order]
        repeated = ranked[1:] == ranked[:-1]  # rows with the cell of the previous row
        rows = np.sort(order[1:][repeated])  # in file order
        if 2 * len(rows) >= len(cell) > 2:
            # At least half of the rows: a column is missing, which is more than a typing error.
            row = int(rows[0])
            rule = (
                f"{len(rows):,} of {len(cell):,} rows repeat a time of their node, here of node "
                f"{table.nodes[table.node[row]]!r}. Either a column that distinguishes the rows is "
                "missing, such as the server name, or each row is one request. Import the original "
                "file with corral trace import, or give each server its own name under node"
            )
            return self._add(rule, row)
        for row in rows[: MAX_FAULTS + 1].tolist():
            first = int(np.flatnonzero(cell[:row] == cell[row])[-1])
            same_numbers = all(
                c is None or c[row] == c[first] for c in (table.arrivals, table.capacity)
            )
            rule = (
                f"node {table.nodes[table.node[row]]!r} already has this time on line "
                f"{first + 2}, "
                + (
                    "with the same numbers; remove one of the two rows"
                    if same_numbers
                    else "with other numbers. If the rows are from two servers, give the servers "
                    "different names under node. If they are parts of one count, add them up"
                )
            )
            self._add(rule, row)
        return None

    def _rare_nodes(self) -> None:
        """Find nodes with less than half of the usual rows, mostly misspelled names."""
        table = self.table
        rows_of = np.bincount(table.node, minlength=len(table.nodes))
        max_rows = int(rows_of.max())
        rows_by_name = zip(table.nodes, rows_of, strict=True)
        usual = [
            name
            for name, rows in rows_by_name
            if 2 * rows >= max_rows and len(name) <= MAX_COMPARED
        ][:MAX_COMPARED]
        for node in np.flatnonzero(2 * rows_of < max_rows).tolist():
            row, name = int(np.flatnonzero(table.node == node)[0]), table.nodes[node]
            similar = get_close_matches(name.lower()[:MAX_COMPARED], usual, n=1)
            hint = f"; did you mean {similar[0]!r}?" if similar else "."
            rule = (
                f"this node has {rows_of[node]} of {max_rows} rows{hint} "
                "Every node needs a row at every time, as nothing is filled in"
            )
            self.faults.add(rule, row + 2, "node", name)

    def _incomplete(self) -> None:
        """Find times without a row for every node."""
        nodes = self.table.nodes
        for at in np.flatnonzero(np.bincount(self.rank) < len(nodes)):
            rows = np.flatnonzero(self.rank == at)
            present = set(self.table.node[rows].tolist())
            absent = [name for node, name in enumerate(nodes) if node not in present]
            names = ", ".join(map(repr, absent[:3])) + (", ..." if len(absent) > 3 else "")
            rule = (
                f"only {len(present)} of {len(nodes)} nodes have a row at this time; missing: "
                f"{names}. Every node needs a row at every time, as nothing is filled in"
            )
            self._add(rule, int(rows[0]))

    def _uneven(self) -> None:
        """Find times at an unusual distance from the previous time."""
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
            zones = "" if zoned else " (times without a zone are read as UTC)"
            rule = (
                f"{steps[at]}{unit} after {format_time(int(self.times[at]), clock)}, but the step "
                f"is {usual}{unit} elsewhere. Steps must be equal: add the missing rows{zones}"
            )
            self._add(rule, rows[1])
