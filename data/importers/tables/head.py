"""Find the header of a table: below head lines and comments, or named by the caller."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from corral.data.headers import is_written_time
from corral.data.importers.binning import counted, were
from corral.data.source import DELIMITERS, fault_error

__all__ = ["HEAD_LINES", "Start", "find_start", "quotes_rule"]

HEAD_LINES = 64
"""Number of lines at the beginning of a file in which the header is searched."""


@dataclass
class Start:
    """The beginning of a table: the header, and the first rows as ``lines`` of text."""

    names: list[str]  # of the columns
    delimiter: str
    skipped: int  # lines of the file above ``lines``
    lines: list[str] = field(default_factory=list)  # the first rows as text
    titles: list[str] | None = None  # the cells of the header; None without one
    has_comments: bool = False
    notes: list[str] = field(default_factory=list)


def find_start(
    path: Path,
    lines: Sequence[str],
    delimiter: str | None,
    header_line: int | None,
    columns: Sequence[str] | None,
) -> Start:
    """Return the header and the first rows of ``lines``, the beginning of a file.

    A line such as ``sep=;``, blank lines, and comments (#) above the header are skipped. If the
    last comment has a name for each cell, and no header follows, it is the header. The caller may
    pass the number of the header line, or the names of the ``columns`` of a file without header.
    Lines between the header and the first row with a time are skipped, too: units, ids. Raises
    TraceError if several lines may be the header.
    """
    at, is_comment = 0, [line.lstrip('"').startswith("#") for line in lines]
    if lines and lines[0].lower().startswith("sep=") and len(lines[0].strip()) == 5:
        delimiter, at = delimiter or lines[0].strip()[-1], 1
    if header_line is not None:
        if not 1 <= header_line <= len(lines):
            raise ValueError(
                f"header={header_line} must be the number of a line, from 1 to {len(lines)}"
            )
        at = header_line - 1
    first = at
    while at < len(lines) and header_line is None and (not lines[at].strip() or is_comment[at]):
        at += 1
    if at == len(lines):
        return Start([], delimiter or ",", 0)
    mark = delimiter or _mark(lines[at:])
    texts = [line.rstrip() if mark == " " else line for line in lines]
    rows = csv.reader(texts[at:], delimiter=mark, strict=True, skipinitialspace=mark == " ")
    cells, ends = [], []
    try:
        for row in rows:
            cells.append(row)
            ends.append(at + rows.line_num)
    except csv.Error as error:
        if not cells:
            raise fault_error(path, quotes_rule(error), at + rows.line_num) from None
    comments = [i for i in range(first, at) if is_comment[i]]
    start = Start(cells[0], mark, ends[0], titles=cells[0], has_comments=bool(comments))
    timed = [i for i, row in enumerate(cells) if any(is_written_time(c.strip()) for c in row[:12])]
    if columns is not None:
        start.names, start.skipped, start.titles = list(columns), at, None
    elif timed[:1] == [0] and comments and header_line is None:
        names = _names(lines[comments[-1]], mark)
        if len(names) == len(cells[0]):
            start.names, start.skipped, start.titles = names, at, None
    elif (
        timed
        and timed[0] > 1
        and (
            header_line is not None
            or _is_label(cells[0])
            or not _has_rows(cells[1 : timed[0]], len(cells[timed[0]]))
        )
    ):
        chosen = _header(path, cells[: timed[0]], len(cells[timed[0]]), ends, header_line)
        start.names = start.titles = cells[chosen]
        start.skipped = ends[timed[0] - 1]
        num_lines = sum(map(bool, cells[: timed[0]])) - 1
        start.notes.append(
            f"{path.name}: {counted(num_lines, 'line')} above the first row, other than the header "
            f"in line {ends[chosen]}, {were(num_lines)} skipped"
        )
    if comments:
        num_comments = len(comments)
        start.notes.append(
            f"{path.name}: {counted(num_comments, 'comment')} {were(num_comments)} skipped"
        )
    start.names = [name.strip() for name in start.names]
    start.lines = texts[start.skipped :]
    return start


def _mark(lines: Sequence[str]) -> str:
    """Return the delimiter: the most frequent one of the first line that has one, or a space."""
    for line in lines:
        mark = max(DELIMITERS, key=line.count)
        if mark in line:
            return mark
    widths = {len(line.split()) for line in lines if line.strip()}
    return "," if len(widths) > 1 or 1 in widths else " "


def quotes_rule(error: csv.Error) -> str:
    """Return the reason to refuse a line with an open or stray quote."""
    return f"invalid quotes ({error}); quote whole cells, and double the quotes inside them"


def _is_label(row: Sequence[str]) -> bool:
    """Return True for the header of a CSV file of CloudWatch, which has further lines below it."""
    return row[:1] != [] and row[0].strip().lower() == "label"


def _has_rows(rows: Sequence[Sequence[str]], width: int) -> bool:
    """Return True if one of these lines below a header may be a row of numbers."""
    return any(len(row) == width and any(c.strip()[:1].isdigit() for c in row) for row in rows)


def _names(comment: str, mark: str) -> list[str]:
    """Return the column names in a comment such as "# time a b"."""
    names = comment.strip().strip('"').lstrip("#").strip()
    return [name.strip() for name in (names.split() if mark == " " else names.split(mark))]


def _header(
    path: Path,
    above: Sequence[Sequence[str]],
    width: int,
    ends: Sequence[int],
    header_line: int | None,
) -> int:
    """Return the index of the header among the lines above the first row with a time."""
    if header_line is not None:
        return 0
    named = [i for i, row in enumerate(above) if len(row) == width == len({*row})]
    named = [i for i in named if all(above[i][1:])]
    labels = [i for i in named if _is_label(above[i])]
    candidates = labels or named
    if len(candidates) != 1:
        choices = " or ".join(f"header={ends[i]}" for i in candidates or range(len(above)))
        raise fault_error(
            path, f"several lines above the first time may hold the column names; pass {choices}"
        )
    return candidates[0]
