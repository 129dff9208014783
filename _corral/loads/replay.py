"""Replay a load trace through forwarding policies, and compare each with the optimum.

A replay cuts the rows of a trace into consecutive windows of a day (288 steps where the trace has
no days) and plays all windows side by side, each beginning with empty queues and no information of
a last step. Rows that do not fill a window are played as a shorter last one: no row is left out.

No torch, no SB3: what is replayed here are policies, whoever made them.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from corral.data import Trace, load_trace
from corral.envs.core import Array, Observation
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import baseline_team
from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.envs.dfaas_v0.planned import (
    Planner,
    PlanPolicy,
    RulePlanner,
    ViewPlanner,
    by_plans,
)
from corral.envs.episode_stats import EndedEpisodes
from corral.envs.masks import MASK
from corral.envs.policy import Heuristic, PolicyLike
from corral.errors import ActionError, IllegalActionWarning, ScaleError
from corral.loads.best_rule import BestRule, best_of_others, rule_of
from corral.loads.scores import Score, WindowSums, best_of, optimum_score, score_of
from corral.loads.waiting import served_after, with_waits
from corral.progress import Progress
from corral.trainers.evaluation.episodes import Changed, Turn, play
from corral.trainers.evaluation.players import Player, as_player

__all__ = [
    *("OWN", "Entry", "Plays", "Replay", "Score", "Series", "TeamNote"),
    *("binned", "plan_of", "play_windows", "ready", "replay", "with_team"),
]

COUNTS = ("arrivals", "served_local", "served_remote", "lost", "forwarded", "waiting")
DEFAULT_WINDOW = 288
SERIES_POINTS = 2016  # a week of five-minute steps

OWN = (
    *("amount", "arrivals", "capacity_scale", "daily_mean", "last_counts", "load_scale"),
    *("max_level", "neighbours", "observation", "route"),
)
"""Arguments of dfaas_v0 that a team may bring along: its observations and actions hang on them."""

Entry = str | PlanPolicy | PolicyLike | Mapping[str, PolicyLike] | Player
"""Entries of a replay: a rule, a policy that plans, one for every node, a team, or a Player."""

Plays = Player | Planner
"""What plays an entry: a team by actions, or a planner by plans."""


@dataclass(frozen=True)
class Series:
    """The course over time, in at most ``SERIES_POINTS`` bins of equal length."""

    rows: Array  # int64 [P] the first row of each bin, counted from the trace's first
    width: int  # steps per bin
    counts: dict[str, Array]  # float64 [P, N] mean requests per step
    served_after: Array | None = None
    """int64 [K] requests of all steps served after a wait of 0, 1, ...; None: there is no queue."""


@dataclass(frozen=True)
class TeamNote:
    """A team that was replayed: its mode, and what its rules have of its own."""

    mode: str  # "greedy" or "sampled"
    settings: dict[str, Any]  # those of ``OWN`` that it brought along
    unit: int  # requests between two levels of its actions, at most
    own_links: bool  # whether its nodes forward to others than the replay's neighbours
    on_levels: tuple[str, float, float] | None = None
    """Where levels are coarser than a request: the best of the references, its cost as they play,
    and what it would be on these levels, in shares of the arrivals."""


@dataclass(frozen=True)
class Replay:
    """The result of a replay; ``corral.loads.report`` writes it down."""

    trace: Trace  # with the capacity that was played
    settings: dict[str, Any]  # arguments of dfaas_v0, without trace and route
    rows: tuple[int, int]
    window: int  # steps
    windows: int  # whole ones
    remainder: int  # steps of the shorter last window
    optimum_windows: tuple[int, ...]  # those whose optimum was computed; empty: none
    optimum_method: str
    scores: list[Score]
    series: dict[str, Series] = field(repr=False)
    seed: int = 0
    teams: dict[str, TeamNote] = field(default_factory=dict)  # by policy; not the references
    returns: dict[str, Array] = field(default_factory=dict, repr=False)
    """float64 [W] the team's in each whole window, by policy."""
    sums: dict[str, WindowSums] = field(default_factory=dict, repr=False)  # by policy
    best_rule: BestRule | None = None  # None: no rule was replayed, or one window alone
    seen: frozenset[str] = frozenset()  # policies that learned from some of the rows
    route: str = "equal"  # of teams that bring none along

    def to_dataframe(self) -> pd.DataFrame:
        """Return a line for each policy and window: its first row, requests (``WindowSums``), and
        what it costs more than the best rule, which was chosen on other windows, in this one."""
        frames = []
        for label, sums in self.sums.items():
            frame = pd.DataFrame(vars(sums))
            frame.insert(0, "first_row", self.rows[0] + self.window * np.arange(len(frame)))
            frame.insert(0, "window", np.arange(len(frame)))
            frame.insert(0, "policy", label)
            if self.best_rule is not None:
                frame["best_rule"] = self.best_rule.labels
                frame["difference"] = sums.cost - self.best_rule.cost
            frames.append(frame)
        return pd.concat(frames, ignore_index=True)

    @property
    def days(self) -> bool:
        """Whether the windows are days."""
        return self.window == self.trace.steps_per_day

    @property
    def optimum_is_partial(self) -> bool:
        """Whether there is an optimum, and not of all windows."""
        return 0 < len(self.optimum_windows) < self.windows + bool(self.remainder)


