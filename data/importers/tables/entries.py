"""Flatten nested JSON: each entry of the innermost list becomes a row of path -> value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from corral.data.headers import TIME_WORDS, words_of
from corral.data.importers.tables.columns import quoted
from corral.data.importers.tables.numbers import looks_numeric
from corral.data.importers.tables.roles import ARRIVALS, METRICS, words_of_all
from corral.data.importers.tables.times import UNDATED, is_clock, is_day, style_of
from corral.data.source import fault_error

__all__ = ["PATHS", "Flatten", "Row", "as_list", "chain_of", "flat", "follow"]

PATHS = (
    "Pass the paths of times, nodes and loads, such as time_column='data[].timeStamp', "
    "node_column=host, arrivals='data[].total'"
)

Row = Mapping[str, Any]


def flat(value: Any, path: str = "", lists: dict[str, list[Any]] | None = None) -> dict[str, Any]:
    """Return path -> value for the values in nested objects. Lists are added to ``lists``.

    A list of values in a list, such as [time, value], has the paths ``[][0]`` and ``[][1]``. With
    ``lists``, an empty list is a value.
    """
    if isinstance(value, dict):
        leaves: dict[str, Any] = {}
        for key, item in value.items():
            name = f"{path}.{key}" if path else key
            item = as_list(item)
            if isinstance(item, dict | list):
                leaves |= flat(item, name, lists)
            else:
                leaves[name] = item
        return leaves
    if not isinstance(value, list):
        return {path: value}
    if path.endswith("[]") and not any(isinstance(item, dict | list) for item in value):
        return {f"{path}[{at}]": item for at, item in enumerate(value)}
    if lists is not None and value:
        lists[f"{path}[]"] = value
    return {f"{path}[]": []} if lists is not None and not value else {}


def as_list(value: Any, levels: int = 4) -> Any:
    """Return an object with row numbers, times or nodes as keys as a list; others as they are.

    A time or a node becomes a value of the entry: ``{time: {...}}`` is ``[{"time": time, ...}]``.
    Names are nodes if all hold entries with times and equal keys, at most ``levels`` deeper.
    """
    if not isinstance(value, dict) or len(value) < 2 or not levels:
        return value
    keys = [*value]
    if keys[0][:1].isdigit() and _are_times(keys):
        return [e for key, item in value.items() for e in _entries({"time": key}, item)]
    are_rows = keys[0] == "0" and keys == [*map(str, range(len(keys)))]
    items = [*value.values()]
    if not all(isinstance(item, dict | list) for item in items):
        return items if are_rows else value
    items = [_as_rows(as_list(item, levels - 1)) for item in items]
    firsts = [item[0] for item in items if isinstance(item, list) and item]
    shapes = [flat(first, "[]") for first in firsts if isinstance(first, dict | list)]
    if are_rows and not shapes:
        return items
    if len(shapes) < len(items) or not all(map(_has_time, shapes)) or not _have_equal_keys(shapes):
        return value
    name = _kind_of(keys)
    return [e for key, item in zip(keys, items, strict=True) for e in _entries({name: key}, item)]


def _as_rows(value: Any) -> Any:
    """Return an object with times and other lists of equal length as a list of entries."""
    if not isinstance(value, dict) or not all(isinstance(item, list) for item in value.values()):
        return value
    if len({*map(len, value.values())}) > 1 or not any(map(_are_times, value.values())):
        return value
    return [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]


def _entries(outer: dict[str, Any], item: Any) -> Iterator[dict[str, Any]]:
    if isinstance(item, dict):
        inner = [*item.values()]
        if len(inner) > 1 and is_day(outer.get("time")) and (part := _part_of_day([*item])):
            for key, entry in item.items():
                yield from _entries({**outer, part: key}, entry)
        elif len(inner) > 1 and all(isinstance(i, dict) for i in inner) and _have_equal_keys(inner):
            name = _kind_of([*item])
            yield from ({**outer, name: key, **entry} for key, entry in item.items())
        else:
            yield outer | item
    elif isinstance(item, list) and item and all(isinstance(entry, dict) for entry in item):
        yield from (outer | entry for entry in item)
    else:
        yield outer | {"values" if isinstance(item, list) else "value": item}


def _part_of_day(keys: Sequence[str]) -> str | None:
    """Return the kind of keys that are times of day: a clock, such as 09:00, or an hour."""
    if all(is_clock(key) and "-" not in key for key in keys):  # 09:00-10:00 is a range
        return "clock"
    return "hour" if all(re.fullmatch("[01]?[0-9]|2[0-4]", key) for key in keys) else None


def _kind_of(keys: Sequence[str]) -> str:
    return "metric" if words_of_all(keys) & (METRICS | ARRIVALS) else "node"


def _have_equal_keys(rows: Sequence[Row]) -> bool:
    return all(row.keys() == rows[0].keys() for row in rows)


def _are_times(cells: Sequence[Any]) -> bool:
    return len(cells) > 1 and style_of(cells[:9]) not in UNDATED


def _are_columns(items: Sequence[Any]) -> bool:
    """Return True for lists of equal length of which the first holds times."""
    lengths = {len(item) for item in items if isinstance(item, list)}
    heads = [item[0] for item in items if isinstance(item, list) and item]
    return (
        len(lengths) == 1
        and len(heads) == len(items)
        and _are_times(items[0])
        and not _are_times(heads)
    )


def _has_time(row: Row) -> bool:
    return any(style_of([cell]) not in UNDATED for cell in row.values())


def follow(value: Any, path: str) -> Iterator[Any]:
    """Yield the values at a path, such as ``items[].views``."""
    if isinstance(value, list) and (not path or path[0] != "["):
        for item in value:
            yield from follow(item, path)
    elif not path:
        yield value
    elif match := re.match(r"\[(\d*)\]\.?|([^.\[]+)\.?", path):
        rest = path[match.end() :]
        if match[2] is not None:
            if isinstance(value, dict) and match[2] in value:
                yield from follow(value[match[2]], rest)
        elif isinstance(value, list):
            items = value if not match[1] else value[int(match[1]) : int(match[1]) + 1]
            for item in items:
                yield from follow(item, rest)


def chain_of(path: str | None) -> str | None:
    """Return the list of the entries with this path; None for a path without a list."""
    return path[: path.rfind("[]") + 2] if path is not None and "[]" in path else None


@dataclass(frozen=True)
class Flatten:
    """How the entries of a document become rows.

    ``chain`` is the list of the entries. Without it, the only list of objects or lists on each
    level is followed, down to an entry with the path ``time``. ``named`` are the paths that
    the caller named, which may be in other lists.
    """

    file: Path
    time: str | None
    chain: str | None
    named: AbstractSet[str]

    def rows(self, value: Any, prefix: str, outer: Row, *, is_entry: bool) -> Iterator[Row]:
        """Yield a row for each entry in ``value``, with the values ``outer`` around it."""
        lists: dict[str, list[Any]] = {}
        leaves = flat(value, prefix, lists)
        is_entry = bool(lists) and is_entry and _has_time(leaves)
        for key in [*lists] if is_entry and self.chain is None else ():
            if len(lists[key]) == 1 and isinstance(lists[key][0], dict):
                leaves |= flat(lists.pop(key)[0], key, lists)
        empty = {key: leaves.pop(key) for key in [*leaves] if leaves[key] == []}
        row: dict[str, Any] = {**outer, **leaves}
        inner = self._inner(row, lists, is_entry) if lists else None
        if inner is None:
            if self.chain is None or prefix == self.chain:
                yield {**row, **_numbers(row, lists)}
            return
        items = lists[inner]
        if isinstance(items[0], list) and _are_columns(items):
            items = [*map(list, zip(*items, strict=True))]
        is_plain = not isinstance(items[0], dict | list)
        parallel = {
            key: column
            for key, column in lists.items()
            if not isinstance(column[0], dict | list)
            and len(column) == len(items)
            and (is_plain or _are_times(column))
        }
        if is_plain:
            self._check_lengths(inner, {**lists, **empty}, parallel)
        for name, key in ((n, k) for n in self.named for k in lists if n.startswith(k)):
            if key in parallel or key == inner:
                continue
            if name == key and is_plain:
                raise fault_error(self.file, f"the lists {name} and {inner} differ in length")
            row[name] = "/".join(map(str, follow(lists[key], name[len(key) :].lstrip("."))))
        titles = self._titles(inner, {**lists, inner: items})
        for at, item in enumerate(items):
            values = {name: column[at] for name, column in parallel.items()}
            if titles and isinstance(item, list):
                if item == titles:
                    continue
                if len(item) != len(titles):
                    raise fault_error(self.file, f"the lists in {inner} differ in length")
                item = dict(zip(titles, item, strict=True))
            yield from self.rows(item, inner, {**row, **values}, is_entry=True)

    def _inner(self, row: Row, lists: Mapping[str, list[Any]], is_entry: bool) -> str | None:
        """Return the list with the entries of this level; None if the level is an entry."""
        if self.chain is not None:
            return next((key for key in lists if self.chain.startswith(key)), None)
        inner = [key for key, items in lists.items() if isinstance(items[0], dict | list)]
        if self.time in row:
            return None
        if not inner:  # a list for each column
            times = [key for key, items in lists.items() if _are_times(items)]
            times = [*lists] if self.time == "row" else times
            return times[0] if times and len(lists) > 1 and not _has_time(row) else None
        if len(inner) > 1:
            timed = [key for key in inner if _has_time(flat(lists[key][0], key))]
            inner = timed if len(timed) == 1 else inner
        if len(inner) > 1 or is_entry:
            self._stop(row, {key: lists[key][0] for key in inner})
        return inner[0]

    def _check_lengths(
        self, inner: str, lists: Mapping[str, list[Any]], parallel: Mapping[str, list[Any]]
    ) -> None:
        """Refuse numbers or times that differ from ``inner`` in length, unless loads are named."""
        if self.named & lists.keys() - {self.time}:
            return
        for key in (key for key in lists if key not in parallel):
            cells = [cell for cell in lists[key][:200] if cell is not None]
            if not cells or looks_numeric(cells) or _are_times(cells):
                loads = [k for k, items in parallel.items() if not _are_times(items)][:8]
                remedy = f"complete or remove {key}"
                if loads:
                    remedy += f", or pass the loads, such as arrivals={quoted(','.join(loads))}"
                rule = f"the lists {key} and {inner} differ in length"
                raise fault_error(self.file, f"{rule}; {remedy}")

    def _titles(self, inner: str, lists: Mapping[str, list[Any]]) -> list[str] | None:
        """Return the names of the values in lists of ``inner``: a list next to it, or its first.

        If the values include a time, a list next to them must have a name for it: others may be
        tags or units. Return None without names, or if the caller named the values by their places.
        """
        items = lists[inner]
        if not isinstance(items[0], list) or any(n.startswith(f"{inner}[") for n in self.named):
            return None
        times = [at for at, cell in enumerate(items[-1]) if _has_time({"": cell})]
        candidates = [column for key, column in lists.items() if key != inner]
        if len(items) > 1 and not _has_time(flat(items[0], "[]")):
            candidates.append(items[0])
        for column in candidates:
            names = [cell.get("name") if isinstance(cell, dict) else cell for cell in column]
            titles = [name for name in names if isinstance(name, str)]
            if not len(items[-1]) == len(names) == len(titles) == len({*titles}):
                continue
            heads = [titles[at] for at in times if ":" not in titles[at]]  # "data:x" is a tag
            names_time = any(words_of(head) & TIME_WORDS for head in heads)
            if names_time or not times or column is items[0]:
                return titles
        return None

    def _stop(self, row: Row, first_of: Mapping[str, Any]) -> NoReturn:
        """Refuse lists that could hold the entries. Their keys are named if they hold times."""
        paths = [path for key, first in first_of.items() for path in flat(first, key)]
        cells = {
            **row,
            **{k: v for key, first in first_of.items() for k, v in flat(first, key).items()},
        }
        times = [path for path, cell in cells.items() if style_of([cell]) not in UNDATED]
        texts = [
            path for path, cell in cells.items() if isinstance(cell, str) and path not in times
        ]
        numbers = [
            path for path in paths if isinstance(cells[path], int | float) and path not in times
        ]
        advice = PATHS
        if times and paths:
            roles = {"time_column": times, "node_column": texts[::-1], "arrivals": numbers}
            examples = [
                f"{role}={quoted(cells_of[0])}" for role, cells_of in roles.items() if cells_of
            ]
            advice = (
                f"They have {', '.join(paths[:8])}. Pass the paths of times, nodes and loads, such "
                f"as {', '.join(examples)}"
            )
        lists = ", ".join([*first_of][:8])
        raise fault_error(self.file, f"the lists {lists} could hold the entries. {advice}")


def _numbers(row: Row, lists: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Return the numbers in the lists of an entry with a time, as ``values[0]``, ``values[1]``."""
    numbers = {
        f"{key[:-2]}[{at}]": number
        for key, items in lists.items()
        if all(type(item) in (int, float) for item in items)
        for at, number in enumerate(items)
    }
    return numbers if numbers and _has_time(row) else {}
