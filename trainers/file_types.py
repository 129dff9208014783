"""Check values of files against type annotations; text in a file never becomes code or a path.

In Python an argument may be a function or text that names one, or a trace or its path. In a file
this is not allowed, because the file's author could choose which code is imported and which files
are opened. In a file, such an argument is a record (see ``corral.trainers.runs.env_config``) or the
name of a bundled trace. The check uses the annotation of the argument: an annotation with
``Callable``, ``Path`` or ``Any`` rejects all text, even if it also contains ``str``.
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

MAX_DEPTH = 20


def hints_of(function: Any) -> dict[str, Any]:
    """Return the types of arguments or fields; {} if they cannot be resolved at runtime."""
    try:
        return get_type_hints(function)
    except (NameError, TypeError):
        return {}


def require_plain(path: Path, value: Any, key: str = "") -> None:
    """Raise ConfigError for NaN, infinity, dates, and too deeply nested tables."""
    if isinstance(value, dict | list):
        if key.count(".") > MAX_DEPTH:
            raise ConfigError(f"{path}: {key}: more than {MAX_DEPTH} levels deep")
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, entry in items:
            require_plain(path, entry, f"{key}.{name}".lstrip("."))
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{path}: {key} = {value}: expected a finite number")
    elif value is not None and not isinstance(value, bool | int | float | str):
        raise ConfigError(
            f"{path}: {key} = {value}: values of type {type(value).__name__} are not supported"
        )


def require_type(path: Path, key: str, value: Any, hint: Any) -> None:
    if not _fits(value, hint):
        raise ConfigError(f"{path}: {key} = {shown(value)}: expected {_expected_text(hint)}")


def require_argument(place: str, value: Any, hint: Any) -> None:
    """Raise ConfigError if a file may not set an argument of an environment to ``value``.

    ``place`` names the file and the argument, ``hint`` is the annotation of the argument.
    """
    if is_record(value):
        if not record_fits(value, hint):
            raise ConfigError(
                f"{place}: the argument accepts no record of type {shown(value['type'])}"
            )
        return
    if isinstance(value, str) and _takes_no_text(hint):
        if _takes(hint, Trace) and value in data.bundled():
            return
        if _takes(hint, Callable):
            raise ConfigError(
                f"{place} names {shown(value)}; for safety, files cannot name code to import"
            )
        raise ConfigError(
            f"{place} = {shown(value)}: for safety, files cannot name other files to open"
        )
    if not _fits(value, hint):
        raise ConfigError(f"{place} = {shown(value)}: expected {_expected_text(hint)}")


def is_record(value: Any) -> bool:
    """Return True if a value is a record of a trace, an array or a function."""
    return isinstance(value, dict) and "type" in value


def record_fits(record: Mapping[str, Any], hint: Any) -> bool:
    """Return True if an argument accepts the object that a record describes."""
    kinds: Mapping[Any, Any] = {"trace": Trace, "array": Any, "function": Callable}
    kind = record["type"]
    return isinstance(kind, str) and kind in kinds and _takes(hint, kinds[kind])


def takes_path(hint: Any) -> bool:
    """Return True if an argument accepts a file path."""
    return _takes(hint, Path)


def _takes(hint: Any, kind: Any) -> bool:
    return any(part is kind or get_origin(part) is kind for part in _parts(hint))


def _takes_no_text(hint: Any) -> bool:
    return any(_takes(hint, kind) for kind in (Callable, Path, Any))


def _parts(hint: Any) -> list[Any]:
    """Return the members of a union; for any other type, a list with only this type."""
    if isinstance(hint, UnionType) or get_origin(hint) is Union:
        return [part for member in get_args(hint) for part in _parts(member)]
    return [hint]


def _fits(value: Any, hint: Any) -> bool:
    """Return True if a value of a file matches this type, or if the type cannot be checked."""
    return any(_is_one(value, part) for part in _parts(hint))


def _is_one(value: Any, kind: Any) -> bool:
    origin = get_origin(kind) or kind
    if origin is Literal:
        return any(value == choice and type(value) is type(choice) for choice in get_args(kind))
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
        inner = [part for part in get_args(kind) if part is not ...]
        fixed = origin is tuple and ... not in get_args(kind) and inner
        return (
            isinstance(value, list | tuple)
            and (not fixed or len(value) == len(inner))
            and all(any(_fits(entry, kind) for kind in inner) for entry in value if inner)
        )
    if origin in (Callable, type, Path) or kind is Callable:
        return origin is Path and isinstance(value, str)
    return isinstance(value, dict | list) or origin is Any


def _expected_text(hint: Any) -> str:
    return " or ".join(dict.fromkeys(_expected(hint)))


def _expected(hint: Any) -> list[str]:
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
    words |= {Path: "a string", type(None): '"none"', tuple: "a list", list: "a list"}
    words |= {Sequence: "a list", Mapping: "a table", dict: "a table"}
    texts = []
    for part in _parts(hint):
        origin = get_origin(part) or part
        if origin is Literal:
            texts += [json.dumps(choice) for choice in get_args(part)]
        elif origin in words:
            inner = [choice for choice in get_args(part) if choice is not ...]
            is_list = words[origin] == "a list" and inner
            of = _expected(inner[0])[0].removeprefix("a ") + "s" if is_list else ""
            texts.append(f"a list of {of}" if of else words[origin])
    return texts or ["another value"]


def shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
