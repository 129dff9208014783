"""The figures of a replay: what a policy is measured by, beside the optimum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.optimum import Optimum, has_closed_form, optimum
from corral.errors import MissingExtraError
from corral.trainers.evaluation.episodes import bootstrap_ratio
from corral.trainers.evaluation.judge import Progress

__all__ = ["Best", "Score", "Totals", "best_of", "optimum_score", "score_of"]


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
class Score:
    """One row of the table. Fractions are of all arrivals unless they say otherwise."""

    policy: str
    mode: str  # "greedy", "sampled"; "" for reference policies and the optimum
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
class Best:
    """The optimum of some windows: K of them, by their place among all."""

    windows: list[int]
    method: str  # how it was found, or why it was not
    arrivals: Array  # float64 [K] requests
    optima: list[Optimum]
    node_steps: int  # nodes x steps of those windows

    def sum(self, what: str) -> float:
        return float(sum(getattr(optimum, what) for optimum in self.optima))


def best_of(rules: DfaasRules, window: int, sampled: int, progress: Progress) -> Best:
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


def score_of(
    policy: str, mode: str, totals: Totals, rules: DfaasRules, best: Best, whole: int
) -> Score:
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
        mode=mode,
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


def optimum_score(best: Best) -> Score:
    """The optimum's row, over its own windows; what waits at a window's end counts as served."""
    load = max(1.0, float(best.arrivals.sum()))
    return Score(
        policy="optimum",
        mode="",
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
