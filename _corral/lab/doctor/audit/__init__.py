"""Audit a run: compare its values and advantages with true ones.

The audit plays a rollout of the run, forks some of its states and continues them with the run's
own policies (``corral.lab.doctor.audit.truth``). The forks give true values and advantages. The
audit compares them with the critic's values, the training advantages and the actor's gradient.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from corral.adapters.snapshots import SnapshotBatch
from corral.envs.core import (
    Array,
    for_copies,
    generator,
    redrawing,
    with_limit,
)
from corral.errors import CorralError
from corral.lab.doctor.audit.audited import (
    Audit,
    Audited,
    Compared,
    Decision,
    clamped,
    correlation,
    fitted,
    sentence,
)
from corral.lab.doctor.audit.truth import WORST, Asked, States, Time, Truth, Value, plan, truth_of
from corral.trainers.observers import Observer
from corral.trainers.on_policy import maths
from corral.trainers.on_policy.records import Advantages, Trajectories
from corral.trainers.policy_iteration.forks import Moments, Story, joined, standard_error

__all__ = ["Audit", "Audited", "Compared", "Decision", "audit", "sentence"]

TIMES, ROWS = 8, 12
"""Number of rollout steps that are forked, and of environment copies per step."""

MAX_STEPS = 400_000
"""Approximate env steps of all forks together. Image networks get half."""

SECONDS = 30.0
"""CPU time, after which no better action is searched. Running environments get this time."""


def audit(
    trainer: Any,
    *,
    times: int = TIMES,
    rows: int = ROWS,
    seed: int = 0,
    most_steps: int = MAX_STEPS,
    seconds: float = SECONDS,
    other_futures: bool = False,
) -> Audit:
    """Audit an in-house trainer at its current checkpoint; the trainer learns one update.

    ``other_futures`` replaces future data in each fork, if the rules replay data and support it
    (``OptionalRules.redrawing``). Rules in which agents choose before a step's chance always
    replace future data if they can: see ``for_copies``. A third-party environment is copied in the
    way that ``corral.adapters.snapshots`` proves; raises SnapshotError if none is exact.
    """
    began, limit = time.perf_counter(), Time(seconds)
    states = States.of(trainer.rules)
    rules: Any = states.rules
    if states.copied is not None:
        trainer.wrap_batches(lambda batch: SnapshotBatch(rules, batch.num_envs, batch.seed))
    trainer.begin()
    if other_futures:
        if (redrawn := redrawing(rules)) is None:
            raise ValueError(
                f"{rules.name} has no other data to replace future data. Pass other_futures=False"
            )
        rules = redrawn
    rules = for_copies(rules)
    rng = generator(seed, "eval")
    before = trainer.env_steps // trainer.rollout_steps
    seen = _watch_rollout(trainer, times, rows, rng)
    team = dict(trainer.policies)
    questions = {
        name: _asked(trainer, rules, i, seen)
        for i, (name, learner) in enumerate(trainer.learners.items())
        if learner.trained
    }
    gamma = float(trainer.settings.gamma)
    everything = [item for truths_of in questions.values() for item in truths_of]
    pictures = any(group.layout.images for group in trainer.groups)
    budget_steps = most_steps // 2 if pictures else most_steps
    running = states.copied is not None
    budget = plan(everything, team, gamma, budget_steps, limit, rng, running=running)
    steps = trainer.settings.n_steps
    truths = {
        name: [truth_of(item, team, gamma, budget, steps, rng) for item in truths_of]
        for name, truths_of in questions.items()
    }
    with_advantages = truths if _uses_advantages(trainer) else {}
    credit = {
        name: _credit(trainer, name, truths_of) for name, truths_of in with_advantages.items()
    }
    learned = _learned_from(trainer)
    policies = tuple(
        _beside(trainer, i, truths[name], learned[name], credit.get(name))
        for i, name in enumerate(trainer.learners)
        if any(len(item.asked.t) for item in truths.get(name, ()))
    )
    played = sum(item.steps for truths_of in truths.values() for item in truths_of)
    shared_future = replace(states, rules=rules).same_future
    cut = limit.left <= 0
    return Audit(
        policies, shared_future, before, played, time.perf_counter() - began, states.copied, cut
    )


# --- Playing the rollout -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Seen:
    """Copied states of a rollout before step ``t``: R rows of the batch."""

    t: int
    rows: Array  # int64 [R]
    state: Any
    elapsed: Array
    ended: Array
    hidden: dict[str, Any]


class _Watched:
    """A batch wrapper that copies states before some steps of a rollout."""

    def __init__(self, trainer: Any, times: Sequence[int], rows: Array) -> None:
        self.trainer, self.times, self.rows = trainer, set(times), rows
        self.batch, self.t = trainer.batch, 0
        self.seen: list[_Seen] = []
        self.look()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batch, name)

    def step(self, actions: Any) -> Any:
        step = self.batch.step(actions)
        self.t += 1
        if step.finished is not None:  # the trainer resets again after this step
            for player in self.trainer.players:
                player.reset(step.finished.rows)
        self.look()
        return step

    def look(self) -> None:
        """Copy the current states if ``t`` is one of ``times``."""
        if self.t not in self.times:
            return
        trainer, hidden = self.trainer, {}
        for agent in trainer.rules.agents:
            if agent in trainer.opponents:
                hidden[agent] = trainer.opponents.states(agent, self.rows)
                continue
            policy = trainer._policy_of[agent]
            learner, held = trainer.learners[policy], trainer.hidden[policy]
            column = learner.group.agents.index(agent)
            states = held.actor.reshape(held.shape)[self.rows, column]
            hidden[agent] = states.copy() if learner.actor.memory else None
        state, elapsed, ended = self.batch.moments(self.rows)
        self.seen.append(_Seen(self.t, self.rows, state, elapsed, ended, hidden))


def _watch_rollout(trainer: Any, times: int, rows: int, rng: np.random.Generator) -> list[_Seen]:
    """Play a rollout; return the copied states of some steps."""
    last = trainer.settings.n_steps - 1
    at = np.unique(np.linspace(0, last, times).round().astype(int)).tolist()
    chosen = np.sort(rng.permutation(trainer.settings.num_envs)[:rows])
    watched = _Watched(trainer, at, chosen)
    with trainer.playing_in(watched):
        trainer.collect()
    return watched.seen


def _asked(trainer: Any, rules: Any, i: int, seen: Sequence[_Seen]) -> list[Asked]:
    """Return the states in which the agents of group ``i`` decided, one item per agent."""
    group, buffer = trainer.groups[i], trainer.rollout.groups[i]
    gamma = float(trainer.settings.gamma)
    questions = []
    for j, agent in enumerate(group.agents):
        at = rules.agents.index(agent)
        value = _value_of(trainer, agent)
        # Without V, the true value is the return without a time limit.
        uncut = value is None and gamma < 1
        moments = Moments(
            with_limit(rules, None) if uncut else rules,
            at,
            joined([item.state for item in seen]),
            np.concatenate([item.elapsed for item in seen]),
            np.concatenate([item.ended for item in seen]),
            joined([item.hidden for item in seen]),
        )
        t = np.concatenate([np.full(len(item.rows), item.t) for item in seen])
        env_row = np.concatenate([item.rows for item in seen])
        taken = buffer.action[t, env_row, j].astype(np.int64)
        sees_state = trainer.critic_input.kind == "state"
        every = Asked(agent, moments, t, env_row, taken, value, sees_state)
        decides = rules.acting(moments.state)[:, at] & ~moments.ended[:, at]
        if buffer.learned is not None:  # skip decisions of snapshots
            decides = decides & buffer.learned[t, env_row, j]
        questions.append(every.at(np.flatnonzero(decides)))
    return questions


def _value_of(trainer: Any, agent: str) -> Value | None:
    """Return the critic's V of ``agent``; None if V depends on actions or memory."""
    if trainer.critic_input.with_actions or trainer.settings.memory:
        return None
    central = trainer.critic_input.kind == "state"

    def value(observations: Any, state: Array) -> Array:
        values: Array = trainer.values(observations, state if central else None)[agent]
        return values

    return value


