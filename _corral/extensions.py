"""Let the core use optional parts of corral without importing them.

The core (data, envs, adapters, trainers) never imports ``corral.loads`` or ``corral.lab``, because
an installation may lack these parts. ``corral.registration`` lists their extensions by name, as
"module:attribute". An extension is imported when the core first requests its name.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from corral.errors import MissingPartError

__all__ = ["extension", "missing_part", "register_extensions", "required_extension"]

_WHERE: dict[str, str] = {}


def register_extensions(where: Mapping[str, str]) -> None:
    """Register extensions: name -> "module:attribute" or module."""
    _WHERE.update(where)


def extension(name: str) -> Any | None:
    """Return the extension with a name, or None if it is unknown or its part is not installed."""
    try:
        return required_extension(name)
    except MissingPartError:
        return None


def required_extension(name: str) -> Any:
    """Return the extension with a name. Raises MissingPartError if it is not installed."""
    where = _WHERE.get(name)
    if where is None:
        raise MissingPartError(f"no installed part of corral registers {name}")
    module, _, attribute = where.partition(":")
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (part := missing_part(error)) is None:
            raise
        raise MissingPartError(f"{name} belongs to {part}, which is not installed") from error
    return getattr(imported, attribute) if attribute else imported


def missing_part(error: ModuleNotFoundError) -> str | None:
    """Return the part of corral that an import did not find; None for any other module."""
    parts = ("corral.loads", "corral.lab")
    return next((part for part in parts if f"{error.name}.".startswith(f"{part}.")), None)
