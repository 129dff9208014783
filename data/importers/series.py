"""Import load traces from CSV files with one row per time, possibly with gaps."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from corral.data.fields import (
    check_zone,
    count_rule,
    format_time,
    instant_rule,
    parse_count,
    parse_instant,
)
from corral.data.importers.binning import (
    MAX_COUNTS,
    Gaps,
    Imported,
    Paths,
    Sampled,
    align,
    check_gap,
    check_options,
    check_size,
    counted,
    file_list,
    finish,
    first_names,
    mode_of,
    node_names,
    resample,
    were,
)
from corral.data.importers.records import find_column, records
from corral.data.read import COLUMNS
from corral.data.source import MAX_BYTES, MAX_CELLS, Faults, fault_error
from corral.data.trace import MAX_VALUE, Counts

__all__ = ["import_series"]

Flags = npt.NDArray[np.bool_]

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?", re.ASCII)
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
    max_bytes: int = MAX_BYTES,
    max_cells: int = MAX_CELLS,
) -> Imported:
    """Import files of ``timestamp,value`` rows: requests per step, one node per file.

    Times are ISO-8601 or seconds since 1970. The step of a file is the most common distance between
    its times. Nodes are named after their files, or by ``names``. They are cut to their common time
    range. Values such as ``94.0`` are whole. The notes list trimmed, filled, rounded and sorted
    data.

    Args:
        names: node names separated by commas; equal names join their files.
        column: load column; default: the second.
        time_column: time column; default: the first.
        zone: time zone of times without one, such as -04:00.
        step: length of a step, in seconds; default: the step of the files. Multiples are summed.
        gaps: treatment of missing times. Refuse the file, or fill in zero, the previous value, or a
            straight line rounded to whole requests.
        round_values: round fractions to whole requests. By default they are refused.
        capacity: see ``Trace.with_capacity``.
        name: name of the trace; default: the node names joined by +.
        max_bytes: maximum size of a file after unpacking, in bytes; default: 192 MiB.
        max_cells: maximum number of cells: rows times columns, at least 10 per row; default:
            25 million.

    Raises TraceError for faults in the files, ValueError for options out of range.
    """
    check_options(gaps, steps=[step])
    check_zone(zone)
    notes: list[str] = []
    files = file_list(paths)
    parts: dict[str, list[_Part]] = {}
    for path, node in zip(files, node_names(files, names), strict=True):
        part = _Part(path, notes)
        part.read(time_column, column, zone, round_values, max_bytes=max_bytes, max_cells=max_cells)
        parts.setdefault(node, []).append(part)
    loads = [_sample(node, of_node, gaps, notes) for node, of_node in parts.items()]
    loads = resample(align(loads, notes), step, notes)
    return finish(loads, capacity, name or "+".join(parts), notes)


class _Part:
    """The times, counts and line numbers of one file."""

    def __init__(self, path: Path, notes: list[str]) -> None:
        self.path = path
        self.faults = Faults(path)
        self.notes = notes
        self.times, self.counts, self.lines = array("q"), array("q"), array("q")  # [R] each
        self.other_columns: list[str] = []  # columns that are not read

    def read(
        self,
        time_column: str | None,
        column: str | None,
        zone: str,
        rounds: bool,
        *,
        max_bytes: int,
        max_cells: int,
    ) -> None:
        rows = records(
            self.path,
            self.faults,
            self.notes,
            max_bytes=max_bytes,
            max_cells=max_cells,
            named=[name for name in (time_column, column) if name],
        )
        _, header = next(rows)
        if column is None and tuple(header) in (COLUMNS, COLUMNS[:3]):
            self.faults.add(f"this is already a trace; run corral replay {self.path}", 1)
            self.faults.check()
        time_at = find_column(header, time_column, 0, self.faults)
        value_at = find_column(header, column, 1 if time_at == 0 else 0, self.faults)
        self.other_columns = [
            name for at, name in enumerate(header) if at not in (time_at, value_at)
        ]
        rounded = 0
        for line, fields in rows:
            if not self.times and column is None:
                self._check_other_columns(header, fields)
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
                rule = count_rule(text)
                if _DECIMAL.fullmatch(text):
                    rule += "; to round each value, pass round_values (on the command line --round)"
                self.faults.add(rule, line, header[value_at], text)
            elif len(self.times) == MAX_COUNTS:
                rule = f"more than {MAX_COUNTS:,} rows; split the file, and import its parts"
                raise fault_error(self.path, rule, line)
            else:
                self.times.append(instant[0])
                self.counts.append(count)
                self.lines.append(line)
        self.faults.check()
        if rounded:
            words = f"{counted(rounded, 'fraction')} {were(rounded)} rounded"
            self.notes.append(f"{self.path.name}: {words}")
        if self.other_columns:
            self.notes.append(
                f"{self.path.name}: columns not read: {first_names(self.other_columns)}"
            )
        if not self.times:
            self.faults.add("the file has no rows below the header")
            self.faults.check()

    def _check_other_columns(self, header: Sequence[str], fields: Sequence[str]) -> None:
        """Refuse a table with further number columns in its first row, to skip no load unseen."""
        numbers = [n for n in self.other_columns if _NUMBER.fullmatch(fields[header.index(n)])]
        if numbers:
            self.faults.add(
                f"other columns hold numbers, too ({first_names(numbers)}). Pass column= for one "
                f"of them, or run corral trace import {self.path} for one node per column",
                1,
            )
            self.faults.check()


def _sample(node: str, parts: Sequence[_Part], gaps: Gaps, notes: list[str]) -> Sampled:
    """Return the load of a node on an even grid, with gaps filled by the rule ``gaps``."""
    times = np.concatenate([np.array(part.times) for part in parts])  # [R]
    counts = np.concatenate([np.array(part.counts) for part in parts])  # [R]
    if len(times) < 2:
        parts[0].faults.add("a single row has no step; at least two rows are required")
        parts[0].faults.check()
    order = np.argsort(times, kind="stable")
    if (np.diff(order) < 0).any():
        notes.append(f"{node}: rows were out of order, and were sorted by time")
    times, counts = times[order], counts[order]
    distance = np.diff(times)  # [R - 1]

    def place(row: int) -> tuple[_Part, int]:
        """Return the file and the line of a row, by its index in order of time."""
        at = int(order[row])
        for part in parts:
            if at < len(part.lines):
                return part, part.lines[at]
            at -= len(part.lines)
        raise AssertionError

    def refuse(rows: Flags, rule: str) -> None:
        """Raise a fault for the first row at a wrong distance from the previous row."""
        if rows.any():
            at = int(rows.argmax()) + 1
            part, line = place(at)
            when = format_time(int(times[at]), "utc")
            part.faults.add(rule.format(distance[at - 1]), line, "time", when)
            part.faults.check()

    if not distance.all():
        at = int((distance == 0).argmax())
        refuse(distance == 0, _repeated_rule(place(at + 1)[0], counts[at] == counts[at + 1]))
    check_gap(times, str(parts[0].path))
    step = mode_of(distance)
    refuse(distance % step > 0, f"{{}} s after the previous row, not a multiple of {step} s")
    missing = int((distance // step - 1).sum())
    if gaps == "refuse":
        missing_text = (
            f"{counted(missing, 'step')} {'is' if missing == 1 else 'are'} missing in all"
        )
        rule = (
            f"{{}} s after the previous row, but the step is {step} s; {missing_text}. "
            "Pass gaps='zero', 'previous' or 'interpolate' to fill them"
        )
        refuse(distance > step, rule)
    check_size(missing, str(parts[0].path), int(times[0]))
    if missing:
        notes.append(
            f"{node}: {counted(missing, 'missing step')} {were(missing)} filled (gaps={gaps!r})"
        )
    index = (times - times[0]) // step
    return Sampled(node, int(times[0]), step, _fill(index, counts, gaps))


def _repeated_rule(part: _Part, same_value: bool) -> str:
    """Return the reason why a repeated time is refused, with a remedy."""
    rule = "this time occurs twice"
    if part.other_columns:
        message = (
            f"{rule}, and the file has other columns ({first_names(part.other_columns)}). If one "
            f"of them names the server, run corral trace import {part.path} --node-column NAME"
        )
        return message.replace("{", "{{").replace("}", "}}")
    if same_value:
        return f"{rule}, with the same value; remove one of the rows"
    return (
        f"{rule}, with two values. If they are parts of one count, add them up. If they belong to "
        "two servers, add a column that names the server"
    )


def _fill(index: Counts, counts: Counts, gaps: Gaps) -> Counts:
    """Return the counts [index[-1] + 1] of the whole grid. Row r belongs at ``index[r]``."""
    grid = np.arange(index[-1] + 1)
    if gaps == "interpolate":
        line: Counts = np.rint(np.interp(grid, index, counts)).astype(np.int64)
        return line
    if gaps == "previous":
        return counts[np.searchsorted(index, grid, side="right") - 1]
    filled = np.zeros(len(grid), dtype=np.int64)
    filled[index] = counts
    return filled
