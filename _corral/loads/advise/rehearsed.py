"""Rehearse an advice: plans and balancers of practice on the held-out days, request by request.

A replay settles a step at its end. A rehearsal (docs/rehearsal.md) plays each request, once with
equal and once with exponential work. It answers three questions: whether the saving that the
replay promises has the same sign there, whether a balancer that chooses for each request costs less
than the best plan, and how old the reports of such a balancer may be.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from corral.data import Trace
from corral.envs.core import Array
from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.envs.dfaas_v0.rows import HELD_OUT
from corral.loads.advise.question import Question
from corral.loads.advise.team import Division
from corral.loads.advise.verdict import Decision, Saving, compared
from corral.loads.advise.words import columns, number
from corral.loads.rehearsal import Rehearsal, rehearse
from corral.loads.rehearsal.balancers import REPORTS, Balancer, balancer_of
from corral.loads.rehearsal.balancers.pseudo_code import pseudo_code_of
from corral.loads.rehearsal.compiled import is_available
from corral.loads.rehearsal.policies import Entry
from corral.loads.rehearsal.result import PARTS
from corral.loads.rehearsal.setting import Work
from corral.loads.replay import Replay
from corral.loads.text import counted
from corral.progress import Progress

__all__ = [
    "BALANCERS",
    "DEPENDS",
    "HOLDS",
    "PERIODS",
    "Better",
    "Costs",
    "Fresh",
    "Played",
    "Promised",
    "Rehearsed",
    "Stage",
    "age_of",
    "by_work",
    "confirmed",
    "rehearsed",
    "stage_of",
]

BALANCERS = ("round-robin", "least-requests", "choices=2", "shortest-queue", "overflow", "room")
"""Balancers of practice that each advice is compared with."""

PERIODS = (1 / 300, 1 / 60, 1 / 10, 1 / 3, 1.0)
"""Times between two reports, in steps, with which a recommended balancer is rehearsed again."""

PLAIN_REQUESTS, COMPILED_REQUESTS = 150_000, 3_000_000
"""Most requests of a policy, in plain Python and with numba; one day is always played."""

LARGEST_PLAIN_DAY = 500_000
"""Largest number of requests of a day for plain Python."""

WORTH_COMPILING = 300_000
"""Requests of a policy from which compiling all policies, about a minute, saves time."""

WORKS: tuple[Work, Work] = ("deterministic", "exponential")

Answer = Literal["holds", "depends on what your servers are like"]

HOLDS: Answer = "holds"
DEPENDS: Answer = "depends on what your servers are like"


@dataclass(frozen=True)
class Costs:
    """The cost of a policy and its lost requests, in requests: [W] each."""

    cost: Array
    lost: Array
    lost_by_step: Array | None = field(default=None, repr=False)  # int64 [W, T] of all nodes


@dataclass(frozen=True)
class Played:
    """The costs of policies in the same W windows, in the replay and in two rehearsals."""

    requests: Array  # int64 [W] arrivals
    promised: Mapping[str, Array]  # float64 [W] cost of a plan in the replay
    parts: Mapping[str, Mapping[str, Array]]  # of the difference to ``deterministic``, see PARTS
    deterministic: Mapping[str, Costs]
    exponential: Mapping[str, Costs]
    windows: tuple[int, ...]  # numbers of the windows
    whole: int  # windows from which they were drawn
    held_out: bool = True  # False: too few windows to hold some out
    unit: Literal["day", "window"] = "day"  # name of a window
    a_day: str = "a day"  # unit of requests: "a day" or "a window"
    per_day: float = 1.0  # windows in ``a_day``
    step: float | None = None  # seconds of a step; None: a clock without seconds
    first_row: int = 0  # of window 0

    def merged(self, more: Played) -> Played:
        """Return these costs and those of further policies in the same windows."""
        return dataclasses.replace(
            self,
            promised={**self.promised, **more.promised},
            parts={**self.parts, **more.parts},
            deterministic={**self.deterministic, **more.deterministic},
            exponential={**self.exponential, **more.exponential},
        )

    def daily(self, values: Array) -> float:
        """Return the mean of requests in each window, [W], in requests a day."""
        return float(values.mean()) * self.per_day

    def saving(self, other: Costs, policy: Costs) -> Saving:
        """Return the saving of ``policy`` compared with ``other``."""
        together = self.windows == tuple(range(len(self.windows)))
        season = 7 if self.unit == "day" and together else 1
        return compared(
            other.cost - policy.cost,
            other.lost - policy.lost,
            self.requests,
            arrivals=self.daily(self.requests),
            unit=self.a_day,
            season=season,
        )

    def savings(self, other: str, policy: str) -> tuple[Saving, Saving]:
        """Return the saving of ``policy`` with deterministic and with exponential work."""
        return (
            self.saving(self.deterministic[other], self.deterministic[policy]),
            self.saving(self.exponential[other], self.exponential[policy]),
        )

    def days(self) -> str:
        """Return the windows in words: "10 held-out days", "3 of 10 held-out days", "the last
        day"."""
        days = counted(self.whole, f"held-out {self.unit}")
        if not self.held_out:
            last = f"{self.whole} " if self.whole > 1 else ""
            days = f"the last {last}{self.unit}{'s' * (self.whole > 1)}"
        count = len(self.windows)
        return days if count == self.whole else f"{count} of {days}"