# --- Data that the run learns from ---------------------------------------------------------------


@dataclass(frozen=True)
class _Learned:
    """Training data of a policy: [T, C]; NaN for unused decisions."""

    value: Array
    advantage: Array
    actor_gradient: float | None


def _uses_advantages(trainer: Any) -> bool:
    """Return True if the trainer learns from advantages, not from temporal differences."""
    return bool(trainer.capabilities.advantages)


def _learned_from(trainer: Any) -> dict[str, _Learned]:
    """Let the trainer learn from its rollout; return its training data by policy."""
    observer = _LearnedObserver(_uses_advantages(trainer))
    end = trainer.observe(observer)
    try:
        trainer.update()
    except CorralError:
        pass  # the observer has the training data already
    finally:
        end()
    training_data: dict[str, _Learned] = {}
    for i, (name, learner) in enumerate(trainer.learners.items()):
        if learner.trained:
            nothing = np.full(trainer.rollout.groups[i].acted.shape, np.nan)
            value, learned = observer.numbers.get(name, (nothing, nothing))
            training_data[name] = _Learned(value, learned, observer.largest.get(name))
    return training_data


class _LearnedObserver(Observer):
    """Records values, advantages and the largest actor gradient, by policy."""

    def __init__(self, uses_advantages: bool) -> None:
        self.uses_advantages = uses_advantages
        self.numbers: dict[str, tuple[Array, Array]] = {}
        self.largest: dict[str, float] = {}

    def on_advantages(
        self, learner: Any, trajectories: Trajectories, advantages: Advantages
    ) -> None:
        learned = np.where(trajectories.valid, advantages.advantage, np.nan)
        if not self.uses_advantages:
            learned[:] = np.nan
        self.numbers[learner.group.policy] = np.array(trajectories.value), learned

    def on_gradients(self, learner: Any, *, clipped: bool) -> None:
        if clipped:
            return
        sizes = [float(p.grad.abs().max()) for p in learner.actor_parameters if p.grad is not None]
        policy = learner.group.policy
        self.largest[policy] = max([*sizes, self.largest.get(policy, 0.0)])


