"""Statistics for few runs: interquartile means, bootstrap intervals and group comparisons.

    iqm([0.9, 1.1, 1.0, 0.2, 1.0])
    bootstrap_interval({"arena_v0": [12, 14, 11, 13, 12], "dfaas_v0": [0.9, 0.8, 0.9, 1.0, 0.9]})
    probability_of_improvement(a, b), bootstrap_interval(a, b, statistic=probability_of_improvement)

The scores of a group are an array [..., n] of n runs (seeds), or a mapping environment -> array. In
a mapping, the caller normalizes the scores to one scale. Every statistic reduces the last axis.
Other axes are kept, so all resamples are computed at once.

Sources: Agarwal, Schwarzer, Castro, Courville, Bellemare, Deep Reinforcement Learning at the Edge
of the Statistical Precipice, NeurIPS 2021 (arXiv 2108.13264): the interquartile mean, intervals by
a bootstrap that is stratified by environment, the probability of improvement, the performance
profile. Phipson and Smyth, Permutation P-values Should Never Be Zero, 2010 (arXiv 1603.05766): the
p-value of random permutations. The results equal those of the library rliable, see
benchmarks/lab/rliable_oracle.py. benchmarks/lab/comparing.py measures their reliability with few
seeds.
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
"""Scores of a group's runs [..., n], or environment -> scores of the runs in it."""

LEVEL = 0.95
"""Confidence level of an interval."""

MIN_SEEDS = 5
"""Minimum number of runs per group for a verdict: see ``enough_seeds``."""

RESAMPLES = 10_000
ALL_SPLITS = 13_000
AT_ONCE = 500  # resamples per batch, which limits memory


# --- Statistics of scores ------------------------------------------------------------------------


