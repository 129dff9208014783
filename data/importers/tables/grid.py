"""Combine the sheets of all files into one even trace: step, holes, units, whole requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from corral.data.fields import Clock, format_time
from corral.data.importers.binning import (
    Gaps,
    Guess,
    check_gap,
    counted,
    length_of,
    mode_of,
    were,
)
from corral.data.importers.tables.sheets import Floats, Sheet, Unit
from corral.data.source import MAX_CELLS, fault_error
from corral.data.trace import MAX_VALUE, Counts, Trace

__all__ = [
    "PERIODS",
    "Grid",
    "Hole",
    "absences",
    "describe_holes",
    "factor",
    "fill",
    "find_holes",
    "finish",
    "merge",
    "node_of_sums",
    "other_step",
    "scaled",
    "step_text",
    "whole_requests",
]

MAX_LISTED = 8
"""Maximum number of holes that are listed one by one."""


PERIODS = {1: "second", 60: "minute", 3600: "hour"}


@dataclass(frozen=True)
class Grid:
    """Loads on an even grid: ``arrivals`` [T, N], NaN in holes; ``capacity`` [T, N] or None."""

    start: int
    step: int
    nodes: list[str]
    arrivals: Floats
    capacity: Floats | None
    clock: Clock
    source: str  # the first file, for error messages

    def time(self, row: int) -> str:
        return format_time(self.start + row * self.step, self.clock)

    def rows(self, low: int, high: int) -> Grid:
        capacity = None if self.capacity is None else self.capacity[low:high]
        return replace(
            self,
            start=self.start + low * self.step,
            arrivals=self.arrivals[low:high],
            capacity=capacity,
        )


@dataclass(frozen=True)
class Hole:
    """Steps low .. high - 1 without values, for some nodes."""

    nodes: tuple[str, ...]
    low: int
    high: int


def step_text(grid: Grid) -> str:
    """Return the step as text, such as "300 s (5 min)"; a plain number for integer times."""
    if grid.clock != "utc":
        return str(grid.step)
    return f"{grid.step} s" + (f" ({length_of(grid.step)})" if grid.step >= 60 else "")


def other_step(grid: Grid) -> str:
    """Return the argument for a longer step, such as "step=900": a common length if possible."""
    usual = (60, 300, 900, 3600, 10_800, 21_600, 86_400) if grid.clock == "utc" else ()
    fits = (length for length in usual if length > grid.step and length % grid.step == 0)
    return f"step={next(fits, 5 * grid.step)}"


# --- Joining files -------------------------------------------------------------------------------


def merge(sheets: Sequence[Sheet], clock: Clock, *, step: int | None, notes: list[str]) -> Grid:
    """Return the loads of all sheets on one even grid.

    Sheets with the same nodes are joined. Two values for the same time and node are refused. By
    default, the step is the most common distance between a node's times. With ``step``, times move
    to the nearest step of that length. The steps begin at the most common offset of the times.
    """
    nodes = list(dict.fromkeys(node for sheet in sheets for node in sheet.nodes))
    times = np.sort(pd.unique(np.concatenate([sheet.times for sheet in sheets])))  # [T]
    if clock == "utc":
        check_gap(times, str(sheets[0].table.path))
    snap = step is not None
    step = step or _step(sheets)
    start = int(times[0])
    if snap:  # to the most common offset
        offset = mode_of(np.concatenate([sheet.times for sheet in sheets]) % step)
        start = (start - offset + step // 2) // step * step + offset
    last = (
        (int(times[-1]) - start + step // 2) // step if snap else (int(times[-1]) - start) // step
    )
    steps = last + 1
    if steps * len(nodes) > MAX_CELLS:
        raise fault_error(
            sheets[0].table.path,
            f"{steps:,} steps of {step} from {format_time(start, clock)} on x {len(nodes):,} nodes "
            f"exceed the limit of {MAX_CELLS:,} cells; check the file for a wrong time or node",
        )
    has_capacity = any(sheet.capacity is not None for sheet in sheets)
    arrivals = np.full((steps, len(nodes)), np.nan)
    capacity = np.full_like(arrivals, np.nan) if has_capacity else None
    moved = 0
    half = step // 2 if snap else 0
    for sheet in sheets:
        index, off = np.divmod(sheet.times - start + half, step)  # [T']
        if (off != half).any() and not snap:
            _off_grid(sheet, int(np.flatnonzero(off)[0]), step, clock)
        moved = max(moved, int(np.abs(off - half).max()))
        columns = np.array([nodes.index(node) for node in sheet.nodes])
        row, column = np.nonzero(~np.isnan(sheet.arrivals))
        cell = index[row] * len(nodes) + columns[column]
        repeated = ~np.isnan(arrivals.flat[cell])
        repeated |= pd.Series(cell).duplicated().to_numpy()
        if repeated.any():
            at = int(repeated.argmax())
            when = format_time(int(sheet.times[row[at]]), clock)
            raise fault_error(
                sheet.table.path,
                f"two rows belong to one step of {step}: {when}, node {sheet.nodes[column[at]]!r}. "
                "Files with the same nodes must not overlap; pass names= to give each file a node",
            )
        arrivals.flat[cell] = sheet.arrivals[row, column]
        if capacity is not None and sheet.capacity is not None:
            row, column = np.nonzero(~np.isnan(sheet.capacity))
            capacity.flat[index[row] * len(nodes) + columns[column]] = sheet.capacity[row, column]
    if moved:
        notes.append(f"times were moved to the nearest step, by at most {moved} s")
    return Grid(start, step, nodes, arrivals, capacity, clock, str(sheets[0].table.path))


def _step(sheets: Sequence[Sheet]) -> int:
    """Return the most common distance between a node's times, or the median if times jitter."""
    distances = []
    for sheet in sheets:
        present = ~np.isnan(sheet.arrivals)
        distances += [np.diff(sheet.times[present[:, i]]) for i in range(min(64, len(sheet.nodes)))]
    steps = np.concatenate(distances)
    if not len(steps):  # each file has one time
        steps = np.diff(np.unique(np.concatenate([sheet.times for sheet in sheets])))
    if not len(steps):
        raise fault_error(
            sheets[0].table.path, "the step is unknown: at least two times are required"
        )
    step = mode_of(steps)
    return step if 2 * (steps == step).sum() >= len(steps) else int(np.median(steps))  # jitter