# --- The promise ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Promised:
    """The saving of the advised plan over the rule of today: promised, and in both rehearsals."""

    promised: Saving  # its ``lost`` is unknown: NaN
    deterministic: Saving
    exponential: Saving

    @property
    def answer(self) -> Answer:
        """ "holds" if the saving has the same sign in the replay and in both rehearsals."""
        savings = (self.promised, self.deterministic, self.exponential)
        return HOLDS if len({float(np.sign(saving.share)) for saving in savings}) == 1 else DEPENDS

    def to_json(self) -> dict[str, Any]:
        """Return the answer and the savings as JSON values."""
        fields = {name: saving.to_json() for name, saving in vars(self).items()}
        return {"answer": self.answer, **fields}


def _promise(played: Played, today: str, plan: str) -> Promised | None:
    """Return the saving of ``plan`` over ``today``; None if they are the same."""
    if plan == today:
        return None
    unknown = np.full(len(played.requests), np.nan)
    before, after = (Costs(played.promised[label], unknown) for label in (today, plan))
    return Promised(played.saving(before, after), *played.savings(today, plan))


def confirmed(decision: Decision, savings: tuple[Saving, Saving]) -> Decision:
    """Return the decision about a team; "not worth it" if a rehearsal does not confirm a saving.

    ``savings``: those of the team over its rule, with deterministic and exponential work. Each must
    be above 0: the lower end of its interval, or its mean without an interval.
    """
    if decision.answer != "worth it" or all(_beats(saving, 0.0) for saving in savings):
        return decision
    return Decision("not worth it", reason="rehearsal")


def _beats(saving: Saving, worth: float) -> bool:
    """Whether a saving is above ``worth``, a share of the arrivals, and its interval above 0."""
    return saving.share > worth and (saving.low is None or saving.low > 0)


# --- A better balancer ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Fresh:
    """The saving of a balancer over the best plan, with reports every ``period`` steps."""

    period: float
    deterministic: Saving
    exponential: Saving

    def beats(self, worth: float) -> bool:
        """Whether the saving is above ``worth`` with both kinds of work."""
        return all(_beats(saving, worth) for saving in (self.deterministic, self.exponential))


@dataclass(frozen=True)
class Better:
    """A balancer that costs less than the best plan in both rehearsals."""

    balancer: Balancer
    deterministic: Saving  # over the best plan, with backlogs of the moment
    exponential: Saving
    over_today: tuple[Saving, Saving]  # over the rule of today
    period: float | None  # longest time between reports, in steps; None: it needs no reports
    fresh: tuple[Fresh, ...] = ()  # up to the first period at which it does not beat the plan

    @property
    def name(self) -> str:
        return str(self.balancer)

    @property
    def pseudo_code(self) -> list[str]:
        return pseudo_code_of(self.balancer)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "name": self.name,
            "meaning": self.balancer.meaning,
            "needs": self.balancer.needs,
            "pseudo_code": self.pseudo_code,
            "report_period": self.period,
            "over_plan": by_work((self.deterministic, self.exponential)),
            "over_today": by_work(self.over_today),
            "periods": [
                {
                    "period": fresh.period,
                    "over_plan": by_work((fresh.deterministic, fresh.exponential)),
                }
                for fresh in self.fresh
            ],
        }


