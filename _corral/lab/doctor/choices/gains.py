"""Measure the gain of the best action, and of actions chosen with less information.

One half of the forks selects the best action of a state and the other half measures it, so chance
does not inflate the gain. That action may depend on hidden information. It is compared with one
action for all states, and with actions chosen from the agent's observation: by the mean over
similar states, by linear and by kernel regression. All of them are fitted on other environments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.choices.forked import Tried

__all__ = ["Forked", "Gain", "compare"]

SURE = 4.0
"""Standard errors above 0 for a sure gain; up to ten horizons are tested."""

FOLDS = 5
RIDGE = 0.3
NEIGHBORS = 8
"""Number of similar states that select an action."""

PLANTED = 12
"""Number of invented rules for the test of power."""


@dataclass(frozen=True)
class Gain:
    """Mean advantage over the mean of the tried actions, across states."""

    mean: float
    error: float  # standard error; environment copies are independent, states of one copy are not

    @property
    def sure(self) -> bool:
        return self.mean > SURE * self.error and self.mean > 0

    @property
    def upper(self) -> float:
        """Upper bound of the gain, three standard errors above the mean."""
        return self.mean + 3 * self.error


@dataclass(frozen=True)
class Forked:
    """Result for the forked states of one agent, in units of its own undiscounted return."""

    agent: str
    others: str  # play of the other agents: "random", "greedy", ...
    moments: int  # number of states
    tried: int  # maximum number of tried actions
    of: int  # number of actions of the agent
    forks: int
    moved: bool  # some action changed the agent's own return in some state
    moves_others: tuple[str, ...]  # other agents with a return that some action changed
    followed: int  # maximum number of the agent's decisions in each fork
    decisions: int  # number of the agent's decisions after which gains are measured
    best: Gain  # the best action of each state
    at_the_end: Gain  # gain of the same actions at the end of play
    later: Gain  # part of the best action's gain after the agent's next decision
    complete: bool  # play continued to the end of the episodes
    to_the_end: bool  # gains are measured at the end of the episodes
    constant: Gain  # one action for all states
    shown: Gain  # an action chosen from the observation
    remembered: Gain | None  # also from earlier observations; None: not needed
    power: float  # share of invented rules that the observations reveal
    reach: int  # number of the agent's decisions that bring nine tenths of the gain

    @property
    def matters(self) -> bool:
        """True if some action is better than the others and its gain lasts to the end."""
        return self.best.sure and not self.only_shifts

    @property
    def only_shifts(self) -> bool:
        """True if the gain of an action is lost by the end: rewards only come earlier."""
        likely = self.best.mean > 2.5 * self.best.error and self.best.mean > 0
        return likely and self.complete and self.at_the_end.upper < 0.1 * self.best.mean

    @property
    def one_step(self) -> bool:
        """True if the gain of an action surely comes before the agent's next decision."""
        later = abs(self.later.mean) + 2 * self.later.error
        return self.decisions > 1 and self.best.sure and later < 0.1 * self.best.mean

    @property
    def hidden(self) -> bool:
        """True if neither a constant action nor the observation gets a part of the best gain."""
        if not self.matters or self.power < 0.5:
            return False
        return max(self.constant.upper, self.shown.upper) < 0.3 * self.best.mean

    @property
    def needs_memory(self) -> bool:
        """True if earlier observations add much to the last one."""
        gain = self.remembered
        if not self.matters or gain is None or not gain.sure:
            return False
        return gain.mean - self.shown.upper > 0.2 * self.best.mean


def compare(others: str, tried: Tried) -> Forked:
    """Compute the gains from the tried actions."""
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
        s = len(best) - 1  # use the whole episode if its gain is large enough
    both = over[:, s].mean(axis=0)  # [K, W]
    chosen = [np.nanargmax(over[half, s], axis=1) for half in range(2)]
    at_the_end = _measured(over[:, -1], chosen, sample.cluster)
    course = [_measured(over[:, k], chosen, sample.cluster).mean for k in range(s + 1)]
    reach = next(k for k, gain in enumerate(course) if gain >= 0.9 * course[-1] or k == s)
    later = _measured(over[:, s] - over[:, 0], chosen, sample.cluster)
    cluster, features = sample.cluster, standardized(sample.observed)
    worths = Worths(np.nan_to_num(both), tried.exact, cluster)
    smoothers = _smoothers(features, cluster)
    shown = _gain(worths, smoothers)
    remembered = None
    if sample.history is not None and best[s].sure and shown.upper < best[s].mean:
        past = np.concatenate([sample.observed, sample.history], axis=1)
        remembered = _gain(worths, _smoothers(standardized(past), cluster))
    affected = [
        other for k, other in enumerate(agents) if other != agent and tried.moved[:, k].any()
    ]
    return Forked(
        agent=agent,
        others=others,
        moments=len(both),
        tried=int(count.max()),
        of=sample.legal.shape[1],
        forks=2 * tried.forks,
        moved=bool(tried.moved[:, agents.index(agent)].any()),
        moves_others=tuple(affected),
        followed=int(tried.horizons[-1]),
        decisions=int(tried.horizons[s]),
        best=best[s],
        at_the_end=at_the_end,
        complete=tried.complete,
        to_the_end=tried.complete and s == len(best) - 1,
        constant=_gain(worths, _mean(cluster)),
        shown=shown,
        remembered=remembered,
        power=_power(worths, features, smoothers),
        reach=int(tried.horizons[reach]),
        later=later,
    )


