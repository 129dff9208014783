"""Ratings: against closed forms and a direct maximum of the likelihood; intervals; cycles."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize

from corral.envs.core import Array
from corral.lab.duels.ratings import (
    PRIOR,
    cycles,
    fit_ratings,
    matrix_of,
    points_intervals,
    points_of,
    rate,
    unmeasured,
    wilson,
)
from support.messages import refused


def table(players: int, **games: tuple[int, int, int]) -> Array:
    """Outcomes [P, P, 3]; ``ab=(3, 1, 0)``: a sat first, b second."""
    outcomes = np.zeros((players, players, 3), dtype=np.int64)
    for pair, counts in games.items():
        outcomes[ord(pair[0]) - ord("a"), ord(pair[1]) - ord("a")] = counts
    return outcomes


def drawn_table(ratings: list[float], games: int, rng: np.random.Generator) -> Array:
    """Games without draws by players of these ratings, in both seats."""
    r = np.array(ratings)
    wins = rng.binomial(games, 1 / (1 + 10 ** ((r[None, :] - r[:, None]) / 400)))
    return np.stack([wins, 0 * wins, games - wins], axis=-1)


def elo(points: float) -> float:
    return 400 * math.log10(points / (1 - points))


# --- The fit -------------------------------------------------------------------------------------


def test_two_players_have_a_closed_form() -> None:
    first, second = rate("ab", table(2, ab=(700, 200, 100), ba=(50, 150, 800)))
    share = (700 + 100 + 800 + 75 + PRIOR / 2) / (2000 + PRIOR)
    assert first.rating - second.rating == pytest.approx(elo(share))
    assert first.rating + second.rating == pytest.approx(0)
    assert (first.player, first.won, first.drawn, first.lost) == ("a", 1500, 350, 150)
    assert (second.won, second.drawn, second.lost) == (150, 350, 1500)
    assert first.points == pytest.approx(1 - second.points) == pytest.approx(1675 / 2000)


def test_ratings_are_the_most_likely_ones() -> None:
    """SciPy maximises the likelihood of all games, and of the prior's, without any gradient."""
    rng = np.random.default_rng(3)
    outcomes = rng.integers(0, 30, size=(5, 5, 3))
    outcomes[..., 2] = 60 - outcomes[..., 0] - outcomes[..., 1]
    points, games = points_of(outcomes)

    def surprise(ratings: Array) -> float:
        found = 0.0
        for i in range(5):
            for j in range(5):
                if i != j:
                    chance = 1 / (1 + 10 ** ((ratings[j] - ratings[i]) / 400))
                    found -= (points[i, j] + PRIOR / 2) * math.log(chance)
        return found

    options = {"xatol": 1e-8, "fatol": 1e-12, "maxiter": 50_000, "maxfev": 50_000}
    best = minimize(surprise, np.zeros(5), method="Nelder-Mead", options=options).x
    assert games[0, 1] == 120
    fitted = fit_ratings(*matrix_of(outcomes))
    assert fitted == pytest.approx(best - best.mean(), abs=0.01)
    assert np.ptp(fitted) > 30


def test_ratings_that_games_were_drawn_with_are_found_again() -> None:
    true = [300.0, 100.0, -50.0, -350.0]
    found = rate("abcd", drawn_table(true, 20_000, np.random.default_rng(0)))
    assert [each.player for each in found] == ["a", "b", "c", "d"]
    assert [each.rating for each in found] == pytest.approx(true, abs=8)


def test_pairings_weigh_the_same_however_many_games_they_have() -> None:
    many = table(3, ab=(60, 0, 40), ba=(40, 0, 60), bc=(6000, 0, 4000), ac=(70, 0, 30))
    assert matrix_of(many)[1].tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    thrice = table(3, ab=(60, 0, 40), ba=(40, 0, 60), bc=(18_000, 0, 12_000), ac=(70, 0, 30))
    fits = [fit_ratings(*matrix_of(each)) for each in (many, thrice)]
    assert fits[0] == pytest.approx(fits[1], abs=0.1)


