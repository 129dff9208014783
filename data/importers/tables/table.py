"""Import load traces from tables that other programs export."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from corral.data.fields import name_rule
from corral.data.importers.binning import (
    Gaps,
    Guess,
    Imported,
    Paths,
    check_gap,
    check_options,
    file_list,
    node_names,
)
from corral.data.importers.counters import check_counters, of_counters
from corral.data.importers.tables import grid as grids
from corral.data.importers.tables.binary import binary_kind, read_frame
from corral.data.importers.tables.capacities import columns_of_capacity, set_capacities
from corral.data.importers.tables.cells import Table, read_table
from corral.data.importers.tables.columns import choose, column_of, find_columns, quoted
from corral.data.importers.tables.documents import is_json, read_json
from corral.data.importers.tables.frame import table_of
from corral.data.importers.tables.grid import Grid
from corral.data.importers.tables.numbers import Decimal
from corral.data.importers.tables.roles import (
    RequestedColumns,
    Roles,
    find_roles,
    find_zone_column,
    time_columns,
)
from corral.data.importers.tables.shape import shaped
from corral.data.importers.tables.sheets import (
    Combine,
    Sheet,
    add_zone_guess,
    count_rows,
    guess_decimal,
    make_sheet,
    regroup,
    utc_of,
)
from corral.data.importers.tables.times import (
    DateOrder,
    TimeUnit,
    check_numbers,
    first_hour,
    parse_epoch,
    times_of,
    with_clock,
)
from corral.data.importers.tables.zones import zones_by_node
from corral.data.read import trace_name
from corral.data.source import DELIMITERS, MAX_BYTES, MAX_CELLS, fault_error

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["import_table", "trace_of_frame"]

ROLES = ("time", "node", "arrivals", "capacity", "zone")

MAX_LISTED = 8
"""Maximum number of columns that a message lists."""


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
    time_unit: TimeUnit | None = None,
    epoch: str | None = None,
    where: str | None = None,
    combine: Combine = "refuse",
    node_pattern: str | None = None,
    decimal: Decimal | None = None,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    header: int | None = None,
    columns: str | Sequence[str] | None = None,
    counter: bool | None = None,
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

    In JSON and JSON lines, each entry is a row, and paths are the names of columns: ``host``,
    ``request.host``, or ``data[].timeStamp``, with ``[]`` for a list.

    The importer guesses the options that are not passed, and lists its guesses in ``guesses``. It
    refuses an ambiguous file, and names the options that decide. Unused columns are listed.

    Args:
        time_column: column of the time; DAY+CLOCK for a date column and a time-of-day column; row
            for the number of the row; file for the file name, with time_format.
        node_column: column that names the node; A+B for a name from two columns.
        one_node: each row is one request, and all rows belong to one node.
        arrivals: column of the requests; in a wide table 'invoc_*', or names separated by commas;
            rows if each row is one request. The star matches the node name.
        capacity: requests per step, 1.25x of the mean load, a=100,b=80, a column, 'max_*', or a
            file of node,capacity rows.
        rename: columns by role: time=timestamp,node=host,arrivals=requests; also capacity, zone.
        zone: time zone of times without one: Z, -04:00, Europe/Rome, or a=ZONE,b=ZONE per node;
            default: Z.
        date_order: order of day and month in dates such as 05/01/2026.
        time_format: format of the times, such as '%d %b %Y %H:%M'. See ``datetime.strptime``.
        time_unit: unit of times that are numbers, such as ms; days are d. Without ``epoch``,
            numbers after 1990 count from 1970, and smaller ones from an unknown time.
        epoch: date and time of 0 in the unit of time_unit, such as 2021-01-31T00:00Z.
        where: rows to read, such as metric=rps,status!=500.
        combine: treatment of rows with the same node and time: refuse them, or sum their requests.
        node_pattern: regular expression for node names, such as '(web-[0-9]+)-.*'. Its groups are
            the name of the node, and nodes of one name are joined.
        decimal: decimal mark: a point or a comma.
        delimiter: character between cells; a space for any number of spaces.
        encoding: text encoding, such as cp1252; default: UTF-8.
        header: number of the line with the column names; default: the line above the first time.
        columns: names of the columns of a file without header, separated by commas.
        counter: whether values are counters since a start, as in ``import_prometheus``; default:
            refuse possible counters.
        scale: factor from values to requests per step, such as 60 for rates per second in steps of
            60 s. Fractions are rounded so that each node keeps its total.
        step: length of a step, in seconds; default: the step of the file, or 60 for a request log.
            Whole steps of the file are summed, and requests are counted per step.
        snap: move times to the nearest step of this many seconds. The steps begin at the most
            common offset of the times.
        gaps: treatment of missing values; default: refuse. See ``fill``.
        names: node names separated by commas, one per file; equal names join their files. Only for
            files that name no node.
        name: name of the trace; default: the file names joined by +.
        max_bytes: maximum size of a file after unpacking, in bytes; default: 192 MiB.
        max_cells: maximum number of cells: rows times columns, at least 10 per row; default:
            25 million.
        guesses: list to which the guesses are appended.

    Raises TraceError for faulty or ambiguous files, ValueError for options out of range.
    """
    options = Options(
        **{key: value for key, value in locals().items() if key in OPTIONS},
        names_given=names is not None,
    )
    files = file_list(paths)
    named = options.named()
    notes: list[str] = []
    column_names = columns.split(",") if isinstance(columns, str) else columns
    if header is not None and column_names is not None:
        raise ValueError("pass header= or columns=, not both")
    tables = []
    for path in files:
        kind = binary_kind(path)
        if kind == "parquet" or kind == "feather":
            table = table_of(read_frame(path, kind, max_cells=max_cells), str(path))
        elif kind is None and column_names is None and is_json(path, max_bytes=max_bytes):
            time = time_column or _renamed(rename).get("time")
            table = read_json(
                path,
                notes,
                time=time,
                named=named,
                arrivals=arrivals or _renamed(rename).get("arrivals"),
                max_bytes=max_bytes,
                max_cells=max_cells,
            )
        else:
            table = read_table(
                path,
                notes,
                delimiter=delimiter,
                encoding=encoding,
                header=header,
                columns=column_names,
                max_bytes=max_bytes,
                max_cells=max_cells,
                named=named,
            )
        tables.append(table)
    stems = [path.name.removesuffix(".gz").rpartition(".")[0] or path.name for path in files]
    labels = stems if names is None else node_names(files, names)
    guess_list = [] if guesses is None else guesses
    return _import(tables, labels, notes, guess_list, options)


