"""Convert nested policy states to named arrays and back, for checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.policy import rebuilt

__all__ = ["filled_tree", "named_arrays"]


def named_arrays(tree: Any, name: str) -> dict[str, Array]:
    """Return the arrays of a policy's state, named by their path in the state."""
    if tree is None:
        return {}
    if isinstance(tree, Mapping | tuple | list):
        arrays: dict[str, Array] = {}
        for key, part in _parts(tree):
            arrays |= named_arrays(part, f"{name}.{key}")
        return arrays
    return {name: np.array(tree)}


def filled_tree(tree: Any, name: str, arrays: Mapping[str, Array]) -> Any:
    """Return a copy of ``tree`` filled with ``arrays``, named as by ``named_arrays``."""
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
