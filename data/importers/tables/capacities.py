"""What nodes can serve, where the table of loads does not say: per node, or from a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from corral.data.importers.binning import Guess
from corral.data.importers.tables.cells import Table, read_table
from corral.data.importers.tables.numbers import decimal_of, looks_numeric, parse_number
from corral.data.source import MAX_BYTES, MAX_CELLS, fault_error
from corral.data.trace import Trace

__all__ = ["columns_of_capacity", "told_capacities"]

Capacity = int | str | Mapping[str, int | str]

_LEVEL = re.compile(r"[0-9]+|[0-9.]+x")


def columns_of_capacity(table: Table, capacity: Capacity | None) -> str | None:
    """Return ``capacity`` where it names columns of the table, else None."""
    if not isinstance(capacity, str) or _LEVEL.fullmatch(capacity):
        return None
    if capacity in table.columns:
        return capacity
    if re.fullmatch(r"[0-9]*[.,][0-9]+", capacity):
        raise ValueError(
            f"capacity={capacity}: give whole requests per step (of a rate per second, times the "
            f"seconds of a step), or {capacity.replace(',', '.')}x of the mean load"
        )
    if "=" in capacity or (Path(capacity).is_file() and "*" not in capacity):
        return None
    return capacity


def told_capacities(
    trace: Trace, capacity: Capacity, guesses: list[Guess], notes: list[str]
) -> Trace:
    """Return ``with_capacities``; tell what they count, and note those that look like a rate."""
    trace = with_capacities(trace, capacity)
    assert trace.capacity is not None
    said = capacity if isinstance(capacity, int | str) else _joined(capacity)
    if re.fullmatch(r"[0-9.]+x", str(said)):
        guesses.append(Guess("capacity", f"{said} of the mean load", "capacity=N"))
        return trace
    one = isinstance(said, int) or said.isdigit()
    per = f"step of {trace.step} s" if trace.clock == "utc" else "step"
    found = f"{said}{'' if one else ','} requests per {per}, as written"
    guesses.append(Guess("capacity", found, "capacity=1.25x"))
    roof, mean = trace.capacity[0], trace.arrivals.mean(axis=0)
    low = np.flatnonzero((roof > 0) & (roof < mean / 10))
    if len(low) and trace.clock == "utc":
        at = int(low[0])
        whole = int(roof[at]) * trace.step
        notes.append(
            f"capacity {roof[at]} of {trace.nodes[at]!r} is below a tenth of its mean load, "
            f"{mean[at]:,.0f} per step: is it per second? "
            + (f"capacity={whole}" if one else f"Then it is {whole}")
        )
    return trace


def _joined(capacity: Mapping[str, int | str]) -> str:
    return ",".join(f"{node}={level}" for node, level in capacity.items())


def with_capacities(trace: Trace, capacity: Capacity) -> Trace:
    """Return the same load with the capacity of each node.

    ``capacity`` is what ``Trace.with_capacity`` takes; one of these for each node, as a mapping or
    a text such as ``a=100,b=1.25x``; or the path of a file of ``node,capacity`` rows. Raises
    ValueError where a node is missing, or one is named that the trace has not.
    """
    if isinstance(capacity, int) or (isinstance(capacity, str) and _LEVEL.fullmatch(capacity)):
        return trace.with_capacity(_level(capacity))
    if isinstance(capacity, str):
        levels = _of_text(capacity) if "=" in capacity else _of_file(Path(capacity))
    else:
        levels = {str(node): level for node, level in capacity.items()}
    lacking = [node for node in trace.nodes if node not in levels]
    unknown = [node for node in levels if node not in trace.nodes]
    if lacking or unknown:
        what = f"none for {lacking[0]!r}" if lacking else f"no node is called {unknown[0]!r}"
        raise ValueError(f"capacity: {what}; the nodes are {', '.join(trace.nodes[:12])}")
    columns = []
    for at, node in enumerate(trace.nodes):
        whole = trace.with_capacity(_level(levels[node])).capacity
        assert whole is not None
        columns.append(whole[:, at])
    return replace(trace, capacity=np.stack(columns, axis=1))


def _level(text: int | str) -> int | str:
    return int(text) if isinstance(text, str) and text.isdigit() else text


def _of_text(text: str) -> dict[str, int | str]:
    pairs = [part.rpartition("=") for part in text.split(",")]
    return {node.strip(): level.strip() for node, _, level in pairs}


def _of_file(path: Path) -> dict[str, int | str]:
    """Return node -> capacity of a file's first two columns."""
    table = read_table(path, [], max_bytes=MAX_BYTES, max_cells=MAX_CELLS, has_times=False)
    if len(table.columns) < 2:
        raise fault_error(path, "a file of capacities has two columns, node and capacity")
    nodes, levels = list(table.columns.values())[:2]
    mark = decimal_of(levels.cells, table.delimiter) or "."
    if not looks_numeric(levels.sample()):
        rule = "its second column holds no numbers: no file of capacities; nothing of it is quoted"
        raise fault_error(path, rule)
    found: dict[str, int | str] = {}
    for row, (node, level) in enumerate(zip(nodes.codes, levels.codes, strict=True)):
        number = parse_number(levels.cells[level], mark)
        if number is None or number[1] or number[0] < 0 or number[0] != int(number[0]):
            table.fault(
                "not a whole number of requests per step", row, levels.name, levels.cells[level]
            )
            continue
        name = str(nodes.cells[node])
        if found.setdefault(name, int(number[0])) != int(number[0]):
            table.fault("this node has another capacity further up", row, nodes.name, name)
    return found
