"""Columns of a table by their names: as asked for, and what tells them apart."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

from corral.data.importers.tables.cells import Column, Table, joined
from corral.data.importers.tables.numbers import per_seconds
from corral.data.source import fault_error

__all__ = [
    "choose",
    "column_of",
    "find_columns",
    "listed",
    "quoted",
    "short_names",
    "stop",
]


def stop(table: Table, rule: str) -> NoReturn:
    raise fault_error(table.path, rule)


def choose(argument: str, names: Iterable[str]) -> str:
    """Return "a='x' or a='y'": what to give, for each choice."""
    return " or ".join(f"{argument}={quoted(name)}" for name in names)


def quoted(name: str) -> str:
    return name if re.fullmatch(r"[\w.+:-]+", name) else "'" + name + "'"


def find_columns(table: Table, pattern: str, argument: str) -> dict[str, str]:
    """Return node -> column for a column's name, names with commas, or patterns with stars.

    The node is what the stars stand for; without any, what tells the names apart. Raises TraceError
    where a name or pattern fits no column.
    """
    known = list(table.columns)
    if pattern in table.columns:
        return {pattern: pattern}
    found: dict[str, str] = {}
    plain: list[str] = []
    for part in [pattern] if "*" in pattern and "," not in pattern else pattern.split(","):
        part = part.strip()
        if "*" not in part:
            plain.append(column_of(table, part, argument).name)
            continue
        like = re.compile(re.escape(part).replace(r"\*", "(.*)"))
        fits = {"/".join(m.groups()): name for name in known if (m := like.fullmatch(name))}
        if not fits:
            stop(table, f"{argument}={quoted(part)} fits no column; there are {listed(known)}")
        bare = {node.strip(): name for node, name in fits.items()}
        found |= bare if len(bare) == len(fits) else fits
    return found | dict(zip(short_names(plain), plain, strict=True))


def column_of(table: Table, name: str, argument: str) -> Column:
    """Return a column, or several joined: "day+clock". Raises TraceError where there is none."""
    if name in table.columns:
        return table.columns[name]
    parts = [part.strip() for part in name.split("+")]
    missing = [part for part in parts if part not in table.columns]
    if missing:
        near = difflib.get_close_matches(missing[0], table.columns, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; there are {listed(table.columns)}"
        stop(table, f"{argument}={quoted(name)}: no column {missing[0]!r}{hint}")
    return joined(
        [table.columns[part] for part in parts], " " if argument == "time_column" else "/"
    )


def short_names(names: Sequence[str]) -> list[str]:
    """Return what tells names of columns apart: labels such as {instance="a"}, no units."""
    bare = [re.sub(r"\s*[\[(][^\])]*[\])]$", "", name) for name in names]  # without a unit
    if len(set(bare)) == len(names) and all(map(per_seconds, names)) and all(bare):
        return bare
    labels = [dict(re.findall(r'([\w.]+)="?([^",}]*)"?', name)) for name in names]
    if len(names) < 2 or not all(labels) or len({tuple(sorted(each)) for each in labels}) > 1:
        return list(names)
    telling = [key for key in labels[0] if len({each[key] for each in labels}) > 1]
    short = ["/".join(each[key] for key in telling) for each in labels]
    return short if len(set(short)) == len(names) else list(names)


def listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:12]) + (f", ... ({len(names) - 12} more)" if len(names) > 12 else "")
