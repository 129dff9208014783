"""The audit: what a run believes, beside the truth.

A rollout of the run is played, moments of it are forked and played on by the run's own policies
(``corral.trainers.doctor.forks``), and the true values and advantages that come out are compared
with the critic's values, with the advantages that the run learns from, and with what the actor
then does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array, copy_rows, generator, redraw_of
from corral.envs.masks import MASK
from corral.trainers.doctor.forks import Moments, worth
from corral.trainers.on_policy.records import Advantages, Trajectories

__all__ = ["Audit", "Audited", "Decision", "audit"]


@dataclass(frozen=True)
class Decision:
    """One decision of the run, and the best one at that moment."""

    agent: str
    env_row: int
    step: int  # of the episode
    action: int
    best: int
    loss: float  # true value of the best action less that of the one taken
    error: float  # standard error of ``loss``


@dataclass(frozen=True)
class Audited:
    """What was found of one policy. Correlations are None where one side does not vary."""

    policy: str
    moments: int
    value: Array  # float64 [K] true
    value_error: Array  # float64 [K]
    critic: Array  # float64 [K] what the critic said
    advantage: Array  # float64 [M] true, of the actions that were compared
    advantage_error: Array  # float64 [M]
    learned: Array  # float64 [M] the run's own advantages of the same decisions; NaN: none
    worst: tuple[Decision, ...]

    @property
    def value_correlation(self) -> float | None:
        return correlation(self.critic, self.value)

    @property
    def advantage_correlation(self) -> float | None:
        known = ~np.isnan(self.learned)
        return correlation(self.learned[known], self.advantage[known])


@dataclass(frozen=True)
class Audit:
    """The truth about a run, by policy."""

    policies: tuple[Audited, ...]
    given_this_future: bool  # the forks meet the same chance again: rules without ``redraw``
    env_steps: int
    seconds: float


def correlation(a: Array, b: Array) -> float | None:
    """Return Pearson's correlation; None where one side does not vary."""
    if len(a) < 3 or np.std(a) < 1e-9 or np.std(b) < 1e-9:
        return None
    return float(np.corrcoef(a, b)[0, 1])


# --- Playing the rollout -------------------------------------------------------------------------

TIMES, ROWS, CANDIDATES = 8, 8, 6
"""Steps of the rollout that are looked at, environments at each, and actions at each moment."""


@dataclass(frozen=True)
class _Seen:
    """A moment of the rollout before a step: R rows of the batch."""

    t: int
    rows: Array  # int64 [R]
    state: Any
    elapsed: Array
    ended: Array
    hidden: Mapping[str, Any]


class _Watched:
    """A batch whose states are copied before some steps of a rollout."""

    def __init__(self, trainer: Any, times: Sequence[int], rows: Array) -> None:
        self.trainer, self.times, self.rows = trainer, set(times), rows
        self.batch, self.t = trainer.batch, 0
        self.seen: list[_Seen] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batch, name)

    def step(self, actions: Any) -> Any:
        step = self.batch.step(actions)
        self.t += 1  # hidden states are those before the next decision
        if self.t in self.times:
            moment = self.batch.moments(self.rows)
            hidden = {}
            for agent, policy in self.trainer._policy_of.items():
                learner = self.trainer.learners[policy]
                held = self.trainer.hidden[policy]
                column = learner.group.agents.index(agent)
                states = held.actor.reshape(held.shape)[self.rows, column]
                hidden[agent] = states.copy() if learner.actor.memory else None
            self.seen.append(_Seen(self.t, self.rows, *moment, hidden))
        return step


def audit(
    trainer: Any,
    *,
    times: int = TIMES,
    rows: int = ROWS,
    forks: int = 64,
    seed: int = 0,
    most_steps: int = 400_000,
) -> Audit:
    """Audit an in-house trainer that stands where its run stopped; it learns one update from it.

    Raises ValueError for environments whose moments cannot be forked (those of others), and for
    opponents.
    """
    began = time.perf_counter()
    if hasattr(trainer.rules, "make_batch") or trainer.opponents.policies:
        raise ValueError(f"{trainer.rules.name}: its moments cannot be copied")
    rng = generator(seed, "eval")
    trainer.begin()
    size = trainer.settings
    at = np.unique(np.linspace(1, size.n_steps - 1, min(times, size.n_steps - 1)).astype(int))
    chosen = np.sort(rng.permutation(size.num_envs)[:rows])
    batch = trainer.batch
    watched = _Watched(trainer, at.tolist(), chosen)
    trainer.batch = watched
    try:
        trainer.collect()
    finally:
        trainer.batch = batch
    team = dict(trainer.policies)
    steps = 0
    truths = {}
    for i, learner in enumerate(trainer.learners.values()):
        if learner.trained:
            truths[i] = _truth(trainer, i, learner, watched.seen, team, forks, rng)
            steps += truths[i].steps
    learned = _learned_from(trainer)
    policies = tuple(
        truth.beside(*learned[learner.group.policy])
        for i, learner in enumerate(trainer.learners.values())
        if (truth := truths.get(i)) is not None
    )
    given = redraw_of(trainer.rules) is None
    return Audit(policies, given, steps, time.perf_counter() - began)


