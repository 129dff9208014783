"""What a study tries: values of settings, as text or as Python has them.

| text | meaning |
|---|---|
| ``1e-4,5e-4`` | these values; of a setting that has commas itself ``64,64;128,128`` |
| ``0.9..1`` | from 0.9 to 1; whole numbers where the setting is one |
| ``log:0.005..0.3`` | the same, drawn on a logarithmic scale |
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from typing import Any

from corral.errors import ArgumentError, UnknownNameError
from corral.lab.jobs import require_room
from corral.trainers.settings import type_of, unknown_setting

__all__ = ["Choices", "Parameters", "Range", "Space", "text_of"]

Parameters = dict[str, Any]
"""setting -> its value, in a trial."""


@dataclass(frozen=True)
class Choices:
    """Some values of a setting."""

    values: tuple[Any, ...]

    def __str__(self) -> str:
        return (";" if any(isinstance(v, tuple) for v in self.values) else ",").join(
            map(text_of, self.values)
        )

    def __contains__(self, value: Any) -> bool:
        return value in self.values

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.values


@dataclass(frozen=True)
class Range:
    """All values of a setting from ``low`` to ``high``, both included."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __str__(self) -> str:
        return f"{'log:' * self.log}{text_of(self.low)}..{text_of(self.high)}"

    def __contains__(self, value: Any) -> bool:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and self.low <= value <= self.high

    @property
    def ends(self) -> tuple[Any, ...]:
        return (self.low, self.high)


