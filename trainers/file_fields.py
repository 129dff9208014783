"""Read and validate the JSON files of corral.

    class Kept(TypedDict):
        rule: str
        costs: dict[str, list[float]]

    kept = read_fields(folder / "kept.json", Kept, max_bytes=2**20, error=RunError)

Every value must have the type annotated in a TypedDict or a dataclass, at any depth. Keys without
an annotation are rejected. So every new key needs a type, and an edited file results in one plain
error with the file and the key.
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

LIMIT = 2**63
"""Larger numbers do not fit into integer arrays, and their squares overflow float arrays."""

MAX_KEY = 200
"""Maximum number of characters of a key in an error."""


def read_fields(
    path: Path,
    kind: Any,
    *,
    max_bytes: int,
    error: type[CorralError],
    folder: Path | None = None,
    without: Collection[str] = (),
    others: bool = False,
    format: int | None = None,
) -> dict[str, Any]:
    """Return the fields of the JSON object in ``path``, with the types annotated in ``kind``.

    Args:
        max_bytes: maximum size of the file in bytes.
        error: class of the errors, which name the file and the key.
        folder: the run's folder. Neither the file nor a folder between the two may be a symbolic
            link.
        without: fields of ``kind`` that the file does not contain.
        others: allow keys that ``kind`` does not name; they are ignored.
        format: required value of the key "format"; None: the file has no such key.

    Raises ``error``, and FileNotFoundError for a missing file.
    """
    try:
        values = read_json(path, max_bytes, folder=folder)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as fault:
        raise error(f"{path} cannot be read: {reason(fault)}") from fault
    hints = {name: hint for name, hint in _hints(kind).items() if name not in without}
    if format is not None and isinstance(values, dict) and values.get("format") != format:
        raise error(f"{path} has format {shown(values.get('format'))}; expected {format}")
    try:
        return Fields(path, others).checked("", values, hints, _optional(kind))
    except ConfigError as fault:
        raise error(f"{fault}. The file is damaged or was edited") from None


def fields_of(
    path: Path, key: str, values: Any, kind: Any, *, error: type[CorralError]
) -> dict[str, Any]:
    """Return the fields of a nested object, like ``read_fields``, ignoring keys that ``kind`` does
    not name. Raises ``error``."""
    try:
        return Fields(path, True).checked(key, values, _hints(kind), _optional(kind))
    except ConfigError as fault:
        raise error(f"{fault}. The file is damaged or was edited") from None


@dataclass(frozen=True)
class Fields:
    """Validates the values of one file; raises ConfigError with the file and the key."""

    path: Path
    others: bool  # allow keys without a type; they are ignored

    def checked(
        self, key: str, values: Any, hints: Mapping[str, Any], optional: Collection[str]
    ) -> dict[str, Any]:
        """Return the fields of an object at ``key``; "" is the whole file."""
        before = key and f"{key}."
        if not isinstance(values, dict):
            raise ConfigError(
                f"{self.path}: {key or 'the whole file'} = {shown(values)}: expected an object"
            )
        for name in () if self.others else values:
            if name not in hints:
                raise ConfigError(f"{self.path}: unknown key {shown(before + name)}")
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
        key, parts = key[:MAX_KEY], get_args(hint)
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
            named = {_number(name) if keys is int else name: entry for name, entry in value.items()}
            return {
                self._plain(f"{key}, a key", name, keys): self.value(f"{key}.{name}", entry, values)
                for name, entry in named.items()
            }
        if origin is list and isinstance(value, list):
            return [self.value(f"{key}[{i}]", entry, parts[0]) for i, entry in enumerate(value)]
        return self._plain(key, value, hint)

    def _plain(self, key: str, value: Any, hint: Any) -> Any:
        require_type(self.path, key, value, hint)
        self._require_small(key, value)
        return value

    def _require_small(self, key: str, value: Any) -> None:
        if isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for name, entry in items:
                self._require_small(f"{key}.{name}"[:MAX_KEY], entry)
        elif isinstance(value, int | float) and not -LIMIT < value < LIMIT:
            raise ConfigError(f"{self.path}: the number at {key} is too large")


def _hints(kind: Any) -> dict[str, Any]:
    """Return the annotated types by key; for a dataclass only its fields."""
    hints = get_type_hints(kind)
    return {one.name: hints[one.name] for one in fields(kind)} if is_dataclass(kind) else hints


def _optional(kind: Any) -> Collection[str]:
    """Return the keys that a file may omit."""
    if is_dataclass(kind):
        missing = dataclasses.MISSING
        return {
            one.name
            for one in fields(kind)
            if one.default is not missing or one.default_factory is not missing
        }
    keys: Collection[str] = kind.__optional_keys__
    return keys


def _number(name: str) -> int | str:
    """Convert a JSON key to an int if it consists of digits."""
    return int(name) if name.isascii() and name.isdigit() and len(name) < 19 else name
