"""How much the best of some actions is worth, and how much of it can be had without knowing it.

The best action of a moment is chosen by one half of the forks and measured by the other, so that
luck counts for nothing. It may depend on what nobody can know. Against it stand one action for all
moments, and actions chosen from what the agent observes: by the mean over moments that look alike,
by a linear and by a kernel regression, always of other environments' moments.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from corral.envs.core import Array
from corral.trainers.doctor.choices.forked import Sample, Tried

__all__ = ["Forked", "Gain", "compare"]

SURE = 4.0
"""Standard errors above 0 from which on a gain counts; there are up to ten horizons to look at."""

FOLDS = 5
NEIGHBORS = 8
"""Moments that look alike, whose best action is taken."""

PLANTED = 12
"""Invented rules by which it is tested whether a rule could be found at all."""


@dataclass(frozen=True)
class Gain:
    """A mean over moments: how much more than the mean of the actions that were tried."""

    mean: float
    error: float  # standard error; environments are independent, moments of one are not

    @property
    def sure(self) -> bool:
        return self.mean > SURE * self.error and self.mean > 0

    @property
    def most(self) -> float:
        """What it is at most, but for chance."""
        return self.mean + 3 * self.error


@dataclass(frozen=True)
class Forked:
    """What forked moments of one agent tell, in units of its own undiscounted return."""

    agent: str
    others: str  # who played on: "random", "greedy", ...
    moments: int
    tried: int  # actions, at most
    of: int  # actions that the agent has
    forks: int
    moved: bool  # some action changed its own return at some moment
    moves_others: tuple[str, ...]  # whose return some action changed
    decisions: int  # of its own, after which the gains are measured
    best: Gain  # the best action of each moment
    at_the_end: Gain  # what the same actions have brought when play ended
    complete: bool  # play was followed to the end of the episodes
    constant: Gain  # one action for all moments
    shown: Gain  # an action chosen from the observation
    remembered: Gain | None  # ... from earlier observations, too
    power: float  # share of invented rules that could be found in the observations
    reach: int  # of its own decisions, after which nine tenths of the gain are there
    spread: float  # deviation of the agent's return over moments

    @property
    def matters(self) -> bool:
        """Return whether some action is better than others, and still is when play ends."""
        return self.best.sure and not self.only_shifts

    @property
    def only_shifts(self) -> bool:
        """Return whether what an action brings is lost again by the end: it is only sooner."""
        if not (self.best.sure and self.complete):
            return False
        end = self.at_the_end
        return end.most < 0.1 * self.best.mean

    @property
    def hidden(self) -> bool:
        """Return whether neither one action nor the observation gets a part of the best."""
        if not self.matters or self.power < 0.5:
            return False
        return max(self.constant.most, self.shown.most) < 0.2 * self.best.mean

    @property
    def needs_memory(self) -> bool:
        """Return whether earlier observations tell far more than the last one."""
        gain = self.remembered
        if not self.matters or gain is None or not gain.sure:
            return False
        return gain.mean - self.shown.most > 0.2 * self.best.mean


def compare(agent: str, others: str, agents: tuple[str, ...], sample: Sample, tried: Tried) -> Forked:
    """Return what the tried actions of a sample say."""
    worth, distinct = tried.worth, tried.distinct
    count = distinct.sum(axis=1)
    base = (worth * distinct).sum(axis=3) / count  # [2, S, K]
    over = np.where(distinct, worth - base[..., None], -np.inf)  # [2, S, K, W]
    over[over == -np.inf] = np.nan
    best = _best(over, sample.cluster)  # by horizon
    s = max(range(len(best)), key=lambda k: (_sureness(best[k]), -k))
    if best[-1].sure and best[-1].mean >= 0.5 * best[s].mean:
        s = len(best) - 1  # the whole way, where it says enough
    both = over[:, s].mean(axis=0)  # [K, W]
    chosen = [np.nanargmax(over[half, s], axis=1) for half in range(2)]
    at_the_end = _measured(over[:, -1], chosen, sample.cluster)
    course = [_measured(over[:, k], chosen, sample.cluster).mean for k in range(s + 1)]
    reach = next(k for k, gain in enumerate(course) if gain >= 0.9 * course[-1] or k == s)
    column = np.nan_to_num(both)
    features = standardized(sample.observed)
    constant = _gain(column, _constant(column, sample.cluster), sample.cluster)
    shown = _shown(column, features, sample.cluster)
    remembered = None
    if sample.history is not None:
        past = np.concatenate([sample.observed, sample.history], axis=1)
        remembered = _shown(column, standardized(past), sample.cluster)
    whose = [other for k, other in enumerate(agents) if other != agent and tried.moved[:, k].any()]
    return Forked(
        agent=agent,
        others=others,
        moments=len(column),
        tried=int(count.max()),
        of=sample.legal.shape[1],
        forks=2 * tried.forks,
        moved=bool(tried.moved[:, agents.index(agent)].any()),
        moves_others=tuple(whose),
        decisions=int(tried.horizons[s]),
        best=best[s],
        at_the_end=at_the_end,
        complete=tried.complete,
        constant=constant,
        shown=shown,
        remembered=remembered,
        power=_power(column, features, sample.cluster),
        reach=int(tried.horizons[reach]),
        spread=float(base[:, -1].mean(axis=0).std()),
    )


def _sureness(gain: Gain) -> float:
    return gain.mean / gain.error if gain.error > 0 else (np.inf if gain.mean > 1e-12 else 0.0)


def _best(over: Array, cluster: Array) -> list[Gain]:
    """Return the gain of each moment's best action, by horizon: chosen by the other half."""
    return [
        _measured(over[:, s], [np.nanargmax(over[h, s], axis=1) for h in range(2)], cluster)
        for s in range(over.shape[1])
    ]


