"""Set the capacities of nodes if the table of loads has none: by number, per node, or by file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from corral.data.importers.binning import Guess
from corral.data.importers.tables.cells import Table, read_table
from corral.data.importers.tables.numbers import decimal_of, looks_numeric, parse_number
from corral.data.source import MAX_BYTES, MAX_CELLS, MAX_NODES, chunks, fault_error
from corral.data.trace import Trace

__all__ = ["columns_of_capacity", "set_capacities"]

Capacity = int | str | Mapping[str, int | str]

FORMS = (
    "give whole requests per step, such as 1100; 1.25x, a multiple of each node's mean load; "
    "or one value per node, such as a=100,b=80. Multiply a rate per second by the seconds of a step"
)
"""Accepted forms of a capacity."""

MAX_ROWS = 10 * MAX_NODES
"""Maximum number of rows of a capacity file, one for each node. A larger file is another file, and
is refused before its rows are parsed."""

_LEVEL = re.compile(r"[0-9]+|[0-9.]+x")


def columns_of_capacity(table: Table, capacity: Capacity | None) -> str | None:
    """Return ``capacity`` if it names columns of the table, else None."""
    if not isinstance(capacity, str) or _LEVEL.fullmatch(capacity):
        return None
    if capacity in table.columns:
        return capacity
    if re.fullmatch(r"[0-9]+,[0-9]+x|[0-9.,]+ *(/|per|r|req).*", capacity):
        raise ValueError(f"capacity {capacity!r}: {FORMS}")
    if re.fullmatch(r"[0-9]*[.,][0-9]+", capacity):
        raise ValueError(
            f"capacity={capacity} is not a whole number: give whole requests per step, or a "
            f"multiple of each node's mean load such as {capacity.replace(',', '.')}x. Multiply a "
            "rate per second by the seconds of a step"
        )
    if "=" in capacity or (Path(capacity).is_file() and "*" not in capacity):
        return None
    return capacity


def set_capacities(
    trace: Trace, capacity: Capacity, guesses: list[Guess], notes: list[str]
) -> Trace:
    """Return the trace with capacities. Add a guess about their unit.

    Add a note if a capacity looks like a rate per second.
    """
    trace = with_capacities(trace, capacity)
    assert trace.capacity is not None
    text = capacity if isinstance(capacity, int | str) else _joined(capacity)
    if re.fullmatch(r"[0-9.]+x", str(text)):
        placeholder = f"{text} of the mean load, a placeholder on which all losses depend"
        guesses.append(Guess("capacity", placeholder, "capacity=N"))
        return trace
    is_single = isinstance(text, int) or text.isdigit()
    per = f"step of {trace.step} s" if trace.clock == "utc" else "step"
    description = f"{text}{'' if is_single else ','} requests per {per}, as passed"
    guesses.append(Guess("capacity", description, "capacity=a=N,b=N"))
    limits, mean = trace.capacity[0], trace.arrivals.mean(axis=0)
    low = np.flatnonzero((limits > 0) & (limits < mean / 10))
    if len(low) and trace.clock == "utc":
        at = int(low[0])
        whole = int(limits[at]) * trace.step
        notes.append(
            f"capacity {limits[at]} of {trace.nodes[at]!r} is below a tenth of its mean load, "
            f"{mean[at]:,.0f} per step. If it is per second, "
            + (f"pass capacity={whole}" if is_single else f"pass {whole}")
        )
    return trace


def _joined(capacity: Mapping[str, int | str]) -> str:
    return ",".join(f"{node}={level}" for node, level in capacity.items())


def with_capacities(trace: Trace, capacity: Capacity) -> Trace:
    """Return the same load with the capacity of each node.

    ``capacity`` is a value for ``Trace.with_capacity``, or one value per node, as a mapping or a
    text such as ``a=100,b=1.25x``. It may also be the path of a file of ``node,capacity`` rows.
    Raises ValueError if a node is missing or unknown.
    """
    if isinstance(capacity, int) or (isinstance(capacity, str) and _LEVEL.fullmatch(capacity)):
        return trace.with_capacity(_level(capacity))
    if isinstance(capacity, str):
        levels = _of_text(capacity) if "=" in capacity else _of_file(Path(capacity))
    else:
        levels = {str(node): level for node, level in capacity.items()}
    missing = [node for node in trace.nodes if node not in levels]
    unknown = [node for node in levels if node not in trace.nodes]
    if missing or unknown:
        problems = [f"unknown node {', '.join(map(repr, unknown[:12]))}"] if unknown else []
        problems += [f"no value for {', '.join(map(repr, missing[:12]))}"] if missing else []
        raise ValueError(
            f"capacity: {'; '.join(problems)}; the nodes are {', '.join(trace.nodes[:12])}"
        )
    columns = []
    for at, node in enumerate(trace.nodes):
        whole = trace.with_capacity(_level(levels[node])).capacity
        assert whole is not None
        columns.append(whole[:, at])
    return replace(trace, capacity=np.stack(columns, axis=1))


def _level(text: int | str) -> int | str:
    if isinstance(text, str) and not _LEVEL.fullmatch(text):
        raise ValueError(f"capacity {text!r}: {FORMS}")
    return int(text) if isinstance(text, str) and text.isdigit() else text


def _of_text(text: str) -> dict[str, int | str]:
    pairs = [part.rpartition("=") for part in text.split(",")]
    return {node.strip(): level.strip() for node, _, level in pairs}


def _of_file(path: Path) -> dict[str, int | str]:
    """Return node -> capacity from the first two columns of a file."""
    if sum(piece.count(b"\n") for piece in chunks(path, max_bytes=MAX_BYTES)) > MAX_ROWS:
        rule = f"more than {MAX_ROWS:,} rows; a capacity file has a row for each node"
        raise fault_error(path, rule)
    table = read_table(path, [], max_bytes=MAX_BYTES, max_cells=MAX_CELLS, has_times=False)
    if len(table.columns) < 2:
        raise fault_error(path, "a capacity file must have two columns, node and capacity")
    nodes, levels = list(table.columns.values())[:2]
    if parse_number(levels.name, ".") is not None:
        rule = "the first line must be the header node,capacity; it would be lost as a header"
        raise fault_error(path, rule)
    mark = decimal_of(levels.cells, table.delimiter) or "."
    if not looks_numeric(levels.sample()):
        rule = "not a capacity file: the second column holds no numbers. Its content is not shown"
        raise fault_error(path, rule)
    capacity_of_node: dict[str, int | str] = {}
    for row, (node, level) in enumerate(zip(nodes.codes, levels.codes, strict=True)):
        number = parse_number(levels.cells[level], mark)
        if number is None or number[1] or number[0] < 0 or number[0] != int(number[0]):
            table.fault(
                "must be a whole number of requests per step", row, levels.name, levels.cells[level]
            )
            continue
        name = str(nodes.cells[node])
        if capacity_of_node.setdefault(name, int(number[0])) != int(number[0]):
            table.fault(
                "this node has a different capacity above; remove one row", row, nodes.name, name
            )
    return capacity_of_node
