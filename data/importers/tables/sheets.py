"""Arrange a table by its column roles, as loads over the times and nodes of one file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pandas as pd

from corral.data.fields import Clock, format_time, name_rule
from corral.data.importers.binning import Guess
from corral.data.importers.tables.cells import Column, Table, is_missing
from corral.data.importers.tables.columns import column_of
from corral.data.importers.tables.numbers import (
    Decimal,
    decimal_of,
    numbers_of,
    per_seconds,
)
from corral.data.importers.tables.roles import Roles
from corral.data.importers.tables.times import Times
from corral.data.importers.tables.zones import find_zone, to_utc
from corral.data.source import MAX_CELLS, MAX_NODES, fault_error
from corral.data.trace import Counts

__all__ = [
    "Combine",
    "Sheet",
    "Unit",
    "add_zone_guess",
    "count_rows",
    "guess_decimal",
    "make_sheet",
    "regroup",
    "utc_of",
]

Floats = npt.NDArray[np.float64]
Combine = Literal["refuse", "sum"]


@dataclass
class Unit:
    """The unit of a table's values: requests per ``seconds``; None if unknown."""

    seconds: int | None = None
    source: str = ""  # the part of the table that states the unit


@dataclass
class Sheet:
    """Loads over T ascending, distinct times and N nodes; NaN for missing values.

    ``times`` [T] int64; ``arrivals`` and ``capacity`` [T, N] in the unit of the file.
    """

    table: Table
    times: Counts
    nodes: list[str]
    arrivals: Floats
    capacity: Floats | None
    unit: Unit = field(default_factory=Unit)
    capacity_unit: Unit = field(default_factory=Unit)
    kind: str = "log"
    node_column: str = ""  # of a long table
    columns: dict[str, str] = field(default_factory=dict)  # with arrivals, by node, as in Roles
    clock: Clock = "utc"
    may_be_local: bool = False  # neither the times nor the caller state a zone
    abbreviated: list[str] = field(default_factory=list)  # abbreviated cells, such as 3K


# --- Times ---------------------------------------------------------------------------------------


def utc_of(
    table: Table,
    times: Times,
    roles: Roles,
    zone: str | Mapping[str, str] | None,
    zone_column: str | None,
    notes: list[str],
) -> Counts:
    """Return the times of the rows in seconds since 1970-01-01 UTC, [R].

    ``zone`` is the zone of times that state none: one for all nodes, or one per node of a long
    table or log. ``zone_column`` names a column with the zone of each row.
    """
    seconds = times.seconds.copy()
    local = ~times.zoned
    if times.is_plain or not local.any():
        return seconds
    series: npt.NDArray[np.int64] = np.zeros(len(seconds), dtype=np.int64)
    key: Column | None = None
    if roles.nodes:
        key = column_of(table, roles.nodes[0], "node_column")
        series = key.codes.astype(np.int64)
    if zone_column is not None:
        places = column_of(table, zone_column, "rename: zone")
        chosen = {code: str(cell) for code, cell in enumerate(places.cells)}
        codes = places.codes.astype(np.int64)
    elif isinstance(zone, Mapping):
        if key is None:
            raise ValueError(
                "zone= with a zone per node requires a column that names the node; pass "
                "node_column=, or one zone for all nodes"
            )
        chosen = {}
        for code, cell in enumerate(key.cells):
            if str(cell) not in zone:
                raise ValueError(f"zone= has no zone for node {str(cell)!r}; add one")
            chosen[code] = zone[str(cell)]
        codes = key.codes.astype(np.int64)
    else:
        chosen, codes = {0: zone or "Z"}, np.zeros(len(seconds), dtype=np.int64)
    for text in dict.fromkeys(chosen.values()):
        selected = local & np.isin(codes, [code for code, name in chosen.items() if name == text])
        rows = np.flatnonzero(selected)
        parsed_zone = find_zone(text)
        if not len(rows):
            continue
        if isinstance(parsed_zone, ZoneInfo):
            part = Table(table.path, {}, table.lines[rows], None)
            of_nodes = None if roles.kind == "log" else series[rows]
            seconds[rows] = to_utc(part, seconds[rows], parsed_zone, of_nodes, notes)
        else:
            seconds[rows] -= parsed_zone
    return seconds


