"""Import web-server access logs in the Common or the Combined log format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from corral.data.fields import parse_time
from corral.data.importers.binning import Counted, Imported, Paths, file_list, finish, node_names
from corral.data.importers.kept import KeptRequests
from corral.data.read import trace_name
from corral.data.source import MAX_BYTES, MAX_CELLS, Faults, fault_error, lines, weigh

__all__ = ["LINE", "import_access_log"]

UNLIKE = 10_000
"""Reading stops after this many lines if none of them is in either format."""

# host ident user [day/month/year:hour:minute:second zone] "request" status bytes, then the other
# fields of the Combined format. The pattern matches bytes, as requests may be in any encoding. The
# first time of a line counts: (?>...) does not backtrack to a later one. Backtracking never helps
# here, and would take time quadratic in the length of a line.
LINE = re.compile(
    rb"\S+ \S+ (?>.*?\[([0-9]{2})/([A-Z][a-z]{2})/([0-9]{4}):([0-9:]{8}) ([+-][0-9]{4})\] )"
    rb'".*" (?:[0-9]{3}|-) (?:[0-9]+|-)(?: .*)?'
)
_MONTHS = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()


def import_access_log(
    paths: Paths,
    *,
    step: int,
    names: Sequence[str] | None = None,
    max_malformed: float = 0.01,
    skip_malformed: bool = False,
    capacity: int | str | None = None,
    name: str | None = None,
    keep_requests: str | Path | None = None,
    overwrite: bool = False,
    max_bytes: int = MAX_BYTES,
    max_cells: int = MAX_CELLS,
) -> Imported:
    """Import access logs, plain or gzip, counted into steps of ``step`` seconds; one node per file.

    Nodes are cut to their common time range. A line in neither format is malformed. Malformed lines
    are not counted as requests, and the notes state their number.

    Args:
        step: length of a step, in seconds.
        names: node names separated by commas; equal names join their files. Equal names join the
            parts of a rotated log.
        max_malformed: maximum share of malformed lines in a file.
        skip_malformed: skip malformed lines, however many.
        capacity: see ``Trace.with_capacity``.
        name: name of the trace; default: the file names joined by +.
        keep_requests: file for the time and node of all requests in the trace: .csv or .csv.gz. See
            ``read_request_log``. The times of an access log are whole seconds.
        overwrite: replace an existing file of ``keep_requests``.
        max_bytes: maximum size of a file after unpacking, in bytes; default: 192 MiB.
        max_cells: maximum number of cells: rows times columns, at least 10 per row; default:
            25 million.

    Raises TraceError for faults in the files, ValueError for options out of range, FileExistsError
    if the file of ``keep_requests`` exists and ``overwrite`` is not set.
    """
    if not 0 <= max_malformed <= 1:
        raise ValueError(f"max_malformed={max_malformed!r} must be between 0 and 1")
    kept = None if keep_requests is None else KeptRequests(keep_requests, overwrite=overwrite)
    counted = Counted(step)
    notes: list[str] = []
    files = file_list(paths)
    for path, node in zip(files, node_names(files, names), strict=True):
        bad: list[tuple[int, bytes]] = []  # the first few
        malformed = number = 0
        weigh(path, max_bytes=max_bytes, max_cells=max_cells)
        for number, raw in lines(path, max_bytes=max_bytes):
            line = raw.rstrip(b"\r\n")
            seconds = _seconds(line)
            if seconds is not None:
                counted.add(node, seconds)
                if kept is not None:
                    kept.add(node, seconds, 0, None)
                continue
            malformed += 1
            if malformed == number == UNLIKE and not skip_malformed:
                break
            if len(bad) < 3:
                bad.append((number, line))
        faults = Faults(path)
        if malformed == number:
            rule = "no line is in the Common or Combined log format, so the content is not shown"
            raise fault_error(path, rule)
        if malformed > max_malformed * number and not skip_malformed:
            for at, line in bad:
                text = line.decode(errors="backslashreplace") if 2 * malformed < number else None
                faults.add("not in the Common or Combined log format", at, value=text)
            faults.add(
                f"{malformed:,} of {number:,} lines are malformed, more than the allowed share of "
                f"{max_malformed:g}; repair them, or pass skip_malformed=True to skip them"
            )
        faults.check()
        if malformed:
            notes.append(
                f"{path.name}: {malformed:,} of {number:,} lines are malformed and were skipped; "
                f"the first is line {bad[0][0]}"
            )
    loads = counted.loads(notes, together=False)
    imported = finish(loads, capacity, name or "+".join(map(trace_name, files)), notes)
    if kept is None:
        return imported
    return replace(imported, notes=(*imported.notes, *kept.write(imported.trace, step)))


def _seconds(line: bytes) -> int | None:
    """Return the time of a log line in seconds since 1970-01-01 UTC; None for a malformed line."""
    match = LINE.fullmatch(line)
    if match is None:
        return None
    day, month, year, clock, zone = match.groups()
    if month not in _MONTHS:
        return None
    number = _MONTHS.index(month) + 1
    text = f"{year.decode()}-{number:02d}-{day.decode()}T{clock.decode()}{zone.decode()}"
    parsed = parse_time(text)
    return None if parsed is None else parsed[1]
