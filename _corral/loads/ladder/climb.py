"""Climb the ladder of a load: what is each step of knowledge worth?

0. today: the rule that runs today.
1. rule: the best plain rule.
2. learned: a learned team, if one was trained.
3. arrivals: nodes know the arrivals of a step before the step.
4. reports: nodes know the present spare of the other nodes as well (``report_delay=0``).
5. future: the optimum, which knows all steps and all nodes. No policy costs less.

Each rung chooses its policy on the days that are not held out: from the policy of the rung below
and from its own candidates. A policy with more knowledge can always ignore it: with known arrivals,
a request counter keeps what it keeps with unknown ones. So on these days no rung costs more than
the one below. All rungs are judged on the same held-out days, paired by day.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from corral.data import Trace, load_trace
from corral.data.trace import MAX_VALUE
from corral.envs.arguments import one_of
from corral.envs.core import Array
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.arguments import with_capacity
from corral.envs.dfaas_v0.optimum import has_closed_form, optimum
from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.envs.dfaas_v0.routes import Route
from corral.errors import MissingExtraError, OptimumError
from corral.loads.advise.bound import MOST
from corral.loads.advise.chosen import Textbook, textbook_of, today_rule
from corral.loads.advise.question import Question
from corral.loads.advise.team import FEWEST, Team, costs_on, divide
from corral.loads.advise.verdict import Saving, compared
from corral.loads.advise.what_ifs import SCALES, more_capacity
from corral.loads.judge import CAPACITY
from corral.loads.ladder.result import Ladder, Name, Rung
from corral.loads.text import counted
from corral.loads.textbook import play_rules, refit
from corral.loads.textbook.grid import BY_COUNT, routes_of
from corral.progress import Progress

__all__ = ["ladder", "ladder_of"]

ROUTES: tuple[Route, ...] = ("least", "spare", "equal")
"""Routes that rules with fresh reports try: a race over all seven takes twice the time, and finds
the same cost on the load of ``make demo``."""

VARIABLES = 250_000
"""Most variables of all linear programs together: about 3 seconds."""

ROUNDING = 1e-6
"""Requests of a window below which a difference to the optimum is a rounding error."""

ALREADY = "known already"


@dataclass(frozen=True)
class Candidate:
    """A policy on the days of the fit and on the held-out days, in requests of each window."""

    policy: str
    fitted: Array  # float64 [F] cost
    cost: Array  # float64 [W]
    lost: Array  # float64 [W]


@dataclass(frozen=True)
class Climb:
    """A load with its division, on which the rungs are played."""

    question: Question
    book: Textbook  # with the costs of rules on all days
    held_out: tuple[int, int]
    show: Progress

    @property
    def cut(self) -> int:
        """Number of windows of the fit."""
        return self.held_out[0] // self.question.steps

    @property
    def arrivals(self) -> Array:
        """Arrivals of the held-out windows: int64 [W]."""
        return self.book.arrivals[self.cut :]

    def daily(self, values: Array, windows: Array | None = None) -> float:
        """Return the sum over held-out windows as requests a day; None: all windows."""
        first, last = self.held_out
        starts = np.arange(first, last, self.question.steps)
        lengths = np.minimum(self.question.steps, last - starts)
        steps = int(lengths.sum() if windows is None else lengths[windows].sum())
        day = self.question.load.steps_per_day or self.question.steps
        return float(values.sum()) * day / steps

    def saving(self, less: Array, fewer: Array, windows: Array | None = None) -> Saving:
        """Return the saving in all held-out windows, or in those given by their numbers."""
        load = self.arrivals if windows is None else self.arrivals[windows]
        together = windows is None or len(windows) == len(self.arrivals)
        return compared(
            less,
            fewer,
            load,
            arrivals=self.daily(load, windows),
            unit="a day" if self.question.load.steps_per_day else "a window",
            season=7 if self.question.unit == "day" and together else 1,
        )

    # --- Candidates ------------------------------------------------------------------------------

    def of_book(self, label: str) -> Candidate:
        """Return a rule that the textbook played on all days."""
        cost, lost = self.book.costs[label], self.book.lost[label]
        return Candidate(label, cost[: self.cut], cost[self.cut :], lost[self.cut :])

    def rules(self) -> list[Candidate]:
        """Return the rules of the textbook; random ones are not rules to recommend."""
        labels = [k for k in self.book.costs if PlainRule.of(k).amount != "random"]
        return [self.of_book(label) for label in labels]

    def team(self, team: Team) -> Candidate:
        """Return a learned team."""
        sums, fitted = team.replay.sums["team"], costs_on(team, (0, self.held_out[0]), self.show)
        return Candidate("team", fitted, sums.cost, sums.lost)

    def with_arrivals(self) -> list[Candidate]:
        """Return the best rule that needs the number of a step's requests beforehand.

        All other rules do the same with unknown arrivals.
        """
        route = self.question.settings.get("route")
        routes = [route for route in routes_of(route, "known") if route in BY_COUNT]
        best = sorted(self.rules(), key=lambda played: float(played.fitted.sum()))
        first = [
            dataclasses.replace(PlainRule.of(played.policy), route=route)
            for played in best
            for route in routes
            if not played.policy.startswith("local")
        ]
        return self._refitted(first, routes) if first else []

    def with_reports(self) -> list[Candidate]:
        """Return the best rule with reports of the present step."""
        route = self.question.settings.get("route")
        routes = ROUTES if route is None else routes_of(route, "known")
        return self._refitted(None, routes, report_delay=0)

    def _refitted(
        self, first: list[PlainRule] | None, routes: Iterable[Route], **changes: Any
    ) -> list[Candidate]:
        """Return the best rule of a short race with known arrivals."""
        settings = {**self.question.settings, **changes}
        informed = dataclasses.replace(self.question, arrivals="known", settings=settings)
        load, plan, (low, high) = self.question.load, informed.plan(), self.held_out

        def show(part: str, done: int, total: int) -> None:
            self.show(f"the ladder: {part}", done, total)

        fitted = refit(load, first, routes=[*routes], rows=(0, low), progress=show, **plan)
        label = str(fitted.rule)
        sums = play_rules(load, [label], rows=(low, high), **plan)[label]
        return [Candidate(label, fitted.costs[label], sums.cost, sums.lost)]

    def with_more_capacity(self, rule: Candidate) -> Saving | None:
        """Return the saving of 20 % more capacity with ``rule``; None if the values are too
        large."""
        capacity = more_capacity(self.question.load)
        if capacity.max() > MAX_VALUE:
            return None
        load = dataclasses.replace(self.question.load, capacity=capacity)
        without = (*SCALES, "capacity")
        plan = {k: v for k, v in self.question.plan().items() if k not in without}
        sums = play_rules(load, [rule.policy], rows=self.held_out, **plan)[rule.policy]
        return self.saving(rule.cost - sums.cost, rule.lost - sums.lost)

    def optima(self) -> tuple[Array, Array, Array] | str:
        """Return the numbers of held-out windows, and the optimum's cost and lost requests in them;
        or the reason for their absence."""
        question = self.question
        settings = {**question.plan(), "observation": "every", "rows": self.held_out}
        kwargs = {k: v for k, v in settings.items() if k not in (*CAPACITY, "window", "seed")}
        rules = DfaasRules(question.load, **kwargs)
        limits: dict[str, Any] = {
            "queue": rules.queue,
            "link_limit": rules.link_limit,
            "links": rules.network.links,
        }
        section = rules.trace.section(*self.held_out)
        assert section.capacity is not None
        windows = np.arange(len(self.arrivals))
        if not has_closed_form(**limits):
            nodes = len(rules.agents)
            links = nodes * (nodes - 1 if rules.link_limit is not None else 2)
            variables = (links + 2 * nodes) * question.steps  # of one window, at most
            count = min(len(windows), MOST, VARIABLES // variables)
            if not count:
                return "the linear program is too large"
            windows = np.unique(np.linspace(0, windows[-1], count).round().astype(np.int64))
        best = []
        for done, window in enumerate(windows.tolist(), start=1):
            part = slice(window * question.steps, (window + 1) * question.steps)
            try:
                best.append(
                    optimum(
                        section.arrivals[part],
                        section.capacity[part],
                        forward_cost=rules.forward_cost,
                        wait_cost=rules.wait_cost,
                        **limits,
                    )
                )
            except (MissingExtraError, OptimumError):
                return "SciPy is missing, or failed"
            self.show("the ladder: optimum", done, len(windows))
        return windows, np.array([one.cost for one in best]), np.array([one.lost for one in best])


def ladder_of(
    question: Question,
    book: Textbook,
    held_out: tuple[int, int],
    team: Team | None = None,
    no_team: str = "no team was trained",
    show: Progress = lambda part, done, total: None,
) -> Ladder:
    """Return the ladder of a load.

    Args:
        question: the load, and the settings of its nodes.
        book: rules, fitted to the rows before ``held_out`` and played on all days.
        held_out: the rows that judge, from a whole number of windows to the end of the load.
        team: a learned team, trained on the other rows.
        no_team: reason for a missing team, in a few words.
        show: called with the name of a part, the work done, and the total work.

    Raises the errors of ``DfaasRules``.
    """
    climb = Climb(question, book, held_out, show)
    below = climb.of_book(question.today)
    rungs = [_rung(climb, "today", below, None)]

    def step(name: Name, candidates: list[Candidate]) -> None:
        nonlocal below
        best = min([below, *candidates], key=lambda played: float(played.fitted.sum()))
        rungs.append(_rung(climb, name, best, below))
        below = best

    step("rule", climb.rules())
    rule = below
    if team is None:
        rungs.append(Rung("learned", "", absent=no_team))
    else:
        step("learned", [climb.team(team)])
    if question.arrivals == "known":
        rungs.append(Rung("arrivals", "", absent=ALREADY))
    else:
        step("arrivals", climb.with_arrivals())
    if question.settings.get("report_delay", 1) == 0:
        rungs.append(Rung("reports", "", absent=ALREADY))
    else:
        step("reports", climb.with_reports())
    future, beyond_rule = _future(climb, below, rule)
    return Ladder(
        rungs=(*rungs, future),
        arrivals=question.arrivals,
        fitted_windows=climb.cut,
        windows=len(climb.arrivals),
        unit=question.unit,
        costs=any(question.settings.get(name) for name in ("forward_cost", "wait_cost")),
        capacity=climb.with_more_capacity(rule),
        beyond_rule=beyond_rule,
    )


def ladder(
    trace: str | Path | Trace,
    *,
    arrivals: str = "unknown",
    today: str = "local",
    window: int | None = None,
    seed: int = 0,
    capacity: int | str | None = None,
    show: Progress = lambda part, done, total: None,
    **settings: Any,
) -> Ladder:
    """Return the ladder of a load, without a team and without an advice.

    All arguments are those of ``corral.advise``. Raises the errors of ``fit``; ValueError for a
    load on which all policies do the same, or with too few days to hold some out.
    """
    one_of("arrivals", arrivals, ("known", "unknown"))
    load = with_capacity(load_trace(trace), capacity, None)
    question = Question(load, arrivals, today_rule(today), window, seed, None, False, settings)
    question.require_valid()
    if why := question.nothing:
        raise ValueError(f"{load.name}: all policies do the same ({why})")
    division = divide(len(load), question.steps)
    if division is None:
        days = counted(question.windows, question.unit)
        raise ValueError(f"{load.name} has {days}: {FEWEST} or more are needed to hold some out")
    return ladder_of(question, textbook_of(question, show), division.held_out, show=show)


def _rung(climb: Climb, name: Name, best: Candidate, below: Candidate | None) -> Rung:
    saving, fitted = None, None
    if below is not None:
        saving = climb.saving(below.cost - best.cost, below.lost - best.lost)
        day = climb.question.load.steps_per_day or climb.question.steps
        fitted = float((below.fitted - best.fitted).sum()) * day / climb.held_out[0]
    cost, lost = climb.daily(best.cost), climb.daily(best.lost)
    return Rung(name, best.policy, cost, lost, saving, fitted)


def _future(climb: Climb, below: Candidate, rule: Candidate) -> tuple[Rung, Saving | None]:
    """Return the last rung, and the saving of the optimum over the best plain rule."""
    optima = climb.optima()
    if isinstance(optima, str):
        return Rung("future", "", absent=optima), None
    windows, cost, lost = optima

    def over(policy: Candidate) -> Saving:
        less, fewer = policy.cost[windows] - cost, policy.lost[windows] - lost
        less[less < ROUNDING] = 0.0  # no policy costs less than the optimum
        return climb.saving(less, fewer, windows)

    saving = over(below)
    arrivals = climb.daily(climb.arrivals)
    total = climb.daily(below.cost) - saving.share * arrivals  # of all held-out windows
    lost_total = climb.daily(below.lost) - saving.lost * arrivals
    return Rung("future", "optimum", total, lost_total, saving), over(rule)
