"""From loads that are counted or sampled per node to one aligned trace, with notes on the way."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from corral.data.fields import format_time, in_calendar, name_rule
from corral.data.source import MAX_CELLS, MAX_NODES, fault_error
from corral.data.trace import MAX_VALUE, Counts, Trace

__all__ = [
    "MAX_COUNTS",
    "Counted",
    "Gaps",
    "Guess",
    "Imported",
    "Paths",
    "Sampled",
    "align",
    "check_gap",
    "check_size",
    "check_step",
    "counted",
    "file_list",
    "finish",
    "node_names",
    "resample",
    "some",
    "were",
]

MAX_COUNTS = 5_000_000
"""Steps with requests, and rows of a series, that an import keeps in memory."""

LONGEST_GAP = 366 * 86_400
"""Seconds between two times beyond which one of them is wrong, or they are of two recordings."""

IMPORT = "import"  # what errors name that are of no single file

Gaps = Literal["refuse", "zero", "previous", "interpolate"]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class Guess:
    """Something that was found in a file, such as its zone, and the option that changes it."""

    what: str  # one word: layout, time, zone, nodes, unit, step, gaps, capacity, unused
    found: str
    change: str = ""  # as an argument: "zone=Europe/Rome"
    accept: str = ""  # of an assumption that changes the load: the argument that says the same


@dataclass(frozen=True)
class Imported:
    """An imported trace, and in plain sentences what was trimmed, filled, rounded or left out.

    ``guesses``: what the file was taken for, where the importer had to find out.
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
    """Return ``paths`` as a list. Raises ValueError where it is empty."""
    if isinstance(paths, str | os.PathLike):
        return [Path(paths)]
    found = [Path(path) for path in paths]
    if not found:
        raise ValueError("no files: give at least one path")
    return found


def node_names(paths: Sequence[Path], names: Sequence[str] | None) -> list[str]:
    """Return a node name per file: ``names``, or the files' names without folder and suffix.

    Raises ValueError where there are not as many names as files, or a name cannot be one, and
    where two files are called alike. Equal ``names`` are meant: their files belong to one node.
    """
    if names is None:
        names = [Path(path.name.removesuffix(".gz")).stem for path in paths]
        repeated = [name for name, times in Counter(names).items() if times > 1]
        if repeated:
            raise ValueError(f"several files are called {repeated[0]!r}: give names=")
    if isinstance(names, str) or len(names) != len(paths):
        raise ValueError(f"names={names!r} must be {len(paths)} names, one per file")
    for name in names:
        rule = name_rule(name)
        if rule is not None:
            raise ValueError(f"node name {name!r}: {rule}")
    return list(names)


