"""The saving of one policy compared with another on the same days, and whether it is worth it."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from corral.envs.core import Array
from corral.loads.advise.enough import Reason, Training
from corral.loads.advise.words import requests
from corral.loads.best_rule import correlated
from corral.loads.paired import a_day, per_day
from corral.loads.replay import Replay
from corral.loads.scores import WindowSums
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS, difference_interval, lag_1

__all__ = [
    "LEAST_WORTH",
    "LOCAL",
    "LONGEST",
    "OF_CAPACITY",
    "PLENTY",
    "Answer",
    "Decision",
    "Saving",
    "Worth",
    "between",
    "both",
    "decide",
    "saving",
    "worth_of",
]

LOCAL = "local/equal"

LEAST_WORTH = 0.1
"""Points (% of the arrivals) that a team must save at least, unless another number is given."""

OF_CAPACITY = 0.1
"""Part of the saving of more capacity that a team must reach, unless a number is given."""

PLENTY = 2 * FEWEST_WINDOWS
"""From so many days on, enough of them are held out for an interval."""

LONGEST = 365
"""If more windows than this were needed to tell, more of them are unlikely to."""

Answer = Literal["worth it", "not worth it", "too few days", "not trained enough"]


@dataclass(frozen=True)
class Saving:
    """How much less a policy costs than another in the same windows, in shares of the arrivals."""

    share: float  # below 0: it costs more
    low: float | None  # 95 % interval of it, Student's over windows; None: too few of them
    high: float | None
    lost: float  # how many fewer requests are lost, of the arrivals
    windows: int
    arrivals: float  # mean requests a day; in a window if the clock has no days
    unit: str  # "a day" or "a window"
    alike: bool = False  # neighbouring windows correlate, so that the interval is too narrow

    @property
    def requests(self) -> float:
        """The saving in requests a day."""
        return self.share * self.arrivals

    @property
    def same(self) -> bool:
        """Whether both cost the same in every window."""
        return self.share == 0 and self.low == self.high and self.low in (0, None)

    @property
    def open_ended(self) -> bool:
        """Whether it may be chance: without an interval, or with 0 in it."""
        return self.low is None or self.high is None or self.low <= 0 <= self.high

    @property
    def constant(self) -> bool:
        """Whether the difference is the same in every window, so that no interval tells anything
        of other ones."""
        if self.low is None or self.high is None:
            return False
        return bool(np.isclose(self.low, self.high, rtol=1e-9, atol=1e-12))

    def to_json(self) -> dict[str, Any]:
        """Return its values, and the same in requests a day."""
        ends = {"requests_low": self.low, "requests_high": self.high}
        times = {k: None if end is None else end * self.arrivals for k, end in ends.items()}
        return {**asdict(self), "requests": self.requests, **times}


def saving(
    replay: Replay, other: tuple[Array, Array], own: tuple[Array, Array], load: Array
) -> Saving:
    """Return the saving of ``own`` compared with ``other``, both (cost [W], lost [W]) in requests
    of each window of ``replay``, with arrivals ``load`` [W]."""
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


def between(found: Saving) -> str:
    """Return the interval in requests, "38,000 to 44,100": signed as the mean, so that ends
    beyond 0 have a minus."""
    assert found.low is not None
    assert found.high is not None
    ends = [found.low * found.arrivals, found.high * found.arrivals]
    if found.share < 0:
        ends = [-ends[1], -ends[0]]
    return " to ".join(map(requests, ends))


# --- Worth it ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Worth:
    """Least saving of a team worth running, and why so much."""

    points: float  # % of the arrivals
    source: Literal["given", "least", "capacity"]
    """"least": ``LEAST_WORTH``; "capacity": ``OF_CAPACITY`` of the saving of more capacity."""

    @property
    def share(self) -> float:
        """The same as a share of the arrivals."""
        return self.points / 100


def worth_of(given: float | None, capacity: float | None) -> Worth:
    """Return the least saving of a team worth running.

    Args:
        given: points; None: ``LEAST_WORTH``, or a part of ``capacity`` if that is more.
        capacity: points that more capacity would save; None: unknown.
    """
    if given is not None:
        return Worth(given, "given")
    part = OF_CAPACITY * (capacity or 0.0)
    return Worth(part, "capacity") if part > LEAST_WORTH else Worth(LEAST_WORTH, "least")


@dataclass(frozen=True)
class Decision:
    """Whether a team is worth it, and how to settle an open answer."""

    answer: Answer
    more: int | None = None  # windows that would settle it; None: settled, or unlikely to
    leans: Literal["team", "rule"] | None = None  # which was cheaper so far; None: settled
    reason: Reason | None = None  # why the training was too short


def decide(found: Saving, worth: float, training: Training | None = None) -> Decision:
    """Return whether the saving of a team compared with the best plain rule is worth it.

    Worth it: the lower end of the interval is above 0, and the mean above ``worth``, a share of the
    arrivals. Not worth it: the upper end is below ``worth``. Else there are too few windows. More
    of them settle it when the interval is half as wide as the mean's distance from 0, if the mean
    is above ``worth``, else from ``worth``: (t sd / distance)^2 windows. For a mean of 0 or below
    no number is stated.

    Not trained enough: in place of the last two answers, if ``training`` says so.
    """
    decision = _by_interval(found, worth)
    if decision.answer == "worth it" or training is None:
        return decision
    reason = training.too_short(worth - found.share)
    if reason is None:
        return decision
    return Decision("not trained enough", leans=_leans(found), reason=reason)


def _by_interval(found: Saving, worth: float) -> Decision:
    open_ended = Decision("too few days", leans=_leans(found))
    if found.low is None or found.high is None:
        return dataclasses.replace(open_ended, more=FEWEST_WINDOWS - found.windows)
    if found.low > 0 and found.share > worth:
        return Decision("worth it")
    if found.high < worth:
        return Decision("not worth it")
    distance = found.share if found.share > worth else worth - found.share
    if found.share <= 0 or distance == 0:
        return open_ended
    half = (found.high - found.low) / 2  # t sd / sqrt(n)
    needed = found.windows * (half / distance) ** 2
    if needed > LONGEST:
        return open_ended
    return dataclasses.replace(open_ended, more=max(1, math.ceil(needed) - found.windows))


def _leans(found: Saving) -> Literal["team", "rule"]:
    return "team" if found.share > 0 else "rule"
