"""The saving of one policy compared with another on the same days, and whether it is worth it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
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
    "compared",
    "decide",
    "saving",
    "worth_of",
]

LOCAL = "local/equal"

LEAST_WORTH = 0.1
"""Default of the least saving of a team worth running, in points (% of the arrivals)."""

OF_CAPACITY = 0.1
"""Fraction of the saving of more capacity that a team must reach, if that is above the default."""

PLENTY = 2 * FEWEST_WINDOWS
"""With this many days or more, enough of them are held out for an interval."""

LONGEST = 365
"""If an answer needs more windows than this, more data is unlikely to settle it."""

Answer = Literal["worth it", "not worth it", "too few days", "not trained enough"]


@dataclass(frozen=True)
class Saving:
    """The saving of a policy compared with another in the same windows, as shares of arrivals."""

    share: float  # negative: the policy costs more
    low: float | None  # 95 % interval of it, Student's over windows; None: too few windows
    high: float | None
    lost: float  # requests lost by the other policy minus those lost by this one
    windows: int
    arrivals: float  # mean requests a day, or in a window if the clock has no days
    unit: str  # "a day" or "a window"
    alike: bool = False  # neighboring windows correlate, so the interval is too narrow

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
        """Whether the saving may be chance: the interval is missing or contains 0."""
        return self.low is None or self.high is None or self.low <= 0 <= self.high

    @property
    def constant(self) -> bool:
        """Whether the difference is the same in every window; an interval then says nothing about
        other windows."""
        if self.low is None or self.high is None:
            return False
        return bool(np.isclose(self.low, self.high, rtol=1e-9, atol=1e-12))

    def to_json(self) -> dict[str, Any]:
        """Return all fields, and the saving in requests a day."""
        ends = {"requests_low": self.low, "requests_high": self.high}
        times = {k: None if end is None else end * self.arrivals for k, end in ends.items()}
        return {**asdict(self), "requests": self.requests, **times}


def saving(
    replay: Replay, other: tuple[Array, Array], own: tuple[Array, Array], load: Array
) -> Saving:
    """Return the saving of ``own`` compared with ``other``.

    Both are (cost [W], lost [W]): requests in each window of ``replay``, with arrivals ``load``
    [W].
    """
    low, high = replay.rows
    arrivals = max(1.0, float(load.sum())) * replay.window / (high - low) * per_day(replay)
    less, fewer = other[0] - own[0], other[1] - own[1]
    season = 7 if replay.days else 1
    return compared(less, fewer, load, arrivals=arrivals, unit=a_day(replay), season=season)


def compared(
    less: Array, fewer: Array, load: Array, *, arrivals: float, unit: str, season: int
) -> Saving:
    """Return the saving of a policy in W windows.

    Args:
        less: [W] requests by which the policy costs less than the other one.
        fewer: [W] requests by which it loses fewer.
        load: [W] arrivals.
        arrivals: mean requests a day, or in a window if the clock has no days.
        unit: "a day" or "a window".
        season: windows so far apart are of one kind; 7 for days.
    """
    interval = difference_interval(less, load, season=season)
    every = max(1.0, float(load.sum()))
    return Saving(
        share=float(less.sum()) / every,
        low=interval.low,
        high=interval.high,
        lost=float(fewer.sum()) / every,
        windows=len(load),
        arrivals=arrivals,
        unit=unit,
        alike=len(load) >= FEWEST_WINDOWS and correlated(lag_1(less, season)),
    )


def both(sums: WindowSums) -> tuple[Array, Array]:
    """Return the cost and the lost requests of each window: [W] each."""
    return sums.cost, sums.lost


def between(saving: Saving, text: Callable[[float], str] = requests) -> str:
    """Return the interval in requests, "38,000 to 44,100". Its sign is that of the mean: an end on
    the other side of 0 has a minus. ``text`` formats a number."""
    assert saving.low is not None
    assert saving.high is not None
    ends = [saving.low * saving.arrivals, saving.high * saving.arrivals]
    if saving.share < 0:
        ends = [-ends[1], -ends[0]]
    return " to ".join(map(text, ends))


# --- Worth it ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Worth:
    """The least saving of a team worth running, and how it was set."""

    points: float  # % of the arrivals
    source: Literal["given", "least", "capacity"]
    """"given": by the caller; "least": ``LEAST_WORTH``; "capacity": ``OF_CAPACITY`` of the saving
    of more capacity."""

    @property
    def share(self) -> float:
        """The least saving as a share of the arrivals."""
        return self.points / 100


def worth_of(given: float | None, capacity: float | None) -> Worth:
    """Return the least saving of a team worth running.

    Args:
        given: points; None: ``LEAST_WORTH``, or a part of ``capacity`` if that part is larger.
        capacity: points that more capacity would save; None: unknown.
    """
    if given is not None:
        return Worth(given, "given")
    part = OF_CAPACITY * (capacity or 0.0)
    return Worth(part, "capacity") if part > LEAST_WORTH else Worth(LEAST_WORTH, "least")


@dataclass(frozen=True)
class Decision:
    """Whether a team is worth it, and how many windows would settle an open answer."""

    answer: Answer
    more: int | None = None  # windows that would settle it; None: settled, or unlikely to be
    leans: Literal["team", "rule"] | None = None  # the cheaper one so far; None: settled
    reason: Reason | None = None  # why the training was too short, or a rehearsal refuses it


def decide(team_saving: Saving, worth: float, training: Training | None = None) -> Decision:
    """Decide whether the saving of a team compared with the best plain rule is worth it.

    - "worth it": the interval's lower end is above 0, and the mean above ``worth``, a share of the
      arrivals.
    - "not worth it": the interval's upper end is below ``worth``.
    - "too few days": otherwise. (t sd / distance)^2 windows would settle it: half the interval's
      width is then the distance of the mean from ``worth``, or from 0 for a mean above ``worth``.
      The number is omitted for a mean of 0 or below, and above ``LONGEST``.
    - "not trained enough": instead of the last two, if ``training`` was too short.
    """
    decision = _by_interval(team_saving, worth)
    if decision.answer == "worth it" or training is None:
        return decision
    reason = training.too_short(worth - team_saving.share)
    if reason is None:
        return decision
    return Decision("not trained enough", leans=_leans(team_saving), reason=reason)


def _by_interval(team_saving: Saving, worth: float) -> Decision:
    open_ended = Decision("too few days", leans=_leans(team_saving))
    if team_saving.low is None or team_saving.high is None:
        return dataclasses.replace(open_ended, more=FEWEST_WINDOWS - team_saving.windows)
    if team_saving.low > 0 and team_saving.share > worth:
        return Decision("worth it")
    if team_saving.high < worth:
        return Decision("not worth it")
    distance = team_saving.share if team_saving.share > worth else worth - team_saving.share
    if team_saving.share <= 0 or distance == 0:
        return open_ended
    half = (team_saving.high - team_saving.low) / 2  # t sd / sqrt(n)
    needed = team_saving.windows * (half / distance) ** 2
    if needed > LONGEST:
        return open_ended
    return dataclasses.replace(open_ended, more=max(1, math.ceil(needed) - team_saving.windows))


def _leans(team_saving: Saving) -> Literal["team", "rule"]:
    return "team" if team_saving.share > 0 else "rule"
