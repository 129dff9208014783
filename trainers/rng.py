"""Random generators: independent torch streams, and the global generators that libraries use."""

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
    """Return a torch generator, seeded from ``corral.envs.core.generator``."""
    return torch.Generator().manual_seed(int(generator(seed, purpose, row).integers(2**63)))


class GlobalGenerators:
    """Python's, NumPy's and torch's global generators, which Stable-Baselines3 uses.

    Inside ``with`` they have the run's states; afterwards the previous states are restored. So a
    run's random numbers do not depend on other code, and other code is not affected.
    """

    def __init__(self, seed: int) -> None:
        self._run_states: tuple[Any, Any, Any] = (
            random.Random(seed).getstate(),
            np.random.RandomState(
                generator(seed, "minibatch", 1).integers(2**32, dtype=np.uint32)
            ).get_state(),
            torch_generator(seed, "minibatch", 0).get_state(),
        )
        self._outer_states: tuple[Any, Any, Any] | None = None

    def __enter__(self) -> None:
        self._outer_states = _get_generators()
        _set_generators(self._run_states)

    def __exit__(self, *_: object) -> None:
        self._run_states = _get_generators()
        assert self._outer_states is not None
        _set_generators(self._outer_states)

    def save(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the run's states as a JSON value and arrays."""
        (version, numbers, gauss), legacy, torch_state = self._run_states
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
        """Restore the states that ``save`` returned. Raises CheckpointError if they do not fit."""
        expected = {key: (a.shape, a.dtype) for key, a in self.save()[1].items()}
        require_arrays("generators", arrays, expected)
        version, gauss = document["python"]
        kind, *rest = document["numpy"]
        self._run_states = (
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
