"""The best rule, which a team is measured against, and what each policy costs beside it.

A rule needs no training, but to take the best of thirteen is to choose, and what is chosen on the
days that it is then judged on looks better than it is. So the best rule is the one of least cost on
other days: those that teams were trained on, or, where only rules are replayed, for each window all
the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from corral.envs.core import Array
from corral.trainers.evaluation.intervals import lag_1, largest_part

__all__ = ["BestRule", "best_of_others", "rule_of"]

CORRELATED, DOMINATED = 0.3, 0.25
"""Windows whose costs correlate by more than this with the next ones', or of which one has more
than this part of all cost, make an interval too narrow: see benchmarks/coverage.py."""


@dataclass(frozen=True)
class BestRule:
    """The best rule of each window, chosen on others."""

    labels: tuple[str, ...]  # [W]
    cost: Array  # float64 [W] requests
    chosen_on: str  # in words

    @property
    def names(self) -> list[str]:
        """The rules that were chosen, the most frequent first."""
        return sorted(dict.fromkeys(self.labels), key=lambda name: -self.labels.count(name))

    @property
    def doubts(self) -> list[str]:
        """Reasons why an interval over these windows is too narrow."""
        correlation, part = lag_1(self.cost), largest_part(self.cost)
        found = []
        if correlation is not None and correlation > CORRELATED:
            found.append(f"the costs of windows next to each other correlate by {correlation:.2f}")
        if part is not None and part > max(DOMINATED, 2 / len(self.cost)):
            found.append(f"one window has {part:.0%} of all cost")
        return found


def rule_of(costs: Mapping[str, Array], chosen_on: str, label: str) -> BestRule:
    """Return one rule, that was chosen elsewhere, as the best of all windows."""
    return BestRule((label,) * len(costs[label]), costs[label], chosen_on)


def best_of_others(costs: Mapping[str, Array]) -> BestRule | None:
    """Return for each window the rule of least cost in all others; None for fewer than two windows.

    ``costs``: float64 [W] of each rule.
    """
    labels = [*costs]
    table = np.array([costs[label] for label in labels])  # [rules, W]
    if table.size == 0 or table.shape[1] < 2:
        return None
    others = table.sum(axis=1, keepdims=True) - table
    best = others.argmin(axis=0)  # [W]
    cost = table[best, np.arange(table.shape[1])]
    return BestRule(tuple(labels[i] for i in best), cost, "the other windows")
