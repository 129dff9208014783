"""Ratings on the Elo scale from game counts, with intervals, and cycles of players.

    table = np.zeros((3, 3, 3), dtype=int)  # [first, second, (won, drawn, lost by the first)]
    table[0, 1] = 700, 200, 100
    ratings = rate(["a", "b", "c"], table)
    cycles(["a", "b", "c"], table)

The model is Bradley and Terry's (Rank Analysis of Incomplete Block Designs, Biometrika 39, 1952): i
scores against j with probability 1 / (1 + 10 ** ((r_j - r_i) / 400)), and a draw is half a win.
The fit adds ``PRIOR`` drawn games between each two players, so that ratings are finite for a player
that wins every game. The model is fitted to the matrix of points, and all pairings have the same
weight. Ratings describe a game well only if beating is transitive. ``cycles`` reports exceptions.
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
"""Points on the Elo scale per unit of log odds: 400 points are odds of 10 to 1."""

PRIOR = 1.0
"""Number of drawn games added between each two players."""

RESAMPLES = 400
"""Number of resampled tables for the intervals of ratings."""


@dataclass(frozen=True)
class Rating:
    """The rating of a player, and the results that it is based on."""

    player: str
    rating: float  # on the Elo scale; the mean of all ratings, or the anchor's rating, is 0
    low: float | None  # 95 % bootstrap interval over episodes; None for the anchor
    high: float | None
    points: float  # mean per game: 1 won, 1/2 drawn, 0 lost
    won: int  # episodes against all others
    drawn: int
    lost: int


# --- Points --------------------------------------------------------------------------------------


def points_of(outcomes: npt.ArrayLike) -> tuple[Array, Array]:
    """Return points and games, float [..., P, P], of each player against each, over both seats.

    ``outcomes`` [..., P, P, 3] are games won, drawn and lost by the first player, indexed by first
    and second player. Games of a player against itself are ignored.
    """
    table = np.asarray(outcomes, dtype=np.float64)
    off_diagonal = ~np.eye(table.shape[-2], dtype=bool)
    table = table * off_diagonal[..., None]
    first = table[..., 0] + table[..., 1] / 2
    second = table[..., 2] + table[..., 1] / 2
    games = table.sum(axis=-1)
    return first + np.swapaxes(second, -1, -2), games + np.swapaxes(games, -1, -2)


def _resampled(
    outcomes: Array, resamples: int, rng: np.random.Generator, played: Array | None = None
) -> tuple[Array, Array]:
    """Return ``resamples`` tables like ``outcomes`` [..., 3], as [R, ..., 3], and their mean.

    Within each pairing and seat order, whole episodes are resampled with replacement, together
    with the prior: half a game per order, half won and half lost. Without the prior, a pairing with
    only wins would have an interval of width 0. With ``played``, see ``rate``, all pairings
    resample the same episodes.
    """
    shares = np.asarray(outcomes) + PRIOR / 4 * np.array([1.0, 0.0, 1.0])
    shares /= shares.sum(axis=-1, keepdims=True)
    games = np.asarray(outcomes, dtype=np.int64).sum(axis=-1)
    drawn: Array = rng.multinomial(games, shares, size=(resamples, *games.shape))
    if played is not None:
        drawn = _same_episodes(drawn.astype(np.float64), played, games, rng)
    return drawn, shares * games[..., None]


def _same_episodes(drawn: Array, played: Array, games: Array, rng: np.random.Generator) -> Array:
    """Return ``drawn`` with the same resampled episodes in all pairings with the full count."""
    resamples, number = len(drawn), played.shape[-1]
    prior = PRIOR / 2 / (number + PRIOR / 2)  # share of the prior in the resamples
    for rows in np.array_split(np.arange(resamples), -(-resamples * number // 4_000_000)):
        times = rng.multinomial(number, np.full(number, 1 / number), size=len(rows))
        weights = times.astype(np.float32)  # [R, E], sums are whole numbers
        for i, j in np.argwhere(games == number).tolist():
            resampled = weights @ (played[i, j][:, None] == np.arange(3)).astype(np.float32)
            added = rng.binomial(number, prior, size=len(rows))
            won = rng.binomial(added, 0.5)
            drawn[rows, i, j] = resampled * (1 - added / number)[:, None]
            drawn[rows, i, j] += np.stack([won, 0 * won, added - won], axis=1)
    return drawn


def points_intervals(
    outcomes: npt.ArrayLike, *, level: float = 0.95, resamples: int = 4000, seed: int = 0
) -> tuple[Array, Array]:
    """Return the lower and upper end [...] of bootstrap intervals of mean points.

    ``outcomes`` are [..., 3].
    """
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
    """Return the mean points of row against column with the prior, and the weights of the pairings.

    Both are float [..., P, P]; ``outcomes`` are as in ``points_of``. Both seat orders, and all
    pairings that were played, have the same weight. The prior moves the mean of a pairing with few
    games closer to 1/2.
    """
    table = np.asarray(outcomes, dtype=np.float64)
    number = table.shape[-2]
    off_diagonal = ~np.eye(number, dtype=bool)
    games = table.sum(axis=-1) * off_diagonal
    first = (table[..., 0] + table[..., 1] / 2 + prior / 4) / (games + prior / 2)
    second = 1 - np.swapaxes(first, -1, -2)
    orders, reverse = games > 0, np.swapaxes(games > 0, -1, -2)
    sums = np.where(orders, first, 0) + np.where(reverse, second, 0)
    number_of_orders = orders + reverse.astype(np.int64)
    means = np.where(number_of_orders > 0, sums / np.maximum(1, number_of_orders), 0.5)
    both = games + np.swapaxes(games, -1, -2)
    # The weight of the prior alone, for pairings without games.
    prior_weight = prior / (both.max(initial=0.0) + prior)
    return means, np.where(number_of_orders > 0, 1.0, prior_weight) * off_diagonal


def fit_ratings(means: npt.ArrayLike, weights: npt.ArrayLike) -> Array:
    """Return the maximum-likelihood ratings [..., P] on the Elo scale, with mean 0.

    ``means`` [..., P, P] are the points of row against column, strictly between 0 and 1.
    ``weights`` [..., P, P] are the numbers of games behind them, in any unit. Leading axes are
    independent fits.

    Uses Newton's method. A step changes each difference by at most 1 unit of log odds. In this
    range the second derivatives change at most by a factor of e, so each step improves the fit.
    """
    weights = np.asarray(weights, dtype=np.float64)
    number = weights.shape[-1]
    logits = np.zeros(weights.shape[:-1])
    for _ in range(200):
        expected = 1 / (1 + np.exp(logits[..., None, :] - logits[..., :, None]))
        gradient = (weights * (np.asarray(means) - expected)).sum(axis=-1)
        slope = weights * expected * (1 - expected)
        # Ratings are determined up to a constant. Adding 1 to every entry keeps their mean at 0.
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
        counted: outcomes as weighted in the fit: a pairing of identical episodes counts as one
            game. Default: ``outcomes``.
        played: int [P, P, E], the result of each of E episodes for the first player: 0 won, 1
            drawn, 2 lost; for pairings that played the same episodes. Then the intervals include
            the luck that an episode brings to all pairings. Default: episodes are independent.
        anchor: the player with rating 0; None: the mean of all ratings is 0.
        resamples: number of resampled tables for the intervals; each gets its own fit.

    Raises ValueError for fewer than two players, and for an anchor that is not a player.
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
    # The prior is in the resamples and in the fit. Subtract its second, known effect.
    fits = fits + fitted - fit_ratings(*matrix_of(mean))
    if anchor is not None:
        zero = list(players).index(anchor)
        fitted, fits = fitted - fitted[zero], fits - fits[:, zero, None]
    low, high = np.quantile(fits, [(1 - level) / 2, (1 + level) / 2], axis=0)
    counts = table.sum(axis=1) + table.sum(axis=0)[:, ::-1]  # [P, 3] as first and as second
    ratings = []
    for i, player in enumerate(players):
        won, drew, lost = counts[i].tolist()
        points = (won + drew / 2) / max(1, won + drew + lost)
        rating = Rating(
            player, float(fitted[i]), float(low[i]), float(high[i]), points, won, drew, lost
        )
        ratings.append(replace(rating, low=None, high=None) if player == anchor else rating)
    return sorted(ratings, key=lambda rating: -rating.rating)


def unmeasured(players: Sequence[str], outcomes: npt.ArrayLike) -> tuple[list[str], list[str]]:
    """Return (above, below): ``below`` took no point from ``above``, not even through others.

    Both are empty if all players are connected. The games alone do not bound the distance between
    the two groups (L. R. Ford, Solution of a Ranking Problem from Binary Comparisons, 1957). The
    prior does.
    """
    points, _ = points_of(outcomes)
    reach = (points > 0) | np.eye(len(players), dtype=bool)  # i took points from j
    for k in range(len(players)):
        reach |= reach[:, k, None] & reach[k]
    scorers_by_strength = [reach[:, i] for i in np.argsort(-reach.sum(axis=1), kind="stable")]
    for scorers in scorers_by_strength:  # players that took points from the strongest
        if not scorers.all():
            above = [name for name, has_scored in zip(players, scorers, strict=True) if has_scored]
            return above, [name for name in players if name not in above]
    return [], []


# --- Cycles --------------------------------------------------------------------------------------


def cycles(
    players: Sequence[str], outcomes: npt.ArrayLike, *, level: float = 0.95, seed: int = 0
) -> list[tuple[str, ...]]:
    """Return cycles of ``players``: each player beats the next, and the last beats the first.

    A player beats another if the bootstrap interval of its points against it, over both seats, is
    above 1/2. With many players, some pairs look unequal by chance. Therefore the intervals are
    wider then, and equally strong players rarely form a cycle. ``outcomes`` are as in
    ``points_of``. All cycles of three are returned. For each other pair, the shortest cycle through
    it is returned. With a cycle, ratings cannot order the players.
    """
    # With P equally strong players, each appears better than (1 - level) / 2 * P others by chance.
    # Cycles appear if that number is near 1, and rarely below 0.4.
    level = max(level, 1 - 0.8 / len(players))
    beats = _beats(np.asarray(outcomes), level, seed)
    cycles_found: dict[tuple[int, ...], None] = {}
    for i, j, k in itertools.permutations(range(len(players)), 3):
        if i < min(j, k) and beats[i, j] and beats[j, k] and beats[k, i]:
            cycles_found[i, j, k] = None
    covered = {pair for cycle in cycles_found for pair in _pairs(cycle)}
    for i, j in np.argwhere(beats).tolist():
        if (i, j) not in covered and (path := _shortest(beats, j, i)):
            start = path.index(min(path))
            cycle = (*path[start:], *path[:start])
            covered |= set(_pairs(cycle))
            cycles_found[cycle] = None
    return [tuple(players[i] for i in cycle) for cycle in cycles_found]


def _beats(outcomes: Array, level: float, seed: int) -> Array:
    """Return bool [P, P]: whether row beats column with confidence ``level``."""
    drawn, _ = _resampled(outcomes, 1000, generator(seed, "eval"))
    points, games = points_of(drawn)  # [R, P, P]
    low = np.quantile(points / np.maximum(1, games), (1 - level) / 2, axis=0)
    beats: Array = (low > 0.5) & (games[0] > 0)
    return beats


def _pairs(cycle: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(itertools.pairwise([*cycle, cycle[0]]))


def _shortest(beats: Array, start: int, goal: int) -> list[int]:
    """Return the shortest path from ``start`` to ``goal``, both included; empty if none exists."""
    paths, seen = [[start]], {start}
    for path in paths:  # the list grows during the loop
        if path[-1] == goal:
            return path
        for following in np.flatnonzero(beats[path[-1]]).tolist():
            if following not in seen:
                seen.add(following)
                paths.append([*path, following])
    return []
