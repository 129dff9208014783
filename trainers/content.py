"""The content of a trainer's checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.errors import CheckpointError

__all__ = ["Content", "Shapes", "checkpoint_of", "require_arrays", "shapes_of"]

Shapes = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]
"""Name of an array -> its shape and dtype."""


@dataclass(frozen=True, eq=False)
class Content:
    """Content of a checkpoint. Names consist of lowercase letters, digits and underscores."""

    documents: dict[str, Any]  # name -> JSON value, stored in <name>.json; tuples become lists
    arrays: dict[str, dict[str, Array]]  # name -> named arrays, stored in <name>.safetensors


def require_arrays(
    file: str,
    given: Mapping[str, Array],
    expected: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]],
) -> None:
    """Raise CheckpointError that lists every difference in names, shapes and dtypes."""
    faults = [f"{name!r} is missing" for name in sorted(expected.keys() - given.keys())]
    faults += [f"{name!r} is unexpected" for name in sorted(given.keys() - expected.keys())]
    for name in sorted(expected.keys() & given.keys()):
        array, (shape, dtype) = given[name], expected[name]
        if array.shape != tuple(shape) or array.dtype != dtype:
            faults.append(f"{name!r} is {array.dtype} {array.shape}, expected {dtype} {shape}")
    if faults:
        raise CheckpointError(
            f"{file}: does not match: {'; '.join(faults)}. "
            "Load it with the settings that it was saved with"
        )


def shapes_of(arrays: Mapping[str, Array]) -> Shapes:
    """Return the shapes and dtypes of ``arrays``, in the format of ``require_arrays``."""
    return {key: (a.shape, a.dtype) for key, a in arrays.items()}


@contextmanager
def checkpoint_of(name: str) -> Iterator[None]:
    """Raise CheckpointError if content loaded inside does not belong to the trainer ``name``."""
    try:
        yield
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise CheckpointError(f"not a checkpoint of {name}: {error!r}") from error
