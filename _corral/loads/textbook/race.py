"""Fit textbook rules to a load: a race of plain rules, from a few windows to all windows.

1. A coarse grid of rules is played in a few windows. Windows are sorted by their cost without
   forwarding, and each chosen window represents an equal part of that cost, so bad days are
   included. Rules that are clearly worse than the best rule are dropped.
2. The neighbors of the best rules are played in the same windows: other numbers, margins, routes.
3. The remaining rules are played in all windows, then the neighbors of the best rules once more.
4. Route "two-choices", a loop over requests, is tried with the best amounts, if it is fast enough.

Only the routes use random numbers, from a seed: the same load gives the same rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from corral.data import Trace
from corral.envs.core import Array
from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.envs.dfaas_v0.routes import ROUTES, Route
from corral.loads.best_rule import BestRule, best_of_others
from corral.loads.textbook.grid import ONE_BY_ONE, coarse, near, of_routes, routes_of
from corral.loads.textbook.playing import Playground
from corral.loads.textbook.words import pseudo_code_of, sentence_of
from corral.progress import Progress
from corral.trainers.evaluation.intervals import student_quantile

__all__ = ["Fitted", "fit", "refit"]

WORK, MIN_WINDOWS, MAX_WINDOWS = 1_800_000, 4, 60
"""Work of the first stages, which sets their number of windows (``_sample_size``), and bounds."""

BEAM, FINAL = 8, 10
"""Number of rules with neighbors to play, and number of rules to play in all windows."""

FEW_WINDOWS, SHORT_BEAM, SHORT_FINAL = 6, 4, 8
"""Sizes of the short race of ``refit``."""

SURE = 0.99
"""Confidence, in a single comparison, that a dropped rule is worse."""

REQUESTS_ONE_BY_ONE = 100_000
"""Maximum requests that route "two-choices" may loop over in one play of the first windows."""


@dataclass(frozen=True)
class Fitted:
    """A plain rule fitted to the windows of a load, with the other rules played in all windows."""

    rule: PlainRule  # rule with the lowest cost in all windows
    costs: dict[str, Array]  # float64 [W] requests, by ``str`` of the rules played in all windows
    lost: dict[str, Array]  # int64 [W] requests, with the same keys
    arrivals: Array  # int64 [W]
    tried: int  # number of rules played in any window
    days_played: int  # number of windows played, summed over the rules
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)  # of dfaas_v0
    left_out: tuple[str, ...] = ()  # routes left out, because they would take too long

    def best_of_others(self, season: int = 1) -> BestRule | None:
        """Return the best rule for each window, chosen by all other windows.

        Random rules are left out. None for a single window.
        """
        rules = {k: cost for k, cost in self.costs.items() if not k.startswith("random")}
        return best_of_others(rules, season=season)

    @property
    def sentence(self) -> str:
        """The rule in one sentence."""
        return sentence_of(self.rule, self.settings)

    @property
    def pseudo_code(self) -> str:
        """The rule in at most six lines of Python-like code."""
        return pseudo_code_of(self.rule, self.settings)


class Race:
    """Costs of rules in the windows in which they were played."""

    def __init__(self, ground: Playground, progress: Progress, expected: int) -> None:
        self.ground = ground
        self.every = [*range(len(ground.first))]
        self.cost: dict[PlainRule, Array] = {}  # float64 [W], NaN where not played
        self.lost: dict[PlainRule, Array] = {}
        self.played = 0  # windows, summed over the rules
        self._progress, self._expected = progress, expected  # estimated number of windows

    def play(self, rules: Iterable[PlainRule], windows: Sequence[int]) -> None:
        """Play rules in the windows in which they have not been played yet."""
        missing: dict[tuple[Route, tuple[int, ...]], list[PlainRule]] = {}
        for rule in dict.fromkeys(rules):
            if rule not in self.cost:
                self.cost[rule] = np.full(len(self.every), np.nan)
                self.lost[rule] = np.zeros(len(self.every), dtype=np.int64)
            unplayed = tuple(w for w in windows if np.isnan(self.cost[rule][w]))
            if unplayed:
                missing.setdefault((rule.route, unplayed), []).append(rule)
        for (_, unplayed), group in missing.items():
            sums = self.ground.play(group, unplayed, self._tick)
            self.played += len(group) * len(unplayed)
            costs = sums.cost(self.ground.rules)
            for rule, cost, lost in zip(group, costs, sums.lost, strict=True):
                self.cost[rule][[*unplayed]] = cost
                self.lost[rule][[*unplayed]] = lost

    def _tick(self, part: float) -> None:
        """Report progress; ``part`` windows of the current play are finished."""
        done = int(self.played + part)
        self._progress("plain rules, plays of a day", done, max(done + 1, self._expected))

    def over(self) -> None:
        self._progress("plain rules, plays of a day", self.played, self.played)

    def in_all(self) -> list[PlainRule]:
        """Return the rules that were played in all windows, best first.

        Among rules of equal cost, the simplest route comes first. Among equal routes, rules that
        respect a link limit come first if there is a limit, else rules that do not.
        """
        limited = self.ground.rules.link_limit is not None

        def key(rule: PlainRule) -> tuple[float, int, bool]:
            cost = float(self.cost[rule].sum())
            return cost, SIMPLE.index(rule.route), rule.within_links != limited

        return sorted((r for r, cost in self.cost.items() if not np.isnan(cost).any()), key=key)


SIMPLE: tuple[Route, ...] = ("equal", "weighted", "least", *ROUTES)
"""Routes, simplest first."""


@dataclass(frozen=True)
class Sample:
    """K windows that represent all windows: window k counts ``weight[k]`` times."""

    windows: list[int]
    weight: Array  # float64 [K]

    @classmethod
    def of(cls, local: Array, count: int) -> Sample:
        """Choose at most ``count`` windows by ``local`` [W], their cost without forwarding."""
        if len(local) <= count:
            return cls([*range(len(local))], np.ones(len(local)))
        mass = local + local.mean() / 2 + 1e-9  # every window has a positive weight
        order = np.argsort(-mass, kind="stable")
        ends = mass[order].cumsum()
        quantiles = (np.arange(count) + 0.5) / count * ends[-1]
        indices = np.searchsorted(ends, quantiles)
        places, counts = np.unique(indices.clip(max=len(local) - 1), return_counts=True)
        weight = counts * ends[-1] / count / mass[order[places]]
        return cls(order[places].tolist(), weight)

    def cost(self, costs: Array) -> float:
        """Estimate the cost in all windows from ``costs`` [W]."""
        return float(costs[self.windows] @ self.weight)

    def clearly_worse(self, costs: Array, best: Array) -> bool:
        """Whether a rule costs more than the best rule, by a paired test over windows."""
        extra_cost = (costs - best)[self.windows] * self.weight
        count = len(extra_cost)
        if count < 3:
            return bool(extra_cost.sum() > 0.02 * self.cost(best))
        error = float(extra_cost.std(ddof=1)) / math.sqrt(count)
        return bool(extra_cost.mean() > student_quantile(SURE, count - 1) * error)


def fit(
    trace: str | Path | Trace,
    *,
    rows: tuple[int, int] | None = None,
    window: int | None = None,
    seed: int = 0,
    arrivals: str = "known",
    route: str | None = None,
    always: Sequence[str] = ("local/equal",),
    progress: Progress = lambda what, done, total: None,
    **settings: Any,
) -> Fitted:
    """Fit textbook rules to a load: find the plain rule with the lowest cost in ``rows``.

    Args:
        rows, window, seed, settings: as in ``corral.loads.replay``.
        arrivals: whether nodes know the requests of a step before they decide: "known" or
            "unknown".
        route: the only route to try; None: all. Routes "capacity" and "spare" need known arrivals.
        always: further rules to play in all windows.
        progress: called with "plain rules, plays of a day", the windows played so far, and
            their estimated total.

    Raises the errors of ``DfaasRules`` and ``PlainRule.of``; ArgumentError for a route that needs
    known arrivals.
    """
    ground = Playground(trace, rows=rows, window=window, seed=seed, arrivals=arrivals, **settings)
    rules, routes = ground.rules, routes_of(route, arrivals)
    fast = [candidate for candidate in routes if candidate != ONE_BY_ONE] or ["least"]
    grid = coarse(rules, fast)
    few = min(_sample_size(ground), len(ground.first))
    race = Race(ground, progress, (len(grid) + 12 * BEAM) * few + 3 * FINAL * len(ground.first))
    local = PlainRule("local")
    race.play([local, *map(PlainRule.of, always)], race.every)
    sample = Sample.of(race.cost[local], few)

    race.play(grid, sample.windows)
    _play_neighbors(race, grid, sample, fast, BEAM)

    race.play(_finalists(race, sample), race.every)
    for step in (0.5, 0.25, 0.125):
        best = [rule for rule in race.in_all() if rule.route in fast][:2]
        around = near(best[0], step, rules)
        around += [candidate for rule in best for candidate in of_routes(rule, fast)]
        race.play(around, sample.windows)
        race.play(_best(race, around, sample, 4), race.every)
    quick = ground.one_by_one(sample.windows) <= REQUESTS_ONE_BY_ONE or route is not None
    if ONE_BY_ONE in routes and quick:
        _try_one_by_one(race, sample)
    return _fitted(race, routes, () if quick else (ONE_BY_ONE,))


def refit(
    trace: str | Path | Trace,
    first: Sequence[PlainRule] | None = None,
    *,
    routes: Sequence[Route],
    rows: tuple[int, int] | None = None,
    window: int | None = None,
    seed: int = 0,
    arrivals: str = "known",
    progress: Progress = lambda part, done, total: None,
    **settings: Any,
) -> Fitted:
    """Fit textbook rules in a fraction of the time of ``fit``: a grid of one route, few windows.

    Args:
        first: rules with which the race begins; None: the grid, with the first of ``routes``.
        routes: routes to try with the best rules.
        rows, window, seed, arrivals, settings: as in ``fit``.
        progress: as in ``fit``.

    Raises the errors of ``DfaasRules``.
    """
    ground = Playground(trace, rows=rows, window=window, seed=seed, arrivals=arrivals, **settings)
    grid = coarse(ground.rules, routes[:1]) if first is None else [*dict.fromkeys(first)]
    few = min(FEW_WINDOWS, _sample_size(ground), len(ground.first))
    expected = (len(grid) + 16 * SHORT_BEAM) * few + SHORT_FINAL * len(ground.first)
    race = Race(ground, progress, expected)
    local = PlainRule("local")
    race.play([local], race.every)
    sample = Sample.of(race.cost[local], few)
    race.play(grid, sample.windows)
    _play_neighbors(race, [local, *grid], sample, (), SHORT_BEAM)
    beam = _best(race, race.cost, sample, SHORT_BEAM)
    race.play([candidate for rule in beam for candidate in of_routes(rule, routes)], sample.windows)
    race.play(_best(race, race.cost, sample, SHORT_FINAL), race.every)
    return _fitted(race, routes)


def _play_neighbors(
    race: Race, grid: Sequence[PlainRule], sample: Sample, routes: Sequence[Route], size: int
) -> None:
    """Play neighbors of the best ``size`` rules of ``grid``, closer ones each time."""
    beam = _best(race, grid, sample, size)
    for step in (1.0, 0.5, 0.25):
        around = [candidate for rule in beam for candidate in near(rule, step, race.ground.rules)]
        around += [candidate for rule in beam[:3] for candidate in of_routes(rule, routes)]
        race.play(around, sample.windows)
        beam = _best(race, [*beam, *around], sample, size)


def _fitted(race: Race, routes: Sequence[Route], skipped: tuple[str, ...] = ()) -> Fitted:
    """Return the result of a race; the best rule has one of ``routes``, or serves locally."""
    race.over()
    ground, ranked, local = race.ground, race.in_all(), PlainRule("local")
    allowed = [rule for rule in ranked if rule.route in routes and rule.amount != "random"]
    return Fitted(
        rule=min([local, *allowed], key=lambda rule: float(race.cost[rule].sum())),
        costs={str(rule): race.cost[rule] for rule in ranked},
        lost={str(rule): race.lost[rule] for rule in ranked},
        arrivals=ground.arrivals,
        tried=len(race.cost),
        days_played=race.played,
        settings={"queue": ground.rules.queue, "link_limit": ground.rules.link_limit},
        left_out=skipped,
    )


def _sample_size(ground: Playground) -> int:
    """Return the number of windows for the grid. It is lower for long windows of many nodes."""
    nodes = len(ground.rules.agents)
    work = ground.window * nodes * (nodes + 8)  # steps, senders, and places with some overhead
    return min(max(WORK // work, MIN_WINDOWS), MAX_WINDOWS)


def _best(race: Race, rules: Iterable[PlainRule], sample: Sample, count: int) -> list[PlainRule]:
    """Return the best ``count`` rules in order, without rules clearly worse than the first."""
    ranked = sorted(dict.fromkeys(rules), key=lambda rule: sample.cost(race.cost[rule]))
    first = race.cost[ranked[0]]
    return [rule for rule in ranked[:count] if not sample.clearly_worse(race.cost[rule], first)]


def _finalists(race: Race, sample: Sample) -> list[PlainRule]:
    """Return the best rules and the best rule of each kind, as few windows can mislead."""
    ranked = _best(race, race.cost, sample, len(race.cost))
    kinds = {(rule.amount, rule.margin is None, rule.route): rule for rule in reversed(ranked)}
    best_of_kinds = sorted(kinds.values(), key=ranked.index)
    return list(dict.fromkeys([*ranked[:FINAL], *best_of_kinds[: 2 * FINAL]]))


def _try_one_by_one(race: Race, sample: Sample) -> None:
    """Play the best amounts by route "two-choices" as well."""
    best = [rule for rule in race.in_all() if rule.amount not in ("local", "random")]
    tried = [
        candidate for rule in best[: FINAL // 2] for candidate in of_routes(rule, [ONE_BY_ONE])
    ]
    race.play(tried, sample.windows)
    race.play(_best(race, tried, sample, 2), race.every)
