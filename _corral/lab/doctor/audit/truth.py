"""The truth about moments of a run: values, advantages and better actions, by forks.

All that is compared at one moment meets the same forks: the same chance to come, drawn anew or not,
and the same random numbers for the policies. What differs between two forks is then the first
action. If chance is drawn anew, a critic that is told the global state keeps what that shows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corral.envs.core import Array, amounts_of, places_of
from corral.envs.masks import MASK
from corral.envs.policy import Policy
from corral.lab.doctor.audit.audited import Decision
from corral.trainers.policy_iteration.forks import Moments, Story, Worth, standard_error, worth

__all__ = ["Asked", "Budget", "Truth", "plan", "truth_of"]

Value = Callable[[Mapping[str, Any], Array], Array]

CANDIDATES = 6
"""Actions that are tried beside the one taken."""

MOST_FORKS, FEWEST_FORKS = 64, 12
FEWEST_MOMENTS = 24
WORST = 10
"""Decisions that are kept."""

LARGEST_STORY = 20_000_000
"""Steps of a story that are kept."""


@dataclass(frozen=True)
class Asked:
    """K moments of one agent of which the truth is asked."""

    agent: str
    moments: Moments
    t: Array  # int64 [K] steps of the rollout
    env_row: Array  # int64 [K]
    taken: Array  # int64 [K]
    value: Value | None  # V of the agent, see ``worth``
    told: bool = False  # the critic observes the global state

    def at(self, rows: Array) -> Asked:
        """Return the moments ``rows`` [R]."""
        return Asked(
            self.agent,
            self.moments.at(rows),
            self.t[rows],
            self.env_row[rows],
            self.taken[rows],
            self.value,
            self.told,
        )


@dataclass(frozen=True)
class Budget:
    """How much is played."""

    moments: int  # of an agent
    forks: int
    decisions: int  # of an agent, of which better actions are looked for
    until: float = math.inf  # time.perf_counter() at which no more of these are looked at


@dataclass
class Truth:
    """True values and advantages of the K moments of one agent."""

    asked: Asked
    value: Worth
    advantages: Array  # float64 [K, F] of the actions taken, by forks of each
    stories: tuple[Story, Story] | None  # of the action taken, and of any
    forks: int
    steps: int
    decisions: list[tuple[float, Decision]] = field(default_factory=list)
    # with the least loss that those forks allow that chose them


def plan(
    asked: Sequence[Asked],
    team: Mapping[str, Policy],
    gamma: float,
    most_steps: int,
    until: float,
    rng: np.random.Generator,
) -> Budget:
    """Return how many moments and forks ``most_steps`` allow, by what a fork of each agent takes.

    The longer it takes the fewer are forked; at least ``FEWEST_FORKS`` of ``FEWEST_MOMENTS``.
    """
    longest = max((len(each.t) for each in asked), default=0)
    cost = 0.0  # of a fork of one moment of every agent
    for each in asked:
        few = each.at(_spread(len(each.t), 8))
        if len(few.t):
            tried = worth(
                few.moments, team, gamma=gamma, forks=2, rng=rng, value=each.value, told=each.told
            )
            cost += tried.steps / (2 * len(few.t))
    if not cost:
        return Budget(longest, MOST_FORKS, 0, until)
    half = most_steps / 2 / cost  # forks of every agent
    forks = int(np.clip(half / (2 * longest), FEWEST_FORKS, MOST_FORKS))
    moments = int(np.clip(half / (2 * forks), min(FEWEST_MOMENTS, longest), longest))
    decisions = int(half / (forks * (CANDIDATES + 1)))
    return Budget(moments, forks, min(decisions, moments), until)


def _spread(count: int, most: int) -> Array:
    """Return at most ``most`` of ``count`` places, evenly spread."""
    if not count:
        return np.zeros(0, dtype=np.int64)
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(np.int64))


def truth_of(
    asked: Asked,
    team: Mapping[str, Policy],
    gamma: float,
    budget: Budget,
    rollout_steps: int,
    rng: np.random.Generator,
) -> Truth:
    """Return the truth about the moments of one agent, as many of them as the budget has."""
    asked = asked.at(_spread(len(asked.t), budget.moments))
    forks = budget.forks
    tell = asked.value is not None and rollout_steps * len(asked.t) * forks <= LARGEST_STORY
    stories = tuple(Story(rollout_steps, asked.t, forks) for _ in range(2 if tell else 0))
    after = _same_forks(asked, team, gamma, forks, int(rng.integers(2**63)))
    own = after(asked.taken, asked.told, stories[0] if tell else None)
    value = after(None, asked.told, stories[1] if tell else None)
    found = Truth(
        asked,
        value,
        own.returns - value.returns,
        (stories[0], stories[1]) if tell else None,
        forks,
        value.steps + own.steps,
    )
    if budget.decisions:
        some = asked.at(_spread(len(asked.t), budget.decisions))
        _better(some, found, team, gamma, budget, int(rng.integers(2**63)))
    return found


def _same_forks(
    asked: Asked, team: Mapping[str, Policy], gamma: float, forks: int, seed: int
) -> Callable[..., Worth]:
    def after(first: Array | None, told: bool = False, story: Story | None = None) -> Worth:
        return worth(
            asked.moments,
            team,
            gamma=gamma,
            forks=forks,
            rng=np.random.default_rng(seed),
            first=first,
            value=asked.value,
            story=story,
            told=told,
        )

    return after


# --- Better actions ------------------------------------------------------------------------------


def _better(
    asked: Asked,
    found: Truth,
    team: Mapping[str, Policy],
    gamma: float,
    budget: Budget,
    seed: int,
) -> None:
    """Note the decisions at which another action was better.

    Every other fork chooses the best action, and the decisions that are kept; the rest measure by
    how much it is better. So neither choice makes the loss larger than it is.
    """
    moments, taken = asked.moments, asked.taken
    after = _same_forks(asked, team, gamma, budget.forks, seed)
    own = after(taken)
    found.steps += own.steps
    rows = np.arange(len(taken))
    best, chosen_by, surely = taken.copy(), np.zeros(len(taken)), np.zeros(len(taken))
    loss, error = np.zeros(len(taken)), np.zeros(len(taken))
    for candidate in candidates(np.asarray(moments.observation()[MASK]) != 0, taken).T:
        if time.perf_counter() > budget.until:
            break
        tried = after(candidate)
        found.steps += tried.steps
        difference = tried.returns - own.returns
        gain = difference[:, ::2].mean(axis=1)
        at = rows[(gain > chosen_by) & (candidate != taken)]
        best[at], chosen_by[at] = candidate[at], gain[at]
        surely[at] = gain[at] - 2 * standard_error(difference[at, ::2])
        loss[at] = difference[at, 1::2].mean(axis=1)
        error[at] = standard_error(difference[at, 1::2])
    places = places_of(moments.rules, moments.state)
    unit, amounts = amounts_of(moments.rules)
    worst = sorted(rows[best != taken].tolist(), key=lambda k: -surely[k])[:WORST]
    for k in worst:
        mine, better = int(taken[k]), int(best[k])
        step = int(moments.elapsed[k])
        one = Decision(
            asked.agent,
            int(asked.env_row[k]),
            step,
            mine,
            better,
            float(loss[k]),
            float(error[k]),
            f"step {step}" if places is None else places[k],
            None if amounts is None else (float(amounts[mine]), float(amounts[better])),
            unit,
        )
        found.decisions.append((float(surely[k]), one))


def candidates(mask: Array, taken: Array) -> Array:
    """Return legal actions to compare with those ``taken`` [K]: int64 [K, at most CANDIDATES],
    spread over all of ``mask`` [K, A]; the taken one fills up where there are fewer."""
    others = [
        np.setdiff1d(np.flatnonzero(row), [own]) for row, own in zip(mask, taken, strict=True)
    ]
    count = min(CANDIDATES, max((len(each) for each in others), default=0))
    found = np.repeat(taken[:, None], count, axis=1)
    for k, actions in enumerate(others):
        at = _spread(len(actions), count)
        found[k, : len(at)] = actions[at]
    return found
