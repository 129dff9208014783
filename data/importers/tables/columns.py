"""Find the columns of a table by name, and derive node names from column names."""

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
    """Return the alternatives as text: "a='x' or a='y'"."""
    return " or ".join(f"{argument}={quoted(name)}" for name in names)


def quoted(name: str) -> str:
    return name if re.fullmatch(r"[\w.+:-]+", name) else "'" + name + "'"


def find_columns(table: Table, pattern: str, argument: str) -> dict[str, str]:
    """Return node -> column for a column name, names separated by commas, or patterns with stars.

    The node is the text that the stars match. Without stars, it is the part in which the names
    differ. Raises TraceError if a name or pattern matches no column.
    """
    names = list(table.columns)
    if pattern in table.columns:
        return {pattern: pattern}
    columns_of_node: dict[str, str] = {}
    plain: list[str] = []
    for part in [pattern] if "*" in pattern and "," not in pattern else pattern.split(","):
        part = part.strip()
        if "*" not in part:
            plain.append(column_of(table, part, argument).name)
            continue
        regex = re.compile(re.escape(part).replace(r"\*", "(.*)"))
        matches = {"/".join(m.groups()): name for name in names if (m := regex.fullmatch(name))}
        if not matches:
            stop(table, f"{argument}={quoted(part)} matches no column; columns are {listed(names)}")
        stripped = {node.strip(): name for node, name in matches.items()}
        columns_of_node |= stripped if len(stripped) == len(matches) else matches
    return columns_of_node | dict(zip(short_names(plain), plain, strict=True))


def column_of(table: Table, name: str, argument: str) -> Column:
    """Return a column, or several joined as "day+clock". Raises TraceError for a missing column."""
    if name in table.columns:
        return table.columns[name]
    parts = [part.strip() for part in name.split("+")]
    missing = [part for part in parts if part not in table.columns]
    if missing:
        similar = difflib.get_close_matches(missing[0], table.columns, n=1)
        hint = (
            f"; did you mean {similar[0]!r}?"
            if similar
            else f"; columns are {listed(table.columns)}"
        )
        stop(table, f"{argument}={quoted(name)}: no column {missing[0]!r}{hint}")
    return joined(
        [table.columns[part] for part in parts], " " if argument == "time_column" else "/"
    )


def short_names(names: Sequence[str]) -> list[str]:
    """Return short column names: differing labels, such as a for {instance="a"}, without units."""
    bare = [re.sub(r"\s*[\[(][^\])]*[\])]$", "", name) for name in names]  # without a unit
    if len(set(bare)) == len(names) and all(map(per_seconds, names)) and all(bare):
        return bare
    labels = [dict(re.findall(r'([\w.]+)="?([^",}]*)"?', name)) for name in names]
    if len(names) < 2 or not all(labels) or len({tuple(sorted(label)) for label in labels}) > 1:
        return list(names)
    differing = [key for key in labels[0] if len({label[key] for label in labels}) > 1]
    short = ["/".join(label[key] for key in differing) for label in labels]
    return short if len(set(short)) == len(names) else list(names)


def listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:12]) + (f", ... ({len(names) - 12} more)" if len(names) > 12 else "")
