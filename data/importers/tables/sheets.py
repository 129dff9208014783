"""A table by its roles: loads over the times and nodes of one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from corral.data.fields import Clock, name_rule
from corral.data.importers.binning import Guess
from corral.data.importers.tables.cells import Column, Table, is_missing
from corral.data.importers.tables.columns import column_of
from corral.data.importers.tables.numbers import (
    Decimal,
    Numbers,
    decimal_of,
    numbers_of,
    per_seconds,
)
from corral.data.importers.tables.roles import Roles
from corral.data.importers.tables.times import Times
from corral.data.importers.tables.zones import find_zone, to_utc
from corral.data.source import MAX_CELLS, MAX_NODES, fault_error
from corral.data.trace import Counts

__all__ = ["Sheet", "Unit", "count_rows", "guess_decimal", "make_sheet", "tell_zone", "utc_of"]

Floats = npt.NDArray[np.float64]


@dataclass
class Unit:
    """What the values of a table count: requests per ``seconds``; None: nobody said."""

    seconds: int | None = None
    source: str = ""  # where that is said


@dataclass
class Sheet:
    """Loads over T times, ascending and each once, and N nodes; NaN where nothing is said.

    ``times`` [T] int64, ``arrivals`` and ``capacity`` [T, N] as the file has them.
    """

    table: Table
    times: Counts
    nodes: list[str]
    arrivals: Floats
    capacity: Floats | None
    unit: Unit = field(default_factory=Unit)
    capacity_unit: Unit = field(default_factory=Unit)
    kind: str = "log"
    clock: Clock = "utc"
    may_be_local: bool = False  # nobody said the zone of its times
    short: list[str] = field(default_factory=list)  # cells such as 3K


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

    ``zone`` says where clocks without a zone stand: one for all, or one for each node of a long
    table or log; ``zone_column`` names the column that says it for each row.
    """
    seconds = times.seconds.copy()
    local = ~times.zoned
    if times.style == "whole numbers" or not local.any():
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
            raise ValueError("zone= for each node needs a column that names the node of a row")
        chosen = {}
        for code, cell in enumerate(key.cells):
            if str(cell) not in zone:
                raise ValueError(f"zone= names no zone for node {str(cell)!r}")
            chosen[code] = zone[str(cell)]
        codes = key.codes.astype(np.int64)
    else:
        chosen, codes = {0: zone or "Z"}, np.zeros(len(seconds), dtype=np.int64)
    for text in dict.fromkeys(chosen.values()):
        here = local & np.isin(codes, [code for code, each in chosen.items() if each == text])
        rows = np.flatnonzero(here)
        found = find_zone(text)
        if not len(rows):
            continue
        if isinstance(found, ZoneInfo):
            part = Table(table.path, {}, table.lines[rows], None)
            of_nodes = None if roles.kind == "log" else series[rows]
            seconds[rows] = to_utc(part, seconds[rows], found, of_nodes, notes)
        else:
            seconds[rows] -= found
    return seconds


# --- Loads ---------------------------------------------------------------------------------------


def make_sheet(table: Table, roles: Roles, utc: Counts, node: str, decimal: Decimal) -> Sheet:
    """Return the loads of a wide table, a long one, or a series, which is ``node``'s."""
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
    _once(table, rank, of_row, nodes)
    sheet = Sheet(table, times, nodes, np.zeros((0, 0)), None, kind=roles.kind)
    shape, rows = (len(times), len(nodes)), (rank, of_row)
    sheet.arrivals, sheet.unit = _values(sheet, roles.arrivals, shape, rows, decimal)
    if roles.capacity:
        roof, sheet.capacity_unit = _values(sheet, roles.capacity, shape, rows, decimal)
        sheet.capacity = roof
    return sheet


def _check_size(table: Table, what: str, times: int, nodes: int) -> None:
    """Raise TraceError where so many cells cannot be meant."""
    if nodes > MAX_NODES or times * nodes > MAX_CELLS:
        raise fault_error(
            table.path,
            f"{what} x {nodes:,} nodes, more than {MAX_NODES:,} nodes or {MAX_CELLS:,} cells: look "
            "for a wrong time, or another column that names the node; or choose a larger step",
        )


def _name(table: Table, key: Column, code: int) -> str:
    name = str(key.cells[code])
    rule = name_rule(name)
    if rule is not None or is_missing(key.cells[code]):
        row = int(np.argmax(key.codes == code))
        table.fault(rule or "no name of a node; every row needs one", row, key.name, name)
    return name


