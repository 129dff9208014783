"""JSON files that corral reads back, checked before anything is made of them.

    class Kept(TypedDict):
        rule: str
        costs: dict[str, list[float]]

    kept = read_fields(folder / "kept.json", Kept, most=2**20, error=RunError)

Every key has the type that a TypedDict or a dataclass annotates, at any depth; keys that are not
annotated are refused. So whoever adds a key gives it a type, and a file that was edited ends in one
plain error that names the file and the key.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

from corral.errors import ConfigError, CorralError
from corral.files import read_json, reason
from corral.trainers.file_types import require_type, shown

__all__ = ["fields_of", "read_fields"]

MOST = 2**63
"""Numbers beyond it fit into no array of whole numbers, and their squares into none of floats."""

MOST_KEY = 200
"""Characters of a key that an error shows."""


def read_fields(
    path: Path,
    kind: Any,
    *,
    most: int,
    error: type[CorralError],
    folder: Path | None = None,
    without: Collection[str] = (),
    others: bool = False,
    format: int | None = None,
) -> dict[str, Any]:
    """Return the fields of the JSON object in ``path``, of the types that ``kind`` annotates.

    Args:
        most: bytes that are read.
        error: class of the errors, which name the file and the key.
        folder: that of a run; the path below it may hold no link.
        without: fields of ``kind`` that the file does not hold.
        others: the file may hold keys that ``kind`` does not name; they are left out.
        format: what the key "format" must hold; None: the file has no such key.

    Raises ``error``, and FileNotFoundError if there is no file.
    """
    try:
        values = read_json(path, most, folder=folder)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as fault:
        raise error(f"{path} cannot be read: {reason(fault)}") from fault
    hints = {name: hint for name, hint in _hints(kind).items() if name not in without}
    if format is not None and isinstance(values, dict) and values.get("format") != format:
        raise error(f"{path} is of format {shown(values.get('format'))}, not {format}")
    try:
        return Fields(path, others).checked("", values, hints, _optional(kind))
    except ConfigError as fault:
        raise error(f"{fault}. The file is damaged, or was edited") from None


def fields_of(
    path: Path, key: str, values: Any, kind: Any, *, error: type[CorralError]
) -> dict[str, Any]:
    """Return the fields of an object within a file that was read, as ``read_fields`` does; it may
    hold other keys. Raises ``error``."""
    try:
        return Fields(path, True).checked(key, values, _hints(kind), _optional(kind))
    except ConfigError as fault:
        raise error(f"{fault}. The file is damaged, or was edited") from None


@dataclass(frozen=True)
class Fields:
    """Checks of the values of one file; each raises ConfigError that names the file and the key."""

    path: Path
    others: bool  # whether objects may hold keys without a type, which are left out

    def checked(
        self, key: str, values: Any, hints: Mapping[str, Any], optional: Collection[str]
    ) -> dict[str, Any]:
        """Return the fields of an object; ``key`` is its own, "" for the whole."""
        before = key and f"{key}."
        if not isinstance(values, dict):
            raise ConfigError(
                f"{self.path}: {key or 'the whole'} = {shown(values)}: give an object"
            )
        for name in () if self.others else values:
            if name not in hints:
                raise ConfigError(f"{self.path}: no key named {shown(before + name)} belongs in it")
        for name in hints:
            if name not in values and name not in optional:
                raise ConfigError(f"{self.path}: the key {before}{name} is missing")
        return {
            name: self.value(before + name, values[name], hint)
            for name, hint in hints.items()
            if name in values
        }

    def value(self, key: str, value: Any, hint: Any) -> Any:
        """Return a value of the type ``hint``."""
        key, parts = key[:MOST_KEY], get_args(hint)
        if isinstance(hint, UnionType):
            if value is None and NoneType in parts:
                return None
            first, *more = (part for part in parts if part is not NoneType)
            return self._plain(key, value, hint) if more else self.value(key, value, first)
        if is_typeddict(hint) or is_dataclass(hint):
            return self.checked(key, value, _hints(hint), _optional(hint))
        origin = get_origin(hint)
        if origin is dict and isinstance(value, dict):
            keys, values = parts
            named = {_number(name) if keys is int else name: each for name, each in value.items()}
            return {
                self._plain(f"{key}, a key", name, keys): self.value(f"{key}.{name}", each, values)
                for name, each in named.items()
            }
        if origin is list and isinstance(value, list):
            return [self.value(f"{key}[{i}]", each, parts[0]) for i, each in enumerate(value)]
        return self._plain(key, value, hint)

    def _plain(self, key: str, value: Any, hint: Any) -> Any:
        require_type(self.path, key, value, hint)
        self._require_small(key, value)
        return value

    def _require_small(self, key: str, value: Any) -> None:
        if isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for name, each in items:
                self._require_small(f"{key}.{name}"[:MOST_KEY], each)
        elif isinstance(value, int | float) and not -MOST < value < MOST:
            raise ConfigError(f"{self.path}: {key} is a number too large")


def _hints(kind: Any) -> dict[str, Any]:
    """Return the types by key: of a dataclass those of its fields, without what its class holds."""
    hints = get_type_hints(kind)
    return {one.name: hints[one.name] for one in fields(kind)} if is_dataclass(kind) else hints


def _optional(kind: Any) -> Collection[str]:
    """Return the keys that a file may lack."""
    if is_dataclass(kind):
        missing = dataclasses.MISSING
        return {
            one.name
            for one in fields(kind)
            if one.default is not missing or one.default_factory is not missing
        }
    found: Collection[str] = kind.__optional_keys__
    return found


def _number(name: str) -> int | str:
    """Return a key of an object, which is text in JSON, as the number that it stands for."""
    return int(name) if name.isascii() and name.isdigit() and len(name) < 19 else name
