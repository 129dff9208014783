"""From the sheets of all files to one even trace: step, holes, units, whole requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from corral.data.fields import Clock, format_time
from corral.data.importers.binning import Gaps, Guess, check_gap, counted, were
from corral.data.importers.tables.sheets import Floats, Sheet, Unit
from corral.data.source import MAX_CELLS, fault_error
from corral.data.trace import MAX_VALUE, Counts, Trace

__all__ = [
    "PER",
    "Grid",
    "Hole",
    "factor",
    "fill",
    "find_holes",
    "finish",
    "length_of",
    "merge",
    "other_step",
    "scaled",
    "step_text",
    "tell_holes",
    "whole_requests",
]

LISTED = 8
"""As many holes are listed one by one."""


PER = {1: "second", 60: "minute", 3600: "hour"}


@dataclass(frozen=True)
class Grid:
    """Loads on an even grid: ``arrivals`` [T, N], NaN in holes; capacity alike, or None."""

    start: int
    step: int
    nodes: list[str]
    arrivals: Floats
    capacity: Floats | None
    clock: Clock
    source: str  # the first file, for errors

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
    """Steps low .. high - 1 of some nodes, without values."""

    nodes: tuple[str, ...]
    low: int
    high: int


def step_text(grid: Grid) -> str:
    """Return the step for people: 300 s (5 min); the number alone where times are none."""
    if grid.clock != "utc":
        return str(grid.step)
    return f"{grid.step} s" + (f" ({length_of(grid.step)})" if grid.step >= 60 else "")


def other_step(grid: Grid) -> str:
    """Return the argument for a longer step: a usual one that divides a day, where one fits."""
    usual = (60, 300, 900, 3600, 10_800, 21_600, 86_400) if grid.clock == "utc" else ()
    fits = (each for each in usual if each > grid.step and each % grid.step == 0)
    return f"step={next(fits, 5 * grid.step)}"


def length_of(seconds: int) -> str:
    """Return a length of time for people: 90 s, 5 min, 1 h, 2.5 h, 3 days."""
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size * (2 if unit == "days" else 1):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds} s"


# --- Files together ------------------------------------------------------------------------------


def merge(sheets: Sequence[Sheet], clock: Clock, *, step: int | None, notes: list[str]) -> Grid:
    """Return the loads of all sheets on one even grid.

    Sheets of the same nodes are parts of one; where two say something of the same time and node,
    the import is refused. The own step is the commonest distance of a node's times. With ``step``
    times are moved to the nearest multiple of it from the first on.
    """
    nodes = list(dict.fromkeys(node for sheet in sheets for node in sheet.nodes))
    times = np.sort(pd.unique(np.concatenate([sheet.times for sheet in sheets])))  # [T]
    if clock == "utc":
        check_gap(times, str(sheets[0].table.path))
    snap = step is not None
    step = step or _step(sheets)
    start = int(times[0])
    if snap:  # to where most of the times are
        offsets = np.concatenate([sheet.times for sheet in sheets]) % step
        values, often = np.unique(offsets, return_counts=True)
        start = int((start - values[often.argmax()] + step // 2) // step * step) + int(
            values[often.argmax()]
        )
    last = (
        (int(times[-1]) - start + step // 2) // step if snap else (int(times[-1]) - start) // step
    )
    steps = last + 1
    if steps * len(nodes) > MAX_CELLS:
        raise fault_error(
            sheets[0].table.path,
            f"{steps:,} steps of {step} from {format_time(start, clock)} on x {len(nodes):,} nodes "
            f"are more than {MAX_CELLS:,}: look for a wrong time or node",
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
        twice = ~np.isnan(arrivals.flat[cell])
        if not twice.any() and not np.diff(np.sort(cell)).all():
            twice[np.setdiff1d(np.arange(len(cell)), np.unique(cell, return_index=True)[1])] = True
        if twice.any():
            at = int(twice.argmax())
            when = format_time(int(sheet.times[row[at]]), clock)
            raise fault_error(
                sheet.table.path,
                f"two rows fall on one step of {step}: {when}, node {sheet.nodes[column[at]]!r}; "
                "files with the same nodes must not overlap, names= gives each file its own",
            )
        arrivals.flat[cell] = sheet.arrivals[row, column]
        if capacity is not None and sheet.capacity is not None:
            row, column = np.nonzero(~np.isnan(sheet.capacity))
            capacity.flat[index[row] * len(nodes) + columns[column]] = sheet.capacity[row, column]
    if moved:
        notes.append(f"times were moved to the nearest step, by {moved} s at most")
    return Grid(start, step, nodes, arrivals, capacity, clock, str(sheets[0].table.path))


def _step(sheets: Sequence[Sheet]) -> int:
    """Return the usual distance between a node's times."""
    distances = []
    for sheet in sheets:
        known = ~np.isnan(sheet.arrivals)
        distances += [np.diff(sheet.times[known[:, i]]) for i in range(min(64, len(sheet.nodes)))]
    sizes, often = np.unique(np.concatenate(distances), return_counts=True)
    if not len(sizes):
        raise fault_error(sheets[0].table.path, "a single time has no step; two or more are needed")
    if 2 * often.max() >= often.sum():
        return int(sizes[often.argmax()])
    return int(np.median(np.concatenate(distances)))  # times that jitter


