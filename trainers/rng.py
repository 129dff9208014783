"""Generators of torch with a stream of their own, and those that libraries draw from unasked."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from corral.envs.core import Array, generator
from corral.trainers.content import require_arrays

__all__ = ["GlobalGenerators", "torch_generator"]


def torch_generator(seed: int, purpose: str, row: int) -> torch.Generator:
    """Return a generator of torch with the stream of ``corral.envs.core.generator``."""
    return torch.Generator().manual_seed(int(generator(seed, purpose, row).integers(2**63)))


class GlobalGenerators:
    """Python's, NumPy's and torch's global generators, from which Stable-Baselines3 draws.

    Inside ``with`` they are the run's own; outside, what they were. So a run draws the same
    whatever else draws, and nothing else is disturbed.
    """

    def __init__(self, seed: int) -> None:
        self._own: tuple[Any, Any, Any] = (
            random.Random(seed).getstate(),
            np.random.RandomState(
                generator(seed, "minibatch", 1).integers(2**32, dtype=np.uint32)
            ).get_state(),
            torch_generator(seed, "minibatch", 0).get_state(),
        )
        self._others: tuple[Any, Any, Any] | None = None

    def __enter__(self) -> None:
        self._others = _get_generators()
        _set_generators(self._own)

    def __exit__(self, *_: object) -> None:
        self._own = _get_generators()
        assert self._others is not None
        _set_generators(self._others)

    def save(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a JSON value and arrays."""
        (version, numbers, gauss), legacy, torch_state = self._own
        document = {
            "python": [version, gauss],
            "numpy": [legacy[0], *legacy[2:]],
        }
        arrays = {
            "python": np.array(numbers, dtype=np.int64),
            "numpy": np.asarray(legacy[1]),
            "torch": torch_state.numpy().copy(),
        }
        return document, arrays

    def load(self, document: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Go on from what ``save`` gave. Raises CheckpointError where it does not fit."""
        expected = {key: (a.shape, a.dtype) for key, a in self.save()[1].items()}
        require_arrays("generators", arrays, expected)
        version, gauss = document["python"]
        kind, *rest = document["numpy"]
        self._own = (
            (version, tuple(arrays["python"].tolist()), gauss),
            (kind, arrays["numpy"].copy(), *rest),
            torch.from_numpy(arrays["torch"].copy()),
        )


def _get_generators() -> tuple[Any, Any, Any]:
    return random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002


def _set_generators(states: tuple[Any, Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    torch.set_rng_state(states[2])
