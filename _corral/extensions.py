"""Lets the core use parts above it without importing them.

The core (data, envs, adapters, trainers) imports nothing of ``corral.loads`` and ``corral.lab``:
each of the two may be left out of an installation. ``corral.registration`` lists their additions by
name, as "module:attribute". They are imported when the core asks for a name.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from corral.errors import MissingPartError

__all__ = ["extension", "missing_part", "register_extensions", "required_extension"]

_WHERE: dict[str, str] = {}


def register_extensions(where: Mapping[str, str]) -> None:
    """Register "module:attribute", or a module, under the names that the core asks by."""
    _WHERE.update(where)


def extension(name: str) -> Any | None:
    """Return what is registered under a name; None: nothing, or its part is not installed."""
    try:
        return required_extension(name)
    except MissingPartError:
        return None


def required_extension(name: str) -> Any:
    """Return what is registered under a name. Raises MissingPartError."""
    where = _WHERE.get(name)
    if where is None:
        raise MissingPartError(f"{name} is registered by no part of corral that is installed")
    module, _, attribute = where.partition(":")
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (part := missing_part(error)) is None:
            raise
        raise MissingPartError(f"{name} is of {part}, which is not installed") from error
    return getattr(imported, attribute) if attribute else imported


def missing_part(error: ModuleNotFoundError) -> str | None:
    """Return which part of corral an import did not find; None: another module."""
    parts = ("corral.loads", "corral.lab")
    return next((part for part in parts if f"{error.name}.".startswith(f"{part}.")), None)
