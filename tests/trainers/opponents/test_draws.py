"""Numbers of an episode depend on seed, row and episode alone."""

from __future__ import annotations

import numpy as np
import pytest

from corral.envs.core import generator
from corral.trainers.opponents.draws import BLOCK, EpisodeDraws


def test_numbers_are_those_of_the_rows_stream() -> None:
    draws = EpisodeDraws(seed=3, num_envs=4, count=3)
    for row in range(4):
        stream = generator(3, "opponent", row).random((5 * BLOCK, 3))
        found = draws(np.full(len(stream), row), np.arange(len(stream)))
        np.testing.assert_array_equal(found, stream)


def test_order_of_rows_and_episodes_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    rows, episodes = rng.integers(6, size=400), rng.integers(4 * BLOCK, size=400)
    expected = EpisodeDraws(0, 6, 2)(rows, episodes)
    order = rng.permutation(400)
    one = EpisodeDraws(0, 6, 2)
    alone = [one(rows[at : at + 1], episodes[at : at + 1])[0] for at in order]
    np.testing.assert_array_equal(np.array(alone), expected[order])


def test_rows_are_global() -> None:
    rows, episodes = np.array([0, 1]), np.array([7, 7])
    whole, part = EpisodeDraws(1, 6, 2), EpisodeDraws(1, 2, 2, first_row=4)
    np.testing.assert_array_equal(part(rows, episodes), whole(rows + 4, episodes))


@pytest.mark.parametrize("other", [{"seed": 1}, {"first_row": 1}])
def test_seeds_and_rows_have_streams_of_their_own(other: dict[str, int]) -> None:
    given = {"seed": 0, "num_envs": 1, "count": 2}
    rows, episodes = np.zeros(8, dtype=np.int64), np.arange(8)
    found = EpisodeDraws(**{**given, **other})(rows, episodes)
    expected = EpisodeDraws(**given)(rows, episodes)
    assert len(np.unique(expected)) == 16
    assert (found != expected).all()
    assert ((expected >= 0) & (expected < 1)).all()