def replay(
    trace: str | Path | Trace,
    policies: Sequence[str] | Mapping[str, Entry],
    *,
    rows: tuple[int, int] | None = None,
    window: int | None = None,
    seed: int = 0,
    optimum_windows: int = 8,
    best_rule: tuple[str, str] | None = None,
    progress: Progress = lambda what, done, total: None,
    **settings: Any,
) -> Replay:
    """Play every policy over the same load.

    Args:
        trace: a bundled name, the path of a CSV, or a Trace.
        policies: rules such as "backlog=0.75/least" (``corral.envs.dfaas_v0.plain_rules``); or a
            mapping from any label to a rule, a policy with ``plan(view)``
            (``corral.envs.dfaas_v0.planned``), a policy that plays every node by actions, a team
            (agent -> policy), or a Player. Policies are given batches. They play greedily unless a
            Player says otherwise, with the ``settings`` of this call unless a Player brings its own
            (``OWN``).
        rows: (low, high), the rows to play; default: all.
        window: steps of a window; default: a day, or 288 where the trace's clock has none.
        seed: of policies that draw their actions, and of routes that draw.
        optimum_windows: how many windows get a linear program where the optimum has no closed form
            (0: none): all of them, or so many whole ones, evenly spread. The closed form is
            computed for all.
        best_rule: the label, among ``policies``, of the pair that was the best on other days, and
            which days these were, in words; default: for each window the best of all others.
        settings: further arguments of dfaas_v0, such as ``arrivals="unknown"``.

    Returns of all policies are in units of the replay's load_scale, whatever scale a team was
    trained with. Rules forward to the request, whatever the levels of the teams: where these are
    coarser, the ``TeamNote`` tells what the best rule would lose by them.

    Intervals are those of ``corral.trainers.evaluation.intervals``; where windows are days, with
    the weekday told.

    Raises what ``DfaasRules`` and ``PlainRule.of`` raise; ScaleError names the policy whose scales
    the trace exceeds, ActionError the one whose actions are malformed. ValueError: a team does not
    fit the nodes of the trace, or the best rule is no pair among ``policies``.
    """
    load = load_trace(trace)
    route = settings.pop("route", "equal")
    named = _named(policies)
    if best_rule is not None and not isinstance(named.get(best_rule[0]), str):
        raise ValueError(f"best_rule={best_rule[0]!r}: give the label of a pair among the policies")
    low, high = rows if rows is not None else (0, len(load))
    if window is not None and window < 1:
        raise ValueError(f"window={window}: give 1 step or more")
    length = min(window or load.steps_per_day or DEFAULT_WINDOW, high - low)
    section: dict[str, Any] = {"rows": (low, high), **settings}
    # Fails early, whatever the policies. Rules go by the report of every node.
    base = DfaasRules(load, **{**section, "observation": "every"}, route=route)
    section["max_cycles"] = length
    plans = {label: plan_of(label, entry, base, section) for label, entry in named.items()}
    windows: dict[str, tuple[EndedEpisodes, float]] = {}
    series: dict[str, Series] = {}
    teams: dict[str, TeamNote] = {}
    for label, plan in plans.items():
        rules, player = ready(base, *plan)  # one at a time: a long trace is large
        if isinstance(player, Player):
            own_links = bool((rules.network.links != base.network.links).any())
            teams[label] = TeamNote(player.mode, dict(player.settings), rules.unit, own_links)
        elif isinstance(player, ViewPlanner):
            teams[label] = TeamNote("planned", {}, unit=1, own_links=False)
        show = functools.partial(progress, label)
        try:
            with warnings.catch_warnings():  # they are counted, and the report says so
                warnings.simplefilter("ignore", IllegalActionWarning)
                played, course = play_windows(rules, player, length, seed, show)
        except ActionError as error:
            raise type(error)(f"policy {label}: {error}") from error
        windows[label], series[label] = (played, rules.load_scale / base.load_scale), course
    best = best_of(base, length, optimum_windows, progress)
    whole = (high - low) // length
    sums = {label: WindowSums.of(played, base) for label, (played, _) in windows.items()}
    costs = {label: sums[label].cost for label in sums if label not in teams}
    season = 7 if length == load.steps_per_day else 1
    if best_rule is None:
        rule = best_of_others(costs, season=season)
    else:
        rule = rule_of(costs, *best_rule, season=season)
    scores = [
        score_of(
            label,
            teams[label].mode if label in teams else "",
            *played,
            sums[label],
            best,
            whole,
            rule,
            season,
        )
        for label, played in windows.items()
    ]
    teams |= _on_levels(plans, scores, teams, base, seed)
    if best.optima:
        scores.append(optimum_score(best))
    waits = {label: course.served_after for label, course in series.items()}
    scores = with_waits(scores, waits, base.trace)
    return Replay(
        trace=base.trace,
        settings=settings,
        rows=(low, high),
        window=length,
        windows=whole,
        remainder=(high - low) % length,
        optimum_windows=tuple(best.windows),
        optimum_method=best.method,
        seed=seed,
        scores=scores,
        series=series,
        teams=teams,
        returns={
            label: played.returns[:whole].sum(axis=1) * scale
            for label, (played, scale) in windows.items()
        },
        sums=sums,
        best_rule=rule,
        route=base.route,
    )