def trace_of_frame(frame: pd.DataFrame, *, name: str = "frame", **options: Any) -> Imported:
    """Import a DataFrame as ``import_table`` imports a file. Its index may hold the times."""
    unknown = [option for option in options if option not in OPTIONS]
    if unknown:
        raise ValueError(f"unknown option {unknown[0]}=; options are {', '.join(OPTIONS)}")
    return _import([table_of(frame, name)], [name], [], [], Options(name=name, **options))


@dataclass(frozen=True)
class Options:
    """The options of ``import_table`` that apply after a file is read."""

    time_column: str | None = None
    node_column: str | None = None
    one_node: bool = False
    arrivals: str | None = None
    capacity: int | str | Mapping[str, int | str] | None = None
    rename: str | Mapping[str, str] | None = None
    zone: str | Mapping[str, str] | None = None
    date_order: DateOrder | None = None
    time_format: str | None = None
    time_unit: TimeUnit | None = None
    epoch: str | None = None
    where: str | None = None
    combine: Combine = "refuse"
    node_pattern: str | None = None
    decimal: Decimal | None = None
    counter: bool | None = None
    scale: float | None = None
    step: int | None = None
    snap: int | None = None
    gaps: Gaps = "refuse"
    name: str | None = None
    names_given: bool = False

    def __post_init__(self) -> None:
        check_options(self.gaps, self.scale, [self.step, self.snap])
        allowed: dict[str, list[str | None]] = {
            "decimal": [None, ".", ","],
            "date_order": [None, "dmy", "mdy"],
            "time_unit": [None, *get_args(TimeUnit)],
            "combine": [*get_args(Combine)],
        }
        for key, values in allowed.items():
            if getattr(self, key) not in values:
                words = ", ".join(value for value in values if value)
                raise ValueError(f"{key}={getattr(self, key)!r} must be one of {words}")
        if self.epoch is not None and self.time_unit is None:
            raise ValueError(f"epoch={self.epoch} needs time_unit=, such as time_unit=s")
        if self.time_unit is not None and self.time_format is not None:
            raise ValueError("pass time_unit= or time_format=, not both")
        try:
            re.compile(self.node_pattern or "")
        except re.error as error:
            raise ValueError(
                f"node_pattern={self.node_pattern!r} is not a regular expression: {error}"
            ) from None

    def named(self) -> set[str]:
        """Return the names of columns in the options."""
        texts = [self.time_column, self.node_column, self.arrivals, self.capacity]
        texts += _renamed(self.rename).values()
        texts += [part.partition("=")[0].rstrip("!") for part in (self.where or "").split(",")]
        return {part for t in texts if isinstance(t, str) for part in re.split("[,+]", t) if part}

    def requested_columns(self, table: Table) -> RequestedColumns:
        """Return the columns that the caller named. Raises ValueError for conflicting options."""
        renamed = _renamed(self.rename)
        given = {"time": self.time_column, "node": self.node_column, "arrivals": self.arrivals}
        given["capacity"] = columns_of_capacity(table, self.capacity)
        for role, column in renamed.items():
            find = find_columns if role in ("arrivals", "capacity") else column_of
            find(table, column, f"rename={role}")
            taken = self.capacity if role == "capacity" else given.get(role)
            if taken not in (None, column):
                raise ValueError(
                    f"rename={role}={column} conflicts with {taken!r}, passed for the same role; "
                    "pass only one of them"
                )
            given[role] = column
        if self.one_node and given["node"]:
            raise ValueError("pass one_node=True or node_column=, not both")
        for role in ("time", "node", "arrivals"):
            if given[role] is None and not (self.one_node and role != "time"):
                given[role] = table.roles.get(role)
        return RequestedColumns(**given, one_node=self.one_node, combine=self.combine == "sum")


