"""One finding of a diagnosis: cause, measurement, expectation and remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence

__all__ = ["Finding", "Rule", "joined", "mean"]


@dataclass(frozen=True)
class Finding:
    """One cause. ``certainty``: 3 certain, 2 most likely, 1 worth a look."""

    cause: str  # a slug such as "zero-advantages"
    title: str  # the symptom, a sentence
    measured: str
    expected: str
    todo: str
    certainty: int
    policy: str = ""  # "" for a finding about all policies
    follows: str = ""  # the cause of which this finding is a certain consequence
    place: str = ""  # in the user's code: class, method, file and line


Rule = Callable[[PolicyEvidence, Evidence], Finding | None]


def joined(pairs: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Return the environment's arrays and the stored ones, concatenated to [T, C, ...] each."""
    if not pairs:
        return np.zeros((0, 0, 0)), np.zeros((0, 0, 0))
    return np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs])


def mean(values: Array) -> float:
    """Return the mean as a Python float."""
    return float(np.mean(values))