@dataclass(frozen=True)
class _Credit:
    """Advantages of the forks from an advantage function, [K, F] each.

    The first array is for the taken actions, the second for actions sampled from the policy.
    """

    own: tuple[Array, Array] | None  # the run's; None: it depends on the shape of its rollouts
    plain: tuple[tuple[Array, Array], ...]  # generalized advantages


def _credit(trainer: Any, name: str, truths: Sequence[Truth]) -> _Credit | None:
    """Apply advantage functions to the forks; None if the forks have no trajectories."""
    stories = [truth.stories for truth in truths if truth.stories is not None]
    if len(stories) < len(truths) or not stories:
        return None
    taken, drawn = zip(*stories, strict=True)
    both = [*taken, *drawn]
    trajectories, settings = _trajectories(both), trainer.learners[name].settings
    at = np.concatenate([item.begins for item in both])
    column = np.arange(len(at))

    def halves(advantage: Array) -> tuple[Array, Array]:
        learned = np.where(trajectories.valid[at, column], advantage[at, column], np.nan)
        taken, drawn = learned.astype(np.float64).reshape(2, -1, truths[0].forks)
        return taken, drawn

    def generalized(gae_lambda: float) -> Array:
        return maths.gae(**vars(trajectories), gamma=float(settings.gamma), gae_lambda=gae_lambda)

    plain = tuple(halves(generalized(gae_lambda)) for gae_lambda in (0.0, 1.0))
    try:
        run_advantages = halves(trainer.algorithm.advantages(trajectories, settings).advantage)
    except (CorralError, ValueError, IndexError):
        run_advantages = None
    return _Credit(run_advantages, plain)


