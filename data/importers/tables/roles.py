"""Assign a role to each column of a table: time, node, arrivals, capacity or zone.

Columns that the caller names take precedence. Otherwise column names and cells decide. A table with
several possible readings is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal
from zoneinfo import available_timezones

import numpy as np
import numpy.typing as npt
import pandas as pd

from corral.data.headers import TIME_WORDS, words_of
from corral.data.importers.tables.cells import Column, Table
from corral.data.importers.tables.columns import (
    choose,
    column_of,
    find_columns,
    listed,
    quoted,
    short_names,
    stop,
)
from corral.data.importers.tables.numbers import looks_numeric, parse_number, per_seconds
from corral.data.importers.tables.times import (
    PLAIN,
    has_format,
    is_clock,
    is_day,
    reader_of,
    style_of,
    without_midnight,
)
from corral.data.source import MAX_NODES
from corral.data.trace import Counts

__all__ = [
    "NODE",
    "RequestedColumns",
    "Roles",
    "find_roles",
    "find_zone_column",
    "same_groups",
    "time_columns",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


NODE = _words(
    "node nodes host hostname server instance pod backend upstream machine vm site region location "
    "edge cluster hpa deployment service app namespace knoten rechner standort series name target "
    "zone az container function serveur servidor nodo nœud hôte maquina máquina сервер узел хост "
    "主机 服务器 节点 サーバー ホスト"
)
ARRIVALS = _words(
    "arrivals requests request reqs req rps qps rpm hits invocations invoc calls anfragen aufrufe "
    "throughput requêtes requetes solicitudes peticiones richieste requisições verzoeken запросы "
    "请求数 リクエスト数"
)
WEAK_ARRIVALS = _words("load count counts value values rate total n num")
CAPACITY = _words("capacity cap limit kapazität kapazitaet quota")
CAPACITY_FAMILY = CAPACITY | {"max", "maximum", "avail"}
METRICS = _words(
    "latency duration ms cpu mem memory ram bytes error errors percent ratio status temperature "
    "p50 p90 p95 p99 avg replicas failed size tokens rt"
)
GAUGES = _words("cpu mem memory ram percent ratio temperature replicas p50 p90 p95 p99 avg")
"""Measures that a row of a request log does not have."""
HOURS = _words("hour stunde heure hora ora uur час 小时 時")
CALENDAR = HOURS | _words("day month year weekday week minute second dow doy")
MINUTES = _words("minute minuten minuto minuut минута 分钟 分")
_ID = re.compile(
    r"(?:.*[^a-z])?(?:(?:trace|span|rpc|request|instance|user|session|job|task|client|thread)?ids?"
    r"|uuid|guid|index|idx|row|rownum|pid|seq|column \d+|unnamed: \d+)"
)
DETAILS = _words(
    "method verb path url uri endpoint query referer protocol scheme agent level message msg type "
    "status code client ip user"
)
"""Texts of a request that name no node."""
QUANTITIES = _words(
    "metric metrics field measurement quantity kpi aggregation statistic stat rollup"
)
SUMS = _words("total sum all gesamt summe insgesamt")

MIN_SHARE_OF_PAIRS = 0.2
"""Minimum share of (time, node) pairs with a row, in a long table."""


MIN_SHARE_OF_GRID = 0.5
"""The same for a table without a column that looks like requests, which may be a log."""

MIN_CONSTANT_ROWS = 10
"""Minimum number of rows with the same value of a column, for the column to be no load."""


def is_id(name: str) -> bool:
    """Return True for the name of a column of ids or row numbers, or a column without a name."""
    return _ID.fullmatch(re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name).lower()) is not None


def is_no_load(name: str) -> bool:
    """Return True if a column name is of ids, dates, or of measures other than requests."""
    words = words_of(name)
    is_measure = bool(words & METRICS)
    if words & ARRIVALS:  # avg:request_per_s is a load, request_ms is not
        is_rate = per_seconds(name) is not None or words & (ARRIVALS - {"request"})
        is_measure = bool(words & (METRICS - {"avg"})) and not is_rate
    return is_measure or "%" in name or is_id(name) or name.lower() in CALENDAR


@dataclass(frozen=True)
class RequestedColumns:
    """The columns that the caller named. A name may be a pattern with stars, or several names."""

    time: str | None = None
    node: str | None = None
    one_node: bool = False
    arrivals: str | None = None
    capacity: str | None = None  # columns, never a number
    zone: str | None = None
    combine: bool = False  # rows of one node and time are summed


@dataclass
class Roles:
    """Columns by role. ``arrivals`` and ``capacity`` map node -> column.

    The only key is "" in a long table or a series.
    """

    kind: Literal["wide", "long", "series", "log"]
    nodes: list[str] = field(default_factory=list)
    arrivals: dict[str, str] = field(default_factory=dict)
    capacity: dict[str, str] = field(default_factory=dict)
    patterns: tuple[str, str] = ("", "")  # of arrivals and capacity; "" without a pattern


# --- The time ------------------------------------------------------------------------------------


def time_columns(
    table: Table, requested: RequestedColumns, time_format: str | None = None
) -> list[str]:
    """Return the time column, or the date column and the time-of-day column."""
    if any(style_of([name]) not in (None, *PLAIN) for name in table.columns):
        row = ", ".join(table.columns)[:60]
        stop(
            table,
            f"missing header; the first row holds data: {row}. Add column names above it, or pass "
            "columns=, a name for each column; for a log, format= or pattern=",
        )
    if requested.time is not None:
        column_of(table, requested.time, "time_column")
        return [requested.time] if requested.time in table.columns else requested.time.split("+")
    taken = {requested.node, requested.arrivals, requested.capacity, requested.zone}
    styles = {
        name: style
        for name, column in table.columns.items()
        if name not in taken and (style := style_of(column.sample()))
    }
    if time_format is not None:
        formed = [n for n, c in table.columns.items() if has_format(c.sample(), time_format)]
        if len(formed) == 1:
            return formed
    clocks = [n for n, c in table.columns.items() if c.sample() and all(map(is_clock, c.sample()))]
    named = [name for name in styles if words_of(name) & TIME_WORDS]
    proper = [n for n in styles if "1970" not in styles[n] and styles[n] not in PLAIN]
    cells = table.columns[proper[0]].sample() if len(proper) == 1 else []
    is_dated = bool(cells) and all(is_day(without_midnight(cell)) for cell in cells)
    is_bare = is_dated and all(map(is_day, cells))  # midnights may be complete times
    if is_dated and len(clocks) == 1:
        parts = [proper[0], *clocks]
        if is_bare or _is_split(table, parts, requested.node):
            return parts
    hours, minutes = _parts(table, HOURS | {"hr"}, 24), _parts(table, MINUTES, 59)
    if is_dated and len(hours) == 1 and len(minutes) < 2:
        parts = [proper[0], *hours, *minutes]
        if _is_split(table, parts, requested.node):
            return parts
        if is_bare and words_of(hours[0]) & HOURS:
            stop(
                table,
                f"column {hours[0]!r} may be the hour of each row, or an hour of the day such as "
                f"the peak. Pass {choose('time_column', ['+'.join(parts), proper[0]])}",
            )
    first = next(iter(styles), None)
    epochs = [n for n in styles if "1970" in styles[n]]
    epochs = [n for n in epochs if n in named or n == first or n.endswith("[][0]")]
    groups = [
        [name for name in group if len(table.columns[name].sample()) > 1 or len(table) < 3]
        for group in (proper, epochs, named)
    ]
    if is_dated and not (groups[0] or groups[1]):
        if groups[2]:
            date, number = proper[0], groups[2][0]
            stop(
                table,
                f"all rows have the same {date!r}, and the numbers in {number!r} have no unit. For "
                f"hours, pass {choose('time_column', [f'{date}+{number}'])}. For another unit, "
                f"pass {choose('time_column', [number])}, time_unit=min or another unit, and "
                "epoch=YYYY-MM-DD, the date",
            )
        return proper
    times = next(filter(None, groups), [])
    exact = [name for name in times if name.lower().strip("@_") in TIME_WORDS]
    for candidates in (exact, *groups):
        if len(candidates) == 1:
            return candidates
        if candidates:
            stop(table, f"several columns hold times; pass {choose('time_column', candidates)}")
    texts = [
        n
        for n, c in table.columns.items()
        if not looks_numeric(c.sample()) and any(re.search("[0-9]", str(x)) for x in c.sample())
    ]
    texts.sort(key=lambda name: not words_of(name) & TIME_WORDS)
    texts = [name for name in styles if "1970" in styles[name]] or texts
    first_row = "; ".join(f"{n}: {c.cells[0]}" for n, c in list(table.columns.items())[:6])
    name = (texts or list(table.columns))[0]
    stop(
        table,
        f"no column holds times; the first row is {first_row}. Pass the time column, such as "
        f"{choose('time_column', [name])}, with time_format= for an unusual format or time_unit= "
        "for numbers; or time_column=row if the rows are the steps in order",
    )


def _is_split(table: Table, parts: Sequence[str], node: str | None) -> bool:
    """Return True if rows of one date and node differ in the time of day.

    ``parts`` are the columns of the date and the time of day. A table with one row per date and
    node may have the hour of a peak.
    """
    date, *clock = (table.columns[name] for name in parts)
    others = {name: c for name, c in table.columns.items() if name not in parts}
    nodes = [c for name, c in others.items() if name == node or words_of(name) & NODE]
    nodes += [
        column
        for column in others.values()
        if 2 * len(column.cells) <= len(table) and not looks_numeric(column.sample())
    ]
    return any(_num_pairs(date, part) > _distinct(date.codes) for part in clock) and not any(
        _num_pairs(date, column) == len(table) for column in nodes
    )


def _parts(table: Table, words: frozenset[str], largest: int) -> list[str]:
    """Return the columns named by one of ``words``, with whole numbers up to ``largest``."""
    return [
        name
        for name, column in table.columns.items()
        if len(words_of(name) - {"of", "day", "ending"}) == 1
        and words_of(name) & words
        and all(re.fullmatch(r"[0-9]{1,2}(\.0)?", str(cell)) for cell in column.cells)
        and max(float(cell) for cell in column.cells) <= largest
    ]


def find_zone_column(table: Table, taken: Sequence[str], zoned: bool) -> str | None:
    """Return the column that holds time zone names.

    Return None if all times state their zone, or if no column holds zone names.
    """
    if zoned:
        return None
    zone_names = available_timezones()
    for name, column in table.columns.items():
        cells = column.sample()
        if (
            name not in taken
            and cells
            and all(cell in zone_names and cell != name for cell in cells)
        ):
            return name
    return None


# --- Other roles ---------------------------------------------------------------------------------


def find_roles(
    table: Table, taken: Sequence[str], seconds: Counts, requested: RequestedColumns
) -> Roles:
    """Return the roles of all columns except ``taken``, the time and zone columns."""
    remaining = {name: column for name, column in table.columns.items() if name not in taken}
    numeric = [n for n, c in remaining.items() if c.sample() and looks_numeric(c.sample())]
    texts = [n for n, c in remaining.items() if c.sample() and n not in numeric]
    if requested.arrivals == "rows" and "rows" not in table.columns:
        return Roles("log", [requested.node] if requested.node else [])
    _check_quantities(table, texts, requested)
    if requested.arrivals is not None:
        columns = find_columns(table, requested.arrivals, "arrivals")
        if len(columns) > 1 or "*" in requested.arrivals:
            capacity = _capacity_of(table, requested, columns)
            return Roles(
                "wide", [], columns, capacity, (requested.arrivals, requested.capacity or "")
            )
        numeric = list(columns.values())
    if requested.capacity is not None and "*" not in requested.capacity:
        numeric = [
            n for n in numeric if n not in find_columns(table, requested.capacity, "capacity")
        ]
    if requested.one_node:
        return Roles("log")
    nodes = [requested.node] if requested.node else []
    loads = numeric
    if requested.arrivals is None:
        if numeric and all(map(is_no_load, numeric)):
            return _without_loads(table, seconds, texts, numeric, remaining, requested)
        loads = [n for n in numeric if not (is_id(n) or _is_time(table.columns[n], seconds))]
    if nodes and (num_nodes := len(column_of(table, nodes[0], "node_column").cells)) > MAX_NODES:
        stop(
            table,
            f"column {nodes[0]!r} names {num_nodes:,} nodes, more than {MAX_NODES:,}. It may hold "
            "request ids; pass another node_column=",
        )
    even = requested.arrivals is not None or _is_even(seconds)
    if not nodes and even and loads:
        nodes = _node_columns(table, seconds, texts, numeric, requested)
    if nodes:
        key = column_of(table, nodes[0], "node_column")
        if requested.arrivals is None and not (even and loads and _unique(seconds, key)):
            if even and loads and words_of_all(loads) & (ARRIVALS | WEAK_ARRIVALS):
                return _long_roles(
                    table, nodes, loads, requested
                )  # repeated rows are reported later
            return Roles("log", nodes)
        return _long_roles(table, nodes, loads, requested)
    is_series = requested.arrivals is not None or requested.combine
    if even and loads and (is_series or _mostly_unique(seconds)):
        if requested.arrivals is not None:
            return Roles(
                "series", [], {"": loads[0]}, _single_capacity(table, requested, remaining)
            )
        return _wide_roles(table, loads, requested, remaining)
    loads = [name for name in loads if words_of(name) & ARRIVALS]
    if loads:
        stop(
            table,
            f"the times are unevenly spaced, but column {loads[0]!r} looks like request counts. "
            f"Pass {choose('arrivals', loads)} for counts, or one_node=True if each row is one "
            "request",
        )
    return _log_roles(table, remaining, requested)


def _without_loads(
    table: Table,
    seconds: Counts,
    texts: list[str],
    numeric: list[str],
    remaining: Mapping[str, Column],
    requested: RequestedColumns,
) -> Roles:
    """Return the roles of a table in which no name of a numeric column suggests requests.

    A row is a request if it has an id of its own, or if rows of one node share their times. A table
    of other measures is refused.
    """
    nodes = [requested.node] if requested.node else []
    groups = nodes
    is_even = _is_even(seconds)
    if is_even and not nodes:
        groups = _node_columns(table, seconds, texts, numeric, requested)
    if groups:
        key = column_of(table, groups[0], "node_column")
        is_table = is_even and _unique(seconds, key, MIN_SHARE_OF_GRID)
    else:
        is_table = is_even and _mostly_unique(seconds)
    has_ids = any(is_id(n) and len(c.cells) == len(table) > 2 for n, c in remaining.items())
    measures = [n for n in numeric if not (is_id(n) or n.lower() in CALENDAR)]
    is_log = has_ids or not is_table or not measures
    if is_log and not words_of_all(measures) & GAUGES:
        return Roles("log", nodes) if nodes else _log_roles(table, remaining, requested)
    stop(
        table,
        f"no column looks like requests: {listed(numeric)}. Pass {choose('arrivals', measures)} if "
        "one holds requests, or arrivals=rows if each row is one request",
    )


def _check_quantities(table: Table, texts: Sequence[str], requested: RequestedColumns) -> None:
    """Raise TraceError if a column says that the rows hold several quantities."""
    for name in texts:
        cells = table.columns[name].sample()
        used = {*(requested.node or "").split("+"), requested.arrivals}
        is_node = words_of(name.rpartition(".")[2]) & (NODE - {"name"})  # metric.instance
        if words_of(name) & QUANTITIES and not is_node and len(cells) > 1 and name not in used:
            choices = " or ".join(f"where={quoted(f'{name}={cell}')}" for cell in cells[:4])
            stop(
                table,
                f"column {name!r} names several quantities; choose one: pass {choices}. If it "
                f"names the nodes, pass {choose('node_column', [name])}",
            )


def _is_time(column: Column, seconds: Counts) -> bool:
    """Return True if a column of numbers begins at the time of the first row, within a day."""
    cell = column.cells[column.codes[0]]
    style = style_of([cell])
    parsed = reader_of(style, None)(cell) if style is not None and "1970" in style else None
    return parsed is not None and abs(parsed[0] - int(seconds[0])) <= 86_400


def words_of_all(names: Iterable[str]) -> set[str]:
    return set().union(*map(words_of, names))


def _mostly_unique(seconds: Counts) -> bool:
    return 2 * _distinct(seconds) > len(seconds)


def _is_even(seconds: Counts) -> bool:
    """Return True if most neighboring times are about equally far apart, unlike in a log."""
    distance = np.diff(np.sort(seconds))
    distance = distance[distance > 0]
    if len(distance) == 0:
        return len(seconds) > 1
    usual = np.median(distance)
    return bool((np.abs(distance - usual) <= 0.2 * usual).mean() >= 0.5)


def _unique(seconds: Counts, key: Column, share: float = MIN_SHARE_OF_PAIRS) -> bool:
    """Return True if few rows share time and node, and enough (time, node) pairs have a row."""
    if len(key.cells) > MAX_NODES:
        return False
    rank, times = pd.factorize(seconds)
    pairs = _distinct(rank * np.int64(len(key.cells)) + key.codes)
    num_pairs = len(times) * _distinct(key.codes)
    return pairs > 0.98 * len(seconds) and pairs >= share * num_pairs


def _distinct(values: npt.NDArray[np.integer[Any]]) -> int:
    """Return the number of distinct values. (``numpy.unique`` takes ten times as long.)"""
    ordered = np.sort(values)
    return int(np.count_nonzero(np.diff(ordered))) + 1


def _node_columns(
    table: Table,
    seconds: Counts,
    texts: list[str],
    numeric: list[str],
    requested: RequestedColumns,
) -> list[str]:
    """Return the column that distinguishes rows of the same time, or two columns joined by +.

    Return an empty list if no column does. Rows that are summed need no distinction: the only
    column with a name for nodes names them.
    """
    if _distinct(seconds) == len(seconds):
        return []
    columns = table.columns
    named = [n for n in texts + numeric if words_of(n) & NODE]
    other_texts = [name for name in texts if name not in named]
    for group in (named, other_texts):
        candidates = [name for name in group if _unique(seconds, columns[name])]
        candidates = [
            n
            for n in candidates
            if not any(
                same_groups(columns[n], columns[m]) for m in candidates[: candidates.index(n)]
            )
        ]
        if len(candidates) > 1:
            stop(
                table,
                f"several columns could name the node; pass {choose('node_column', candidates)}",
            )
        if candidates:
            return candidates
    if len(named) == 1 and requested.combine:
        return named
    pairs = [f"{a}+{b}" for a, b in combinations((named + other_texts)[:8], 2)]
    candidates = [pair for pair in pairs if _unique(seconds, column_of(table, pair, "node_column"))]
    if len(candidates) > 1:
        stop(
            table, f"several columns could name the node; pass {choose('node_column', candidates)}"
        )
    is_counted = words_of_all(numeric) & ARRIVALS and len(named) == 1
    if is_counted and not candidates:
        return named  # repeated rows are reported later
    if is_counted and named[0] in candidates[0].split("+"):
        stop(
            table,
            f"several rows have the same time and {named[0]}. Pass combine=sum to add them up, or "
            f"{choose('node_column', candidates)} for a node per pair",
        )
    return candidates


def same_groups(a: Column, b: Column) -> bool:
    """Return True if two columns group the rows in the same way."""
    return _num_pairs(a, b) == _distinct(a.codes) == _distinct(b.codes)


def _num_pairs(a: Column, b: Column) -> int:
    return _distinct(a.codes.astype(np.int64) * len(b.cells) + b.codes)


def _load_column(table: Table, numeric: list[str]) -> str:
    """Return the column that holds the requests. A constant one is refused if others vary."""
    varying = [name for name in numeric if len(table.columns[name].cells) > 1]
    varying = varying if varying and len(table) >= MIN_CONSTANT_ROWS else numeric
    candidates = varying
    for tier in (ARRIVALS, WEAK_ARRIVALS):
        exact = [name for name in numeric if name.lower() in tier]
        matches = exact if len(exact) == 1 else [name for name in numeric if words_of(name) & tier]
        if matches:
            candidates = matches if {*matches} & {*varying} else [*matches, *varying]
            break
    if len(candidates) != 1:
        stop(
            table,
            f"several columns could hold the requests; pass {choose('arrivals', candidates)}, or "
            "arrivals=rows if each row is one request",
        )
    return candidates[0]


def _single_capacity(
    table: Table, requested: RequestedColumns, names: Iterable[str]
) -> dict[str, str]:
    """Return the capacity column as {"": name}, or an empty dictionary without one."""
    if requested.capacity is not None:
        return {"": column_of(table, requested.capacity, "capacity").name}
    matches = [name for name in names if words_of(name) & CAPACITY]
    if len(matches) > 1:
        stop(table, f"several columns could hold the capacity; pass {choose('capacity', matches)}")
    return {"": matches[0]} if matches else {}


def _long_roles(
    table: Table, nodes: list[str], numeric: list[str], requested: RequestedColumns
) -> Roles:
    capacity = _single_capacity(table, requested, numeric)
    node_parts = nodes[0].split("+")
    candidates = [n for n in numeric if n not in capacity.values() and n not in node_parts]
    return Roles("long", nodes, {"": _load_column(table, candidates)}, capacity)


def _wide_roles(
    table: Table, numeric: list[str], requested: RequestedColumns, names: Iterable[str]
) -> Roles:
    """Return the roles of a table with one row per time: a column per node, or one series."""
    plain = [n for n in numeric if not (words_of(n) & (CAPACITY_FAMILY | METRICS) or is_no_load(n))]
    families = _families(numeric)
    words = {name: words_of(name) for name in families}
    known_words = CAPACITY_FAMILY | METRICS | ARRIVALS
    numbered = all(node.isdigit() for nodes in families.values() for node in nodes)
    if families and (not numbered or any(kind & known_words for kind in words.values())):
        capacity_families = [name for name in families if words[name] & CAPACITY_FAMILY]
        loads = [n for n in families if n not in capacity_families and not words[n] & METRICS]
        loads = [name for name in loads if words[name] & ARRIVALS] or loads
        if len(loads) == 1 and len(capacity_families) < 2:
            arrivals = families[loads[0]]
            with_capacity = RequestedColumns(
                capacity=requested.capacity or (capacity_families[0] if capacity_families else None)
            )
            capacity = _capacity_of(table, with_capacity, arrivals)
            return Roles("wide", [], arrivals, capacity, (loads[0], with_capacity.capacity or ""))
        choices = [*families, ",".join(numeric)]
        stop(
            table,
            "the columns hold several quantities. Pass the columns with requests: "
            f"{choose('arrivals', choices)}. Pass the columns with capacities as capacity=",
        )
    loads = [name for name in plain if words_of(name) & (ARRIVALS | WEAK_ARRIVALS)]
    if not plain or (len(plain) == 1 and loads):
        load = loads[0] if loads else _load_column(table, numeric)
        return Roles(
            "series", [], {"": load}, _single_capacity(table, requested, set(names) - {load})
        )
    sums = [name for name in plain if words_of(name) & SUMS]
    if sums:
        other_columns = ",".join(name for name in plain if name not in sums)
        stop(
            table,
            f"column {sums[0]!r} looks like the sum of other columns. Exclude or include it: pass "
            f"{choose('arrivals', [other_columns, ','.join(plain)])}",
        )
    constant = [name for name in plain if _is_constant(table.columns[name])]
    varying = [name for name in plain if name not in constant]
    if constant and varying and len(table) >= MIN_CONSTANT_ROWS:
        stop(
            table,
            f"column {constant[0]!r} has the same value in all rows. Exclude or include it: pass "
            f"{choose('arrivals', [','.join(varying), ','.join(plain)])}",
        )
    arrivals = dict(zip(short_names(plain), plain, strict=True))
    return Roles("wide", [], arrivals, _capacity_of(table, requested, arrivals))


def _is_constant(column: Column) -> bool:
    """Return True for the same number in all rows, other than 0."""
    number = parse_number(column.cells[0])
    return len(column.cells) == 1 and not (number and number[0] == 0)


def _families(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return pattern -> node -> column for column names with a common first or last part."""
    families: dict[str, dict[str, str]] = {}
    for regex, pattern in ((r"(.+?)([_.: -])(.+)", "{0}{1}*"), (r"(.+)([_.: -])(.+?)", "*{1}{2}")):
        groups: dict[str, dict[str, str]] = {}
        for name in names:
            if "{" not in name and (match := re.fullmatch(regex, name)):
                head, mark, tail = match.groups()
                node = tail if pattern.endswith("*") else head
                groups.setdefault(pattern.format(head, mark, tail), {})[node] = name
        groups = {key: nodes for key, nodes in groups.items() if len(nodes) > 1}
        node_sets = {frozenset(nodes) for nodes in groups.values()}
        if len(groups) > 1 and len(node_sets) < len(groups) and not families:
            families = groups
    return families


