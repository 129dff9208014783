"""Import Prometheus responses: JSON of ``query_range``, and tables with a column per series."""

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
    check_options,
    counted,
    file_list,
    mode_of,
    were,
)
from corral.data.importers.counters import counters_error, differences, grows
from corral.data.importers.prometheus_files import Series, read_series
from corral.data.importers.tables import grid as grids
from corral.data.importers.tables.capacities import set_capacities
from corral.data.importers.tables.documents import MAX_JSON
from corral.data.importers.tables.sheets import Sheet, Unit
from corral.data.read import trace_name
from corral.data.source import MAX_CELLS, MAX_NODES, fault_error
from corral.data.trace import Counts

__all__ = ["import_prometheus"]

PREFERRED = ("instance", "pod", "node", "nodename", "host", "hostname", "server", "container")
"""Labels that name a server, in order of preference."""


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
    """Import Prometheus responses: JSON of ``query_range``, or CSV with a column per series.

    Parts of one series in several files are joined. NaN and infinite values count as missing, and
    the notes state their number.

    Args:
        label: label that names the node, such as instance; default: the label that differs between
            the series. If several labels identify each series, the one that most likely names a
            server is used. Series of the same node are summed.
        counter: whether values are counters since a start; default: refuse possible counters. The
            requests of a step are then the growth of the counter during the step. A counter that
            falls restarted at 0.
        zone: time zone of CSV times without one; default: Z.
        scale: factor from values to requests per step, such as 60 for rates per second in steps of
            60 s. Fractions are rounded so that each node keeps its total.
        step: length of a step, in seconds; default: the step of the files. Whole steps are summed.
        snap: move times to the nearest step of this many seconds.
        gaps: treatment of missing values. For a counter, "interpolate" spreads its growth over the
            hole, and keeps the total.
        capacity: see ``Trace.with_capacity``.
        name: name of the trace; default: the file names joined by +.
        max_bytes: maximum size of a file after unpacking, in bytes; default: 64 MiB.
        max_cells: maximum number of cells: rows times columns, at least 10 per row; default:
            25 million.
        guesses: list to which the guesses are appended.

    Raises TraceError for faulty or ambiguous files, ValueError for options out of range.
    """
    check_options(gaps, scale, [step, snap])
    files = file_list(paths)
    notes: list[str] = []
    guess_list = [] if guesses is None else guesses
    parts: list[Series] = []
    for at, path in enumerate(files):
        parts += read_series(
            path,
            zone,
            notes,
            guess_list if at == 0 else [],
            max_bytes=max_bytes,
            max_cells=max_cells,
        )
    series = _joined(parts)
    node_of = _nodes(series, label, guess_list)
    if counter is None and grows(series):
        raise counters_error(series)
    if counter:
        series = differences(series, snap or _step(series), gaps, notes)
        guess_list.append(Guess("counter", "requests are the growth per step", "counter=False"))

    grid = grids.merge(_sheets(series, node_of, notes), "utc", step=snap, notes=notes)
    guess_list.append(Guess("step", f"{grid.step} s", grids.other_step(grid)))
    if counter:
        grid = grids.scaled(grid, scale or 1.0, 1.0)
    else:
        grid = grids.scaled(grid, grids.factor(grid, _unit(series), scale, guess_list), 1.0)
    holes = grids.find_holes(grid)
    guess_list += [
        Guess("gaps", line, "gaps=interpolate") for line in grids.describe_holes(grid, holes)
    ]
    grid = grids.fill(grid, gaps, holes, notes)
    title = name or "+".join(trace_name(path).removesuffix(".json") for path in files)
    trace = grids.finish(grid, step, title, notes)
    if capacity is not None:
        trace = set_capacities(trace, capacity, guess_list, notes)
    else:
        guess_list.append(Guess("capacity", "none in the file", "capacity=a=N,b=N"))
    return Imported(trace, tuple(notes), tuple(guess_list))


def _joined(series: Sequence[Series]) -> list[Series]:
    """Return each series once, with its parts from several files joined in order of time."""
    parts: dict[tuple[tuple[str, str], ...], list[Series]] = {}
    for one in series:
        parts.setdefault(tuple(sorted(one.labels.items())), []).append(one)
    joined = []
    for members in parts.values():
        times = np.concatenate([part.times for part in members])
        values = np.concatenate([part.values for part in members])
        order = np.argsort(times, kind="stable")
        times, values = times[order], values[order]
        if (repeated := np.diff(times) == 0).any():
            when = format_time(int(times[int(repeated.argmax())]), "utc")
            rule = f"{when} occurs twice in series {_text(members[0])}; files must not overlap"
            raise fault_error(members[-1].path, rule)
        check_gap(times, str(members[0].path))
        joined.append(replace(members[0], times=times, values=values))
    return joined


