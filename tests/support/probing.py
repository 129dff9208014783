"""Learning a probe with the in-house trainers, and telling whether its answer came out.

``learn`` trains, ``misses`` lists what is not as it must be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from corral.envs.core import Array, Rules
from corral.envs.probes.base import Probe
from corral.lab.doctor.examination.judging import GAMMA, SURE
from corral.lab.doctor.examination.learners import SMALL
from corral.trainers.base import Update
from corral.trainers.capabilities import Seats
from corral.trainers.on_policy import maths
from corral.trainers.on_policy.trainer import IPPO, OnPolicyTrainer


@dataclass
class Learned:
    """A trainer that has learned, and what it told meanwhile."""

    trainer: Any
    updates: list[Update]

    @property
    def returns(self) -> dict[str, float]:
        """Means over the episodes of the last fifth of the updates."""
        late = self.updates[-max(1, len(self.updates) // 5) :]
        episodes = [episode.returns for update in late for episode in update.episodes]
        return {agent: float(np.mean([e[agent] for e in episodes])) for agent in episodes[0]}


def make_trainer(
    rules: Rules[Any],
    trainer: type[OnPolicyTrainer] = IPPO,
    *,
    seed: int = 0,
    steps: int = 1,
    policies: Mapping[str, str] | None = None,
    to_train: Sequence[str] | None = None,
    seats: Seats | None = None,
    **settings: Any,
) -> Any:
    """A trainer with small networks; by default all agents share a policy, which learns."""
    known = trainer.Settings.__dataclass_fields__
    small = {name: value for name, value in SMALL.items() if name in known}
    named = dict(policies or dict.fromkeys(rules.agents, "shared"))
    return trainer(
        rules,
        trainer.Settings(**{**small, **settings}),
        seed=seed,
        policies=named,
        policies_to_train=list(dict.fromkeys(named.values())) if to_train is None else to_train,
        steps=steps,
        seats=seats,
    )


LOOKS = 20
"""How often ``learn`` looks if the answer has come out."""


def learn(
    rules: Probe, trainer: type[OnPolicyTrainer] = IPPO, *, to_the_end: bool = True, **given: Any
) -> Learned:
    """Train for the probe's budget, or ``steps``; see ``make_trainer``.

    Unless ``to_the_end``, stop early if nothing is missed at two looks in a row, so that values
    on their way through the answer do not count.
    """
    learner = make_trainer(rules, trainer, **{"steps": rules.budget, **given})
    updates: list[Update] = []
    right, next_look = 0, 0.0
    for update in learner.learn():
        updates.append(update)
        if not to_the_end and update.env_steps >= next_look:
            next_look = update.env_steps + learner.steps / LOOKS
            right = 0 if misses(learner, rules) else right + 1
            if right == 2:
                break
    assert updates[-1].env_steps <= rules.budget
    return Learned(learner, updates)


def values(trainer: Any, rules: Probe) -> Array:
    """What the critic says of the situations of the answer: [K, N]."""
    state = rules.answer(GAMMA).state
    central = trainer.critic_input.kind == "state"
    found = trainer.values(rules.observe(state), rules.global_state(state) if central else None)
    return np.stack([found[agent] for agent in rules.agents], axis=1)


def chances(trainer: Any, rules: Probe, agent: str) -> Array:
    """The probabilities of an agent's actions in the situations of the answer: [K, A].

    NaN where it does not act.
    """
    answer = rules.answer(GAMMA)
    i = rules.agents.index(agent)
    seen = rules.observe(answer.state)[agent]
    acts = np.flatnonzero(rules.acting(answer.state)[:, i])
    policy = trainer.policies[agent]
    told = policy.act(
        {key: part[acts] for key, part in seen.items()},
        policy.initial_state(len(acts)),
        deterministic=True,
    )
    found = np.full((len(answer.state.t), rules.actions[i]), np.nan)
    found[acts] = told.extra["probabilities"]
    return found


def misses(trainer: Any, rules: Probe) -> list[str]:
    """What is not as it must be, in words; nothing where the answer came out.

    Values are within the probe's tolerance, best actions have a probability of 0.9 or more.
    """
    answer = rules.answer(GAMMA)
    found = values(trainer, rules)
    told = []
    for k, i in np.argwhere(~np.isnan(answer.value)):
        if not abs(found[k, i] - answer.value[k, i]) <= rules.tolerance[i]:
            told.append(f"V of {rules.agents[i]}, {k}: {found[k, i]:.3f}, {answer.value[k, i]:.3f}")
    for i, agent in enumerate(rules.agents):
        for k in np.flatnonzero(answer.best[:, i] >= 0):
            chance = chances(trainer, rules, agent)[k, answer.best[k, i]]
            if not chance >= SURE:
                told.append(f"action of {agent}, {k}: {chance:.3f}")
    return told


def first_ratios(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Filled with the ratios of each minibatch, in their order."""
    seen: list[Any] = []
    surrogate = maths.clipped_surrogate

    def watched(log_ratio: Any, *rest: Any) -> Any:
        seen.append(log_ratio.detach().exp())
        return surrogate(log_ratio, *rest)

    monkeypatch.setattr(maths, "clipped_surrogate", watched)
    return seen