def by_work(savings: tuple[Saving, Saving]) -> dict[str, Any]:
    """Return the savings with deterministic and with exponential work as JSON values."""
    return {work: saving.to_json() for work, saving in zip(WORKS, savings, strict=True)}


Again = Callable[[str, float], tuple[Costs, Costs]]
"""Rehearses a balancer with a time between reports, in steps: costs by kind of work."""


def _better(
    played: Played, plan: str, today: str, worth: float, again: Again
) -> tuple[Better | None, list[str]]:
    """Return the cheapest balancer that beats ``plan``, and cheaper ones with too old reports."""
    candidates = []
    for name in BALANCERS:
        savings = played.savings(plan, name)
        if all(_beats(saving, worth) for saving in savings):
            candidates.append((savings[0].share + savings[1].share, name))
    stale: list[str] = []
    for _, name in sorted(candidates, reverse=True):
        balancer, savings = balancer_of(name), played.savings(plan, name)
        over_today = played.savings(today, name)
        if REPORTS not in balancer.needs:
            return Better(balancer, *savings, over_today, None), stale
        fresh: list[Fresh] = []
        for period in PERIODS:
            costs = again(name, period)
            pair = (played.deterministic[plan], costs[0]), (played.exponential[plan], costs[1])
            fresh.append(Fresh(period, *(played.saving(*both) for both in pair)))
            if not fresh[-1].beats(worth):
                break
        enough = [report.period for report in fresh if report.beats(worth)]
        if enough:
            return Better(balancer, *savings, over_today, enough[-1], tuple(fresh)), stale
        stale.append(name)
    return None, stale


# --- All of it -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rehearsed:
    """The rehearsal of an advice, and its conclusions."""

    played: Played
    plan: str  # the best plan: a rule, or "team"
    today: str
    promise: Promised | None  # None: the best plan already runs today
    better: Better | None  # a balancer to run instead of the plan
    stale: Sequence[str] = ()  # balancers that would need younger reports than any that was played
    team: tuple[Saving, Saving] | None = None  # of the team over its rule; None: no team

    def plans(self) -> list[str]:
        """Return the plans, cheapest first."""
        return self._ranked(list(self.played.promised))

    def balancers(self) -> list[str]:
        """Return the balancers, cheapest first."""
        return self._ranked([label for label in BALANCERS if label in self.played.deterministic])

    def _ranked(self, labels: list[str]) -> list[str]:
        costs = self.played.deterministic
        return sorted(labels, key=lambda label: float(costs[label].cost.sum()))

    def cost(self, label: str) -> float | None:
        """Return the cost of a policy with deterministic work, in requests a day; None if it was
        not rehearsed."""
        costs = self.played.deterministic.get(label)
        return None if costs is None else self.played.daily(costs.cost)

    def covers(self, replay: Replay) -> bool:
        """Whether all windows of a replay were rehearsed."""
        return len(self.played.windows) == replay.windows and not replay.remainder

    def notes(self) -> list[str]:
        """Return the method and its doubts, as sentences."""
        played = self.played
        notes = [
            f"The rehearsal plays {int(played.requests.sum()):,} requests of {played.days()} one "
            "by one, at random times within their steps. Each node has one server. Requests have "
            "equal work in one rehearsal, and exponentially distributed work in the other."
        ]
        if not played.held_out:
            notes.append("The rules were fitted to the days of the rehearsal, too.")
        notes += self.stale_sentences()
        if self.better is not None:
            notes.append(
                "What-ifs, explanations and the charts of single nodes are about the second "
                f"choice, {self.plan}."
            )
            if any("left" in line for line in self.better.pseudo_code):
                name = self.better.name
                notes.append(f"In {name}, the time left counts to the end of a step of this load.")
        return notes

    def stale_sentences(self) -> list[str]:
        """Return a sentence for each balancer that would need younger reports."""
        return [
            f"{name} would cost less than {self.plan} with backlogs of the moment, but not with a "
            f"report every {age_of(PERIODS[0], self.played.step)}."
            for name in self.stale
        ]

    def lines(self) -> list[str]:
        """Return the table of promise and rehearsal as lines."""
        played, rows = self.played, []
        heads = ["", "promised", "equal\nwork", "exponential\nwork", *PARTS]
        for label in (*self.plans(), *self.balancers()):
            promised, parts = played.promised.get(label), played.parts.get(label)
            figures = [promised, played.deterministic[label].cost, played.exponential[label].cost]
            figures += [None if parts is None else parts[part] for part in PARTS]
            rows.append([label, *("" if f is None else f"{played.daily(f):,.1f}" for f in figures)])
        return [f"Cost in requests {played.a_day}, on {played.days()}:", *columns(heads, rows)]

    def to_json(self) -> dict[str, Any]:
        """Return the results as JSON values; costs and parts are in requests a day."""
        played = self.played
        return {
            "windows": list(played.windows),
            "whole": played.whole,
            "held_out": played.held_out,
            "requests": int(played.requests.sum()),
            "plan": self.plan,
            "policies": {
                label: {
                    "promised": _daily(played, played.promised.get(label)),
                    "deterministic": played.daily(costs.cost),
                    "exponential": played.daily(played.exponential[label].cost),
                    "parts": {
                        part: played.daily(values)
                        for part, values in played.parts.get(label, {}).items()
                    },
                }
                for label, costs in played.deterministic.items()
            },
            "promise": None if self.promise is None else self.promise.to_json(),
            "stale": list(self.stale),
        }


