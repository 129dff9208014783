"""Text in terminal columns. Some letters take two columns and some take none."""

from __future__ import annotations

import unicodedata

__all__ = ["columns_of", "cut", "padded"]


def columns_of(text: str) -> int:
    """Return the number of columns that ``text`` takes."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.category(c) in ("Mn", "Me", "Cf") for c in text)


def cut(text: str, most: int) -> str:
    """Return ``text`` in at most ``most`` columns (3 or more).

    The middle is left out, because names often differ at the end. Unprintable characters become
    ``?``.
    """
    text = "".join(c if c.isprintable() else "?" for c in text)
    if columns_of(text) <= most:
        return text
    start, end = text, text
    while columns_of(end) > (most - 1) // 2:
        end = end[1:]
    while columns_of(start) + 1 + columns_of(end) > most:
        start = start[:-1]
    return f"{start.rstrip()}…{end.lstrip()}"


def padded(text: str, columns: int) -> str:
    """Return ``text`` padded with spaces to ``columns`` columns."""
    return text + " " * (columns - columns_of(text))
