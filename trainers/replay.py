"""Replay a load trace through forwarding policies, and compare each with the optimum.

A replay cuts the rows of a trace into consecutive windows of a day (288 steps where the trace has
no days) and plays all windows side by side, each beginning with empty queues and nothing known of
a last step. Rows that do not fill a window are played as a shorter last one: no row is left out.

No torch, no SB3: what is replayed here are policies, whoever made them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from corral.data import Trace, load_trace
from corral.envs.baselines import baseline_team, split_pair
from corral.envs.core import Array, generator
from corral.envs.dfaas_v0 import DfaasRules, Route
from corral.envs.optimum import Optimum, has_closed_form, optimum
from corral.envs.policy import Policy
from corral.errors import MissingExtraError
from corral.trainers.evaluation import bootstrap_ratio

__all__ = ["Replay", "Score", "Series", "play", "replay"]

COUNTS = ("arrivals", "served_local", "served_remote", "lost", "forwarded", "waiting")
DEFAULT_WINDOW = 288
SERIES_POINTS = 400

Progress = Callable[[str, int, int], None]
"""Called with what is going on, how much of it is done, and how much there is."""


@dataclass(frozen=True)
class Totals:
    """Sums over nodes and steps for each window: int64 [W] each, in requests."""

    arrivals: Array
    served_local: Array
    served_remote: Array
    lost: Array
    forwarded: Array
    waiting: Array  # request-steps: a request that waits for two steps counts twice
    illegal_actions: Array
    team_return: Array  # float64 [W] sum of all agents' rewards

    def cost(self, forward_cost: float, wait_cost: float) -> Array:
        """lost + forward_cost * forwarded + wait_cost * waiting, [W], in requests."""
        return np.asarray(self.lost + forward_cost * self.forwarded + wait_cost * self.waiting)


@dataclass(frozen=True)
class Series:
    """What happened over time, in at most ``SERIES_POINTS`` bins of equal length."""

    rows: Array  # int64 [P] the first row of each bin, counted from the trace's first
    width: int  # steps per bin
    counts: dict[str, Array]  # float64 [P, N] mean requests per step


@dataclass(frozen=True)
class Score:
    """One row of the table. Fractions are of all arrivals unless they say otherwise."""

    policy: str
    return_team: float | None  # mean over whole windows of the sum of all agents' rewards
    low: float | None  # 95 % bootstrap interval of return_team over whole windows
    high: float | None
    episodes: int  # windows played
    illegal_actions: int
    served: float
    served_low: float | None  # 95 % bootstrap interval of served over all windows
    served_high: float | None
    lost: float
    forwarded: float
    mean_waiting: float  # requests per node and step
    cost: float  # lost + forward_cost * forwarded + wait_cost * waiting
    cost_low: float | None
    cost_high: float | None
    share_of_optimum: float | None  # (arrivals - cost) of the policy over that of the optimum


@dataclass(frozen=True)
class Replay:
    """What a replay found; ``corral.trainers.report`` writes it down."""

    trace: Trace  # with the capacity that was played
    settings: dict[str, Any]  # arguments of dfaas_v0, without trace and route
    unit: int  # requests that one level of action stands for
    rows: tuple[int, int]
    window: int  # steps
    windows: int  # whole ones
    remainder: int  # steps of the shorter last window
    optimum_windows: tuple[int, ...]  # those whose optimum was computed; empty: none
    optimum_method: str
    scores: list[Score]
    series: dict[str, Series] = field(repr=False)


def replay(
    trace: str | Path | Trace,
    policies: Sequence[str] | Mapping[str, str | Policy],
    *,
    rows: tuple[int, int] | None = None,
    window: int | None = None,
    seed: int = 0,
    optimum_windows: int = 8,
    progress: Progress = lambda what, done, total: None,
    **settings: Any,
) -> Replay:
    """Play every policy over the same load.

    Args:
        trace: a bundled name, the path of a CSV, or a Trace.
        policies: pairs such as "overflow/two" (see ``corral.envs.baselines``); or a mapping from
            any label to a pair, or to a Policy that plays every node, batched, with the ``route``
            of ``settings``.
        rows: (low, high), the rows to play; default: all.
        window: steps of a window; default: a day, or 288 where the trace's clock has none.
        seed: of the random policy and of route "two".
        optimum_windows: how many windows, evenly spread, get a linear program where the optimum
            has no closed form (0: none). The closed form is computed for all.
        settings: further arguments of dfaas_v0.

    Raises what ``DfaasRules`` and ``split_pair`` raise.
    """
    load = load_trace(trace)
    chosen = _chosen(policies, settings.pop("route", "equal"))
    low, high = rows if rows is not None else (0, len(load))
    if window is not None and window < 1:
        raise ValueError(f"window={window}: give 1 step or more")
    length = min(window or load.steps_per_day or DEFAULT_WINDOW, high - low)
    totals: dict[str, Totals] = {}
    series: dict[str, Series] = {}
    rules = DfaasRules(load, rows=(low, high), **settings)  # fails early, whatever the policies
    for policy, (player, route) in chosen.items():
        rules = DfaasRules(load, rows=(low, high), max_cycles=length, route=route, **settings)
        team = (
            baseline_team(player, rules)
            if isinstance(player, str)
            else dict.fromkeys(rules.agents, player)
        )
        record = play(rules, team, length, seed, functools.partial(progress, policy))
        totals[policy] = record.totals
        series[policy] = record.series
    best = _best(rules, length, optimum_windows, progress)
    whole = (high - low) // length
    scores = [_score(policy, total, rules, best, whole) for policy, total in totals.items()]
    if best.optima:
        scores.append(_optimum_score(best))
    return Replay(
        trace=rules.trace,
        settings=settings,
        unit=rules.unit,
        rows=(low, high),
        window=length,
        windows=whole,
        remainder=(high - low) % length,
        optimum_windows=tuple(best.windows),
        optimum_method=best.method,
        scores=scores,
        series=series,
    )


def _chosen(
    policies: Sequence[str] | Mapping[str, str | Policy], route: Route
) -> dict[str, tuple[str | Policy, Route]]:
    """Who plays under which label: the amount of a baseline or a Policy, and the route."""
    if isinstance(policies, str):
        policies = [policies]
    named = policies if isinstance(policies, Mapping) else {pair: pair for pair in policies}
    if not named:
        raise ValueError("give one policy or more")
    return {
        label: split_pair(player) if isinstance(player, str) else (player, route)
        for label, player in named.items()
    }


# --- Playing -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    """What ``play`` saw."""

    totals: Totals
    series: Series


def play(
    rules: DfaasRules,
    team: Mapping[str, Policy],
    window: int,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Record:
    """Play the section of ``rules`` in consecutive windows, side by side as copies."""
    length = rules.rows[1] - rules.rows[0]
    first = np.arange(0, length - window + 1, window)
    total = window + length % window
    keep = np.zeros((length, len(COUNTS), len(rules.agents)), dtype=np.int64)  # [T, 6, N]
    parts = [_play(rules, team, first, window, seed, keep, lambda t: progress(t, total))]
    if rest := length % window:
        tail = np.array([length - rest])
        parts.append(
            _play(rules, team, tail, rest, seed + 1, keep, lambda t: progress(window + t, total))
        )
    merged = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    return Record(Totals(**merged), _series(keep, rules.rows[0]))


def _play(
    rules: DfaasRules,
    team: Mapping[str, Policy],
    first: Array,
    steps: int,
    seed: int,
    keep: Array,
    progress: Callable[[int], None],
) -> dict[str, Array]:
    """Windows of ``steps`` rows from ``first`` [W] on; sums per window, ``keep`` filled in."""
    state = rules.start_at(first, [generator(seed, "env", row) for row in range(len(first))])
    rngs = {agent: generator(seed, "policy", i) for i, agent in enumerate(rules.agents)}
    memory = {agent: team[agent].initial_state(len(first)) for agent in rules.agents}
    illegal = np.zeros(len(first), dtype=np.int64)
    returns = np.zeros(len(first), dtype=np.float64)
    for t in range(steps):
        observations = rules.observe(state)
        chosen = []
        for agent in rules.agents:
            decision = team[agent].act(
                observations[agent], memory[agent], rngs[agent], deterministic=True
            )
            memory[agent] = decision.state
            chosen.append(decision.action)
        outcome = rules.step(state, np.stack(chosen, axis=1))  # [W, N]
        state = outcome.state
        for place, key in enumerate(COUNTS):
            keep[first + t, place] = outcome.info[key]
        illegal += outcome.info["illegal_actions"].sum(axis=1)
        returns += outcome.reward.sum(axis=1, dtype=np.float64)
        progress(t + 1)
    # [W, steps, 6, N] -> sums over steps and nodes
    played = keep[first[0] : first[0] + len(first) * steps]
    sums = played.reshape(len(first), steps, *keep.shape[1:]).sum(axis=(1, 3))  # [W, 6]
    named = {key: sums[:, place] for place, key in enumerate(COUNTS)}
    return {**named, "illegal_actions": illegal, "team_return": returns}


def _series(keep: Array, low: int) -> Series:
    width = -(-len(keep) // SERIES_POINTS)
    starts = np.arange(0, len(keep), width)
    sizes = np.diff(starts, append=len(keep))[:, None]
    means = {
        key: np.add.reduceat(keep[:, place], starts, axis=0) / sizes
        for place, key in enumerate(COUNTS)
    }
    return Series(rows=low + starts, width=width, counts=means)


# --- Scoring -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Best:
    """The optimum of some windows: K of them, by their place among all."""

    windows: list[int]
    method: str  # how it was found, or why it was not
    arrivals: Array  # float64 [K] requests
    optima: list[Optimum]
    node_steps: int  # nodes x steps of those windows

    def sum(self, what: str) -> float:
        return float(sum(getattr(optimum, what) for optimum in self.optima))


def _best(rules: DfaasRules, window: int, sampled: int, progress: Progress) -> Best:
    """The least cost of all windows where there is a closed form, else of some of them."""
    section = rules.trace.section(*rules.rows)
    assert section.capacity is not None  # the rules have seen to it
    limits: dict[str, Any] = {
        "queue": rules.queue,
        "link_limit": rules.link_limit,
        "links": rules.network.links,
    }
    costs = {"forward_cost": rules.forward_cost, "wait_cost": rules.wait_cost}
    starts = range(0, len(section), window)
    windows, method = list(range(len(starts))), "closed form"
    if not has_closed_form(**limits):
        whole = max(1, len(section) // window)
        spread = np.linspace(0, whole - 1, min(sampled, whole))
        windows, method = sorted(set(spread.round().astype(int).tolist())), "linear program"
    parts = [slice(starts[k], min(starts[k] + window, len(section))) for k in windows]
    optima = []
    for done, part in enumerate(parts):
        load, capacity = section.arrivals[part], section.capacity[part]
        try:
            optima.append(optimum(load, capacity, **limits, **costs))
        except MissingExtraError as error:
            return Best([], str(error), np.zeros(0), [], 0)
        progress("optimum", done + 1, len(parts))
    arrivals = np.array([section.arrivals[part].sum() for part in parts], dtype=np.float64)
    node_steps = sum(section.arrivals[part].size for part in parts)
    return Best(windows, method, arrivals, optima, node_steps)


def _score(policy: str, totals: Totals, rules: DfaasRules, best: Best, whole: int) -> Score:
    """A policy's row: shares and their intervals over all windows, returns over ``whole`` ones."""
    load, cost = totals.arrivals, totals.cost(rules.forward_cost, rules.wait_cost)
    served = totals.served_local + totals.served_remote
    every = max(1, int(load.sum()))
    served_range, cost_range = bootstrap_ratio(served, load), bootstrap_ratio(cost, load)
    returns = totals.team_return[:whole]
    return_range = bootstrap_ratio(returns, np.ones(whole))
    steps = rules.rows[1] - rules.rows[0]
    return Score(
        policy=policy,
        return_team=float(returns.mean()),
        low=return_range.low,
        high=return_range.high,
        episodes=len(load),
        illegal_actions=int(totals.illegal_actions.sum()),
        served=int(served.sum()) / every,
        served_low=served_range.low,
        served_high=served_range.high,
        lost=int(totals.lost.sum()) / every,
        forwarded=int(totals.forwarded.sum()) / every,
        mean_waiting=int(totals.waiting.sum()) / (steps * len(rules.agents)),
        cost=float(cost.sum()) / every,
        cost_low=cost_range.low,
        cost_high=cost_range.high,
        share_of_optimum=_share(load[best.windows], cost[best.windows], best),
    )


def _share(arrivals: Array, cost: Array, best: Best) -> float | None:
    """What a policy gains, arrivals - cost, over what the optimum gains in the same windows."""
    reachable = float(best.arrivals.sum()) - best.sum("cost")
    return float((arrivals - cost).sum()) / reachable if best.optima and reachable > 0 else None


def _optimum_score(best: Best) -> Score:
    """The optimum's row, over its own windows; what waits at a window's end counts as served."""
    load = max(1.0, float(best.arrivals.sum()))
    return Score(
        policy="optimum",
        return_team=None,
        low=None,
        high=None,
        episodes=len(best.windows),
        illegal_actions=0,
        served=1.0 - best.sum("lost") / load,
        served_low=None,
        served_high=None,
        lost=best.sum("lost") / load,
        forwarded=best.sum("forwarded") / load,
        mean_waiting=best.sum("waiting") / best.node_steps,
        cost=best.sum("cost") / load,
        cost_low=None,
        cost_high=None,
        share_of_optimum=1.0,
    )
