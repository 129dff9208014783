"""What each column of a table is for: as asked, else by its name and cells; never by a coin."""

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
from corral.data.importers.tables.numbers import looks_numeric
from corral.data.importers.tables.times import is_clock, is_day, style_of
from corral.data.source import MAX_NODES
from corral.data.trace import Counts

__all__ = ["Asked", "Roles", "find_roles", "find_zone_column", "time_columns"]


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


NODE = _words(
    "node nodes host hostname server instance pod backend upstream machine vm site region location "
    "edge cluster hpa deployment service app namespace knoten rechner standort series name target "
    "zone az container function"
)
ARRIVALS = _words(
    "arrivals requests request reqs req rps qps rpm hits invocations invoc calls anfragen aufrufe "
    "throughput"
)
WEAKER = _words("load count value rate total n num")
CAPACITY = _words("capacity cap limit kapazität kapazitaet quota")
CAPACITY_FAMILY = CAPACITY | {"max", "maximum", "avail"}
METRICS = _words(
    "latency duration ms cpu mem memory ram bytes error errors percent ratio status temperature "
    "p50 p90 p95 p99 avg replicas failed size"
)
SUMS = _words("total sum all gesamt summe insgesamt")

FEW = 0.2
"""Least share of (time, node) pairs that have a row, in a long table."""


@dataclass(frozen=True)
class Asked:
    """The columns that the caller named; a name may be a pattern with stars, or several names."""

    time: str | None = None
    node: str | None = None
    one_node: bool = False
    arrivals: str | None = None
    capacity: str | None = None  # of columns
    zone: str | None = None


@dataclass
class Roles:
    """Columns by role. ``arrivals``, ``capacity``: node -> column; "" where rows name the node."""

    kind: Literal["wide", "long", "series", "log"]
    nodes: list[str] = field(default_factory=list)
    arrivals: dict[str, str] = field(default_factory=dict)
    capacity: dict[str, str] = field(default_factory=dict)
    patterns: tuple[str, str] = ("", "")  # of arrivals and capacity, where they fit a pattern


# --- The time ------------------------------------------------------------------------------------


def time_columns(table: Table, asked: Asked) -> list[str]:
    """Return the column of the time, or those of day and time of day."""
    if any(style_of([name]) not in (None, "whole numbers") for name in table.columns):
        row = ", ".join(table.columns)[:60]
        stop(table, f"names of columns are needed above the rows; the first row is {row}")
    if asked.time is not None:
        column_of(table, asked.time, "time_column")
        return [asked.time] if asked.time in table.columns else asked.time.split("+")
    taken = {asked.node, asked.arrivals, asked.capacity, asked.zone}
    styles = {
        name: style
        for name, column in table.columns.items()
        if name not in taken and (style := style_of(column.sample()))
    }
    clocks = [n for n, c in table.columns.items() if c.sample() and all(map(is_clock, c.sample()))]
    named = [name for name in styles if words_of(name) & TIME_WORDS]
    proper = [name for name in styles if "1970" not in styles[name] and styles[name][0] != "w"]
    if (
        len(proper) == 1
        and len(clocks) == 1
        and all(map(is_day, table.columns[proper[0]].sample()))
    ):
        return [proper[0], clocks[0]]
    epochs = [n for n in styles if "1970" in styles[n] and (n in named or n == next(iter(styles)))]
    exact = [name for name in proper or epochs or named if name.lower().strip("@_") in TIME_WORDS]
    for found in (exact, proper, epochs, named):
        if len(found) == 1:
            return found
        if found:
            stop(table, f"several columns hold times: give {choose('time_column', found)}")
    first = next(iter(table.columns))
    seen = "; ".join(f"{n}: {c.cells[0]}" for n, c in list(table.columns.items())[:6])
    stop(
        table,
        f"no column of times; the first row is {seen}. Give "
        f"{choose('time_column', [first])}, and time_format= where it is written otherwise",
    )


def find_zone_column(table: Table, taken: Sequence[str], zoned: bool) -> str | None:
    """Return the column whose cells are names of time zones; None where times need none."""
    if zoned:
        return None
    known = available_timezones()
    for name, column in table.columns.items():
        cells = column.sample()
        if name not in taken and cells and all(c in known and c != name for c in cells):
            return name
    return None


# --- The rest ------------------------------------------------------------------------------------