# --- Loads ---------------------------------------------------------------------------------------


def make_sheet(
    table: Table,
    roles: Roles,
    utc: Counts,
    node: str,
    decimal: Decimal,
    combine: Combine,
    notes: list[str],
) -> Sheet:
    """Return the loads of a wide table, of a long table, or of a series for ``node``."""
    times, rank = np.unique(utc, return_inverse=True)  # [T], [R]
    if roles.kind == "long":
        key = column_of(table, roles.nodes[0], "node_column")
        used, of_row = np.unique(key.codes, return_inverse=True)
        _check_size(table, f"{len(times):,} times", len(times), len(used))
        nodes = [_name(table, key, int(code)) for code in used]
        first = np.full(len(used), len(of_row))
        np.minimum.at(first, of_row, np.arange(len(of_row)))
        order = np.argsort(first)  # nodes in order of their first rows
        place = np.empty(len(used), dtype=np.int64)
        place[order] = np.arange(len(used))
        nodes, of_row = [nodes[i] for i in order], place[of_row]
    else:
        nodes = list(roles.arrivals) if roles.kind == "wide" else [node]
        of_row = None
    _check_size(table, f"{len(times):,} times", len(times), len(nodes))
    repeats = _repeated_rows(table, rank, of_row, nodes, combine)
    if repeats and roles.capacity:
        raise fault_error(
            table.path,
            f"{repeats:,} rows repeat a time and node. Their requests can be summed, but not their "
            "capacities: pass the capacity of a node, such as capacity=100",
        )
    if repeats:
        notes.append(
            f"{table.path.name}: {repeats:,} of {len(utc):,} rows repeat a time and node, and "
            "were added to the others (combine=sum)"
        )
    sheet = Sheet(table, times, nodes, np.zeros((0, 0)), None, kind=roles.kind)
    sheet.node_column, sheet.columns = next(iter(roles.nodes), ""), roles.arrivals
    shape, rows = (len(times), len(nodes)), (rank, of_row)
    sheet.arrivals, sheet.unit = _values(sheet, roles.arrivals, shape, rows, decimal)
    if roles.capacity:
        capacity, sheet.capacity_unit = _values(sheet, roles.capacity, shape, rows, decimal)
        sheet.capacity = capacity
    return sheet


def _check_size(table: Table, extent: str, times: int, nodes: int) -> None:
    """Raise TraceError for more nodes or cells than the limits."""
    if nodes > MAX_NODES or times * nodes > MAX_CELLS:
        raise fault_error(
            table.path,
            f"{extent} x {nodes:,} nodes exceed the limit of {MAX_NODES:,} nodes or {MAX_CELLS:,} "
            "cells. Check the file for a wrong time, pass another node_column=, or pass a larger "
            "step=",
        )


def _name(table: Table, key: Column, code: int) -> str:
    name = str(key.cells[code])
    rule = name_rule(name)
    if rule is not None or is_missing(key.cells[code]):
        row = int(np.argmax(key.codes == code))
        table.fault(rule or "missing node name; every row needs one", row, key.name, name)
    return name


