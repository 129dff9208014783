"""The scores of a replay: each policy compared with the optimum and the best rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.optimum import Optimum, has_closed_form, optimum
from corral.envs.episode_stats import EndedEpisodes
from corral.errors import MissingExtraError
from corral.loads.best_rule import BestRule
from corral.progress import Progress
from corral.trainers.evaluation.intervals import difference_interval, lag_1, share_interval

__all__ = ["Best", "Score", "WindowSums", "best_of", "optimum_score", "ordered", "score_of"]


@dataclass(frozen=True, kw_only=True)
class Score:
    """One row of the table. Fractions are of all arrivals, unless stated otherwise."""

    policy: str
    mode: str  # "greedy", "sampled"; "" for reference policies and the optimum
    return_team: float | None = None  # mean over whole windows of the sum of all agents' rewards
    low: float | None = None  # 95 % interval of return_team over whole windows
    high: float | None = None
    returns: dict[str, float] = field(default_factory=dict)  # of each agent; empty for the optimum
    episodes: int  # windows played
    illegal_actions: int
    served: float
    served_low: float | None = None  # 95 % interval of served over all windows
    served_high: float | None = None
    lost: float
    forwarded: float
    mean_waiting: float  # requests per node and step
    cost: float  # lost + forward_cost * forwarded + wait_cost * waiting
    cost_low: float | None = None
    cost_high: float | None = None
    lost_per_window: float | None = None  # requests, scaled to the steps of a whole window
    cost_per_window: float | None = None
    difference: float | None = None
    """``cost`` minus that of the best rule in the same windows, see ``loads.best_rule``."""
    difference_low: float | None = None  # 95 % interval of the paired difference
    difference_high: float | None = None
    difference_lag_1: float | None = None  # correlation of the difference with the next window's
    share_of_optimum: float | None
    """Gain (arrivals - cost) of the policy over the optimum's, in the windows of the optimum."""
    cost_in_optimum_windows: float | None = None
    """``cost`` in the windows of the optimum, as a share of their arrivals."""
    lost_by_node: dict[str, float] = field(default_factory=dict)
    """Share of each node's own arrivals that was lost, at any node; empty for the optimum."""
    forwarded_by_node: dict[str, float] = field(default_factory=dict)  # the same for offers
    mean_wait: float | None = None  # steps that served requests waited; None without a queue
    p95_wait: int | None = None  # steps within which 95 % of the served requests were served
    mean_wait_s: float | None = None  # the same in seconds, if the trace has a clock
    p95_wait_s: float | None = None


def ordered(scores: Iterable[Score]) -> list[Score]:
    """Return the scores sorted by cost, lowest first; the optimum last."""
    return sorted(scores, key=lambda score: (score.policy == "optimum", score.cost))


@dataclass(frozen=True)
class Best:
    """The optimum of K windows, with their numbers."""

    windows: list[int]
    method: str  # of the optimum, or the reason for its absence
    arrivals: Array  # float64 [K] requests
    optima: list[Optimum]
    node_steps: int  # nodes x steps of these windows

    def sum(self, what: str) -> float:
        return float(sum(getattr(optimum, what) for optimum in self.optima))