def find_roles(table: Table, taken: Sequence[str], seconds: Counts, asked: Asked) -> Roles:
    """Return what the columns are for, but those of the time, which are ``taken``."""
    rest = {name: column for name, column in table.columns.items() if name not in taken}
    numeric = [n for n, c in rest.items() if c.sample() and looks_numeric(c.sample())]
    texts = [n for n, c in rest.items() if c.sample() and n not in numeric]
    if asked.arrivals is not None:
        columns = find_columns(table, asked.arrivals, "arrivals")
        if len(columns) > 1 or "*" in asked.arrivals:
            roof = _capacity_of(table, asked, columns)
            return Roles("wide", [], columns, roof, (asked.arrivals, asked.capacity or ""))
        numeric = list(columns.values())
    if asked.capacity is not None and "*" not in asked.capacity:
        numeric = [n for n in numeric if n not in find_columns(table, asked.capacity, "capacity")]
    if asked.one_node:
        return Roles("log")
    nodes = [asked.node] if asked.node else []
    if nodes and (many := len(column_of(table, nodes[0], "node_column").cells)) > MAX_NODES:
        stop(table, f"{many:,} nodes, more than {MAX_NODES:,}: is this column an id?")
    even = asked.arrivals is not None or _is_even(seconds)
    if not nodes and even and numeric:
        nodes = _key(table, seconds, texts, numeric)
    if nodes:
        key = column_of(table, nodes[0], "node_column")
        if asked.arrivals is None and not (even and numeric and _unique(seconds, key)):
            if even and numeric and words_of_all(numeric) & (ARRIVALS | WEAKER):
                return _long(table, nodes, numeric, asked)  # whose repeated rows will be named
            return Roles("log", nodes)
        return _long(table, nodes, numeric, asked)
    if even and numeric and (_mostly_alone(seconds) or asked.arrivals):
        if asked.arrivals is not None:
            return Roles("series", [], {"": numeric[0]}, _single(table, asked, rest))
        return _across(table, numeric, asked, rest)
    loads = [name for name in numeric if words_of(name) & ARRIVALS]
    if loads:
        stop(
            table,
            f"times are uneven, yet {loads[0]!r} looks like a load: give "
            f"{choose('arrivals', loads)}, or one_node=True where each row is one request",
        )
    return _log(table, rest, asked)


def words_of_all(names: Iterable[str]) -> set[str]:
    return set().union(*map(words_of, names))


def _mostly_alone(seconds: Counts) -> bool:
    return 2 * _distinct(seconds) > len(seconds)


def _is_even(seconds: Counts) -> bool:
    """Tell whether most times follow each other at about one distance, as those of a log do not."""
    distance = np.diff(np.sort(seconds))
    distance = distance[distance > 0]
    if len(distance) == 0:
        return len(seconds) > 1
    usual = np.median(distance)
    return bool((np.abs(distance - usual) <= 0.2 * usual).mean() >= 0.5)


def _unique(seconds: Counts, key: Column) -> bool:
    """Tell whether few rows share time and node, and most of the pairs have one."""
    if len(key.cells) > MAX_NODES:
        return False
    rank, times = pd.factorize(seconds)
    pairs = _distinct(rank * np.int64(len(key.cells)) + key.codes)
    return pairs > 0.98 * len(seconds) and pairs >= FEW * len(times) * _distinct(key.codes)


def _distinct(values: npt.NDArray[np.integer[Any]]) -> int:
    """Return how many values differ. (NumPy's ``unique`` takes ten times as long.)"""
    ordered = np.sort(values)
    return int(np.count_nonzero(np.diff(ordered))) + 1


def _key(table: Table, seconds: Counts, texts: list[str], numeric: list[str]) -> list[str]:
    """Return the column that tells rows of one time apart, or several joined by +; else none."""
    if _distinct(seconds) == len(seconds):
        return []
    columns = table.columns
    named = [n for n in texts + numeric if words_of(n) & NODE]
    others = [name for name in texts if name not in named]
    for among in (named, others):
        fits = [name for name in among if _unique(seconds, columns[name])]
        fits = [
            n for n in fits if not any(_same(columns[n], columns[m]) for m in fits[: fits.index(n)])
        ]
        if len(fits) > 1:
            stop(table, f"several columns could name the node: give {choose('node_column', fits)}")
        if fits:
            return fits
    pairs = [f"{a}+{b}" for a, b in combinations((named + others)[:8], 2)]
    fits = [pair for pair in pairs if _unique(seconds, column_of(table, pair, "node_column"))]
    if len(fits) > 1:
        stop(table, f"a time has several rows; what names the node? {choose('node_column', fits)}")
    return fits


def _same(a: Column, b: Column) -> bool:
    """Tell whether two columns group the rows alike."""
    pairs = _distinct(a.codes.astype(np.int64) * len(b.cells) + b.codes)
    return pairs == _distinct(a.codes) == _distinct(b.codes)


def _pick(table: Table, numeric: list[str]) -> str:
    """Return the column of the load, where rows name the node."""
    for tier in (ARRIVALS, WEAKER):
        exact = [name for name in numeric if name.lower() in tier]
        found = exact if len(exact) == 1 else [name for name in numeric if words_of(name) & tier]
        if len(found) == 1:
            return found[0]
        if found:
            numeric = found
            break
    if len(numeric) != 1:
        stop(
            table,
            f"which column holds the requests? Give {choose('arrivals', numeric)}, or "
            "one_node=True where each row is one request",
        )
    return numeric[0]


