"""Import what Prometheus answers: JSON of query_range, and tables with a column per series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from corral.data.fields import format_time, name_rule
from corral.data.importers.binning import (
    Gaps,
    Guess,
    Imported,
    Paths,
    check_gap,
    check_step,
    counted,
    file_list,
    were,
)
from corral.data.importers.counters import differences, grows
from corral.data.importers.prometheus_files import MAX_JSON, Series, read_series
from corral.data.importers.tables import grid as grids
from corral.data.importers.tables.capacities import told_capacities
from corral.data.importers.tables.sheets import Sheet, Unit
from corral.data.read import trace_name
from corral.data.source import MAX_CELLS, MAX_NODES, fault_error
from corral.data.trace import Counts

__all__ = ["import_prometheus"]

PREFERRED = ("instance", "pod", "node", "nodename", "host", "hostname", "server", "container")
"""Labels that name a server, the likeliest first."""


def import_prometheus(
    paths: Paths,
    *,
    label: str | None = None,
    counter: bool | None = None,
    zone: str | None = None,
    scale: float | None = None,
    step: int | None = None,
    snap: int | None = None,
    gaps: Gaps = "refuse",
    capacity: int | str | None = None,
    name: str | None = None,
    max_bytes: int = MAX_JSON,
    max_cells: int = MAX_CELLS,
    guesses: list[Guess] | None = None,
) -> Imported:
    """Import answers of Prometheus: JSON of ``query_range``, or CSV with a column per series.

    The same series in several files are parts of one. NaN and infinite values count as missing, and
    are noted.

    Args:
        label: the label that names the node, such as instance; default: the one that differs, of
            several that name each series the likeliest to be a server. Series of the same node
            are summed.
        counter: values are counters since a start, or not; default: refuse what may be. The
            requests of a step are then the difference between its beginning and its end, and a
            counter that falls began again at 0.
        zone: where clocks of a CSV stand that name no zone; default: Z.
        scale: requests per step of a value of 1: 60 of a rate, in steps of 60 s. Fractions are
            rounded so that each node keeps its total.
        step: length of a step, in seconds; default: the files' own. Whole steps are summed.
        snap: move times to the nearest multiple of so many seconds.
        gaps: what to do where values are missing. With a counter "interpolate" spreads what it
            grew by over the hole, and keeps the total.
        capacity: see ``Trace.with_capacity``.
        name: of the trace; default: that of the first file.
        max_bytes: largest file that is read, in bytes after unpacking; default: 64 MiB.
        max_cells: most cells that are read: rows times columns, 10 a row at least; default:
            25 million.
        guesses: a list that what was found out is added to.

    Raises TraceError for faults in the files and what only the caller can decide, ValueError for
    options out of range.
    """
    check_step(step)
    check_step(snap)
    if gaps not in ("refuse", "zero", "previous", "interpolate"):
        raise ValueError(f"gaps={gaps!r} must be refuse, zero, previous or interpolate")
    if scale is not None and not 0 < scale < float("inf"):
        raise ValueError(f"scale={scale!r} must be a number above 0")
    files = file_list(paths)
    notes: list[str] = []
    told = [] if guesses is None else guesses
    parts: list[Series] = []
    for at, path in enumerate(files):
        parts += read_series(
            path,
            zone,
            notes,
            told if at == 0 else [],
            max_bytes=max_bytes,
            max_cells=max_cells,
        )
    series = _joined(parts)
    node_of = _nodes(series, label, told)
    if counter is None and grows(series):
        first = series[0].known()[1]
        raise fault_error(
            series[0].path,
            f"every series only grows, the first from {first[0]:.10g} to {first[-1]:.10g}: these "
            "look like counters, which count since a start, not requests per step. Give "
            "counter=True to take their differences, counter=False to take them as they are",
        )
    if counter:
        series = differences(series, snap or _step(series), gaps, notes)
        told.append(Guess("counter", "requests are its differences", "counter=False"))

    grid = grids.merge(_sheets(series, node_of, notes), "utc", step=snap, notes=notes)
    told.append(Guess("step", f"{grid.step} s", grids.other_step(grid)))
    if counter:
        grid = grids.scaled(grid, scale or 1.0, 1.0)
    else:
        grid = grids.scaled(grid, grids.factor(grid, _unit(series), scale, told), 1.0)
    holes = grids.find_holes(grid)
    told += [Guess("gaps", line, "gaps=interpolate") for line in grids.tell_holes(grid, holes)]
    grid = grids.fill(grid, gaps, holes, notes)
    title = name or "+".join(trace_name(path).removesuffix(".json") for path in files)
    trace = grids.finish(grid, step, title, notes)
    if capacity is not None:
        trace = told_capacities(trace, capacity, told, notes)
    else:
        told.append(Guess("capacity", "none in the file", "capacity=1.25x"))
    return Imported(trace, tuple(notes), tuple(told))


def _joined(series: Sequence[Series]) -> list[Series]:
    """Return each series once: parts of one, from several files, put together in order of time."""
    parts: dict[tuple[tuple[str, str], ...], list[Series]] = {}
    for each in series:
        parts.setdefault(tuple(sorted(each.labels.items())), []).append(each)
    whole = []
    for several in parts.values():
        times = np.concatenate([part.times for part in several])
        values = np.concatenate([part.values for part in several])
        order = np.argsort(times, kind="stable")
        times, values = times[order], values[order]
        if (again := np.diff(times) == 0).any():
            when = format_time(int(times[int(again.argmax())]), "utc")
            rule = f"{when} stands there twice for {_text(several[0])}: files must not overlap"
            raise fault_error(several[-1].path, rule)
        check_gap(times, str(several[0].path))
        whole.append(replace(several[0], times=times, values=values))
    return whole


def _text(series: Series) -> str:
    return "{" + ", ".join(f'{key}="{value}"' for key, value in series.labels.items()) + "}"


def _step(series: Sequence[Series]) -> int:
    distances = np.concatenate([np.diff(each.times) for each in series])
    if not len(distances):
        rule = "a single time has no step; two or more are needed"
        raise fault_error(series[0].path, rule)
    sizes, often = np.unique(distances, return_counts=True)
    return int(sizes[often.argmax()])


def _unit(series: Sequence[Series]) -> Unit:
    for each in series:
        if each.unit.seconds != series[0].unit.seconds:
            raise fault_error(each.path, f"the unit of {_text(each)} is not that of other series")
    return series[0].unit


# --- Nodes ---------------------------------------------------------------------------------------


def _nodes(series: Sequence[Series], label: str | None, told: list[Guess]) -> list[str]:
    """Return the name of each series' node."""
    path, labels = series[0].path, [each.labels for each in series]
    chosen = label or _label(path, labels)
    if chosen is None:
        nodes = [trace_name(each.path).removesuffix(".json") for each in series]
        told.append(Guess("nodes", f"one series without labels, called {nodes[0]}"))
        return nodes
    lacking = [each for each in series if not each.labels.get(chosen)]
    if lacking:
        known = ", ".join(dict.fromkeys(key for each in labels for key in each)) or "none"
        rule = f"no label {chosen!r} in {_text(lacking[0])}; labels are {known}: label= names one"
        raise fault_error(lacking[0].path, rule)
    nodes = [each[chosen] for each in labels]
    for node in nodes:
        if (rule_or_none := name_rule(node)) is not None:
            raise fault_error(path, f"label {chosen!r}, {node!r}: {rule_or_none}")
    names = list(dict.fromkeys(nodes))
    if len(names) > MAX_NODES:
        raise fault_error(path, f"{len(names):,} nodes are more than {MAX_NODES:,}")
    listed = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
    told.append(Guess("nodes", f"{len(names)}, by label {chosen}: {listed}", "label=LABEL"))
    return nodes