def test_who_never_met_is_rated_by_those_whom_both_met() -> None:
    fitted = fit_ratings(*matrix_of(table(3, ab=(750, 0, 250), bc=(750, 0, 250))))
    assert fitted[0] - fitted[1] == pytest.approx(elo(0.75), abs=2)
    assert fitted[0] - fitted[2] == pytest.approx(2 * elo(0.75), abs=4)


@pytest.mark.parametrize("games", [1, 100, 10_000, 10**7])
def test_who_wins_everything_has_a_finite_rating_that_grows_with_the_games(games: int) -> None:
    best, worst = rate("ab", table(2, ab=(games, 0, 0), ba=(0, 0, games)))
    share = (2 * games + PRIOR / 2) / (2 * games + PRIOR)
    assert best.rating - worst.rating == pytest.approx(elo(share))
    assert best.low is not None
    assert best.high is not None
    assert -3000 < best.low < best.rating < best.high < 3000


def test_a_game_against_oneself_does_not_count() -> None:
    own = table(2, ab=(7, 2, 1), ba=(1, 2, 7))
    more = own + table(2, aa=(1000, 0, 0), bb=(0, 0, 500))
    assert rate("ab", own) == rate("ab", more)


def test_an_anchor_is_0_and_has_no_interval() -> None:
    outcomes = table(3, ab=(6, 1, 3), ba=(4, 0, 6), bc=(5, 4, 1), ca=(2, 2, 6), ac=(5, 0, 5))
    free = {each.player: each.rating for each in rate("abc", outcomes)}
    held = {each.player: each for each in rate("abc", outcomes, anchor="b")}
    assert (held["b"].rating, held["b"].low, held["b"].high) == (0, None, None)
    assert held["a"].rating == pytest.approx(free["a"] - free["b"])
    with refused(ValueError, "anchor='x'", "a", "b", "c"):
        rate("abc", outcomes, anchor="x")
    with refused(ValueError, "players=['a']"):
        rate("a", np.zeros((1, 1, 3)))


# --- Intervals -----------------------------------------------------------------------------------


def test_intervals_hold_what_is_true_about_as_often_as_they_say() -> None:
    true, rng, held = [150.0, 0.0, -150.0], np.random.default_rng(1), []
    for seed in range(150):
        found = {e.player: e for e in rate("abc", drawn_table(true, 60, rng), seed=seed)}
        for player, rating in zip("abc", true, strict=True):
            low, high = found[player].low, found[player].high
            assert low is not None
            assert high is not None
            assert low <= found[player].rating <= high
            held.append(low < rating < high)
    assert 0.91 < np.mean(held) < 0.985


