"""Whether a load grows or shrinks from day to day, and the effect on a saving.

Daily totals are regressed on the number of the day, from two weeks on with an effect of each
weekday (ordinary least squares). Days that correlate with the next ones tell less than independent
ones: the variance of the slope is multiplied by (1 + r) / (1 - r), with r the lag-1 correlation of
the residuals if that is above 0 (Wilks, Statistical Methods in the Atmospheric Sciences, 2011,
section 5.2.4).
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
"""Level of the test of a slope."""

WEEKS = 2
"""From so many weeks on each weekday has an effect of its own."""

ROUNDING = 1e-9
"""A standard error is at least this part of the mean."""


@dataclass(frozen=True)
class Trend:
    """A load that grows or shrinks by a straight line, and the saving of a policy on that line."""

    slope: float  # of the load, a day, as a share of its mean
    t: float
    windows: int  # past days
    weekdays: bool  # whether each weekday has an effect of its own
    saving: float  # requests a day, mean of the past days
    last: float  # the same on the last day, by the line
    ahead: float  # mean of as many days to come, by the line
    ahead_low: float  # 95 % interval of it
    ahead_high: float

    def to_json(self) -> dict[str, Any]:
        """Return its values."""
        return asdict(self)


def trend_of(load: Array, saved: Array, *, days: bool) -> Trend | None:
    """Return the trend of a load, and its effect on a saving; None for no trend.

    Args:
        load: requests that arrive in each whole window, [W].
        saved: requests by which a policy costs less than another in the same windows, [W].
        days: whether the windows are days, which have weekdays.
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
    own = _Line.of(saved, weekdays)
    ahead, half = own.at((3 * count - 1) / 2)
    return Trend(
        slope=line.slope / mean,
        t=t,
        windows=count,
        weekdays=weekdays,
        saving=float(saved.mean()),
        last=own.at(count - 1)[0],
        ahead=ahead,
        ahead_low=ahead - half,
        ahead_high=ahead + half,
    )


@dataclass(frozen=True)
class _Line:
    """A straight line through values [W], with effects of weekdays or one level for all."""

    design: Array  # float64 [W, K]; the last column is the number of the window
    found: Array  # float64 [K]
    covariance: Array  # float64 [K, K]

    @classmethod
    def of(cls, values: Array, weekdays: bool) -> _Line:
        number = np.arange(len(values), dtype=np.float64)
        kinds = number % 7 if weekdays else np.zeros(len(values))
        effects = (kinds[:, None] == np.unique(kinds)).astype(np.float64)
        design = np.column_stack([effects, number])
        inverse = np.linalg.inv(design.T @ design)
        found = inverse @ design.T @ values
        rest = values - design @ found
        square = float(rest @ rest)
        if square <= 1e-18 * float(values @ values):  # rounding
            return cls(design, found, np.zeros_like(inverse))
        variance = square / (len(values) - design.shape[1])
        correlation = max(0.0, float(rest[1:] @ rest[:-1]) / square)
        return cls(
            design, found, inverse * variance * (1 + correlation) / max(1e-6, 1 - correlation)
        )

    @property
    def slope(self) -> float:
        return float(self.found[-1])

    @property
    def error(self) -> float:
        return math.sqrt(float(self.covariance[-1, -1]))

    def at(self, number: float) -> tuple[float, float]:
        """Return the line at the number of a window, a mean weekday, and half the width of its
        95 % interval."""
        kinds = self.design.shape[1] - 1
        place = np.append(np.full(kinds, 1 / kinds), number)
        degrees = len(self.design) - len(place)
        error = math.sqrt(float(place @ self.covariance @ place))
        return float(place @ self.found), student_quantile(0.975, degrees) * error