def _single(table: Table, asked: Asked, names: Iterable[str]) -> dict[str, str]:
    """Return the column of the capacity, where there is one."""
    if asked.capacity is not None:
        return {"": column_of(table, asked.capacity, "capacity").name}
    found = [name for name in names if words_of(name) & CAPACITY]
    if len(found) > 1:
        stop(table, f"which column holds the capacity? Give {choose('capacity', found)}")
    return {"": found[0]} if found else {}


def _long(table: Table, nodes: list[str], numeric: list[str], asked: Asked) -> Roles:
    capacity = _single(table, asked, numeric)
    mine = nodes[0].split("+")
    free = [n for n in numeric if n not in capacity.values() and n not in mine]
    return Roles("long", nodes, {"": _pick(table, free)}, capacity)


def _across(table: Table, numeric: list[str], asked: Asked, rest: Iterable[str]) -> Roles:
    """Return the roles of a table with one row for each time: columns are nodes, or one series."""
    plain = [n for n in numeric if not words_of(n) & (CAPACITY_FAMILY | METRICS)]
    families = _families(numeric)
    kinds = {name: words_of(name) for name in families}
    known = CAPACITY_FAMILY | METRICS | ARRIVALS
    numbered = all(node.isdigit() for nodes in families.values() for node in nodes)
    if families and (not numbered or any(kind & known for kind in kinds.values())):
        roofs = [name for name in families if kinds[name] & CAPACITY_FAMILY]
        loads = [n for n in families if n not in roofs and not kinds[n] & METRICS]
        loads = [name for name in loads if kinds[name] & ARRIVALS] or loads
        if len(loads) == 1 and len(roofs) < 2:
            arrivals = families[loads[0]]
            asked_for = Asked(capacity=asked.capacity or (roofs[0] if roofs else None))
            roof = _capacity_of(table, asked_for, arrivals)
            return Roles("wide", [], arrivals, roof, (loads[0], asked_for.capacity or ""))
        choices = [*families, ",".join(numeric)]
        stop(
            table,
            "columns of several kinds; which are the requests of nodes? Give "
            f"{choose('arrivals', choices)}, and capacity= for what they can serve",
        )
    loads = [name for name in plain if words_of(name) & (ARRIVALS | WEAKER)]
    if not plain or (len(plain) == 1 and loads):
        load = loads[0] if loads else _pick(table, numeric)
        return Roles("series", [], {"": load}, _single(table, asked, set(rest) - {load}))
    sums = [name for name in plain if words_of(name) & SUMS]
    if sums:
        others = ",".join(name for name in plain if name not in sums)
        stop(
            table,
            f"column {sums[0]!r} looks like a sum of others: give "
            f"{choose('arrivals', [others, ','.join(plain)])}",
        )
    arrivals = dict(zip(short_names(plain), plain, strict=True))
    return Roles("wide", [], arrivals, _capacity_of(table, asked, arrivals))


def _families(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return pattern -> node -> column, for columns that are called alike but for a part."""
    found: dict[str, dict[str, str]] = {}
    for like, pattern in ((r"(.+?)([_.: -])(.+)", "{0}{1}*"), (r"(.+)([_.: -])(.+?)", "*{1}{2}")):
        groups: dict[str, dict[str, str]] = {}
        for name in names:
            if "{" not in name and (match := re.fullmatch(like, name)):
                head, mark, tail = match.groups()
                node = tail if pattern.endswith("*") else head
                groups.setdefault(pattern.format(head, mark, tail), {})[node] = name
        groups = {key: nodes for key, nodes in groups.items() if len(nodes) > 1}
        alike = {frozenset(nodes) for nodes in groups.values()}
        if len(groups) > 1 and len(alike) < len(groups) and not found:
            found = groups
    return found


def _capacity_of(table: Table, asked: Asked, arrivals: Mapping[str, str]) -> dict[str, str]:
    if asked.capacity is None:
        return {}
    found = find_columns(table, asked.capacity, "capacity")
    if len(found) == 1 and "*" not in asked.capacity:  # one column, of all nodes
        return dict.fromkeys(arrivals, *found.values())
    lacking = [node for node in arrivals if node not in found]
    if lacking:
        stop(
            table,
            f"capacity={quoted(asked.capacity)} has no column for {listed(lacking)}, only "
            f"for {listed(found)}",
        )
    return {node: found[node] for node in arrivals}


def _log(table: Table, rest: Mapping[str, Column], asked: Asked) -> Roles:
    named = [n for n in rest if words_of(n) & NODE and 1 < len(rest[n].cells) <= len(table) / 2]
    if named:
        several = "; ".join(f"{n}: {listed(map(str, rest[n].cells[:4]))}" for n in named[:3])
        stop(
            table,
            f"one row per request, and columns that could name a node ({several}): give "
            f"{choose('node_column', named)}, or one_node=True to count all rows as one node",
        )
    return Roles("log")
