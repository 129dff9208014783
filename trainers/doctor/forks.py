"""Exact copies of moments, played on many times: what a decision is truly worth.

Rules are functions of a state, so any moment can be forked: the same state again and again, each
copy played on by the team's own policies. The mean of the discounted rewards that follow is the
true value of the moment, with its standard error; the mean after a given first action is the true
value of that action.

All chance of an episode is drawn when it begins, so a plain fork meets the same future again. Where
rules have the hook ``redraw(state, rngs)`` (see ``corral.envs.core``), what the team cannot have
observed is drawn anew for each copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from corral.envs.core import Array, Rules, copy_rows, redraw_of
from corral.envs.policy import Policy, put_tree, take_tree

__all__ = ["Moments", "Worth", "worth"]


@dataclass(frozen=True)
class Moments:
    """K moments before a step, in which ``agent`` is about to decide."""

    rules: Rules[Any]
    agent: int
    state: Any  # of the rules, K rows
    elapsed: Array  # int64 [K] steps since the episode began
    ended: Array  # bool [K, N] agents whose episode is over
    hidden: Mapping[str, Any]  # agent -> the state of its policy, K rows; None where it has none

    def __len__(self) -> int:
        return len(self.elapsed)

    def repeated(self, times: int) -> Moments:
        """Return each moment ``times`` times in a row."""
        rows = np.repeat(np.arange(len(self)), times)
        hidden = {agent: take_tree(state, rows) for agent, state in self.hidden.items()}
        state = copy_rows(self.state, rows)
        return Moments(self.rules, self.agent, state, self.elapsed[rows], self.ended[rows], hidden)

    def observation(self) -> Any:
        """Return what the deciding agent observes: [K, ...]."""
        return self.rules.observe(copy_rows(self.state, slice(None)))[self.rules.agents[self.agent]]


@dataclass(frozen=True)
class Worth:
    """The true value of K moments: a mean over forks, and its standard error."""

    mean: Array  # float64 [K]
    error: Array  # float64 [K]
    steps: int  # env steps that were played for it


def worth(
    moments: Moments,
    team: Mapping[str, Policy],
    *,
    gamma: float,
    forks: int,
    rng: np.random.Generator,
    first: Array | None = None,
    value: Callable[[Mapping[str, Any], Array], Array] | None = None,
    horizon: int | None = None,
    watch: Callable[[Array, Array, Array], None] = lambda rows, taken, reward: None,
) -> Worth:
    """Return what K moments are worth to the deciding agent when ``team`` plays on, sampling.

    An agent's time is its own decisions: the reward after its k-th one from here counts
    gamma ** k, whatever the others do in between.

    Args:
        first: int [K], the action that is played first; None: one that the policy draws.
        value: V of the deciding agent for observations of all agents [R, ...] and global states
            [R, G]: float [R]. It stands for what comes after the time limit and after ``horizon``
            decisions, as it does in training; None: 0.
        horizon: decisions that are played at most; default: until what is left counts under 1 %.
        forks: copies of each moment.
        watch: is called after each step with which forks were stepped (int [R], fork f of moment k
            is k * forks + f), the agent's decisions in them so far (int [R]), and the rewards of
            all agents [R, N].
    """
    rules = moments.rules
    if horizon is None:
        horizon = LONGEST if gamma >= 1 else math.ceil(math.log(0.01) / math.log(gamma or 1e-9))
    limit = np.iinfo(np.int64).max if rules.max_cycles is None else rules.max_cycles
    on = moments.repeated(forks)  # what is played on; what is over is left out
    if (redraw := redraw_of(rules)) is not None:
        on = replace(on, state=redraw(on.state, rng.spawn(len(on))))
    total, steps = np.zeros(len(on)), 0
    rows = np.arange(len(on))  # which fork each row of ``on`` is
    taken = np.zeros(len(on), dtype=np.int64)  # decisions of the agent since the fork
    forced = None if first is None else np.repeat(first, forks)
    while len(rows):
        acting = rules.acting(on.state) & ~on.ended
        decides = acting[:, moments.agent]
        done = decides & (taken >= horizon)  # V stands for the rest
        if done.any():
            if value is not None:
                late = _part(on, done)
                total[rows[done]] += gamma ** taken[done] * _value(late, value)
            on, rows, taken, acting = _part(on, ~done), rows[~done], taken[~done], acting[~done]
            decides = decides[~done]
            if not len(rows):
                break
        actions, hidden = _decide(on, team, acting, rng)
        if forced is not None:
            begins = decides & (taken == 0)
            actions[begins, moments.agent] = forced[rows[begins]]
        taken = taken + decides
        outcome = rules.step(on.state, actions)
        steps += len(rows)
        watch(rows, taken, outcome.reward)
        total[rows] += gamma ** np.maximum(taken - 1, 0) * outcome.reward[:, moments.agent]
        on = replace(
            on,
            state=outcome.state,
            elapsed=on.elapsed + 1,
            ended=on.ended | outcome.terminated,
            hidden=hidden,
        )
        gone = on.ended[:, moments.agent]
        cut = (on.elapsed >= limit) & ~gone
        if cut.any() and value is not None:
            total[rows[cut]] += gamma ** taken[cut] * _value(_part(on, cut), value)
        if (over := gone | cut).any():
            on, rows, taken = _part(on, ~over), rows[~over], taken[~over]
    each = total.reshape(len(moments), forks)
    error = each.std(axis=1, ddof=1) / math.sqrt(forks) if forks > 1 else np.full(len(each), np.nan)
    return Worth(each.mean(axis=1), error, steps)


LONGEST = 10_000
"""Decisions that are played without a discount, where nothing else ends a game."""


def _part(moments: Moments, chosen: Array) -> Moments:
    rows = np.flatnonzero(chosen)
    return replace(
        moments,
        state=copy_rows(moments.state, rows),
        elapsed=moments.elapsed[rows],
        ended=moments.ended[rows],
        hidden={agent: take_tree(state, rows) for agent, state in moments.hidden.items()},
    )


def _value(moments: Moments, value: Callable[[Mapping[str, Any], Array], Array]) -> Array:
    rules = moments.rules
    return value(rules.observe(moments.state), rules.global_state(moments.state))


def _decide(
    moments: Moments, team: Mapping[str, Policy], acting: Array, rng: np.random.Generator
) -> tuple[Array, dict[str, Any]]:
    """Return the actions of all who act, int64 [R, N], and the policies' states after them."""
    rules = moments.rules
    observed = rules.observe(moments.state)
    actions = np.zeros(acting.shape, dtype=np.int64)
    hidden = dict(moments.hidden)
    for i, agent in enumerate(rules.agents):
        rows = np.flatnonzero(acting[:, i])
        if not len(rows):
            continue
        before = take_tree(hidden[agent], rows)
        decision = team[agent].act(take_tree(observed[agent], rows), before, rng)
        actions[rows, i] = decision.action
        if hidden[agent] is not None:
            hidden[agent] = put_tree(hidden[agent], rows, decision.state)
    return actions, hidden
