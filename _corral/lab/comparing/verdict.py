"""Decide which of two groups of runs is better."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from corral.lab.comparing.statistics import (
    LEVEL,
    RESAMPLES,
    bootstrap_interval,
    difference,
    enough_seeds,
    permutation_p,
    probability_of_improvement,
)
from corral.trainers.evaluation.episodes import Interval

__all__ = ["Pair", "compared", "in_words", "pairs_of", "seeds_needed"]


@dataclass(frozen=True)
class Pair:
    """A comparison of two groups. ``better`` has the higher interquartile mean, or is the first."""

    better: str
    other: str
    found: Literal["better", "no difference", "too few seeds"]
    difference: float  # of interquartile means, 0 or more
    interval: Interval  # of the difference; (None, None) for too few seeds
    probability: float  # that a run of ``better`` scores higher than a run of ``other``
    probability_interval: Interval
    p: float  # of the permutation test
    level: float  # confidence of the intervals: 1 - 0.05 / number of pairs
    runs: tuple[int, int]


def compared(
    names: tuple[str, str],
    a: Sequence[float],
    b: Sequence[float],
    *,
    comparisons: int = 1,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Pair:
    """Return the comparison of scores ``a`` and ``b`` of two groups.

    A group is better if three conditions hold. There are enough seeds (``enough_seeds``). The
    interval of the difference of interquartile means excludes 0. The p-value of the permutation
    test is at most 0.05. The interval alone is not sufficient, because it is too narrow with few
    runs. For several ``comparisons``, both levels are corrected (Bonferroni).
    """
    if difference(a, b) < 0:
        names, a, b = (names[1], names[0]), b, a
    alpha = (1 - LEVEL) / comparisons
    p = permutation_p(a, b, permutations=resamples, seed=seed)
    interval = chance = Interval(None, None)
    result: Literal["better", "no difference", "too few seeds"] = "too few seeds"
    if enough_seeds(len(a), len(b), alpha):
        interval = bootstrap_interval(
            a, b, statistic=difference, level=1 - alpha, resamples=resamples, seed=seed
        )
        chance = bootstrap_interval(
            a,
            b,
            statistic=probability_of_improvement,
            level=1 - alpha,
            resamples=resamples,
            seed=seed,
        )
        assert interval.low is not None
        result = "better" if interval.low > 0 and p <= alpha else "no difference"
    return Pair(
        better=names[0],
        other=names[1],
        found=result,
        difference=float(difference(a, b)),
        interval=interval,
        probability=float(probability_of_improvement(a, b)),
        probability_interval=chance,
        p=p,
        level=1 - alpha,
        runs=(len(a), len(b)),
    )


def pairs_of(scores: Mapping[str, Sequence[float]], *, seed: int = 0) -> list[Pair]:
    """Return the comparisons of all pairs of groups."""
    pairs = list(itertools.combinations(scores, 2))
    return [
        compared(names, scores[names[0]], scores[names[1]], comparisons=len(pairs), seed=seed)
        for names in pairs
    ]


def seeds_needed(level: float) -> int:
    """Return the smallest number of runs per group that can show a difference at a level."""
    return next(n for n in itertools.count(2) if enough_seeds(n, n, 1 - level))


def in_words(pairs: Sequence[Pair], ranked: Sequence[str]) -> str:
    """Return the verdict: the first of ``ranked`` groups compared with each other group."""
    first = ranked[0]
    of_first = {
        pair.other if pair.better == first else pair.better: pair
        for pair in pairs
        if first in (pair.better, pair.other)
    }
    sentences = []
    better = [name for name, pair in of_first.items() if pair.found == "better"]
    if better:
        sentences.append(f"{first} is better than {_listed(better)}")
    same = [name for name, pair in of_first.items() if pair.found == "no difference"]
    if same:
        runs = sorted({n for name in same for n in of_first[name].runs})
        seeds = " to ".join(str(n) for n in dict.fromkeys([runs[0], runs[-1]]))
        sentences.append(
            f"no significant difference between {first} and {_listed(same)} with {seeds} seeds"
        )
    few = [name for name, pair in of_first.items() if pair.found == "too few seeds"]
    if few:
        runs_of = {name: of_first[name].runs for name in few}
        first_counts = {n for name in few for n in _run_counts(of_first[name], first)[:1]}
        counts = [f"{first} {max(first_counts)}"]
        counts += [f"{name} {_run_counts(of_first[name], first)[1]}" for name in runs_of]
        sentences.append(
            f"too few seeds to compare {_listed([first, *few])}: {', '.join(counts)}; use at "
            f"least {seeds_needed(of_first[few[0]].level)} each"
        )
    text = "; ".join(sentences) + "."
    return text[0].upper() + text[1:] if not better else text


def _run_counts(pair: Pair, first: str) -> tuple[int, int]:
    """Return the number of runs of ``first``, and of the other group of the pair."""
    return pair.runs if pair.better == first else (pair.runs[1], pair.runs[0])


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
