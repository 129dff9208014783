"""Read the series of a file: Prometheus JSON, or a table with labels as column names."""

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
from corral.data.importers.tables.documents import is_json, load_json
from corral.data.importers.tables.numbers import numbers_of, per_seconds
from corral.data.importers.tables.roles import Roles
from corral.data.importers.tables.sheets import Unit, add_zone_guess, guess_decimal, utc_of
from corral.data.importers.tables.times import times_of
from corral.data.source import fault_error
from corral.data.trace import Counts

__all__ = ["LABELS", "Series", "has_labels", "read_series"]

LABELS = re.compile(r'([A-Za-z_][\w.]*)="((?:[^"\\]|\\.)*)"')
"""Labels in a column name, such as {instance="a:9090", job="api"}."""

LONGEST_TITLE = 2_000
"""Maximum length of a column name with labels, in characters."""

KINDS = ("matrix", "vector", "scalar", "string")

SHAPE = '{"data": {"result": [{"metric": {...}, "values": [[time, "value"], ...]}, ...]}}'


def has_labels(title: str) -> bool:
    return len(title) <= LONGEST_TITLE and LABELS.search(title) is not None


@dataclass(frozen=True)
class Series:
    """One series: ``values`` [T], NaN if missing, at ``times`` [T], seconds since 1970."""

    labels: dict[str, str]
    times: Counts
    values: npt.NDArray[np.float64]
    path: Path
    unit: Unit = field(default_factory=Unit)

    @property
    def table(self) -> Table:
        """A table without columns, for the file name in errors."""
        return Table(self.path, {}, np.arange(len(self.times)), None)

    def present(self) -> tuple[Counts, npt.NDArray[np.float64]]:
        """Return times and values without the missing values."""
        present = ~np.isnan(self.values)
        return self.times[present], self.values[present]


def read_series(
    path: Path,
    zone: str | None,
    notes: list[str],
    guesses: list[Guess],
    *,
    max_bytes: int,
    max_cells: int,
) -> list[Series]:
    """Return the series of a file. For a table, add a guess about its time zone.

    Raises TraceError if the file is neither JSON nor a table of series.
    """
    if not is_json(path, max_bytes=max_bytes):
        table = read_table(path, notes, max_bytes=max_bytes, max_cells=max_cells)
        return _of_table(table, zone, notes, guesses)
    document = load_json(path, max_bytes=max_bytes)
    return _of_json(document, path, notes)


# --- JSON ----------------------------------------------------------------------------------------


def _of_json(document: Any, path: Path, notes: list[str]) -> list[Series]:
    def refuse(rule: str) -> NoReturn:
        raise fault_error(path, rule)

    if isinstance(document, dict):
        if document.get("status") == "error":
            # Other programs also write a status, and their error texts may hold secrets.
            words = f": {document.get('error')}" if "errorType" in document else ""
            refuse(f"Prometheus returned an error{words}")
        warnings = document.get("warnings")
        for warning in warnings if isinstance(warnings, list) else []:
            notes.append(f"{path.name}: Prometheus warns: {warning}")
        document = document.get("data", document)
    if isinstance(document, dict):
        kind = document.get("resultType", "matrix")
        if kind not in KINDS:
            refuse(f"this JSON is not a Prometheus response to query_range: {SHAPE}")
        if kind != "matrix":
            refuse(
                f"a {kind} result holds a single time; query /api/v1/query_range with start, end "
                "and step"
            )
        document = document.get("result")
    if not isinstance(document, list):
        refuse(f"this JSON is not a Prometheus response to query_range: {SHAPE}")
    if not document:
        refuse("the response is empty: no series matches the query at that time")
    series, num_bad, truncated = [], {"NaN": 0, "infinite": 0}, False
    for number, entry in enumerate(document, 1):
        if isinstance(entry, dict) and "histograms" in entry:
            refuse("native histograms are not supported; query histogram_count(rate(...))")
        metric = entry.get("metric", {}) if isinstance(entry, dict) else None
        pairs = entry.get("values") if isinstance(entry, dict) else None
        if not isinstance(metric, dict) or not isinstance(pairs, list) or not pairs:
            refuse(f"series {number} has no values; a response to query_range is {SHAPE}")
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
        if not np.isfinite(bounds).all() or not all(in_calendar(int(bound)) for bound in bounds):
            refuse(f"series {number} has times that are not seconds since 1970: {bounds[1]:g}")
        if (values < 0).any() and (negative := values[np.isfinite(values) & (values < 0)]).size:
            refuse(f"series {number} holds {negative[0]:g}; requests must be 0 or more")
        num_bad["NaN"] += int(np.isnan(values).sum())
        num_bad["infinite"] += int(np.isinf(values).sum())
        truncated = truncated or bool((times % 1).any())
        values[~np.isfinite(values)] = np.nan
        series.append(Series(labels, np.floor(times).astype(np.int64), values, path))
    _add_notes(path, num_bad, truncated, notes)
    return series


def _add_notes(path: Path, num_bad: dict[str, int], truncated: bool, notes: list[str]) -> None:
    for kind, number in num_bad.items():
        if number:
            words = (
                f"{counted(number, 'value')} {were(number)} {kind} and counts as missing; see gaps="
            )
            notes.append(f"{path.name}: {words}")
    if truncated:
        notes.append(f"{path.name}: times were truncated to whole seconds")


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
        problem = f"column {unknown[0]!r} has no label" if unknown else f"columns are {names[:3]}"
        raise fault_error(
            path,
            'not a table of series, such as Time,{instance="a"},{instance="b"}: '
            f"{problem}; for other tables, run corral trace import {path}",
        )
    times = times_of(table, table.columns[time], order=None, time_format=None)
    add_zone_guess(guesses, table, times, zone, None)
    seconds = utc_of(table, times, Roles("wide"), zone, None, notes)
    num_bad = {"infinite": 0}
    for name in columns:
        table.columns[name] = _without_infinity(table.columns[name], num_bad)
    mark = guess_decimal(table, columns, None)
    series = []
    for name in columns:
        numbers = numbers_of(table, table.columns[name], mark)
        unit = Unit(numbers.seconds, "the units in the cells")
        if numbers.seconds is None and (per := per_seconds(name)) is not None:
            unit = Unit(per, f"the name of column {name!r}")
        labels = {key: re.sub(r"\\(.)", r"\1", text) for key, text in LABELS.findall(name)}
        metric = re.match(r"[A-Za-z_:][\w:]*(?=\{)", name)
        if metric:
            labels["__name__"] = metric[0]
        series.append(Series(labels, seconds, numbers.values, path, unit))
    _add_notes(path, num_bad, times.cut, notes)
    return series


def _without_infinity(column: Column, num_bad: dict[str, int]) -> Column:
    """Return the column with infinite cells replaced by missing ones."""
    infinite = [
        isinstance(cell, str) and cell.lower().lstrip("+-") in ("inf", "infinity", "∞")
        for cell in column.cells
    ]
    num_bad["infinite"] += int(np.isin(column.codes, np.flatnonzero(infinite)).sum())
    cells: Sequence[Any] = [
        "" if is_infinite else cell
        for cell, is_infinite in zip(column.cells, infinite, strict=True)
    ]
    return replace(column, cells=cells)
