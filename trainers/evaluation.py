"""How sure a figure is: bootstrap intervals over episodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corral.envs.core import generator

__all__ = ["Interval", "bootstrap_ratio"]


class Interval(NamedTuple):
    """An interval, or (None, None) where there are too few episodes for one."""

    low: float | None
    high: float | None


def bootstrap_ratio(
    numerators: npt.ArrayLike,
    denominators: npt.ArrayLike,
    *,
    level: float = 0.95,
    resamples: int = 4000,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap interval of sum(numerators) / sum(denominators) over episodes.

    Both are [E], one entry per episode; whole episodes are drawn with replacement (Efron and
    Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13), so that what happens within one
    may be correlated. A plain mean has ones as denominators. Fewer than two episodes give no
    interval.
    """
    above = np.asarray(numerators, dtype=np.float64)
    below = np.asarray(denominators, dtype=np.float64)
    if above.shape != below.shape or above.ndim != 1:
        raise ValueError(f"numerators {above.shape} and denominators {below.shape}: give [E] twice")
    episodes = len(above)
    if episodes < 2 or below.sum() == 0:
        return Interval(None, None)
    rng = generator(seed, "eval")
    drawn = rng.multinomial(episodes, np.full(episodes, 1 / episodes), size=resamples)  # [R, E]
    sums = drawn @ below
    ratios = (drawn @ above)[sums > 0] / sums[sums > 0]
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))
