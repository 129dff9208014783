"""The best rule, with which each policy is compared.

A rule needs no training. But a rule chosen as the best of thirteen on some days looks better on
these days than it is. So the best rule is the one of least cost on other days: on the training days
of the teams, or, in a replay of rules only, on all other windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from corral.envs.core import Array
from corral.trainers.evaluation.intervals import lag_1, largest_part

__all__ = ["BestRule", "best_of_others", "correlated", "rule_of"]

CORRELATED, DOMINATED = 0.3, 0.15
"""Thresholds above which intervals are too narrow: the correlation of neighboring windows, and one
window's part of the total cost (for few windows: two and a half times its share). How often they
are exceeded, and the coverage of intervals then: benchmarks/loads/interval_coverage.py."""


@dataclass(frozen=True)
class BestRule:
    """The best rule of each window, chosen on other windows."""

    labels: tuple[str, ...]  # [W]
    cost: Array  # float64 [W] requests
    chosen_on: str  # description of the rows
    among: int = 1  # number of rules to choose from
    season: int = 1  # windows this far apart are of one kind, see ``evaluation.intervals``

    @property
    def names(self) -> list[str]:
        """The chosen rules, the most frequent first."""
        return sorted(dict.fromkeys(self.labels), key=lambda name: -self.labels.count(name))

    @property
    def lag_1(self) -> float | None:
        """The correlation of its cost in a window with that in the next; None: constant cost."""
        return lag_1(self.cost, self.season)

    @property
    def largest_part(self) -> float | None:
        """The largest window's part of the total cost; None if the total cost is 0."""
        return largest_part(self.cost)

    @property
    def dominated(self) -> bool:
        """Whether one window has so much of the cost that intervals are too narrow."""
        part = self.largest_part
        return part is not None and part > max(DOMINATED, 2.5 / len(self.cost))


def correlated(lag_1: float | None) -> bool:
    """Whether neighboring windows correlate so much that intervals are too narrow."""
    return lag_1 is not None and lag_1 > CORRELATED


def rule_of(costs: Mapping[str, Array], label: str, chosen_on: str, *, season: int = 1) -> BestRule:
    """Return a rule that was chosen on other rows as the best rule of all windows.

    ``costs``: float64 [W] of each rule.
    """
    return BestRule((label,) * len(costs[label]), costs[label], chosen_on, len(costs), season)


def best_of_others(costs: Mapping[str, Array], *, season: int = 1) -> BestRule | None:
    """Return for each window the rule of least cost in all other windows (of equal ones the first);
    None without rules, or for fewer than two windows.

    ``costs``: float64 [W] of each rule.
    """
    labels = [*costs]
    table = np.array([costs[label] for label in labels])  # [rules, W]
    if table.size == 0 or table.shape[1] < 2:
        return None
    other_windows = table.sum(axis=1, keepdims=True) - table
    best = other_windows.argmin(axis=0)  # [W]
    cost = table[best, np.arange(table.shape[1])]
    labels_by_window = tuple(labels[i] for i in best)
    return BestRule(labels_by_window, cost, "all other windows", len(labels), season)
