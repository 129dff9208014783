"""The search space of a study: values of settings, as text or as Python values.

| text | meaning |
|---|---|
| ``1e-4,5e-4`` | these values; for a setting with commas in its values ``64,64;128,128`` |
| ``0.9..1`` | from 0.9 to 1; whole numbers for an integer setting |
| ``log:0.005..0.3`` | the same range, sampled on a logarithmic scale |
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
"""Setting -> its value in a trial."""


@dataclass(frozen=True)
class Choices:
    """A list of values of a setting."""

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
    """Return a value as text for an option of ``corral train``."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple | list):
        return ",".join(map(str, value)) + "," * (len(value) == 1)
    return repr(value) if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Space:
    """The search space: grid, searched settings, and points to try first."""

    grid: Mapping[str, Choices]
    search: Mapping[str, Choices | Range]
    points: tuple[Parameters, ...]

    @classmethod
    def of(cls, kind: Any, arguments: Iterable[str], grid: Any, search: Any, points: Any) -> Space:
        """Parse the arguments of a study, for settings of the trainer class ``kind``.

        ``arguments`` are those of the environment. Raises UnknownNameError, ArgumentError and
        ValueError, see ``corral.tune``.
        """
        settings = {field.name: field for field in fields(kind.Settings)}
        for name in [*grid, *search, *itertools.chain.from_iterable(points)]:
            _require_setting(name, kind, settings, arguments)
        if twice := [name for name in grid if name in search]:
            raise ValueError(f"{twice[0]}: give it in grid= or in search=, not in both")
        choices = {name: _choices(name, value, settings[name]) for name, value in grid.items()}
        searched = {name: _searched(name, value, settings[name]) for name, value in search.items()}
        first_points = tuple(
            {name: _read(name, value, settings[name]) for name, value in point.items()}
            for point in points
        )
        if not (choices or searched or any(first_points)):
            raise ValueError("nothing to try: give grid=, search= or --point (points=)")
        return cls(choices, searched, _checked_points(first_points, choices, searched))

    @property
    def names(self) -> tuple[str, ...]:
        """The settings that vary between trials."""
        return tuple(
            dict.fromkeys([*self.grid, *self.search, *(n for p in self.points for n in p)])
        )

    def listed(self) -> list[Parameters]:
        """Return the first points, then the points of the grid that are not among them.

        In a study with a search, trials use these points in turn, with sampled searched settings.
        """
        require_room(
            **{f"values of {name}": len(choices.values) for name, choices in self.grid.items()}
        )
        combinations = itertools.product(*(choices.values for choices in self.grid.values()))
        grid = (
            [dict(zip(self.grid, values, strict=True)) for values in combinations]
            if self.grid
            else []
        )
        return [*self.points, *(point for point in grid if point not in self.points)]

    def corners(self) -> list[Parameters]:
        """Return points for checking that all values are valid.

        Each listed value and each end of a range occurs once, with the first value of all others.
        """
        dimensions: dict[str, Choices | Range] = {**self.grid, **self.search}
        origin = {name: dimension.ends[0] for name, dimension in dimensions.items()}
        corners = [origin, *self.points]
        corners += [
            {**origin, name: value}
            for name, dimension in dimensions.items()
            for value in dimension.ends[1:]
        ]
        return corners

    def as_json(self) -> dict[str, Any]:
        """Return the space as stored in study.json."""
        return {
            "grid": {name: str(values) for name, values in self.grid.items()},
            "search": {name: str(values) for name, values in self.search.items()},
            "points": [{name: text_of(v) for name, v in point.items()} for point in self.points],
        }


def _require_setting(
    name: str, kind: Any, known: Mapping[str, Any], arguments: Iterable[str]
) -> None:
    if name in known:
        return
    if name in arguments:
        raise ArgumentError(
            f"{name} is an argument of the environment, not a setting of {kind.name}. Values from "
            "different environments cannot be compared; make one study per value"
        )
    if name == "seed":
        raise ArgumentError("seed is not a setting: seeds=3 trains each trial with three seeds")
    raise UnknownNameError(f"{unknown_setting(name, kind.name, known)} Known: {', '.join(known)}")


