"""The series of a file: JSON as Prometheus answers query_range, or a table with labels above it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from corral.data.fields import in_calendar
from corral.data.importers.binning import Guess, counted, were
from corral.data.importers.tables.cells import Column, Table, read_table
from corral.data.importers.tables.numbers import numbers_of, per_seconds
from corral.data.importers.tables.roles import Roles
from corral.data.importers.tables.sheets import Unit, guess_decimal, tell_zone, utc_of
from corral.data.importers.tables.times import times_of
from corral.data.source import chunks, fault_error
from corral.data.trace import Counts

__all__ = ["LABELS", "MAX_JSON", "Series", "has_labels", "read_series"]

MAX_JSON = 64 * 2**20
"""Default limit on an answer after unpacking, in bytes: 1.6 million values. Read, it is many times
as large as that."""

MAX_MARKS = 5_000_000
"""Commas, colons and brackets in an answer: three for each of 1.6 million values."""

LABELS = re.compile(r'([A-Za-z_][\w.]*)="((?:[^"\\]|\\.)*)"')
"""Labels as they stand above a column: {instance="a:9090", job="api"}."""

LONGEST_TITLE = 2_000
"""Characters of a column's title beyond which it holds no labels."""

KINDS = ("matrix", "vector", "scalar", "string")

SHAPE = '{"data": {"result": [{"metric": {...}, "values": [[time, "value"], ...]}, ...]}}'


def has_labels(title: str) -> bool:
    return len(title) <= LONGEST_TITLE and LABELS.search(title) is not None


@dataclass(frozen=True)
class Series:
    """One series: ``values`` [T], NaN where it has none, at ``times`` [T], seconds since 1970."""

    labels: dict[str, str]
    times: Counts
    values: npt.NDArray[np.float64]
    path: Path
    unit: Unit = field(default_factory=Unit)

    @property
    def table(self) -> Table:
        """A table without columns, which names the file in errors."""
        return Table(self.path, {}, np.arange(len(self.times)), None)

    def known(self) -> tuple[Counts, npt.NDArray[np.float64]]:
        """Return times and values without those that are missing."""
        here = ~np.isnan(self.values)
        return self.times[here], self.values[here]


def read_series(
    path: Path,
    zone: str | None,
    notes: list[str],
    guesses: list[Guess],
    *,
    max_bytes: int,
    max_cells: int,
) -> list[Series]:
    """Return the series of a file; of a table, tell where its clocks stand.

    Raises TraceError where it is neither JSON nor such a table.
    """
    pieces: list[bytes] = []
    marks = 0
    for piece in chunks(path, max_bytes=max_bytes, max_line=max_bytes):
        if not pieces and piece.lstrip()[:1] not in (b"{", b"["):
            table = read_table(path, notes, max_bytes=max_bytes, max_cells=max_cells)
            return _of_table(table, zone, notes, guesses)
        pieces.append(piece)
        marks += sum(piece.count(mark) for mark in b"[{,:")
        if marks > MAX_MARKS:
            rule = f"more than {MAX_MARKS // 3:,} values: ask for a larger step, or a shorter time"
            raise fault_error(path, rule)
    if not pieces:
        raise fault_error(path, "the file is empty")
    try:
        document = json.loads(b"".join(pieces))
    except RecursionError:
        raise fault_error(path, "JSON that is nested too deeply: no answer of Prometheus") from None
    except ValueError as error:  # a mistake in the JSON, in its encoding, or a number of no end
        raise fault_error(path, f"not JSON, or cut short: {error}") from None
    return _of_json(document, path, notes)


# --- JSON ----------------------------------------------------------------------------------------


