"""Replay a load trace through forwarding policies, and compare each with the optimum.

A replay cuts the rows of a trace into consecutive windows of one day (288 steps if the trace has no
days). All windows are played in parallel; each starts with empty queues and without reports. Rows
that do not fill a window are played as a shorter last window, so no row is skipped.

Replays need neither torch nor SB3: they play policies from any source.
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
from corral.envs.arguments import one_of
from corral.envs.core import Array, Observation, Outcome
from corral.envs.dfaas_v0 import DfaasRules, DfaasState
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
    *("OF_TEAMS", "OWN", "Entry", "Plays", "Replay", "Score", "Series", "TeamNote"),
    *("binned", "fitting_scales", "plan_of", "play_windows", "ready", "replay", "with_team"),
]

COUNTS = ("arrivals", "served_local", "served_remote", "lost", "forwarded", "waiting")
DEFAULT_WINDOW = 288
SERIES_POINTS = 2016  # a week of five-minute steps

OWN = (
    *("amount", "arrivals", "beyond", "capacity_scale", "daily_mean", "last_counts", "load_scale"),
    *("max_level", "neighbours", "observation", "offsets", "residual", "route"),
)
"""Arguments of dfaas_v0 that a team may bring: its observations and actions depend on them."""

OF_TEAMS = ("beyond", "offsets", "residual", "route")
"""Arguments in ``OWN`` that rules do not share with a team."""

Entry = str | PlanPolicy | PolicyLike | Mapping[str, PolicyLike] | Player
"""Entries of a replay: a rule, a planning policy, a policy for all nodes, a team, or a Player."""

Plays = Player | Planner
"""The player of an entry: a team that takes actions, or a planner that makes plans."""


@dataclass(frozen=True)
class Series:
    """The counts over time, in at most ``SERIES_POINTS`` bins of equal length."""

    rows: Array  # int64 [P] the first row of each bin, counted from the trace's first
    width: int  # steps per bin
    counts: dict[str, Array]  # float64 [P, N] mean requests per step
    served_after: Array | None = None
    """int64 [K] requests of all steps served after a wait of 0, 1, ...; None without a queue."""
    exceeding: int = 0  # steps in which nodes observe a number above its scale


@dataclass(frozen=True)
class TeamNote:
    """A replayed team: its mode, and the settings and links that it brought."""

    mode: str  # "greedy" or "sampled"
    settings: dict[str, Any]  # those of ``OWN`` that it brought, without ``beyond``
    unit: int  # largest difference between two action levels, in requests
    own_links: bool  # whether its nodes have other neighbors than in the replay
    on_levels: tuple[str, float, float] | None = None
    """If levels are coarser than a request: the best reference policy, its cost, and its cost on
    these levels, as shares of the arrivals."""
    beyond: str | None = None  # its play of numbers above its scales, see ``DfaasRules``
    exceeding: int = 0  # steps in which it observed such a number


@dataclass(frozen=True)
class Replay:
    """The result of a replay; ``corral.loads.report`` writes it to files."""

    trace: Trace  # with the capacity that was played
    settings: dict[str, Any]  # arguments of dfaas_v0, without trace and route
    rows: tuple[int, int]
    window: int  # steps
    windows: int  # number of whole windows
    remainder: int  # steps of the shorter last window
    optimum_windows: tuple[int, ...]  # windows with a computed optimum; empty: none
    optimum_method: str
    scores: list[Score]
    series: dict[str, Series] = field(repr=False)
    seed: int = 0
    teams: dict[str, TeamNote] = field(default_factory=dict)  # by policy, without the references
    returns: dict[str, Array] = field(default_factory=dict, repr=False)
    """float64 [W] team return in each whole window, by policy."""
    sums: dict[str, WindowSums] = field(default_factory=dict, repr=False)  # by policy
    best_rule: BestRule | None = None  # None: no rule was replayed, or only one window
    seen: frozenset[str] = frozenset()  # policies that learned from some of the rows
    route: str = "equal"  # of teams that bring no route

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row for each policy and window: its first row, requests (``WindowSums``), and
        the policy's cost above that of the best rule, which was chosen on other windows."""
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

    def _repr_html_(self) -> str:
        from corral.notebook import as_html  # late: only for notebooks

        low, high = self.rows
        facts = {"rows": f"{low}:{high}", "windows": f"{self.windows} of {self.window} steps"}
        columns = ["policy", "mode", "cost %", "served %", "lost %", "forwarded %"]
        rows = [
            (
                score.policy,
                score.mode,
                *(100 * share for share in (score.cost, score.served, score.lost, score.forwarded)),
            )
            for score in self.scores
        ]
        return as_html(f"Replay of {self.trace.name}", facts, columns, rows)

    @property
    def days(self) -> bool:
        """Whether the windows are days."""
        return self.window == self.trace.steps_per_day

    @property
    def optimum_is_partial(self) -> bool:
        """Whether there is an optimum that covers only some windows."""
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
    progress: Progress = lambda part, done, total: None,
    **settings: Any,
) -> Replay:
    """Play every policy over the same load.

    Args:
        trace: a bundled name, the path of a CSV, or a Trace.
        policies: rules such as "backlog=0.75/least" (``corral.envs.dfaas_v0.plain_rules``); or a
            mapping from labels to rules, policies with ``plan(view)``
            (``corral.envs.dfaas_v0.planned``), policies that play every node by actions, teams
            (agent -> policy), or Players. Policies receive batches. They play greedily, with the
            ``settings`` of this call, unless a Player has another mode or its own settings
            (``OWN``).
        rows: (low, high), the rows to play; default: all.
        window: steps of a window; default: a day, or 288 if the trace's clock has no days.
        seed: seed of policies and routes that draw.
        optimum_windows: number of windows with a linear program, if the optimum has no closed form
            (0: none). Fewer than all are whole windows, evenly spread. A closed form is computed
            for all windows.
        best_rule: (label, description of rows): the pair among ``policies`` that was the best on
            other days, and these days; default: for each window the best of all other windows.
        settings: further arguments of dfaas_v0, such as ``arrivals="unknown"``. ``beyond`` is for
            all teams, in place of the value in their training.

    Returns of all policies are in units of the replay's load_scale, whatever scale a team was
    trained with. Rules forward to the request. If a team's levels are coarser, its ``TeamNote`` has
    the cost of the best rule on these levels.

    Intervals are those of ``corral.trainers.evaluation.intervals``; if windows are days, with
    their weekday.

    Raises the errors of ``DfaasRules`` and ``PlainRule.of``. ScaleError and ActionError name the
    policy with too small scales or malformed actions. ValueError: a team does not fit the nodes of
    the trace, or the best rule is not a pair among ``policies``.
    """
    load = load_trace(trace)
    route, beyond = settings.pop("route", None), settings.pop("beyond", None)
    entries = _named(policies)
    if beyond is not None:
        one_of("beyond", beyond, ("rule", "clip"))
        entries = {label: _with_beyond(label, entry, beyond) for label, entry in entries.items()}
    if best_rule is not None and not isinstance(entries.get(best_rule[0]), str):
        raise ValueError(f"best_rule={best_rule[0]!r}: pass the label of a pair among the policies")
    low, high = rows if rows is not None else (0, len(load))
    if window is not None and window < 1:
        raise ValueError(f"window={window}: pass 1 step or more")
    length = min(window or load.steps_per_day or DEFAULT_WINDOW, high - low)
    section: dict[str, Any] = {"rows": (low, high), **settings}
    # Fails early for invalid settings. Rules need the reports of every node.
    base = DfaasRules(load, **{**section, "observation": "every"}, route=route)
    section["max_cycles"] = length
    plans = {label: plan_of(label, entry, base, section) for label, entry in entries.items()}
    windows: dict[str, tuple[EndedEpisodes, float]] = {}
    series: dict[str, Series] = {}
    teams: dict[str, TeamNote] = {}
    for label, plan in plans.items():
        rules, player = ready(base, *plan)  # one at a time: a long trace needs much memory
        if isinstance(player, Player):
            own_links = bool((rules.network.links != base.network.links).any())
            brought = {key: value for key, value in player.settings.items() if key != "beyond"}
            teams[label] = TeamNote(
                player.mode, brought, rules.unit, own_links, beyond=rules.beyond
            )
        elif isinstance(player, ViewPlanner):
            teams[label] = TeamNote("planned", {}, unit=1, own_links=False)
        show = functools.partial(progress, label)
        try:
            with warnings.catch_warnings():  # they are counted, and shown in the report
                warnings.simplefilter("ignore", IllegalActionWarning)
                played, course = play_windows(rules, player, length, seed, show)
        except ActionError as error:
            raise type(error)(f"policy {label}: {error}") from error
        windows[label], series[label] = (played, rules.load_scale / base.load_scale), course
        if course.exceeding:
            teams[label] = dataclasses.replace(teams[label], exceeding=course.exceeding)
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


