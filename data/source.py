"""Read the bytes of a file, plain or gzip, within limits on memory; and collect its faults."""

from __future__ import annotations

import codecs
import os
import zlib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from io import BufferedReader
from itertools import chain
from pathlib import Path

from corral.errors import Fault, TraceError
from corral.files import open_regular
from corral.progress import progress_to, report_progress

__all__ = [
    "CHUNK",
    "DELIMITERS",
    "HEAD",
    "LEAST_CELLS",
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
    "line_batches",
    "lines",
    "too_many_cells",
    "weigh",
]

MAX_BYTES = 192 * 2**20
"""Default limit on the size of a file after unpacking, in bytes: 192 MiB.

A year of minutes for ten nodes stays below this limit. Unpacking a gzip bomb up to the limit takes
less than a second.
"""

MAX_CELLS = 25_000_000
"""Default limit on rows x columns of a file. A year of minutes for ten nodes stays below it."""

LEAST_CELLS = 10
"""Minimum number of cells that an imported row counts as, because short rows take time, too."""

MAX_RATIO, FREE_OF_RATIO = 100, 2**24
"""Maximum ratio of unpacked to packed size of a gzip file, beyond 16 MiB. Constant loads over a
year reach a ratio of 25, a bomb 1,000."""

MAX_MEMBERS = 10_000
"""Maximum number of gzip members. ``MAX_BYTES`` in blocks of 64 KiB needs 3,072 members."""

MAX_LINE = 2**16
"""Maximum length of a line, in bytes. Normal rows are far shorter than a bomb without line ends."""

MAX_NODES = 10_000
"""Default limit on the nodes of a trace. More nodes suggest a column of request ids."""

MAX_FAULTS = 8
"""Maximum number of faults in one error. The error states if the file has more."""

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}

HEAD = 2**16
"""Number of bytes at the beginning of a file that decide its layout."""

CHUNK = 2**20
PACKED_CHUNK = 2**16
GZIP = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"
UTF_16 = (b"\xff\xfe", b"\xfe\xff")

# File types that users pass by mistake, by their first bytes.
FOREIGN = {
    b"PK\x03\x04": "this is a zip archive: unpack it; or a spreadsheet: run corral trace import",
    b"BZh": "this is a bzip2 file: unpack it, or pack it with gzip",
    b"\xfd7zXZ": "this is an xz file: unpack it, or pack it with gzip",
    b"\x28\xb5\x2f\xfd": "this is a zstd file: unpack it, or pack it with gzip",
    b"ARROW1": "this is a Feather file: run corral trace import",
    b"PAR1": "this is a Parquet file: run corral trace import",
}


def fault_error(file: str | Path, rule: str, line: int | None = None) -> TraceError:
    """Return the error for a single fault."""
    return TraceError([Fault(str(file), rule, line=line)])


class Faults:
    """The faults of one file. They are raised together: by ``check``, or at the maximum number."""

    def __init__(self, file: str | Path) -> None:
        self.file = str(file)
        self.faults: list[Fault] = []

    def add(
        self,
        rule: str,
        line: int | None = None,
        column: str | None = None,
        value: str | None = None,
    ) -> None:
        """Add a fault. Raises TraceError if the maximum number of faults is exceeded."""
        if len(self.faults) == MAX_FAULTS:
            raise TraceError(self.faults, more=True)
        if value is not None and len(value) > 60:
            value = value[:60] + "..."
        self.faults.append(Fault(self.file, rule, line=line, column=column, value=value))

    def check(self) -> None:
        """Raise TraceError if the file has any fault."""
        if self.faults:
            raise TraceError(self.faults)


def bundled_files() -> dict[str, Traversable]:
    """Return the trace files that come with the package, by name."""
    entries = {entry.name: entry for entry in files("corral.data").iterdir()}
    suffix = ".csv.gz"
    return {n.removesuffix(suffix): entries[n] for n in sorted(entries) if n.endswith(suffix)}


