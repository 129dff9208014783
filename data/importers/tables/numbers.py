"""Numbers as people and programs write them: decimal commas, thousands, 3K, 1.22 req/s."""

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
"""Characters of a cell beyond which it is no number: patterns would take long to say so."""

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
    """The numbers of a column: ``values`` [R], NaN where a cell is empty.

    ``seconds``: values are requests per so many seconds, as their unit says; None: it has none.
    ``short``: a cell such as 3K, which does not show all its digits; None: there is none.
    """

    values: npt.NDArray[np.float64]
    seconds: int | None
    short: str | None


def _seconds_of(word: str) -> int:
    return {"s": 1, "m": 60, "h": 3600}[word[0].lower()]


def per_seconds(name: str) -> int | None:
    """Return the seconds that the name of a column counts per: 1 of "rps"; None: it says none."""
    found = _IN_NAME.search(name)
    if found is None:
        return None
    if found[1]:
        return 1
    return 60 if found[2] else _seconds_of(found[3])


def parse_number(cell: Any, decimal: Decimal = ".") -> tuple[float, int | None, bool] | None:
    """Return value, seconds of its rate or None, and whether it is abbreviated; None: no number."""
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
    """Return the mark before decimals in texts; None where it cannot be told: 1.234 is either."""
    unsure = False
    for cell in cells:
        if not isinstance(cell, str):
            continue
        found = re.match(r"[+-]?[0-9., '\u00a0\u202f]*", cell[:LONGEST])
        digits = found[0].strip(" '\u00a0\u202f") if found else ""
        marks = re.sub("[^.,]", "", digits)
        if not marks:
            continue
        if len(set(marks)) == 2:  # 1.234,5: the last one
            return "," if marks[-1] == "," else "."
        if len(marks) > 1:  # 1.234.567: thousands
            return "." if marks[0] == "," else ","
        if not _GROUPS.fullmatch(digits) or digits.lstrip("+-").startswith("0"):
            return "," if marks == "," else "."
        unsure = unsure or marks == "," or delimiter == ";"
    return None if unsure else "."


def numbers_of(table: Table, column: Column, decimal: Decimal) -> Numbers:
    """Return the numbers of a column. Raises TraceError for a cell that is none."""
    each = np.full(len(column.cells), np.nan)
    seconds: set[int | None] = set()
    short = None
    for at, cell in enumerate(column.cells):
        if is_missing(cell):
            continue
        found = parse_number(cell, decimal)
        if found is None or not 0 <= found[0] < math.inf:
            row = int(np.argmax(column.codes == at))
            rule = "not a number" if found is None else "counts are 0 or more, and finite"
            hint = "" if decimal == "." or found else f" with {decimal!r} before its decimals"
            table.fault(
                f"{rule}{hint}; columns that are no load are left out by arrivals=",
                row,
                column.name,
                cell,
            )
            continue
        each[at] = found[0] / (found[1] or 1)
        short = short or (str(cell) if found[2] else None)
        if found[0]:
            seconds.add(found[1])
    if len(seconds) > 1 and None in seconds:
        bare = next(
            c for c in column.cells if (p := parse_number(c, decimal)) and p[0] and not p[1]
        )
        row = int(np.argmax(column.codes == list(column.cells).index(bare)))
        table.fault("no unit, where other cells of the column have one", row, column.name, bare)
    rated = 1 if seconds - {None} else None  # divided above: per second
    return Numbers(each[column.codes], rated, short)


def looks_numeric(cells: Sequence[Any]) -> bool:
    """Tell whether most of these cells are numbers, in either writing."""
    found = [bool(parse_number(cell, ".") or parse_number(cell, ",")) for cell in cells]
    return 2 * sum(found) > len(found)
