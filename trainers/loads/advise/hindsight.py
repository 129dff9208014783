"""What each rule costs in one window of a replay, step by step: all amounts of a route at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0 import DfaasRules, Route
from corral.envs.dfaas_v0.arguments import cost_of
from corral.envs.dfaas_v0.baselines import Baseline, split_pair
from corral.progress import Progress
from corral.trainers.evaluation.episodes import Turn
from corral.trainers.evaluation.players import Player
from corral.trainers.loads.advise.again import again
from corral.trainers.loads.replay import Replay

__all__ = ["costs_of_rules", "reads_reports"]


def reads_reports(pair: str) -> bool:
    """Return whether a rule goes by what the others reported."""
    amount, route = split_pair(pair)
    return route not in ("equal", "capacity") or amount.endswith("margin")


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
    by_route: dict[Route, list[str]] = {}
    for pair in pairs:
        amount, route = split_pair(pair)
        if amount == "random":
            raise ValueError(f"{pair}: what is drawn at random is no rule")
        by_route.setdefault(route, []).append(pair)
    found: dict[str, Array] = {}
    for done, (route, listed) in enumerate(by_route.items()):
        one = again(result, f"local/{route}", **changes)
        policy = _Each([split_pair(pair)[0] for pair in listed], one.rules)
        one = dataclasses.replace(one, player=Player(dict.fromkeys(one.rules.agents, policy)))
        low, high = one.rules.rows
        costs = np.zeros((len(listed), high - low))

        def keep(turn: Turn, rules: DfaasRules = one.rules, costs: Array = costs) -> None:
            costs[:, turn.t] = cost_of(rules, turn.step.info).sum(axis=1)

        one.play(np.zeros(len(listed), dtype=np.int64), high - low, keep, episode)
        found |= dict(zip(listed, costs, strict=True))
        show("post-mortem", done + 1, len(by_route))
    return found


class _Each(Baseline):
    """One amount in each of so many environments side by side."""

    memory = 0  # one policy of all nodes, asked for all of them at once

    def __init__(self, amounts: Sequence[str], rules: DfaasRules) -> None:
        super().__init__(amounts[0], rules)
        self.each = [Baseline(amount, rules) for amount in amounts]

    def _forwarded(self, features: Array) -> Array:
        """Return the requests of [B, F], or of all nodes of the first environment, the second, ...:
        [B * N, F]."""
        parts = zip(self.each, np.split(features, len(self.each)), strict=True)
        return np.concatenate([one._forwarded(part) for one, part in parts])