def counted(number: int, what: str) -> str:
    """Return "1 step", "1,234 steps", ..."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def some(names: Sequence[str]) -> str:
    """Return the first few of names, with commas."""
    return ", ".join(names[:3]) + (f", ... ({len(names)} in all)" if len(names) > 3 else "")


def were(number: int) -> str:
    return "was" if number == 1 else "were"


def check_step(step: int | None) -> None:
    """Raise ValueError where ``step`` is neither None nor a whole number of seconds, 1 or more."""
    if step is not None and (isinstance(step, bool) or step != int(step) or step < 1):
        raise ValueError(f"step={step!r} must be a whole number of seconds, 1 or more")


def check_size(steps: int, what: str, start: int) -> None:
    """Raise TraceError where so many steps cannot be meant."""
    if steps > MAX_CELLS:
        rule = (
            f"{steps:,} steps from {_time(start)} on, more than {MAX_CELLS:,}: "
            "look for a wrong time, or choose a larger step"
        )
        raise fault_error(what, rule)


def check_gap(times: Counts, what: str) -> None:
    """Raise TraceError where two neighbors of ``times`` [T], seconds in order, are years apart."""
    gaps = np.diff(times)
    if len(gaps) and gaps.max() > LONGEST_GAP:
        at = int(gaps.argmax())
        days = int(gaps[at]) // 86_400
        rule = (
            f"nothing between {_time(int(times[at]))} and {_time(int(times[at + 1]))}: "
            f"{days:,} days ({days / 365.25:.0f} years) without any; look for a wrong time, or "
            "import the parts as files of their own"
        )
        raise fault_error(what, rule)


class Counted:
    """Requests counted into bins of ``step`` seconds, which begin at multiples of it since 1970."""

    def __init__(self, step: int) -> None:
        check_step(step)
        self.step = step
        self.bins: dict[str, Counter[int]] = {}
        self.left = MAX_COUNTS  # steps that may yet be met, of any node

    def add(self, node: str, seconds: int) -> None:
        """Count one request. Raises TraceError where there are too many nodes or steps."""
        counter = self.bins.get(node)
        if counter is None:
            counter = self.bins[node] = Counter()
            if len(self.bins) > MAX_NODES:
                rule = f"more than {MAX_NODES:,} nodes, the last {node!r}: is this column an id?"
                raise fault_error(IMPORT, rule)
        index = seconds // self.step
        self.left -= index not in counter
        counter[index] += 1
        if self.left < 0:
            rule = f"requests in more than {MAX_COUNTS:,} steps: choose a larger step"
            raise fault_error(IMPORT, rule)

    def loads(self, notes: list[str], *, together: bool) -> list[Sampled]:
        """Return the loads of all nodes, aligned.

        ``together``: one recording saw all nodes, so that one without requests had none. Otherwise
        each node was recorded from its first request to its last.
        """
        met = np.sort(np.concatenate([np.fromiter(c, np.int64) for c in self.bins.values()]))
        check_gap(met * self.step, IMPORT)
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
        notes.append("the first and the last step may be recorded in part only")
        return loads


def align(loads: Sequence[Sampled], notes: list[str]) -> list[Sampled]:
    """Return the loads cut to the time that all have in common; what is cut is noted.

    Raises TraceError where they have no time in common, or not the same grid of steps.
    """
    start, end = max(load.start for load in loads), min(load.end for load in loads)
    if start >= end:
        spans = "; ".join(f"{x.name}: {_time(x.start)} to {_time(x.end)}" for x in loads[:3])
        raise fault_error(IMPORT, f"the nodes have no time in common ({spans})")
    cut = []
    for load in loads:
        if (start - load.start) % load.step:
            raise fault_error(
                IMPORT,
                f"the steps of {load.name!r} do not begin at {_time(start)}, where those of other "
                "nodes do: the files cannot be aligned without splitting counts",
            )
        low, high = (start - load.start) // load.step, (end - load.start) // load.step
        for what, lost in (("before", load.counts[:low]), ("after", load.counts[high:])):
            if len(lost):
                notes.append(
                    f"{load.name}: {counted(len(lost), 'step')} with "
                    f"{counted(lost.sum(), 'request')} {what} the time that all nodes have in "
                    f"common {were(len(lost))} trimmed"
                )
        cut.append(Sampled(load.name, start, load.step, load.counts[low:high]))
    return cut


def resample(loads: Sequence[Sampled], step: int | None, notes: list[str]) -> list[Sampled]:
    """Return the loads in steps of ``step`` seconds, sums of whole steps; a rest is trimmed.

    Raises TraceError where ``step`` is no multiple of a file's own, or is needed and None.
    """
    steps = sorted({load.step for load in loads})
    if step is None and len(steps) > 1:
        raise fault_error(IMPORT, f"the files have different steps ({steps} seconds): give step=")
    new = step or steps[0]
    wrong = [each for each in steps if new % each]
    if wrong:
        raise fault_error(
            IMPORT, f"step={new} is no multiple of the file's own step of {wrong[0]} seconds"
        )
    summed = []
    for load in loads:
        many = new // load.step
        full = len(load.counts) // many
        rest = load.counts[full * many :]
        if len(rest):
            notes.append(
                f"{load.name}: {counted(len(rest), 'step')} of {load.step} s at the end, with "
                f"{counted(rest.sum(), 'request')}, {were(len(rest))} trimmed: not enough to fill "
                f"a step of {new} s"
            )
        counts = load.counts[: full * many].reshape(-1, many).sum(axis=1)  # [R / many]
        summed.append(Sampled(load.name, load.start, new, counts))
    if not all(len(load.counts) for load in summed):
        raise fault_error(IMPORT, f"the files are shorter than one step of {new} seconds")
    return summed


def finish(
    loads: Sequence[Sampled], capacity: int | str | None, name: str, notes: Sequence[str]
) -> Imported:
    """Return the trace of aligned loads. Raises TraceError where nothing arrives at all."""
    arrivals = np.stack([load.counts for load in loads], axis=1)  # [T, N]
    if not arrivals.any():
        raise fault_error(IMPORT, "no requests at all")
    if arrivals.max() > MAX_VALUE:
        raise fault_error(
            IMPORT, f"more than {MAX_VALUE:,} requests in one step: choose a smaller step"
        )
    start, step = loads[0].start, loads[0].step
    if not (in_calendar(start) and in_calendar(start + step * (len(arrivals) - 1))):
        raise fault_error(IMPORT, "times must lie in the years 1 to 9999: look for a wrong time")
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
