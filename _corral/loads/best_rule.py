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

__all__ = ["BestRule", "best_of_others", "correlated", "rule_of"]

CORRELATED, DOMINATED = 0.3, 0.15
"""Windows that correlate by more than this with the next ones, or of which one has more than this
part of all cost (of few windows: two and a half times its share), make intervals too narrow. How
often that is found, and what intervals then cover: benchmarks/loads/coverage.py."""


@dataclass(frozen=True)
class BestRule:
    """The best rule of each window, chosen on others."""

    labels: tuple[str, ...]  # [W]
    cost: Array  # float64 [W] requests
    chosen_on: str  # in words
    among: int = 1  # how many rules there were
    season: int = 1  # windows that many apart are of one kind, see ``evaluation.intervals``

    @property
    def names(self) -> list[str]:
        """The rules that were chosen, the most frequent first."""
        return sorted(dict.fromkeys(self.labels), key=lambda name: -self.labels.count(name))

    @property
    def lag_1(self) -> float | None:
        """The correlation of its cost in a window with that in the next; None: all are alike."""
        return lag_1(self.cost, self.season)

    @property
    def largest_part(self) -> float | None:
        """The largest window's part of all its cost; None where there is no cost."""
        return largest_part(self.cost)

    @property
    def dominated(self) -> bool:
        """Whether one window has so large a part of the cost that intervals are too narrow."""
        part = self.largest_part
        return part is not None and part > max(DOMINATED, 2.5 / len(self.cost))


def correlated(lag_1: float | None) -> bool:
    """Return whether windows are so much like the next ones that intervals are too narrow."""
    return lag_1 is not None and lag_1 > CORRELATED


def rule_of(costs: Mapping[str, Array], label: str, chosen_on: str, *, season: int = 1) -> BestRule:
    """Return one rule, that was chosen elsewhere, as the best of all windows.

    ``costs``: float64 [W] of each rule.
    """
    return BestRule((label,) * len(costs[label]), costs[label], chosen_on, len(costs), season)


def best_of_others(costs: Mapping[str, Array], *, season: int = 1) -> BestRule | None:
    """Return for each window the rule of least cost in all others (of equal ones the first); None
    for no rules, or fewer than two windows.

    ``costs``: float64 [W] of each rule.
    """
    labels = [*costs]
    table = np.array([costs[label] for label in labels])  # [rules, W]
    if table.size == 0 or table.shape[1] < 2:
        return None
    others = table.sum(axis=1, keepdims=True) - table
    best = others.argmin(axis=0)  # [W]
    cost = table[best, np.arange(table.shape[1])]
    named = tuple(labels[i] for i in best)
    return BestRule(named, cost, "all other windows", len(labels), season)
