"""Record a short stretch of a run's own training.

The trainer plays and learns as usual. The recorder copies the environment's data (observations,
masks, rewards, ends) and the trainer's stored version of them. It also records the inputs of an
update (ratios, entropy, advantages, gradients) and its results (weights, policies). The rules in
``corral.lab.doctor.findings`` read this record.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from corral.lab.doctor.evidence.environment import measured_twins
from corral.lab.doctor.evidence.inputs import look_into
from corral.lab.doctor.evidence.learning import moved_from, weights_of
from corral.lab.doctor.evidence.policies import ask_policies
from corral.lab.doctor.evidence.record import EnvRecord, Evidence, PolicyEvidence
from corral.lab.doctor.evidence.rollouts import watch_rollout
from corral.lab.doctor.evidence.updates import watch_update
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
    before = {name: weights_of(trainer.learners[name]) for name in seen}
    try:
        for _ in range(updates):
            rollout = watch_rollout(trainer, evidence)
            learn = functools.partial(trainer.learn_from, *rollout)
            _note_report(trainer, evidence, watch_update(trainer, evidence, learn))
    except Exception as error:  # from the training, or from this recording of it
        evidence.error, evidence.error_kind = str(error), type(error).__name__
    for name, record in seen.items():
        learner, old = trainer.learners[name], before[name]
        record.moved = moved_from(old, learner)
        sizes = [
            sum(float(w.square().sum()) for k, w in weights.items() if k.startswith("actor."))
            for weights in (old, weights_of(learner))
        ]
        record.kept = float(np.sqrt(sizes[1] / sizes[0])) if sizes[0] > 0 else None
        if record.obs:
            look_into(trainer, name, record)
        if not evidence.error:
            ask_policies(trainer, name, record, rebuild, seed)
    if twins:
        evidence.env.twins = measured_twins(trainer.rules, trainer._make_batch, seed)
    return evidence


def _note_report(trainer: Any, evidence: Evidence, report: Any) -> None:
    """Record the environment's returns and rewards, and the reported ones."""
    env, agents = evidence.env, trainer.rules.agents
    ended = env.witness.ended
    reported = [episode.returns for episode in report.episodes]
    env.missing += len(ended) - len(reported)
    for returns, logged in zip(ended, reported, strict=False):
        if not np.isnan(returns).any():
            evidence.returns.append(
                (dict(zip(agents, returns.tolist(), strict=True)), dict(logged))
            )
    if report.rewards is not None:
        means = np.stack([step.reward for step in env.witness.steps]).mean(axis=(0, 1))
        actual = dict(zip(agents, means.astype(float).tolist(), strict=True))
        env.reported.append((actual, dict(report.rewards)))
