"""Checks of an environment's arguments: each names the value and what is allowed."""

from __future__ import annotations

import difflib
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import Any

import numpy as np

from corral.hints import hint

__all__ = [
    "known_arguments",
    "nonnegative_float",
    "nonnegative_int",
    "one_of",
    "optional_int",
    "plain_numbers",
    "require_known_arguments",
    "yes_or_no",
]


def nonnegative_int(name: str, value: Any, least: int = 0) -> int:
    """Return ``value`` as an int. Raises ValueError below ``least``."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise ValueError(f"{name}={value!r}: give a whole number, {least} or more")
    return number


def optional_int(name: str, value: Any, least: int = 0) -> int | None:
    """Return None as it is, else what ``nonnegative_int`` makes of ``value``."""
    try:
        return None if value is None else nonnegative_int(name, value, least)
    except ValueError as error:
        raise ValueError(f"{error}, or None") from None


def nonnegative_float(name: str, value: Any) -> float:
    """Return ``value`` as a float. Raises ValueError where it is not finite, or below 0."""
    number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{name}={value!r}: give a finite number, 0 or more")
    return number


def yes_or_no(name: str, value: Any) -> bool:
    """Return ``value`` (a bool, or 0 or 1) as a bool. Raises ValueError."""
    if value is None or isinstance(value, str) or value not in (False, True):
        raise ValueError(f"{name}={value!r}: give True or False")
    return bool(value)


def one_of(name: str, value: Any, known: Sequence[Any]) -> Any:
    """Return ``value``. Raises ValueError, with the nearest, where it is none of ``known``."""
    if value not in known:
        close = difflib.get_close_matches(str(value), known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"{name}={value!r}: {hint}give one of {', '.join(map(repr, known))}")
    return value


def plain_numbers(value: Any) -> Any:
    """Return numbers of NumPy as Python's, in dicts, lists and tuples too; all else as it is."""
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is dict:
        return {key: plain_numbers(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(plain_numbers, value))
    return value


def known_arguments(function: Callable[..., Any], given: Iterable[str]) -> None:
    """Raise TypeError, with the nearest name, where ``function`` has no such argument."""
    names = list(inspect.signature(function).parameters)
    for name in given:
        if name not in names:
            raise TypeError(
                f"no argument named {name!r}{hint(name, names)} Known: {', '.join(names)}"
            )


def require_known_arguments(
    function: Callable[..., Any], rules: Callable[..., Any], given: Iterable[str]
) -> None:
    """Raise TypeError, with the nearest name, for what neither ``function`` nor ``rules`` take.

    ``given`` are the names that ``function`` collects as arguments of the environment.
    """
    own = _named(function)
    names = {**own, **inspect.signature(rules).parameters}
    for name in given:
        if name not in names:
            raise TypeError(
                f"no argument named {name!r}{hint(name, names)} Known: {', '.join(own)}; of the "
                f"environment: {', '.join(name for name in names if name not in own)}"
            )


def _named(function: Callable[..., Any]) -> dict[str, None]:
    """Return the parameters of a function that are given by name."""
    parameters = inspect.signature(function).parameters.values()
    return dict.fromkeys(p.name for p in parameters if p.kind is not p.VAR_KEYWORD)
