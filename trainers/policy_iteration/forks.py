"""Exact copies of moments, played on many times: what a decision is truly worth.

Rules are functions of a state, so any moment can be forked: the same state again and again, each
copy played on by the team's own policies. The mean of the discounted rewards that follow is the
true value of the moment, with its standard error; the mean after a given first action is the true
value of that action.

All chance of an episode is drawn when it begins, so a plain fork meets the same future again. Where
rules have the hook ``redraw(state, rngs)`` (see ``corral.envs.core``), what the team cannot have
observed is drawn anew for each copy. Rules that hide the chance of a step are replaced by those
that redraw it (``for_copies``).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from corral.envs.core import Array, Rules, copy_rows, for_copies, redraw_of, state_arrays
from corral.envs.policy import Policy, put_tree, rebuilt, take_tree

__all__ = ["Moments", "Story", "Worth", "decide", "joined", "standard_error", "worth"]


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
        return self.at(np.repeat(np.arange(len(self)), times))

    def at(self, rows: Array) -> Moments:
        """Return copies of the moments ``rows`` [R]."""
        hidden = {agent: take_tree(state, rows) for agent, state in self.hidden.items()}
        state = copy_rows(self.state, rows)
        return replace(
            self, state=state, elapsed=self.elapsed[rows], ended=self.ended[rows], hidden=hidden
        )

    def observation(self) -> Any:
        """Return what the deciding agent observes: [K, ...]."""
        return self.rules.observe(copy_rows(self.state, slice(None)))[self.rules.agents[self.agent]]


@dataclass(frozen=True)
class Worth:
    """The true value of K moments: a mean over F forks, and its standard error."""

    returns: Array  # float64 [K, F] discounted
    assumed: Array  # float64 [K] the weight with which V stands for the rest, on average
    steps: int  # env steps that were played for it

    @property
    def mean(self) -> Array:
        found: Array = self.returns.mean(axis=1)
        return found

    @property
    def error(self) -> Array:
        return standard_error(self.returns)


def standard_error(samples: Array) -> Array:
    """Return the standard error of the mean of ``samples`` [K, F]: float64 [K]; NaN for one."""
    forks = samples.shape[1]
    if forks < 2:
        return np.full(len(samples), np.nan)
    found: Array = samples.std(axis=1, ddof=1) / math.sqrt(forks)
    return found


class Story:
    """What the deciding agent met in each fork: the fields of a rollout's trajectories, [T, K F].

    Column k F + f is fork f of moment k; it begins at step ``begins[k]``, as the moment itself did
    in its rollout of T steps, and is noted up to the rollout's end.
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
        """Note, for forks ``rows`` [R] i steps after they began, whether the agent decides and what
        V says."""
        t = self.begins[rows] + i
        inside, end = t < len(self.reward), t == len(self.reward)
        self.acted[t[inside], rows[inside]] = decides[inside]
        self.value[t[inside], rows[inside]] = value[inside]
        self.acts_next[rows[end]] = decides[end]
        self.bootstrap_value[rows[end]] = value[end]

    def after(self, i: int, rows: Array, reward: Array, gone: Array) -> None:
        """Note the reward of that step, and whether it ended the agent's episode."""
        t = self.begins[rows] + i
        inside = t < len(self.reward)
        self.reward[t[inside], rows[inside]] = reward[inside]
        self.ended[t[inside], rows[inside]] = gone[inside]

    def cut(self, i: int, rows: Array, value: Array) -> None:
        """Note that V stands for what follows that step."""
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
        story: is filled with what happens; it needs ``value``.
        told: the moment's global state is known too, as it is to a central critic.
        watch: is called after each step with which forks were stepped (int [R], fork f of moment k
            is k * forks + f), the agent's decisions in them so far (int [R]), and the rewards of
            all agents [R, N].
    """
    rules = for_copies(moments.rules)
    moments = replace(moments, rules=rules)
    if horizon is None:
        horizon = LONGEST if gamma >= 1 else math.ceil(math.log(0.01) / math.log(gamma or 1e-9))
        horizon = max(1, horizon)
    limit = np.iinfo(np.int64).max if rules.max_cycles is None else rules.max_cycles
    on = moments.repeated(forks)  # what is played on; what is over is left out
    if (redraw := redraw_of(rules)) is not None:
        on = replace(on, state=redraw(on.state, rng.spawn(len(on)), told))
    total, weight = np.zeros(len(on)), np.zeros(len(on))
    rows = np.arange(len(on))  # which fork each row of ``on`` is
    taken = np.zeros(len(on), dtype=np.int64)  # decisions of the agent since the fork
    forced = None if first is None else np.repeat(first, forks)
    steps = steps_since = 0
    longest = 0 if story is None else len(story.reward) - int(story.begins.min(initial=0))

    def leave(chosen: Array) -> None:
        """Let V stand for what would follow."""
        if value is None or not chosen.any():
            return
        late, said = rows[chosen], _value(_part(on, chosen), value)
        weight[late] = gamma ** taken[chosen]
        total[late] += weight[late] * said
        if story is not None:
            story.cut(steps_since - 1, late, said)

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
        on = replace(
            on,
            state=outcome.state,
            elapsed=on.elapsed + 1,
            ended=on.ended | outcome.terminated,
            hidden=hidden,
        )
        gone = on.ended[:, moments.agent]
        if story is not None:
            story.after(steps_since, rows, reward, gone)
        steps, steps_since = steps + len(rows), steps_since + 1
        leave(cut := (on.elapsed >= limit) & ~gone)
        if (over := gone | cut).any():
            on, rows, taken = _part(on, ~over), rows[~over], taken[~over]
    shape = len(moments), forks
    return Worth(total.reshape(shape), weight.reshape(shape).mean(axis=1), steps)


LONGEST = 10_000
"""Decisions that are played without a discount, where nothing else ends a game."""


def joined(trees: Sequence[Any]) -> Any:
    """Return states of policies, or of rules, one after the other along their rows."""
    first = trees[0]
    if first is None:
        return None
    if dataclasses.is_dataclass(first):
        parts = [state_arrays(each) for each in trees]
        return type(first)(**joined(parts))  # type: ignore[misc]
    if isinstance(first, Mapping):
        return {key: joined([each[key] for each in trees]) for key in first}
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
