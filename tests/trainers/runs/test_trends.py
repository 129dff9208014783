"""Trends of progress.csv: a rise and a fall are seen, noise is not; short runs are not judged."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from corral.trainers.runs.trends import (
    FEWEST_BLOCKS,
    MANY_BLOCKS,
    change_of,
    constant_length,
    episode_returns,
    independent_rows,
    return_change,
    rows_per_episode,
)

RUNS = 300


@pytest.mark.parametrize("blocks", [FEWEST_BLOCKS, MANY_BLOCKS - 1, MANY_BLOCKS, 24, 100])
@pytest.mark.parametrize("heavy", [False, True])
def test_noise_without_a_trend_gives_uniform_p_values(blocks: int, heavy: bool) -> None:
    rng = np.random.default_rng(blocks + heavy)
    shape = RUNS, blocks
    noise = rng.standard_t(2, size=shape) if heavy else rng.normal(size=shape)
    p_values = np.array([change.p_value for row in noise if (change := change_of(row))])
    assert len(p_values) == RUNS
    for level in (0.05, 0.3):  # within 4 standard deviations of a binomial
        allowed = 4 * np.sqrt(level * (1 - level) / RUNS)
        assert abs((p_values <= level).mean() - level) < allowed


def test_a_steady_change_is_seen_with_the_fewest_blocks() -> None:
    rising = np.arange(FEWEST_BLOCKS, dtype=float)
    for values, direction in ((rising, "rose"), (-rising, "fell")):
        change = change_of(values)
        assert change is not None
        assert change.p_value == pytest.approx(2 / 5_040)
        assert change.direction() == direction
    assert change_of(rising[1:]) is None


def test_a_change_that_is_not_steady_is_seen() -> None:
    values = np.r_[-3.0, -2.0, np.zeros(10), -4.0 * np.ones(12)] + np.arange(24) / 100
    change = change_of(values)
    assert change is not None
    assert change.direction() == "fell"


def test_equal_values_have_no_trend() -> None:
    change = change_of(np.full(20, 0.1))
    assert change is not None
    assert (change.p_value, change.direction()) == (1.0, "no change")


def test_rows_of_one_long_episode_are_one_block() -> None:
    within = np.tile(np.linspace(0, 1, 5), 8)  # 8 episodes of 5 rows each
    change = change_of(within, 5)
    assert change is not None
    assert change.blocks == 8
    assert change.p_value == 1.0
    assert change_of(within[:-10], 5) is None
    progress = pd.DataFrame({"env_steps": 100 * np.arange(1, 41), "length": 62.5})
    assert rows_per_episode(progress, 8) == 5
    assert rows_per_episode(progress.drop(columns="length"), 8) == 1


def progress_of(lengths: np.ndarray, steps: int = 200) -> pd.DataFrame:
    """Rows of ``steps`` env steps with a reward of 1 per step, and episodes of these lengths."""
    rows = len(lengths)
    return pd.DataFrame(
        {
            "env_steps": steps * np.arange(1, rows + 1),
            "episodes": np.cumsum(steps / lengths).astype(int),
            "reward_per_step": 1.0,
            "length": lengths,
        }
    )


def test_returns_are_those_of_the_episodes_of_each_block() -> None:
    growing = progress_of(np.linspace(5, 30, 20))
    means = episode_returns(growing)
    assert means[0] == pytest.approx(5, rel=0.1)
    assert means[-1] == pytest.approx(30, rel=0.25)
    change = return_change(growing)
    assert change is not None
    assert change.direction() == "rose"
    same = episode_returns(progress_of(np.full(20, 10.0)))
    assert same.tolist() == [10.0] * 20  # equal lengths: each row counts


def test_a_recent_length_that_is_constant_may_hide_longer_episodes() -> None:
    progress = progress_of(np.full(20, 10.0))
    assert constant_length(progress, 8) == 10.0
    progress["episodes"] = np.r_[np.zeros(10), np.cumsum(np.full(10, 20))]  # one of 2,000 steps
    assert constant_length(progress, 8) is None
    assert episode_returns(progress)[0] > 50


def test_means_that_share_episodes_are_not_counted_twice() -> None:
    progress = pd.DataFrame({"episodes": 10 * np.arange(1, 61), "return_a": np.arange(1.0, 61.0)})
    assert independent_rows(progress, "return_a").tolist() == [10, 20, 30, 40, 50, 60]
    assert independent_rows(progress, "return_b").tolist() == []
    assert return_change(progress, "return_a") is None  # six values
