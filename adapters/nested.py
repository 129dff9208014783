"""Flatten nested observations of Tuple and Dict spaces to one level of Dict.

| space | entries |
|---|---|
| Tuple(a, b) | ``0``, ``1`` |
| Dict(x=Tuple(a, b), y=Dict(z=c)) | ``x.0``, ``x.1``, ``y.z`` |
| one level of Dict, or another space | unchanged |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gymnasium import spaces

from corral.errors import UnsupportedSpaceError

__all__ = ["flat_space", "flat_tree"]


def flat_space(space: spaces.Space[Any], where: str = "") -> spaces.Space[Any]:
    """Return the space of ``flat_tree(observation)`` for observations of ``space``.

    Raises UnsupportedSpaceError if two entries get the same name.
    """
    if not isinstance(space, spaces.Dict | spaces.Tuple) or _is_flat(space.spaces, spaces.Space):
        return space
    entries: dict[str, spaces.Space[Any]] = {}
    for path, part in _parts(space):
        name = ".".join(path)
        if name in entries:
            raise UnsupportedSpaceError(f"{where}: two observation entries have the name {name!r}")
        entries[name] = part
    return spaces.Dict(entries)


def flat_tree(tree: Any) -> Any:
    """Return a tree of dicts and tuples as one level of dict; other values unchanged."""
    if not isinstance(tree, dict | tuple) or _is_flat(tree):
        return tree
    return {".".join(path): leaf for path, leaf in _parts(tree)}


def _is_flat(parts: Any, kind: Any = object) -> bool:
    """Return True if ``parts`` is a dict without nested dicts or tuples."""
    nests = (spaces.Dict, spaces.Tuple) if kind is spaces.Space else (dict, tuple)
    return isinstance(parts, dict) and not any(isinstance(part, nests) for part in parts.values())


def _parts(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the leaves of a tree, each with its path of keys and indices."""
    inner = tree.spaces if isinstance(tree, spaces.Dict | spaces.Tuple) else tree
    if isinstance(inner, Mapping):
        pairs = [(str(key), part) for key, part in inner.items()]
    elif isinstance(inner, tuple):
        pairs = [(str(place), part) for place, part in enumerate(inner)]
    else:
        yield path, tree
        return
    for name, part in pairs:
        yield from _parts(part, (*path, name))
