"""How the rows of a load are divided: to train on, to validate on, and held out.

The last rows are held out for the final judgment. Of the rest the last whole windows (an episode
each) are for validation: to compare policies while they learn, and settings. Training draws its
windows from what remains, and they wrap within it: it meets no row of the other two.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from corral.envs.arguments import nonnegative_int

__all__ = ["Division", "Section", "divide", "section", "start_row"]

Section = tuple[int, int]  # rows low .. high - 1 of a trace
HELD_OUT = 0.3  # of a trace's rows, the last ones, by default
VALIDATION = 0.2  # of the rest, the last whole windows, by default


class Division(NamedTuple):
    """Which rows are for what."""

    train: Section
    validation: Section | None
    held_out: Section


def divide(
    length: int,
    window: int,
    rows: Section | None = None,
    held_out: float | Section | None = None,
    validation: float | Section | None = None,
    first: int = 0,
) -> Division:
    """Divide the rows of a trace of that ``length``.

    Args:
        window: rows of an episode.
        rows: those to train and validate on; default: all before those held out.
        held_out: a share of the last rows (default: 0.3), or rows (low, high).
        validation: a share of the rest, as near to it as whole windows come, one or more; rows
            (low, high); or 0, none. By default 0.2, or none where the rest holds no window to
            validate on beside one to train on.
        first: the first of the rest's rows at which a window of training may begin.

    Raises ValueError where these contradict each other, or leave nothing to train on.
    """
    rest, judged = _held_out(length, rows, held_out)
    if isinstance(validation, tuple | list):
        train, (low, high) = _apart(rest, validation, window, length)
        overlaps = low < judged[1] and judged[0] < high
        if overlaps and not (rest[0] < judged[1] and judged[0] < rest[1]):
            raise ValueError(
                f"validation={validation} holds some of the rows held out, {_text(judged)}; give "
                "others"
            )
        return Division(train, (low, high), judged)
    share = VALIDATION if validation is None else float(validation)
    if not 0 <= share < 1:
        raise ValueError(f"validation={validation}: give a share of 0 or more, below 1, or rows")
    low, high = rest
    most = (high - low - first) // window - 1
    if share == 0 or (most < 1 and validation is None):
        return Division(rest, None, judged)
    if most < 1:
        raise ValueError(
            f"validation={validation}: rows {_text(rest)} hold no window of {window} steps to "
            "validate on beside one to train on; give a lower max_cycles, or validation=0"
        )
    windows = min(max(1, int(share * (high - low) / window + 0.5)), most)
    cut = high - windows * window
    return Division((low, cut), (cut, high), judged)


def _held_out(
    length: int, rows: Section | None, held_out: float | Section | None
) -> tuple[Section, Section]:
    """Return the rows to train and validate on, and those held out."""
    if isinstance(held_out, tuple | list):
        low, high = _pair("held_out", held_out, length)
        if rows is None and low == 0:
            raise ValueError(f"held_out={held_out} leaves no rows before it; give rows as well")
        return (0, low) if rows is None else rows, (low, high)
    if rows is not None:
        if held_out is not None:
            raise ValueError("give rows, or a share that is held_out, not both")
        # With nothing after them, they are judged on themselves; evaluation says so.
        return rows, (rows[1], length) if rows[1] < length else rows
    share = HELD_OUT if held_out is None else float(held_out)
    if not 0 <= share < 1:
        raise ValueError(f"held_out={held_out}: give a share of 0 or more, below 1, or rows")
    first = max(1, int((1 - share) * length + 1e-9))
    return (0, first), (first, length) if first < length else (0, length)


def _apart(rest: Section, validation: Any, window: int, length: int) -> tuple[Section, Section]:
    """Return rows to train on, the longer part of the rest, beside rows to validate on."""
    low, high = _pair("validation", validation, length)
    if high - low < window:
        raise ValueError(
            f"validation={validation} holds no whole window of {window} steps; give more rows, or "
            "a lower max_cycles"
        )
    parts = (rest[0], min(rest[1], low)), (max(rest[0], high), rest[1])
    train = max(parts, key=lambda part: part[1] - part[0])
    if train[1] <= train[0]:
        raise ValueError(f"validation={validation} leaves no row of {_text(rest)} to train on")
    return train, (low, high)


def _pair(name: str, rows: Any, length: int) -> Section:
    low, high = rows if len(rows) == 2 else (0, 0)
    if not 0 <= low < high <= length:
        raise ValueError(f"{name}={rows}: give rows (low, high) within 0..{length}")
    return low, high


def _text(rows: Section) -> str:
    return f"{rows[0]}:{rows[1]}"


# --- Arguments -----------------------------------------------------------------------------------


def section(rows: Section, length: int, name: str = "rows") -> Section:
    """Return the argument ``rows``, or another one of its kind, as two ints. Raises ValueError."""
    try:
        low, high = (operator.index(row) for row in rows)
    except (TypeError, ValueError):
        low = high = -1
    if not 0 <= low < high <= length:
        raise ValueError(f"{name}={rows!r}: give (low, high) with 0 <= low < high <= {length}")
    return low, high


def start_row(start: int | str, rows: Section) -> int | None:
    """Return the argument ``start``, counted from the rows' first; None: it is drawn."""
    if start == "random":
        return None
    length = rows[1] - rows[0]
    row = length if isinstance(start, str) else nonnegative_int("start", start)
    if row >= length:
        raise ValueError(f'start={start!r}: give "random" or a row of 0..{length - 1}')
    return row
