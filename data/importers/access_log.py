"""Import web-server access logs in the Common or the Combined log format."""

from __future__ import annotations

import re
from collections.abc import Sequence

from corral.data.fields import parse_time
from corral.data.importers.binning import Counted, Imported, Paths, file_list, finish, node_names
from corral.data.read import trace_name
from corral.data.source import MAX_BYTES, MAX_CELLS, Faults, fault_error, lines, weigh

__all__ = ["LINE", "import_access_log"]

UNLIKE = 10_000
"""Lines at the beginning of a file, none in either format, after which no more are read."""

# host ident user [day/month/year:hour:minute:second zone] "request" status bytes, then whatever
# the Combined format adds. Bytes, because requests hold what clients sent, in any encoding. The
# first time of a line is its time: (?>...) never looks for a later one, which could not help, and
# would take time with the square of a line's length.
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
    max_bytes: int = MAX_BYTES,
    max_cells: int = MAX_CELLS,
) -> Imported:
    """Import access logs, plain or gzip, counted into steps of ``step`` seconds; one node per file.

    Nodes are cut to the time they have in common. A line in neither format is malformed: it counts
    for no step, and the notes say how many there were.

    Args:
        step: length of a step, in seconds.
        names: names of the nodes, with commas; equal ones join their files. So one joins a log
            that was rotated.
        max_malformed: largest share of a file's lines that may be malformed.
        skip_malformed: leave out unreadable lines, however many.
        capacity: see ``Trace.with_capacity``.
        name: of the trace; default: that of the first file.
        max_bytes: largest file that is read, in bytes after unpacking; default: 192 MiB.
        max_cells: most cells that are read: rows times columns, 10 a row at least; default:
            25 million.

    Raises TraceError for faults in the files, ValueError for options out of range.
    """
    if not 0 <= max_malformed <= 1:
        raise ValueError(f"max_malformed={max_malformed!r} must be a share, 0 .. 1")
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
                continue
            malformed += 1
            if malformed == number == UNLIKE and not skip_malformed:
                break
            if len(bad) < 3:
                bad.append((number, line))
        faults = Faults(path)
        if malformed == number:
            rule = "no line is in the Common or Combined log format, so nothing of it is quoted"
            raise fault_error(path, rule)
        if malformed > max_malformed * number and not skip_malformed:
            for at, line in bad:
                text = line.decode(errors="backslashreplace") if 2 * malformed < number else None
                faults.add("not in the Common or Combined log format", at, value=text)
            faults.add(
                f"{malformed:,} of {number:,} lines are malformed, more than the share of "
                f"{max_malformed:g}: repair them, or pass skip_malformed=True to leave them out"
            )
        faults.check()
        if malformed:
            notes.append(
                f"{path.name}: {malformed:,} of {number:,} lines are malformed and were left out, "
                f"the first is line {bad[0][0]}"
            )
    loads = counted.loads(notes, together=False)
    return finish(loads, capacity, name or "+".join(map(trace_name, files)), notes)


def _seconds(line: bytes) -> int | None:
    """Return the time of a log line in seconds since 1970-01-01 UTC; None: it is malformed."""
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