def iqm(scores: Scores) -> Any:
    """Return the interquartile mean: the mean without the lowest and highest quarter, [...].

    floor(n / 4) scores are left out on each side, from all environments together: of 5 runs the
    best and the worst; of 3 runs none. The IQM is less sensitive to outliers than the mean, and
    uses more of the runs than the median (Agarwal et al. 2021, section 4.3).
    """
    values = np.sort(_pooled(scores), axis=-1)
    n = values.shape[-1]
    return values[..., n // 4 : n - n // 4].mean(axis=-1)


def mean(scores: Scores) -> Any:
    """Return the mean over environments of the means over runs: an array [...]."""
    return np.mean([values.mean(axis=-1) for values in _by_env(scores).values()], axis=0)


def median(scores: Scores) -> Any:
    """Return the median of the scores of all environments together: an array [...]."""
    return np.median(_pooled(scores), axis=-1)


def difference(a: Scores, b: Scores) -> Any:
    """Return the interquartile mean of ``a`` minus that of ``b``: an array [...], the axes before
    the runs."""
    return iqm(a) - iqm(b)


def probability_of_improvement(a: Scores, b: Scores) -> Any:
    """Return the probability that a run of ``a`` scores higher than a run of ``b``, [...] in 0..1.

    This is the share of such pairs, ties counted half (Mann and Whitney's U divided by the number
    of pairs), averaged over environments. Raises ValueError if the environments differ.
    """
    scores_a, scores_b = _by_env(a), _by_env(b)
    if scores_a.keys() != scores_b.keys():
        raise ValueError(f"environments differ: {', '.join(scores_a)} and {', '.join(scores_b)}")
    shares = []
    for env, x in scores_a.items():
        first, second = x[..., :, None], scores_b[env][..., None, :]  # every pair of runs
        wins = (first > second) + 0.5 * (first == second)
        shares.append(wins.mean(axis=(-2, -1)))
    return np.mean(shares, axis=0)


def performance_profile(scores: Scores, thresholds: npt.ArrayLike) -> Array:
    """Return the share of runs above each of K ``thresholds``, [..., K]."""
    above = _pooled(scores)[..., None, :] > np.asarray(thresholds, dtype=np.float64)[:, None]
    share: Array = above.mean(axis=-1)
    return share


# --- Confidence ----------------------------------------------------------------------------------


def bootstrap_band(
    *groups: Scores,
    statistic: Callable[..., Any] = iqm,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[Array, Array]:
    """Return the lower and upper end of the percentile interval of ``statistic(*groups)``.

    Runs are resampled with replacement within each group and environment (stratified). A resample
    uses the same runs for all axes before the last, so whole curves are resampled. ``statistic``
    takes groups and reduces the last axis, as the functions of this module do.

    Raises ValueError if an environment has fewer than two runs.
    """
    arrays = [_by_env(group) for group in groups]
    for group in arrays:
        for env, values in group.items():
            if values.shape[-1] < 2:
                raise ValueError(
                    f"1 run{f' of {env}' * (env != '')}: an interval needs at least 2 runs"
                )
    rng = generator(seed, "eval")
    results = []
    for count in _chunks(resamples):
        drawn = [{env: _resampled(v, count, rng) for env, v in group.items()} for group in arrays]
        results.append(statistic(*drawn))
    low, high = np.quantile(np.concatenate(results), [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def bootstrap_interval(
    *groups: Scores,
    statistic: Callable[..., Any] = iqm,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Return the interval of a scalar ``statistic``, see ``bootstrap_band``.

    It is (None, None) if an environment has fewer than two runs. With few runs, the interval is too
    narrow: docs/comparing.md gives its coverage.
    """
    if any(scores.shape[-1] < 2 for group in groups for scores in _by_env(group).values()):
        return Interval(None, None)
    plan: dict[str, Any] = {"level": level, "resamples": resamples, "seed": seed}
    low, high = bootstrap_band(*groups, statistic=statistic, **plan)
    return Interval(float(low), float(high))


def permutation_p(a: Scores, b: Scores, *, permutations: int = RESAMPLES, seed: int = 0) -> float:
    """Return the two-sided p-value of a permutation test (Mann and Whitney's, with ties).

    The p-value is the chance that random groups have a probability of improvement at least as far
    from 1/2 as the observed groups.

    Runs are permuted within their environment. For one environment, all splits are counted if
    there are at most ``ALL_SPLITS`` (8 and 8 runs); else ``permutations`` random ones are used.
    For equal groups, the p-value is at most 0.05 in at most 5 of 100 comparisons. This also holds
    for few runs, but the test then detects fewer differences.
    """
    scores_a, scores_b = _by_env(a), _by_env(b)
    observed = abs(float(probability_of_improvement(scores_a, scores_b)) - 0.5) - 1e-9
    if len(scores_a) == 1:
        ((env, x),) = scores_a.items()
        if math.comb(len(x) + len(scores_b[env]), len(x)) <= ALL_SPLITS:
            first, second = _all_splits(x, scores_b[env])
            distances = np.abs(probability_of_improvement(first, second) - 0.5)
            return float((distances >= observed).mean())
    rng = generator(seed, "eval")
    extreme = 0
    for count in _chunks(permutations):
        firsts, seconds = {}, {}
        for env, x in scores_a.items():
            both = np.tile(np.concatenate([x, scores_b[env]]), (count, 1))
            firsts[env], seconds[env] = np.split(rng.permuted(both, axis=1), [len(x)], axis=1)
        distances = np.abs(probability_of_improvement(firsts, seconds) - 0.5)
        extreme += int((distances >= observed).sum())
    return (1 + extreme) / (1 + permutations)


def _all_splits(a: Array, b: Array) -> tuple[Array, Array]:
    """Return all splits of the scores of both groups, [S, len(a)] and [S, len(b)]."""
    both = np.concatenate([a, b])
    first = np.array([*itertools.combinations(range(len(both)), len(a))])
    is_first = np.zeros((len(first), len(both)), dtype=bool)
    np.put_along_axis(is_first, first, True, axis=1)
    second = np.nonzero(~is_first)[1].reshape(len(first), len(b))
    return both[first], both[second]


def enough_seeds(a: int, b: int, alpha: float = 1 - LEVEL) -> bool:
    """Whether ``a`` and ``b`` runs can show a difference at all.

    Both must be at least ``MIN_SEEDS``, and the most extreme split must have a probability of at
    most ``alpha``. The most extreme splits put all runs of one group above the other group: 2 of
    (a + b over a) splits.
    """
    return min(a, b) >= MIN_SEEDS and 2 / math.comb(a + b, a) <= alpha


# --- Arrays --------------------------------------------------------------------------------------


def _by_env(scores: Scores) -> dict[str, Array]:
    """Return environment -> scores [..., n] as float64; the name is "" for a plain array."""
    by_name = scores if isinstance(scores, Mapping) else {"": scores}
    arrays = {env: np.asarray(values, dtype=np.float64) for env, values in by_name.items()}
    for env, values in arrays.items():
        if values.ndim == 0 or values.shape[-1] == 0:
            raise ValueError(f"no scores{f' of {env}' * (env != '')}: give one score per run")
    if not arrays:
        raise ValueError("no scores: give one score per run")
    return arrays


def _pooled(scores: Scores) -> Array:
    return np.concatenate([*_by_env(scores).values()], axis=-1)


def _resampled(values: Array, count: int, rng: np.random.Generator) -> Array:
    """Return ``count`` resamples of the runs of ``values`` [..., n], as [count, ..., n]."""
    n = values.shape[-1]
    picked = rng.integers(0, n, size=(count, n))
    return np.moveaxis(values[..., picked], -2, 0)


def _chunks(total: int) -> Iterator[int]:
    for start in range(0, total, AT_ONCE):
        yield min(AT_ONCE, total - start)