def _repeated_rows(
    table: Table,
    rank: Counts,
    of_row: Counts | None,
    nodes: Sequence[str],
    combine: Combine,
) -> int:
    """Return the number of rows that repeat the time and node of another row.

    Raises TraceError if there are any, and ``combine`` is not "sum".
    """
    cell = rank if of_row is None else rank * len(nodes) + of_row
    order = np.argsort(cell, kind="stable")
    repeats = np.flatnonzero(np.diff(cell[order]) == 0)
    if not len(repeats) or combine == "sum":
        return len(repeats)
    row, first = int(order[repeats[0] + 1]), int(order[repeats[0]])
    of_node = f" for node {nodes[int(of_row[row])]!r}" if of_row is not None else ""
    message = (
        f"repeats the time of line {table.lines[first]}{of_node} ({len(repeats):,} repeated rows). "
    )
    if of_row is None and len(nodes) > 1:
        table.fault(
            f"{message}If clocks were set back here, pass the time zone, such as "
            "zone=Europe/Rome. To add these rows up, pass combine=sum",
            row,
        )
    table.fault(
        f"{message}If a column distinguishes these rows, pass node_column= ('a+b' for two "
        "columns). If clocks were set back here, pass the time zone, such as zone=Europe/Rome. If "
        "each row is one request, pass one_node=True. To add these rows up, pass combine=sum",
        row,
    )
    raise AssertionError


def regroup(sheet: Sheet, pattern: str | None, combine: Combine, notes: list[str]) -> Sheet:
    """Return the sheet with the nodes named by the groups of ``pattern``, a regular expression.

    Nodes of equal names are joined. Raises TraceError if a name does not match, or if two nodes of
    equal names have values at the same time, unless ``combine`` is "sum" or rows are requests.
    """
    if pattern is None:
        return sheet
    names = []
    for node in sheet.nodes:
        match = re.search(pattern, node)
        if match is None:
            rule = f"node_pattern={pattern!r} does not match node {node!r}"
            raise fault_error(sheet.table.path, rule)
        names.append("/".join(g for g in match.groups() if g) if match.groups() else match[0])
    nodes = list(dict.fromkeys(names))
    of_column = np.array([nodes.index(name) for name in names])
    num_values = pd.DataFrame(sheet.arrivals.T).groupby(of_column).count().to_numpy().T
    if num_values.max() > 1 and combine != "sum" and sheet.kind != "log":
        at, column = np.argwhere(num_values > 1)[0]
        raise fault_error(
            sheet.table.path,
            f"node_pattern={pattern!r} gives {num_values[at, column]} nodes the name "
            f"{nodes[column]!r} at {format_time(int(sheet.times[at]), sheet.clock)}; to add their "
            "requests, pass combine=sum",
        )
    if len(nodes) < len(names):
        notes.append(
            f"{sheet.table.path.name}: {len(names):,} nodes were joined to {len(nodes):,} by "
            f"node_pattern={pattern}"
        )

    def joined(values: Floats) -> Floats:
        sums: Floats = pd.DataFrame(values.T).groupby(of_column).sum(min_count=1).to_numpy().T
        return sums

    capacity = None if sheet.capacity is None else joined(sheet.capacity)
    return replace(sheet, nodes=nodes, arrivals=joined(sheet.arrivals), capacity=capacity)


def _values(
    sheet: Sheet,
    columns: Mapping[str, str],
    shape: tuple[int, int],
    cells: tuple[Counts, Counts | None],
    decimal: Decimal,
) -> tuple[Floats, Unit]:
    """Return the values [T, N] of columns, and their unit."""
    table, grid, (rank, of_row) = sheet.table, np.full(shape, np.nan), cells
    units: dict[int | None, str] = {}
    numbers_of_column = {
        name: numbers_of(table, table.columns[name], decimal)
        for name in dict.fromkeys(columns.values())
    }
    sheet.abbreviated += [n.abbreviated for n in numbers_of_column.values() if n.abbreviated]
    is_mixed = len({n.seconds for n in numbers_of_column.values() if n.seconds}) > 1
    for at, name in enumerate(columns.values()):
        numbers = numbers_of_column[name]
        values, seconds = numbers.values, numbers.seconds
        if is_mixed and seconds:
            values, seconds = values / seconds, 1
        present = ~np.isnan(values)
        cell = rank[present] * shape[1] + (at if of_row is None else of_row[present])
        used, of_cell = np.unique(cell, return_inverse=True)
        grid.flat[used] = np.bincount(of_cell, values[present])  # repeated rows are summed
        if seconds:
            units[seconds] = "the units in the cells"
        elif (seconds := per_seconds(name)) is not None:
            units.setdefault(seconds, f"the name of column {name!r}")
        elif np.nansum(values) > 0:
            units[None] = ""
    if len(units) > 1:
        raise fault_error(
            table.path,
            f"the columns have different units ({', '.join(columns.values())}); pass arrivals= "
            "with columns of one unit",
        )
    for seconds, source in units.items():
        return grid, Unit(seconds, source)
    return grid, Unit()


