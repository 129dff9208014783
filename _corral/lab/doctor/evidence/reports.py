"""Record the data that a trainer learns from and reports after a recorded rollout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from corral.lab.doctor.evidence.learning import legal_entropy
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.evidence.updates import watch_update
from corral.trainers.observers import Observer

__all__ = ["watch_learning"]


def watch_learning(
    trainer: Any, evidence: Evidence, episodes: list[Any], seconds: dict[str, float]
) -> None:
    """Let the trainer learn from its rollout and report; record both."""
    observer = ReportObserver(evidence)
    for record in evidence.policies.values():
        record.playing.legal.append((0.0, 0.0))
    end = trainer.observe(observer)
    try:
        report = watch_update(trainer, evidence, lambda: trainer.learn_from(episodes, seconds))
    finally:
        end()
        for record in evidence.policies.values():
            possible, _ = record.playing.legal.pop()
            valid = record.trajectories[-1].valid if record.trajectories else np.zeros(0, bool)
            if possible and observer.rows[record.policy] == valid.sum():
                legal = record.masks[-1][1][valid]
                record.playing.legal.append((possible, float(legal.sum())))
    _note_report(trainer, evidence, report)


class ReportObserver(Observer):
    """Records masks and entropies of minibatches, and the trainer's reported values."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.rows: dict[str, int] = {}  # policy -> decisions in the first epoch
        self.entropy: float | None = None

    def on_minibatch(self, learner: Any, minibatch: Any, outputs: Any, losses: Any) -> None:
        record = self.evidence.policies[learner.group.policy]
        if minibatch.epoch == 0:
            _note_masks(outputs, record)
            self.rows[record.policy] = self.rows.get(record.policy, 0) + len(minibatch)
        self.entropy = legal_entropy(minibatch, outputs)

    def on_step(
        self, learner: Any, minibatch: Any, outputs: Any, numbers: Mapping[str, float]
    ) -> None:
        playing = self.evidence.policies[learner.group.policy].playing
        if self.entropy is not None and len(playing.legal) == 1:
            for name, value in numbers.items():
                if "entropy" in name:
                    playing.entropies.setdefault(name, []).append((value, self.entropy))


def _note_masks(outputs: Any, record: PolicyEvidence) -> None:
    """Count the possible actions in the distributions of a minibatch."""
    choices = getattr(outputs.distribution, "choices", [outputs.distribution])
    possible, _ = record.playing.legal[-1]
    for choice in choices:
        if isinstance(logits := getattr(choice, "logits", None), torch.Tensor):
            possible += float((logits.detach() > -torch.inf).sum())
    record.playing.legal[-1] = possible, 0.0


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
