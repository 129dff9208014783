"""What other actions would have earned: the same moment, played on from each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from corral.envs.core import Array, Observation, Rules, copy_rows
from corral.envs.masks import sample_legal

__all__ = ["candidates", "earned"]

Decide = Callable[[Mapping[str, Observation], Array], Array]
"""From the observations [R, ...] of all agents, and who acts, bool [R, N], to actions [R, N]."""


def earned(
    rules: Rules[Any],
    moments: tuple[Any, Array, Array],
    actions: Array,
    decide: Decide,
    *,
    gamma: float,
    horizon: int,
    own: int | None = None,
) -> Array:
    """Return what R moments earn when ``actions`` are played first: float64 [R].

    All chance of an episode is drawn when it begins, so copies of a moment meet the same future,
    and their difference is that of their first actions alone.

    Args:
        moments: state of R rows, steps since the episodes began [R], and whose is over [R, N]
            (``Batch.moments``). They are played on themselves: give copies.
        actions: int64 [R, N] of all agents.
        decide: plays on after that.
        gamma: discount from one step to the next.
        horizon: steps that are played at most, the first one included.
        own: the agent whose rewards count; None: the sum of all agents' rewards.
    """
    state, elapsed, ended = moments
    limit = np.iinfo(np.int64).max if rules.max_cycles is None else rules.max_cycles
    total = np.zeros(len(elapsed))
    rows = np.arange(len(elapsed))  # the moment that each row of ``state`` came from
    for step in range(horizon):
        if step:
            acting = rules.acting(state) & ~ended
            actions = decide(rules.observe(state), acting)
        outcome = rules.step(state, actions)
        reward = outcome.reward.sum(axis=1) if own is None else outcome.reward[:, own]
        total[rows] += gamma**step * reward
        state, elapsed, ended = outcome.state, elapsed + 1, ended | outcome.terminated
        on = ~ended.all(axis=1) & (elapsed < limit)
        if not on.all():
            left = np.flatnonzero(on)
            if not len(left):
                break
            state, elapsed = copy_rows(state, left), elapsed[left]
            ended, rows = ended[left], rows[left]
    return total


def candidates(
    taken: Array, mask: Array, count: int, rng: np.random.Generator, reach: int = 0
) -> Array:
    """Return ``count`` legal actions to compare for each decision, int64 [R, count].

    The first is the one ``taken`` [R], the others are drawn: uniformly from ``mask`` [R, A]; with
    ``reach``, where actions are amounts, the second half of them within so many of the one taken.
    An action may be drawn twice.
    """
    rows = len(taken)
    drawn = sample_legal(np.repeat(mask.astype(np.int8), count, axis=0), rng).reshape(rows, count)
    drawn[:, 0] = taken
    if reach:
        near = slice(1 + count // 2, count)
        step = rng.integers(-reach, reach + 1, size=drawn[:, near].shape)
        close = np.clip(taken[:, None] + step, 0, mask.shape[1] - 1)
        legal = np.take_along_axis(mask, close, axis=1) != 0
        drawn[:, near] = np.where(legal, close, taken[:, None])
    return drawn