def _off_grid(sheet: Sheet, row: int, step: int, clock: Clock) -> None:
    when = format_time(int(sheet.times[row]), clock)
    raise fault_error(
        sheet.table.path,
        f"{when} is off the grid of the others, whose step is {step}: snap={step} moves each "
        "time to the nearest step",
    )


# --- Holes ---------------------------------------------------------------------------------------


def find_holes(grid: Grid) -> list[Hole]:
    """Return the holes in the arrivals, those of several nodes at the same steps together."""
    found: dict[tuple[int, int], list[str]] = {}
    for node, values in zip(grid.nodes, grid.arrivals.T, strict=True):
        edges = np.diff(np.concatenate([[False], np.isnan(values), [False]]).astype(np.int8))
        for low, high in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True):
            found.setdefault((int(low), int(high)), []).append(node)
    return [Hole(tuple(nodes), low, high) for (low, high), nodes in sorted(found.items())]


def tell_holes(grid: Grid, holes: Sequence[Hole]) -> list[str]:
    """Return a line for each hole, with its length; the last one sums up what is not listed."""
    told = []
    unit = " s" if grid.clock == "utc" else ""
    for hole in holes[:LISTED]:
        steps = hole.high - hole.low
        length = f", {length_of(steps * grid.step)}" if unit else ""
        all_nodes = len(hole.nodes) == len(grid.nodes)
        names = ", ".join(hole.nodes[:3]) + (", ..." if len(hole.nodes) > 3 else "")
        who = "all nodes" if all_nodes and len(grid.nodes) > 1 else names
        told.append(f"{counted(steps, 'step')}{length} from {grid.time(hole.low)} ({who})")
    rest = [hole.high - hole.low for hole in holes[LISTED:]]
    if rest:
        told.append(f"and {len(rest):,} more, of {min(rest):,} to {counted(max(rest), 'step')}")
    return told


