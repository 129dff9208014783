"""Exact copies (forks) of states, simulated many times: the true value of a decision.

Rules are functions of a state, so any state can be forked: each copy starts from the same state and
is continued with the team's policies. The mean of the discounted future rewards is the true value
of the state, with its standard error. The mean after a specific first action is the true value of
that action.

All randomness of an episode is drawn at its start, so a plain fork has the same future again. If
the rules have the hook ``redraw(state, rngs)`` (see ``corral.envs.core``), randomness that the team
cannot have observed is redrawn for each copy. Rules that hide the randomness of a step are replaced
by rules that redraw it (``for_copies``).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from corral.envs.core import (
    Array,
    Rules,
    copy_rows,
    for_copies,
    keep_rows,
    max_rows_of,
    redraw_of,
    state_arrays,
)
from corral.envs.policy import Policy, put_tree, rebuilt, take_tree

__all__ = ["Moments", "Story", "Worth", "decide", "joined", "standard_error", "worth"]


@dataclass(frozen=True)
class Moments:
    """K states before a step in which ``agent`` decides."""

    rules: Rules[Any]
    agent: int
    state: Any  # state of the rules, K rows
    elapsed: Array  # int64 [K] steps since the start of the episode
    ended: Array  # bool [K, N] agents with an ended episode
    hidden: Mapping[str, Any]  # agent -> policy state, K rows; None: stateless

    def __len__(self) -> int:
        return len(self.elapsed)

    def repeated(self, times: int) -> Moments:
        """Repeat each state ``times`` times in a row."""
        return self.at(np.repeat(np.arange(len(self)), times))

    def at(self, rows: Array) -> Moments:
        """Return copies of the states at ``rows`` [R]."""
        hidden = {agent: take_tree(state, rows) for agent, state in self.hidden.items()}
        state = copy_rows(self.state, rows)
        return replace(
            self, state=state, elapsed=self.elapsed[rows], ended=self.ended[rows], hidden=hidden
        )

    def observation(self) -> Any:
        """Return the observations of the deciding agent: [K, ...]."""
        return self.rules.observe(copy_rows(self.state, slice(None)))[self.rules.agents[self.agent]]


@dataclass(frozen=True)
class Worth:
    """The true value of K states: the mean over F forks, and its standard error."""

    returns: Array  # float64 [K, F] discounted returns
    assumed: Array  # float64 [K] mean weight of the bootstrapped V
    steps: int  # env steps of the simulation

    @property
    def mean(self) -> Array:
        mean: Array = self.returns.mean(axis=1)
        return mean

    @property
    def error(self) -> Array:
        return standard_error(self.returns)


def standard_error(samples: Array) -> Array:
    """Return the standard error of the mean of ``samples`` [K, F]: float64 [K]; NaN for F = 1."""
    forks = samples.shape[1]
    if forks < 2:
        return np.full(len(samples), np.nan)
    error: Array = samples.std(axis=1, ddof=1) / math.sqrt(forks)
    return error


class Story:
    """The trajectories of the deciding agent in each fork, as fields of a rollout: [T, K F].

    Column k F + f is fork f of state k. It starts at step ``begins[k]``, the step of the state in
    its rollout of T steps, and is recorded up to the end of the rollout.
    """

    def __init__(self, steps: int, begins: Array, forks: int) -> None:
        self.begins = np.repeat(begins, forks)
        shape = steps, len(self.begins)
        self.reward, self.value = (np.zeros(shape, dtype=np.float32) for _ in range(2))
        self.final_obs_value = np.zeros(shape, dtype=np.float32)
        self.acted, self.ended = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
        self.bootstrap_value = np.zeros(shape[1], dtype=np.float32)
        self.acts_next = np.zeros(shape[1], dtype=bool)

    def before(self, i: int, rows: Array, decides: Array, value: Array) -> None:
        """Record, for the forks ``rows`` [R] at i steps after their start, whether the agent
        decides and the value V."""
        t = self.begins[rows] + i
        inside, end = t < len(self.reward), t == len(self.reward)
        self.acted[t[inside], rows[inside]] = decides[inside]
        self.value[t[inside], rows[inside]] = value[inside]
        self.acts_next[rows[end]] = decides[end]
        self.bootstrap_value[rows[end]] = value[end]

    def after(self, i: int, rows: Array, reward: Array, gone: Array) -> None:
        """Record the reward of that step, and whether it ended the agent's episode."""
        t = self.begins[rows] + i
        inside = t < len(self.reward)
        self.reward[t[inside], rows[inside]] = reward[inside]
        self.ended[t[inside], rows[inside]] = gone[inside]

    def cut(self, i: int, rows: Array, value: Array) -> None:
        """Record that V replaces the rewards after that step."""
        t = self.begins[rows] + i
        inside = t < len(self.reward)
        self.ended[t[inside], rows[inside]] = True
        self.final_obs_value[t[inside], rows[inside]] = value[inside]


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
    story: Story | None = None,
    told: bool = False,
    watch: Callable[[Array, Array, Array], None] = lambda rows, taken, reward: None,
) -> Worth:
    """Return the true value of K states for the deciding agent when ``team`` samples its actions.

    Discounting counts the agent's own decisions: rewards after its k-th decision from here have the
    weight gamma ** k.

    Args:
        first: int [K], the first action; None: sampled from the policy.
        value: V of the deciding agent for observations of all agents [R, ...] and global states
            [R, G]: float [R]. It bootstraps after the time limit and after ``horizon`` decisions,
            as in training; None: 0.
        horizon: maximum number of decisions; default: until the discount weight is below 1 %.
        forks: copies of each state.
        story: records the trajectories; needs ``value``.
        told: the global state is also known, as for a centralized critic; it limits ``redraw``.
        watch: called after each step with the forks of that step (int [R], fork f of state k is
            k * forks + f), the number of the agent's decisions so far (int [R]), and the rewards of
            all agents [R, N].
    """
    rules = for_copies(moments.rules)
    moments = replace(moments, rules=rules)
    if horizon is None:
        horizon = LONGEST if gamma >= 1 else math.ceil(math.log(0.01) / math.log(gamma or 1e-9))
        horizon = max(1, horizon)
    limit = np.iinfo(np.int64).max if rules.max_cycles is None else rules.max_cycles
    keep_rows(rules, moments.state, np.arange(len(moments)))
    redraw = redraw_of(rules)
    total, weight = np.zeros(len(moments) * forks), np.zeros(len(moments) * forks)
    forced = None if first is None else np.repeat(first, forks)
    steps = 0
    longest = 0 if story is None else len(story.reward) - int(story.begins.min(initial=0))

    def leave(chosen: Array) -> None:
        """Bootstrap the ``chosen`` forks with V."""
        if value is None or not chosen.any():
            return
        late, values = rows[chosen], _value(_part(on, chosen), value)
        weight[late] = gamma ** taken[chosen]
        total[late] += weight[late] * values
        if story is not None:
            story.cut(steps_since - 1, late, values)

    # Rules with running environments limit the number of forks that are played at the same time.
    at_once = max(1, (max_rows_of(rules) or len(total)) // forks)
    for part in np.split(np.arange(len(moments)), range(at_once, len(moments), at_once)):
        on = moments.at(part).repeated(forks)  # the active forks; finished forks are removed
        if redraw is not None:
            on = replace(on, state=redraw(on.state, rng.spawn(len(on)), told))
        # fork number of each row of ``on``
        rows = (part[:, None] * forks + np.arange(forks)).ravel()
        taken = np.zeros(len(on), dtype=np.int64)  # decisions of the agent since the fork
        steps_since = 0
        while len(rows):
            acting = rules.acting(on.state) & ~on.ended
            if (done := acting[:, moments.agent] & (taken >= horizon)).any():
                leave(done)
                on, rows, taken, acting = _part(on, ~done), rows[~done], taken[~done], acting[~done]
                if not len(rows):
                    break
            decides = acting[:, moments.agent]
            if story is not None and value is not None and steps_since <= longest:
                story.before(steps_since, rows, decides, _value(on, value))
            actions, hidden = decide(on, team, acting, rng)
            if forced is not None:
                begins = decides & (taken == 0)
                actions[begins, moments.agent] = forced[rows[begins]]
            taken = taken + decides
            outcome = rules.step(on.state, actions)
            watch(rows, taken, outcome.reward)
            reward = outcome.reward[:, moments.agent].astype(np.float64)
            total[rows] += gamma ** np.maximum(taken - 1, 0) * reward
            gone = (on.ended | outcome.terminated)[:, moments.agent]
            on = replace(
                on,
                state=outcome.state,
                elapsed=on.elapsed + 1,
                ended=on.ended | outcome.ends,
                hidden=hidden,
            )
            if story is not None:
                story.after(steps_since, rows, reward, gone)
            steps, steps_since = steps + len(rows), steps_since + 1
            leave(truncated := ((on.elapsed >= limit) | on.ended[:, moments.agent]) & ~gone)
            if (finished := gone | truncated).any():
                on, rows, taken = _part(on, ~finished), rows[~finished], taken[~finished]
    shape = len(moments), forks
    return Worth(total.reshape(shape), weight.reshape(shape).mean(axis=1), steps)


LONGEST = 10_000
"""Maximum number of decisions without discounting, for games that do not end otherwise."""


def joined(trees: Sequence[Any]) -> Any:
    """Concatenate states of policies or rules along their rows."""
    first = trees[0]
    if first is None:
        return None
    if dataclasses.is_dataclass(first):
        parts = [state_arrays(tree) for tree in trees]
        return type(first)(**joined(parts))  # type: ignore[misc]
    if isinstance(first, Mapping):
        return {key: joined([tree[key] for tree in trees]) for key in first}
    if isinstance(first, tuple | list):
        return rebuilt(first, [joined(parts) for parts in zip(*trees, strict=True)])
    return np.concatenate(trees)


def _part(moments: Moments, chosen: Array) -> Moments:
    return moments.at(np.flatnonzero(chosen))


def _value(moments: Moments, value: Callable[[Mapping[str, Any], Array], Array]) -> Array:
    rules = moments.rules
    return value(rules.observe(moments.state), rules.global_state(moments.state))


def decide(
    moments: Moments, team: Mapping[str, Policy], acting: Array, rng: np.random.Generator
) -> tuple[Array, dict[str, Any]]:
    """Return the actions of the acting agents, int64 [R, N], and the next policy states."""
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
