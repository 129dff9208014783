"""Parse numbers in common notations: decimal commas, thousands separators, 3K, 1.22 req/s."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from corral.data.importers.tables.cells import Column, Table, is_missing

__all__ = ["Decimal", "Numbers", "decimal_of", "numbers_of", "parse_number", "per_seconds"]

Decimal = Literal[".", ","]

LONGEST = 64
"""Maximum length of a number, in characters. Matching longer cells would be slow."""

_NUMBER = re.compile(
    r"([+-]?[0-9][0-9., '\u00a0\u202f]*|[+-]?[.,][0-9]+)(e[+-]?[0-9]+)?"
    r"\s*(K|k|Mil|Mn|M|G|Bil)?\s*([A-Za-z/][A-Za-z/ ]*)?"
)
_GROUPS = re.compile(r"[+-]?[0-9]{1,3}([., '\u00a0\u202f])[0-9]{3}(\1[0-9]{3})*")
_FACTORS = {"k": 1e3, "m": 1e6, "mil": 1e6, "mn": 1e6, "g": 1e9, "bil": 1e9}
_PER = re.compile(
    r"(?:requests?|reqs?|r|hits|calls|invocations|ops|c|anfragen)?\s?"
    r"(?:/|p|\bper[ _]?)\s?(s|sec|seconds?|m|min|minutes?|h|hours?)",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"(?:requests?|reqs?|hits|calls|invocations|anfragen|ops)", re.IGNORECASE)
_IN_NAME = re.compile(
    r"(?:^|[^a-z])(?:(rps|qps|reqps|ops/s|i?rate(?=\())|"
    r"(rpm|qpm)|(?:(?:req|reqs|requests|hits|calls|1)?\s?/\s?|per[ _]?)"
    r"(s|sec|seconds?|m|min|minutes?|h|hours?))(?![a-z])",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Numbers:
    """The numbers of a column: ``values`` [R], NaN for an empty cell.

    ``seconds``: values are requests per this many seconds; None without a unit.
    ``short``: an abbreviated cell such as 3K, which hides digits; None without one.
    """

    values: npt.NDArray[np.float64]
    seconds: int | None
    abbreviated: str | None


def _seconds_of(word: str) -> int:
    return {"s": 1, "m": 60, "h": 3600}[word[0].lower()]


def per_seconds(name: str) -> int | None:
    """Return the period in seconds of a rate in a column name: 1 for "rps"; None without a rate."""
    match = _IN_NAME.search(name)
    if match is None:
        return None
    if match[1]:
        return 1
    return 60 if match[2] else _seconds_of(match[3])


def parse_number(cell: Any, decimal: Decimal = ".") -> tuple[float, int | None, bool] | None:
    """Return the value, the period of its rate in seconds or None, and if it is abbreviated.

    Return None for a cell that is not a number.
    """
    if not isinstance(cell, str):
        number = isinstance(cell, int | float | np.number) and not isinstance(cell, bool)
        return (float(cell), None, False) if number else None
    try:
        plain = decimal == "." and "_" not in cell
        value = float(cell) if plain else math.nan
        if math.isfinite(value):
            return value, None, False
    except ValueError:
        pass
    match = _NUMBER.fullmatch(cell) if len(cell) <= LONGEST else None
    if match is None:
        return None
    digits, exponent, prefix, unit = match.groups()
    digits = digits.strip()
    whole, mark, rest = digits.rpartition(decimal)
    if not mark:
        whole, rest = digits, ""
    thousands = _GROUPS.fullmatch(whole)
    if not thousands and not re.fullmatch(r"[+-]?[0-9]*", whole):
        return None
    if (thousands and thousands[1] == decimal) or not re.fullmatch("[0-9]*", rest):
        return None
    whole = re.sub(r"[^0-9+-]", "", whole)
    seconds = None
    if unit:
        rate = _PER.fullmatch(unit.strip())
        if rate is None and not _PLAIN.fullmatch(unit.strip()):
            return None
        seconds = _seconds_of(rate[1]) if rate else None
    value = float(f"{whole or 0}.{rest or 0}{exponent or ''}")
    return value * _FACTORS.get((prefix or "").lower(), 1.0), seconds, bool(prefix)


def decimal_of(cells: Iterable[Any], delimiter: str | None) -> Decimal | None:
    """Return the decimal mark in texts; None if it is ambiguous, as in 1.234."""
    unsure = False
    for cell in cells:
        if not isinstance(cell, str):
            continue
        match = re.match(r"[+-]?[0-9., '\u00a0\u202f]*", cell[:LONGEST])
        digits = match[0].strip(" '\u00a0\u202f") if match else ""
        marks = re.sub("[^.,]", "", digits)
        if not marks:
            continue
        if len(set(marks)) == 2:  # 1.234,5: the last mark
            return "," if marks[-1] == "," else "."
        if len(marks) > 1:  # 1.234.567: thousands
            return "." if marks[0] == "," else ","
        if not _GROUPS.fullmatch(digits) or digits.lstrip("+-").startswith("0"):
            return "," if marks == "," else "."
        unsure = unsure or marks == "," or delimiter == ";"
    return None if unsure else "."


def numbers_of(table: Table, column: Column, decimal: Decimal) -> Numbers:
    """Return the numbers of a column. Raises TraceError for a cell that is not a number."""
    values = np.full(len(column.cells), np.nan)
    units = np.ones(len(column.cells))
    seconds: set[int | None] = set()
    abbreviated = None
    for at, cell in enumerate(column.cells):
        if is_missing(cell):
            continue
        parsed = parse_number(cell, decimal)
        if parsed is None or not 0 <= parsed[0] < math.inf:
            row = int(np.argmax(column.codes == at))
            rule = "not a number" if parsed is None else "counts must be finite, and 0 or more"
            hint = "" if decimal == "." or parsed else f" with decimal mark {decimal!r}"
            table.fault(
                f"{rule}{hint}; to exclude a column without requests, pass the others as arrivals=",
                row,
                column.name,
                cell,
            )
            continue
        values[at], units[at] = parsed[0], parsed[1] or 1
        abbreviated = abbreviated or (str(cell) if parsed[2] else None)
        if parsed[0]:
            seconds.add(parsed[1])
    if len(seconds) > 1 and None in seconds:
        unitless = next(
            c for c in column.cells if (p := parse_number(c, decimal)) and p[0] and not p[1]
        )
        row = int(np.argmax(column.codes == list(column.cells).index(unitless)))
        table.fault(
            "missing unit; add it, as other cells of this column have one",
            row,
            column.name,
            unitless,
        )
    if len(seconds) > 1:
        values, seconds = values / units, {1}
    return Numbers(values[column.codes], next(iter(seconds), None), abbreviated)


def looks_numeric(cells: Sequence[Any]) -> bool:
    """Return True if most of these cells are numbers with either decimal mark."""
    numeric = [bool(parse_number(cell, ".") or parse_number(cell, ",")) for cell in cells]
    return 2 * sum(numeric) > len(numeric)
