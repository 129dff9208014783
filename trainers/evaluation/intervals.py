"""Intervals of what was measured over windows: shares, and differences of two policies.

Windows (days of a load, say) are taken as independent, whatever happens within one. With W of them
an interval is Student's with W - 1 degrees of freedom, about an estimate whose spread over windows
is linearized (Cochran, Sampling Techniques, 1977, chapter 6): on the log scale for shares, which
keeps them above 0 and is closer to symmetric; on the plain one for differences.

Windows that repeat with a ``season`` (7: days of a week) are compared with those of their own kind,
once there are two seasons of them: that Sundays are quiet is no chance. Each kind takes a degree of
freedom. What the intervals cover: benchmarks/loads/coverage.py.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

from corral.trainers.evaluation.episodes import Interval

__all__ = [
    "FEWEST_WINDOWS",
    "difference_interval",
    "lag_1",
    "largest_part",
    "share_interval",
    "student_quantile",
]

FEWEST_WINDOWS = 6
"""With fewer windows than this there is no interval: it would not cover what it says."""


def share_interval(
    numerators: npt.ArrayLike, denominators: npt.ArrayLike, *, season: int = 1, level: float = 0.95
) -> Interval:
    """Return the interval of sum(numerators) / sum(denominators), both [W], none below 0.

    None, None for fewer windows than ``FEWEST_WINDOWS``; the share itself, twice, where it is 0.
    """
    above, below = _windows(numerators, denominators)
    if len(above) < FEWEST_WINDOWS or below.sum() == 0:
        return Interval(None, None)
    if above.sum() == 0:
        return Interval(0.0, 0.0)
    share = float(above.sum() / below.sum())
    half = _half_width(above / above.mean() - below / below.mean(), season, level)
    return Interval(share * math.exp(-half), share * math.exp(half))


def difference_interval(
    differences: npt.ArrayLike, denominators: npt.ArrayLike, *, season: int = 1, level: float = 0.95
) -> Interval:
    """Return the interval of sum(differences) / sum(denominators), both [W]: of the costs of two
    policies in the same windows, say, as a share of what arrived.

    None, None for fewer windows than ``FEWEST_WINDOWS``.
    """
    above, below = _windows(differences, denominators)
    if len(above) < FEWEST_WINDOWS or below.sum() == 0:
        return Interval(None, None)
    ratio = float(above.sum() / below.sum())
    half = _half_width((above - ratio * below) / below.mean(), season, level)
    return Interval(ratio - half, ratio + half)


def lag_1(values: npt.ArrayLike, season: int = 1) -> float | None:
    """Return the correlation of windows [W] with the next ones; None where all are alike.

    Where it is far above 0, windows are not independent, and intervals too narrow. Seasons are
    looked at from the third on: the means of two would leave too little.
    """
    deviations = _deviations(np.asarray(values, dtype=np.float64), season, least=3)[0]
    square = float(deviations @ deviations)
    return float(deviations[1:] @ deviations[:-1]) / square if square > 0 else None


def largest_part(values: npt.ArrayLike) -> float | None:
    """Return what share of the sum of ``values`` [W] is the largest one's; None for a sum of 0."""
    array = np.asarray(values, dtype=np.float64)
    total = float(array.sum())
    return float(array.max()) / total if total > 0 else None


def _windows(above: npt.ArrayLike, below: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], ...]:
    arrays = tuple(np.asarray(each, dtype=np.float64) for each in (above, below))
    if arrays[0].shape != arrays[1].shape or arrays[0].ndim != 1:
        shapes = " and ".join(str(each.shape) for each in arrays)
        raise ValueError(f"windows of shapes {shapes}: give [W] twice")
    return arrays


def _deviations(
    values: npt.NDArray[np.float64], season: int, least: int = 2
) -> tuple[npt.NDArray[np.float64], int]:
    """Return how far ``values`` [W] are from the mean of their kind, from ``least`` seasons on, and
    degrees of freedom."""
    kinds = np.arange(len(values)) % (season if len(values) >= least * season else 1)
    means = np.bincount(kinds, values) / np.bincount(kinds)
    return values - means[kinds], len(values) - len(means)


def _half_width(parts: npt.NDArray[np.float64], season: int, level: float) -> float:
    """Return half the width of the interval of a mean, of ``parts`` [W]."""
    deviations, degrees = _deviations(parts, season)
    spread = math.sqrt(float(deviations @ deviations) / degrees)
    return student_quantile((1 + level) / 2, degrees) * spread / math.sqrt(len(parts))


@functools.cache
def student_quantile(probability: float, degrees: int) -> float:
    """Return the quantile of Student's t for a probability above 0.5.

    By bisection of its distribution function, in closed form for whole degrees of freedom
    (Abramowitz and Stegun, 1964, 26.7.3 and 26.7.4).
    """
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _student(middle, degrees) < probability else (low, middle)
    return high


def _student(t: float, degrees: int) -> float:
    """Return the distribution function of Student's t at ``t`` of 0 or more."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    odd = degrees % 2
    term = math.cos(angle) if odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(2 + odd, degrees - 1, 2):
        term *= square * (k - 1) / k
        total += term
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return (1 + inside) / 2