LEVELS = ("amount", "load_scale", "max_level")


def _on_levels(
    plans: Mapping[str, tuple[dict[str, Any], Plays]],
    scores: Sequence[Score],
    teams: Mapping[str, TeamNote],
    base: DfaasRules,
    seed: int,
) -> dict[str, TeamNote]:
    """Return the notes of teams whose levels are coarser than a request, with what these levels
    cost the best of the references: it is played once more, on each kind of levels."""
    coarse = {label: note for label, note in teams.items() if note.unit > 1}
    references = [score for score in scores if score.policy not in teams]
    if not coarse or not references:
        return coarse
    best = min(references, key=lambda score: score.cost)
    arguments, planner = plans[best.policy]
    assert isinstance(planner, RulePlanner)
    amount = planner.rules[0].amount_text
    costs: dict[str, float] = {}
    notes = {}
    for label, note in coarse.items():
        levels = {key: plans[label][0].get(key) for key in LEVELS}
        levels = {key: value for key, value in levels.items() if value is not None}
        if str(levels) not in costs:
            rules = DfaasRules(base.trace, **{**arguments, **levels})
            team = baseline_team(amount, rules)
            played, _ = play_windows(rules, team, rules.max_cycles, seed)
            found, load = rules.shares({key: n.sum(axis=1) for key, n in played.infos.items()})
            costs[str(levels)] = float(found["cost"].sum()) / max(1, int(load.sum()))
        on_levels = (best.policy, best.cost, costs[str(levels)])
        notes[label] = dataclasses.replace(note, on_levels=on_levels)
    return notes


def _named(policies: Sequence[str] | Mapping[str, Entry]) -> dict[str, Entry]:
    """Return what plays, by its label."""
    if isinstance(policies, str):
        policies = [policies]
    named: dict[str, Entry] = {}
    named.update(policies if isinstance(policies, Mapping) else {pair: pair for pair in policies})
    if not named:
        raise ValueError("give one policy or more")
    if "optimum" in named:
        raise ValueError("the label 'optimum' is taken by the optimum's own row; give another")
    return named


