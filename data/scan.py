"""Fast reader for plain trace files: NumPy on many lines at once, block by block.

It checks every byte, and returns None at the first doubt. It never reports a fault. The careful
reader in ``corral.data.read`` does that. The careful reader accepts every file that this one
accepts, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd

from corral.data.checks import Table
from corral.data.fields import DAY, Clock, in_calendar, integer, midnight, second_of_day
from corral.data.source import CHUNK
from corral.data.trace import MAX_VALUE, Counts, is_name
from corral.progress import report_progress

__all__ = ["scan", "unquoted"]

Bytes = npt.NDArray[np.uint8]

HEADERS = (b"time,node,arrivals", b"time,node,arrivals,capacity")
COMMA, LINE_END, QUOTE, ZERO, HYPHEN = b',\n"0-'
WIDEST_TEXT = 64  # bytes in a time or a node name
WIDEST_COUNT = 10  # digits in 2**31
_ZERO, _ONE = np.uint64(0), np.uint64(1)


def scan(data: bytes, *, file: str, max_nodes: int) -> Table | None:
    """Return the rows of ``data``, or None if the careful reader must read the file."""
    begin = data.find(b"\n") + 1
    header = data[:begin].removesuffix(b"\n").removesuffix(b"\r")
    if header not in HEADERS or not data.endswith(b"\n"):
        return None
    rows, columns = data.count(b"\n") - 1, header.count(b",") + 1
    table_columns = np.empty((columns, rows), dtype=np.int64)  # time, node, counts
    codes: dict[str, int] = {}  # node -> its number, by first appearance
    clocks: set[Clock] = set()
    low = 0
    for block in _blocks(data, begin):
        part = _scan_block(block, columns)
        if part is None:
            return None
        clock, time, node, names, counts = part
        clocks.add(clock)
        if not all(name in codes or is_name(name) for name in names):
            return None
        code = np.array([codes.setdefault(name, len(codes)) for name in names], dtype=np.int64)
        if len(codes) > max_nodes or len(clocks) > 1:
            return None
        high = low + len(time)
        for column, values in zip(table_columns, (time, code[node], *counts), strict=True):
            column[low:high] = values
        low = high
    if low == 0 or not all(in_calendar(int(each)) for each in _ends(table_columns[0], clocks)):
        return None
    capacity = table_columns[3] if columns == 4 else None
    return Table(
        file,
        tuple(codes),
        clocks.pop(),
        table_columns[0],
        table_columns[1],
        table_columns[2],
        capacity,
    )


def _ends(time: Counts, clocks: set[Clock]) -> list[Counts]:
    return [time.min(), time.max()] if "utc" in clocks else []


def _blocks(data: bytes, begin: int) -> Iterator[bytes]:
    """Yield blocks of whole lines from ``begin`` on, of about 1 MiB each, with LF line ends.

    The arrays for a block take many times its size. The arrays for a whole file would not fit.
    """
    while begin < len(data):
        report_progress("reading", begin, len(data))
        end = data.rfind(b"\n", begin, begin + CHUNK) + 1 or data.index(b"\n", begin) + 1
        yield data[begin:end].replace(b"\r\n", b"\n")
        begin = end
    report_progress("reading", len(data), len(data))


def _scan_block(
    body: bytes, columns: int
) -> tuple[Clock, Counts, Counts, list[str], list[Counts]] | None:
    """Return the clock, times [R], node codes [R], node names, and the counts [R] per column."""
    if QUOTE in body:
        plain = unquoted(body)
        if plain is None:
            return None
        return _scan_plain(plain, columns, commas=True)
    return _scan_plain(body, columns, commas=False)


def _scan_plain(
    body: bytes, columns: int, *, commas: bool
) -> tuple[Clock, Counts, Counts, list[str], list[Counts]] | None:
    """Return the same for rows without quotes. With ``commas``, DEL in a name is a comma."""
    rows = body.count(b"\n")
    if body.count(b",") != rows * (columns - 1):
        return None
    text = np.frombuffer(body, dtype=np.uint8)
    if np.count_nonzero(text < ord(" ")) != rows:  # other control characters
        return None

    # The separators of each row must be ", , \n" or ", , , \n". Then every row has all fields.
    ends = np.flatnonzero((text == COMMA) | (text == LINE_END)).reshape(rows, columns)  # [R, C]
    pattern = np.array([COMMA] * (columns - 1) + [LINE_END])
    if (text[ends] != pattern).any():
        return None
    starts = np.empty_like(ends)
    starts.ravel()[0], starts.ravel()[1:] = 0, ends.ravel()[:-1] + 1
    widths = ends - starts
    if widths.min() < 1 or widths[:, :2].max() > WIDEST_TEXT or widths[:, 2:].max() > WIDEST_COUNT:
        return None

    parsed_columns = [_numbers(text, ends[:, c], widths[:, c]) for c in range(2, columns)]
    counts = [column for column in parsed_columns if column is not None]
    times = _times(body, starts[:, 0], widths[:, 0])
    nodes = _distinct(body, starts[:, 1], widths[:, 1])
    if times is None or nodes is None or len(counts) < columns - 2:
        return None
    codes, names = nodes
    if commas:
        names = [name.replace("\x7f", ",") for name in names]
    return (*times, codes, names, counts)


def unquoted(body: bytes) -> bytes | None:
    """Return the lines without quotes around fields; None for a quote at any other position.

    A comma in a field becomes DEL, which a field may not contain.
    """
    if b"\x7f" in body:
        return None
    parts = body.split(b'"')  # outside, inside, outside, ... outside
    inside = b'"'.join(parts[1::2])
    if len(parts) % 2 == 0 or b"\n" in inside:
        return None
    around = {part[-1:] for part in parts[:-1:2]} | {part[:1] for part in parts[2::2]}
    if parts[0] == b"":
        around.discard(b"")  # the first field is in quotes
    if not around <= {b",", b"\n"} or b"" in parts[2::2]:  # quotes inside a field
        return None
    parts[1::2] = inside.replace(b",", b"\x7f").split(b'"')
    return b"".join(parts)


def _numbers(text: Bytes, end: Counts, width: Counts) -> Counts | None:
    """Return the whole numbers that end before ``end``, int64 [R]; None for any non-digit."""
    total = np.zeros(len(end), dtype=np.int64)
    for power in range(int(width.max())):
        digit = text[np.maximum(end - 1 - power, 0)] - ZERO  # uint8: below "0" wraps to above 9
        inside = power < width
        if (digit[inside] > 9).any():
            return None
        # dtype: before NumPy 2 the product of uint8 and a scalar stays as narrow as its value.
        total += np.multiply(np.where(inside, digit, 0), 10**power, dtype=np.int64)
    return total if total.max() <= MAX_VALUE else None


def _times(body: bytes, start: Counts, width: Counts) -> tuple[Clock, Counts] | None:
    """Return the clock and the times [R], equal to ``parse_time``; None if any is not plain."""
    if width[0] <= 4 or body[start[0] + 4] != HYPHEN:
        integers = _integers(body, start, width)
        if integers is None:  # longer integers
            integers = _parsed(body, start, width, integer)
        return None if integers is None else ("integer", integers)
    # Even many times have few distinct dates and times of day. Each is parsed once.
    days = _parsed(body, start, np.minimum(width, DAY), midnight)
    clocks = _parsed(body, start + DAY, np.maximum(width - DAY, 0), second_of_day)
    return None if days is None or clocks is None else ("utc", days + clocks)


def _integers(body: bytes, start: Counts, width: Counts) -> Counts | None:
    """Return integers of up to ten characters, int64 [R]; None if any is longer or invalid."""
    text = np.frombuffer(body, dtype=np.uint8)
    minus = text[start] == HYPHEN
    if width.max() > WIDEST_COUNT or (width <= minus).any():
        return None
    integers = _numbers(text, start + width, width - minus)
    if integers is not None:
        integers[minus] *= -1
    return integers


def _parsed(
    body: bytes, start: Counts, width: Counts, parse: Callable[[str], int | None]
) -> Counts | None:
    """Return ``parse`` of each field, int64 [R]; None if it refuses any field."""
    distinct = _distinct(body, start, width)
    if distinct is None:
        return None
    code, texts = distinct
    values = [value for value in map(parse, texts) if value is not None]
    return np.array(values, dtype=np.int64)[code] if len(values) == len(texts) else None


def _distinct(body: bytes, start: Counts, width: Counts) -> tuple[Counts, list[str]] | None:
    """Return each field's code [R], by first appearance, and the distinct texts.

    Return None for invalid UTF-8. Fields are compared eight bytes at a time, as integers padded
    with zero bytes: hashing integers is many times faster than hashing texts. (Texts contain no
    zero bytes.)
    """
    # Entry p holds the bytes p .. p + 7, lowest byte first.
    words = np.ndarray(len(body) + 1, dtype="<u8", buffer=body + bytes(8), strides=(1,))
    code = np.zeros(len(start), dtype=np.int64)
    for low in range(0, int(width.max()), 8):
        word = words[np.minimum(start + low, len(body))]
        # The number of bits of this word that belong to the field.
        bits = np.uint64(8) * np.clip(width - low, 0, 8).astype(np.uint64)
        word &= np.where(bits == 64, ~_ZERO, (_ONE << (bits % np.uint64(64))) - _ONE)
        part, values = pd.factorize(word)
        code, _ = pd.factorize(code * len(values) + part)
    first = np.flatnonzero(np.r_[True, code[1:] > np.maximum.accumulate(code)[:-1]])
    spans = zip(start[first].tolist(), (start + width)[first].tolist(), strict=True)
    try:
        return code, [body[low:high].decode() for low, high in spans]
    except UnicodeDecodeError:
        return None