def fill(grid: Grid, gaps: Gaps, holes: Sequence[Hole], notes: list[str], hint: str = "") -> Grid:
    """Return the loads without holes, filled as ``gaps`` says.

    ``zero`` fills all; before its first and after its last value a node has nothing to go on, so
    that ``previous`` and ``interpolate`` cut all nodes to the time that they have in common.
    Capacity keeps its previous value in holes (at the start: its first).

    Raises TraceError where there are holes, and ``gaps`` is ``refuse``.
    """
    if holes and gaps == "refuse":
        lines = "\n".join(f"  {line}" for line in tell_holes(grid, holes))
        raise fault_error(
            grid.source,
            f"{counted(len(holes), 'hole')} in the loads: give gaps=zero, gaps=previous or "
            f"gaps=interpolate to fill {'it' if len(holes) == 1 else 'them'}{hint}\n{lines}",
        )
    arrivals = grid.arrivals
    if holes and gaps != "zero":
        known = ~np.isnan(arrivals)
        if not known.any(axis=0).all():
            empty = grid.nodes[int(np.argmin(known.any(axis=0)))]
            raise fault_error(grid.source, f"node {empty!r} has no value at all; leave it out")
        low = int(known.argmax(axis=0).max())
        high = len(arrivals) - int(known[::-1].argmax(axis=0).max())
        if low >= high:
            raise fault_error(grid.source, "the nodes have no time in common; gaps=zero fills all")
        cut = len(arrivals) - (high - low)
        if cut:
            lost = np.nansum(arrivals[:low]) + np.nansum(arrivals[high:])
            notes.append(
                f"{counted(cut, 'step')} before or after the time that all nodes have in common "
                f"{were(cut)} trimmed, with {lost:,.6g} in them"
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
        missing = int(np.isnan(capacity).sum())
        if missing:
            whole = pd.DataFrame(capacity).ffill().bfill()
            if whole.isna().to_numpy().any():
                raise fault_error(grid.source, "a node has no capacity at all: give capacity=")
            capacity = whole.to_numpy()
            notes.append(
                f"{counted(missing, 'missing value')} of capacity {were(missing)} filled with the "
                "one before"
            )
    return replace(grid, arrivals=arrivals, capacity=capacity)


# --- Units and whole requests --------------------------------------------------------------------


def factor(grid: Grid, unit: Unit, scale: float | None, guesses: list[Guess]) -> float:
    """Return what values are multiplied by, to be requests per step.

    Raises TraceError where they are fractions, and nobody said what they count.
    """
    step = f"step of {grid.step} s" if grid.clock == "utc" else "step"
    if scale is not None:
        guesses.append(Guess("unit", f"as told: values times {scale:g} are requests per {step}"))
        return scale
    if unit.seconds is not None:
        if grid.clock != "utc":
            raise fault_error(
                "import", "rates need times with a unit: give scale=, seconds per step"
            )
        word = PER[unit.seconds]
        times = grid.step / unit.seconds
        guesses.append(
            Guess(
                "unit",
                f"requests per {word}, by {unit.source}; times {times:g}",
                "scale=1",
                f"scale={times:g}" if times != 1 else "",
            )
        )
        return times
    fractions = grid.arrivals[~np.isnan(grid.arrivals)]
    fractions = fractions[np.abs(fractions - np.rint(fractions)) > 1e-9 * np.maximum(1, fractions)]
    if len(fractions):
        rates = [f"{argument} where they are per {word}, " for argument, word in _rates(grid)]
        raise fault_error(
            grid.source,
            f"values are fractions, such as {fractions[0]:.6g}; what do they count? Give "
            f"{''.join(rates)}scale=1 where they are requests per {step}",
        )
    change = ", ".join(f"{argument} if they are per {word}" for argument, word in _rates(grid))
    guesses.append(Guess("unit", f"requests per {step}, as written", change or "scale=N"))
    return 1.0


def _rates(grid: Grid) -> list[tuple[str, str]]:
    """Return what to give for each rate that values may be, and the word for it."""
    if grid.clock != "utc":
        return []
    minutes = [(f"scale={grid.step // 60}", "minute")]
    return [(f"scale={grid.step}", "second")] + (
        minutes if grid.step > 60 and grid.step % 60 == 0 else []
    )


def scaled(grid: Grid, arrivals: float, capacity: float) -> Grid:
    """Return the loads and capacities times a number each."""
    roof = None if grid.capacity is None else grid.capacity * capacity
    return replace(grid, arrivals=grid.arrivals * arrivals, capacity=roof)


def whole_requests(values: Floats) -> tuple[Counts, int]:
    """Return whole requests [T, N] and how many values were no whole number.

    Running totals of each node stay within half a request of those of ``values``: what one step
    loses by rounding, a later one gains.
    """
    nearest = np.rint(values)
    broken = np.abs(values - nearest) > 1e-9 * np.maximum(1.0, np.abs(values))
    exact = np.where(broken, values, nearest)
    base = np.floor(exact)
    # Fractions alone are summed: totals of large counts would lose their digits.
    carried = np.rint(np.cumsum(exact - base, axis=0) - 1e-9)
    whole: Counts = (base + np.diff(carried, axis=0, prepend=0)).astype(np.int64)
    return whole, int(broken.sum())


def resample(values: Floats, many: int) -> Floats:
    full = len(values) // many * many
    sums: Floats = values[:full].reshape(-1, many, values.shape[1]).sum(axis=1)
    return sums


def finish(grid: Grid, step: int | None, name: str, notes: list[str]) -> Trace:
    """Return the trace of loads without holes, in steps of ``step`` seconds (None: their own)."""
    arrivals, capacity = grid.arrivals, grid.capacity
    many = (step or grid.step) // grid.step
    if step is not None and step % grid.step:
        raise fault_error(grid.source, f"step={step} is no multiple of the own step, {grid.step}")
    if many > 1:
        rest = len(arrivals) % many
        if rest:
            lost = arrivals[-rest:].sum()
            notes.append(
                f"{counted(rest, 'step')} at the end, with {lost:,.6g} requests, {were(rest)} "
                f"trimmed: not enough to fill a step of {step}"
            )
        arrivals = resample(arrivals, many)
        capacity = None if capacity is None else resample(capacity, many)
        if not len(arrivals):
            raise fault_error(grid.source, f"the files are shorter than one step of {step}")
    if not arrivals.any():
        raise fault_error(grid.source, "no requests at all")
    if arrivals.max() > MAX_VALUE or (capacity is not None and capacity.max() > MAX_VALUE):
        raise fault_error(grid.source, f"more than {MAX_VALUE:,} in one step: look at the unit")
    whole, rounded = whole_requests(arrivals)
    roof = None if capacity is None else whole_requests(capacity)[0]
    if rounded:
        notes.append(
            f"{counted(rounded, 'fraction')} {were(rounded)} rounded; each node keeps its total "
            "to half a request"
        )
    new = grid.step * many
    return Trace(
        nodes=tuple(grid.nodes),
        arrivals=whole,
        capacity=roof,
        times=grid.start + new * np.arange(len(whole)),
        clock=grid.clock,
        name=name,
    )
