"""What a diagnosis finds: one cause each, with what was measured, expected, and to be done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence

__all__ = ["Finding", "Rule", "joined", "mean"]


@dataclass(frozen=True)
class Finding:
    """One cause. ``certainty``: 3 it is so, 2 most likely, 1 worth a look."""

    cause: str  # a slug, such as "zero-advantages"
    title: str  # a sentence
    measured: str
    expected: str
    todo: str
    certainty: int
    policy: str = ""  # "" where it is about all
    follows: str = ""  # the cause that it surely follows from


Rule = Callable[[PolicyEvidence, Evidence], Finding | None]


def joined(pairs: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Return what was said and what was stored, each over all rollouts: [T, C, ...]."""
    if not pairs:
        return np.zeros((0, 0, 0)), np.zeros((0, 0, 0))
    return np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs])


def mean(values: Array) -> float:
    """Return the mean as a plain number."""
    return float(np.mean(values))
