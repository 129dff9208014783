"""Choose the recommended plain rule: fitted on some days, judged on all days.

The catalog of plain rules is fitted to the days that are not held out. The rules that were played
on all of these days are then played on the held-out days. The rule of least cost on all days is
recommended. The figures for each day are those of the rule that was the best on the other days.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corral.data import Trace
from corral.envs.core import Array
from corral.envs.dfaas_v0.plain_rules import AMOUNTS, TUNED, PlainRule
from corral.envs.dfaas_v0.routes import ROUTE_NAMES, canonical_route
from corral.errors import UnknownNameError
from corral.hints import hint
from corral.loads import replay as engine
from corral.loads.advise.question import Question
from corral.loads.advise.team import divide
from corral.loads.advise.verdict import LOCAL, Saving, both, saving
from corral.loads.best_rule import best_of_others
from corral.loads.replay import Replay
from corral.loads.textbook import fit, play_rules
from corral.progress import Progress
from corral.text import shortened
from corral.trainers.evaluation.intervals import difference_interval

__all__ = [
    "Chosen",
    "Textbook",
    "choose",
    "familiar",
    "read_textbook",
    "replayed",
    "textbook_of",
    "today_rule",
    "without_choice",
]

SHOWN = 6
"""Rules that are replayed for figures, not counting the rule of today and local play."""

LATER = 40
"""Rules that are also played on the held-out days: the best ones of the other days."""

BALANCERS = ("equal", "weighted", "least")
"""Routes of common load balancers, which are always compared."""


def today_rule(text: str) -> str:
    """Return the full name of the rule that runs today.

    ``text`` is a rule such as "overflow/equal", or a route such as "least", which stands for
    "overflow/least". Raises UnknownNameError, ArgumentError.
    """
    routes = [name for name in ROUTE_NAMES if name != "choose"]
    if text in routes:
        return str(PlainRule.of(f"overflow/{text}"))
    name = text.partition("/")[0].partition("=")[0].strip()
    if name not in (*AMOUNTS, *TUNED):
        near = hint(text, [*AMOUNTS, *routes])
        raise UnknownNameError(
            f"no rule of today named {shortened(text, 200)!r}{near} Pass local, a route for the "
            f"overflow ({', '.join(routes)}), or amount/route such as share=0.8333/equal; amounts: "
            f"{', '.join([*AMOUNTS, *(f'{tuned}=0.8/equal' for tuned in TUNED)])}"
        )
    return str(PlainRule.of(text))


def familiar(queue: int, route: str | None) -> list[str]:
    """Return the rules that are always compared: local play and common load balancers."""
    amount = "patient" if queue else "overflow"
    routes = BALANCERS if route is None else (route,)
    return [LOCAL, *(str(PlainRule.of(f"{amount}/{balancer}")) for balancer in routes)]


@dataclass(frozen=True)
class Textbook:
    """Plain rules with their costs on all days, and the best fitted one."""

    rule: str  # the best one on the rows ``fitted_on``
    fitted_on: tuple[int, int]
    tried: int  # number of rules that were played on any day
    costs: dict[str, Array] = field(repr=False)  # float64 [W] requests, on all days
    lost: dict[str, Array] = field(repr=False)  # int64 [W]
    arrivals: Array = field(repr=False)  # int64 [W]

    def ranked(self) -> list[str]:
        """Return the rules that were played on all days, best first."""
        return sorted(self.costs, key=lambda label: float(self.costs[label].sum()))

    def shortlist(self, *more: str) -> list[str]:
        """Return the rules to replay: the best of the other days for each day, the best of each
        further route or amount, and ``more``."""
        best, ranked = best_of_others(self.costs), self.ranked()
        selected = list(dict.fromkeys([ranked[0], *(best.names if best else [])]))
        for label in ranked:
            if len(selected) >= SHOWN:
                break
            rule, listed = PlainRule.of(label), [PlainRule.of(name) for name in selected]
            new_amount = rule.amount not in {shown.amount for shown in listed}
            new_route = rule.route not in {shown.route for shown in listed}
            duplicate = any((self.costs[label] == self.costs[name]).all() for name in selected)
            if label not in selected and (new_amount or new_route) and not duplicate:
                selected.append(label)
        return list(dict.fromkeys([*selected, *more]))

    def with_replay(self, replay: Replay) -> Textbook:
        """Return the textbook with the costs of a replay of all days, in which random routes drew
        again."""
        costs = self.costs | {label: sums.cost for label, sums in replay.sums.items()}
        lost = self.lost | {label: sums.lost for label, sums in replay.sums.items()}
        return dataclasses.replace(self, costs=costs, lost=lost)

    def to_json(self, season: int, forwarded: Mapping[str, float]) -> list[dict[str, Any]]:
        """Return all rules on all days as JSON values, best first; ``forwarded`` has the shares of
        the replayed rules."""
        every = max(1, int(self.arrivals.sum()))
        best = best_of_others(self.costs)
        rows = []
        for label in self.ranked():
            cost = self.costs[label]
            row: dict[str, Any] = {"policy": label, "cost": float(cost.sum()) / every}
            row |= {
                "lost": float(self.lost[label].sum()) / every,
                "forwarded": forwarded.get(label),
                **dict.fromkeys(("difference", "difference_low", "difference_high")),
            }
            if best is not None:
                more = cost - best.cost
                low, high = difference_interval(more, self.arrivals, season=season)
                row["difference"] = float(more.sum()) / every
                row |= {"difference_low": low, "difference_high": high}
            rows.append(row)
        return rows


def read_textbook(
    load: Trace,
    cut: int,
    *,
    window: int,
    seed: int,
    always: Sequence[str],
    route: str | None,
    show: Progress,
    **settings: Any,
) -> Textbook:
    """Fit the textbook to the rows before ``cut``, and play the best rules on the other rows."""
    plan: dict[str, Any] = {"window": window, "seed": seed, "progress": show, **settings}
    fitted = fit(load, rows=(0, cut), route=route, always=always, **plan)
    costs = {k: cost for k, cost in fitted.costs.items() if k in always or _goes_by(k, route)}
    ranked = sorted(costs, key=lambda label: float(costs[label].sum()))
    costs = {k: costs[k] for k in dict.fromkeys([*ranked[:LATER], *always])}
    lost, arrivals = {k: fitted.lost[k] for k in costs}, fitted.arrivals
    if cut < len(load):
        later = play_rules(load, [*costs], rows=(cut, len(load)), **plan)
        costs = {k: np.concatenate([cost, later[k].cost]) for k, cost in costs.items()}
        lost = {k: np.concatenate([losses, later[k].lost]) for k, losses in lost.items()}
        arrivals = np.concatenate([arrivals, next(iter(later.values())).arrivals])
    return Textbook(str(fitted.rule), (0, cut), fitted.tried, costs, lost, arrivals)


def textbook_of(question: Question, show: Progress) -> Textbook:
    """Return the textbook, fitted to the days that are not held out; to all, if there are too few
    days to hold some out."""
    load, plan, route = question.load, question.plan(), question.settings.get("route")
    always = [*familiar(int(plan.get("queue") or 0), route), question.today]
    division = divide(len(load), question.steps)
    cut = len(load) if division is None else division.held_out[0]
    return read_textbook(
        load, cut, always=list(dict.fromkeys(always)), route=route, show=show, **plan
    )


def _goes_by(label: str, route: str | None) -> bool:
    """Whether a rule has the required ``route``; True if no route is required."""
    return route is None or PlainRule.of(label).route == canonical_route(route)


def without_choice(load: Trace, rules: Sequence[str], **plan: Any) -> Textbook:
    """Return a textbook of ``rules`` only, for a load on which all rules do the same."""
    sums = play_rules(load, rules, **plan)
    costs, lost = ({k: getattr(s, what) for k, s in sums.items()} for what in ("cost", "lost"))
    return Textbook(rules[0], (0, len(load)), len(rules), costs, lost, sums[rules[0]].arrivals)


def replayed(
    load: Trace,
    book: Textbook,
    rules: Sequence[str],
    *,
    window: int,
    seed: int,
    show: Progress,
    **settings: Any,
) -> Replay:
    """Replay a shortlist on all days; its best rule counts as the best of all rules tried."""
    plan: dict[str, Any] = {"window": window, "seed": seed, "optimum_windows": 0}
    result = engine.replay(load, rules, progress=show, **plan, **settings)
    if result.best_rule is None:
        return result
    return dataclasses.replace(
        result, best_rule=dataclasses.replace(result.best_rule, among=book.tried)
    )


# --- The choice ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chosen:
    """The recommended rule, and its cost on days on which it was not chosen."""

    rule: str  # of least cost over all days
    cost: float  # share of the arrivals, each day by the best rule of the other days
    lost: float
    days: Mapping[str, int]  # rule -> number of days for which it was chosen; empty for one day
    today: str  # the rule that runs today
    alike: Sequence[str] = ()  # other rules with the same cost on every day
    beside_local: Saving | None = None  # saving compared with local play; None: it is local play
    beside_today: Saving | None = None  # saving compared with today's rule; None: it is that rule
    saved: Array = field(default_factory=lambda: np.zeros(0), repr=False)
    """float64 [W] requests by which it costs less than the rule of today, in each window."""
    runner_up: tuple[str, Saving] | None = None  # the best other rule, if ``rule`` is local play

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        runner_up_values = None
        if self.runner_up is not None:
            runner_up_values = {"rule": self.runner_up[0], "saving": self.runner_up[1].to_json()}
        plain = {k: getattr(self, k) for k in ("rule", "cost", "lost", "today")}
        lists = {"days": dict(self.days), "alike": list(self.alike)}
        pairs = {"beside_local": self.beside_local, "beside_today": self.beside_today}
        savings = {
            k: None if saving_of is None else saving_of.to_json() for k, saving_of in pairs.items()
        }
        return {**plain, **lists, **savings, "runner_up": runner_up_values}


def choose(base: Replay, book: Textbook, today: str, choice: bool) -> Chosen:
    """Return the rule of least cost, with its figures on days on which it was not chosen.

    Args:
        base: the replay of the shortlist on all days.
        choice: whether rules can differ; False: all of them cost the same.
    """
    sums, costs = base.sums, {label: s.cost for label, s in base.sums.items()}
    if not choice:
        costs = {LOCAL: costs[LOCAL]}
    rule = min(costs, key=lambda label: float(costs[label].sum()))  # of equal ones the first
    load = sums[rule].arrivals
    figures, days = both(sums[rule]), {}
    if base.best_rule is not None and choice:
        labels = base.best_rule.labels
        lost = np.array([sums[label].lost[w] for w, label in enumerate(labels)])
        figures = base.best_rule.cost, lost
        days = {label: labels.count(label) for label in base.best_rule.names}
    every = max(1.0, float(load.sum()))
    runner_up = None
    if rule == LOCAL and len(costs) > 1:
        other = min(costs.keys() - {LOCAL}, key=lambda label: (float(costs[label].sum()), label))
        runner_up = other, saving(base, figures, both(sums[other]), load)
    same = [k for k, cost in book.costs.items() if k != rule and (cost == book.costs[rule]).all()]

    def beside(label: str) -> Saving | None:
        return None if rule == label else saving(base, both(sums[label]), figures, load)

    return Chosen(
        rule=rule,
        cost=float(figures[0].sum()) / every,
        lost=float(figures[1].sum()) / every,
        days=days,
        today=today,
        alike=same * choice,
        beside_local=beside(LOCAL),
        beside_today=beside(today),
        saved=sums[today].cost - figures[0],
        runner_up=runner_up,
    )
