"""Detect a load that grows or shrinks from day to day, and the effect on a saving.

Daily totals are regressed on the number of the day by ordinary least squares; with two weeks or
more, each weekday has its own intercept. Days that correlate with the next ones carry less
information than independent days: the variance of the slope is multiplied by (1 + r) / (1 - r),
with r the lag-1 correlation of the residuals if it is above 0 (Wilks, Statistical Methods in the
Atmospheric Sciences, 2011, section 5.2.4).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS, student_quantile

__all__ = ["LEVEL", "WEEKS", "Trend", "trend_of"]

LEVEL = 0.99
"""Confidence level of the test of a slope."""

WEEKS = 2
"""With this many weeks or more, each weekday has its own effect."""

ROUNDING = 1e-9
"""Lower limit of a standard error, as a fraction of the mean."""


@dataclass(frozen=True)
class Trend:
    """A linear trend of a load, and the saving of a policy along its own linear trend."""

    slope: float  # of the load per day, as a share of its mean
    t: float  # t statistic of the slope
    windows: int  # past days
    weekdays: bool  # whether each weekday has its own effect
    saving: float  # requests a day, mean of the past days
    last: float  # fitted saving on the last day
    ahead: float  # mean fitted saving over as many future days
    ahead_low: float  # 95 % interval of ``ahead``
    ahead_high: float

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


def trend_of(load: Array, saved: Array, *, days: bool) -> Trend | None:
    """Return the trend of a load and its effect on a saving; None if the slope is not significant.

    Args:
        load: requests that arrive in each whole window, [W].
        saved: requests by which a policy costs less than another in the same windows, [W].
        days: whether the windows are days, and so have weekdays.
    """
    count = len(load)
    if count < FEWEST_WINDOWS or not load.any():
        return None
    weekdays = days and count >= 7 * WEEKS
    line = _Line.of(load, weekdays)
    degrees = count - line.design.shape[1]
    mean = float(load.mean())
    t = line.slope / max(line.error, ROUNDING * mean)
    if abs(t) < student_quantile((1 + LEVEL) / 2, degrees):
        return None
    saved_line = _Line.of(saved, weekdays)
    ahead, half = saved_line.at((3 * count - 1) / 2)
    return Trend(
        slope=line.slope / mean,
        t=t,
        windows=count,
        weekdays=weekdays,
        saving=float(saved.mean()),
        last=saved_line.at(count - 1)[0],
        ahead=ahead,
        ahead_low=ahead - half,
        ahead_high=ahead + half,
    )


@dataclass(frozen=True)
class _Line:
    """A linear fit to values [W], with one intercept or one for each weekday."""

    design: Array  # float64 [W, K]; the last column is the number of the window
    coefficients: Array  # float64 [K]
    covariance: Array  # float64 [K, K]

    @classmethod
    def of(cls, values: Array, weekdays: bool) -> _Line:
        number = np.arange(len(values), dtype=np.float64)
        kinds = number % 7 if weekdays else np.zeros(len(values))
        effects = (kinds[:, None] == np.unique(kinds)).astype(np.float64)
        design = np.column_stack([effects, number])
        inverse = np.linalg.inv(design.T @ design)
        coefficients = inverse @ design.T @ values
        residuals = values - design @ coefficients
        square = float(residuals @ residuals)
        if square <= 1e-18 * float(values @ values):  # rounding
            return cls(design, coefficients, np.zeros_like(inverse))
        variance = square / (len(values) - design.shape[1])
        correlation = max(0.0, float(residuals[1:] @ residuals[:-1]) / square)
        return cls(
            design,
            coefficients,
            inverse * variance * (1 + correlation) / max(1e-6, 1 - correlation),
        )

    @property
    def slope(self) -> float:
        return float(self.coefficients[-1])

    @property
    def error(self) -> float:
        return math.sqrt(float(self.covariance[-1, -1]))

    def at(self, number: float) -> tuple[float, float]:
        """Return the fit at window ``number`` for a mean weekday, and half the width of its 95 %
        interval."""
        kinds = self.design.shape[1] - 1
        place = np.append(np.full(kinds, 1 / kinds), number)
        degrees = len(self.design) - len(place)
        error = math.sqrt(float(place @ self.covariance @ place))
        return float(place @ self.coefficients), student_quantile(0.975, degrees) * error
