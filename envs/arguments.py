"""Checks of environment arguments. Each error message names the value and the allowed values."""

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
    """Return ``value`` as an int. Raises ValueError if it is below ``least`` or not an integer."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise ValueError(f"{name}={value!r}: give a whole number, {least} or more")
    return number


def optional_int(name: str, value: Any, least: int = 0) -> int | None:
    """Return None, or ``value`` as an int. Raises ValueError as ``nonnegative_int`` does."""
    try:
        return None if value is None else nonnegative_int(name, value, least)
    except ValueError as error:
        raise ValueError(f"{error}, or None") from None


def nonnegative_float(name: str, value: Any) -> float:
    """Return ``value`` as a float. Raises ValueError if it is not finite or below 0."""
    number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{name}={value!r}: give a finite number, 0 or more")
    return number


def yes_or_no(name: str, value: Any) -> bool:
    """Return ``value`` (a bool, or 0 or 1) as a bool. Raises ValueError for other values."""
    if value is None or isinstance(value, str) or value not in (False, True):
        raise ValueError(f"{name}={value!r}: give True or False")
    return bool(value)


def one_of(name: str, value: Any, known: Sequence[Any]) -> Any:
    """Return ``value`` if it is in ``known``. Raises ValueError with the nearest known value."""
    if value not in known:
        close = difflib.get_close_matches(str(value), known, n=1)
        suggestion = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"{name}={value!r}: {suggestion}give one of {', '.join(map(repr, known))}")
    return value


def plain_numbers(value: Any) -> Any:
    """Return ``value`` with NumPy scalars as Python numbers, also in dicts, lists and tuples."""
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is dict:
        return {key: plain_numbers(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(plain_numbers, value))
    return value


def known_arguments(function: Callable[..., Any], given: Iterable[str]) -> None:
    """Raise TypeError for a name in ``given`` that is not an argument of ``function``.

    The message names the nearest argument.
    """
    names = list(inspect.signature(function).parameters)
    for name in given:
        if name not in names:
            raise TypeError(
                f"no argument named {name!r}{hint(name, names)} Known: {', '.join(names)}"
            )


def require_known_arguments(
    function: Callable[..., Any], rules: Callable[..., Any], given: Iterable[str]
) -> None:
    """Raise TypeError if neither ``function`` nor ``rules`` has an argument of a name in ``given``.

    ``given`` are the names that ``function`` collects as environment arguments. The message names
    the nearest argument.
    """
    accepted = _named(function)
    names = {**accepted, **inspect.signature(rules).parameters}
    for name in given:
        if name not in names:
            raise TypeError(
                f"no argument named {name!r}{hint(name, names)} Known: {', '.join(accepted)}; "
                f"environment: {', '.join(name for name in names if name not in accepted)}"
            )


def _named(function: Callable[..., Any]) -> dict[str, None]:
    """Return the names of all parameters of a function, except ``**kwargs``."""
    parameters = inspect.signature(function).parameters.values()
    return dict.fromkeys(p.name for p in parameters if p.kind is not p.VAR_KEYWORD)
