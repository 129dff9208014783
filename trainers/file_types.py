"""Types of what stands in a file, read off arguments and fields; no text becomes code or a path.

In Python an argument may take a function, or text that names one; a trace, or the path of one. A
file may hold neither: whoever sent it would choose what is imported and opened. Such an argument
takes a record there (see ``corral.trainers.runs.env_config``), or the name of a trace that comes
with the package. This is read off the annotation of the argument: where it has ``Callable``,
``Path`` or ``Any``, no text is taken, whatever else it has.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from corral import data
from corral.data import Trace
from corral.errors import ConfigError

__all__ = [
    "hints_of",
    "is_record",
    "record_fits",
    "require_argument",
    "require_plain",
    "require_type",
    "shown",
    "takes_path",
]

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
        raise ConfigError(f"{path}: {key} = {shown(value)}: give {_wanted_words(hint)}")


def require_argument(place: str, value: Any, hint: Any) -> None:
    """Raise ConfigError where an argument of an environment may not be ``value`` in a file.

    ``place`` names the file and the argument, ``hint`` is the annotation of the argument.
    """
    if is_record(value):
        if not record_fits(value, hint):
            raise ConfigError(f"{place} is a record of type {shown(value['type'])}: none is taken")
        return
    if isinstance(value, str) and _takes_no_text(hint):
        if _takes(hint, Trace) and value in data.bundled():
            return
        if _takes(hint, Callable):
            raise ConfigError(
                f"{place} names {shown(value)}, and nothing is imported because a file names it"
            )
        raise ConfigError(f"{place} = {shown(value)}: no file is opened because this one names it")
    if not _fits(value, hint):
        raise ConfigError(f"{place} = {shown(value)}: give {_wanted_words(hint)}")


def is_record(value: Any) -> bool:
    """Return whether a value stands for a trace, an array or a function."""
    return isinstance(value, dict) and "type" in value


def record_fits(record: Mapping[str, Any], hint: Any) -> bool:
    """Return whether an argument may be what a record of a file stands for."""
    kinds: Mapping[Any, Any] = {"trace": Trace, "array": Any, "function": Callable}
    kind = record["type"]
    return isinstance(kind, str) and kind in kinds and _takes(hint, kinds[kind])


def takes_path(hint: Any) -> bool:
    """Return whether an argument may be the path of a file."""
    return _takes(hint, Path)


def _takes(hint: Any, kind: Any) -> bool:
    return any(part is kind or get_origin(part) is kind for part in _parts(hint))


def _takes_no_text(hint: Any) -> bool:
    return any(_takes(hint, kind) for kind in (Callable, Path, Any))


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
        return isinstance(value, int | float) and abs(value) <= sys.float_info.max
    if origin is str:
        return isinstance(value, str)
    if origin in (Mapping, dict):
        return isinstance(value, dict)
    if origin in (tuple, list, Sequence, Iterable):
        inner = [each for each in get_args(kind) if each is not ...]
        fixed = origin is tuple and ... not in get_args(kind) and inner
        return (
            isinstance(value, list | tuple)
            and (not fixed or len(value) == len(inner))
            and all(any(_fits(each, kind) for kind in inner) for each in value if inner)
        )
    if origin in (Callable, type, Path) or kind is Callable:
        return origin is Path and isinstance(value, str)
    return isinstance(value, dict | list) or origin is Any


def _wanted_words(hint: Any) -> str:
    return " or ".join(dict.fromkeys(_wanted(hint)))


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
