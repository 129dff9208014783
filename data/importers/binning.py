"""Align the counted or sampled loads of several nodes, and build one trace with notes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from corral.data.fields import format_time, in_calendar, name_rule
from corral.data.source import MAX_CELLS, MAX_NODES, fault_error
from corral.data.trace import MAX_VALUE, Counts, Trace

__all__ = [
    "LONGEST_GAP",
    "MAX_COUNTS",
    "Counted",
    "Gaps",
    "Guess",
    "Imported",
    "Paths",
    "Sampled",
    "align",
    "check_gap",
    "check_options",
    "check_size",
    "check_step",
    "counted",
    "file_list",
    "finish",
    "first_names",
    "length_of",
    "mode_of",
    "node_names",
    "resample",
    "were",
]

MAX_COUNTS = 5_000_000
"""Maximum number of steps with requests, or rows of a series, in memory."""

LONGEST_GAP = 366 * 86_400
"""Maximum seconds between neighboring times. A longer gap means a wrong time or two recordings."""

IMPORT = "import"  # the file name in errors about several files

Gaps = Literal["refuse", "zero", "previous", "interpolate"]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class Guess:
    """A guess about a file, such as its time zone, and the option that changes it."""

    what: str  # the subject: layout, time, zone, nodes, unit, step, gaps, capacity, unused
    found: str  # the guess as text
    change: str = ""  # the argument that changes it: "zone=Europe/Rome"
    accept: str = ""  # the argument that confirms it, if the guess changes the load


@dataclass(frozen=True)
class Imported:
    """An imported trace, with notes about trimmed, filled, rounded or skipped data.

    ``guesses`` are the assumptions of the importer about the file.
    """

    trace: Trace
    notes: tuple[str, ...]
    guesses: tuple[Guess, ...] = ()


@dataclass(frozen=True)
class Sampled:
    """The load of one node: ``counts`` [R] requests in steps of ``step`` seconds from ``start``."""

    name: str
    start: int  # seconds since 1970-01-01 UTC
    step: int
    counts: Counts

    @property
    def end(self) -> int:
        return self.start + self.step * len(self.counts)


def file_list(paths: Paths) -> list[Path]:
    """Return ``paths`` as a list. Raises ValueError for an empty sequence."""
    if isinstance(paths, str | os.PathLike):
        return [Path(paths)]
    files = [Path(path) for path in paths]
    if not files:
        raise ValueError("no files; pass at least one path")
    return files


def node_names(paths: Sequence[Path], names: Sequence[str] | None) -> list[str]:
    """Return one node name per file: ``names``, or the file names without folder and suffix.

    Equal ``names`` are allowed: their files belong to one node. Raises ValueError for a wrong
    number of names, for an invalid name, and for equal file names without ``names``.
    """
    if names is None:
        names = [Path(path.name.removesuffix(".gz")).stem for path in paths]
        repeated = [name for name, times in Counter(names).items() if times > 1]
        if repeated:
            raise ValueError(f"several files have the name {repeated[0]!r}; pass names=")
    if isinstance(names, str) or len(names) != len(paths):
        raise ValueError(f"names={names!r} must be a list of {len(paths)} names, one per file")
    for name in names:
        rule = name_rule(name)
        if rule is not None:
            raise ValueError(f"node name {name!r}: {rule}")
    return list(names)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 step", "1,234 steps"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def first_names(names: Sequence[str]) -> str:
    """Return the first three names, separated by commas."""
    return ", ".join(names[:3]) + (f", ... ({len(names)} in all)" if len(names) > 3 else "")


def length_of(seconds: int) -> str:
    """Return a duration as text: 30 s, 5 min, 1 h, 2.5 h, 3 days."""
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size * (2 if unit == "days" else 1):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds} s"


def were(number: int) -> str:
    return "was" if number == 1 else "were"


def check_step(step: int | None) -> None:
    """Raise ValueError unless ``step`` is None or a whole number of seconds, 1 or more."""
    if step is not None and (isinstance(step, bool) or step != int(step) or step < 1):
        raise ValueError(f"step={step!r} must be a whole number of seconds, 1 or more")


def check_options(
    gaps: str = "refuse", scale: float | None = None, steps: Sequence[int | None] = ()
) -> None:
    """Raise ValueError for an option out of range."""
    for step in steps:
        check_step(step)
    if gaps not in get_args(Gaps):
        raise ValueError(f"gaps={gaps!r} must be one of {', '.join(get_args(Gaps))}")
    if scale is not None and not 0 < scale < float("inf"):
        raise ValueError(f"scale={scale!r} must be a number above 0")


def mode_of(values: Counts) -> int:
    """Return the most common value, the smallest one of several."""
    distinct, counts = np.unique(values, return_counts=True)
    return int(distinct[counts.argmax()])


def check_size(steps: int, file: str, start: int) -> None:
    """Raise TraceError for more steps than the limit."""
    if steps > MAX_CELLS:
        rule = (
            f"{steps:,} steps from {_time(start)} on exceed the limit of {MAX_CELLS:,}; check the "
            "file for a wrong time, or pass a larger step="
        )
        raise fault_error(file, rule)


def check_gap(times: Counts, file: str) -> None:
    """Raise TraceError for a gap of more than a year in ``times`` [T], ascending seconds."""
    gaps = np.diff(times)
    if len(gaps) and gaps.max() > LONGEST_GAP:
        at = int(gaps.argmax())
        days = int(gaps[at]) // 86_400
        rule = (
            f"no data between {_time(int(times[at]))} and {_time(int(times[at + 1]))}: "
            f"a gap of {days:,} days ({days / 365.25:.0f} years). Check the file for a wrong time, "
            "or import the two parts as separate files"
        )
        raise fault_error(file, rule)


class Counted:
    """Request counts per node and bin. Bins begin at multiples of ``step`` seconds since 1970."""

    def __init__(self, step: int) -> None:
        check_step(step)
        self.step = step
        self.bins: dict[str, Counter[int]] = {}
        self.remaining_steps = MAX_COUNTS  # steps that may still be added

    def add(self, node: str, seconds: int, requests: int = 1) -> None:
        """Count requests. Raises TraceError for too many nodes or steps."""
        counter = self.bins.get(node)
        if counter is None:
            counter = self.bins[node] = Counter()
            if len(self.bins) > MAX_NODES:
                rule = (
                    f"more than {MAX_NODES:,} nodes, the last one {node!r}. The node column may "
                    "hold request ids; pass another node_column="
                )
                raise fault_error(IMPORT, rule)
        index = seconds // self.step
        self.remaining_steps -= index not in counter
        counter[index] += requests
        if self.remaining_steps < 0:
            rule = (
                f"requests in more than {MAX_COUNTS:,} steps, summed over the nodes; pass a "
                "larger step="
            )
            raise fault_error(IMPORT, rule)

    def loads(self, notes: list[str], *, together: bool) -> list[Sampled]:
        """Return the aligned loads of all nodes.

        With ``together``, one recording covers all nodes, and a step without rows counts 0.
        Otherwise the recording of a node lasts from its first to its last request.
        """
        indices = np.sort(np.concatenate([np.fromiter(c, np.int64) for c in self.bins.values()]))
        check_gap(indices * self.step, IMPORT)
        first = {node: min(counter) for node, counter in self.bins.items()}
        last = {node: max(counter) for node, counter in self.bins.items()}
        if together:
            first = dict.fromkeys(first, min(first.values()))
            last = dict.fromkeys(last, max(last.values()))
        total = sum(last[node] - first[node] + 1 for node in first)
        check_size(total, IMPORT, min(first.values()) * self.step)
        loads = []
        for node, counter in self.bins.items():
            counts = np.zeros(last[node] - first[node] + 1, dtype=np.int64)
            at = np.fromiter(counter, np.int64) - first[node]
            counts[at] = np.fromiter(counter.values(), np.int64)
            loads.append(Sampled(node, first[node] * self.step, self.step, counts))
        loads = align(loads, notes)
        for load in loads:
            empty = int((load.counts == 0).sum())
            if empty:
                notes.append(
                    f"{load.name}: {empty:,} of {counted(len(load.counts), 'step')} "
                    f"{'has' if empty == 1 else 'have'} no request"
                )
        notes.append("the first and the last step may be incomplete")
        return loads


def align(loads: Sequence[Sampled], notes: list[str]) -> list[Sampled]:
    """Return the loads cut to their common time range. Add notes about trimmed steps.

    Raises TraceError if the loads have no common time range, or their steps are not aligned.
    """
    start, end = max(load.start for load in loads), min(load.end for load in loads)
    if start >= end:
        spans = "; ".join(f"{x.name}: {_time(x.start)} to {_time(x.end)}" for x in loads[:3])
        raise fault_error(
            IMPORT,
            f"the nodes share no time range ({spans}); import the files separately",
        )
    cut = []
    for load in loads:
        if (start - load.start) % load.step:
            raise fault_error(
                IMPORT,
                f"the steps of {load.name!r} do not begin at {_time(start)}, unlike those of other "
                "nodes. Aligning the files would split counts; import the files separately",
            )
        low, high = (start - load.start) // load.step, (end - load.start) // load.step
        for side, lost in (("before", load.counts[:low]), ("after", load.counts[high:])):
            if len(lost):
                notes.append(
                    f"{load.name}: {counted(len(lost), 'step')} with "
                    f"{counted(lost.sum(), 'request')} {side} the common time range of all nodes "
                    f"{were(len(lost))} trimmed"
                )
        cut.append(Sampled(load.name, start, load.step, load.counts[low:high]))
    return cut


def resample(loads: Sequence[Sampled], step: int | None, notes: list[str]) -> list[Sampled]:
    """Return the loads in steps of ``step`` seconds, as sums of whole steps.

    An incomplete step at the end is trimmed. Raises TraceError if ``step`` is not a multiple of a
    file's step, or is None for files with different steps.
    """
    steps = sorted({load.step for load in loads})
    if step is None and len(steps) > 1:
        raise fault_error(
            IMPORT,
            f"the files have different steps ({steps} seconds); pass a multiple of all as step=",
        )
    new_step = step or steps[0]
    invalid = [length for length in steps if new_step % length]
    if invalid:
        raise fault_error(
            IMPORT,
            f"step={new_step} must be a multiple of {invalid[0]} seconds, the step of the file",
        )
    summed = []
    for load in loads:
        num_steps = new_step // load.step
        full = len(load.counts) // num_steps
        remainder = load.counts[full * num_steps :]
        if len(remainder):
            notes.append(
                f"{load.name}: {counted(len(remainder), 'step')} of {load.step} s at the end, with "
                f"{counted(remainder.sum(), 'request')}, {were(len(remainder))} trimmed: too few "
                f"for a step of {new_step} s"
            )
        counts = load.counts[: full * num_steps].reshape(-1, num_steps).sum(axis=1)  # [R / many]
        summed.append(Sampled(load.name, load.start, new_step, counts))
    if not all(len(load.counts) for load in summed):
        raise fault_error(
            IMPORT,
            f"the files are shorter than one step of {new_step} seconds; pass a smaller step=",
        )
    return summed


def finish(
    loads: Sequence[Sampled], capacity: int | str | None, name: str, notes: Sequence[str]
) -> Imported:
    """Return the trace of aligned loads. Raises TraceError for loads without requests."""
    arrivals = np.stack([load.counts for load in loads], axis=1)  # [T, N]
    if not arrivals.any():
        raise fault_error(IMPORT, "the files contain no requests")
    if arrivals.max() > MAX_VALUE:
        raise fault_error(
            IMPORT, f"more than {MAX_VALUE:,} requests in one step; pass a smaller step="
        )
    start, step = loads[0].start, loads[0].step
    if not (in_calendar(start) and in_calendar(start + step * (len(arrivals) - 1))):
        raise fault_error(
            IMPORT,
            "times must be in the years 1 to 9999; check the file for a wrong time",
        )
    trace = Trace(
        nodes=tuple(load.name for load in loads),
        arrivals=arrivals,
        capacity=None,
        times=start + step * np.arange(len(arrivals)),
        clock="utc",
        name=name,
    )
    if capacity is not None:
        trace = trace.with_capacity(capacity)
    return Imported(trace, tuple(notes))


def _time(seconds: int) -> str:
    return format_time(seconds, "utc")
