"""What one policy saves beside another on the same days, whether that is worth it, and in words.

The words are a manager's: each sentence states what was computed, and no more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from corral.envs.core import Array
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS, difference_interval, lag_1
from corral.trainers.loads.best_rule import correlated
from corral.trainers.loads.paired import COSTS, a_day, per_day
from corral.trainers.loads.replay import Replay
from corral.trainers.loads.scores import WindowSums

__all__ = [
    "LOCAL",
    "LONGEST",
    "PLENTY",
    "WORTH",
    "Decision",
    "Saving",
    "about_costs",
    "between",
    "both",
    "decide",
    "percent",
    "requests",
    "rule_sentence",
    "saving",
    "team_sentence",
]

LOCAL = "local/equal"

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


# --- Rules, in words -----------------------------------------------------------------------------


def rule_sentence(
    rule: str,
    cost: float,
    lost: float,
    beside: Saving | None,
    *,
    costs: bool,
    runner_up: tuple[str, Saving] | None = None,
) -> str:
    """Return which rule to run, and what it saves.

    Args:
        cost, lost: its own, in shares of the arrivals.
        beside: what it saves beside local play; None: local play was not replayed.
        costs: whether anything costs something beside lost requests.
        runner_up: the best other rule, and what it saves beside this one, where this is local play.
    """
    if rule == LOCAL:
        said = f"Serve locally: that {_figure(cost, lost, costs=costs)}{_and_loses(lost, costs)}"
        if runner_up is None:
            return f"{said}."
        other, found = runner_up
        if found.same:
            return f"{said}; no rule that forwards does better, and {other} does the same."
        return f"{said}; {other}, the best rule that forwards, {_change(found, costs)}."
    said = f"Run {rule}: it {_figure(cost, lost, costs=costs)}"
    if beside is None:
        return f"{said}{_and_loses(lost, costs)}."
    if beside.same:
        return f"{said}, the same as serving locally{_and_loses(lost, costs)}."
    said += f", {_less(beside, costs)} than serving locally{_in_brackets(beside, '95 %: ')}"
    if not costs:
        return f"{said}."
    return f"{said}{_and_loses(lost, costs)}, {_lost(beside)}."


def _figure(cost: float, lost: float, *, costs: bool) -> str:
    if not costs:
        return f"loses {percent(lost)} of requests"
    return f"costs as much as losing {percent(cost)} of requests"


def _and_loses(lost: float, costs: bool) -> str:
    return f"; it loses {percent(lost)}" if costs else ""


def _less(found: Saving, costs: bool) -> str:
    """Return "41,200 a day fewer", with costs "41,200 a day less"; "more" of what costs more."""
    less = "less" if costs else "fewer"
    return f"{requests(abs(found.requests))} {found.unit} {less if found.share > 0 else 'more'}"


def _lost(found: Saving) -> str:
    """Return "426 a day fewer", of requests lost."""
    lost = requests(abs(found.lost) * found.arrivals)
    return (
        "as many" if lost == "0" else f"{lost} {found.unit} {'fewer' if found.lost > 0 else 'more'}"
    )


def _change(found: Saving, costs: bool) -> str:
    verb = "costs" if costs else "loses"
    return f"{verb} {_less(found, costs)}{_in_brackets(found, '95 %: ')}"


def _in_brackets(found: Saving, what: str = "") -> str:
    """Return the interval of a saving as " (95 %: 38,000 to 44,100)"; where there is none, ""."""
    if found.constant:
        return f" (the same every {found.unit.removeprefix('a ')})"
    if found.low is None:
        return ""
    return f" ({what}{between(found)})"


def between(found: Saving) -> str:
    """Return the interval in requests, "38,000 to 44,100": as the mean is told, so that ends beyond
    0 have a minus."""
    assert found.low is not None
    assert found.high is not None
    ends = [found.low * found.arrivals, found.high * found.arrivals]
    if found.share < 0:
        ends = [-ends[1], -ends[0]]
    return " to ".join(map(requests, ends))


# --- Teams ---------------------------------------------------------------------------------------


def team_sentence(
    found: Saving, decision: Decision, worth: float, *, costs: bool, beside: str = ""
) -> str:
    """Return what a learned team saves beside the best rule, and whether it is worth it.

    Args:
        worth: the share of the arrivals that it must save.
        beside: the rule, where it is another one than that of the sentence before.
    """
    if found.same:
        same = f"the same as {beside}" if beside else "the same as that rule"
        return f"A learned team does {same}: not worth it."
    if found.share > 0 and not costs:
        said = f"saves {requests(found.requests)} {found.unit} more"
    else:
        said = f"{'costs' if costs else 'loses'} {_less(found, costs)}"
    said += f" than {beside}" if beside else ""
    said += _in_brackets(found)
    said += f" and loses {_lost(found)}" if costs else ""
    return f"A learned team {said}: {decision.answer}{_because(found, decision, worth)}."


def _because(found: Saving, decision: Decision, worth: float) -> str:
    """Return what follows the answer: why, or what would tell."""
    if decision.answer == "worth it":
        return ""
    bound = f"{percent(worth)} of requests, {requests(worth * found.arrivals)} {found.unit}"
    if decision.answer == "not worth it":
        return f" (less than {bound})" if found.share > 0 else ""
    days = found.unit.removeprefix("a ")
    if found.low is None:
        return (
            f" to tell: it was judged on {found.windows} held-out {days}"
            f"{'s' * (found.windows != 1)}, and below {FEWEST_WINDOWS} there is no interval; "
            f"{PLENTY} {days}s in all would do"
        )
    if decision.more is None:
        return f" to tell, and more are unlikely to: it is too near {_nearest(found, worth, bound)}"
    more = f"{decision.more:,} more {days}{'s' * (decision.more != 1)}"
    return f" to tell; about {more} that it has not learned from would do"


def _nearest(found: Saving, worth: float, bound: str) -> str:
    return "0" if found.share > worth else f"what is worth it ({bound})"


def about_costs(settings: Mapping[str, Any]) -> str:
    """Return what a cost is, where anything but lost requests costs something; else ""."""
    prices = [f"{settings[name]:g} x {what}" for name, what in COSTS.items() if settings.get(name)]
    return f"Cost, in lost requests: {' + '.join(['lost', *prices])}." if prices else ""


# --- Numbers -------------------------------------------------------------------------------------


def requests(number: float) -> str:
    """Return a number of requests to three digits: "41,200", "87", "3.4"."""
    size = abs(number)
    if size >= 1000:
        digits = len(f"{size:.0f}") - 3
        number = round(number, -digits)
    text = f"{number:,.0f}" if size >= 10 else f"{number:.2g}" if size >= 0.01 else "0"
    return "0" if text == "-0" else text


def percent(share: float) -> str:
    """Return a share as "3.6 %", "0.36 %", or "under 0.01 %"."""
    points = 100 * share
    if 0 < abs(points) < 0.01:
        return "under 0.01 %"
    return f"{points:.1f} %" if abs(points) >= 1 else f"{points:.2g} %"
