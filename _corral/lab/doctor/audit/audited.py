"""What an audit finds: numbers of a run beside true ones, each with its noise, and words for them.

A true number is a mean over forks, and has an error. ``Compared.ceiling`` is the correlation that
even perfect values would have with numbers as noisy as that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from corral.envs.core import Array

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
"""Moments below which nothing correlates."""


@dataclass(frozen=True)
class Decision:
    """One decision of the run, and the best one that was tried at that moment."""

    agent: str
    env_row: int
    step: int  # of the episode
    action: int
    best: int
    loss: float  # true value of the best action less that of the one taken
    error: float  # standard error of ``loss``, which other forks measure than those that chose
    where: str  # "step 12", or where in its data
    amounts: tuple[float, float] | None = None  # what both actions amount to
    unit: str | None = None


def sentence(decision: Decision, given_this_future: bool) -> str:
    """Return a decision in words."""
    action, best = decision.amounts or (decision.action, decision.best)
    unit = f" {decision.unit}" if decision.unit else ""
    future = ", given this future" if given_this_future else ""
    return (
        f"{decision.agent} chose {action:g}{unit} at {decision.where}; {best:g} is better by "
        f"{decision.loss:.2g} ± {2 * decision.error:.1g}{future}"
    )


@dataclass(frozen=True)
class Compared:
    """Numbers of a run beside the true ones of K moments."""

    said: Array  # float64 [K]; NaN: nothing
    true: Array  # float64 [K]
    error: Array  # float64 [K] standard error of ``true``

    @property
    def known(self) -> Compared:
        """Those of which the run says something."""
        at = ~np.isnan(self.said)
        return Compared(self.said[at], self.true[at], self.error[at])

    @property
    def correlation(self) -> float | None:
        """None where one side does not vary."""
        known = self.known
        return correlation(known.said, known.true)

    @property
    def reliability(self) -> float:
        """The share of what varies in ``true`` that is no noise: 0 .. 1."""
        spread = float(np.var(self.true)) if len(self.true) else 0.0
        if not spread > 0:
            return 0.0
        return max(0.0, 1.0 - float(np.mean(self.error**2)) / spread)

    @property
    def ceiling(self) -> float:
        """The correlation that perfect numbers have with ``true``."""
        return math.sqrt(self.reliability)

    @property
    def same_sign(self) -> float | None:
        """The share of the surely positive or negative that has the same sign; None: too few."""
        known = self.known
        sure = np.abs(known.true) > 2 * known.error
        if sure.sum() < 10:
            return None
        return float(np.mean(np.sign(known.said[sure]) == np.sign(known.true[sure])))


@dataclass(frozen=True)
class Audited:
    """What was found of one policy."""

    policy: str
    values: Compared  # what the critic said
    assumed: float  # weight with which the critic itself stands in true values, on average
    fitted: float | None  # correlation of a plain fit of what the critic observes, left one out
    clamped: tuple[float, float] | None  # a value that unlike moments share, and their share
    advantages: Compared  # those that the run learned from: one sample of each
    credit: Compared | None  # its advantage function's means over forks, less what any action gets
    plain: float | None  # the same of generalized advantages of one step, and of all: the less
    sample: tuple[float, float] | None  # correlation of single forks' advantages, and deviation
    learned_spread: float  # deviation of all advantages of the rollout that it learned from
    actor_gradient: float | None  # largest of the actor's gradients in the update
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
    """The truth about a run, by policy. Decisions are sampled, as in training."""

    policies: tuple[Audited, ...]
    given_this_future: bool  # the forks meet the same chance again: rules without ``redraw``
    updates: int  # that the run had learned from before
    env_steps: int
    seconds: float


def correlation(a: Array, b: Array) -> float | None:
    """Return Pearson's correlation; None where one side does not vary."""
    if len(a) < FEWEST or _still(a) or _still(b):
        return None
    return float(np.corrcoef(a, b)[0, 1])


def _still(values: Array) -> bool:
    """Tell whether values differ by no more than rounding."""
    return float(np.std(values)) <= 1e-6 * float(np.abs(values).max()) + 1e-12


# --- What could be known -------------------------------------------------------------------------

FITTED = 20
"""Moments below which nothing is fitted."""

CLAMPED, UNLIKE = 0.2, 10
"""Share of the moments, and how many unlike ones, that share an extreme value where it is cut."""


def fitted(inputs: Array, values: Array) -> float | None:
    """Return how well ``values`` [K] can be told from ``inputs`` [K, F]: the correlation with
    predictions, each made without its own moment; None: there are too few.

    The better of ridge regressions on the inputs and on their distances.
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
