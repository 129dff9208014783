"""Numbers, tables and sentences as lines of at most 80 characters."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

__all__ = ["WIDTH", "columns", "number", "percent", "requests", "wrapped"]

WIDTH = 80


def number(value: float | None) -> str:
    """Format a number: two decimals below 10 ("0.25"), one below 1,000 ("12.5"), none if it is
    whole or larger ("1,234"); never "-0"; "" for None."""
    if value is None:
        return ""
    whole = round(value)
    if abs(value - whole) < 5e-3 or abs(value) >= 1_000:
        return f"{whole:,}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"


def requests(number: float) -> str:
    """Format a number of requests to three digits: "41,200", "87", "3.4"."""
    size = abs(number)
    if size >= 1000:
        digits = len(f"{size:.0f}") - 3
        number = round(number, -digits)
    text = f"{number:,.0f}" if size >= 10 else f"{number:.2g}" if size >= 0.01 else "0"
    return "0" if text == "-0" else text


def percent(share: float) -> str:
    """Format a share as "3.6 %", "0.36 %", or "under 0.01 %"."""
    points = 100 * share
    if 0 < abs(points) < 0.01:
        return "under 0.01 %"
    return f"{points:.1f} %" if abs(points) >= 1 else f"{points:.2g} %"


def columns(head: Sequence[str], rows: Sequence[Sequence[str]], names: int = 1) -> list[str]:
    """Return a table as lines. A heading may have several lines.

    The first ``names`` columns are left-aligned, the others right-aligned. If the table is wider
    than ``WIDTH``, the last of the first ``names`` columns is cut.
    """
    heads = [text.split("\n") for text in head]
    deep = max(map(len, heads))
    heads = [[""] * (deep - len(text)) + text for text in heads]
    lines = [*zip(*heads, strict=True), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    over = sum(widths) + 2 * (len(widths) - 1) - WIDTH
    narrowest = max(map(len, heads[names - 1]))
    widths[names - 1] -= max(0, min(over, widths[names - 1] - narrowest))
    return [
        "  ".join(_cell(text, widths, i, names) for i, text in enumerate(line)).rstrip()
        for line in lines
    ]


def _cell(text: str, widths: Sequence[int], column: int, names: int) -> str:
    width = widths[column]
    if column >= names:
        return text.rjust(width)
    return (text if len(text) <= width else f"{text[: width - 3]}...").ljust(width)


def wrapped(lines: Iterable[str]) -> list[str]:
    """Wrap lines at ``WIDTH`` characters; continuation lines keep the indent of their line."""
    result: list[str] = []
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()))
        result += textwrap.wrap(line, WIDTH, subsequent_indent=indent) or [""]
    return result