def _checked_points(
    points: tuple[Parameters, ...], grid: Mapping[str, Choices], search: Mapping[str, Any]
) -> tuple[Parameters, ...]:
    """Return the points without duplicates. Raises ValueError if one is outside of the space."""
    varied = {*grid, *search} or {*points[0]} if points else set()
    for point in points:
        text = ",".join(f"{name}={text_of(value)}" for name, value in point.items())
        if constant := sorted({*point} - varied):
            raise ValueError(
                f"point {text}: {constant[0]} has one value in all other trials; leave it out"
            )
        if missing := sorted(({*grid} or ({*varied} - {*search})) - {*point}):
            raise ValueError(f"point {text}: {missing[0]} is missing; add it")
        for name, value in point.items():
            if name in search and value not in search[name]:
                raise ValueError(f"point {text}: {name} is not in {search[name]}")
    return tuple(point for at, point in enumerate(points) if point not in points[:at])


# --- Values --------------------------------------------------------------------------------------


def _choices(name: str, value: Any, field: Field[Any]) -> Choices:
    """Return the values of a setting. Raises ValueError."""
    if isinstance(value, str):
        if ".." in value:
            raise ValueError(
                f"{name}={value}: give values separated by commas; ranges are for search="
            )
        commas = type_of(field).startswith("tuple") or ";" in value
        value = [part for part in value.split(";" if commas else ",") if part.strip()]
    if not isinstance(value, Sequence) or not len(value):
        raise ValueError(f"{name}={value!r}: give at least one value, such as 1e-4,5e-4")
    return Choices(tuple(dict.fromkeys(_read(name, value, field) for value in value)))


def _searched(name: str, value: Any, field: Field[Any]) -> Choices | Range:
    """Return the values or the range to search. Raises ValueError."""
    if isinstance(value, Range):
        value = str(value)
    if isinstance(value, tuple) and len(value) == 2:  # low..high in Python
        value = f"{text_of(value[0])}..{text_of(value[1])}"
    if not isinstance(value, str) or ".." not in value:
        if isinstance(value, str) and value.startswith("log:"):
            raise ValueError(f"{name}={value}: give log:LOW..HIGH")
        choices = _choices(name, value, field)
        if len(choices.values) < 2:
            raise ValueError(
                f"{name}={choices}: a search needs more than one value; give LOW..HIGH, or values"
            )
        return choices
    log, text = value.startswith("log:"), value.removeprefix("log:")
    if type_of(field).partition(" | ")[0] not in ("int", "float"):
        raise ValueError(f"{name}={value}: not a numeric setting; give values separated by commas")
    parts = [part.strip() for part in text.split("..", 1)]
    ends: list[Any] = [_read(name, part, field) for part in parts] if all(parts) else [None]
    if not all(isinstance(end, int | float) and math.isfinite(end) for end in ends):
        raise ValueError(f"{name}={value}: give two numbers, LOW..HIGH")
    low, high = ends
    if low > high:
        raise ValueError(f"{name}={value}: the range is reversed; give {high}..{low}")
    if low == high:
        raise ValueError(f"{name}={value}: the range is empty; give two different ends")
    if log and low <= 0:
        raise ValueError(f"{name}={value}: a logarithmic range needs ends above 0")
    return Range(low, high, log, isinstance(low, int) and isinstance(high, int))


def _read(name: str, value: Any, field: Field[Any]) -> Any:
    """Return a value of a setting, converted to the setting's type. Raises ValueError."""
    kind, _, other = type_of(field).partition(" | ")
    try:
        return _of_type(value, kind, other)
    except (KeyError, TypeError, ValueError):
        expectations = {"int": "a whole number", "float": "a number", "bool": "on or off"}
        expected = expectations.get(kind, "whole numbers separated by commas, such as 64,64")
        raise ValueError(f"{name}={value!r}: give {expected}") from None


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
        return text  # a schedule, which is checked later
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