# --- The truth -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Truth:
    """True values of K decisions of one policy, where they stand in the rollout, and the true
    advantages of the actions taken."""

    policy: str
    t: Array  # int64 [K]
    column: Array  # int64 [K] of the policy's columns
    value: Array
    value_error: Array
    advantage: Array
    advantage_error: Array
    decisions: tuple[Decision, ...]
    steps: int

    def beside(self, critic: Array, learned: Array) -> Audited:
        """``critic``, ``learned`` float [T, C]: the run's values and advantages."""
        worst = sorted(self.decisions, key=lambda each: each.error - each.loss)[:WORST]
        return Audited(
            self.policy,
            len(self.t),
            self.value,
            self.value_error,
            critic[self.t, self.column],
            self.advantage,
            self.advantage_error,
            learned[self.t, self.column],
            tuple(worst),
        )


WORST = 10
"""Decisions that are shown."""


def _truth(
    trainer: Any,
    i: int,
    learner: Any,
    seen: Sequence[_Seen],
    team: Mapping[str, Any],
    forks: int,
    rng: np.random.Generator,
) -> _Truth:
    rules, gamma = trainer.rules, trainer.settings.gamma
    group, buffer = learner.group, trainer.rollout.groups[i]
    found: dict[str, list[Any]] = {name: [] for name in ("t", "column", "v", "ve", "a", "ae")}
    decisions: list[Decision] = []
    steps = 0
    for moment in seen:
        for j, agent in enumerate(group.agents):
            at = rules.agents.index(agent)
            acting = rules.acting(moment.state)[:, at] & ~moment.ended[:, at]
            rows = np.flatnonzero(acting)
            if not len(rows):
                continue
            hidden = {name: None if h is None else h[rows] for name, h in moment.hidden.items()}
            state = copy_rows(moment.state, rows)
            here = Moments(rules, at, state, moment.elapsed[rows], moment.ended[rows], hidden)
            env_rows = moment.rows[rows]
            taken = buffer.action[moment.t][env_rows, j].astype(np.int64)
            mask = np.asarray(here.observation()[MASK]) != 0
            value = _value_of(trainer, agent)
            # Common random numbers: what differs is the first action.
            seed = int(rng.integers(2**63))

            def after(
                first: Array | None, here: Moments = here, seed: int = seed, value: Any = value
            ) -> Any:
                draws = np.random.default_rng(seed)
                return worth(
                    here, team, gamma=gamma, forks=forks, rng=draws, first=first, value=value
                )

            v, q = after(None), after(taken)
            steps += v.steps + q.steps
            best, best_action = q, taken.copy()
            best_mean, best_error = q.mean.copy(), q.error.copy()
            for candidate in _candidates(mask, taken, rng).T:
                tried = after(candidate)
                steps += tried.steps
                better = tried.mean > best_mean
                best_mean = np.where(better, tried.mean, best_mean)
                best_error = np.where(better, tried.error, best_error)
                best_action = np.where(better, candidate, best_action)
            del best
            found["t"].append(np.full(len(rows), moment.t))
            found["column"].append(env_rows * len(group.agents) + j)
            found["v"].append(v.mean)
            found["ve"].append(v.error)
            found["a"].append(q.mean - v.mean)
            found["ae"].append(np.hypot(q.error, v.error))
            for k in range(len(rows)):
                if best_action[k] != taken[k]:
                    loss = float(best_mean[k] - q.mean[k])
                    error = float(math.hypot(best_error[k], q.error[k]))
                    step = int(moment.elapsed[rows][k])
                    row = int(env_rows[k])
                    chosen = int(taken[k]), int(best_action[k])
                    decisions.append(Decision(agent, row, step, *chosen, loss, error))
    joined = [np.concatenate(each) if each else np.zeros(0) for each in found.values()]
    t, column = (each.astype(np.int64) for each in joined[:2])
    return _Truth(group.policy, t, column, *joined[2:], tuple(decisions), steps)


def _candidates(mask: Array, taken: Array, rng: np.random.Generator) -> Array:
    """Return actions to compare with those taken: int64 [K, CANDIDATES], legal ones, spread over
    all that are; where there are fewer, some come twice."""
    del taken, rng
    found = np.zeros((len(mask), CANDIDATES), dtype=np.int64)
    for k, legal in enumerate(mask):
        actions = np.flatnonzero(legal)
        at = np.linspace(0, len(actions) - 1, CANDIDATES).round().astype(int)
        found[k] = actions[at]
    return found


def _value_of(trainer: Any, agent: str) -> Any:
    """Return V of ``agent`` as the critic says it; None where it depends on more than that."""
    if trainer.critic_input.with_actions or trainer.settings.memory:
        return None
    central = trainer.critic_input.kind == "state"

    def value(observations: Mapping[str, Any], state: Array) -> Array:
        found: Array = trainer.values(observations, state if central else None)[agent]
        return found

    return value


def _learned_from(trainer: Any) -> dict[str, tuple[Array, Array]]:
    """Let the trainer learn from its rollout; return, by policy, the values [T, C] and advantages
    [T, C] that it learned from; NaN where a decision was not."""
    found: list[tuple[Array, Array]] = []
    algorithm = trainer.algorithm

    def spied(trajectories: Trajectories, settings: Any) -> Advantages:
        advantages: Advantages = algorithm.advantages(trajectories, settings)
        learned = np.where(trajectories.valid, advantages.advantage, np.nan)
        found.append((trajectories.value.copy(), learned))
        return advantages

    trainer.algorithm = algorithm.but(advantages=spied)
    try:
        trainer.update()
    finally:
        trainer.algorithm = algorithm
    names = [name for name, learner in trainer.learners.items() if learner.trained]
    return dict(zip(names, found, strict=True))
