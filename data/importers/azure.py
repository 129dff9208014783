"""Import the invocations of the Azure Functions trace of 2019."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from corral.data.fields import count_rule, parse_count, parse_time
from corral.data.importers.binning import (
    Imported,
    Paths,
    Sampled,
    check_step,
    file_list,
    finish,
    resample,
)
from corral.data.importers.records import records
from corral.data.source import MAX_BYTES, MAX_NODES, Faults
from corral.data.trace import Counts

__all__ = ["import_azure_functions"]

MINUTES = 1440
DAY_CELLS = 100_000_000
"""Default limit on the cells of a file. A day has up to 70 million cells, read row by row."""

KEYS = ("HashOwner", "HashApp", "HashFunction", "Trigger")


def import_azure_functions(
    paths: Paths,
    *,
    nodes: int,
    by: Literal["app", "function"] = "app",
    pick: Literal["hash", "top"] = "hash",
    start: str = "2019-07-15T00:00:00Z",
    step: int | None = None,
    capacity: int | str | None = None,
    name: str = "azure_functions",
    max_bytes: int = MAX_BYTES,
    max_cells: int = DAY_CELLS,
) -> Imported:
    """Import invocations per minute, one file per day, with functions grouped onto nodes.

    The files are consecutive days, in the order of ``paths``. (The data set numbers its days 1 to
    14.) A function that is missing in the file of a day was not invoked on that day.

    Args:
        nodes: number of nodes to group the functions onto.
        by: unit that stays together on one node.
        pick: group all units, or take the busiest, one per node. With "hash", the SHA-256 of a name
            selects the node, and no load is left out. With "top", the notes state the share of the
            load that is left out.
        start: time of the first minute in the first file.
        step: length of a step, in seconds, a multiple of 60; default: 60.
        capacity: see ``Trace.with_capacity``.
        name: name of the trace.
        max_bytes: maximum size of a file after unpacking, in bytes; default: 192 MiB.
        max_cells: maximum number of cells: rows times columns, at least 10 per row; default:
            100 million.

    Raises TraceError for faults in the files, ValueError for options out of range.
    """
    check_step(step)
    first = parse_time(start)
    if first is None or first[0] != "utc":
        raise ValueError(f"start={start!r} must be an ISO-8601 time")
    if by not in ("app", "function") or pick not in ("hash", "top"):
        raise ValueError(
            f"by={by!r} must be app or function, and pick={pick!r} must be hash or top"
        )
    if nodes != int(nodes) or not 1 <= nodes <= MAX_NODES:
        raise ValueError(f"nodes={nodes!r} must be a whole number, 1 to {MAX_NODES:,}")
    notes: list[str] = []
    files = file_list(paths)
    column = KEYS.index("HashApp" if by == "app" else "HashFunction")
    names = [f"node{i}" for i in range(nodes)]
    if pick == "top":
        names = _busiest(files, column, nodes, notes, max_bytes=max_bytes, max_cells=max_cells)
    node_of = {key: node for node, key in enumerate(names)}

    load = np.zeros((len(files) * MINUTES, nodes), dtype=np.int64)
    functions = 0
    for day, path in enumerate(files):
        window = load[day * MINUTES : (day + 1) * MINUTES]
        for key, counts in _functions(path, column, [], max_bytes=max_bytes, max_cells=max_cells):
            node = _draw(key, nodes) if pick == "hash" else node_of.get(key)
            if node is not None:
                window[:, node] += counts
                functions += 1
    notes.append(f"{functions:,} rows of {len(files)} days were summed into {nodes} nodes")
    for index in np.flatnonzero(~load.any(axis=0)):
        notes.append(f"{names[index]}: the node has no requests; consider fewer nodes")
    loads = [Sampled(names[i], first[1], 60, load[:, i]) for i in range(nodes)]
    return finish(resample(loads, step, notes), capacity, name, notes)


def _draw(key: str, nodes: int) -> int:
    """Return the node of a key. It is equal in every process and on every machine."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") % nodes


def _busiest(
    files: Sequence[Path],
    column: int,
    nodes: int,
    notes: list[str],
    *,
    max_bytes: int,
    max_cells: int,
) -> list[str]:
    """Return the names with the most invocations, in descending order."""
    totals: Counter[str] = Counter()
    for path in files:
        for key, counts in _functions(
            path, column, notes, max_bytes=max_bytes, max_cells=max_cells
        ):
            totals[key] += int(counts.sum())
    if len(totals) < nodes:
        raise ValueError(
            f"nodes={nodes} must be at most {len(totals)}, the number of names in the files"
        )
    # Sorted by load, then by name: ties do not depend on the order of rows.
    ranked = sorted(totals, key=lambda key: (-totals[key], key))[:nodes]
    picked, total = sum(totals[key] for key in ranked), sum(totals.values())
    notes.append(
        f"{nodes} of {len(totals):,} names were picked, with {picked:,} of {total:,} invocations; "
        "the rest was left out"
    )
    return ranked


def _functions(
    path: Path, column: int, notes: list[str], *, max_bytes: int, max_cells: int
) -> Iterator[tuple[str, Counts]]:
    """Yield the key and the counts [1440] of each row."""
    faults = Faults(path)
    rows = records(path, faults, notes, max_bytes=max_bytes, max_cells=max_cells, named=KEYS)
    _, header = next(rows)
    expected = [*KEYS, *(str(minute) for minute in range(1, MINUTES + 1))]
    if header != expected:
        faults.add("the header must be HashOwner,HashApp,HashFunction,Trigger,1,2,...,1440", 1)
        faults.check()
    for line, fields in rows:
        cells = fields[len(KEYS) :]
        counts = [parse_count(cell) for cell in cells]
        if None in counts:
            bad = counts.index(None)
            faults.add(count_rule(cells[bad]), line, str(bad + 1), cells[bad])
        elif not fields[column]:
            faults.add("empty name; every row needs one", line, KEYS[column], "")
        else:
            yield fields[column], np.array(counts, dtype=np.int64)  # [1440]
    faults.check()