def chunks(path: Path, *, max_bytes: int = MAX_BYTES, max_line: int = MAX_LINE) -> Iterator[bytes]:
    """Yield the content of ``path`` in pieces of at most 1 MiB, without a byte-order mark.

    The first bytes, not the name, decide if the file is gzip. Raises TraceError if the file is
    missing, unreadable, not a regular file, in another format, cut or damaged. Also raises
    TraceError for a NUL byte, a line longer than ``max_line``, and more than ``max_bytes`` packed
    or unpacked.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > max_bytes:
                raise fault_error(path, _too_big(max_bytes))
            packed = file.peek(2).startswith(GZIP)
            pieces = _unpacked(path, file) if packed else iter(lambda: file.read(CHUNK), b"")
            try:
                for piece in _checked(path, _as_utf8(pieces), max_bytes, max_line):
                    report_progress("reading", min(file.tell(), size), size)
                    yield piece
            finally:
                report_progress("reading", size, size)  # the last report
    except FileNotFoundError:
        names = ", ".join(bundled_files())
        rule = f"no such file; pass the path of a CSV file, or a bundled trace: {names}"
        raise fault_error(path, rule) from None
    except IsADirectoryError:
        raise fault_error(path, "this is a folder; pass the path of one CSV file") from None
    except EOFError:
        raise fault_error(path, "the gzip file is cut short; download or pack it again") from None
    except zlib.error as error:
        raise fault_error(
            path, f"the gzip file is damaged ({error}); download or pack it again"
        ) from None
    except UnicodeDecodeError:
        raise fault_error(path, "damaged UTF-16 text: save it as UTF-8") from None
    except OSError as error:
        raise fault_error(path, f"cannot be read: {error.strerror or error}") from None


def _unpacked(path: Path, file: BufferedReader) -> Iterator[bytes]:
    """Yield the content of all members of a gzip file, in pieces of at most 1 MiB.

    Raises zlib.error or EOFError for a damaged file, TraceError for a bomb.
    """
    size = members = 0
    data = file.read(PACKED_CHUNK)
    while data:
        if not data.startswith(GZIP[: len(data)]):
            raise zlib.error("no gzip member")
        members += 1
        if members > MAX_MEMBERS:
            raise fault_error(
                path, f"more than {MAX_MEMBERS:,} members in the gzip file; unpack it first"
            )
        engine = zlib.decompressobj(wbits=31)  # only gzip
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
                    "if this is intended, unpack it first"
                )
                raise fault_error(path, rule)
            if piece:
                yield piece
        data = (engine.unused_data or file.read(PACKED_CHUNK)).lstrip(b"\0")  # padding


def _as_utf8(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield text in UTF-16 with a byte-order mark, as Excel writes it, as UTF-8; others as is."""
    first = next(pieces, b"")
    if not first.startswith(UTF_16):
        yield first
        yield from pieces
        return
    decoder = codecs.getincrementaldecoder("utf-16")()
    for piece in chain([first], pieces):
        yield decoder.decode(piece).encode()
    decoder.decode(b"", final=True)


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
            raise fault_error(path, "a NUL byte, so this is not UTF-8 text; save it as UTF-8", at)
        line += piece.count(b"\n")
        last = piece.rfind(b"\n")
        tail = len(piece) - last - 1 if last >= 0 else tail + len(piece)
        if tail > max_line:
            raise fault_error(path, _too_long(path, piece, max_line), line + 1)
        yield piece.removeprefix(BOM) if index == 0 else piece


def lines(path: Path, *, max_bytes: int = MAX_BYTES) -> Iterator[tuple[int, bytes]]:
    """Yield the number (from 1) and content, with line end, of each line, in constant memory."""
    for first, rows, end in line_batches(path, max_bytes=max_bytes):
        for number, line in enumerate(rows, first):
            yield number, line + end


def line_batches(
    path: Path, *, max_bytes: int = MAX_BYTES
) -> Iterator[tuple[int, list[bytes], bytes]]:
    """Yield the number of the first line, the lines, and their line end, for parts of a file."""
    number, rest = 1, b""
    for piece in chunks(path, max_bytes=max_bytes):
        *rows, rest = (rest + piece).split(b"\n")
        for at, line in enumerate(rows if max(map(len, rows), default=0) > MAX_LINE else ()):
            if len(line) > MAX_LINE:
                raise fault_error(path, _too_long(path, line, MAX_LINE), number + at)
        yield number, rows, b"\n"
        number += len(rows)
    if rest:
        yield number, [rest], b""


def head_of(path: Path, *, max_bytes: int) -> bytes:
    """Return the first 64 KiB after unpacking, without a byte-order mark."""
    with progress_to(None):
        return next(chunks(path, max_bytes=max_bytes, max_line=max_bytes), b"")[:HEAD]


def weigh(path: Path, *, max_bytes: int, max_cells: int) -> None:
    """Raise TraceError for a file with too many bytes or cells, before any row is parsed.

    Each row counts as at least ``LEAST_CELLS`` cells.
    """
    rows, marks = 0, dict.fromkeys(DELIMITERS, 0)
    with progress_to(None):
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
        "if this size is intended, pass a larger max_cells="
    )


def _too_long(path: Path, line: bytes, max_line: int) -> str:
    rule = f"this line is longer than {max_line} bytes, too long for a CSV row"
    if line.lstrip()[:1] in (b"{", b"["):
        rule += f"; it looks like JSON: run corral trace import {path}"
    return rule


def _too_big(max_bytes: int) -> str:
    return (
        f"holds more than {max_bytes:,} bytes unpacked; "
        "if this size is intended, pass a larger max_bytes="
    )
