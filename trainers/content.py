"""What a checkpoint of a trainer holds."""

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
    """Content of a checkpoint. Names are lower-case letters, digits and underscores."""

    documents: dict[str, Any]  # name -> JSON value, kept in <name>.json; tuples become lists
    arrays: dict[str, dict[str, Array]]  # name -> named arrays, kept in <name>.safetensors


def require_arrays(
    file: str,
    given: Mapping[str, Array],
    expected: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]],
) -> None:
    """Raise CheckpointError that names every difference in names, shapes and dtypes."""
    faults = [f"{name!r} is missing" for name in sorted(expected.keys() - given.keys())]
    faults += [f"{name!r} is not expected" for name in sorted(given.keys() - expected.keys())]
    for name in sorted(expected.keys() & given.keys()):
        array, (shape, dtype) = given[name], expected[name]
        if array.shape != tuple(shape) or array.dtype != dtype:
            faults.append(f"{name!r} is {array.dtype} {array.shape}, expected {dtype} {shape}")
    if faults:
        raise CheckpointError(
            f"{file}: does not fit: {'; '.join(faults)}. "
            "Load it with the settings that it was saved with"
        )


def shapes_of(arrays: Mapping[str, Array]) -> Shapes:
    """Return the shapes and dtypes of ``arrays``, as ``require_arrays`` wants them."""
    return {key: (a.shape, a.dtype) for key, a in arrays.items()}


@contextmanager
def checkpoint_of(name: str) -> Iterator[None]:
    """Raise CheckpointError where what is loaded inside is not of the trainer ``name``."""
    try:
        yield
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise CheckpointError(f"the checkpoint is not of {name}: {error!r}") from error
