"""The cost of rules in one window of a replay, step by step: all rules of a route at once."""

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
    """Return whether a rule goes by what the others reported."""
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
    """Return the cost of each step of the ``rows`` among ``changes``, requests of all nodes,
    float64 [T], by pair.

    ``episode`` is as of ``Again.play``. Raises ValueError for "random", which is no rule.
    """
    by_route: dict[Route, dict[str, PlainRule]] = {}
    for pair in pairs:
        rule = PlainRule.of(pair)
        if rule.amount == "random":
            raise ValueError(f"{pair}: what is drawn at random is no rule")
        by_route.setdefault(rule.route, {})[pair] = rule
    found: dict[str, Array] = {}
    for done, (route, listed) in enumerate(by_route.items()):
        one = again(result, f"local/{route}", **changes)
        one = dataclasses.replace(one, player=RulePlanner([*listed.values()]))
        low, high = one.rules.rows
        costs = np.zeros((len(listed), high - low))

        def keep(turn: Turn, rules: DfaasRules = one.rules, costs: Array = costs) -> None:
            costs[:, turn.t] = cost_of(rules, turn.step.info).sum(axis=1)

        one.play(np.zeros(len(listed), dtype=np.int64), high - low, keep, episode)
        found |= dict(zip(listed, costs, strict=True))
        show("post-mortem", done + 1, len(by_route))
    return found