def _sureness(gain: Gain) -> float:
    return gain.mean / gain.error if gain.error > 0 else (np.inf if gain.mean > 1e-12 else 0.0)


def _best(over: Array, cluster: Array) -> list[Gain]:
    """Return the gain of each state's best action by horizon, selected by the other half."""
    return [
        _measured(over[:, s], [np.nanargmax(over[h, s], axis=1) for h in range(2)], cluster)
        for s in range(over.shape[1])
    ]


def _measured(over: Array, chosen: list[Array], cluster: Array) -> Gain:
    """Return the mean of ``over`` [2, K, W] at the actions selected by the other half, [K] each."""
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


# --- Choosing actions ----------------------------------------------------------------------------

# A smoother is a matrix [K, K]. Multiplied by the returns of all states [K, W], it gives the
# expected return of each state, computed without the state's own fold.


def _gain(worths: Worths, smoothers: Sequence[Array]) -> Gain:
    """Return the gain of the action with the largest expected return, for the best smoother."""
    rows = np.arange(len(worths.worth))
    return max(
        (
            mean_of(worths.worth[rows, worths.chosen(smoother)], worths.cluster)
            for smoother in smoothers
        ),
        key=lambda gain: gain.mean,
    )


@dataclass(frozen=True)
class Worths:
    """Input of the smoothers."""

    worth: Array  # float64 [K, W] return minus the mean of the tried actions
    exact: Array  # bool [K, W] columns in which the action itself is legal
    cluster: Array  # int64 [K]

    def chosen(self, smoother: Array) -> Array:
        """Return the legal action with the largest expected return: int [K]."""
        weight = smoother @ self.exact
        expected = smoother @ (self.worth * self.exact)
        informed = np.abs(weight) > 0.05
        expected = np.where(informed, expected / np.where(informed, weight, 1.0), -np.inf)
        # If no legal action has an expected return, take the first one.
        best: Array = np.where(self.exact, expected, -np.inf).argmax(axis=1)
        return np.where(self.exact[np.arange(len(best)), best], best, self.exact.argmax(axis=1))


def _apart(cluster: Array) -> Array:
    """Return True for pairs of states in different folds, bool [K, K]; one fold per environment."""
    fold = np.unique(cluster, return_inverse=True)[1] % FOLDS
    return np.asarray(fold[:, None] != fold[None])


def _mean(cluster: Array) -> list[Array]:
    apart = _apart(cluster)
    return [apart / apart.sum(axis=1, keepdims=True)]


def _smoothers(features: Array, cluster: Array) -> list[Array]:
    """Return three smoothers for ``features`` [K, F]: neighbors, linear and kernel regression."""
    apart = _apart(cluster)
    squares = (features**2).sum(axis=1)
    product = features @ features.T
    distance = np.maximum(squares[:, None] + squares[None] - 2 * product, 0.0)
    nearest = np.argsort(np.where(apart, distance, np.inf), axis=1, kind="stable")[:, :NEIGHBORS]
    similar = np.zeros_like(distance)
    np.put_along_axis(similar, nearest, 1.0, axis=1)
    linear = product / max(1, features.shape[1]) + 1.0
    local = np.exp(-2 * distance / (float(np.median(distance)) or 1.0)) + 0.1
    return [similar, *(_ridge(kernel, apart) for kernel in (linear, local))]


def _ridge(kernel: Array, apart: Array) -> Array:
    """Return the smoother of ridge regression with a ``kernel`` [K, K]."""
    smoother = np.zeros_like(kernel)
    for first in np.unique(apart.argmin(axis=1)):  # one state of each fold
        held, rest = ~apart[first], apart[first]
        regularized = kernel[np.ix_(rest, rest)] + RIDGE * np.eye(int(rest.sum()))
        smoother[np.ix_(held, rest)] = np.linalg.solve(regularized, kernel[np.ix_(rest, held)]).T
    return smoother


def standardized(features: Array) -> Array:
    """Return the varying columns [K, F], scaled to mean 0 and standard deviation 1."""
    centered = features.astype(np.float64) - features.mean(axis=0)
    deviation = centered.std(axis=0)
    return np.asarray(centered[:, deviation > 1e-6] / deviation[deviation > 1e-6])


def _power(worths: Worths, features: Array, smoothers: Sequence[Array]) -> float:
    """Return the share of the gain of invented rules that the smoothers reach: 0 to 1.

    An invented rule makes the better of two actions depend on one random feature, with the measured
    noise. Return 1 without observed features.
    """
    worth = worths.worth
    size = float(np.abs(worth).max(axis=1).mean())
    if not features.shape[1] or not size:
        return 1.0
    rng, rows = np.random.default_rng(0), np.arange(len(worth))
    shares = []
    for _ in range(PLANTED):
        feature = features[:, rng.integers(features.shape[1])]
        planted = np.where(feature > feature.mean(), size, -size)
        noise = worth[rng.permutation(len(worth))][:, :2] - worth[:, :2].mean(axis=0)
        invented = np.stack([planted, -planted], axis=1)
        noisy = Worths(invented + noise, np.ones(invented.shape, dtype=bool), worths.cluster)
        gains = [invented[rows, noisy.chosen(smoother)].mean() for smoother in smoothers]
        shares.append(max(gains) / size)
    return float(np.mean(shares))
