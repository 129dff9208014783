"""Results of an audit: a run's numbers, the true ones with their noise, and their descriptions.

A true number is a mean over forks and has a standard error. ``Compared.ceiling`` is the
correlation that even perfect values would have with such noisy numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from corral.adapters.snapshots import Copied
from corral.envs.core import Array
from corral.trainers.evaluation.intervals import largest_share

__all__ = [
    "Audit",
    "Audited",
    "Compared",
    "Decision",
    "clamped",
    "correlation",
    "fitted",
    "sentence",
]

FEWEST = 3
"""Minimum number of states for a correlation."""


@dataclass(frozen=True)
class Decision:
    """One decision of the run, and the best alternative that was tried in the same state."""

    agent: str
    env_row: int
    step: int  # of the episode
    action: int
    best: int
    loss: float  # true value of the best action minus that of the taken one
    error: float  # standard error of ``loss``, from forks that did not select the best action
    where: str  # "step 12", or the position in the environment's data
    amounts: tuple[float, float] | None = None  # amounts of both actions, such as requests
    unit: str | None = None
    forks: int = 0  # number of forks that measured ``loss``


def sentence(decision: Decision, given_this_future: bool) -> str:
    """Return a decision as a sentence."""
    action, best = decision.amounts or (decision.action, decision.best)
    unit = f" {decision.unit}" if decision.unit else ""
    future = ", for the same future" if given_this_future else ""
    around = f" ± {2 * decision.error:.1g}"
    if decision.forks and not decision.error > 1e-12:
        around = (
            f" in all {decision.forks} forks (95 % bound: at most "
            f"{largest_share(decision.forks):.0%} differ)"
        )
    return (
        f"{decision.agent} chose {action:g}{unit} at {decision.where}; {best:g} is better by "
        f"{decision.loss:.2g}{around}{future}"
    )


@dataclass(frozen=True)
class Compared:
    """A run's numbers and the true ones for K states."""

    said: Array  # float64 [K] the run's numbers; NaN: missing
    true: Array  # float64 [K]
    error: Array  # float64 [K] standard error of ``true``

    @property
    def known(self) -> Compared:
        """The comparison without states in which the run's number is missing."""
        known_rows = ~np.isnan(self.said)
        return Compared(self.said[known_rows], self.true[known_rows], self.error[known_rows])

    @property
    def correlation(self) -> float | None:
        """Pearson's correlation; None if one side does not vary."""
        comparison = self.known
        return correlation(comparison.said, comparison.true)

    @property
    def reliability(self) -> float:
        """Share of the variance of ``true`` that is not noise: 0 .. 1."""
        spread = float(np.var(self.true)) if len(self.true) else 0.0
        if not spread > 0:
            return 0.0
        return max(0.0, 1.0 - float(np.mean(self.error**2)) / spread)

    @property
    def ceiling(self) -> float:
        """Correlation of perfect numbers with ``true``."""
        return math.sqrt(self.reliability)

    @property
    def same_sign(self) -> float | None:
        """Share of equal signs among clearly nonzero true numbers; None with fewer than 10."""
        comparison = self.known
        sure = np.abs(comparison.true) > 2 * comparison.error
        if sure.sum() < 10:
            return None
        return float(np.mean(np.sign(comparison.said[sure]) == np.sign(comparison.true[sure])))


@dataclass(frozen=True)
class Audited:
    """Audit result of one policy."""

    policy: str
    values: Compared  # the critic's values
    assumed: float  # mean weight of the critic's own values in the true values
    fitted: float | None  # correlation of a plain fit on the critic's input, leave-one-out
    clamped: tuple[float, float] | None  # a value shared by different states, and their share
    advantages: Compared  # the training advantages: one sample per decision
    credit: Compared | None  # the run's advantage function, mean over forks, less the policy's mean
    plain: float | None  # same correlation for GAE; the smaller of lambda 0 and 1
    sample: tuple[float, float] | None  # mean and deviation of single forks' correlations
    learned_spread: float  # standard deviation of all training advantages of the rollout
    actor_gradient: float | None  # largest actor gradient in the update
    worst: tuple[Decision, ...]

    @property
    def moments(self) -> int:
        return len(self.values.true)

    @property
    def value_correlation(self) -> float | None:
        return self.values.correlation

    @property
    def advantage_correlation(self) -> float | None:
        return self.advantages.correlation


@dataclass(frozen=True)
class Audit:
    """Audit results of a run, by policy. Decisions are sampled, as in training."""

    policies: tuple[Audited, ...]
    given_this_future: bool  # all forks share the same future chance: rules without ``redraw``
    updates: int  # updates of the run before the audit
    env_steps: int
    seconds: float
    copied: Copied | None = None  # the way to copy states of a third-party environment
    cut: bool = False  # the search for better actions ended early, for lack of time


def correlation(a: Array, b: Array) -> float | None:
    """Return Pearson's correlation; None if one side does not vary."""
    if len(a) < FEWEST or _still(a) or _still(b):
        return None
    return float(np.corrcoef(a, b)[0, 1])


def _still(values: Array) -> bool:
    """Return True if values differ by no more than rounding errors."""
    return float(np.std(values)) <= 1e-6 * float(np.abs(values).max()) + 1e-12


# --- Plain fit and clamping ----------------------------------------------------------------------

FITTED = 20
"""Minimum number of states for a fit."""

CLAMPED, UNLIKE = 0.2, 10
"""Minimum share and number of different states with one extreme value to call it clamped."""


def fitted(inputs: Array, values: Array) -> float | None:
    """Return the correlation of ``values`` [K] with leave-one-out predictions.

    Uses the best of several kernel ridge regressions on ``inputs`` [K, F] and on their distances.
    Returns None with too few states.
    """
    varies = inputs.std(axis=0) > 0
    if len(values) < FITTED or not varies.any() or not np.std(values) > 0:
        return None
    x = inputs[:, varies]
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    products = x @ x.T / x.shape[1]
    squares = np.diag(products)
    distances = (squares[:, None] + squares - 2 * products).clip(min=0)
    near = np.exp(-distances / max(1e-12, float(np.median(distances))))
    correlations = [
        correlation(_left_one_out(kernel, values, weight), values)
        for kernel in (products, near)
        for weight in (0.03, 0.3, 3.0)
    ]
    return max((item for item in correlations if item is not None), default=None)


def _left_one_out(kernel: Array, values: Array, weight: float) -> Array:
    """Return leave-one-out predictions of ``values`` [K] by kernel ridge regression."""
    count = len(values)
    bordered = kernel + 1.0  # also fits a constant
    hat = np.linalg.solve(bordered + weight * np.eye(count), bordered)
    residual = (values - hat.T @ values) / (1.0 - np.diag(hat))
    return np.asarray(values - residual)


def clamped(values: Array, inputs: Array) -> tuple[float, float] | None:
    """Return an extreme value of many different ``inputs`` [K, F] and their share, or None."""
    values = np.where(np.isnan(values), np.inf, values)
    finite = values[np.isfinite(values)]
    if not len(finite) or not np.ptp(finite) > 0:
        return None
    for extreme in (finite.max(), finite.min()):
        at = np.abs(values - extreme) <= 1e-6 * np.ptp(finite)
        if at.mean() >= CLAMPED and len(np.unique(inputs[at], axis=0)) >= UNLIKE:
            return float(extreme), float(at.mean())
    return None