LEVELS = ("amount", "beyond", "load_scale", "max_level")


def _on_levels(
    plans: Mapping[str, tuple[dict[str, Any], Plays]],
    scores: Sequence[Score],
    teams: Mapping[str, TeamNote],
    base: DfaasRules,
    seed: int,
) -> dict[str, TeamNote]:
    """Return the notes of teams with levels coarser than a request, completed with the cost of
    these levels for the best reference policy, which is played again on each set of levels.
    Residual teams have no such note: their rule is exact."""
    coarse = {
        label: note
        for label, note in teams.items()
        if note.unit > 1 and plans[label][0].get("residual") is None
    }
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
            shares, load = rules.shares({key: n.sum(axis=1) for key, n in played.infos.items()})
            costs[str(levels)] = float(shares["cost"].sum()) / max(1, int(load.sum()))
        on_levels = (best.policy, best.cost, costs[str(levels)])
        notes[label] = dataclasses.replace(note, on_levels=on_levels)
    return notes


def _named(policies: Sequence[str] | Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the entries by label."""
    if isinstance(policies, str):
        policies = [policies]
    named: dict[str, Entry] = {}
    named.update(policies if isinstance(policies, Mapping) else {pair: pair for pair in policies})
    if not named:
        raise ValueError("pass at least one policy")
    if "optimum" in named:
        raise ValueError("the label 'optimum' is reserved for the optimum's row; pass another")
    return named


def _with_beyond(label: str, entry: Entry, beyond: str) -> Entry:
    """Return a player with another ``beyond``; an entry without scales of training unchanged."""
    if not isinstance(entry, Player) or "load_scale" not in entry.settings:
        return entry
    if beyond == "rule" and entry.settings.get("residual") is None:
        raise ValueError(
            f"policy {label}: beyond='rule' needs a team trained with residual=RULE; pass "
            "beyond='clip'"
        )
    return dataclasses.replace(entry, settings={**entry.settings, "beyond": beyond})


def fitting_scales(settings: Mapping[str, Any], trace: Trace) -> dict[str, Any]:
    """Return ``settings`` without the scales that a trace exceeds.

    Rules observe no scaled number, so any scale fits them.
    """
    numbers = {"load_scale": trace.arrivals, "capacity_scale": trace.capacity}
    return {
        key: value
        for key, value in settings.items()
        if (largest := numbers.get(key)) is None or value is None or value >= largest.max()
    }


def plan_of(
    label: str, entry: Entry, base: DfaasRules, section: Mapping[str, Any]
) -> tuple[dict[str, Any], Plays]:
    """Return the arguments of an entry's rules, and its player."""
    shared = {**section, "capacity": None}  # already in the trace of ``base``
    if isinstance(entry, str):
        rule = PlainRule.of(entry)
        if rule.route == "choose":
            raise ValueError(
                f"policy {label}: a rule cannot have the route choose, in which the action names "
                f"the neighbor; pass {rule.amount_text}/all-to-shortest, which forwards to the "
                "neighbor with the largest reported spare capacity"
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
            f"policy {label}: settings {foreign} belong to the replay and are the same for all; "
            f"a team may bring only {', '.join(OWN)}"
        )
    trained_arrivals = player.settings.get("arrivals", base.arrivals)
    if trained_arrivals != base.arrivals:
        raise ValueError(
            f"policy {label} was trained with arrivals {trained_arrivals}, but this replay has "
            f"arrivals {base.arrivals}; pass arrivals={trained_arrivals!r}"
        )
    arguments = {**shared, **player.settings}
    if player.settings.get("residual") is None:  # its rule has a route
        arguments.setdefault("route", base.route)
    try:
        DfaasRules(base.trace, **arguments)  # fails before the replay starts
    except ScaleError as error:
        raise ScaleError(
            f"policy {label}: {error} or more in training, or train with the argument beyond of "
            "dfaas_v0. To play this team, give beyond='clip': it then observes larger numbers as "
            "its scale"
        ) from None
    return arguments, player


def ready(
    base: DfaasRules, arguments: Mapping[str, Any], player: Plays
) -> tuple[DfaasRules, Plays]:
    """Return the rules of an entry, and its player."""
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
    """Play the section of ``rules`` in consecutive windows of ``window`` steps, in parallel; return
    the ended windows in order, and the counts over time.

    Agent i draws from ``generator(seed, "policy", i)``, in a shorter last window from that of
    ``seed + 1``. ``on_turn`` is called after each step.
    """
    length = rules.rows[1] - rules.rows[0]
    rest = length % window
    parts = [(np.arange(0, length - rest, window), window), (np.array([length - rest]), rest)]
    counts = np.zeros((length, len(COUNTS), len(rules.agents)), dtype=np.int64)  # [T, 6, N]
    may_exceed = isinstance(player, Player) and _may_exceed(rules)
    exceeding = 0
    ended: list[EndedEpisodes] = []
    done = 0
    for number, (first, steps) in enumerate(parts if rest else parts[:1]):
        window_rules, team = with_team(rules, player, seed + number)
        greedy = dict.fromkeys(rules.agents, team.greedy)
        counter = _Exceeding(window_rules)
        changes = {"step": counter.step} if may_exceed else {}
        windows = Changed(
            window_rules,
            max_cycles=steps,
            start=functools.partial(window_rules.start_at, first),
            **changes,
        )
        once = np.ones(len(first), dtype=np.int64)
        for turn in play(windows, team.team, greedy, quota=once, seed=seed + number):
            for i, key in enumerate(COUNTS):
                counts[first + turn.t, i] = turn.step.info[key]
            on_turn(turn)
            done += 1
            progress(done, window + rest)
        ended.append(turn.ended)  # all windows: they have the same length
        exceeding += counter.steps
    width = -(-length // SERIES_POINTS)
    means = {key: binned(counts[:, i], width) for i, key in enumerate(COUNTS)}
    course = Series(np.arange(*rules.rows, width), width, means, exceeding=exceeding)
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


class _Exceeding:
    """Counts the steps in which nodes observe a number above its scale."""

    def __init__(self, rules: DfaasRules) -> None:
        self.rules, self.steps = rules, 0

    def step(self, state: DfaasState, action: Array) -> Outcome[DfaasState]:
        """Play a step of all environments."""
        self.steps += int(self.rules.exceeds(state).sum())  # before the step changes the state
        return self.rules.step(state, action)


def _may_exceed(rules: DfaasRules) -> bool:
    """Whether nodes may observe numbers above their scales: they observe at most the arrivals and
    capacities of the rows."""
    played = rules.trace.section(*rules.rows)
    assert played.capacity is not None  # checked by the rules
    largest = played.arrivals.max(), played.capacity.max()
    return any(number > scale for number, scale in zip(largest, rules.scales, strict=True))


def with_team(
    rules: DfaasRules, player: Plays | Mapping[str, PolicyLike], seed: int
) -> tuple[DfaasRules, Player]:
    """Return rules in which a team plays like ``player``; a planner draws by ``seed``."""
    if isinstance(player, Mapping):
        return rules, Player(player)
    if isinstance(player, Player):
        return rules, player
    planned = by_plans(rules, player.begun(seed, len(rules.agents)))
    return planned, Player(dict.fromkeys(rules.agents, ONLY))


class _OnlyAction(Heuristic):
    """Takes the only action, for nodes that follow plans."""

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        return np.zeros(np.asarray(observation[MASK]).shape[:-1], dtype=np.int64)


ONLY = _OnlyAction()


def binned(values: Array, width: int) -> Array:
    """Return the means [P, N] of ``values`` [T, N] over bins of ``width`` steps."""
    starts = np.arange(0, len(values), width)
    sizes = np.diff(starts, append=len(values))[:, None]
    return np.asarray(np.add.reduceat(values, starts, axis=0) / sizes)