def _off_grid(sheet: Sheet, row: int, step: int, clock: Clock) -> None:
    when = format_time(int(sheet.times[row]), clock)
    raise fault_error(
        sheet.table.path,
        f"time {when} does not fit the step of {step} between other times; pass snap={step} to "
        "move each time to the nearest step",
    )


# --- Holes ---------------------------------------------------------------------------------------


def find_holes(grid: Grid) -> list[Hole]:
    """Return the holes in the arrivals. Nodes with a hole at the same steps share an entry."""
    nodes_of_hole: dict[tuple[int, int], list[str]] = {}
    for node, values in zip(grid.nodes, grid.arrivals.T, strict=True):
        edges = np.diff(np.concatenate([[False], np.isnan(values), [False]]).astype(np.int8))
        for low, high in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True):
            nodes_of_hole.setdefault((int(low), int(high)), []).append(node)
    return [Hole(tuple(nodes), low, high) for (low, high), nodes in sorted(nodes_of_hole.items())]


def describe_holes(grid: Grid, holes: Sequence[Hole]) -> list[str]:
    """Return one line per hole, with its length. A last line summarizes further holes."""
    lines = []
    unit = " s" if grid.clock == "utc" else ""
    for hole in holes[:MAX_LISTED]:
        steps = hole.high - hole.low
        length = f", {length_of(steps * grid.step)}" if unit else ""
        all_nodes = len(hole.nodes) == len(grid.nodes)
        names = ", ".join(hole.nodes[:3]) + (", ..." if len(hole.nodes) > 3 else "")
        node_text = "all nodes" if all_nodes and len(grid.nodes) > 1 else names
        lines.append(f"{counted(steps, 'step')}{length} from {grid.time(hole.low)} ({node_text})")
    further = [hole.high - hole.low for hole in holes[MAX_LISTED:]]
    if further:
        lines.append(
            f"and {len(further):,} more, {min(further):,} to {counted(max(further), 'step')} long"
        )
    return lines


def absences(grid: Grid) -> list[str]:
    """Return a note on the nodes without loads in more than 1 % of the steps, if there are any."""
    shares = np.isnan(grid.arrivals).mean(axis=0)
    nodes = [f"{grid.nodes[at]!r} in {shares[at]:.0%}" for at in np.flatnonzero(shares > 0.01)]
    if not nodes:
        return []
    names = ", ".join(nodes[:3]) + (", ..." if len(nodes) > 3 else "")
    return [
        f"nodes without a row: {names} of the steps. The capacity as passed counts there, too; if "
        "a node was away, give its capacity in a column"
    ]


