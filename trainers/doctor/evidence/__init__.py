"""A short stretch of a run's own training, with a second pair of eyes on it.

The trainer plays and learns as it always does. What the environment really said (observations,
masks, rewards, ends) is copied beside what the trainer stored of it, and what goes into an update
(ratios, entropy, advantages, gradients) and comes out of it (weights, policies) is noted. The rules
of ``corral.trainers.doctor.findings`` read it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.errors import CorralError
from corral.trainers.doctor.evidence.policies import ask_policies
from corral.trainers.doctor.evidence.record import Evidence, PolicyEvidence
from corral.trainers.doctor.evidence.rollouts import watch_rollout
from corral.trainers.doctor.evidence.updates import watch_update

__all__ = ["Evidence", "PolicyEvidence", "gather"]

UPDATES = 3
"""Rollouts that are played and learned from."""


def gather(
    trainer: Any, rebuild: Callable[[], Any], *, updates: int = UPDATES, seed: int = 0
) -> Evidence:
    """Let an in-house trainer play and learn ``updates`` rollouts, and note what was seen.

    ``rebuild`` makes another trainer of the same run, as it began: to be loaded into.
    """
    trainer.begin()
    seen = {
        name: PolicyEvidence(name, learner.group.agents)
        for name, learner in trainer.learners.items()
        if learner.trained
    }
    evidence = Evidence(trainer, seen, [])
    before = {name: _weights(trainer.learners[name]) for name in seen}
    try:
        for _ in range(updates):
            watch_rollout(trainer, evidence)
            watch_update(trainer, evidence)
            trainer.env_steps += trainer.rollout_steps
    except CorralError as error:
        evidence.error, evidence.error_kind = str(error), type(error).__name__
        return evidence
    for name, found in seen.items():
        learner = trainer.learners[name]
        after = _weights(learner)
        found.moved = {k: float(np.abs(after[k] - before[name][k]).max()) for k in after}
        ask_policies(trainer, name, found, rebuild, seed)
    return evidence


def _weights(learner: Any) -> dict[str, Array]:
    return {
        name: parameter.detach().cpu().numpy().copy()
        for name, parameter in learner.named_parameters()
    }
