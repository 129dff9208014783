"""Tests of scores: is one group of trainings better, and which of two groups is another one like?

Scores are compared by order, so that their distribution is arbitrary. A training that raises an
error has the score -inf.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["ALPHA", "LOOKS", "Boundary", "better", "rank_p"]

ALPHA = 0.05
"""Family-wise error: of all tests of the search together, and of the comparison of the pair."""

LOOKS = (4, 6, 8)
"""Seeds of each side at which the pair is compared, each at ALPHA / 3 (Bonferroni)."""

MAX_SEEDS = 12
"""Maximum number of seeds of a mixture; after that it is undecided."""


def rank_p(higher: Sequence[float], lower: Sequence[float]) -> float:
    """Return the exact one-sided p-value of the rank-sum test that ``higher`` scores are higher.

    All assignments of the pooled ranks to the groups are counted, so ties are exact as well
    (Lehmann, Nonparametrics, 1975, section 1.2).
    """
    pooled = np.array([*higher, *lower])
    ranks = (pooled[:, None] > pooled).sum(axis=1) + (pooled[:, None] >= pooled).sum(axis=1)
    observed = ranks[: len(higher)].sum()
    sums = [sum(group) for group in itertools.combinations(ranks.tolist(), len(higher))]
    return float(np.mean(np.array(sums) >= observed))


def better(good: Callable[[int], float], bad: Callable[[int], float]) -> tuple[bool, float, int]:
    """Compare two trainings at each of LOOKS until the first is significantly better.

    ``good(seed)`` and ``bad(seed)`` return scores. Return whether it is better, the last p-value,
    and the number of seeds.
    """
    for seeds in LOOKS:
        p = rank_p([good(seed) for seed in range(seeds)], [bad(seed) for seed in range(seeds)])
        if p <= ALPHA / len(LOOKS):
            return True, p, seeds
    return False, p, seeds


@dataclass
class Boundary:
    """Classifies mixtures as like the good or like the bad training, one seed at a time.

    A score is low if it is below ``cut``, the best boundary between the scores of both sides. The
    chance of a low score of each side is estimated by the rule of Krichevsky and Trofimov: half a
    low and half a high score are added. Wald's sequential test (1945) multiplies the ratios of
    these chances until one side is 1/a times as likely. By Ville's inequality the error is then at
    most a. Test k has a = ALPHA / (k (k + 1)); these sum to ALPHA,
    for any number of tests.
    """

    cut: float
    low_if_good: float
    low_if_bad: float
    tests: int = 0

    @classmethod
    def between(cls, good: Sequence[float], bad: Sequence[float]) -> Boundary:
        """Return the boundary with the fewest scores on the wrong side; the widest gap of those."""
        ordered = sorted({*good, *bad})
        cuts = [
            (sum(s >= cut for s in good) + sum(s < cut for s in bad), high - low, cut)
            for low, high in itertools.pairwise(ordered)
            for cut in [(low + high) / 2 if math.isfinite(low) else high]
        ]
        _, _, cut = max(cuts)
        chances = [(sum(s < cut for s in side) + 0.5) / (len(side) + 1) for side in (good, bad)]
        low_if_good, low_if_bad = chances
        return cls(cut, low_if_good, low_if_bad)

    def is_bad(self, score: Callable[[int], float]) -> bool | None:
        """Return whether ``score(0)``, ``score(1)``, ... are like the bad side; None: undecided."""
        self.tests += 1
        limit, evidence = math.log(self.tests * (self.tests + 1) / ALPHA), 0.0
        for seed in range(MAX_SEEDS):
            low = score(seed) < self.cut
            chances = [p if low else 1 - p for p in (self.low_if_bad, self.low_if_good)]
            evidence += math.log(chances[0] / chances[1])
            if abs(evidence) >= limit:
                return evidence > 0
        return None