def _trajectories(stories: Sequence[Story]) -> Trajectories:
    """Concatenate the stories along the column axis."""

    def side_by_side(name: str) -> Array:
        return np.concatenate([getattr(story, name) for story in stories], axis=-1)

    acted, ended = side_by_side("acted"), side_by_side("ended")
    names = "reward", "value", "final_obs_value", "bootstrap_value"
    return Trajectories(
        acted=acted,
        ended=ended,
        valid=maths.valid_decisions(acted=acted, ended=ended, acts_next=side_by_side("acts_next")),
        **{name: side_by_side(name) for name in names},
    )


# --- Comparison ----------------------------------------------------------------------------------


def _beside(
    trainer: Any,
    i: int,
    truths: Sequence[Truth],
    learned: _Learned,
    credit: _Credit | None,
) -> Audited:
    """Compare one policy's values and advantages with the true ones of all its agents."""
    group = trainer.groups[i]
    t = np.concatenate([truth.asked.t for truth in truths])
    env_row = np.concatenate([truth.asked.env_row for truth in truths])
    agent = np.concatenate(
        [np.full(len(truth.asked.t), group.agents.index(truth.asked.agent)) for truth in truths]
    )
    column = env_row * len(group.agents) + agent
    true = np.concatenate([truth.value.mean for truth in truths])
    error = np.concatenate([truth.value.error for truth in truths])
    forks = np.concatenate([truth.advantages for truth in truths])  # [K, F]
    advantage = forks.mean(axis=1), standard_error(forks)
    values = Compared(learned.value[t, column].astype(np.float64), true, error)
    parts = trainer.critic_input.parts(trainer.rollout, i)
    inputs = np.concatenate(
        [part[t, env_row, agent].reshape(len(t), -1).astype(np.float64) for part in parts], axis=1
    )
    averaged, plain, sample = None, None, None
    if credit is not None:
        correlations = [_averaged(item, forks).correlation for item in credit.plain]
        plain = min((item for item in correlations if item is not None), default=None)
    if credit is not None and credit.own is not None:
        averaged = _averaged(credit.own, forks)
        single = _samples(credit.own[0], forks)
        sample = (float(np.mean(single)), float(np.std(single))) if len(single) > 1 else None
    worst = sorted(
        (decision for truth in truths for decision in truth.decisions),
        key=lambda decision: -decision[0],
    )
    spread = learned.advantage[~np.isnan(learned.advantage)]
    least = 0.0 if _uses_advantages(trainer) else float("nan")
    return Audited(
        policy=group.policy,
        values=values,
        assumed=float(np.mean(np.concatenate([truth.value.assumed for truth in truths]))),
        fitted=fitted(inputs, true),
        clamped=clamped(values.said, inputs),
        advantages=Compared(learned.advantage[t, column].astype(np.float64), *advantage),
        credit=averaged,
        plain=plain,
        sample=sample,
        learned_spread=float(np.std(spread)) if len(spread) else least,
        actor_gradient=learned.actor_gradient,
        worst=tuple(decision for _, decision in worst[:WORST]),
    )


def _averaged(estimates: tuple[Array, Array], forks: Array) -> Compared:
    """Compare mean advantages over half of the forks with true ones of the other half.

    Separate halves keep the noise of the two sides independent.
    """
    taken, drawn = estimates
    mean = (taken - drawn)[:, ::2].mean(axis=1)
    return Compared(mean, forks[:, 1::2].mean(axis=1), standard_error(forks[:, 1::2]))


def _samples(taken: Array, forks: Array) -> list[float]:
    """Return the correlation of each fork's advantages with the true ones of the other forks.

    Both arrays are [K, F].
    """
    complete = ~np.isnan(taken).any(axis=1)
    taken, forks = taken[complete], forks[complete]
    other_forks = (forks.sum(axis=1, keepdims=True) - forks) / max(1, forks.shape[1] - 1)
    correlations = [
        correlation(said, true) for said, true in zip(taken.T, other_forks.T, strict=True)
    ]
    return [item for item in correlations if item is not None]