def text_of(value: Any) -> str:
    """Return a value as ``corral train`` takes it after an option."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple | list):
        return ",".join(map(str, value)) + "," * (len(value) == 1)
    return repr(value) if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Space:
    """What a study tries: each point of the grid, what is searched, and points tried first."""

    grid: Mapping[str, Choices]
    search: Mapping[str, Choices | Range]
    points: tuple[Parameters, ...]

    @classmethod
    def of(cls, kind: Any, arguments: Iterable[str], grid: Any, search: Any, points: Any) -> Space:
        """Read what was given for settings of ``kind``, a class of trainers.

        ``arguments`` are those of the environment. Raises UnknownNameError, ArgumentError and
        ValueError, see ``corral.tune``.
        """
        known = {one.name: one for one in fields(kind.Settings)}
        for name in [*grid, *search, *itertools.chain.from_iterable(points)]:
            _require_setting(name, kind, known, arguments)
        if both := [name for name in grid if name in search]:
            raise ValueError(f"{both[0]}: give it to grid= or to search=, not to both")
        chosen = {name: _choices(name, given, known[name]) for name, given in grid.items()}
        drawn = {name: _searched(name, given, known[name]) for name, given in search.items()}
        first = tuple(
            {name: _read(name, value, known[name]) for name, value in point.items()}
            for point in points
        )
        if not (chosen or drawn or any(first)):
            raise ValueError("nothing to try: give grid=, search= or --point (points=)")
        return cls(chosen, drawn, _checked_points(first, chosen, drawn))

    @property
    def names(self) -> tuple[str, ...]:
        """The settings that differ between trials."""
        return tuple(
            dict.fromkeys([*self.grid, *self.search, *(n for p in self.points for n in p)])
        )

    def listed(self) -> list[Parameters]:
        """Return the points that are given first, then those of the grid that are not among them.

        Of a space with a search they are fixed, in turn, and what is searched is drawn.
        """
        require_room(**{f"values of {name}": len(each.values) for name, each in self.grid.items()})
        whole = itertools.product(*(each.values for each in self.grid.values()))
        grid = [dict(zip(self.grid, values, strict=True)) for values in whole] if self.grid else []
        return [*self.points, *(point for point in grid if point not in self.points)]

    def corners(self) -> list[Parameters]:
        """Return points that show whether all values are taken: each value of a list and each end
        of a range once, the others at their first."""
        every: dict[str, Choices | Range] = {**self.grid, **self.search}
        first = {name: each.ends[0] for name, each in every.items()}
        found = [first, *self.points]
        found += [{**first, name: value} for name, each in every.items() for value in each.ends[1:]]
        return found

    def as_json(self) -> dict[str, Any]:
        """Return it as study.json keeps it."""
        return {
            "grid": {name: str(each) for name, each in self.grid.items()},
            "search": {name: str(each) for name, each in self.search.items()},
            "points": [{name: text_of(v) for name, v in point.items()} for point in self.points],
        }


def _require_setting(
    name: str, kind: Any, known: Mapping[str, Any], arguments: Iterable[str]
) -> None:
    if name in known:
        return
    if name in arguments:
        raise ArgumentError(
            f"{name} is an argument of the environment, and no setting of {kind.name}: with "
            "another game values could not be compared; make a study for each value of it"
        )
    if name == "seed":
        raise ArgumentError("seed is no setting: seeds=3 trains each trial with three")
    raise UnknownNameError(f"{unknown_setting(name, kind.name, known)} Known: {', '.join(known)}")


def _checked_points(
    points: tuple[Parameters, ...], grid: Mapping[str, Choices], search: Mapping[str, Any]
) -> tuple[Parameters, ...]:
    """Return points that are part of the space. Raises ValueError."""
    named = {*grid, *search} or {*points[0]} if points else set()
    for point in points:
        text = ",".join(f"{name}={text_of(value)}" for name, value in point.items())
        if foreign := sorted({*point} - named):
            raise ValueError(
                f"point {text}: {foreign[0]} is the same in all other trials; leave it out"
            )
        if missing := sorted(({*grid} or ({*named} - {*search})) - {*point}):
            raise ValueError(f"point {text}: it has no {missing[0]}; give that too")
        for name, value in point.items():
            if name in search and value not in search[name]:
                raise ValueError(f"point {text}: {name} is not in {search[name]}")
    return tuple(point for at, point in enumerate(points) if point not in points[:at])


# --- Values --------------------------------------------------------------------------------------


def _choices(name: str, given: Any, one: Field[Any]) -> Choices:
    """Return some values of a setting. Raises ValueError."""
    if isinstance(given, str):
        if ".." in given:
            raise ValueError(f"{name}={given}: give values with commas; a range is for search=")
        commas = type_of(one).startswith("tuple") or ";" in given
        given = [part for part in given.split(";" if commas else ",") if part.strip()]
    if not isinstance(given, Sequence) or not len(given):
        raise ValueError(f"{name}={given!r}: give one value or more, such as 1e-4,5e-4")
    return Choices(tuple(dict.fromkeys(_read(name, value, one) for value in given)))


def _searched(name: str, given: Any, one: Field[Any]) -> Choices | Range:
    """Return what a setting is searched in. Raises ValueError."""
    if isinstance(given, Range):
        given = str(given)
    if isinstance(given, tuple) and len(given) == 2:  # Python's way to say low..high
        given = f"{text_of(given[0])}..{text_of(given[1])}"
    if not isinstance(given, str) or ".." not in given:
        if isinstance(given, str) and given.startswith("log:"):
            raise ValueError(f"{name}={given}: give log:LOW..HIGH")
        found = _choices(name, given, one)
        if len(found.values) < 2:
            raise ValueError(f"{name}={found}: one value is no search; give LOW..HIGH, or several")
        return found
    log, text = given.startswith("log:"), given.removeprefix("log:")
    if type_of(one).partition(" | ")[0] not in ("int", "float"):
        raise ValueError(f"{name}={given}: it is no number; give values with commas")
    parts = [part.strip() for part in text.split("..", 1)]
    ends: list[Any] = [_read(name, part, one) for part in parts] if all(parts) else [None]
    if not all(isinstance(end, int | float) and math.isfinite(end) for end in ends):
        raise ValueError(f"{name}={given}: give two numbers, LOW..HIGH")
    low, high = ends
    if low > high:
        raise ValueError(f"{name}={given}: the range is reversed; give {high}..{low}")
    if low == high:
        raise ValueError(f"{name}={given}: the range is empty; give two ends that differ")
    if log and low <= 0:
        raise ValueError(f"{name}={given}: a logarithm needs ends above 0")
    return Range(low, high, log, isinstance(low, int) and isinstance(high, int))


def _read(name: str, value: Any, one: Field[Any]) -> Any:
    """Return the value of a setting, of its type. Raises ValueError."""
    kind, _, other = type_of(one).partition(" | ")
    try:
        return _of_type(value, kind, other)
    except (KeyError, TypeError, ValueError):
        wanted = {"int": "a whole number", "float": "a number", "bool": "on or off"}
        said = wanted.get(kind, "whole numbers with commas, such as 64,64")
        raise ValueError(f"{name}={value!r}: give {said}") from None


def _of_type(value: Any, kind: str, other: str) -> Any:
    text = value.strip() if isinstance(value, str) else value
    if "None" in other and (text is None or str(text).lower() == "none"):
        return None
    if kind == "bool":
        return {"true": True, "on": True, "false": False, "off": False}[str(text).lower()]
    if kind.startswith("tuple"):
        parts = text.split(",") if isinstance(text, str) else text
        return tuple(int(part) for part in parts if str(part).strip())
    if kind == "str":
        return str(text)
    if isinstance(text, bool) or (isinstance(text, str) and not text):
        raise ValueError
    if other == "str" and isinstance(text, str) and not _is_number(text):
        return text  # a schedule; its check says what is wrong
    number = float(text)
    if kind == "int":
        if not number.is_integer():
            raise ValueError
        return int(number)
    return number


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
