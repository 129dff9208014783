"""Import load traces from CSV files in other shapes: counts per time, or one row per request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from corral.data.checks import format_time
from corral.data.fields import count_rule, name_rule, parse_count
from corral.data.importers.binning import (
    Counted,
    Gaps,
    Imported,
    Paths,
    Sampled,
    align,
    check_size,
    check_step,
    file_list,
    finish,
    node_names,
    resample,
)
from corral.data.importers.records import (
    IMPORT_BYTES,
    Faults,
    check_zone,
    find_column,
    instant_rule,
    parse_instant,
    records,
)
from corral.data.read import trace_name
from corral.data.trace import MAX_VALUE, Counts

__all__ = ["import_requests", "import_series"]

_DECIMAL = re.compile(r"[0-9]{1,18}\.[0-9]*", re.ASCII)


def import_series(
    paths: Paths,
    *,
    names: Sequence[str] | None = None,
    column: str | None = None,
    time_column: str | None = None,
    zone: str = "Z",
    step: int | None = None,
    gaps: Gaps = "refuse",
    round_values: bool = False,
    capacity: int | str | None = None,
    name: str | None = None,
    max_bytes: int = IMPORT_BYTES,
) -> Imported:
    """Files of ``timestamp,value`` rows: requests per step, one node per file.

    Read are ``time_column`` (default: the first) and ``column`` (default: the second); times are
    ISO-8601, in ``zone`` (such as ``-04:00``) where they name none, or seconds since 1970. A file's
    own step is the commonest distance of its times. Nodes are called like their files, or as
    ``names`` says; files with equal names are parts of one node. Nodes are cut to the time they
    have in common.

    ``step``: seconds; whole multiples of the files' own step are summed. ``gaps``: what to do
    where times are missing: refuse the file, or fill in zero, the previous value, or a straight
    line rounded to whole requests. Values such as ``94.0`` are whole; other fractions are refused
    unless ``round_values``. ``capacity``: see ``Trace.with_capacity``. What was trimmed, filled,
    rounded or sorted stands in ``notes``.

    Raises TraceError for faults in the files, ValueError for options out of range.
    """
    check_step(step)
    check_zone(zone)
    if gaps not in ("refuse", "zero", "previous", "interpolate"):
        raise ValueError(f"gaps={gaps!r} must be refuse, zero, previous or interpolate")
    notes: list[str] = []
    files = file_list(paths)
    parts: dict[str, list[_Part]] = {}
    for path, node in zip(files, node_names(files, names), strict=True):
        part = _Part(path, notes)
        part.read(time_column, column, zone, round_values, max_bytes)
        parts.setdefault(node, []).append(part)
    loads = [_regular(node, of_node, gaps, notes) for node, of_node in parts.items()]
    loads = resample(align(loads, notes), step, notes)
    return finish(loads, capacity, name or "+".join(parts), notes)


class _Part:
    """Times, counts and line numbers of one file."""

    def __init__(self, path: Path, notes: list[str]) -> None:
        self.path = path
        self.faults = Faults(path)
        self.notes = notes
        self.times: list[int] = []
        self.counts: list[int] = []
        self.lines: list[int] = []

    def read(
        self, time_column: str | None, column: str | None, zone: str, rounds: bool, max_bytes: int
    ) -> None:
        rows = records(self.path, self.faults, self.notes, max_bytes=max_bytes)
        _, header = next(rows)
        time_at = find_column(header, time_column, 0, self.faults)
        value_at = find_column(header, column, 1 if time_at == 0 else 0, self.faults)
        rounded = 0
        for line, fields in rows:
            instant = parse_instant(fields[time_at], zone)
            text = fields[value_at]
            count = parse_count(text)
            if count is None and _DECIMAL.fullmatch(text):
                fraction = bool(text.partition(".")[2].strip("0"))
                if float(text) <= MAX_VALUE and (rounds or not fraction):
                    count = round(float(text))
                    rounded += fraction
            if instant is None or instant[1]:
                rule = instant_rule(fields[time_at])
                self.faults.add(rule, line, header[time_at], fields[time_at])
            elif count is None:
                self.faults.add(count_rule(text), line, header[value_at], text)
            else:
                self.times.append(instant[0])
                self.counts.append(count)
                self.lines.append(line)
        self.faults.check()
        if rounded:
            self.notes.append(f"{self.path.name}: {rounded:,} fractions were rounded")
        if not self.times:
            self.faults.add("no rows below the header")
            self.faults.check()


def _regular(node: str, parts: Sequence[_Part], gaps: Gaps, notes: list[str]) -> Sampled:
    """The load of a node on an even grid, its gaps filled as ``gaps`` says."""
    faults, path = parts[0].faults, parts[0].path
    times = np.concatenate([part.times for part in parts]).astype(np.int64)
    counts = np.concatenate([part.counts for part in parts]).astype(np.int64)
    where = [(part, line) for part in parts for line in part.lines]
    if len(times) < 2:
        faults.add("a single row has no step; two or more are needed")
        faults.check()
    order = np.argsort(times, kind="stable")
    if (np.diff(order) < 0).any():
        notes.append(f"{node}: rows were not in order of time; they were sorted")
    times, counts = times[order], counts[order]
    gap = np.diff(times)

    def fault(at: int, rule: str) -> None:
        part, line = where[order[at]]
        part.faults.add(rule, line, "time", format_time(int(times[at]), "utc"))
        part.faults.check()

    for at in np.flatnonzero(gap == 0)[:1] + 1:
        fault(int(at), "this time stands there twice; keep one of the rows")
    sizes, often = np.unique(gap, return_counts=True)
    step = int(sizes[often.argmax()])
    for at in np.flatnonzero(gap % step)[:1] + 1:
        rule = f"{gap[at - 1]} s after the row before, no multiple of the usual {step} s"
        fault(int(at), rule)
    holes = int((gap // step - 1).sum())
    if holes and gaps == "refuse":
        at = int(np.flatnonzero(gap > step)[0]) + 1
        rule = (
            f"{gap[at - 1]} s after the row before, the step is {step} s; {holes} steps are "
            "missing in all: choose gaps='zero', 'previous' or 'interpolate' to fill them"
        )
        fault(at, rule)
    check_size(holes, str(path), int(times[0]))
    if holes:
        notes.append(f"{node}: {holes:,} missing steps were filled (gaps={gaps!r})")
    place = (times - times[0]) // step
    return Sampled(node, int(times[0]), step, _filled(place, counts, gaps))


def _filled(place: Counts, counts: Counts, gaps: Gaps) -> Counts:
    """The counts on the grid 0 .. place[-1], where row r stands at ``place[r]``."""
    grid = np.arange(place[-1] + 1)
    if gaps == "interpolate":
        line: Counts = np.rint(np.interp(grid, place, counts)).astype(np.int64)
        return line
    filled = np.zeros(len(grid), dtype=np.int64)
    if gaps == "previous":
        filled = counts[np.searchsorted(place, grid, side="right") - 1]
    filled[place] = counts
    return filled


def import_requests(
    paths: Paths,
    *,
    step: int,
    column: str | None = None,
    node_column: str | None = None,
    names: Sequence[str] | None = None,
    zone: str = "Z",
    capacity: int | str | None = None,
    name: str | None = None,
    max_bytes: int = IMPORT_BYTES,
) -> Imported:
    """Files with one row per request, counted into steps of ``step`` seconds.

    ``column`` (default: the first) holds the time of a request: ISO-8601 (in ``zone`` where it
    names none) or seconds since 1970, with fractions of a second where it has them. Each file is
    a node, called like the file or as ``names`` says (equal names: one node), and the nodes are
    cut to the time they have in common. With ``node_column`` that column names the node instead,
    in all files, and nothing is cut. A step without rows counts 0. Steps begin at multiples of
    ``step`` seconds since 1970-01-01 UTC. ``capacity``: see ``Trace.with_capacity``.

    Raises TraceError for faults in the files, ValueError for options out of range.
    """
    check_zone(zone)
    counted = Counted(step)
    notes: list[str] = []
    files = file_list(paths)
    if node_column is not None and names is not None:
        raise ValueError("give names= or node_column=, not both")
    nodes = [""] * len(files) if node_column is not None else node_names(files, names)
    for path, node in zip(files, nodes, strict=True):
        faults = Faults(path)
        rows = records(path, faults, notes, max_bytes=max_bytes)
        _, header = next(rows)
        time_at = find_column(header, column, 0, faults)
        node_at = None if node_column is None else find_column(header, node_column, 0, faults)
        line = 1
        for line, fields in rows:
            instant = parse_instant(fields[time_at], zone)
            if node_at is not None:
                node = fields[node_at]
                rule = name_rule(node)
                if rule is not None:
                    faults.add(rule, line, header[node_at], node)
            if instant is None:
                faults.add(instant_rule(fields[time_at]), line, header[time_at], fields[time_at])
            else:
                counted.add(node, instant[0])
        if line == 1:
            faults.add("no rows below the header")
        faults.check()
    loads = counted.loads(notes, together=node_column is not None)
    return finish(loads, capacity, name or "+".join(map(trace_name, files)), notes)
