"""Bytes of a file, plain or gzip, with limits that hold before memory fills; and its faults."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from io import BufferedReader
from pathlib import Path

from corral.errors import Fault, TraceError
from corral.files import open_regular
from corral.progress import tell, telling

__all__ = [
    "CHUNK",
    "DELIMITERS",
    "HEAD",
    "MAX_BYTES",
    "MAX_CELLS",
    "MAX_FAULTS",
    "MAX_LINE",
    "MAX_NODES",
    "Faults",
    "bundled_files",
    "chunks",
    "fault_error",
    "head_of",
    "lines",
    "too_many_cells",
    "weigh",
]

MAX_BYTES = 192 * 2**20
"""Default limit on the size of a file after unpacking, in bytes: 192 MiB.

A year of minutes for ten nodes stays below it, and a gzip bomb is unpacked that far in well under
a second.
"""

MAX_CELLS = 25_000_000
"""Default limit on rows x columns of a file: a year of minutes for ten nodes stays below it."""

LEAST_CELLS = 10
"""Cells that an imported row counts as at least, as short rows take their time, too."""

MAX_RATIO, FREE_OF_RATIO = 100, 2**24
"""A gzip file may unpack to so many times its size, beyond 16 MiB: the loads of a year that never
change reach 25, a bomb 1,000."""

MAX_MEMBERS = 10_000
"""Members of a gzip file: blocks of 64 KiB need 3,072 for ``MAX_BYTES``; empty ones cost time."""

MAX_LINE = 2**16
"""Longest line accepted, in bytes: no honest row comes near, a bomb without line ends does."""

MAX_NODES = 10_000
"""Default limit on the nodes of a trace: beyond, a column of ids was taken for the nodes."""

MAX_FAULTS = 8
"""As many faults are listed at once; a file with more says so."""

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}

HEAD = 2**16
"""Bytes at the beginning of a file by which its kind is told."""

CHUNK = 2**20
PACKED_CHUNK = 2**16
GZIP = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"

# What people hand in by mistake, told by its first bytes.
FOREIGN = {
    b"\xff\xfe": "this is UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "this is UTF-16 text: save it as UTF-8",
    b"PK\x03\x04": "this is a zip archive or a spreadsheet: unpack it, or export it as CSV",
    b"BZh": "this is a bzip2 file: unpack it, or pack it with gzip",
    b"\xfd7zXZ": "this is an xz file: unpack it, or pack it with gzip",
    b"\x28\xb5\x2f\xfd": "this is a zstd file: unpack it, or pack it with gzip",
    b"PAR1": "this is a Parquet file: export it as CSV",
}


def fault_error(file: str | Path, rule: str, line: int | None = None) -> TraceError:
    """Return the error for a single fault."""
    return TraceError([Fault(str(file), rule, line=line)])


class Faults:
    """The faults of one file, raised all together: when asked to, or once there are too many."""

    def __init__(self, file: str | Path) -> None:
        self.file = str(file)
        self.found: list[Fault] = []

    def add(
        self,
        rule: str,
        line: int | None = None,
        column: str | None = None,
        value: str | None = None,
    ) -> None:
        """Add a fault. Raises TraceError where it is one too many."""
        if len(self.found) == MAX_FAULTS:
            raise TraceError(self.found, more=True)
        if value is not None and len(value) > 60:
            value = value[:60] + "..."
        self.found.append(Fault(self.file, rule, line=line, column=column, value=value))

    def check(self) -> None:
        """Raise TraceError where there is any fault."""
        if self.found:
            raise TraceError(self.found)


def bundled_files() -> dict[str, Traversable]:
    """Return the trace files that come with the package, by name."""
    found = {entry.name: entry for entry in files("corral.data").iterdir()}
    suffix = ".csv.gz"
    return {n.removesuffix(suffix): found[n] for n in sorted(found) if n.endswith(suffix)}


def chunks(path: Path, *, max_bytes: int = MAX_BYTES, max_line: int = MAX_LINE) -> Iterator[bytes]:
    """Yield the content of ``path`` in pieces of at most 1 MiB, without a byte-order mark.

    The first bytes decide whether the file is gzip, its name does not. Raises TraceError where
    the file is missing, no regular file, unreadable, in another format, cut or damaged, holds a NUL
    byte or a line longer than ``max_line``, or more than ``max_bytes``, packed or unpacked.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > max_bytes:
                raise fault_error(path, _too_big(max_bytes))
            packed = file.peek(2).startswith(GZIP)
            pieces = _unpacked(path, file) if packed else iter(lambda: file.read(CHUNK), b"")
            try:
                for piece in _checked(path, pieces, max_bytes, max_line):
                    tell("reading", min(file.tell(), size), size)
                    yield piece
            finally:
                tell("reading", size, size)  # it goes no further
    except FileNotFoundError:
        names = ", ".join(bundled_files())
        rule = f"no such file; give the path of a CSV file, or a bundled trace: {names}"
        raise fault_error(path, rule) from None
    except IsADirectoryError:
        raise fault_error(path, "this is a folder; give the path of one CSV file") from None
    except EOFError:
        raise fault_error(path, "the gzip file is cut short; fetch or pack it again") from None
    except zlib.error as error:
        raise fault_error(
            path, f"the gzip file is damaged ({error}); fetch or pack it again"
        ) from None
    except OSError as error:
        raise fault_error(path, f"cannot be read: {error.strerror or error}") from None