def node_of_sums(grid: Grid) -> str | None:
    """Return the node with the sum of two or more others in each of ten or more steps, if any."""
    values = grid.arrivals[~np.isnan(grid.arrivals).any(axis=1)]  # [T', N]
    if len(values) < 10 or values.any(axis=0).sum() < 3:
        return None
    doubled = np.isclose(2 * values, values.sum(axis=1, keepdims=True), rtol=1e-6, atol=0)
    sums = doubled.all(axis=0) & values.any(axis=0)
    return grid.nodes[int(sums.argmax())] if sums.any() else None


def fill(grid: Grid, gaps: Gaps, holes: Sequence[Hole], notes: list[str], hint: str = "") -> Grid:
    """Return the loads with all holes filled by the rule ``gaps``.

    ``zero`` fills every hole. ``previous`` and ``interpolate`` cannot fill steps before the first
    or after the last value of a node. So they cut all nodes to their common time range. Holes in
    the capacity are filled with the previous value, or with the first value at the start; with
    ``zero``, a node without loads in a step has no capacity there, either.

    Raises TraceError if the loads have holes and ``gaps`` is ``refuse``.
    """
    if holes and gaps == "refuse":
        lines = "\n".join(f"  {line}" for line in describe_holes(grid, holes))
        raise fault_error(
            grid.source,
            f"{counted(len(holes), 'hole')} in the loads: pass gaps=zero, gaps=previous or "
            f"gaps=interpolate to fill {'it' if len(holes) == 1 else 'them'}{hint}\n{lines}",
        )
    arrivals = grid.arrivals
    if holes and gaps != "zero":
        present = ~np.isnan(arrivals)
        if not present.any(axis=0).all():
            empty = grid.nodes[int(np.argmin(present.any(axis=0)))]
            raise fault_error(
                grid.source,
                f"node {empty!r} has no values; remove it from the file, or pass gaps=zero",
            )
        low = int(present.argmax(axis=0).max())
        high = len(arrivals) - int(present[::-1].argmax(axis=0).max())
        if low >= high:
            raise fault_error(
                grid.source,
                "the nodes share no time range; pass gaps=zero to fill missing steps with 0",
            )
        cut = len(arrivals) - (high - low)
        if cut:
            lost = np.nansum(arrivals[:low]) + np.nansum(arrivals[high:])
            notes.append(
                f"{counted(cut, 'step')} outside the common time range of all nodes "
                f"{were(cut)} trimmed, with {lost:,.6g} requests"
            )
        grid = grid.rows(low, high)
        arrivals = grid.arrivals
    if holes:
        frame = pd.DataFrame(arrivals)
        if gaps == "interpolate":
            frame = frame.interpolate()
        filled = frame.ffill() if gaps == "previous" else frame.fillna(0.0)
        missing = int(np.isnan(arrivals).sum())
        notes.append(
            f"{counted(missing, 'missing value')} {were(missing)} filled (gaps={gaps}), in "
            f"{counted(len(holes), 'hole')}"
        )
        arrivals = filled.to_numpy()
    capacity = grid.capacity
    if capacity is not None:
        absent = np.isnan(capacity) & np.isnan(grid.arrivals)
        if gaps == "zero" and absent.any():
            capacity = np.where(absent, 0.0, capacity)
            missing = int(absent.sum())
            notes.append(
                f"{counted(missing, 'step')} of nodes without a row {were(missing)} filled with "
                "0 requests and capacity 0; to keep a node's capacity there, pass gaps=previous or "
                "a number as capacity="
            )
        missing = int(np.isnan(capacity).sum())
        if missing:
            whole = pd.DataFrame(capacity).ffill().bfill()
            if whole.isna().to_numpy().any():
                raise fault_error(grid.source, "a node has no capacity values; pass capacity=")
            capacity = whole.to_numpy()
            notes.append(
                f"{counted(missing, 'missing value')} of capacity {were(missing)} filled with the "
                "previous value"
            )
    return replace(grid, arrivals=arrivals, capacity=capacity)


# --- Units and whole requests --------------------------------------------------------------------


