"""Import load traces from tables as other programs export them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from corral.data.fields import name_rule
from corral.data.importers.binning import (
    Gaps,
    Guess,
    Imported,
    Paths,
    check_gap,
    check_step,
    file_list,
    node_names,
)
from corral.data.importers.tables import grid as grids
from corral.data.importers.tables.capacities import columns_of_capacity, told_capacities
from corral.data.importers.tables.cells import Table, read_table
from corral.data.importers.tables.columns import choose, column_of, find_columns
from corral.data.importers.tables.frame import table_of
from corral.data.importers.tables.grid import Grid
from corral.data.importers.tables.numbers import Decimal
from corral.data.importers.tables.roles import (
    Asked,
    Roles,
    find_roles,
    find_zone_column,
    time_columns,
)
from corral.data.importers.tables.sheets import (
    Sheet,
    count_rows,
    guess_decimal,
    make_sheet,
    tell_zone,
    utc_of,
)
from corral.data.importers.tables.times import DateOrder, times_of
from corral.data.importers.tables.zones import zones_by_node
from corral.data.read import trace_name
from corral.data.source import DELIMITERS, MAX_BYTES, MAX_CELLS, fault_error

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["import_table", "trace_of_frame"]

ROLES = ("time", "node", "arrivals", "capacity", "zone")


def import_table(
    paths: Paths,
    *,
    time_column: str | None = None,
    node_column: str | None = None,
    one_node: bool = False,
    arrivals: str | None = None,
    capacity: int | str | Mapping[str, int | str] | None = None,
    rename: str | Mapping[str, str] | None = None,
    zone: str | Mapping[str, str] | None = None,
    date_order: DateOrder | None = None,
    time_format: str | None = None,
    decimal: Decimal | None = None,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    scale: float | None = None,
    step: int | None = None,
    snap: int | None = None,
    gaps: Gaps = "refuse",
    names: Sequence[str] | None = None,
    name: str | None = None,
    max_bytes: int = MAX_BYTES,
    max_cells: int = MAX_CELLS,
    guesses: list[Guess] | None = None,
) -> Imported:
    """Import tables: a column per node, a row per node and time, one series, or a row per request.

    What is not said is found out, and told in ``guesses``; what cannot be found out is refused with
    the arguments that decide it. Columns that are not used are named.

    Args:
        time_column: column of the time; DAY+CLOCK where it takes two.
        node_column: column that names the node; A+B where it takes two.
        one_node: rows are requests, all of one node.
        arrivals: column of the requests; of a wide table 'invoc_*' or names with commas. The star
            is the node.
        capacity: requests per step, 1.25x of the mean load, a=100,b=80, a column, 'max_*', or a
            file of node,capacity rows.
        rename: columns by role: time=timestamp,node=host,arrivals=requests; also capacity, zone.
        zone: where clocks stand that name no zone: Z, -04:00, Europe/Rome, or a=ZONE,b=ZONE;
            default: Z.
        date_order: how 05/01/2026 is read.
        time_format: how times are written, such as '%d %b %Y %H:%M'. See ``datetime.strptime``.
        decimal: mark before decimals: a point or a comma.
        delimiter: mark between cells.
        encoding: such as cp1252; default: UTF-8.
        scale: requests per step of a value of 1: 60 of a rate, in steps of 60 s. Fractions are
            rounded so that each node keeps its total.
        step: length of a step, in seconds; default: the file's own, of rows 60. Whole steps of the
            file are summed, requests are counted into it.
        snap: move times to the nearest multiple of so many seconds. They count from the first.
        gaps: what to do where values are missing; default: refuse. See ``fill``.
        names: names of the nodes, with commas; equal ones join their files. Where rows name none.
        name: of the trace; default: that of the first file.
        max_bytes: largest file that is read, in bytes after unpacking; default: 192 MiB.
        max_cells: most cells that are read: rows times columns, 10 a row at least; default:
            25 million.
        guesses: a list that what was found out is added to.

    Raises TraceError for faults in the files and what only the caller can decide, ValueError for
    options out of range.
    """
    options = {key: value for key, value in locals().items() if key in OPTIONS}
    files = file_list(paths)
    roles = _renamed(rename).values()
    asked = [time_column, node_column, arrivals, capacity, *roles]
    named = {part for text in asked if isinstance(text, str) for part in re.split("[,+]", text)}
    notes: list[str] = []
    tables = [
        read_table(
            path,
            notes,
            delimiter=delimiter,
            encoding=encoding,
            max_bytes=max_bytes,
            max_cells=max_cells,
            named=named,
        )
        for path in files
    ]
    stems = [path.name.removesuffix(".gz").rpartition(".")[0] or path.name for path in files]
    labels = stems if names is None else node_names(files, names)
    told = [] if guesses is None else guesses
    return _import(tables, labels, notes, told, Options(**options, names_given=names is not None))


def trace_of_frame(frame: pd.DataFrame, *, name: str = "frame", **options: Any) -> Imported:
    """Import a DataFrame as ``import_table`` does a file; its index may hold the times."""
    unknown = [option for option in options if option not in OPTIONS]
    if unknown:
        raise ValueError(f"{unknown[0]}= is not known; there are {', '.join(OPTIONS)}")
    return _import([table_of(frame, name)], [name], [], [], Options(name=name, **options))


@dataclass(frozen=True)
class Options:
    """The arguments of ``import_table`` that have a meaning beyond reading a file."""

    time_column: str | None = None
    node_column: str | None = None
    one_node: bool = False
    arrivals: str | None = None
    capacity: int | str | Mapping[str, int | str] | None = None
    rename: str | Mapping[str, str] | None = None
    zone: str | Mapping[str, str] | None = None
    date_order: DateOrder | None = None
    time_format: str | None = None
    decimal: Decimal | None = None
    scale: float | None = None
    step: int | None = None
    snap: int | None = None
    gaps: Gaps = "refuse"
    name: str | None = None
    names_given: bool = False

    def __post_init__(self) -> None:
        check_step(self.step)
        check_step(self.snap)
        allowed: dict[str, list[str | None]] = {
            "gaps": ["refuse", "zero", "previous", "interpolate"],
            "decimal": [None, ".", ","],
            "date_order": [None, "dmy", "mdy"],
        }
        for key, values in allowed.items():
            if getattr(self, key) not in values:
                words = ", ".join(value for value in values if value)
                raise ValueError(f"{key}={getattr(self, key)!r} must be one of {words}")
        if self.scale is not None and not 0 < self.scale < float("inf"):
            raise ValueError(f"scale={self.scale!r} must be a number above 0")

    def asked(self, table: Table) -> Asked:
        """Return the columns that are named. Raises ValueError where one has two roles or names."""
        renamed = _renamed(self.rename)
        given = {"time": self.time_column, "node": self.node_column, "arrivals": self.arrivals}
        given["capacity"] = columns_of_capacity(table, self.capacity)
        for role, column in renamed.items():
            find = find_columns if role in ("arrivals", "capacity") else column_of
            find(table, column, f"rename={role}")
            taken = self.capacity if role == "capacity" else given.get(role)
            if taken not in (None, column):
                raise ValueError(f"rename={role}={column}: {taken!r} is given for that already")
            given[role] = column
        if self.one_node and given["node"]:
            raise ValueError("give one_node=True or node_column=, not both")
        return Asked(**given, one_node=self.one_node)


OPTIONS = tuple(each.name for each in fields(Options) if each.name != "names_given")


def _renamed(rename: str | Mapping[str, str] | None) -> dict[str, str]:
    """Return role -> column of what ``rename`` says."""
    if rename is None or not isinstance(rename, str):
        pairs = list((rename or {}).items())
    else:  # a comma belongs to a name, unless a role follows it
        parts = re.split(rf",\s*(?=(?:{'|'.join(ROLES)})=)", rename)
        pairs = [(role.strip(), column) for role, _, column in (p.partition("=") for p in parts)]
    for role, column in pairs:
        if role not in ROLES or not column:
            raise ValueError(
                f"rename={rename!r}: give role=column with commas; roles are {', '.join(ROLES)}"
            )
    return dict(pairs)


def _import(
    tables: Sequence[Table],
    labels: Sequence[str],
    notes: list[str],
    guesses: list[Guess],
    options: Options,
) -> Imported:
    """Return the trace of tables; ``labels`` name the node of each where its rows name none."""
    asked = options.asked(tables[0])
    sheets = [
        _sheet(table, label, options, asked, notes, guesses if at == 0 else [])
        for at, (table, label) in enumerate(zip(tables, labels, strict=True))
    ]
    first = sheets[0]
    of_file = first.nodes == [labels[0]] and not options.names_given
    if len(labels) > 1 and of_file:
        raise fault_error(
            first.table.path,
            f"several files, and rows that name no node: give names={','.join(labels)} for a node "
            f"per file, or names={','.join([labels[0]] * len(labels))} for parts of one",
        )
    for sheet in sheets:
        if (sheet.kind, sheet.clock, sheet.unit.seconds) != (
            *(first.kind, first.clock),
            first.unit.seconds,
        ):
            raise fault_error(
                sheet.table.path,
                f"its layout, kind of times or unit is not that of {first.table.path.name}",
            )
    grid = grids.merge(sheets, first.clock, step=options.snap, notes=notes)
    guesses.append(Guess("nodes", _listed(grid.nodes), "names=NAME" if of_file else ""))
    guesses.append(Guess("step", grids.step_text(grid), grids.other_step(grid)))
    if first.kind == "log":
        guesses.append(Guess("unit", "each row is one request; steps without rows count 0"))
        grid = grids.fill(grid, "zero", grids.find_holes(grid), [])
        notes.append("the first and the last step may be recorded in part only")
    else:
        grid = _loads(grid, first, options, notes, guesses)
    for node in grid.nodes:
        if (rule := name_rule(node)) is not None:
            raise fault_error(tables[0].path, f"node {node!r}: {rule}")
    title = options.name or "+".join(trace_name(table.path) for table in tables)
    trace = grids.finish(grid, None if first.kind == "log" else options.step, title, notes)
    if options.capacity is not None and asked.capacity is None:
        trace = told_capacities(trace, options.capacity, guesses, notes)
    if trace.capacity is None:
        guesses.append(Guess("capacity", "none in the file", "capacity=1.25x"))
    return Imported(trace, tuple(notes), tuple(guesses))


def _sheet(
    table: Table,
    label: str,
    options: Options,
    asked: Asked,
    notes: list[str],
    guesses: list[Guess],
) -> Sheet:
    """Return the loads of one table, and tell what its columns are."""
    taken = time_columns(table, asked)
    column = column_of(table, "+".join(taken), "time_column")
    times = times_of(table, column, order=options.date_order, time_format=options.time_format)
    guesses.append(
        Guess("time", f"{column.name}: {times.style}", choose("time_column", [column.name]))
    )
    if times.style != "whole numbers":
        check_gap(np.sort(times.seconds), str(table.path))
    place = asked.zone
    if place is None and options.zone is None:
        place = find_zone_column(table, taken, bool(times.zoned.all()))
    roles = find_roles(table, [*taken, place] if place else taken, times.seconds, asked)
    _tell_columns(guesses, table, roles, [*taken, place] if place else taken)
    where = None if options.zone is None else zones_by_node(options.zone)
    tell_zone(guesses, table, times, where, place)
    utc = utc_of(table, times, roles, where, place, notes)
    if times.cut:
        notes.append(f"{table.path.name}: fractions of a second were cut off")
    if options.names_given and (roles.nodes or roles.kind == "wide"):
        raise ValueError("names= name a node per file, but here the file itself names its nodes")
    if roles.kind == "log":
        if options.scale is not None:
            raise ValueError("scale= has no meaning where each row is one request")
        return count_rows(table, roles, utc, label, options.step or 60)
    mark = guess_decimal(
        table, [*roles.arrivals.values(), *roles.capacity.values()], options.decimal
    )
    if mark == ",":
        guesses.append(Guess("decimals", "1,5 is one and a half", "decimal='.'"))
    sheet = make_sheet(table, roles, utc, label, mark)
    sheet.clock = "integer" if times.style == "whole numbers" else "utc"
    sheet.may_be_local = sheet.clock == "utc" and not (times.zoned.any() or where or place)
    return sheet


def _loads(
    grid: Grid, sheet: Sheet, options: Options, notes: list[str], guesses: list[Guess]
) -> Grid:
    """Return the loads in requests per step, without holes."""
    each = grids.factor(grid, sheet.unit, options.scale, guesses)
    grid = grids.scaled(grid, each, _roof(grid, sheet, options, each, guesses))
    notes += [f"cells such as {short!r} do not show all their digits" for short in sheet.short[:1]]
    holes = grids.find_holes(grid)
    for line in grids.tell_holes(grid, holes) or ["none"]:
        guesses.append(Guess("gaps", line))
    missing_hour = any((hole.high - hole.low) * grid.step == 3600 for hole in holes)
    hint = ""
    if missing_hour and sheet.may_be_local:
        hint = "; an hour may be missing by daylight saving: zone=Europe/Rome, say"
    return grids.fill(grid, options.gaps, holes, notes, hint)


def _roof(grid: Grid, sheet: Sheet, options: Options, each: float, guesses: list[Guess]) -> float:
    """Return what columns of capacity are multiplied by, where there are any, and tell it."""
    unit = sheet.capacity_unit
    if options.scale is None and unit.seconds is not None:
        each = grid.step / unit.seconds
        word = grids.PER[unit.seconds]
        found = f"requests per {word}, by {unit.source}; times {each:g}"
    else:
        found = f"times {each:g}, as the requests" if each != 1 else ""
    if grid.capacity is not None and found:
        guesses.append(Guess("capacity", found))
    return each


# --- What was found ------------------------------------------------------------------------------

KINDS = {
    "wide": "wide: a column per node",
    "long": "long: a row per node and time",
    "series": "a series: one node",
    "log": "a request log: a row per request",
}


def _tell_columns(guesses: list[Guess], table: Table, roles: Roles, taken: Sequence[str]) -> None:
    """Tell what the columns were taken for, with the options that say the same."""
    kind = KINDS[roles.kind]
    if table.delimiter is not None:
        kind += f", {DELIMITERS.get(table.delimiter, repr(table.delimiter))} between cells"
    if guesses and guesses[0].what == "layout":
        guesses[0] = Guess("layout", f"{guesses[0].found}, {kind}")
    else:
        guesses.insert(0, Guess("layout", kind))
    if roles.nodes:
        guesses.append(Guess("node", roles.nodes[0], choose("node_column", roles.nodes)))
    columns = {"arrivals": roles.arrivals, "capacity": roles.capacity}
    for (what, found), pattern in zip(columns.items(), roles.patterns, strict=True):
        if found:
            names = list(dict.fromkeys(found.values()))
            said = pattern or ",".join(names)
            said = said if len(said) < 200 else "a,b,..."
            guesses.append(Guess(what, _listed(names), choose(what, [said])))
    used = {*taken, *roles.arrivals.values(), *roles.capacity.values(), *roles.nodes}
    used |= {part for node in roles.nodes for part in node.split("+")}
    unused = [name for name in table.columns if name not in used]
    if unused:
        guesses.append(Guess("unused", _listed(unused)))


def _listed(names: Any) -> str:
    names = [str(each) for each in names]
    head = ", ".join(names[:6]) + (f", ... {names[-1]}" if len(names) > 6 else "")
    return f"{len(names)}: {head}" if len(names) > 1 else head
