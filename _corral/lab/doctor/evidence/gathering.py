"""Record a short stretch of a run's own training.

The trainer plays and learns as usual. The recorder copies the environment's data (observations,
masks, rewards, ends) and the trainer's stored version of them. It also records the inputs of an
update (ratios, entropy, advantages, gradients) and its results (weights, policies). The rules in
``corral.lab.doctor.findings`` read this record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.envs.core import Array
from corral.errors import CorralError
from corral.lab.doctor.evidence.environment import COPIES, twins_of
from corral.lab.doctor.evidence.inputs import look_into
from corral.lab.doctor.evidence.playing import EnvRecord
from corral.lab.doctor.evidence.policies import ask_policies
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.evidence.reports import watch_learning
from corral.lab.doctor.evidence.rollouts import watch_rollout
from corral.lab.doctor.evidence.witness import Witness

__all__ = ["gather"]

UPDATES = 3
"""Number of recorded rollouts and updates."""


def gather(
    trainer: Any,
    rebuild: Callable[[], Any],
    *,
    updates: int = UPDATES,
    seed: int = 0,
    twins: bool = False,
) -> Evidence:
    """Let an in-house trainer play and learn ``updates`` rollouts, and record them.

    ``rebuild`` makes another untrained trainer of the same run, into which a checkpoint is loaded.
    ``twins``: also measure the effects of actions in paired replays. An exception ends the record;
    the caller repeats the updates unobserved to learn if it is the training's.
    """
    trainer.wrap_batches(Witness)
    trainer.begin()
    if not isinstance(trainer.batch, Witness):  # a trainer that does not call the wrapper
        trainer.batch = Witness(trainer.batch)
        trainer.batch.see(trainer.obs)
    seen = {
        name: PolicyEvidence(name, learner.group.agents)
        for name, learner in trainer.learners.items()
        if learner.trained
    }
    evidence = Evidence(trainer, seen, [], env=EnvRecord(trainer.batch))
    before = {name: _weights(trainer.learners[name]) for name in seen}
    try:
        for _ in range(updates):
            watch_learning(trainer, evidence, *watch_rollout(trainer, evidence))
    except Exception as error:  # from the training, or from this recording of it
        evidence.error, evidence.error_kind = str(error), type(error).__name__
    for name, record in seen.items():
        after = _weights(trainer.learners[name])
        record.moved = {k: float(np.abs(after[k] - before[name][k]).max()) for k in after}
        actor = [k for k in after if k.startswith("actor.")]
        sizes = [
            np.sqrt(sum(float(np.square(w[k]).sum()) for k in actor)) for w in (before[name], after)
        ]
        record.kept = float(sizes[1] / sizes[0]) if sizes[0] > 0 else None
        if record.obs:
            look_into(trainer, name, record)
        if not evidence.error:
            ask_policies(trainer, name, record, rebuild, seed)
    if twins:
        evidence.env.twins = _twins(trainer, seed)
    return evidence


def _twins(trainer: Any, seed: int) -> Any:
    """Return the effects of actions in paired replays; None if they cannot be measured."""
    rules = trainer.rules
    if not all(isinstance(rules.action_space(a), spaces.Discrete) for a in rules.agents):
        return None
    try:
        return twins_of(lambda: trainer._make_batch(rules, COPIES, seed), seed)
    except CorralError:
        return None  # already recorded while the trainer played


def _weights(learner: Any) -> dict[str, Array]:
    return {
        name: parameter.detach().cpu().numpy().copy()
        for name, parameter in learner.named_parameters()
    }