def test_opponents_that_are_alike_are_no_more_games() -> None:
    """All pairings meet the same episodes: whom a meets four times over is met by the same luck."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 3, size=(2, 60))
    widths = []
    for others in (1, 4):
        played = np.full((1 + others, 1 + others, 60), -1)
        played[0, 1:], played[1:, 0] = first, second
        for i, j in itertools.permutations(range(1, 1 + others), 2):
            played[i, j] = 1
        outcomes = (played[..., None] == np.arange(3)).sum(axis=2)
        found = rate([*"abcde"[: 1 + others]], outcomes, played=played, resamples=2000)
        (a,) = [each for each in found if each.player == "a"]
        assert a.low is not None
        assert a.high is not None
        widths.append(a.high - a.low)
    # Of n players a is (n - 1) / n of the gap above the mean.
    assert widths[1] == pytest.approx(widths[0] * (4 / 5) / (1 / 2), rel=0.1)


def test_intervals_shrink_with_the_games_and_return_with_the_seed() -> None:
    few, many = table(2, ab=(6, 0, 4), ba=(5, 0, 5)), table(2, ab=(600, 0, 400), ba=(500, 0, 500))
    widths = []
    for outcomes in (few, many):
        best, _ = rate("ab", outcomes)
        assert best.high is not None
        assert best.low is not None
        widths.append(best.high - best.low)
    assert widths[0] / widths[1] == pytest.approx(10, rel=0.3)
    assert rate("ab", few, seed=1) == rate("ab", few, seed=1) != rate("ab", few, seed=2)


def test_one_episode_played_again_and_again_is_one_game() -> None:
    outcomes = table(2, ab=(1000, 0, 0), ba=(0, 0, 1000))
    once = table(2, ab=(1, 0, 0), ba=(0, 0, 1))
    all_games, one_game = rate("ab", outcomes), rate("ab", outcomes, counted=once)
    assert all_games[0].rating > 5 * one_game[0].rating
    assert one_game[0].low is not None
    assert one_game[0].low < 0  # a single win in each seat says little
    assert (one_game[0].won, one_game[0].points) == (2000, 1.0)


def test_intervals_of_points() -> None:
    low, high = points_intervals([[600, 0, 400], [1000, 0, 0], [0, 0, 1]])
    assert (low[0], high[0]) == pytest.approx((0.57, 0.63), abs=0.004)
    assert 0.99 < low[1] < 1.0 == high[1]  # never surely 1
    assert low[2] == 0


def test_wilsons_interval_by_hand() -> None:
    assert wilson(0, 10) == pytest.approx((0, 0.2775), abs=1e-4)
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(10, 10) == pytest.approx((0.7225, 1), abs=1e-4)


# --- What one number cannot say ------------------------------------------------------------------


def test_rock_paper_scissors_is_a_cycle_and_its_ratings_are_0() -> None:
    beaten = table(3, ab=(0, 0, 99), ba=(99, 0, 0), bc=(0, 0, 99), cb=(99, 0, 0))
    beaten += table(3, ca=(0, 0, 99), ac=(99, 0, 0))
    assert cycles(["rock", "paper", "scissors"], beaten) == [("rock", "scissors", "paper")]
    assert [each.rating for each in rate("abc", beaten)] == pytest.approx([0, 0, 0])


def test_a_cycle_needs_intervals_that_exclude_one_half() -> None:
    def circle(won: int, games: int) -> Array:
        lost = games - won
        one = table(3, ab=(won, 0, lost), bc=(won, 0, lost), ca=(won, 0, lost))
        return one + table(3, ba=(lost, 0, won), cb=(lost, 0, won), ac=(lost, 0, won))

    assert cycles("abc", circle(550, 1000)) == [("a", "b", "c")]
    assert cycles("abc", circle(11, 20)) == []
    assert cycles("abc", circle(1, 1)) == []


@pytest.mark.slow
def test_forty_players_that_are_alike_are_no_cycle() -> None:
    """Among 780 pairs some intervals exclude 1/2 by chance."""
    rng = np.random.default_rng(0)
    tables = rng.multinomial(200, [0.4, 0.2, 0.4], size=(12, 40, 40))
    assert sum(bool(cycles([*map(str, range(40))], each)) for each in tables) <= 1


def test_order_is_no_cycle() -> None:
    true = [300.0, 200.0, 0.0, -10.0, -200.0]
    assert cycles("abcde", drawn_table(true, 500, np.random.default_rng(0))) == []


def test_a_cycle_of_four_whose_diagonals_are_even() -> None:
    outcomes = table(4, ab=(9, 0, 1), bc=(9, 0, 1), cd=(9, 0, 1), da=(9, 0, 1)) * 20
    outcomes += table(4, ac=(100, 0, 100), bd=(100, 0, 100))
    assert cycles("abcd", outcomes) == [("a", "b", "c", "d")]


def test_who_took_nothing_off_whom() -> None:
    won = table(3, ab=(50, 10, 40), bc=(100, 0, 0), ac=(100, 0, 0))
    assert unmeasured("abc", won) == (["a", "b"], ["c"])
    assert unmeasured("abc", won + table(3, ca=(0, 1, 99))) == ([], [])
    # By way of others: c took something off b, and b off a.
    assert unmeasured("abc", won + table(3, cb=(1, 0, 9))) == ([], [])