def _label(path: Path, labels: Sequence[dict[str, str]]) -> str | None:
    """Return the label that names the nodes; None: a single series has none."""
    values = {key: [each.get(key, "") for each in labels] for key in labels[0]}
    values |= {key: [each.get(key, "") for each in labels] for each in labels for key in each}

    def place(key: str) -> int:
        return PREFERRED.index(key) if key in PREFERRED else len(PREFERRED)

    if len(labels) == 1:
        likely = [key for key in values if key in PREFERRED]
        return min(likely, key=place) if likely else None
    differing = {key: len(set(each)) for key, each in values.items() if len(set(each)) > 1}
    telling = [key for key, many in differing.items() if many == len(labels)]
    if len(differing) == 1 or telling:
        return min(telling or differing, key=place)
    many = ", ".join(f"{key} ({number} values)" for key, number in differing.items())
    raise fault_error(
        path,
        f"the {len(labels)} series differ in {many}; which names the node? With "
        f"label={min(differing, key=place)} the series of each are summed",
    )


def _sheets(series: Sequence[Series], node_of: Sequence[str], notes: list[str]) -> list[Sheet]:
    """Return one sheet for each node: the sum of its series, where any of them has a value."""
    groups: dict[str, list[Series]] = {}
    for each, node in zip(series, node_of, strict=True):
        groups.setdefault(node, []).append(each)
    if len(groups) < len(series):
        notes.append(f"{len(series):,} series were summed to {counted(len(groups), 'node')}")
    sheets, partly = [], 0
    for node, members in groups.items():
        times: Counts = np.unique(np.concatenate([each.times for each in members]))  # [T]
        total, known = np.zeros(len(times)), np.zeros(len(times), dtype=np.int64)
        for each in members:
            at = np.searchsorted(times, each.times)
            here = ~np.isnan(each.values)
            total[at[here]] += each.values[here]
            known[at[here]] += 1
        partly += int(((known > 0) & (known < len(members))).sum())
        arrivals = np.where(known > 0, total, np.nan)[:, None]  # [T, 1]
        sheets.append(Sheet(members[0].table, times, [node], arrivals, None))
    if partly:
        notes.append(
            f"{counted(partly, 'sum')} {were(partly)} made without a series that has no value at "
            "that time, which counted as 0"
        )
    return sheets
