"""Compute the cost of rules in each step of one window of a replay."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0 import DfaasRules, Route
from corral.envs.dfaas_v0.arguments import cost_of
from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.envs.dfaas_v0.planned import RulePlanner
from corral.loads.advise.again import again
from corral.loads.replay import Replay
from corral.progress import Progress
from corral.trainers.evaluation.episodes import Turn

__all__ = ["costs_of_rules", "reads_reports"]


def reads_reports(pair: str) -> bool:
    """Whether a rule uses the reports of other nodes."""
    rule = PlainRule.of(pair)
    margin = rule.margin is not None or rule.amount.endswith("margin")
    return margin or rule.route not in ("equal", "capacity", "weighted")


def costs_of_rules(
    result: Replay,
    pairs: Sequence[str],
    episode: tuple[int, int],
    show: Progress,
    **changes: Any,
) -> dict[str, Array]:
    """Return the cost of each step, float64 [T], by pair: requests summed over all nodes.

    ``changes`` must contain ``rows``. ``episode`` is as for ``Again.play``. Raises ValueError for
    "random", which draws its actions.
    """
    by_route: dict[Route, dict[str, PlainRule]] = {}
    for pair in pairs:
        rule = PlainRule.of(pair)
        if rule.amount == "random":
            raise ValueError(f"{pair}: random actions are not a rule; pass deterministic rules")
        by_route.setdefault(rule.route, {})[pair] = rule
    costs_by_pair: dict[str, Array] = {}
    for done, (route, route_rules) in enumerate(by_route.items()):
        entry = again(result, f"local/{route}", **changes)
        entry = dataclasses.replace(entry, player=RulePlanner([*route_rules.values()]))
        low, high = entry.rules.rows
        costs = np.zeros((len(route_rules), high - low))

        def keep(turn: Turn, rules: DfaasRules = entry.rules, costs: Array = costs) -> None:
            costs[:, turn.t] = cost_of(rules, turn.step.info).sum(axis=1)

        entry.play(np.zeros(len(route_rules), dtype=np.int64), high - low, keep, episode)
        costs_by_pair |= dict(zip(route_rules, costs, strict=True))
        show("post-mortem", done + 1, len(by_route))
    return costs_by_pair
