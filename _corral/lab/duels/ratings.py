"""Ratings on Elo's scale from who won how often against whom, how sure they are, and cycles.

    table = np.zeros((3, 3, 3), dtype=int)  # [first, second, (won, drawn, lost by the first)]
    table[0, 1] = 700, 200, 100
    ratings = rate(["a", "b", "c"], table)
    cycles(["a", "b", "c"], table)

The model is Bradley and Terry's (Rank Analysis of Incomplete Block Designs, Biometrika 39, 1952): i
scores against j with probability 1 / (1 + 10 ** ((r_j - r_i) / 400)), and a draw is half a win.
Between each two players the fit counts ``PRIOR`` more games, drawn: who wins everything has a
finite rating. It is a fit to the matrix of points: all pairings weigh the same. One number for each
player can only describe play in which whoever beats somebody tends to beat whom that one beats;
where it does not, ``cycles`` says so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from corral.envs.core import Array, generator

__all__ = [
    "ELO",
    "PRIOR",
    "Rating",
    "cycles",
    "fit_ratings",
    "matrix_of",
    "points_intervals",
    "points_of",
    "rate",
    "unmeasured",
    "wilson",
]

ELO = 400 / math.log(10)
"""Points of Elo's scale in one unit of log odds: 400 points are odds of 10 to 1."""

PRIOR = 1.0
"""Drawn games that are added between each two players."""

RESAMPLES = 400
"""Tables that are drawn for an interval of ratings."""


@dataclass(frozen=True)
class Rating:
    """The rating of one player, and what it is computed from."""

    player: str
    rating: float  # on Elo's scale; the mean of all is 0, or that of the anchor is
    low: float | None  # 95 % bootstrap interval over episodes; None of an anchor
    high: float | None
    points: float  # mean per game: 1 won, 1/2 drawn, 0 lost
    won: int  # episodes against all others
    drawn: int
    lost: int


# --- Points --------------------------------------------------------------------------------------


def points_of(outcomes: npt.ArrayLike) -> tuple[Array, Array]:
    """Return points and games, float [..., P, P], of each player against each, both seats together.

    ``outcomes`` [..., P, P, 3] are games won, drawn and lost by who sits first, by who is first and
    who second; those of a player against itself do not count.
    """
    table = np.asarray(outcomes, dtype=np.float64)
    own = ~np.eye(table.shape[-2], dtype=bool)
    table = table * own[..., None]
    first = table[..., 0] + table[..., 1] / 2
    second = table[..., 2] + table[..., 1] / 2
    games = table.sum(axis=-1)
    return first + np.swapaxes(second, -1, -2), games + np.swapaxes(games, -1, -2)


def _resampled(
    outcomes: Array, resamples: int, rng: np.random.Generator, played: Array | None = None
) -> tuple[Array, Array]:
    """Return ``resamples`` tables like ``outcomes`` [..., 3], [R, ..., 3], and their mean.

    Within each pairing and seat order whole episodes are drawn with replacement, from those played
    and the prior's: half a game in each order, half of it won and half lost. Without these a
    pairing that was always won would seem to be sure for ever. With ``played``, see ``rate``, the
    same episodes are drawn in all pairings.
    """
    shares = np.asarray(outcomes) + PRIOR / 4 * np.array([1.0, 0.0, 1.0])
    shares /= shares.sum(axis=-1, keepdims=True)
    games = np.asarray(outcomes, dtype=np.int64).sum(axis=-1)
    drawn: Array = rng.multinomial(games, shares, size=(resamples, *games.shape))
    if played is not None:
        drawn = _together(drawn.astype(np.float64), played, games, rng)
    return drawn, shares * games[..., None]


