"""Audit third-party trainers: compare their critics with true values.

A trainer needs only ``rules``, ``settings``, ``policies`` and ``values(observations, state)``,
which returns V by agent. The training data of its actors is not available.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from corral.envs.batch import Batch
from corral.envs.core import Array, for_copies, generator, redrawing
from corral.envs.masks import OBSERVATION
from corral.envs.policy import put_tree
from corral.lab.doctor.audit.audited import Audit, Audited, Compared, clamped, fitted
from corral.lab.doctor.audit.truth import WORST, Asked, States, Time, Truth, plan, truth_of
from corral.trainers.policy_iteration.forks import Moments, decide, joined, standard_error

__all__ = ["audit_critics"]

NUM_ENVS, STEPS, EVERY = 12, 64, 8
"""Number of environment copies and of steps, and the interval of steps between forked states."""


def audit_critics(
    trainer: Any,
    policies: Mapping[str, str],
    *,
    seed: int = 0,
    most_steps: int = 200_000,
    seconds: float = 20.0,
    other_futures: bool = False,
) -> Audit:
    """Audit the critics of a trainer; ``policies`` names each agent's policy.

    Raises SnapshotError for a third-party environment that cannot be copied.
    """
    began, limit = time.perf_counter(), Time(seconds)
    states, team = States.of(trainer.rules), dict(trainer.policies)
    rules: Any = states.rules
    if other_futures:
        if (redrawn := redrawing(rules)) is None:
            raise ValueError(
                f"{rules.name} has no other data to replace future data. Pass other_futures=False"
            )
        rules = redrawn
    rules = for_copies(rules)
    gamma, rng = float(trainer.settings.gamma), generator(seed, "eval")
    questions = _asked(trainer, rules, team, seed, rng)
    running = states.copied is not None
    budget = plan(questions, team, gamma, most_steps, limit, rng, running=running)
    truths = [truth_of(question, team, gamma, budget, 0, rng) for question in questions]
    audited_policies = tuple(
        _beside(name, [truth for truth in truths if policies[truth.asked.agent] == name])
        for name in dict.fromkeys(policies.values())
    )
    updates = int(trainer.env_steps) // int(trainer.rollout_steps)
    played = sum(truth.steps for truth in truths)
    shared_future = dataclasses.replace(states, rules=rules).same_future
    whole, cut = time.perf_counter() - began, limit.left <= 0
    return Audit(audited_policies, shared_future, updates, played, whole, states.copied, cut)


def _asked(
    trainer: Any, rules: Any, team: Mapping[str, Any], seed: int, rng: np.random.Generator
) -> list[Asked]:
    """Play with sampled actions; return states in which the team's agents decided."""
    batch = Batch(rules, NUM_ENVS, seed)
    batch.reset()
    every = np.arange(NUM_ENVS)
    hidden = {agent: policy.initial_state(NUM_ENVS) for agent, policy in team.items()}
    seen: list[Moments] = []
    acted: list[Array] = []
    for t in range(STEPS):
        now = Moments(rules, 0, *batch.moments(every), dict(hidden))
        actions, hidden = decide(now, team, batch.acting, rng)
        if t % EVERY == EVERY // 2:
            seen.append(now)
            acted.append(actions)
        step = batch.step(actions)
        if step.finished is not None:
            over = step.finished.rows
            hidden = {
                agent: put_tree(state, over, team[agent].initial_state(len(over)))
                for agent, state in hidden.items()
            }
    state = joined([item.state for item in seen])
    elapsed = np.concatenate([item.elapsed for item in seen])
    ended = np.concatenate([item.ended for item in seen])
    before = joined([dict(item.hidden) for item in seen])
    taken, when = np.concatenate(acted), np.repeat(np.arange(len(seen)), NUM_ENVS)
    questions = []
    for i, agent in enumerate(rules.agents):
        moments = Moments(rules, i, state, elapsed, ended, before)

        def value(observations: Any, state: Array, agent: str = agent) -> Array:
            said: Array = trainer.values(observations, state)[agent]
            return said

        row = np.tile(every, len(seen))
        whole = Asked(agent, moments, when, row, taken[:, i], value)
        questions.append(whole.at(np.flatnonzero(rules.acting(state)[:, i] & ~ended[:, i])))
    return questions


def _beside(policy: str, truths: list[Truth]) -> Audited:
    estimates, inputs = [], []
    for truth in truths:
        moments = truth.asked.moments
        observed = moments.rules.observe(moments.state)
        state = moments.rules.global_state(moments.state)
        assert truth.asked.value is not None
        estimates.append(np.asarray(truth.asked.value(observed, state), dtype=np.float64))
        inputs.append(_columns(observed[truth.asked.agent][OBSERVATION], len(moments)))
    forks = np.concatenate([truth.advantages for truth in truths])
    values = Compared(
        np.concatenate(estimates),
        np.concatenate([truth.value.mean for truth in truths]),
        np.concatenate([truth.value.error for truth in truths]),
    )
    columns = np.concatenate(inputs)
    unseen = np.full(len(forks), np.nan)
    worst = sorted((one for truth in truths for one in truth.decisions), key=lambda one: -one[0])
    return Audited(
        policy=policy,
        values=values,
        assumed=float(np.mean(np.concatenate([truth.value.assumed for truth in truths]))),
        fitted=fitted(columns, values.true),
        clamped=clamped(values.said, columns),
        advantages=Compared(unseen, forks.mean(axis=1), standard_error(forks)),
        credit=None,
        plain=None,
        sample=None,
        learned_spread=float("nan"),
        actor_gradient=None,
        worst=tuple(one for _, one in worst[:WORST]),
    )


def _columns(tree: Any, rows: int) -> Array:
    """Flatten an observation into numbers: float64 [R, F]."""
    if isinstance(tree, Mapping):
        return np.concatenate([_columns(part, rows) for part in tree.values()], axis=1)
    return np.asarray(tree, dtype=np.float64).reshape(rows, -1)
