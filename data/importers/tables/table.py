"""Import load traces from tables as other programs export them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from corral.data.fields import Clock, name_rule
from corral.data.importers.binning import (
    Gaps,
    Guess,
    Imported,
    Paths,
    check_step,
    counted,
    file_list,
    node_names,
)
from corral.data.importers.tables import grid as grids
from corral.data.importers.tables.capacities import columns_of_capacity, with_capacities
from corral.data.importers.tables.cells import DELIMITERS, Table, read_table
from corral.data.importers.tables.columns import column_of
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
    utc_of,
)
from corral.data.importers.tables.times import DateOrder, times_of
from corral.data.importers.tables.zones import zones_by_node
from corral.data.read import trace_name
from corral.data.source import MAX_BYTES, fault_error

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
    guesses: list[Guess] | None = None,
) -> Imported:
    """Import tables: a column per node, a row per node and time, one series, or a row per request.

    What is not said is found out, and told in ``guesses``; what cannot be found out is refused with
    the arguments that decide it. Columns that are not used are named.

    Columns: ``time_column`` (``day+clock`` where it stands in two), ``node_column`` (``a+b`` where
    it takes two), ``arrivals`` and ``capacity``, which for wide tables are names with commas or
    patterns such as ``invoc_*``: the star is the node. ``rename="time=timestamp,node=host"`` says
    the same, with ``zone=`` for a column of time zones. ``one_node``: rows are requests, of one
    node. ``names``: a node per file, where rows name none.

    Times: ``zone`` (``Z``, ``-04:00``, ``Europe/Rome``, or one for each node) is where clocks stand
    that name no zone, by default UTC. ``date_order`` (``dmy``, ``mdy``) reads 05/01/2026,
    ``time_format`` (as ``datetime.strptime``) anything else.

    Numbers: ``decimal`` (``.`` or ``,``); ``scale`` makes requests per step of what is written, 60
    of a rate per second in steps of a minute. Fractions are rounded so that each node keeps its
    total. ``capacity`` may also be requests per step, ``"1.25x"``, one of these for each node
    (``"a=100,b=80"``), or a file of ``node,capacity`` rows.

    Steps: ``step`` in seconds sums whole steps of the file; rows per request are counted into it
    (default 60). ``gaps``: ``refuse``, ``zero``, ``previous`` or ``interpolate``, see ``fill``.
    ``snap=60`` moves times to the nearest multiple of 60 s from the first.

    Raises TraceError for faults in the files and what only the caller can decide, ValueError for
    options out of range.
    """
    files = file_list(paths)
    notes: list[str] = []
    read = partial(
        read_table, notes=notes, delimiter=delimiter, encoding=encoding, max_bytes=max_bytes
    )
    tables = [read(path) for path in files]
    labels = None if len(files) > 1 and names is None else node_names(files, names)
    given = {key: value for key, value in locals().items() if key in OPTIONS}
    return _import(tables, labels, notes, [] if guesses is None else guesses, **given)


def trace_of_frame(frame: pd.DataFrame, *, name: str = "frame", **options: Any) -> Imported:
    """Import a DataFrame as ``import_table`` does a file; its index may hold the times."""
    from corral.data.importers.tables.frame import table_of

    unknown = [option for option in options if option not in OPTIONS]
    if unknown:
        raise ValueError(f"{unknown[0]}= is not known; there are {', '.join(OPTIONS)}")
    table = table_of(frame, name)
    return _import([table], [name], [], [], name=name, **options)


OPTIONS = (
    *("time_column", "node_column", "one_node", "arrivals", "capacity", "rename", "zone"),
    *("date_order", "time_format", "decimal", "scale", "step", "snap", "gaps", "name"),
)
"""The options that have a meaning beyond reading a file."""


def _import(
    tables: Sequence[Table],
    labels: Sequence[str] | None,
    notes: list[str],
    guesses: list[Guess],
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
    scale: float | None = None,
    step: int | None = None,
    snap: int | None = None,
    gaps: Gaps = "refuse",
    name: str | None = None,
) -> Imported:
    check_step(step)
    check_step(snap)
    _check(gaps=gaps, decimal=decimal, date_order=date_order, scale=scale)
    renamed = _renamed(rename)
    roof = columns_of_capacity(tables[0], renamed.pop("capacity", None) or capacity)
    given = {"time": time_column, "node": node_column, "arrivals": arrivals}
    for role, column in given.items():
        if column is not None and renamed.get(role, column) != column:
            raise ValueError(f"{role}: give one column, {column!r} or {renamed[role]!r}")
    chosen = {role: given.get(role) or renamed.get(role) for role in ("time", "node", "arrivals")}
    if one_node and chosen["node"]:
        raise ValueError("give one_node=True or node_column=, not both")
    asked = Asked(**chosen, one_node=one_node, capacity=roof, zone=renamed.get("zone"))
    where = zones_by_node(zone) if zone is not None else None

    sheets: list[Sheet] = []
    clocks: set[Clock] = set()
    for at, table in enumerate(tables):
        tell = guesses if at == 0 else []
        taken = time_columns(table, asked)
        times = times_of(
            table, column_of(table, "+".join(taken), "time_column"),
            order=date_order, time_format=time_format,
        )  # fmt: skip
        clocks.add("integer" if times.style == "whole numbers" else "utc")
        place = asked.zone or (None if zone else find_zone_column(table, taken, times.zoned.all()))
        if place is not None:
            taken = [*taken, place]
        roles = find_roles(table, taken, times.seconds, asked)
        _tell_columns(tell, table, roles, taken, times.style)
        _tell_zone(tell, table, times, where, place)
        utc = utc_of(table, times, roles, where, place, notes)
        if times.cut:
            notes.append(f"{table.path.name}: fractions of a second were cut off")
        if labels is None and not roles.nodes and roles.kind != "wide":
            raise fault_error(
                table.path,
                "several files, and rows that name no node: give names=a,b for a node per file (or "
                "names=a,a for parts of one)",
            )
        label = labels[at] if labels else ""
        if roles.kind == "log":
            sheet = count_rows(table, roles, utc, label, step or 60)
            guesses.append(Guess("unit", "each row is one request", "arrivals=COLUMN"))
        else:
            numbers = [*roles.arrivals.values(), *roles.capacity.values()]
            mark = guess_decimal(table, numbers, decimal)
            if mark == ",":
                guesses.append(Guess("decimals", "1,5 is one and a half", "decimal='.'"))
            sheet = make_sheet(table, roles, utc, label, mark)
        sheets.append(sheet)
    if len(clocks) > 1:
        raise fault_error(tables[1].path, "whole numbers as times here, dates in another file")

    grid = grids.merge(sheets, *clocks, step=snap, notes=notes)
    guesses.append(Guess("nodes", _listed(grid.nodes)))
    length = f" ({grids.length_of(grid.step)})" if grid.clock == "utc" and grid.step >= 60 else ""
    unit = " s" if grid.clock == "utc" else ""
    guesses.append(Guess("step", f"{grid.step}{unit}{length}", f"step={5 * grid.step}"))
    if roles.kind != "log":
        times_what = grids.factor(grid, sheets[0].unit, grid.arrivals, scale, guesses)
        other = sheets[0].capacity_unit
        roof_times = times_what if other.seconds is None else grid.step / other.seconds
        grid = grids.scaled(grid, times_what, roof_times if scale is None else scale)
        for sheet in sheets[1:]:
            if sheet.unit.seconds != sheets[0].unit.seconds:
                raise fault_error(sheet.table.path, "its unit is not that of the first file")
    holes = grids.find_holes(grid) if roles.kind != "log" else []
    for line in grids.tell_holes(grid, holes) or ["none"]:
        guesses.append(Guess("gaps", line))
    hint = ""
    unzoned = grid.clock == "utc" and zone is None and place is None and not times.zoned.any()
    if unzoned and any((hole.high - hole.low) * grid.step == 3600 for hole in holes):
        hint = " (an hour that is missing may be daylight saving: zone=Europe/Rome, say)"
    if roles.kind == "log":
        grid = grids.fill(grid, "zero", grids.find_holes(grid), [], "")
        notes.append("the first and the last step may be recorded in part only")
    else:
        grid = grids.fill(grid, gaps, holes, notes, hint)
    for node in grid.nodes:
        if (rule := name_rule(node)) is not None:
            raise fault_error(tables[0].path, f"node {node!r}: {rule}")
    title = name or "+".join(trace_name(table.path) for table in tables)
    trace = grids.finish(grid, None if roles.kind == "log" else step, title, notes)
    if capacity is not None and roof is None:
        trace = with_capacities(trace, capacity)
    if trace.capacity is None:
        guesses.append(Guess("capacity", "none in the file", "capacity=1.25x"))
    return Imported(trace, tuple(notes), tuple(guesses))


def _check(**options: Any) -> None:
    allowed: dict[str, tuple[Any, ...]] = {
        "gaps": ("refuse", "zero", "previous", "interpolate"),
        "decimal": (None, ".", ","),
        "date_order": (None, "dmy", "mdy"),
    }
    for key, values in allowed.items():
        if options[key] not in values:
            words = ", ".join(str(value) for value in values if value)
            raise ValueError(f"{key}={options[key]!r} must be one of {words}")
    scale = options["scale"]
    if scale is not None and not 0 < scale < float("inf"):
        raise ValueError(f"scale={scale!r} must be a number above 0")


def _renamed(rename: str | Mapping[str, str] | None) -> dict[str, str]:
    """Return role -> column of what ``rename`` says."""
    if rename is None:
        return {}
    if not isinstance(rename, str):
        pairs = list(rename.items())
    else:
        # A comma belongs to a name unless a role follows it.
        import re

        parts = re.split(rf",\s*(?=(?:{'|'.join(ROLES)})=)", rename)
        pairs = [(role.strip(), column) for role, _, column in (p.partition("=") for p in parts)]
    for role, column in pairs:
        if role not in ROLES or not column:
            raise ValueError(
                f"rename={rename!r}: give role=column with commas; roles are {', '.join(ROLES)}"
            )
    return dict(pairs)


# --- What was found ------------------------------------------------------------------------------

KINDS = {
    "wide": "wide: a column per node",
    "long": "long: a row per node and time",
    "series": "a series: one node",
    "log": "a request log: a row per request",
}


def _tell_columns(
    tell: list[Guess], table: Table, roles: Roles, taken: Sequence[str], style: str
) -> None:
    between = ""
    if table.delimiter is not None:
        between = f"; {DELIMITERS.get(table.delimiter, repr(table.delimiter))} between cells"
    tell.append(Guess("table", KINDS[roles.kind] + between, "" if not between else "delimiter=';'"))
    tell.append(Guess("time", f"{'+'.join(taken)}: {style}", "time_column=COLUMN"))
    if roles.nodes:
        tell.append(Guess("node", f"named by {roles.nodes[0]}", "node_column=COLUMN"))
    if roles.arrivals:
        example = "arrivals='a_*'" if roles.kind == "wide" else "arrivals=COLUMN"
        tell.append(Guess("arrivals", _listed(roles.arrivals.values()), example))
    if roles.capacity:
        example = "capacity='max_*'" if roles.kind == "wide" else "capacity=COLUMN"
        tell.append(Guess("capacity", _listed(dict.fromkeys(roles.capacity.values())), example))
    used = {*taken, *roles.arrivals.values(), *roles.capacity.values()}
    used |= {part for node in roles.nodes for part in [node, *node.split("+")]}
    unused = [name for name in table.columns if name not in used]
    if unused:
        tell.append(Guess("unused", f"{counted(len(unused), 'column')}: {_listed(unused)}"))


def _tell_zone(tell: list[Guess], table: Table, times: Any, where: Any, place: str | None) -> None:
    if times.style == "whole numbers":
        tell.append(Guess("zone", "none: plain numbers are no time of day"))
        return
    named, count = int(times.zoned.sum()), len(times.zoned)
    if named == count:
        tell.append(Guess("zone", "the times themselves say it"))
        return
    if place is not None:
        said = f"as column {place} says for each row"
    elif where is None:
        said = "none is named; taken as UTC"
        if named:
            raise fault_error(
                table.path,
                f"{named:,} of {count:,} times name their zone, the others do not: where are "
                "those? Give zone=Z, or zone=Europe/Rome",
            )
    else:
        said = where if isinstance(where, str) else ", ".join(f"{n}: {z}" for n, z in where.items())
    tell.append(Guess("zone", said, "zone=Europe/Rome" if where is None else "zone=Z"))


def _listed(names: Any) -> str:
    names = [str(each) for each in names]
    head = ", ".join(names[:6]) + (f", ... {names[-1]}" if len(names) > 6 else "")
    return f"{len(names)}: {head}" if len(names) > 1 else head
