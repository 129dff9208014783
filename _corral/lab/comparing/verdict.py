"""Which of two groups of runs is better, where their numbers show it."""

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
    """Two groups: ``better`` is the one whose interquartile mean is higher, or the first."""

    better: str
    other: str
    found: Literal["better", "no difference", "too few seeds"]
    difference: float  # of interquartile means, 0 or more
    interval: Interval  # of the difference; (None, None) where there are too few seeds
    probability: float  # that a run of the better scores more than one of the other
    probability_interval: Interval
    p: float  # of the permutation test
    level: float  # of the intervals: 1 - 0.05 over the number of pairs
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
    """Return what scores ``a`` and ``b`` of two groups show, one of so many ``comparisons``.

    The first is better where all of this holds: there are enough seeds (``enough_seeds``), the
    interval of the difference of interquartile means leaves out 0, and the permutation test finds
    what is rarer than 5 in 100 among equals. The interval alone would claim too much: with few
    runs it is too narrow. Of several comparisons each must be surer (Bonferroni).
    """
    if difference(a, b) < 0:
        names, a, b = (names[1], names[0]), b, a
    alpha = (1 - LEVEL) / comparisons
    p = permutation_p(a, b, permutations=resamples, seed=seed)
    interval = chance = Interval(None, None)
    found: Literal["better", "no difference", "too few seeds"] = "too few seeds"
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
        found = "better" if interval.low > 0 and p <= alpha else "no difference"
    return Pair(
        better=names[0],
        other=names[1],
        found=found,
        difference=float(difference(a, b)),
        interval=interval,
        probability=float(probability_of_improvement(a, b)),
        probability_interval=chance,
        p=p,
        level=1 - alpha,
        runs=(len(a), len(b)),
    )


def pairs_of(scores: Mapping[str, Sequence[float]], *, seed: int = 0) -> list[Pair]:
    """Return every two groups, compared."""
    both = list(itertools.combinations(scores, 2))
    return [
        compared(names, scores[names[0]], scores[names[1]], comparisons=len(both), seed=seed)
        for names in both
    ]


def seeds_needed(level: float) -> int:
    """Return how many runs of each group can show a difference at that level."""
    return next(n for n in itertools.count(2) if enough_seeds(n, n, 1 - level))


def in_words(pairs: Sequence[Pair], ranked: Sequence[str]) -> str:
    """Return the verdict: what is known of the first of ``ranked`` groups beside each other one."""
    first = ranked[0]
    of_first = {
        pair.other if pair.better == first else pair.better: pair
        for pair in pairs
        if first in (pair.better, pair.other)
    }
    said = []
    better = [name for name, pair in of_first.items() if pair.found == "better"]
    if better:
        said.append(f"{first} is better than {_listed(better)}")
    same = [name for name, pair in of_first.items() if pair.found == "no difference"]
    if same:
        runs = sorted({n for name in same for n in of_first[name].runs})
        seeds = " to ".join(str(n) for n in dict.fromkeys([runs[0], runs[-1]]))
        said.append(
            f"between {first} and {_listed(same)} there is no difference that {seeds} seeds show"
        )
    few = [name for name, pair in of_first.items() if pair.found == "too few seeds"]
    if few:
        runs_of = {name: of_first[name].runs for name in few}
        mine = {n for name in few for n in _own(of_first[name], first)[:1]}
        counts = [f"{first} {max(mine)}"]
        counts += [f"{name} {_own(of_first[name], first)[1]}" for name in runs_of]
        said.append(
            f"too few seeds to tell {_listed([first, *few])} apart: {', '.join(counts)}; "
            f"{seeds_needed(of_first[few[0]].level)} each can show something"
        )
    text = "; ".join(said) + "."
    return text[0].upper() + text[1:] if not better else text


def _own(pair: Pair, first: str) -> tuple[int, int]:
    """Return how many runs ``first`` has in the pair, and the other one."""
    return pair.runs if pair.better == first else (pair.runs[1], pair.runs[0])


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