def plan_of(
    label: str, entry: Entry, base: DfaasRules, section: Mapping[str, Any]
) -> tuple[dict[str, Any], Plays]:
    """Return the arguments of an entry's rules, and who plays it."""
    shared = {**section, "capacity": None}  # the trace of ``base`` has it already
    if isinstance(entry, str):
        rule = PlainRule.of(entry)
        if rule.route == "choose":
            raise ValueError(
                f"policy {label}: a plain rule names no neighbour; give "
                f"{rule.amount_text}/all-to-shortest, which forwards to the largest spare as well"
            )
        return {**shared, "route": rule.route, "observation": "every"}, RulePlanner([rule])
    if isinstance(entry, PlanPolicy):
        return {**shared, "observation": "every"}, ViewPlanner(entry)
    try:
        player = as_player(entry, base.agents)
    except ValueError as error:
        raise ValueError(f"policy {label}, trace {base.trace.name}: {error}") from None
    foreign = sorted(set(player.settings) - set(OWN))
    if foreign:
        raise ValueError(
            f"policy {label}: settings {foreign} belong to the replay, the same for all; "
            f"a team brings only {', '.join(OWN)}"
        )
    known = player.settings.get("arrivals", base.arrivals)
    if known != base.arrivals:
        raise ValueError(
            f"policy {label} was trained with arrivals {known}, and this replay has arrivals "
            f"{base.arrivals}; give arrivals={known!r}"
        )
    arguments = {**shared, "route": base.route, **player.settings}
    try:
        DfaasRules(base.trace, **arguments)  # fails before anything is played
    except ScaleError as error:
        raise ScaleError(
            f"policy {label}: {error} where the team is trained; a team is replayed with the "
            "scales that it has learned"
        ) from None
    return arguments, player


def ready(
    base: DfaasRules, arguments: Mapping[str, Any], player: Plays
) -> tuple[DfaasRules, Plays]:
    """Return the rules of an entry, and who plays it."""
    return DfaasRules(base.trace, **arguments), player


# --- Playing -------------------------------------------------------------------------------------


def play_windows(
    rules: DfaasRules,
    player: Plays | Mapping[str, PolicyLike],
    window: int,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    on_turn: Callable[[Turn], None] = lambda turn: None,
) -> tuple[EndedEpisodes, Series]:
    """Play the section of ``rules`` in consecutive windows of so many steps, side by side; return
    them in order, and the course of it all.

    Agent i draws from ``generator(seed, "policy", i)``, in a shorter last window from that of
    ``seed + 1``. ``on_turn`` is called after each step.
    """
    length = rules.rows[1] - rules.rows[0]
    rest = length % window
    parts = [(np.arange(0, length - rest, window), window), (np.array([length - rest]), rest)]
    counts = np.zeros((length, len(COUNTS), len(rules.agents)), dtype=np.int64)  # [T, 6, N]
    ended: list[EndedEpisodes] = []
    done = 0
    for number, (first, steps) in enumerate(parts if rest else parts[:1]):
        own, team = with_team(rules, player, seed + number)
        greedy = dict.fromkeys(rules.agents, team.deterministic)
        windows = Changed(own, max_cycles=steps, start=functools.partial(own.start_at, first))
        once = np.ones(len(first), dtype=np.int64)
        for turn in play(windows, team.team, greedy, quota=once, seed=seed + number):
            for i, key in enumerate(COUNTS):
                counts[first + turn.t, i] = turn.step.info[key]
            on_turn(turn)
            done += 1
            progress(done, window + rest)
        ended.append(turn.ended)  # all of them: a window is as long as the others
    width = -(-length // SERIES_POINTS)
    means = {key: binned(counts[:, i], width) for i, key in enumerate(COUNTS)}
    course = Series(np.arange(*rules.rows, width), width, means)
    if rules.queue:
        node_counts = {key: counts[:, i] for i, key in enumerate(COUNTS)}
        waits = served_after(
            node_counts["served_local"],
            node_counts["served_remote"],
            node_counts["waiting"],
            window,
        )
        course = dataclasses.replace(course, served_after=waits)
    return EndedEpisodes.join(ended), course


def with_team(
    rules: DfaasRules, player: Plays | Mapping[str, PolicyLike], seed: int
) -> tuple[DfaasRules, Player]:
    """Return rules in which a team plays as ``player`` does; a planner draws by ``seed``."""
    if isinstance(player, Mapping):
        return rules, Player(player)
    if isinstance(player, Player):
        return rules, player
    planned = by_plans(rules, player.begun(seed, len(rules.agents)))
    return planned, Player(dict.fromkeys(rules.agents, ONLY))


class _OnlyAction(Heuristic):
    """Takes the one action that there is where nodes follow plans."""

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        return np.zeros(np.asarray(observation[MASK]).shape[:-1], dtype=np.int64)


ONLY = _OnlyAction()


def binned(values: Array, width: int) -> Array:
    """Return the means [P, N] of ``values`` [T, N] over bins of ``width`` steps."""
    starts = np.arange(0, len(values), width)
    sizes = np.diff(starts, append=len(values))[:, None]
    return np.asarray(np.add.reduceat(values, starts, axis=0) / sizes)
