"""What one policy saves beside another on the same days, and whether that is worth it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from corral.envs.core import Array
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS, difference_interval, lag_1
from corral.trainers.loads.best_rule import correlated
from corral.trainers.loads.paired import a_day, per_day
from corral.trainers.loads.replay import Replay
from corral.trainers.loads.scores import WindowSums

__all__ = ["LONGEST", "PLENTY", "WORTH", "Decision", "Saving", "both", "decide", "saving"]

WORTH = 0.1
"""Points (% of the arrivals) that a team must save to be worth it, by default."""

PLENTY = 2 * FEWEST_WINDOWS
"""From so many days on, enough of them are held out for an interval."""

LONGEST = 365
"""If more windows than this were needed to tell, more of them are unlikely to."""

Answer = Literal["worth it", "not worth it", "too few days"]


@dataclass(frozen=True)
class Saving:
    """What a policy costs less than another one in the same windows, in shares of the arrivals."""

    share: float  # below 0: it costs more
    low: float | None  # 95 % interval of it, Student's over windows; None: too few of them
    high: float | None
    lost: float  # how many fewer requests are lost, of the arrivals
    windows: int
    arrivals: float  # mean requests a day; of a clock without days, in a window
    unit: str  # "a day" or "a window"
    alike: bool = False  # windows next to each other are, so that the interval is too narrow

    @property
    def requests(self) -> float:
        """The saving in requests a day."""
        return self.share * self.arrivals

    @property
    def same(self) -> bool:
        """Whether both cost the same in every window."""
        return self.share == 0 and self.low == self.high and self.low in (0, None)

    @property
    def constant(self) -> bool:
        """Whether the difference is the same in every window, so that no interval tells anything
        of other ones."""
        ends = self.low, self.high
        return None not in ends and bool(np.isclose(*ends, rtol=1e-9, atol=1e-12))  # type: ignore[arg-type]

    def to_json(self) -> dict[str, Any]:
        """Return its values, and the same in requests a day."""
        ends = {"requests_low": self.low, "requests_high": self.high}
        times = {k: None if end is None else end * self.arrivals for k, end in ends.items()}
        return {**asdict(self), "requests": self.requests, **times}


def saving(
    replay: Replay, other: tuple[Array, Array], own: tuple[Array, Array], load: Array
) -> Saving:
    """Return what ``own`` saves beside ``other``, both (cost [W], lost [W]) in requests of each
    window of ``replay``, whose arrivals are ``load`` [W]."""
    season = 7 if replay.days else 1
    less, fewer = other[0] - own[0], other[1] - own[1]
    interval = difference_interval(less, load, season=season)
    every = max(1.0, float(load.sum()))
    low, high = replay.rows
    return Saving(
        share=float(less.sum()) / every,
        low=interval.low,
        high=interval.high,
        lost=float(fewer.sum()) / every,
        windows=len(load),
        arrivals=every * replay.window / (high - low) * per_day(replay),
        unit=a_day(replay),
        alike=len(load) >= FEWEST_WINDOWS and correlated(lag_1(less, season)),
    )


def both(sums: WindowSums) -> tuple[Array, Array]:
    """Return cost and lost requests of each window: [W] each."""
    return sums.cost, sums.lost


@dataclass(frozen=True)
class Decision:
    """Whether a team is worth it, and how many more windows would tell where that is open."""

    answer: Answer
    more: int | None = None  # windows; None where it is settled, or more are unlikely to tell


def decide(found: Saving, worth: float = WORTH / 100) -> Decision:
    """Return whether what a team saves beside the best rule is worth it.

    Worth it: the lower end of the interval is above 0, and the mean above ``worth``, a share of the
    arrivals. Not worth it: the upper end is below ``worth``. Else there are too few windows: with
    (t sd / d)^2 of them an interval as wide as these tell would settle it, where d is the mean's
    distance from 0, if it is above ``worth``, else from ``worth``.
    """
    if found.low is None or found.high is None:
        return Decision("too few days", FEWEST_WINDOWS - found.windows)
    if found.low > 0 and found.share > worth:
        return Decision("worth it")
    if found.high < worth:
        return Decision("not worth it")
    distance = found.share if found.share > worth else worth - found.share
    half = (found.high - found.low) / 2  # t sd / sqrt(n)
    needed = found.windows * (half / distance) ** 2 if distance > 0 else math.inf
    more = math.inf if needed > LONGEST else max(1, math.ceil(needed) - found.windows)
    return Decision("too few days", None if more == math.inf else int(more))
