"""Nested states of policies as named arrays, for checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.policy import rebuilt

__all__ = ["filled_tree", "named_arrays"]


def named_arrays(tree: Any, name: str) -> dict[str, Array]:
    """Return the arrays of a policy's state, named by where they are."""
    if tree is None:
        return {}
    if isinstance(tree, Mapping | tuple | list):
        found: dict[str, Array] = {}
        for key, part in _parts(tree):
            found |= named_arrays(part, f"{name}.{key}")
        return found
    return {name: np.array(tree)}


def filled_tree(tree: Any, name: str, arrays: Mapping[str, Array]) -> Any:
    """Return a tree built like ``tree`` with the ``arrays`` that ``named_arrays`` named."""
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return {key: filled_tree(part, f"{name}.{key}", arrays) for key, part in tree.items()}
    if isinstance(tree, tuple | list):
        parts = [filled_tree(part, f"{name}.{key}", arrays) for key, part in _parts(tree)]
        return rebuilt(tree, parts)
    return arrays[name].copy()


def _parts(tree: Any) -> list[tuple[Any, Any]]:
    return list(tree.items() if isinstance(tree, Mapping) else enumerate(tree))