def _measured(over: Array, chosen: list[Array], cluster: Array) -> Gain:
    """Return the mean of ``over`` [2, K, W] at what the other half has chosen, [K] each."""
    rows = np.arange(over.shape[1])
    return mean_of((over[1, rows, chosen[0]] + over[0, rows, chosen[1]]) / 2, cluster)


def mean_of(values: Array, cluster: Array) -> Gain:
    """Return the mean of ``values`` [K] and its standard error over clusters."""
    mean = float(values.mean())
    _, index = np.unique(cluster, return_inverse=True)
    sums = np.bincount(index, values - mean)
    count = len(sums)
    error = float(np.sqrt((sums**2).sum() * count / max(1, count - 1)) / len(values))
    return Gain(mean, error)


# --- Choosing ------------------------------------------------------------------------------------


def _gain(worth: Array, chosen: Array, cluster: Array) -> Gain:
    return mean_of(worth[np.arange(len(worth)), chosen], cluster)


def _folds(cluster: Array) -> list[Array]:
    """Return the moments of each fold, bool [K]; those of one environment stay together."""
    order = np.unique(cluster, return_inverse=True)[1]
    return [order % FOLDS == fold for fold in range(FOLDS)]


def _constant(worth: Array, cluster: Array) -> Array:
    """Return for each moment the action that is best on average in the other folds: int [K]."""
    chosen = np.zeros(len(worth), dtype=np.int64)
    for held in _folds(cluster):
        chosen[held] = worth[~held].mean(axis=0).argmax()
    return chosen


def _shown(worth: Array, features: Array, cluster: Array) -> Gain:
    """Return the gain of the best way to choose from ``features`` [K, F]."""
    gains = [_gain(worth, chosen, cluster) for chosen in _choices(worth, features, cluster)]
    return max(gains, key=lambda gain: gain.mean)


def _choices(worth: Array, features: Array, cluster: Array) -> list[Array]:
    """Return the actions that three ways choose from the other folds' moments: int [K] each."""
    squares = (features**2).sum(axis=1)
    product = features @ features.T
    distance = np.maximum(squares[:, None] + squares[None] - 2 * product, 0.0)
    near = np.where(cluster[:, None] == cluster[None], np.inf, distance)
    nearest = np.argsort(near, axis=1, kind="stable")[:, :NEIGHBORS]
    alike = worth[nearest].mean(axis=1).argmax(axis=1)
    width = float(np.median(distance)) or 1.0
    kernels = (product / max(1, features.shape[1]) + 1.0, np.exp(-2 * distance / width) + 0.1)
    return [alike, *(_regressed(worth, kernel, cluster) for kernel in kernels)]


def _regressed(worth: Array, kernel: Array, cluster: Array) -> Array:
    """Return the action that ridge regression in a ``kernel`` [K, K] takes for the best: [K]."""
    chosen = np.zeros(len(worth), dtype=np.int64)
    for held in _folds(cluster):
        own = kernel[np.ix_(~held, ~held)]
        weights = np.linalg.solve(own + 0.3 * np.eye(len(own)), worth[~held])
        chosen[held] = (kernel[np.ix_(held, ~held)] @ weights).argmax(axis=1)
    return chosen


def standardized(features: Array) -> Array:
    """Return columns [K, F] with mean 0 and deviation 1; those that never vary are left out."""
    centered = features.astype(np.float64) - features.mean(axis=0)
    deviation = centered.std(axis=0)
    return np.asarray(centered[:, deviation > 1e-6] / deviation[deviation > 1e-6])


def _power(worth: Array, features: Array, cluster: Array) -> float:
    """Return how much of the gain of invented rules is found in these observations: 0 to 1.

    An invented rule makes the best action depend on one feature, drawn, and keeps the noise of what
    was measured. Where nothing is observed there is nothing to be found: 1.
    """
    if not features.shape[1]:
        return 1.0
    rng = np.random.default_rng(0)
    size = float(np.abs(worth).max(axis=1).mean())
    found = []
    for _ in range(PLANTED):
        feature = features[:, rng.integers(features.shape[1])]
        high = feature > np.median(feature)
        if not 0.1 < high.mean() < 0.9:
            high = feature > feature.mean()
        planted = np.where(high, size, -size)
        invented = np.stack([planted, -planted], axis=1)
        noise = worth[rng.permutation(len(worth))][:, :2] - worth[:, :2].mean(axis=0)
        gains = [
            invented[np.arange(len(worth)), chosen].mean()
            for chosen in _choices(invented + noise, features, cluster)
        ]
        found.append(max(gains) / size if size else 1.0)
    return float(np.mean(found))
