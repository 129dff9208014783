"""Trends of a run's own progress: did the return rise, fall, or not change beyond noise?

    change = return_change(run.progress)
    change.direction(level=0.001)  # "rose", "fell", or "no change"

A quantity is averaged over consecutive blocks of training. If nothing changes in training, all
orders of the blocks are equally likely. The test compares their trend with that of permuted
blocks (Good, Permutation, Parametric, and Bootstrap Tests of Hypotheses,
2005, chapter 3). It assumes no distribution.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from corral.envs.core import generator

__all__ = [
    "FEWEST_BLOCKS",
    "LEVEL",
    "Change",
    "change_of",
    "constant_length",
    "episode_returns",
    "independent_rows",
    "return_change",
    "reward_change",
    "rows_per_episode",
]

FEWEST_BLOCKS, MAX_BLOCKS = 7, 24
"""With 7 blocks the smallest p-value is 2 / 7!, below ``LEVEL``."""

LEVEL = 0.001
"""Probability of a false trend in one test of a run without a trend."""

RESAMPLES = 40_000

WINDOW = 100
"""Episodes in a mean of progress.csv; means at least this far apart share no episode."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Change:
    """A quantity in the first and the last third of its blocks, and the p-value of a trend."""

    first: float
    last: float
    p_value: float  # two-sided, for "no trend"
    blocks: int

    def direction(self, level: float = LEVEL) -> str:
        """Return "rose", "fell", or "no change" if the trend is not significant at ``level``."""
        if self.p_value > level:
            return "no change"
        return "rose" if self.last > self.first else "fell"


def change_of(values: npt.ArrayLike, rows: int = 1) -> Change | None:
    """Return the change over ``values`` [n] in order of time, in blocks of at least ``rows``.

    Values of one block may be correlated, such as those of one long episode. Returns None with
    fewer than ``FEWEST_BLOCKS`` blocks of finite values.
    """
    array = np.asarray(values, dtype=np.float64)
    array = array[np.isfinite(array)]
    count = min(len(array) // max(1, rows), MAX_BLOCKS)
    if count < FEWEST_BLOCKS:
        return None
    means = np.array([part.mean() for part in np.array_split(array, count)])
    part = max(1, count // 3)
    first, last = float(means[:part].mean()), float(means[-part:].mean())
    return Change(first, last, _p_value(means), count)


def _p_value(means: Floats) -> float:
    """Return the two-sided p-value of "no trend" for the ``means`` [B] of blocks.

    The statistic is the rank correlation with time, or, with many blocks, the difference between
    the last and the first third, because a change need not be steady.
    """
    if np.ptp(means) <= 1e-12 * np.abs(means).max():
        return 1.0
    blocks, part = len(means), len(means) // 3
    times = np.arange(blocks) - (blocks - 1) / 2
    values = pd.Series(means).rank().to_numpy()
    if blocks >= MANY_BLOCKS:
        times, values = np.repeat([-1.0, 0.0, 1.0], [part, blocks - 2 * part, part]), means
    centered = values - values.mean()
    orders, exact = _orders(blocks)
    observed = abs(float(centered @ times))
    tolerance = 1e-9 * observed
    extreme = int((np.abs(centered[orders] @ times) >= observed - tolerance).sum())
    return extreme / len(orders) if exact else (1 + extreme) / (1 + len(orders))


MANY_BLOCKS = 12
"""From here on, the order within thirds is not needed for a p-value below ``LEVEL``."""


@functools.cache
def _orders(blocks: int) -> tuple[npt.NDArray[np.intp], bool]:
    """Return permutations of ``blocks`` positions [P, B], and True if these are all."""
    if math.factorial(blocks) <= RESAMPLES:
        return np.array(list(itertools.permutations(range(blocks)))), True
    draws = generator(0, "eval", blocks).random((RESAMPLES, blocks))
    return draws.argsort(axis=1), False


# --- Quantities of progress.csv ------------------------------------------------------------------


def rows_per_episode(progress: pd.DataFrame, copies: int) -> int:
    """Return the number of rows of progress.csv in which each of ``copies`` environment copies
    plays about one episode, at least 1."""
    if "length" not in progress or not len(progress):
        return 1
    length = pd.to_numeric(progress["length"], errors="coerce").median()
    steps = float(progress["env_steps"].iloc[-1]) / len(progress)
    return max(1, round(length * copies / steps)) if length == length and steps > 0 else 1


def constant_length(progress: pd.DataFrame, copies: int) -> float | None:
    """Return the length of all episodes of a run; None if it varies, or if none has ended.

    A mean over recent episodes can be constant although earlier episodes were longer. Then fewer
    episodes have ended than would fit into the env steps of ``copies`` environment copies.
    """
    if "length" not in progress or "episodes" not in progress:
        return None
    lengths = pd.to_numeric(progress["length"], errors="coerce").dropna()
    if not len(lengths) or np.ptp(lengths) > 0:
        return None
    length = float(lengths.iloc[0])
    fitting = float(progress["env_steps"].iloc[-1]) / length
    return length if fitting - float(progress["episodes"].iloc[-1]) <= copies else None


def episode_returns(progress: pd.DataFrame, copies: int = 1) -> Floats:
    """Return the mean team return of the episodes that end in consecutive blocks of updates: [B].

    Each block has its own episodes, unlike the means over recent episodes in progress.csv. Rewards
    of an episode that overlaps two blocks count in both.
    """
    columns = ("env_steps", "episodes", "reward_per_step", "length")
    if not len(progress) or any(column not in progress for column in columns):
        return np.zeros(0)
    rows = progress[list(columns)].apply(pd.to_numeric, errors="coerce")
    if (length := constant_length(progress, copies)) is not None:
        return np.asarray(rows["reward_per_step"].dropna() * length)  # ends do not matter
    before = rows.shift(fill_value=0.0)
    steps = rows["env_steps"] - before["env_steps"]
    ended = rows["episodes"] - before["episodes"]
    sums, block = [], np.zeros(2)
    for earned, count in zip(rows["reward_per_step"] * steps, ended, strict=True):
        block = block + np.array([earned, count])
        if block[1] >= EPISODES:
            sums.append(block[0] / block[1])
            block = np.zeros(2)
    return np.array(sums)


EPISODES = 6
"""Fewest ended episodes of a block."""


def independent_rows(progress: pd.DataFrame, column: str) -> Floats:
    """Return the values of a mean over recent episodes, in rows that share no episode."""
    if column not in progress or "episodes" not in progress:
        return np.zeros(0)
    values, before = [], 0.0
    for value, episodes in zip(progress[column], progress["episodes"], strict=True):
        if value == value and episodes >= before + WINDOW:
            values.append(float(value))
            before = float(episodes)
    return np.array(values)


def return_change(
    progress: pd.DataFrame, column: str = "return_team", copies: int = 1
) -> Change | None:
    """Return the change of a return in progress.csv; None if too little was played to tell.

    ``copies``: number of environment copies in training.
    """
    if column == "return_team":
        rows = rows_per_episode(progress, copies)
        if (change := change_of(episode_returns(progress, copies), rows)) is not None:
            return change
    return change_of(independent_rows(progress, column))


def reward_change(progress: pd.DataFrame, copies: int = 1) -> Change | None:
    """Return the change of the reward per step, see ``return_change``.

    It differs from that of the return if the length of episodes changes.
    """
    if "reward_per_step" not in progress:
        return None
    rewards = pd.to_numeric(progress["reward_per_step"], errors="coerce")
    return change_of(rewards.to_numpy(), rows_per_episode(progress, copies))
