"""How much the best of some actions is worth, and how much of it can be had without knowing it.

The best action of a moment is chosen by one half of the forks and measured by the other, so that
luck counts for nothing. It may depend on what nobody can know. Against it stand one action for all
moments, and actions chosen from what the agent observes: by the mean over moments that look alike,
by a linear and by a kernel regression, always of other environments' moments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.choices.forked import Tried

__all__ = ["Forked", "Gain", "compare"]

SURE = 4.0
"""Standard errors above 0 from which on a gain counts; there are up to ten horizons to look at."""

FOLDS = 5
RIDGE = 0.3
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
    followed: int  # of its own decisions, at most, in each fork
    decisions: int  # of its own, after which the gains are measured
    best: Gain  # the best action of each moment
    at_the_end: Gain  # what the same actions have brought when play ended
    later: Gain  # what of the best action's gain comes after the agent's next decision
    complete: bool  # play was followed to the end of the episodes
    to_the_end: bool  # ... and so far the gains are measured
    constant: Gain  # one action for all moments
    shown: Gain  # an action chosen from the observation
    remembered: Gain | None  # ... from earlier observations, too; None: the last one does
    power: float  # share of invented rules that could be found in the observations
    reach: int  # of its own decisions, after which nine tenths of the gain are there

    @property
    def matters(self) -> bool:
        """Return whether some action is better than others, and still is when play ends."""
        return self.best.sure and not self.only_shifts

    @property
    def only_shifts(self) -> bool:
        """Return whether what an action brings is lost again by the end: it is only sooner."""
        likely = self.best.mean > 2.5 * self.best.error and self.best.mean > 0
        return likely and self.complete and self.at_the_end.most < 0.1 * self.best.mean

    @property
    def one_step(self) -> bool:
        """Return whether what an action brings surely comes before the agent's next decision."""
        later = abs(self.later.mean) + 2 * self.later.error
        return self.decisions > 1 and self.best.sure and later < 0.1 * self.best.mean

    @property
    def hidden(self) -> bool:
        """Return whether neither one action nor the observation gets a part of the best."""
        if not self.matters or self.power < 0.5:
            return False
        return max(self.constant.most, self.shown.most) < 0.3 * self.best.mean

    @property
    def needs_memory(self) -> bool:
        """Return whether earlier observations tell far more than the last one."""
        gain = self.remembered
        if not self.matters or gain is None or not gain.sure:
            return False
        return gain.mean - self.shown.most > 0.2 * self.best.mean


