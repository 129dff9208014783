"""What could be known of values: a plain fit of what a critic observes, and values that are cut."""

from __future__ import annotations

import numpy as np

from corral.envs.core import Array
from corral.trainers.doctor.audited import correlation

__all__ = ["clamped", "fitted"]

FEWEST = 20
"""Moments below which nothing is fitted."""

CLAMPED, UNLIKE = 0.2, 10
"""Share of the moments, and how many unlike ones, that share an extreme value where it is cut."""


def fitted(inputs: Array, values: Array) -> float | None:
    """Return how well ``values`` [K] can be told from ``inputs`` [K, F]: the correlation with
    predictions, each made without its own moment; None: there are too few.

    The better of ridge regressions on the inputs and on their distances.
    """
    varies = inputs.std(axis=0) > 0
    if len(values) < FEWEST or not varies.any() or not np.std(values) > 0:
        return None
    x = inputs[:, varies]
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    products = x @ x.T / x.shape[1]
    squares = np.diag(products)
    distances = (squares[:, None] + squares - 2 * products).clip(min=0)
    near = np.exp(-distances / max(1e-12, float(np.median(distances))))
    found = [
        correlation(_left_one_out(kernel, values, weight), values)
        for kernel in (products, near)
        for weight in (0.03, 0.3, 3.0)
    ]
    return max((each for each in found if each is not None), default=None)


def _left_one_out(kernel: Array, values: Array, weight: float) -> Array:
    """Return predictions of ``values`` [K] by kernel ridge regression, each without its own."""
    count = len(values)
    bordered = kernel + 1.0  # a constant is fitted too
    hat = np.linalg.solve(bordered + weight * np.eye(count), bordered)
    residual = (values - hat.T @ values) / (1.0 - np.diag(hat))
    return np.asarray(values - residual)


def clamped(said: Array, inputs: Array) -> tuple[float, float] | None:
    """Return a value that is the largest, or the least, of many unlike ``inputs`` [K, F], and the
    share of those; None: there is none."""
    said = np.where(np.isnan(said), np.inf, said)
    known = said[np.isfinite(said)]
    if not len(known) or not np.ptp(known) > 0:
        return None
    for extreme in (known.max(), known.min()):
        at = np.abs(said - extreme) <= 1e-6 * np.ptp(known)
        if at.mean() >= CLAMPED and len(np.unique(inputs[at], axis=0)) >= UNLIKE:
            return float(extreme), float(at.mean())
    return None
