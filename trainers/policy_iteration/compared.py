"""What other actions would have earned: the same moment, played on from each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array, Observation, Rules, copy_rows
from corral.envs.masks import sample_legal

__all__ = ["Tried", "candidates", "earned", "gains"]

Copies = tuple[Any, Array, Array]
"""Copies of R moments, as ``Batch.moments`` gives them: the state, the steps since the episodes
began [R], and whose part is over [R, N]."""

Decide = Callable[[Mapping[str, Observation], Array], Array]
"""From the observations [R, ...] of all agents, and who acts, bool [R, N], to actions [R, N]."""

MOST_DECISIONS = 2**12
"""Decisions that are made at once while copies are played on: more would fall out of the cache."""


@dataclass(frozen=True)
class Tried:
    """What is tried of one agent's decisions in a step of B environments."""

    agent: int
    rows: Array  # int64 [R] of the environments
    actions: Array  # int64 [R, C] the first of each is the one taken


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
        # Reflected at 0: many amounts are none, and half of the steps would lead nowhere.
        close = np.minimum(np.abs(taken[:, None] + step), mask.shape[1] - 1)
        legal = np.take_along_axis(mask, close, axis=1) != 0
        drawn[:, near] = np.where(legal, close, taken[:, None])
    return drawn


def gains(
    rules: Rules[Any],
    moments: Callable[[Array], Copies],
    taken: Array,
    tried: Sequence[Tried],
    decide: Decide,
    *,
    gamma: float,
    horizon: int,
    own: bool = False,
) -> list[Array]:
    """Return what actions earn more than the ones taken, for each of ``tried``: float64 [R, C].

    Each is played on once, however often it was drawn, and what was taken once for all agents.

    Args:
        moments: gives copies of rows of the environments.
        taken: int64 [B, N] of all agents.
        own: count the rewards of the agent that decides; else the sum of all agents' rewards.
    """
    agents = taken.shape[1]
    most = 1 + max(int(each.actions.max()) for each in tried)
    codes = []  # of plays: the row, whose action differs (0: nobody's), which action it is
    for each in tried:
        differs = each.actions != taken[each.rows, each.agent][:, None]
        other = np.where(differs, (1 + each.agent) * most + each.actions, 0)
        codes.append((each.rows[:, None] * (1 + agents) * most + other).ravel())
    plays, place = np.unique(np.concatenate(codes), return_inverse=True)
    rows, other = np.divmod(plays, (1 + agents) * most)
    first = taken[rows]
    at = np.flatnonzero(other)
    first[at, other[at] // most - 1] = other[at] % most
    parts = -(-len(rows) * agents // MOST_DECISIONS)
    total = np.concatenate(  # [P, N] of all plays
        [
            earned(rules, moments(rows[part]), first[part], decide, gamma=gamma, horizon=horizon)
            for part in np.array_split(np.arange(len(rows)), parts)
        ]
    )
    found, begin = [], 0
    for each in tried:
        of_agent = total[:, each.agent] if own else total.sum(axis=1)
        end = begin + each.actions.size
        earns = of_agent[place.reshape(-1)[begin:end]].reshape(each.actions.shape)
        found.append(earns - earns[:, :1])
        begin = end
    return found


def earned(
    rules: Rules[Any],
    moments: Copies,
    actions: Array,
    decide: Decide,
    *,
    gamma: float,
    horizon: int,
) -> Array:
    """Return what each agent earns in R moments when ``actions`` are played first: float64 [R, N].

    All chance of an episode is drawn when it begins, so copies of a moment meet the same future,
    and their difference is that of their first actions alone.

    Args:
        moments: are played on themselves: give copies.
        actions: int64 [R, N] of all agents.
        decide: plays on after that.
        gamma: discount from one step to the next.
        horizon: steps that are played at most, the first one included.
    """
    state, elapsed, ended = moments
    limit = np.iinfo(np.int64).max if rules.max_cycles is None else rules.max_cycles
    total = np.zeros(ended.shape)
    rows = np.arange(len(elapsed))  # the moment that each row of ``state`` came from
    for step in range(horizon):
        if step:
            actions = decide(rules.observe(state), rules.acting(state) & ~ended)
        outcome = rules.step(state, actions)
        total[rows] += gamma**step * outcome.reward.astype(np.float64)
        state, elapsed, ended = outcome.state, elapsed + 1, ended | outcome.terminated
        on = ~ended.all(axis=1) & (elapsed < limit)
        if not on.all():
            left = np.flatnonzero(on)
            if not len(left):
                break
            state, elapsed = copy_rows(state, left), elapsed[left]
            ended, rows = ended[left], rows[left]
    return total