OPTIONS = tuple(option.name for option in fields(Options) if option.name != "names_given")


def _renamed(rename: str | Mapping[str, str] | None) -> dict[str, str]:
    """Return ``rename`` as role -> column."""
    if rename is None or not isinstance(rename, str):
        pairs = list((rename or {}).items())
    else:  # a comma is part of a column name unless a role follows
        parts = re.split(rf",\s*(?=(?:{'|'.join(ROLES)})=)", rename)
        pairs = [(role.strip(), column) for role, _, column in (p.partition("=") for p in parts)]
    for role, column in pairs:
        if role not in ROLES or not column:
            raise ValueError(
                f"rename={rename!r} must be role=column, separated by commas; roles are "
                f"{', '.join(ROLES)}"
            )
    return dict(pairs)


def _import(
    tables: Sequence[Table],
    labels: Sequence[str],
    notes: list[str],
    guesses: list[Guess],
    options: Options,
) -> Imported:
    """Return the trace of all tables. ``labels`` name the nodes of tables that name none."""
    all_rows = tables
    tables = [shaped(table, options.where, options.named(), notes) for table in tables]
    requested = options.requested_columns(tables[0])
    taken = [time_columns(table, requested, options.time_format) for table in tables]
    hours = [
        column_of(table, names[1], "time_column")
        for table, names in zip(all_rows, taken, strict=True)
        if len(names) > 1 and options.time_format is None
    ]
    first_of_day = first_hour(tables[-1], hours)
    sheets = [
        _sheet(
            table, label, options, requested, names, first_of_day, notes, guesses if at == 0 else []
        )
        for at, (table, label, names) in enumerate(zip(tables, labels, taken, strict=True))
    ]
    first = sheets[0]
    is_named = first.kind in ("long", "wide") or options.names_given
    single_unnamed = first.nodes == [labels[0]] and not is_named
    if len(labels) > 1 and single_unnamed:
        raise fault_error(
            first.table.path,
            f"the rows of several files name no node. Pass names={','.join(labels)} for one node "
            f"per file, or names={','.join([labels[0]] * len(labels))} to join the files",
        )
    for sheet in sheets:
        if (sheet.kind, sheet.clock, sheet.unit.seconds) != (
            *(first.kind, first.clock),
            first.unit.seconds,
        ):
            raise fault_error(
                sheet.table.path,
                f"layout, kind of times or unit differs from {first.table.path.name}; import the "
                "files separately",
            )
    grid = grids.merge(sheets, first.clock, step=options.snap, notes=notes)
    if options.counter and first.kind != "log":
        if grid.capacity is not None:
            raise ValueError("counter= does not apply to capacities; pass the capacity of a node")
        grid = of_counters(grid, options.gaps, notes)
        guesses.append(Guess("counter", "requests are the growth per step", "counter=False"))
    elif options.counter is None and first.kind != "log":
        check_counters(grid)
    guesses.append(Guess("nodes", _listed(grid.nodes), "names=NAME" if single_unnamed else ""))
    guesses.append(Guess("step", grids.step_text(grid), grids.other_step(grid)))
    absences: list[str] = []
    if first.kind == "log":
        guesses.append(Guess("unit", "each row is one request; steps without rows count 0"))
        grid = grids.fill(grid, "zero", grids.find_holes(grid), [])
        notes.append("the first and the last step may be incomplete")
    else:
        _check_sums(grid, sheets, options, notes)
        absences = grids.absences(grid)
        grid = _loads(grid, first, options, notes, guesses)
    for node in grid.nodes:
        if (rule := name_rule(node)) is not None:
            raise fault_error(tables[0].path, f"node {node!r}: {rule}")
    title = options.name or "+".join(trace_name(table.path) for table in tables)
    trace = grids.finish(grid, None if first.kind == "log" else options.step, title, notes)
    if options.capacity is not None and requested.capacity is None:
        trace = set_capacities(trace, options.capacity, guesses, notes)
        if options.gaps == "zero":
            notes += absences
    if trace.capacity is None:
        guesses.append(Guess("capacity", "none in the file", "capacity=a=N,b=N"))
    return Imported(trace, tuple(notes), tuple(guesses))