def _daily(played: Played, values: Array | None) -> float | None:
    return None if values is None else played.daily(values)


def age_of(period: float, step: float | None) -> str:
    """Return a time in steps as text: in seconds if a step has ``step`` seconds."""
    if step is not None:
        return f"{number(period * step)} s"
    return "1 step" if period == 1 else f"1/{1 / period:.0f} of a step"


def rehearsed(
    played: Played,
    *,
    plan: str,
    today: str,
    worth: float,
    again: Again,
    team: tuple[Saving, Saving] | None = None,
) -> Rehearsed:
    """Return the conclusions from the costs of a rehearsal.

    Args:
        plan: label of the best plan.
        today: the rule that runs today.
        worth: least saving of a balancer over the plan, as a share of the arrivals.
        again: rehearses a balancer with older reports.
        team: saving of a team over its rule.
    """
    better, stale = _better(played, plan, today, worth, again)
    promise = _promise(played, today, plan)
    return Rehearsed(played, plan, today, promise, better, stale, team)


# --- Playing -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """The windows of a load in which policies are rehearsed."""

    question: Question
    rows: tuple[int, int]
    windows: int  # to be played, drawn by the seed
    whole: int
    held_out: bool
    compiled: bool
    show: Progress = lambda part, done, total: None
    _aged: dict[tuple[str, float], tuple[Costs, Costs]] = field(default_factory=dict, repr=False)

    def play(self, policies: Mapping[str, Entry]) -> Played:
        """Rehearse policies with both kinds of work. Raises ActionError, see ``rehearse``."""
        load, steps = self.question.load, self.question.steps
        show = self._counting("rehearsal", len(WORKS) * len(policies))
        equal = self._rehearse(policies, "deterministic", 0.0, show)
        exponential = self._rehearse(policies, "exponential", 0.0, show)
        return Played(
            requests=equal.requests,
            promised={label: promise.cost for label, promise in equal.promises.items()},
            parts={label: promise.parts for label, promise in equal.promises.items()},
            deterministic=_costs(equal),
            exponential=_costs(exponential),
            windows=equal.windows,
            whole=self.whole,
            held_out=self.held_out,
            unit="day" if steps == load.steps_per_day else "window",
            a_day="a day" if load.steps_per_day else "a window",
            per_day=(load.steps_per_day or steps) / steps,
            step=_seconds(load),
            first_row=self.rows[0],
        )

    def again(self, balancer: str, period: float) -> tuple[Costs, Costs]:
        """Rehearse a balancer with reports every ``period`` steps; see ``Again``."""
        key = balancer, period
        if key not in self._aged:
            reports = f"reports every {age_of(period, _seconds(self.question.load))}"
            show = self._counting(f"rehearsal of {balancer}, {reports}", len(WORKS))
            policies = {balancer: balancer}
            played = [_costs(self._rehearse(policies, work, period, show)) for work in WORKS]
            self._aged[key] = played[0][balancer], played[1][balancer]
        return self._aged[key]

    def _rehearse(
        self, policies: Mapping[str, Entry], work: Work, period: float, show: Progress
    ) -> Rehearsal:
        question = self.question
        load, settings = question.load, question.plan()
        return rehearse(
            load,
            policies,
            rows=self.rows,
            days=None if self.windows == self.whole else self.windows,
            parts=work == "deterministic" and period == 0,
            compiled=self.compiled,
            work=work,
            report_period=period * (_seconds(load) or 1.0),
            progress=show,
            **settings,
        )

    def _counting(self, name: str, passes: int) -> Progress:
        """Show the beginning of the part ``name``; return a progress that counts the windows of
        all its ``passes``."""
        done, total = 0, passes * self.windows
        self.show(name, done, total)

        def show(label: str, of_policy: int, windows: int) -> None:
            nonlocal done
            done += 1
            self.show(name, done, total)

        return show


