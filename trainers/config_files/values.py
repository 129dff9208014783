"""Types of what stands in a configuration file, read off arguments and fields."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from corral.errors import ConfigError

__all__ = ["hints_of", "require_plain", "require_type", "shown"]

MOST_DEPTH = 20


def hints_of(function: Any) -> dict[str, Any]:
    """Return the types of arguments or fields, {} where they are known to type checkers alone."""
    try:
        return get_type_hints(function)
    except (NameError, TypeError):
        return {}


def require_plain(path: Path, value: Any, key: str = "") -> None:
    """Raise ConfigError for NaN, infinity, dates, and tables in tables in tables."""
    if isinstance(value, dict | list):
        if key.count(".") > MOST_DEPTH:
            raise ConfigError(f"{path}: {key}: more than {MOST_DEPTH} levels deep")
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, below in items:
            require_plain(path, below, f"{key}.{name}".lstrip("."))
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{path}: {key} = {value}: give a finite number")
    elif value is not None and not isinstance(value, bool | int | float | str):
        raise ConfigError(f"{path}: {key} = {value}: a {type(value).__name__} is no argument")


def require_type(path: Path, key: str, value: Any, hint: Any) -> None:
    if not _fits(value, hint):
        wanted = " or ".join(dict.fromkeys(_wanted(hint)))
        raise ConfigError(f"{path}: {key} = {shown(value)}: give {wanted}")


def _parts(hint: Any) -> list[Any]:
    """Return the members of a union; others alone."""
    if isinstance(hint, UnionType) or get_origin(hint) is Union:
        return [part for each in get_args(hint) for part in _parts(each)]
    return [hint]


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value of a file may be one of this type; True where that is not known."""
    return any(_is_one(value, part) for part in _parts(hint))


def _is_one(value: Any, kind: Any) -> bool:
    origin = get_origin(kind) or kind
    if origin is Literal:
        return any(value == each and type(value) is type(each) for each in get_args(kind))
    if value is None or origin is type(None):
        return value is None and origin in (None, type(None), Any)
    if isinstance(value, bool) or origin is bool:
        return isinstance(value, bool) and origin in (bool, Any)
    if origin is int:
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if origin is float:
        return isinstance(value, int | float)
    if origin is str:
        return isinstance(value, str)
    if origin in (Mapping, dict):
        return isinstance(value, dict)
    if origin in (tuple, list, Sequence, Iterable):
        inner = [each for each in get_args(kind) if each is not ...]
        fixed = origin is tuple and ... not in get_args(kind) and inner
        return (
            isinstance(value, list)
            and (not fixed or len(value) == len(inner))
            and all(any(_fits(each, kind) for kind in inner) for each in value if inner)
        )
    if origin in (Callable, type, Path) or kind is Callable:
        return origin is Path and isinstance(value, str)
    return isinstance(value, dict | list) or origin is Any


def _wanted(hint: Any) -> list[str]:
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    words |= {Path: "a text", type(None): '"none"', tuple: "a list", list: "a list"}
    words |= {Sequence: "a list", Mapping: "a table", dict: "a table"}
    found = []
    for part in _parts(hint):
        origin = get_origin(part) or part
        if origin is Literal:
            found += [json.dumps(each) for each in get_args(part)]
        elif origin in words:
            inner = [each for each in get_args(part) if each is not ...]
            is_list = words[origin] == "a list" and inner
            of = _wanted(inner[0])[0].removeprefix("a ") + "s" if is_list else ""
            found.append(f"a list of {of}" if of else words[origin])
    return found or ["another value"]


def shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