def _sheet(
    table: Table,
    label: str,
    options: Options,
    requested: RequestedColumns,
    taken: list[str],
    first_of_day: int,
    notes: list[str],
    guesses: list[Guess],
) -> Sheet:
    """Return the loads of one table, and add the guesses about its columns.

    ``taken`` are the columns of the time. Hour ``first_of_day`` begins at midnight.
    """
    column = column_of(table, "+".join(taken), "time_column")
    time_format = options.time_format or table.roles.get("time_format")
    if len(taken) > 1 and time_format is None:
        texts, column = column, with_clock(table, column, first_of_day, notes)
        if column is not texts and requested.time is None:
            notes.append(f"{table.path.name}: columns {' and '.join(taken)} were read as one time")
    times = times_of(
        table,
        column,
        order=options.date_order,
        time_format=time_format,
        unit=options.time_unit,
        epoch=None if options.epoch is None else parse_epoch(options.epoch),
    )
    change = choose("time_column", [column.name])
    if options.time_unit is not None and options.epoch is None:
        change += " or epoch=2026-01-05T00:00Z"
    guesses.append(Guess("time", f"{column.name}: {times.style}", change))
    if "1970" in times.style and options.time_unit is None:
        check_numbers(table, column, times, is_log=False)
    if not times.is_plain:
        check_gap(np.sort(times.seconds), str(table.path))
    zone_column = requested.zone
    if zone_column is None and options.zone is None:
        zone_column = find_zone_column(table, taken, bool(times.zoned.all()))
    roles = find_roles(
        table, [*taken, zone_column] if zone_column else taken, times.seconds, requested
    )
    if options.capacity is not None and requested.capacity is None:
        roles.capacity = {}
    _add_column_guesses(guesses, table, roles, [*taken, zone_column] if zone_column else taken)
    if times.is_plain and options.time_unit is None:
        check_numbers(table, column, times, is_log=roles.kind == "log")
    zone = None if options.zone is None else zones_by_node(options.zone)
    add_zone_guess(guesses, table, times, zone, zone_column)
    utc = utc_of(table, times, roles, zone, zone_column, notes)
    if times.cut:
        notes.append(f"{table.path.name}: times were truncated to whole seconds")
    if options.names_given and (roles.nodes or roles.kind == "wide"):
        raise ValueError(
            "names= is for files without node names, but this file has them; omit names="
        )
    if roles.kind == "log":
        if options.scale is not None:
            raise ValueError("scale= does not apply if each row is one request; omit it")
        sheet = count_rows(table, roles, utc, label, options.step or 60)
        sheet.clock = "integer" if times.is_plain else "utc"
        return regroup(sheet, options.node_pattern, options.combine, notes)
    decimal = guess_decimal(
        table, [*roles.arrivals.values(), *roles.capacity.values()], options.decimal
    )
    if decimal == ",":
        guesses.append(Guess("decimals", "1,5 is one and a half", "decimal='.'"))
    sheet = make_sheet(table, roles, utc, label, decimal, options.combine, notes)
    sheet.clock = "integer" if times.is_plain else "utc"
    sheet.may_be_local = sheet.clock == "utc" and not (times.zoned.any() or zone or zone_column)
    return regroup(sheet, options.node_pattern, options.combine, notes)