def _together(drawn: Array, played: Array, games: Array, rng: np.random.Generator) -> Array:
    """Return the tables ``drawn`` with the same episodes in all pairings that count them all."""
    resamples, number = len(drawn), played.shape[-1]
    prior = PRIOR / 2 / (number + PRIOR / 2)  # what share of the draws is of the prior
    for rows in np.array_split(np.arange(resamples), -(-resamples * number // 4_000_000)):
        times = rng.multinomial(number, np.full(number, 1 / number), size=len(rows))
        weights = times.astype(np.float32)  # [R, E], sums are whole numbers
        for i, j in np.argwhere(games == number).tolist():
            own = weights @ (played[i, j][:, None] == np.arange(3)).astype(np.float32)
            added = rng.binomial(number, prior, size=len(rows))
            won = rng.binomial(added, 0.5)
            drawn[rows, i, j] = own * (1 - added / number)[:, None]
            drawn[rows, i, j] += np.stack([won, 0 * won, added - won], axis=1)
    return drawn


def points_intervals(
    outcomes: npt.ArrayLike, *, level: float = 0.95, resamples: int = 4000, seed: int = 0
) -> tuple[Array, Array]:
    """Return both ends [...] of bootstrap intervals of mean points, of ``outcomes`` [..., 3]."""
    table = np.asarray(outcomes)
    drawn, _ = _resampled(table, resamples, generator(seed, "eval"))
    games = np.maximum(1, table.sum(axis=-1))
    means = (drawn[..., 0] + drawn[..., 1] / 2) / games
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def wilson(count: float, games: float, z: float = 1.959964) -> tuple[float, float]:
    """Return Wilson's score interval of a share, ``count`` of ``games`` (JASA 22, 1927)."""
    share = count / games
    middle = share + z**2 / (2 * games)
    half = z * math.sqrt(share * (1 - share) / games + z**2 / (4 * games**2))
    scale = 1 + z**2 / games
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


# --- Ratings -------------------------------------------------------------------------------------


def matrix_of(outcomes: npt.ArrayLike, prior: float = PRIOR) -> tuple[Array, Array]:
    """Return the mean points of row against column, the prior among them, and the weight of each
    pairing in a fit: float [..., P, P].

    ``outcomes`` are as of ``points_of``. Both seat orders weigh the same, and all pairings that
    were played do: a pairing of few games is nearer to 1/2, by the prior, and counts as much.
    """
    table = np.asarray(outcomes, dtype=np.float64)
    number = table.shape[-2]
    own = ~np.eye(number, dtype=bool)
    games = table.sum(axis=-1) * own
    first = (table[..., 0] + table[..., 1] / 2 + prior / 4) / (games + prior / 2)
    second = 1 - np.swapaxes(first, -1, -2)
    orders, reverse = games > 0, np.swapaxes(games > 0, -1, -2)
    sums = np.where(orders, first, 0) + np.where(reverse, second, 0)
    number_of_orders = orders + reverse.astype(np.int64)
    means = np.where(number_of_orders > 0, sums / np.maximum(1, number_of_orders), 0.5)
    both = games + np.swapaxes(games, -1, -2)
    alone = prior / (both.max(initial=0.0) + prior)  # of the prior, where nobody played
    return means, np.where(number_of_orders > 0, 1.0, alone) * own


def fit_ratings(means: npt.ArrayLike, weights: npt.ArrayLike) -> Array:
    """Return ratings [..., P] of mean 0 on Elo's scale: the most likely ones.

    ``means`` [..., P, P] are the points of row against column, above 0 and below 1, ``weights``
    [..., P, P] how many games they stand for, in any unit. Leading axes are fits of their own.

    Newton's method. A step changes no difference by more than 1 unit of log odds: so far the second
    derivatives change at most e-fold, and each step gains.
    """
    weights = np.asarray(weights, dtype=np.float64)
    number = weights.shape[-1]
    logits = np.zeros(weights.shape[:-1])
    for _ in range(200):
        expected = 1 / (1 + np.exp(logits[..., None, :] - logits[..., :, None]))
        gradient = (weights * (np.asarray(means) - expected)).sum(axis=-1)
        slope = weights * expected * (1 - expected)
        # Ratings are free up to a constant: ones in every entry hold their mean at 0.
        hessian = np.eye(number) * slope.sum(axis=-1)[..., None] - slope + 1.0
        step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
        size = np.ptp(step, axis=-1, keepdims=True)
        logits += step / np.maximum(1.0, size)
        if size.max(initial=0.0) < 1e-10:
            break
    fitted: Array = ELO * (logits - logits.mean(axis=-1, keepdims=True))
    return fitted


def rate(
    players: Sequence[str],
    outcomes: npt.ArrayLike,
    *,
    counted: npt.ArrayLike | None = None,
    played: Array | None = None,
    anchor: str | None = None,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Rating]:
    """Return the ratings of P ``players``, best first.

    Args:
        outcomes: int [P, P, 3], see ``points_of``.
        counted: the same as the fit counts them: a pairing whose episodes are all one and the same
            is one game. Default: ``outcomes``.
        played: int [P, P, E], what each of E episodes was for who sits first: 0 won, 1 drawn, 2
            lost; where all pairings met the same ones. The luck of an episode is then in all of
            them: opponents that are alike tell little more than one of them. Default: pairings
            have episodes of their own.
        anchor: the player whose rating is 0; None: the mean of all is.
        resamples: tables drawn for the intervals; the ratings are fitted to each.

    Raises ValueError for fewer than two players, and an anchor that is none of them.
    """
    if len(players) < 2:
        raise ValueError(f"players={list(players)}: give two or more")
    if anchor is not None and anchor not in players:
        raise ValueError(f"anchor={anchor!r}: give one of {', '.join(players)}")
    others = ~np.eye(len(players), dtype=bool)[..., None]
    table = np.asarray(outcomes) * others
    used = table if counted is None else np.asarray(counted) * others
    drawn, mean = _resampled(used, resamples, generator(seed, "eval"), played)
    fitted, fits = fit_ratings(*matrix_of(used)), fit_ratings(*matrix_of(drawn))  # [P], [R, P]
    # The prior is in the draws and in the fit: by how much it pulls twice is known, and undone.
    fits = fits + fitted - fit_ratings(*matrix_of(mean))
    if anchor is not None:
        zero = list(players).index(anchor)
        fitted, fits = fitted - fitted[zero], fits - fits[:, zero, None]
    low, high = np.quantile(fits, [(1 - level) / 2, (1 + level) / 2], axis=0)
    counts = table.sum(axis=1) + table.sum(axis=0)[:, ::-1]  # [P, 3] as first and as second
    found = []
    for i, player in enumerate(players):
        won, drew, lost = counts[i].tolist()
        points = (won + drew / 2) / max(1, won + drew + lost)
        one = Rating(
            player, float(fitted[i]), float(low[i]), float(high[i]), points, won, drew, lost
        )
        found.append(replace(one, low=None, high=None) if player == anchor else one)
    return sorted(found, key=lambda each: -each.rating)


def unmeasured(players: Sequence[str], outcomes: npt.ArrayLike) -> tuple[list[str], list[str]]:
    """Return (above, below): players of whom the second took nothing off the first, not even by way
    of others; both are empty where there are none such.

    The games alone put no bound on how far the first are above the others (L. R. Ford, Solution of
    a Ranking Problem from Binary Comparisons, 1957): the prior does.
    """
    points, _ = points_of(outcomes)
    reach = (points > 0) | np.eye(len(players), dtype=bool)  # i took something off j
    for k in range(len(players)):
        reach |= reach[:, k, None] & reach[k]
    lacking = [reach[:, i] for i in np.argsort(-reach.sum(axis=1), kind="stable")]
    for ever in lacking:  # who ever took something off the strongest
        if not ever.all():
            above = [name for name, each in zip(players, ever, strict=True) if each]
            return above, [name for name in players if name not in above]
    return [], []


# --- Cycles --------------------------------------------------------------------------------------


def cycles(
    players: Sequence[str], outcomes: npt.ArrayLike, *, level: float = 0.95, seed: int = 0
) -> list[tuple[str, ...]]:
    """Return cycles of ``players``: each beats the next, and the last beats the first.

    One beats another where the bootstrap interval of its points against it, both seats together,
    lies above 1/2. Of many players some pairs look unequal by chance: intervals are wider then, so
    that players that are alike hardly ever are a cycle. ``outcomes`` are as of ``points_of``. Every
    cycle of three is returned; of longer ones the shortest through each pair that is in none of
    these. Where there is one, no single number says who is better.
    """
    # Of P players that are alike each is above (1 - level) / 2 * P others; cycles come up where
    # that is near 1, and seldom below 0.4.
    level = max(level, 1 - 0.8 / len(players))
    beats = _beats(np.asarray(outcomes), level, seed)
    found: dict[tuple[int, ...], None] = {}
    for i, j, k in itertools.permutations(range(len(players)), 3):
        if i < min(j, k) and beats[i, j] and beats[j, k] and beats[k, i]:
            found[i, j, k] = None
    covered = {pair for cycle in found for pair in _pairs(cycle)}
    for i, j in np.argwhere(beats).tolist():
        if (i, j) not in covered and (back := _shortest(beats, j, i)):
            start = back.index(min(back))
            cycle = (*back[start:], *back[:start])
            covered |= set(_pairs(cycle))
            found[cycle] = None
    return [tuple(players[i] for i in cycle) for cycle in found]


def _beats(outcomes: Array, level: float, seed: int) -> Array:
    """Return bool [P, P]: whether row surely beats column."""
    drawn, _ = _resampled(outcomes, 1000, generator(seed, "eval"))
    points, games = points_of(drawn)  # [R, P, P]
    low = np.quantile(points / np.maximum(1, games), (1 - level) / 2, axis=0)
    beats: Array = (low > 0.5) & (games[0] > 0)
    return beats


def _pairs(cycle: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(itertools.pairwise([*cycle, cycle[0]]))


def _shortest(beats: Array, start: int, goal: int) -> list[int]:
    """Return the shortest way from ``start`` to ``goal``, both included; empty: there is none."""
    ways, seen = [[start]], {start}
    for way in ways:  # grows meanwhile
        if way[-1] == goal:
            return way
        for after in np.flatnonzero(beats[way[-1]]).tolist():
            if after not in seen:
                seen.add(after)
                ways.append([*way, after])
    return []
