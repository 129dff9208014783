"""What the environment said in a rollout, beside what the trainer stored of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.masks import MASK
from corral.envs.policy import take_tree
from corral.trainers.doctor.evidence.record import Evidence, PolicyEvidence

__all__ = ["watch_rollout"]


class _Witness:
    """A batch that keeps copies of all it says."""

    def __init__(self, batch: Any, obs: Any) -> None:
        self.batch = batch
        self.observations = [_copied(obs)]
        self.who_acted = [batch.acting.copy()]
        self.steps: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batch, name)

    def step(self, actions: Any) -> Any:
        step = self.batch.step(actions)
        kept = {
            name: np.array(getattr(step, name)) for name in ("reward", "terminated", "truncated")
        }
        self.steps.append(dataclasses.replace(step, **kept))
        self.observations.append(_copied(step.observations))
        self.who_acted.append(np.array(step.acting))
        return step


def _copied(observations: Mapping[str, Any]) -> dict[str, Any]:
    return {
        agent: take_tree(observation, np.arange(len(observation[MASK])))
        if MASK in observation
        else observation
        for agent, observation in observations.items()
    }


def watch_rollout(trainer: Any, evidence: Evidence) -> None:
    batch = trainer.batch
    witness = _Witness(batch, trainer.obs)
    trainer.batch = witness
    try:
        episodes, _ = trainer.collect()
    finally:
        trainer.batch = batch
    ended = [
        dict(zip(trainer.rules.agents, returns, strict=True))
        for step in witness.steps
        if step.finished is not None
        for returns in step.finished.returns.tolist()
    ]
    evidence.returns += list(zip(ended, [each.returns for each in episodes], strict=False))
    for i, learner in enumerate(trainer.learners.values()):
        if learner.trained:
            _said_and_stored(trainer, i, learner, witness, evidence.policies[learner.group.policy])


def _said_and_stored(
    trainer: Any, i: int, learner: Any, witness: _Witness, found: PolicyEvidence
) -> None:
    """Note what the environment said to the agents of one policy, beside what was stored."""
    group, buffer, rollout = learner.group, trainer.rollout.groups[i], trainer.rollout
    layout, steps = group.layout, len(witness.steps)
    size = rollout.reward.shape[1]
    said = np.zeros((steps, size, len(group.agents), layout.width), np.float32)
    mask = np.ones((steps, size, len(group.agents), group.actions.masks), dtype=bool)
    for t in range(steps):
        for j, agent in enumerate(group.agents):
            observation = witness.observations[t][agent]
            images = [np.zeros((size, *image), np.uint8) for image in layout.images]
            layout.write(layout.inner(observation), said[t, :, j], images)
            if layout.masked:
                mask[t, :, j] = np.asarray(observation[MASK]) != 0
    flat = (steps, size * len(group.agents))
    acting = np.stack(witness.who_acted[:steps])
    found.acted.append(group.own(acting))
    found.obs.append(
        (said.reshape(*flat, -1), buffer.vector[:-1, ..., : layout.width].reshape(*flat, -1).copy())
    )
    found.masks.append((mask.reshape(*flat, -1), buffer.mask[:-1].reshape(*flat, -1).copy()))
    rewards = np.stack([step.reward for step in witness.steps])
    found.everybody.append(rewards)
    found.rewards.append((group.own(rewards), group.own(rollout.reward).copy()))
    if not group.actions.shape:
        found.actions.append(buffer.action[:-1].reshape(flat).copy())
    found.terminated.append(group.own(np.stack([step.terminated for step in witness.steps])))
    found.truncated.append(group.own(np.stack([step.truncated for step in witness.steps])))
    found.final_value.append(_final_values(trainer, learner, witness))


def _final_values(trainer: Any, learner: Any, witness: _Witness) -> Array:
    """Return V of what agents observed last where a time limit cut them: [T, C]; else NaN."""
    group = learner.group
    size = trainer.rollout.reward.shape[1]
    found = np.full((len(witness.steps), size, len(group.agents)), np.nan)
    plain = not trainer.critic_input.with_actions and not trainer.settings.memory
    for t, step in enumerate(witness.steps):
        if step.finished is None or not plain:
            continue
        central = trainer.critic_input.kind == "state"
        state = step.finished.global_state if central else None
        values = trainer.values(step.finished.observations, state)
        for j, agent in enumerate(group.agents):
            column = trainer.rules.agents.index(agent)
            cut = step.truncated[step.finished.rows, column]
            found[t, step.finished.rows[cut], j] = values[agent][cut]
    return found.reshape(len(witness.steps), -1)