def _seconds(load: Trace) -> float | None:
    """Return the length of a step in seconds; None if the clock of a load has no seconds."""
    return float(load.step) if load.clock == "utc" else None


def _costs(rehearsal: Rehearsal) -> dict[str, Costs]:
    return {
        label: Costs(rehearsal.costs[label], sums.counts["lost"], sums.lost_by_step)
        for label, sums in rehearsal.sums.items()
    }


def stage_of(
    question: Question, division: Division | None, show: Progress, numba: bool | None = None
) -> Stage | str:
    """Return the windows to rehearse, or the reason for no rehearsal as a sentence.

    Args:
        division: held-out rows; None: the last windows are played.
        numba: whether numba is installed; None: looks for it.
    """
    if question.nothing:
        return f"No rehearsal: all policies do the same ({question.nothing})."
    if question.arrivals == "known":
        return (
            "No rehearsal: with known arrivals rules count the requests of a step in advance, but "
            "in a rehearsal they do not exist yet."
        )
    if PlainRule.of(question.today).amount == "random":
        return f"No rehearsal: {question.today} draws its actions."
    load, steps = question.load, question.steps
    low, high = _last_rows(question) if division is None else division.held_out
    numba = is_available() if numba is None else numba
    whole = (high - low) // steps
    requests = _requests(load, low, whole, steps)
    largest = int(requests.max())
    if largest > LARGEST_PLAIN_DAY and not numba:
        return (
            f"No rehearsal: a {question.unit} has up to {largest:,} requests, too many for plain "
            "Python. Install numba: pip install 'corral[rehearse]'"
        )
    budget = COMPILED_REQUESTS if numba else PLAIN_REQUESTS
    # Any windows of this number stay within the budget, whichever are drawn.
    fit = int((np.sort(requests)[::-1].cumsum() <= budget).sum())
    windows = max(1, fit)
    compiled = numba and int(requests.mean() * windows) > WORTH_COMPILING
    return Stage(question, (low, high), windows, whole, division is not None, compiled, show)


def _last_rows(question: Question) -> tuple[int, int]:
    """Return the rows of the last windows, as many as would be held out of more."""
    count = max(1, round(HELD_OUT * question.windows))
    high = question.windows * question.steps
    return high - count * question.steps, high


def _requests(load: Trace, low: int, whole: int, steps: int) -> Array:
    """Return the requests of each window, int64 [whole]."""
    rows = load.arrivals[low : low + whole * steps]
    return np.asarray(rows.reshape(whole, -1).sum(axis=1))