def compare(others: str, tried: Tried) -> Forked:
    """Return what the tried actions say."""
    sample = tried.sample
    worth, distinct = tried.worth, tried.distinct
    agents = sample.moments.rules.agents
    agent = agents[sample.moments.agent]
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
    later = _measured(over[:, s] - over[:, 0], chosen, sample.cluster)
    cluster, features = sample.cluster, standardized(sample.observed)
    told = Told(np.nan_to_num(both), tried.exact, cluster)
    smoothers = _smoothers(features, cluster)
    shown = _gain(told, smoothers)
    remembered = None
    if sample.history is not None and best[s].sure and shown.most < best[s].mean:
        past = np.concatenate([sample.observed, sample.history], axis=1)
        remembered = _gain(told, _smoothers(standardized(past), cluster))
    whose = [other for k, other in enumerate(agents) if other != agent and tried.moved[:, k].any()]
    return Forked(
        agent=agent,
        others=others,
        moments=len(both),
        tried=int(count.max()),
        of=sample.legal.shape[1],
        forks=2 * tried.forks,
        moved=bool(tried.moved[:, agents.index(agent)].any()),
        moves_others=tuple(whose),
        followed=int(tried.horizons[-1]),
        decisions=int(tried.horizons[s]),
        best=best[s],
        at_the_end=at_the_end,
        complete=tried.complete,
        to_the_end=tried.complete and s == len(best) - 1,
        constant=_gain(told, _mean(cluster)),
        shown=shown,
        remembered=remembered,
        power=_power(told, features, smoothers),
        reach=int(tried.horizons[reach]),
        later=later,
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

# A smoother is a matrix [K, K]: with the worth of all moments [K, W] it gives what a way to look at
# moments expects of each, without the moment's own fold.


def _gain(told: Told, smoothers: Sequence[Array]) -> Gain:
    """Return what is gained by the action that a smoother expects most of; of the best one."""
    rows = np.arange(len(told.worth))
    return max(
        (mean_of(told.worth[rows, told.chosen(each)], told.cluster) for each in smoothers),
        key=lambda gain: gain.mean,
    )


@dataclass(frozen=True)
class Told:
    """What smoothers go by."""

    worth: Array  # float64 [K, W] above the mean of the actions that were tried
    exact: Array  # bool [K, W] columns that are that action itself
    cluster: Array  # int64 [K]

    def chosen(self, smoother: Array) -> Array:
        """Return the action, of those that are legal, of which a smoother expects most: int [K]."""
        weight = smoother @ self.exact
        expected = smoother @ (self.worth * self.exact)
        known = np.abs(weight) > 0.05
        expected = np.where(known, expected / np.where(known, weight, 1.0), -np.inf)
        # Where nothing is known of any legal action, the first one.
        found: Array = np.where(self.exact, expected, -np.inf).argmax(axis=1)
        return np.where(self.exact[np.arange(len(found)), found], found, self.exact.argmax(axis=1))


def _apart(cluster: Array) -> Array:
    """Return which moments are in other folds, bool [K, K]; an environment's stay together."""
    fold = np.unique(cluster, return_inverse=True)[1] % FOLDS
    return np.asarray(fold[:, None] != fold[None])


def _mean(cluster: Array) -> list[Array]:
    apart = _apart(cluster)
    return [apart / apart.sum(axis=1, keepdims=True)]


def _smoothers(features: Array, cluster: Array) -> list[Array]:
    """Return three smoothers by ``features`` [K, F]: neighbors, linear and kernel regression."""
    apart = _apart(cluster)
    squares = (features**2).sum(axis=1)
    product = features @ features.T
    distance = np.maximum(squares[:, None] + squares[None] - 2 * product, 0.0)
    nearest = np.argsort(np.where(apart, distance, np.inf), axis=1, kind="stable")[:, :NEIGHBORS]
    alike = np.zeros_like(distance)
    np.put_along_axis(alike, nearest, 1.0, axis=1)
    linear = product / max(1, features.shape[1]) + 1.0
    local = np.exp(-2 * distance / (float(np.median(distance)) or 1.0)) + 0.1
    return [alike, *(_ridge(kernel, apart) for kernel in (linear, local))]


def _ridge(kernel: Array, apart: Array) -> Array:
    """Return the smoother of ridge regression in a ``kernel`` [K, K]."""
    found = np.zeros_like(kernel)
    for first in np.unique(apart.argmin(axis=1)):  # a moment of each fold
        held, others = ~apart[first], apart[first]
        own = kernel[np.ix_(others, others)] + RIDGE * np.eye(int(others.sum()))
        found[np.ix_(held, others)] = np.linalg.solve(own, kernel[np.ix_(others, held)]).T
    return found


def standardized(features: Array) -> Array:
    """Return columns [K, F] with mean 0 and deviation 1; those that never vary are left out."""
    centered = features.astype(np.float64) - features.mean(axis=0)
    deviation = centered.std(axis=0)
    return np.asarray(centered[:, deviation > 1e-6] / deviation[deviation > 1e-6])


def _power(told: Told, features: Array, smoothers: Sequence[Array]) -> float:
    """Return how much of the gain of invented rules is found in these observations: 0 to 1.

    An invented rule makes the best of two actions depend on one feature, drawn, and keeps the noise
    of what was measured. Where nothing is observed there is nothing to be found: 1.
    """
    worth = told.worth
    size = float(np.abs(worth).max(axis=1).mean())
    if not features.shape[1] or not size:
        return 1.0
    rng, rows = np.random.default_rng(0), np.arange(len(worth))
    found = []
    for _ in range(PLANTED):
        feature = features[:, rng.integers(features.shape[1])]
        planted = np.where(feature > feature.mean(), size, -size)
        noise = worth[rng.permutation(len(worth))][:, :2] - worth[:, :2].mean(axis=0)
        invented = np.stack([planted, -planted], axis=1)
        noisy = Told(invented + noise, np.ones(invented.shape, dtype=bool), told.cluster)
        gains = [invented[rows, noisy.chosen(each)].mean() for each in smoothers]
        found.append(max(gains) / size)
    return float(np.mean(found))
