"""Import the logs of web servers, load balancers and proxies, with one line per request."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from corral.data.fields import name_rule
from corral.data.importers.binning import (
    Counted,
    Guess,
    Imported,
    Paths,
    counted,
    file_list,
    finish,
    first_names,
    node_names,
    were,
)
from corral.data.importers.kept import KeptRequests
from corral.data.importers.log_formats import FORMATS, NO_SERVER, Split, find_format, log_rows
from corral.data.importers.tables.capacities import set_capacities
from corral.data.importers.tables.cells import Table
from corral.data.importers.tables.times import UNDATED, reader_of, style_of
from corral.data.importers.tables.zones import find_zone, to_utc
from corral.data.read import trace_name
from corral.data.source import (
    MAX_BYTES,
    MAX_CELLS,
    MAX_NODES,
    Faults,
    fault_error,
    head_of,
    line_batches,
    weigh,
)

__all__ = ["import_access_log"]

UNLIKE = 10_000
"""Reading stops after this many lines if none of them is in the format."""

MAX_CACHED = 2**17
"""Maximum number of times in memory. Equal times are parsed once."""


def import_access_log(
    paths: Paths,
    *,
    step: int = 60,
    format: str | None = None,
    pattern: str | None = None,
    time_column: str | None = None,
    node_column: str | None = None,
    zone: str | None = None,
    time_format: str | None = None,
    names: Sequence[str] | None = None,
    max_malformed: float = 0.01,
    skip_malformed: bool = False,
    capacity: int | str | Mapping[str, int | str] | None = None,
    name: str | None = None,
    keep_requests: str | Path | None = None,
    overwrite: bool = False,
    max_bytes: int = MAX_BYTES,
    max_cells: int = MAX_CELLS,
    guesses: list[Guess] | None = None,
) -> Imported:
    """Import logs with one line per request, plain or gzip, counted into steps of ``step`` seconds.

    If the lines name a server, each server is a node, as in the log of a load balancer. Otherwise
    each file is a node, and all nodes are cut to their common time range. Malformed lines, and
    requests without a server, are not counted as requests. The notes state their numbers.

    Args:
        step: length of a step, in seconds; default: 60.
        format: format of the lines: combined, nginx-upstream, nginx-amplify, vhost, alb, haproxy,
            envoy, w3c (IIS, CloudFront) or json (NGINX, Caddy, Loki); default: recognized.
        pattern: regular expression of a line, with the groups (?P<time>...), (?P<node>...) and
            (?P<count>...); only time is required. A group (?P<zone>...) is appended to the time.
        time_column: path of the time in JSON lines, such as ts or request.time.
        node_column: path of the node in JSON lines, or its field in the W3C format.
        zone: time zone of times without one: Z, -04:00 or Europe/Rome; default: Z.
        time_format: format of the times, such as '%d %b %Y %H:%M:%S'. See ``datetime.strptime``.
        names: node names separated by commas, one per file; equal names join the parts of a rotated
            log. With names, the servers in the lines are not read.
        max_malformed: maximum share of malformed lines in a file.
        skip_malformed: skip malformed lines, however many.
        capacity: requests per step, 1.25x of the mean load, a=100,b=80, or a file of node,capacity
            rows.
        name: name of the trace; default: the file names joined by +.
        keep_requests: file for the time and node of all requests in the trace: .csv or .csv.gz. See
            ``read_request_log``. The times are whole seconds.
        overwrite: replace an existing file of ``keep_requests``.
        max_bytes: maximum size of a file after unpacking, in bytes; default: 192 MiB.
        max_cells: maximum number of cells: rows times columns, at least 10 per row; default:
            25 million.
        guesses: list to which the guesses are appended.

    Raises TraceError for faults in the files, ValueError for options out of range, FileExistsError
    if the file of ``keep_requests`` exists and ``overwrite`` is not set.
    """
    if not 0 <= max_malformed <= 1:
        raise ValueError(f"max_malformed={max_malformed!r} must be between 0 and 1")
    kept = None if keep_requests is None else KeptRequests(keep_requests, overwrite=overwrite)
    total = Counted(step)
    notes: list[str] = []
    guess_list = [] if guesses is None else guesses
    files = file_list(paths)
    formats = [
        find_format(path, format, pattern, time_column, node_column, max_bytes) for path in files
    ]
    by_line = names is None and all(names_nodes for *_, names_nodes in formats)
    of_file = [""] * len(files) if by_line else node_names(files, names)
    allowed = 1.0 if skip_malformed else max_malformed
    is_local = False
    for path, node, (title, split, _) in zip(files, of_file, formats, strict=True):
        weigh(path, max_bytes=max_bytes, max_cells=max_cells)
        log = _Log(path, title, split, time_format, None if by_line else node)
        log.read(max_bytes, allowed, notes)
        is_local = is_local or not log.is_zoned
        log.add_to(total, kept, zone or "Z", notes)
    title = formats[0][0]
    names_of = {log_format.title: key for key, log_format in FORMATS.items()}
    change = f"format={names_of[title]}" if title in names_of else "format= or pattern="
    guess_list.append(Guess("format", title, change))
    guess_list.append(Guess("step", f"{step} s", "step=300"))
    nodes = f"{len(total.bins)}, named in the lines: {first_names(list(total.bins))}"
    guess_list.append(Guess("nodes", nodes if by_line else "one per file", "names=a,b"))
    if is_local:
        text = zone or "not stated; UTC is assumed"
        guess_list.append(Guess("zone", text, "zone=Europe/Rome", "" if zone else "zone=Z"))
    loads = total.loads(notes, together=by_line)
    trace = finish(loads, None, name or "+".join(map(trace_name, files)), notes).trace
    if capacity is not None:
        trace = set_capacities(trace, capacity, guess_list, notes)
    if kept is not None:
        notes += kept.write(trace, step)
    if by_line and names_of.get(title) in OF_BALANCERS:
        notes.append(ONE_BALANCER)
    return Imported(trace, tuple(notes), tuple(guess_list))


OF_BALANCERS = ("nginx-upstream", "nginx-amplify", "alb", "haproxy", "envoy")
"""Formats in which a balancer names the server that it chose."""

ONE_BALANCER = (
    "these servers are behind a balancer: a forwarded request is one that it gives to another "
    "server than in this log; if that is free, leave out forward_cost="
)

_SECOND = re.compile(r"(:[0-9]{2}:)([0-5][0-9])(?:[.,][0-9]{1,9})?(?![0-9:.,])")


class _Seconds(dict[Any, "int | None"]):
    """The times of a log by their texts; None for a text that is not a time.

    ``zoned`` tells for the last times if they state their zone.
    """

    def __init__(self, path: Path, sample: Sequence[Any], time_format: str | None) -> None:
        style = style_of(sample)
        if style is None or style in UNDATED:
            style = "ISO-8601"
        self.read = reader_of(style, time_format)
        self.path, self.has_clock = path, not time_format and "1970" not in style
        self.zoned: bool | None = None

    def __missing__(self, text: Any) -> int | None:
        if len(self) >= MAX_CACHED:
            self.clear()
        cell = _decoded(text)
        second = _SECOND.search(cell) if self.has_clock else None
        minute = second and f"{cell[: second.start(2)]}00{cell[second.end() :]}"
        if second and minute != cell:
            begin = self[minute]
            self[text] = None if begin is None else begin + int(second[2])
            return self[text]
        parsed = self.read(cell)
        if parsed is not None:
            if self.zoned not in (None, parsed[1]):
                raise fault_error(self.path, "only some times state their zone; split the file")
            self.zoned = parsed[1]
        self[text] = None if parsed is None else parsed[0]
        return self[text]


class _Nodes(dict[Any, int]):
    """The number of each node by its text. The last of several servers had the request."""

    def __init__(self, path: Path) -> None:
        self.path, self.number_of = path, dict.fromkeys([""], 0)  # 0: no server

    def __missing__(self, text: Any) -> int:
        name = _decoded("" if text is None else text).replace(" : ", ", ").rpartition(", ")[2]
        name = "" if name.strip() in NO_SERVER else name.strip()
        if name and (rule := name_rule(name)) is not None:
            raise fault_error(self.path, f"node {name!r}: {rule}")
        self[text] = self.number_of.setdefault(name, len(self.number_of))
        if len(self.number_of) > MAX_NODES:
            rule = (
                f"more than {MAX_NODES:,} nodes, the last one {name!r}. The node may be a client; "
                "pass another format= or pattern="
            )
            raise fault_error(self.path, rule)
        return self[text]


def _decoded(text: Any) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)


@dataclass
class _Log:
    """The requests of one file: the ``seconds``, ``line``, ``node`` and ``count`` of each.

    ``name`` is the node of all requests; None if the lines name it.
    """

    path: Path
    title: str
    split: Split
    time_format: str | None
    name: str | None
    seconds: array[int] = field(default_factory=lambda: array("q"))
    line: array[int] = field(default_factory=lambda: array("q"))
    node: array[int] = field(default_factory=lambda: array("i"))
    count: array[int] = field(default_factory=lambda: array("q"))
    names: list[str] = field(default_factory=list)
    is_zoned: bool = True

    def read(self, max_bytes: int, max_malformed: float, notes: list[str]) -> None:
        """Read the file. Raises TraceError for a larger share of malformed lines."""
        path = self.path
        head = self.split(log_rows(head_of(path, max_bytes=max_bytes))[:200])
        sample = [_decoded(fields[0]) for fields in head if fields]
        second_of, number_of = _Seconds(path, sample, self.time_format), _Nodes(path)
        bad: list[tuple[int, bytes]] = []  # the first few
        malformed = comments = total = 0
        for first, rows, _ in line_batches(path, max_bytes=max_bytes):
            lines = [row.rstrip(b"\r") for row in rows]
            fields = self.split(lines)
            times = [second_of[row[0]] if row else None for row in fields]
            counts = [1 if not row or len(row) < 3 else _whole(row[2]) for row in fields]
            good = [bool(row) for row in fields]
            if not all(good) or None in times or None in counts:
                checks = zip(good, times, counts, strict=True)
                good = [named and None not in (time, n) for named, time, n in checks]
                wrong = [at for at, row in enumerate(fields) if row != () and not good[at]]
                comments += sum(row == () for row in fields)
                malformed += len(wrong)
                bad += [(first + at, lines[at]) for at in wrong[: 3 - len(bad)]]
            total += len(rows)
            self.line.extend(compress(range(first, first + len(rows)), good))
            self.seconds.extend(time for time in compress(times, good) if time is not None)
            self.count.extend(n for n in compress(counts, good) if n is not None)
            if self.name is None:
                self.node.extend(number_of[row[1]] for row in compress(fields, good) if row)
            if malformed == total >= UNLIKE and max_malformed < 1:
                break
        total -= comments
        if malformed == total:
            rule = f"no line is in {self.title}, so the content is not shown"
            raise fault_error(path, rule)
        faults = Faults(path)
        if malformed > max_malformed * total:
            for line, text in bad:
                value = text.decode(errors="backslashreplace") if 2 * malformed < total else None
                faults.add(f"not in {self.title}", line, value=value)
            faults.add(
                f"{malformed:,} of {total:,} lines are malformed, more than the allowed share of "
                f"{max_malformed:g}; repair them, pass another format= or pattern=, or pass "
                "skip_malformed=True to skip them"
            )
        faults.check()
        if malformed:
            notes.append(
                f"{path.name}: {malformed:,} of {total:,} lines are malformed and were skipped; "
                f"the first is line {bad[0][0]}"
            )
        self.names = list(number_of.number_of)
        self.is_zoned = second_of.zoned is not False

    def add_to(
        self, total: Counted, kept: KeptRequests | None, zone: str, notes: list[str]
    ) -> None:
        """Add the requests to ``total`` and ``kept``. ``zone`` is that of times without one."""
        seconds = np.frombuffer(self.seconds, dtype=np.int64)  # [R]
        place = find_zone(zone)
        if not self.is_zoned:
            rows = Table(self.path, {}, np.frombuffer(self.line, dtype=np.int64), None)
            if isinstance(place, ZoneInfo):
                seconds = to_utc(rows, seconds, place, None, notes)
            else:
                seconds = seconds - place
        count = np.frombuffer(self.count, dtype=np.int64)
        node, names = np.zeros_like(seconds), [self.name or ""]
        if self.name is None:
            node, names = np.frombuffer(self.node, dtype=np.int32).astype(np.int64), self.names
            lost = int(count[node == 0].sum())
            if lost == count.sum():
                raise fault_error(self.path, f"{self.title}: no line names a server")
            if lost:
                notes.append(
                    f"{self.path.name}: {counted(lost, 'request')} without a server "
                    f"{were(lost)} left out, of {int(count.sum()):,}"
                )
            served = node > 0
            seconds, node, count = seconds[served], node[served], count[served]
        key = seconds // total.step * len(names) + node
        keys, of_row = np.unique(key, return_inverse=True)
        sums = np.bincount(of_row, weights=count)
        for (index, number), requests in zip(
            (divmod(key, len(names)) for key in keys.tolist()), sums.tolist(), strict=True
        ):
            total.add(names[number], index * total.step, int(requests))
        if kept is not None:
            for number, at, requests in zip(
                node.tolist(), seconds.tolist(), count.tolist(), strict=True
            ):
                for _ in range(requests):
                    kept.add(names[number], at, 0, None)


def _whole(text: Any) -> int | None:
    text = _decoded(text)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