def factor(grid: Grid, unit: Unit, scale: float | None, guesses: list[Guess]) -> float:
    """Return the factor from values to requests per step.

    Raises TraceError for fractions of an unknown unit.
    """
    step = f"step of {grid.step} s" if grid.clock == "utc" else "step"
    if scale is not None:
        guesses.append(Guess("unit", f"as passed: values times {scale:g} are requests per {step}"))
        return scale
    if unit.seconds is not None:
        if grid.clock != "utc":
            raise fault_error(
                "import",
                "the values are rates, but the times have no unit; pass time_unit= and epoch=, or "
                "scale=, the factor from values to requests per step",
            )
        word = PERIODS[unit.seconds]
        multiplier = grid.step / unit.seconds
        guesses.append(
            Guess(
                "unit",
                f"requests per {word}, from {unit.source}; multiplied by {multiplier:g}",
                "scale=1",
                f"scale={multiplier:g}" if multiplier != 1 else "",
            )
        )
        return multiplier
    fractions = grid.arrivals[~np.isnan(grid.arrivals)]
    fractions = fractions[np.abs(fractions - np.rint(fractions)) > 1e-9 * np.maximum(1, fractions)]
    if len(fractions):
        rates = [f"{argument} for requests per {word}, " for argument, word in _rates(grid)]
        raise fault_error(
            grid.source,
            f"the values are fractions of an unknown unit, such as {fractions[0]:.6g}. Pass "
            f"{''.join(rates)}scale=1 for requests per {step}",
        )
    change = ", ".join(f"{argument} for requests per {word}" for argument, word in _rates(grid))
    guesses.append(Guess("unit", f"requests per {step}, as in the file", change or "scale=N"))
    return 1.0


def _rates(grid: Grid) -> list[tuple[str, str]]:
    """Return the argument and the time unit for each rate that the values may be."""
    if grid.clock != "utc":
        return []
    minutes = [(f"scale={grid.step // 60}", "minute")]
    return [(f"scale={grid.step}", "second")] + (
        minutes if grid.step > 60 and grid.step % 60 == 0 else []
    )


def scaled(grid: Grid, arrivals: float, capacity: float) -> Grid:
    """Return the grid with arrivals and capacities multiplied by a factor each."""
    scaled_capacity = None if grid.capacity is None else grid.capacity * capacity
    return replace(grid, arrivals=grid.arrivals * arrivals, capacity=scaled_capacity)


def whole_requests(values: Floats) -> tuple[Counts, int]:
    """Return whole requests [T, N] and the number of rounded values.

    The running total of each node stays within half a request of that of ``values``. Rounding
    errors of one step are made up for in later steps.
    """
    nearest = np.rint(values)
    broken = np.abs(values - nearest) > 1e-9 * np.maximum(1.0, np.abs(values))
    exact = np.where(broken, values, nearest)
    base = np.floor(exact)
    # Only the fractions are summed: totals of large counts would lose precision.
    carried = np.rint(np.cumsum(exact - base, axis=0) - 1e-9)
    whole: Counts = (base + np.diff(carried, axis=0, prepend=0)).astype(np.int64)
    return whole, int(broken.sum())


def resample(values: Floats, num_steps: int) -> Floats:
    full = len(values) // num_steps * num_steps
    sums: Floats = values[:full].reshape(-1, num_steps, values.shape[1]).sum(axis=1)
    return sums


def finish(grid: Grid, step: int | None, name: str, notes: list[str]) -> Trace:
    """Return the trace of loads without holes. None for ``step`` keeps the step of the grid."""
    arrivals, capacity = grid.arrivals, grid.capacity
    num_steps = (step or grid.step) // grid.step
    if step is not None and step % grid.step:
        raise fault_error(
            grid.source,
            f"step={step} must be a multiple of {grid.step}, the step of the file",
        )
    if num_steps > 1:
        num_rest = len(arrivals) % num_steps
        if num_rest:
            lost = arrivals[-num_rest:].sum()
            notes.append(
                f"{counted(num_rest, 'step')} at the end, with {lost:,.6g} requests, "
                f"{were(num_rest)} trimmed: too few for a step of {step}"
            )
        arrivals = resample(arrivals, num_steps)
        capacity = None if capacity is None else resample(capacity, num_steps)
        if not len(arrivals):
            raise fault_error(
                grid.source,
                f"the files are shorter than one step of {step}; pass a smaller step=",
            )
    if not arrivals.any():
        raise fault_error(grid.source, "the files contain no requests")
    if arrivals.max() > MAX_VALUE or (capacity is not None and capacity.max() > MAX_VALUE):
        raise fault_error(
            grid.source,
            f"more than {MAX_VALUE:,} requests or capacity in one step; check the unit and scale=",
        )
    whole, rounded = whole_requests(arrivals)
    whole_capacity = None if capacity is None else whole_requests(capacity)[0]
    if rounded:
        notes.append(
            f"{counted(rounded, 'fraction')} {were(rounded)} rounded; the total of each node "
            "changes by at most half a request"
        )
    new_step = grid.step * num_steps
    return Trace(
        nodes=tuple(grid.nodes),
        arrivals=whole,
        capacity=whole_capacity,
        times=grid.start + new_step * np.arange(len(whole)),
        clock=grid.clock,
        name=name,
    )
