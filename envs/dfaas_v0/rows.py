"""Division of the rows of a trace into training, validation and held-out rows.

The last rows are held out for the final evaluation. Of the other rows, the last whole windows (one
episode each) are for validation, to compare policies during training, and to compare settings.
Training draws its windows from the remaining rows, and wraps in them. It never uses rows of the
other two parts.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from corral.envs.arguments import nonnegative_int

__all__ = ["Division", "Section", "divide", "section", "start_row"]

Section = tuple[int, int]  # rows low .. high - 1 of a trace
HELD_OUT = 0.3  # default share of the trace, its last rows
VALIDATION = 0.2  # default share of the other rows, their last whole windows


class Division(NamedTuple):
    """Rows for training, validation and the final evaluation."""

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
    """Divide the rows of a trace with ``length`` rows.

    Args:
        window: rows of an episode.
        rows: rows for training and validation. Default: all rows before the held-out rows.
        held_out: a share of the rows, the last ones (default: 0.3), or rows (low, high).
        validation: a share of the other rows, rounded to one or more whole windows; rows (low,
            high); or 0 for no validation. Default: 0.2, or 0 if the other rows do not hold a window
            for validation and another one for training.
        first: the first of these rows at which a training window may begin.

    Raises ValueError if the arguments contradict each other, or leave no rows for training.
    """
    remaining, held = _held_out(length, rows, held_out)
    if isinstance(validation, tuple | list):
        train, (low, high) = _apart(remaining, validation, window, length)
        overlaps = low < held[1] and held[0] < high
        if overlaps and not (remaining[0] < held[1] and held[0] < remaining[1]):
            raise ValueError(
                f"validation={validation} overlaps the held-out rows {_text(held)}; give other rows"
            )
        return Division(train, (low, high), held)
    share = VALIDATION if validation is None else float(validation)
    if not 0 <= share < 1:
        raise ValueError(f"validation={validation}: give a share of 0 or more, below 1, or rows")
    low, high = remaining
    max_windows = (high - low - first) // window - 1
    if share == 0 or (max_windows < 1 and validation is None):
        return Division(remaining, None, held)
    if max_windows < 1:
        raise ValueError(
            f"validation={validation}: rows {_text(remaining)} do not hold two windows of "
            f"{window} steps, for training and for validation; give a lower max_cycles, or "
            "validation=0"
        )
    windows = min(max(1, int(share * (high - low) / window + 0.5)), max_windows)
    cut = high - windows * window
    return Division((low, cut), (cut, high), held)


def _held_out(
    length: int, rows: Section | None, held_out: float | Section | None
) -> tuple[Section, Section]:
    """Return the rows for training and validation, and the held-out rows."""
    if isinstance(held_out, tuple | list):
        low, high = _pair("held_out", held_out, length)
        if rows is None and low == 0:
            raise ValueError(
                f"held_out={held_out} leaves no rows before it; give rows as well, to train on"
            )
        return (0, low) if rows is None else rows, (low, high)
    if rows is not None:
        if held_out is not None:
            raise ValueError(
                f"rows={rows} with held_out={held_out}: give held_out=(low, high), or leave it out"
            )
        # If no rows follow, evaluation uses the training rows, and says so.
        return rows, (rows[1], length) if rows[1] < length else rows
    share = HELD_OUT if held_out is None else float(held_out)
    if not 0 <= share < 1:
        raise ValueError(f"held_out={held_out}: give a share of 0 or more, below 1, or rows")
    first = max(1, int((1 - share) * length + 1e-9))
    return (0, first), (first, length) if first < length else (0, length)


def _apart(rest: Section, validation: Any, window: int, length: int) -> tuple[Section, Section]:
    """Return the training rows, the longer part of the rest, and the validation rows."""
    low, high = _pair("validation", validation, length)
    if high - low < window:
        raise ValueError(
            f"validation={validation} is shorter than a window of {window} steps; give more rows, "
            "or a lower max_cycles"
        )
    parts = (rest[0], min(rest[1], low)), (max(rest[0], high), rest[1])
    train = max(parts, key=lambda part: part[1] - part[0])
    if train[1] <= train[0]:
        raise ValueError(f"validation={validation} leaves no training rows in {_text(rest)}")
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
    """Return the rows (low, high) of an argument as ints. Raises ValueError if they are invalid."""
    try:
        low, high = (operator.index(row) for row in rows)
    except (TypeError, ValueError):
        low = high = -1
    if not 0 <= low < high <= length:
        raise ValueError(f"{name}={rows!r}: give (low, high) with 0 <= low < high <= {length}")
    return low, high


def start_row(start: int | str, rows: Section) -> int | None:
    """Return the argument ``start``, counted from the first of ``rows``; None if it is random."""
    if start == "random":
        return None
    length = rows[1] - rows[0]
    row = length if isinstance(start, str) else nonnegative_int("start", start)
    if row >= length:
        raise ValueError(f'start={start!r}: give "random" or a row of 0..{length - 1}')
    return row