def _text(series: Series) -> str:
    return "{" + ", ".join(f'{key}="{value}"' for key, value in series.labels.items()) + "}"


def _step(series: Sequence[Series]) -> int:
    distances = np.concatenate([np.diff(one.times) for one in series])
    if not len(distances):
        rule = "the step is unknown: at least two times are required"
        raise fault_error(series[0].path, rule)
    return mode_of(distances)


def _unit(series: Sequence[Series]) -> Unit:
    for one in series:
        if one.unit.seconds != series[0].unit.seconds:
            raise fault_error(
                one.path,
                f"the unit of {_text(one)} differs from other series; import it separately",
            )
    return series[0].unit


# --- Nodes ---------------------------------------------------------------------------------------


def _nodes(series: Sequence[Series], label: str | None, guesses: list[Guess]) -> list[str]:
    """Return the node name of each series."""
    path, labels = series[0].path, [one.labels for one in series]
    chosen = label or _label(path, labels)
    if chosen is None:
        nodes = [trace_name(one.path).removesuffix(".json") for one in series]
        guesses.append(Guess("nodes", f"one series without a server label, named {nodes[0]}"))
        return nodes
    unlabeled = [one for one in series if not one.labels.get(chosen)]
    if unlabeled:
        known_labels = ", ".join(dict.fromkeys(key for one in labels for key in one)) or "none"
        rule = (
            f"no label {chosen!r} in {_text(unlabeled[0])}; labels are {known_labels}; pass one as "
            "label="
        )
        raise fault_error(unlabeled[0].path, rule)
    nodes = [one[chosen] for one in labels]
    for node in nodes:
        if (rule_or_none := name_rule(node)) is not None:
            raise fault_error(path, f"label {chosen!r}, {node!r}: {rule_or_none}")
    names = list(dict.fromkeys(nodes))
    if len(names) > MAX_NODES:
        raise fault_error(
            path,
            f"{len(names):,} nodes exceed the limit of {MAX_NODES:,}; pass another label=",
        )
    listed = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
    guesses.append(Guess("nodes", f"{len(names)}, by label {chosen}: {listed}", "label=LABEL"))
    return nodes


def _label(path: Path, labels: Sequence[dict[str, str]]) -> str | None:
    """Return the label that names the nodes; None for a single series without a server label."""
    values = {key: [one.get(key, "") for one in labels] for key in labels[0]}
    values |= {key: [one.get(key, "") for one in labels] for one in labels for key in one}

    def place(key: str) -> int:
        return PREFERRED.index(key) if key in PREFERRED else len(PREFERRED)

    if len(labels) == 1:
        likely = [key for key in values if key in PREFERRED]
        return min(likely, key=place) if likely else None
    differing = {key: len(set(one)) for key, one in values.items() if len(set(one)) > 1}
    identifying = [key for key, text in differing.items() if text == len(labels)]
    if len(differing) == 1 or identifying:
        return min(identifying or differing, key=place)
    text = ", ".join(f"{key} ({number} values)" for key, number in differing.items())
    raise fault_error(
        path,
        f"the {len(labels)} series differ in {text}. Pass the label that names the node, such as "
        f"label={min(differing, key=place)}; series of one node are summed",
    )


def _sheets(series: Sequence[Series], node_of: Sequence[str], notes: list[str]) -> list[Sheet]:
    """Return one sheet per node: the sum of its series at each time with a value."""
    groups: dict[str, list[Series]] = {}
    for one, node in zip(series, node_of, strict=True):
        groups.setdefault(node, []).append(one)
    if len(groups) < len(series):
        notes.append(f"{len(series):,} series were summed into {counted(len(groups), 'node')}")
    sheets, num_incomplete = [], 0
    for node, members in groups.items():
        times: Counts = np.unique(np.concatenate([one.times for one in members]))  # [T]
        total, num_present = np.zeros(len(times)), np.zeros(len(times), dtype=np.int64)
        for one in members:
            at = np.searchsorted(times, one.times)
            present = ~np.isnan(one.values)
            total[at[present]] += one.values[present]
            num_present[at[present]] += 1
        num_incomplete += int(((num_present > 0) & (num_present < len(members))).sum())
        arrivals = np.where(num_present > 0, total, np.nan)[:, None]  # [T, 1]
        sheets.append(Sheet(members[0].table, times, [node], arrivals, None))
    if num_incomplete:
        notes.append(
            f"{counted(num_incomplete, 'sum')} {were(num_incomplete)} incomplete: a series without "
            "a value at that time counted as 0"
        )
    return sheets