def best_of(rules: DfaasRules, window: int, sampled: int, progress: Progress) -> Best:
    """Return the least cost of all windows if there is a closed form, else of ``sampled`` windows
    by linear programs."""
    section = rules.trace.section(*rules.rows)
    assert section.capacity is not None  # checked by the rules
    limits: dict[str, Any] = {
        "queue": rules.queue,
        "link_limit": rules.link_limit,
        "links": rules.network.links,
    }
    starts = range(0, len(section), window)
    windows, method = list(range(len(starts))), "closed form"
    if not (sampled or has_closed_form(**limits)):
        return Best([], "not requested", np.zeros(0), [], 0)
    if not has_closed_form(**limits):
        method = "linear program"
        if sampled < len(starts):  # whole windows; a shorter last one has less weight
            whole = max(1, len(section) // window)
            spread = np.linspace(0, whole - 1, min(sampled, whole))
            windows = sorted(set(spread.round().astype(int).tolist()))
    parts = [slice(starts[k], min(starts[k] + window, len(section))) for k in windows]
    optima = []
    for done, part in enumerate(parts):
        load, capacity = section.arrivals[part], section.capacity[part]
        try:
            best = optimum(
                load,
                capacity,
                forward_cost=rules.forward_cost,
                wait_cost=rules.wait_cost,
                **limits,
            )
            optima.append(best)
        except MissingExtraError as error:
            return Best([], str(error), np.zeros(0), [], 0)
        progress("optimum", done + 1, len(parts))
    arrivals = np.array([section.arrivals[part].sum() for part in parts], dtype=np.float64)
    node_steps = sum(section.arrivals[part].size for part in parts)
    return Best(windows, method, arrivals, optima, node_steps)


@dataclass(frozen=True)
class WindowSums:
    """Requests of a policy in each window, summed over steps and nodes: [W]."""

    arrivals: Array
    served: Array
    lost: Array
    forwarded: Array
    waiting: Array
    cost: Array  # float64
    illegal_actions: Array

    @classmethod
    def of(cls, played: EndedEpisodes, rules: DfaasRules) -> WindowSums:
        sums = {key: values.sum(axis=1) for key, values in played.infos.items()}  # int64 [W]
        amounts, load = rules.shares(sums)
        counts = {name: sums[name] for name in ("waiting", "illegal_actions")}
        return cls(arrivals=load, **amounts, **counts)


def score_of(
    policy: str,
    mode: str,
    played: EndedEpisodes,
    scale: float,
    sums: WindowSums,
    best: Best,
    whole: int,
    rule: BestRule | None,
    season: int,
) -> Score:
    """Return a policy's row for the W windows ``played``.

    Shares and their intervals are over all windows, returns over the first ``whole`` ones, scaled
    by ``scale``. Windows ``season`` apart are of one kind.
    """
    returns = played.returns.sum(axis=1) * scale  # [W] of the team
    agent_returns = played.returns[:whole].mean(axis=0) * scale
    load, cost = sums.arrivals, sums.cost
    every = max(1, int(load.sum()))
    # The share that is not served is small, and its interval must not go below 0.
    missed = share_interval(load - sums.served, load, season=season)
    low, high = difference_interval(returns[:whole], np.ones(whole), season=season)
    cost_low, cost_high = share_interval(cost, load, season=season)
    windows = float(played.lengths.sum()) / int(played.lengths.max())
    return Score(
        policy=policy,
        mode=mode,
        return_team=float(returns[:whole].mean()),
        low=low,
        high=high,
        returns=dict(zip(played.agents, agent_returns.tolist(), strict=True)),
        episodes=len(load),
        illegal_actions=int(sums.illegal_actions.sum()),
        served=int(sums.served.sum()) / every,
        served_low=None if missed.high is None else max(0.0, 1 - missed.high),
        served_high=None if missed.low is None else 1 - missed.low,
        lost=int(sums.lost.sum()) / every,
        forwarded=int(sums.forwarded.sum()) / every,
        mean_waiting=int(sums.waiting.sum()) / (int(played.lengths.sum()) * len(played.agents)),
        cost=float(cost.sum()) / every,
        cost_low=cost_low,
        cost_high=cost_high,
        lost_per_window=float(sums.lost.sum()) / windows,
        cost_per_window=float(cost.sum()) / windows,
        **_beside(cost, load, rule, season),
        share_of_optimum=_share(load[best.windows], cost[best.windows], best),
        cost_in_optimum_windows=(
            float(cost[best.windows].sum()) / max(1.0, float(best.arrivals.sum()))
            if best.optima
            else None
        ),
        lost_by_node=_by_node(played, "lost"),
        forwarded_by_node=_by_node(played, "forwarded"),
    )


def _beside(cost: Array, load: Array, rule: BestRule | None, season: int) -> dict[str, Any]:
    """Return the cost of a policy above that of the best rule in the same windows [W]."""
    if rule is None:
        return {}
    excess = cost - rule.cost
    low, high = difference_interval(excess, load, season=season)
    ends = {"difference_low": low, "difference_high": high}
    share = float(excess.sum()) / max(1, int(load.sum()))
    return {"difference": share, **ends, "difference_lag_1": lag_1(excess, season)}


def _by_node(played: EndedEpisodes, what: str) -> dict[str, float]:
    """Return the sum of ``what`` of each node over all windows, as a share of its arrivals."""
    load, part = (played.infos[key].sum(axis=0) for key in ("arrivals", what))  # int64 [N]
    return dict(zip(played.agents, (part / np.maximum(load, 1)).tolist(), strict=True))


def _share(arrivals: Array, cost: Array, best: Best) -> float | None:
    """Return a policy's gain (arrivals - cost) over the optimum's gain in the same windows."""
    reachable = float(best.arrivals.sum()) - best.sum("cost")
    return float((arrivals - cost).sum()) / reachable if best.optima and reachable > 0 else None


def optimum_score(best: Best) -> Score:
    """Return the optimum's row for its windows; requests waiting at their end count as served."""
    load = max(1.0, float(best.arrivals.sum()))
    return Score(
        policy="optimum",
        mode="",
        episodes=len(best.windows),
        illegal_actions=0,
        served=1.0 - best.sum("lost") / load,
        lost=best.sum("lost") / load,
        forwarded=best.sum("forwarded") / load,
        mean_waiting=best.sum("waiting") / best.node_steps,
        cost=best.sum("cost") / load,
        share_of_optimum=1.0,
        cost_in_optimum_windows=best.sum("cost") / load,
    )