def _of_json(document: Any, path: Path, notes: list[str]) -> list[Series]:
    def refuse(rule: str) -> NoReturn:
        raise fault_error(path, rule)

    if isinstance(document, dict):
        if document.get("status") == "error":
            # Other programs have a status, too, and nobody knows what they call an error.
            words = f": {document.get('error')}" if "errorType" in document else ""
            refuse(f"Prometheus answered with an error{words}")
        warnings = document.get("warnings")
        for warning in warnings if isinstance(warnings, list) else []:
            notes.append(f"{path.name}: Prometheus warns: {warning}")
        document = document.get("data", document)
    if isinstance(document, dict):
        kind = document.get("resultType", "matrix")
        if kind not in KINDS:
            refuse(f"JSON, but not what Prometheus answers query_range: {SHAPE}")
        if kind != "matrix":
            refuse(
                f"a {kind}, which holds one moment: ask /api/v1/query_range, with start, end, step"
            )
        document = document.get("result")
    if not isinstance(document, list):
        refuse(f"JSON, but not what Prometheus answers query_range: {SHAPE}")
    if not document:
        refuse("the answer is empty: no series fits the query at that time")
    found, odd, cut = [], {"NaN": 0, "infinite": 0}, False
    for number, entry in enumerate(document, 1):
        if isinstance(entry, dict) and "histograms" in entry:
            refuse("native histograms: ask for histogram_count(rate(...)) of them")
        metric = entry.get("metric", {}) if isinstance(entry, dict) else None
        pairs = entry.get("values") if isinstance(entry, dict) else None
        if not isinstance(metric, dict) or not isinstance(pairs, list) or not pairs:
            refuse(f"series {number} has no values; an answer to query_range is {SHAPE}")
        labels = {str(key): str(value) for key, value in metric.items()}
        times, values = np.empty(len(pairs)), np.empty(len(pairs))
        for at, pair in enumerate(pairs):
            try:
                times[at], text = pair
                values[at] = float(text)
            except (TypeError, ValueError, OverflowError):
                shown = f" is {json.dumps(pair)[:60]}," if "metric" in entry else " is"
                refuse(f'value {at + 1} of series {number}{shown} not [seconds, "number"]')
        bounds = times.min(), times.max()
        if not np.isfinite(bounds).all() or not all(in_calendar(int(each)) for each in bounds):
            refuse(f"series {number} has times that are not seconds since 1970: {bounds[1]:g}")
        if (values < 0).any() and (negative := values[np.isfinite(values) & (values < 0)]).size:
            refuse(f"series {number} holds {negative[0]:g}; requests are 0 or more")
        odd["NaN"] += int(np.isnan(values).sum())
        odd["infinite"] += int(np.isinf(values).sum())
        cut = cut or bool((times % 1).any())
        values[~np.isfinite(values)] = np.nan
        found.append(Series(labels, np.floor(times).astype(np.int64), values, path))
    _tell(path, odd, cut, notes)
    return found


def _tell(path: Path, odd: dict[str, int], cut: bool, notes: list[str]) -> None:
    for what, number in odd.items():
        if number:
            words = f"{counted(number, 'value')} {were(number)} {what}: missing, see gaps="
            notes.append(f"{path.name}: {words}")
    if cut:
        notes.append(f"{path.name}: fractions of a second were cut off")


# --- Tables --------------------------------------------------------------------------------------


def _of_table(
    table: Table, zone: str | None, notes: list[str], guesses: list[Guess]
) -> list[Series]:
    path = table.path
    names = list(table.columns)
    time = next((name for name in names if not has_labels(name)), None)
    columns = [name for name in names if name != time and has_labels(name)]
    unknown = [name for name in names if name != time and name not in columns]
    if time is None or not columns or unknown:
        what = f"column {unknown[0]!r} has none" if unknown else f"columns are {names[:3]}"
        raise fault_error(
            path,
            'not a table of series, such as Time,{instance="a"},{instance="b"}: '
            f"{what}; corral trace import {path} reads other tables",
        )
    times = times_of(table, table.columns[time], order=None, time_format=None)
    tell_zone(guesses, table, times, zone, None)
    seconds = utc_of(table, times, Roles("wide"), zone, None, notes)
    odd = {"infinite": 0}
    for name in columns:
        table.columns[name] = _without_infinity(table.columns[name], odd)
    mark = guess_decimal(table, columns, None)
    found = []
    for name in columns:
        numbers = numbers_of(table, table.columns[name], mark)
        unit = Unit(numbers.seconds, "the units in its cells")
        if numbers.seconds is None and (per := per_seconds(name)) is not None:
            unit = Unit(per, f"the name of column {name!r}")
        labels = {key: re.sub(r"\\(.)", r"\1", text) for key, text in LABELS.findall(name)}
        metric = re.match(r"[A-Za-z_:][\w:]*(?=\{)", name)
        if metric:
            labels["__name__"] = metric[0]
        found.append(Series(labels, seconds, numbers.values, path, unit))
    _tell(path, odd, times.cut, notes)
    return found


def _without_infinity(column: Column, odd: dict[str, int]) -> Column:
    """Return the column with infinite cells as missing ones."""
    infinite = [
        isinstance(cell, str) and cell.lower().lstrip("+-") in ("inf", "infinity", "∞")
        for cell in column.cells
    ]
    odd["infinite"] += int(np.isin(column.codes, np.flatnonzero(infinite)).sum())
    cells: Sequence[Any] = [
        "" if bad else cell for cell, bad in zip(column.cells, infinite, strict=True)
    ]
    return replace(column, cells=cells)