def _check_sums(grid: Grid, sheets: Sequence[Sheet], options: Options, notes: list[str]) -> None:
    """Refuse a node with the sum of all others, if an option can exclude it.

    A caller who names the columns includes it. In all other cases, add a note.
    """
    node, first = grids.node_of_sums(grid), sheets[0]
    if node is None:
        return
    rule = f"node {node!r} has the sum of all other nodes"
    renamed = _renamed(options.rename)
    has_arrivals = options.arrivals is not None or "arrivals" in renamed
    has_node = options.node_column is not None or "node" in renamed
    is_wide = first.kind == "wide"
    is_named = has_arrivals and (has_node or is_wide)
    is_separable = first.kind != "series" and options.node_pattern is None
    is_separable &= all({*sheet.nodes} == {*grid.nodes} for sheet in sheets)
    names = list(first.columns.values())
    if is_named or not is_separable or (is_wide and re.search("[,*]", "".join(names))):
        notes.append(rule)
        return
    if not is_wide:
        where = quoted(f"{first.node_column}!={node}")
        both = choose("node_column", [first.node_column]) + " and " + choose("arrivals", names)
        raise fault_error(
            first.table.path, f"{rule}. Exclude it: pass where={where}. To include it, pass {both}"
        )
    rest = [column for name, column in first.columns.items() if name != node]
    choices = choose("arrivals", [",".join(rest), ",".join(names)])
    if len(names) > MAX_LISTED:
        choices = "arrivals=, the names of the columns to read, separated by commas"
    raise fault_error(first.table.path, f"{rule}. Exclude or include it: pass {choices}")


def _loads(
    grid: Grid, sheet: Sheet, options: Options, notes: list[str], guesses: list[Guess]
) -> Grid:
    """Return the loads in requests per step, with all holes filled."""
    factor = grids.factor(grid, sheet.unit, options.scale, guesses)
    grid = grids.scaled(grid, factor, _capacity_factor(grid, sheet, options, factor, guesses))
    notes += [
        f"cells such as {short!r} are abbreviated, not exact" for short in sheet.abbreviated[:1]
    ]
    holes = grids.find_holes(grid)
    for line in grids.describe_holes(grid, holes) or ["none"]:
        guesses.append(Guess("gaps", line))
    missing_hour = any((hole.high - hole.low) * grid.step == 3600 for hole in holes)
    hint = ""
    if missing_hour and sheet.may_be_local:
        hint = "; if daylight saving time began here, pass the time zone, such as zone=Europe/Rome"
    return grids.fill(grid, options.gaps, holes, notes, hint)


def _capacity_factor(
    grid: Grid, sheet: Sheet, options: Options, factor: float, guesses: list[Guess]
) -> float:
    """Return the factor of the capacity columns. Add a guess if the table has such columns."""
    unit = sheet.capacity_unit
    if options.scale is None and unit.seconds is not None:
        factor = grid.step / unit.seconds
        word = grids.PERIODS[unit.seconds]
        text = f"requests per {word}, from {unit.source}; multiplied by {factor:g}"
    else:
        text = f"multiplied by {factor:g}, like the requests" if factor != 1 else ""
    if grid.capacity is not None and text:
        guesses.append(Guess("capacity", text))
    return factor


# --- Guesses about columns -----------------------------------------------------------------------

KINDS = {
    "wide": "wide: a column per node",
    "long": "long: a row per node and time",
    "series": "a series: one node",
    "log": "a request log: a row per request",
}


def _add_column_guesses(
    guesses: list[Guess], table: Table, roles: Roles, taken: Sequence[str]
) -> None:
    """Add a guess about the role of each column, with the option that selects it."""
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
    for (role, columns_of_node), pattern in zip(columns.items(), roles.patterns, strict=True):
        if columns_of_node:
            names = list(dict.fromkeys(columns_of_node.values()))
            text = pattern or ",".join(names)
            text = text if len(text) < 200 else "a,b,..."
            guesses.append(Guess(role, _listed(names), choose(role, [text])))
    used = {*taken, *roles.arrivals.values(), *roles.capacity.values(), *roles.nodes}
    used |= {part for node in roles.nodes for part in node.split("+")}
    unused = [name for name in table.columns if name not in used]
    if unused:
        guesses.append(Guess("unused", _listed(unused)))


def _listed(names: Any) -> str:
    names = [str(name) for name in names]
    head = ", ".join(names[:6]) + (f", ... {names[-1]}" if len(names) > 6 else "")
    return f"{len(names)}: {head}" if len(names) > 1 else head