def _once(table: Table, rank: Counts, of_row: Counts | None, nodes: Sequence[str]) -> None:
    """Raise TraceError where two rows have the same time and node."""
    cell = rank if of_row is None else rank * len(nodes) + of_row
    order = np.argsort(cell, kind="stable")
    again = np.flatnonzero(np.diff(cell[order]) == 0)
    if not len(again):
        return
    row, first = int(order[again[0] + 1]), int(order[again[0]])
    whose = f" for node {nodes[int(of_row[row])]!r}" if of_row is not None else ""
    said = f"this time is on line {table.lines[first]} already{whose} ({len(again):,} such rows). "
    if of_row is None and len(nodes) > 1:
        table.fault(
            f"{said}Where clocks were set back, name the place with zone=, such as "
            "zone=Europe/Rome",
            row,
        )
    table.fault(
        f"{said}Name the column that tells them apart with node_column= (several: 'a+b'); where "
        "clocks were set back, name the place with zone=, such as zone=Europe/Rome; where each row "
        "is one request, give one_node=True",
        row,
    )


def _values(
    sheet: Sheet,
    columns: Mapping[str, str],
    shape: tuple[int, int],
    place: tuple[Counts, Counts | None],
    decimal: Decimal,
) -> tuple[Floats, Unit]:
    """Return the values [T, N] of columns, and what they count."""
    table, grid, (rank, of_row) = sheet.table, np.full(shape, np.nan), place
    units: dict[int | None, str] = {}
    read: dict[str, Numbers] = {}
    for at, name in enumerate(columns.values()):
        if name not in read:
            read[name] = numbers_of(table, table.columns[name], decimal)
            sheet.short += filter(None, [read[name].short])
        numbers = read[name]
        grid[rank, of_row if of_row is not None else at] = numbers.values
        if numbers.seconds:
            units[numbers.seconds] = "the units in its cells"
        elif (seconds := per_seconds(name)) is not None:
            units.setdefault(seconds, f"the name of column {name!r}")
        elif np.nansum(numbers.values) > 0:
            units[None] = ""
    if len(units) > 1:
        raise fault_error(
            table.path,
            f"columns have different units ({', '.join(columns.values())}): give arrivals= for "
            "those of one unit",
        )
    for seconds, source in units.items():
        return grid, Unit(seconds, source)
    return grid, Unit()


def guess_decimal(table: Table, names: Sequence[str], given: Decimal | None) -> Decimal:
    """Return the mark before decimals. Raises TraceError where it cannot be told."""
    if given is not None:
        return given
    cells = [cell for name in names for cell in table.columns[name].cells]
    if table.delimiter is None and not any(isinstance(cell, str) for cell in cells):
        return "."
    found = decimal_of(cells, table.delimiter)
    if found is None:
        unsure = next(c for c in cells if isinstance(c, str) and ("," in c or "." in c))
        raise fault_error(
            table.path, f"is {unsure!r} a fraction or thousands? Give decimal=',' or decimal='.'"
        )
    return found


# --- One row per request -------------------------------------------------------------------------


def count_rows(table: Table, roles: Roles, utc: Counts, node: str, step: int) -> Sheet:
    """Return how many rows each node has in each step that begins at a multiple of ``step``."""
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


def tell_zone(
    guesses: list[Guess],
    table: Table,
    times: Times,
    where: str | Mapping[str, str] | None,
    place: str | None,
) -> None:
    """Tell where the times are. Raises TraceError where some say it, and nobody for the rest."""
    named, count = int(times.zoned.sum()), len(times.zoned)
    if times.style == "whole numbers":
        guesses.append(Guess("zone", "none: plain numbers are no time of day"))
    elif named == count:
        unused = "; zone= changes nothing" if where or place else ""
        guesses.append(Guess("zone", f"the times themselves say it{unused}"))
    elif place is not None:
        guesses.append(Guess("zone", f"column {place} says it for each row", "zone=Z"))
    elif where is not None:
        said = where if isinstance(where, str) else ", ".join(f"{n}: {z}" for n, z in where.items())
        guesses.append(Guess("zone", said, "zone=Z"))
    elif named:
        raise fault_error(
            table.path,
            f"{named:,} of {count:,} times name their zone, the others do not: where are those? "
            "Give zone=Z, or zone=Europe/Rome",
        )
    else:
        guesses.append(Guess("zone", "none is named; taken as UTC", "zone=Europe/Rome", "zone=Z"))
