"""What few runs say: interquartile means, bootstrap intervals, and who is better than whom.

    iqm([0.9, 1.1, 1.0, 0.2, 1.0])
    bootstrap_interval({"arena_v0": [12, 14, 11, 13, 12], "dfaas_v0": [0.9, 0.8, 0.9, 1.0, 0.9]})
    probability_of_improvement(a, b), bootstrap_interval(a, b, statistic=probability_of_improvement)

Scores of a group are an array [..., n] of n runs (seeds), or environment -> such an array, whose
scores are then normalized to one scale by the caller. Every statistic is taken over the last axis;
axes before it are kept, which is how all resamples are computed at once.

Sources: Agarwal, Schwarzer, Castro, Courville, Bellemare, Deep Reinforcement Learning at the Edge
of the Statistical Precipice, NeurIPS 2021 (arXiv 2108.13264): the interquartile mean, intervals by
a bootstrap that is stratified by environment, the probability of improvement, the performance
profile. Phipson and Smyth, Permutation P-values Should Never Be Zero, 2010 (arXiv 1603.05766): the
p-value of drawn permutations. Numbers equal those of the library rliable, see
benchmarks/lab/rliable_oracle.py; how far they can be trusted with few seeds is measured by
benchmarks/lab/comparing.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from corral.envs.core import Array, generator
from corral.trainers.evaluation.episodes import Interval

__all__ = [
    "LEVEL",
    "MIN_SEEDS",
    "RESAMPLES",
    "Scores",
    "bootstrap_band",
    "bootstrap_interval",
    "difference",
    "enough_seeds",
    "iqm",
    "mean",
    "median",
    "performance_profile",
    "permutation_p",
    "probability_of_improvement",
]

Scores = npt.ArrayLike | Mapping[str, npt.ArrayLike]
"""Scores of a group's runs [..., n]; or environment -> those of its runs there."""

LEVEL = 0.95
"""Confidence of an interval."""

MIN_SEEDS = 5
"""Runs in each group below which nothing is claimed: see ``enough_seeds``."""

RESAMPLES = 10_000
ALL_SPLITS = 13_000
AT_ONCE = 500  # resamples computed side by side, which bounds memory


# --- What is measured of scores ------------------------------------------------------------------


