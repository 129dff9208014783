"""Returns of alternative actions: the same state, simulated with each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array, Observation, Rules, copy_rows, max_rows_of
from corral.envs.masks import sample_legal

__all__ = ["Tried", "candidates", "earned", "gains"]

Copies = tuple[Any, Array, Array]
"""Copies of R states, as returned by ``Batch.moments``: the state, the steps since the episodes
started [R], and the agents that have ended [R, N]."""

Decide = Callable[[Mapping[str, Observation], Array], Array]
"""Maps observations [R, ...] of all agents and acting agents bool [R, N] to actions [R, N]."""

Value = Callable[[Mapping[str, Observation], Array], Array]
"""Maps the same arguments to the values of all agents, float [R, N]."""

TOLERANCE = 1e-4
"""Maximum sum of the rewards of a step in a zero-sum game."""

NOT_ZERO_SUM = (
    "bootstrap=True: the rewards of {} do not sum to 0 in each step, so the value of one player is "
    "not the negative of the other's; leave bootstrap out"
)

MAX_DECISIONS = 2**12
"""Maximum number of simultaneous decisions in the simulation, so that they fit into the cache."""


@dataclass(frozen=True)
class Tried:
    """The actions to try for one agent's decisions in a step of B environment copies."""

    agent: int
    rows: Array  # int64 [R] environment copies
    actions: Array  # int64 [R, C] column 0 is the action taken


def candidates(
    taken: Array,
    mask: Array,
    count: int,
    rng: np.random.Generator,
    reach: int = 0,
    order: Array | None = None,
) -> Array:
    """Return ``count`` legal actions to compare for each decision, int64 [R, count].

    The first is the action ``taken`` [R]. The others are sampled uniformly from ``mask`` [R, A].
    With ``reach``, for actions that are amounts, the second half is sampled within ``reach`` of the
    action taken, in ``order``: the actions [A] by amount; None: 0, 1, ... An action may occur
    twice.
    """
    rows = len(taken)
    drawn = sample_legal(np.repeat(mask.astype(np.int8), count, axis=0), rng).reshape(rows, count)
    drawn[:, 0] = taken
    if reach:
        near = slice(1 + count // 2, count)
        step = rng.integers(-reach, reach + 1, size=drawn[:, near].shape)
        last = mask.shape[1] - 1
        if order is None:
            # Reflected at 0: many amounts are 0, and half of the steps would be negative.
            close = np.minimum(np.abs(taken[:, None] + step), last)
        else:
            place = np.argsort(order)[taken][:, None]
            close = order[np.clip(place + step, 0, last)]
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
    value: Value | None = None,
) -> list[Array]:
    """Return the gains of the ``tried`` actions over the actions taken: float64 [R, C] each.

    Every distinct action is simulated once, and the actions taken once for all agents.

    Args:
        moments: returns copies of rows of the environments.
        taken: int64 [B, N] actions of all agents.
        own: count only the rewards of the deciding agent; else the sum over all agents.
        value: see ``earned``.
    """
    agents = taken.shape[1]
    base = 1 + max(int(trial.actions.max()) for trial in tried)
    codes = []  # of simulations: the row, the agent with another action (0: none), the action
    for trial in tried:
        differs = trial.actions != taken[trial.rows, trial.agent][:, None]
        other = np.where(differs, (1 + trial.agent) * base + trial.actions, 0)
        codes.append((trial.rows[:, None] * (1 + agents) * base + other).ravel())
    plays, place = np.unique(np.concatenate(codes), return_inverse=True)
    rows, other = np.divmod(plays, (1 + agents) * base)
    first = taken[rows]
    at = np.flatnonzero(other)
    first[at, other[at] // base - 1] = other[at] % base
    at_once = min(MAX_DECISIONS // agents, max_rows_of(rules) or MAX_DECISIONS)
    parts = -(-len(rows) // max(1, at_once))
    total = np.concatenate(  # [P, N] returns of all simulations
        [
            earned(
                rules,
                moments(rows[part]),
                first[part],
                decide,
                gamma=gamma,
                horizon=horizon,
                value=value,
            )
            for part in np.array_split(np.arange(len(rows)), parts)
        ]
    )
    results, begin = [], 0
    for trial in tried:
        of_agent = total[:, trial.agent] if own else total.sum(axis=1)
        end = begin + trial.actions.size
        earns = of_agent[place.reshape(-1)[begin:end]].reshape(trial.actions.shape)
        results.append(earns - earns[:, :1])
        begin = end
    return results


def earned(
    rules: Rules[Any],
    moments: Copies,
    actions: Array,
    decide: Decide,
    *,
    gamma: float,
    horizon: int,
    value: Value | None = None,
) -> Array:
    """Return the returns of all agents in R states after ``actions``: float64 [R, N].

    All randomness of an episode is drawn at its start. So copies of a state have the same future,
    and their returns differ only because of their first actions.

    Args:
        moments: the states; they are modified, so pass copies.
        actions: int64 [R, N] first actions of all agents.
        decide: chooses the later actions.
        gamma: discount per env step.
        horizon: maximum number of steps, including the first.
        value: values of the states after ``horizon`` steps, which replace later rewards; None: 0.

    Raises:
        ValueError: with ``value``, the rewards of a step do not sum to 0.
    """
    state, elapsed, ended = moments
    limit = np.iinfo(np.int64).max if rules.max_cycles is None else rules.max_cycles
    total = np.zeros(ended.shape)
    rows = np.arange(len(elapsed))  # index of the original state of each row
    for step in range(horizon):
        if step:
            actions = decide(rules.observe(state), rules.acting(state) & ~ended)
        outcome = rules.step(state, actions)
        if value is not None and np.abs(outcome.reward.sum(axis=1)).max() > TOLERANCE:
            raise ValueError(NOT_ZERO_SUM.format(rules.name))
        total[rows] += gamma**step * outcome.reward.astype(np.float64)
        state, elapsed, ended = outcome.state, elapsed + 1, ended | outcome.ends
        on = ~ended.all(axis=1) & (elapsed < limit)
        if not on.all():
            remaining = np.flatnonzero(on)
            if not len(remaining):
                return total
            state, elapsed = copy_rows(state, remaining), elapsed[remaining]
            ended, rows = ended[remaining], rows[remaining]
    if value is not None:
        acting = rules.acting(state) & ~ended
        later = value(rules.observe(state), acting)
        total[rows] += gamma**horizon * np.where(ended, 0.0, later)
    return total