def _capacity_of(
    table: Table, requested: RequestedColumns, arrivals: Mapping[str, str]
) -> dict[str, str]:
    if requested.capacity is None:
        return {}
    columns = find_columns(table, requested.capacity, "capacity")
    if len(columns) == 1 and "*" not in requested.capacity:  # one column for all nodes
        return dict.fromkeys(arrivals, *columns.values())
    missing = [node for node in arrivals if node not in columns]
    if missing:
        stop(
            table,
            f"capacity={quoted(requested.capacity)} matches no column for {listed(missing)}; it "
            f"matches columns for {listed(columns)}. Every node needs a capacity",
        )
    return {node: columns[node] for node in arrivals}


def _log_roles(table: Table, remaining: Mapping[str, Column], requested: RequestedColumns) -> Roles:
    few = [name for name, c in remaining.items() if 1 < len(c.cells) <= len(table) / 2]
    named = [name for name in few if words_of(name) & NODE] or [
        name
        for name in few
        if not (words_of(name) & DETAILS or looks_numeric(remaining[name].sample()))
    ]
    if named:
        examples = "; ".join(f"{n}: {listed(map(str, remaining[n].cells[:4]))}" for n in named[:3])
        stop(
            table,
            f"each row looks like one request, and some columns could name the node ({examples}). "
            f"Pass {choose('node_column', named)}, or one_node=True to count all rows for one node",
        )
    return Roles("log")