def _unpacked(path: Path, file: BufferedReader) -> Iterator[bytes]:
    """Yield what the members of a gzip file hold, in pieces of at most 1 MiB.

    Raises zlib.error, EOFError; TraceError for a bomb.
    """
    size = members = 0
    data = file.read(PACKED_CHUNK)
    while data:
        if not data.startswith(GZIP[: len(data)]):
            raise zlib.error("no gzip member")
        members += 1
        if members > MAX_MEMBERS:
            raise fault_error(path, f"more than {MAX_MEMBERS:,} members of gzip: unpack it first")
        engine = zlib.decompressobj(wbits=31)  # gzip alone
        while not engine.eof:
            data = data or file.read(PACKED_CHUNK)
            piece = engine.decompress(data, CHUNK)
            if not (data or piece or engine.eof):
                raise EOFError
            data = engine.unconsumed_tail
            size += len(piece)
            if size > FREE_OF_RATIO and size > MAX_RATIO * file.tell():
                rule = (
                    f"the gzip file unpacks to more than {MAX_RATIO} times its size; "
                    "unpack it first if that is meant"
                )
                raise fault_error(path, rule)
            if piece:
                yield piece
        data = (engine.unused_data or file.read(PACKED_CHUNK)).lstrip(b"\0")  # padding


def _checked(path: Path, pieces: Iterator[bytes], max_bytes: int, max_line: int) -> Iterator[bytes]:
    size = line = tail = 0  # bytes, complete lines, bytes since the last line end
    for index, piece in enumerate(pieces):
        if index == 0:
            for magic, rule in FOREIGN.items():
                if piece.startswith(magic):
                    raise fault_error(path, rule)
        size += len(piece)
        if size > max_bytes:
            raise fault_error(path, _too_big(max_bytes))
        if b"\0" in piece:
            at = line + piece.count(b"\n", 0, piece.index(b"\0")) + 1
            raise fault_error(path, "a NUL byte: this is not UTF-8 text; save it as UTF-8", at)
        line += piece.count(b"\n")
        last = piece.rfind(b"\n")
        tail = len(piece) - last - 1 if last >= 0 else tail + len(piece)
        if tail > max_line:
            raise fault_error(path, _too_long(path, piece, max_line), line + 1)
        yield piece.removeprefix(BOM) if index == 0 else piece


def lines(path: Path, *, max_bytes: int = MAX_BYTES) -> Iterator[tuple[int, bytes]]:
    """Yield number (from 1) and content of each line with its line end, in constant memory."""
    number, rest = 0, b""
    for piece in chunks(path, max_bytes=max_bytes):
        *complete, rest = (rest + piece).split(b"\n")
        for line in complete:
            number += 1
            if len(line) > MAX_LINE:
                raise fault_error(path, _too_long(path, line, MAX_LINE), number)
            yield number, line + b"\n"
    if rest:
        yield number + 1, rest


def head_of(path: Path, *, max_bytes: int) -> bytes:
    """Return the first 64 KiB after unpacking, without a byte-order mark."""
    with telling(None):
        return next(chunks(path, max_bytes=max_bytes, max_line=max_bytes), b"")[:HEAD]


def weigh(path: Path, *, max_bytes: int, max_cells: int) -> None:
    """Raise TraceError for a file of too many bytes or cells, before a row of it is read.

    A row counts as ``LEAST_CELLS`` at least.
    """
    rows, marks = 0, dict.fromkeys(DELIMITERS, 0)
    with telling(None):
        for piece in chunks(path, max_bytes=max_bytes):
            if not rows:
                header = piece.partition(b"\n")[0]
                marks = {mark: n + header.count(mark.encode()) for mark, n in marks.items()}
            rows += piece.count(b"\n")
            if rows * max(LEAST_CELLS, *(1 + n for n in marks.values())) > max_cells:
                raise fault_error(path, too_many_cells(max_cells))


def too_many_cells(max_cells: int) -> str:
    return (
        f"holds more than {max_cells:,} cells (rows x columns); "
        "pass a larger max_cells= if it is meant to be that large"
    )


def _too_long(path: Path, line: bytes, max_line: int) -> str:
    rule = f"this line is longer than {max_line} bytes: no CSV row"
    if line.lstrip()[:1] in (b"{", b"["):
        rule += f"; it looks like JSON: corral trace import {path}"
    return rule


def _too_big(max_bytes: int) -> str:
    return (
        f"holds more than {max_bytes:,} bytes unpacked; "
        "pass a larger max_bytes= if it is meant to be that large"
    )