def iqm(scores: Scores) -> Any:
    """Return the interquartile mean: of all scores but the lowest and highest quarter, [...].

    floor(n / 4) scores are left out on each side, of all environments together: of 5 runs the best
    and the worst; of 3 none. An outlier moves it less than a mean, and it uses more of the runs
    than a median (Agarwal et al. 2021, section 4.3).
    """
    values = np.sort(_pooled(scores), axis=-1)
    n = values.shape[-1]
    return values[..., n // 4 : n - n // 4].mean(axis=-1)


def mean(scores: Scores) -> Any:
    """Return the mean over environments of the means over runs, [...]."""
    return np.mean([each.mean(axis=-1) for each in _by_env(scores).values()], axis=0)


def median(scores: Scores) -> Any:
    """Return the median of all scores, of all environments together, [...]."""
    return np.median(_pooled(scores), axis=-1)


def difference(a: Scores, b: Scores) -> Any:
    """Return by how much the interquartile mean of ``a`` is above that of ``b``, [...]."""
    return iqm(a) - iqm(b)


def probability_of_improvement(a: Scores, b: Scores) -> Any:
    """Return how likely a run of ``a`` scores more than one of ``b``, [...] in 0 to 1.

    The share of pairs in which it does, ties counted half (Mann and Whitney's U over the number of
    pairs), averaged over environments. Raises ValueError for other environments.
    """
    ours, theirs = _by_env(a), _by_env(b)
    if ours.keys() != theirs.keys():
        raise ValueError(f"scores of {', '.join(ours)} and of {', '.join(theirs)}: give the same")
    shares = []
    for env, x in ours.items():
        first, second = x[..., :, None], theirs[env][..., None, :]  # every pair of runs
        wins = (first > second) + 0.5 * (first == second)
        shares.append(wins.mean(axis=(-2, -1)))
    return np.mean(shares, axis=0)


def performance_profile(scores: Scores, thresholds: npt.ArrayLike) -> Array:
    """Return the share of runs that score more than each of K ``thresholds``, [..., K]."""
    above = _pooled(scores)[..., None, :] > np.asarray(thresholds, dtype=np.float64)[:, None]
    share: Array = above.mean(axis=-1)
    return share


# --- How sure it is ------------------------------------------------------------------------------


def bootstrap_band(
    *groups: Scores,
    statistic: Callable[..., Any] = iqm,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[Array, Array]:
    """Return both ends of the percentile interval of ``statistic(*groups)``, each of its shape.

    Runs are drawn with replacement within each group and each environment of it (stratified), as
    many as there are. One draw of a run serves all axes before the last: a whole curve is drawn at
    a time. ``statistic`` takes groups and works over the last axis, as those of this module do.

    Raises ValueError where an environment has fewer than two runs.
    """
    given = [_by_env(each) for each in groups]
    for group in given:
        for env, values in group.items():
            if values.shape[-1] < 2:
                raise ValueError(f"1 run{f' of {env}' * (env != '')}: an interval takes 2 or more")
    rng = generator(seed, "eval")
    found = []
    for count in _chunks(resamples):
        drawn = [{env: _drawn(v, count, rng) for env, v in group.items()} for group in given]
        found.append(statistic(*drawn))
    low, high = np.quantile(np.concatenate(found), [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def bootstrap_interval(
    *groups: Scores,
    statistic: Callable[..., Any] = iqm,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Return the interval of a ``statistic`` that is one number, see ``bootstrap_band``.

    (None, None) where some environment has fewer than two runs. With few runs it is too narrow:
    docs/comparing.md says how much.
    """
    if any(each.shape[-1] < 2 for group in groups for each in _by_env(group).values()):
        return Interval(None, None)
    plan: dict[str, Any] = {"level": level, "resamples": resamples, "seed": seed}
    low, high = bootstrap_band(*groups, statistic=statistic, **plan)
    return Interval(float(low), float(high))


def permutation_p(a: Scores, b: Scores, *, permutations: int = RESAMPLES, seed: int = 0) -> float:
    """Return how often the probability of improvement would be as far from a half as it is, or
    further, if it made no difference to which group a run belongs: the two-sided p-value of a
    permutation test (Mann and Whitney's, ties included).

    Runs change groups within their environment. Of one environment all splits are counted where
    there are at most ``ALL_SPLITS`` (8 and 8 runs); else so many ``permutations`` are drawn. It is
    at most 0.05 in 5 of 100 comparisons of equals, however few the runs: with few it finds less,
    but claims no more.
    """
    ours, theirs = _by_env(a), _by_env(b)
    least = abs(float(probability_of_improvement(ours, theirs)) - 0.5) - 1e-9  # but for last bits
    if len(ours) == 1:
        ((env, x),) = ours.items()
        if math.comb(len(x) + len(theirs[env]), len(x)) <= ALL_SPLITS:
            first, second = _all_splits(x, theirs[env])
            apart = np.abs(probability_of_improvement(first, second) - 0.5)
            return float((apart >= least).mean())
    rng = generator(seed, "eval")
    as_far = 0
    for count in _chunks(permutations):
        ones, others = {}, {}
        for env, x in ours.items():
            both = np.tile(np.concatenate([x, theirs[env]]), (count, 1))
            ones[env], others[env] = np.split(rng.permuted(both, axis=1), [len(x)], axis=1)
        apart = np.abs(probability_of_improvement(ones, others) - 0.5)
        as_far += int((apart >= least).sum())
    return (1 + as_far) / (1 + permutations)


def _all_splits(a: Array, b: Array) -> tuple[Array, Array]:
    """Return every way to share out the scores of both, [S, len(a)] and [S, len(b)]."""
    both = np.concatenate([a, b])
    first = np.array([*itertools.combinations(range(len(both)), len(a))])
    is_first = np.zeros((len(first), len(both)), dtype=bool)
    np.put_along_axis(is_first, first, True, axis=1)
    second = np.nonzero(~is_first)[1].reshape(len(first), len(b))
    return both[first], both[second]


def enough_seeds(a: int, b: int, alpha: float = 1 - LEVEL) -> bool:
    """Return whether ``a`` and ``b`` runs can show a difference at all.

    They can where both are at least ``MIN_SEEDS``, and where the most unlikely split of them all is
    less likely than ``alpha``: 2 of the a + b over a splits put all runs of one group above the
    other's.
    """
    return min(a, b) >= MIN_SEEDS and 2 / math.comb(a + b, a) <= alpha


# --- Arrays --------------------------------------------------------------------------------------


def _by_env(scores: Scores) -> dict[str, Array]:
    """Return environment -> scores [..., n] as float64; "" for scores of one without a name."""
    named = scores if isinstance(scores, Mapping) else {"": scores}
    found = {env: np.asarray(values, dtype=np.float64) for env, values in named.items()}
    for env, values in found.items():
        if values.ndim == 0 or values.shape[-1] == 0:
            raise ValueError(f"no scores{f' of {env}' * (env != '')}: give one for each run")
    if not found:
        raise ValueError("no scores: give one for each run")
    return found


def _pooled(scores: Scores) -> Array:
    return np.concatenate([*_by_env(scores).values()], axis=-1)


def _drawn(values: Array, count: int, rng: np.random.Generator) -> Array:
    """Return ``count`` resamples of the runs of ``values`` [..., n], as [count, ..., n]."""
    n = values.shape[-1]
    picked = rng.integers(0, n, size=(count, n))
    return np.moveaxis(values[..., picked], -2, 0)


def _chunks(total: int) -> Iterator[int]:
    for start in range(0, total, AT_ONCE):
        yield min(AT_ONCE, total - start)
