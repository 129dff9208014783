"""Confidence intervals over windows: of shares, and of differences between two policies.

Windows (for example days of a load) are treated as independent; steps within a window may be
correlated. With W windows an interval is Student's t with W - 1 degrees of freedom. The standard
error over windows is linearized (Cochran, Sampling Techniques, 1977, chapter 6): on the log scale
for shares, which keeps them above 0 and is closer to symmetric; on the linear scale for
differences.

With a ``season`` (7: days of a week) and at least two seasons of data, each window is compared with
the mean of its own kind, for example Sundays with Sundays: a quiet Sunday is not random variation.
Each kind has its own mean, so W - season degrees of freedom remain. Coverage:
benchmarks/loads/interval_coverage.py.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

from corral.trainers.evaluation.episodes import FEWEST_EPISODES, Interval

__all__ = [
    "FEWEST_WINDOWS",
    "difference_interval",
    "lag_1",
    "largest_part",
    "largest_share",
    "share_interval",
    "student_quantile",
]

FEWEST_WINDOWS = FEWEST_EPISODES
"""Minimum number of windows for an interval. With fewer its coverage would be too low."""


def share_interval(
    numerators: npt.ArrayLike, denominators: npt.ArrayLike, *, season: int = 1, level: float = 0.95
) -> Interval:
    """Return the interval of sum(numerators) / sum(denominators), both [W] and at least 0.

    Returns (None, None) for fewer windows than ``FEWEST_WINDOWS``, and (0, 0) for a share of 0.
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
    """Return the interval of sum(differences) / sum(denominators), both [W].

    For example: the cost difference of two policies in the same windows, per arrived request.
    Returns (None, None) for fewer windows than ``FEWEST_WINDOWS``.
    """
    above, below = _windows(differences, denominators)
    if len(above) < FEWEST_WINDOWS or below.sum() == 0:
        return Interval(None, None)
    ratio = float(above.sum() / below.sum())
    half = _half_width((above - ratio * below) / below.mean(), season, level)
    return Interval(ratio - half, ratio + half)


def lag_1(values: npt.ArrayLike, season: int = 1) -> float | None:
    """Return the correlation of windows [W] with the next window; None if all are equal.

    A correlation far above 0 means that windows are dependent and intervals are too narrow. Season
    means are subtracted from the third season on: with two seasons too little would remain.
    """
    deviations = _deviations(np.asarray(values, dtype=np.float64), season, minimum=3)[0]
    square = float(deviations @ deviations)
    return float(deviations[1:] @ deviations[:-1]) / square if square > 0 else None


def largest_part(values: npt.ArrayLike) -> float | None:
    """Return the share of the largest value in the sum of ``values`` [W]; None for a sum of 0."""
    array = np.asarray(values, dtype=np.float64)
    total = float(array.sum())
    return float(array.max()) / total if total > 0 else None


def largest_share(count: int) -> float:
    """Return the 95 % upper bound of the share of different results, if all of ``count`` are equal.

    For large counts this is the rule of three, 3 / count.
    """
    return float(1.0 - 0.05 ** (1.0 / max(1, count)))


def _windows(above: npt.ArrayLike, below: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], ...]:
    arrays = tuple(np.asarray(values, dtype=np.float64) for values in (above, below))
    if arrays[0].shape != arrays[1].shape or arrays[0].ndim != 1:
        shapes = " and ".join(str(array.shape) for array in arrays)
        raise ValueError(f"windows of shapes {shapes}: pass two arrays of the same shape [W]")
    return arrays


def _deviations(
    values: npt.NDArray[np.float64], season: int, minimum: int = 2
) -> tuple[npt.NDArray[np.float64], int]:
    """Return the deviations of ``values`` [W] from the mean of their season index, and the degrees
    of freedom. With fewer than ``minimum`` seasons, all values share one mean."""
    kinds = np.arange(len(values)) % (season if len(values) >= minimum * season else 1)
    means = np.bincount(kinds, values) / np.bincount(kinds)
    return values - means[kinds], len(values) - len(means)


def _half_width(parts: npt.NDArray[np.float64], season: int, level: float) -> float:
    """Return half the width of the interval of the mean of ``parts`` [W]."""
    deviations, degrees = _deviations(parts, season)
    spread = math.sqrt(float(deviations @ deviations) / degrees)
    return student_quantile((1 + level) / 2, degrees) * spread / math.sqrt(len(parts))


@functools.cache
def student_quantile(probability: float, degrees: int) -> float:
    """Return the quantile of Student's t for a probability above 0.5.

    Bisects the distribution function, which has a closed form for integer degrees of freedom
    (Abramowitz and Stegun, 1964, 26.7.3 and 26.7.4).
    """
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _student(middle, degrees) < probability else (low, middle)
    return high


def _student(t: float, degrees: int) -> float:
    """Return the distribution function of Student's t at ``t`` >= 0."""
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