def guess_decimal(table: Table, names: Sequence[str], requested: Decimal | None) -> Decimal:
    """Return the decimal mark. Raises TraceError if the cells are ambiguous."""
    if requested is not None:
        return requested
    cells = [cell for name in names for cell in table.columns[name].cells]
    if table.delimiter is None and not any(isinstance(cell, str) for cell in cells):
        return "."
    mark = decimal_of(cells, table.delimiter)
    if mark is None:
        unsure = next(c for c in cells if isinstance(c, str) and ("," in c or "." in c))
        raise fault_error(
            table.path,
            f"{unsure!r} may have a decimal mark or a thousands separator. Pass the decimal mark: "
            "decimal=',' or decimal='.'",
        )
    return mark


# --- One row per request -------------------------------------------------------------------------


def count_rows(table: Table, roles: Roles, utc: Counts, node: str, step: int) -> Sheet:
    """Return the number of rows per node and step. Steps begin at multiples of ``step``."""
    low, high = int(utc.min()) // step, int(utc.max()) // step
    steps = high - low + 1
    nodes, of_row = [node], np.zeros(len(utc), dtype=np.int64)
    if roles.nodes:
        key = column_of(table, roles.nodes[0], "node_column")
        used, of_row = np.unique(key.codes, return_inverse=True)
        _check_size(table, f"{steps:,} steps of {step} s", steps, len(used))
        nodes = [_name(table, key, int(code)) for code in used]
    _check_size(table, f"{steps:,} steps of {step} s", steps, len(nodes))
    cell = (utc // step - low) * len(nodes) + of_row
    counts = np.bincount(cell, minlength=steps * len(nodes)).reshape(steps, len(nodes))
    times = (low + np.arange(steps)) * step
    return Sheet(table, times, nodes, counts.astype(float), None)


def add_zone_guess(
    guesses: list[Guess],
    table: Table,
    times: Times,
    zone: str | Mapping[str, str] | None,
    zone_column: str | None,
) -> None:
    """Add a guess about the time zone.

    Raises TraceError if only some times state a zone, and the caller passed none.
    """
    num_zoned, count = int(times.zoned.sum()), len(times.zoned)
    if times.is_plain:
        guesses.append(Guess("zone", "none: plain numbers have no time zone"))
    elif num_zoned == count:
        unused = "; zone= has no effect" if zone or zone_column else ""
        guesses.append(Guess("zone", f"each time states its zone{unused}"))
    elif zone_column is not None:
        guesses.append(Guess("zone", f"column {zone_column} states the zone of each row", "zone=Z"))
    elif zone is not None:
        text = zone if isinstance(zone, str) else ", ".join(f"{n}: {z}" for n, z in zone.items())
        guesses.append(Guess("zone", text, "zone=Z"))
    elif num_zoned:
        raise fault_error(
            table.path,
            f"only {num_zoned:,} of {count:,} times state their zone. Pass the zone of the other "
            "times, such as zone=Z or zone=Europe/Rome",
        )
    else:
        guesses.append(Guess("zone", "not stated; UTC is assumed", "zone=Europe/Rome", "zone=Z"))
