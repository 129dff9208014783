"""Record the inputs of an update and its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from corral.adapters.masked_distribution import Distribution
from corral.envs.core import Array
from corral.lab.doctor.evidence.learning import (
    Learning,
    ask_loss,
    legal_entropy,
    softmax_twice,
)
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.trainers.base import Update
from corral.trainers.observers import Observer
from corral.trainers.on_policy.records import Advantages, Losses, Minibatch, Outputs, Trajectories

__all__ = ["watch_update"]

LOOKED_AT = 256
"""Number of decisions at which policies are compared before and after an update."""


def watch_update(trainer: Any, evidence: Evidence, learn: Callable[[], Update]) -> Update:
    """Let the trainer ``learn`` from its rollout, and record the inputs and results."""
    watched = [(name, trainer.learners[name]) for name in evidence.policies]
    seen = {name: _hear_logits(learner) for name, learner in watched}
    buffers = dict(zip(trainer.learners, trainer.rollout.groups, strict=False))
    before = {name: _distribution(learner, buffers[name]) for name, learner in watched}
    end = trainer.observe(UpdateObserver(trainer, evidence, seen))
    try:
        report = learn()
    finally:
        end()
        for heard in seen.values():
            heard["end"]()
    for name, learner in watched:
        record = evidence.policies[name]
        record.learning_rates.append(float(learner.optimizer.param_groups[0]["lr"]))
        prefix = f"{name}/" if len(trainer.learners) > 1 else ""
        metrics = {
            key.removeprefix(prefix): value
            for key, value in report.metrics.items()
            if key.startswith(prefix)
        }
        record.metrics.append(metrics)
        _note_stored(record.learning, buffers[name])
        _note_changes(record.learning, before[name], _distribution(learner, buffers[name]))
        optimized = {
            id(item) for group in learner.optimizer.param_groups for item in group["params"]
        }
        record.learning.missing = [
            item
            for item, parameter in learner.named_parameters()
            if parameter.requires_grad and id(parameter) not in optimized
        ]
    return report


class UpdateObserver(Observer):
    """Records the inputs of an update.

    ``seen`` maps a policy to its actor's recorded outputs, see ``_hear_logits``.
    """

    def __init__(self, trainer: Any, evidence: Evidence, seen: dict[str, dict[str, Any]]) -> None:
        self.trainer, self.evidence, self.seen = trainer, evidence, seen
        self.norms = (0.0, 0.0)  # of actor and critic, before clipping
        self.entropy: float | None = None  # of the legal actions in the latest minibatch

    def on_advantages(
        self, learner: Any, trajectories: Trajectories, advantages: Advantages
    ) -> None:
        record = self.evidence.policies[learner.group.policy]
        # Copies: the next rollout overwrites these arrays.
        copies = {name: np.array(values) for name, values in vars(trajectories).items()}
        record.trajectories.append(Trajectories(**copies))
        record.advantages.append(advantages)
        record.learning.progress.append(self.trainer.env_steps / max(1, self.trainer.steps))
        record.learning.rows.append([])
        record.learning.ratios.append([])
        record.learning.possible.append(0.0)

    def on_minibatch(
        self, learner: Any, minibatch: Minibatch, outputs: Outputs, losses: Losses
    ) -> None:
        record = self.evidence.policies[learner.group.policy]
        logits = self.seen[record.policy].get("logits")
        self.entropy = legal_entropy(minibatch, outputs)
        if len(record.log_ratio) < len(record.advantages):
            _first_minibatch(minibatch, outputs, record)
            record.note_entropy(minibatch.mask, outputs, self.entropy)
            if logits is not None and record.learning.response.advantage is None:
                loss = self.trainer.algorithm.loss
                response = ask_loss(loss, minibatch, outputs, learner.settings, logits)
                record.learning.response = response
            if logits is not None and softmax_twice(logits, outputs.distribution, minibatch.mask):
                record.learning.softmax_twice = len(minibatch)
        _note_rows(record.learning, minibatch, outputs)

    def on_step(
        self, learner: Any, minibatch: Minibatch, outputs: Outputs, numbers: Mapping[str, float]
    ) -> None:
        record = self.evidence.policies[learner.group.policy]
        if self.entropy is not None and len(record.advantages) == 1:
            for name, value in numbers.items():
                if "entropy" in name:
                    record.entropies.setdefault(name, []).append((value, self.entropy))

    def on_gradients(self, learner: Any, *, clipped: bool) -> None:
        record = self.evidence.policies[learner.group.policy]
        if clipped:
            (actor, critic), (actor_after, critic_after) = self.norms, _norms(learner)
            record.learning.norms.append((actor, actor_after, critic, critic_after))
            return
        self.norms = _norms(learner)
        for name, parameter in learner.named_parameters():
            idle = record.learning.response.choice is False and name.startswith("actor.")
            if parameter.requires_grad and not idle:  # idle: one legal action, nothing to learn
                size = 0.0 if parameter.grad is None else float(parameter.grad.abs().max())
                record.gradients[name] = max(record.gradients.get(name, 0.0), size)


def _hear_logits(learner: Any) -> dict[str, Any]:
    """Record the actor's outputs under "logits" until "end" is called."""
    original: Callable[..., Distribution] = learner.distribution
    heard: dict[str, Any] = {}

    def distribution(outputs: torch.Tensor, mask: torch.Tensor) -> Distribution:
        heard["logits"] = outputs
        return original(outputs, mask)

    before = {k: v for k, v in vars(learner).items() if k == "distribution"}  # the trainer's own

    def end() -> None:
        vars(learner).pop("distribution", None)
        vars(learner).update(before)

    heard["end"] = end
    learner.distribution = distribution
    return heard


def _norms(learner: Any) -> tuple[float, float]:
    """Return the gradient norms of actor and critic."""
    norms = []
    for parameters in (learner.actor_parameters, learner.critic_parameters):
        grads = [parameter.grad.norm() for parameter in parameters if parameter.grad is not None]
        norms.append(float(torch.stack(grads).norm()) if grads else 0.0)
    return norms[0], norms[1]


def _distribution(learner: Any, buffer: Any) -> tuple[Distribution, Array] | None:
    """Return the actor's current distribution at decisions of the rollout, and log(legal actions).

    Recurrent networks use the hidden state of an episode's start.
    """
    steps = len(buffer.log_prob)
    parts: list[Any] = []
    for t in sorted({0, steps // 2}):
        rows = np.flatnonzero(buffer.decides(t))[:LOOKED_AT]
        parts.append(buffer.tensors(t, rows, learner.device))
    inputs = [torch.cat(item) for item in zip(*(tensors for tensors, _ in parts), strict=True)]
    mask = torch.cat([part for _, part in parts])
    if not len(mask):
        return None
    with torch.no_grad():
        outputs, _ = learner.actor.step(inputs, learner.actor.initial(len(mask)))
        distribution = learner.distribution(outputs, mask)
    return distribution, mask.sum(dim=-1).double().log().cpu().numpy()


def _note_changes(learning: Learning, before: Any, after: Any) -> None:
    if before is None or after is None:
        return
    (old, log_legal), (new, _) = before, after
    with torch.no_grad():
        learning.divergence.append(float(new.kl_from(old.parameters).double().mean()))
        changes = [
            (
                old.parameters[name].exp() - parameter.exp()
                if name == "logits"
                else old.parameters[name] - parameter
            )
            for name, parameter in new.parameters.items()
        ]
        learning.changed.append(max(float(change.abs().max()) for change in changes))
        choices = log_legal > 0
        if choices.any() and "logits" in new.parameters:
            share = [
                float(item.entropy().cpu().numpy()[choices].sum() / log_legal[choices].sum())
                for item in (old, new)
            ]
            learning.entropy.append((share[0], share[1]))


def _note_rows(learning: Learning, minibatch: Minibatch, outputs: Outputs) -> None:
    """Record the decisions of a minibatch, and how far the policy is from the one that played."""
    log_ratio = (outputs.log_prob - minibatch.log_prob).detach()
    learning.ratios[-1].append(float(log_ratio.abs().max()))
    if minibatch.epoch:
        return
    rows = (
        minibatch.action.reshape(len(minibatch), -1),
        minibatch.log_prob,
        minibatch.advantage,
        minibatch.value_target,
    )
    learning.rows[-1].append(tuple(row.detach().cpu().numpy().copy() for row in rows))
    for choice in getattr(outputs.distribution, "choices", [outputs.distribution]):
        if isinstance(logits := getattr(choice, "logits", None), torch.Tensor):
            learning.possible[-1] += float((logits.detach() > -torch.inf).sum())


def _note_stored(learning: Learning, buffer: Any) -> None:
    """Record the played decisions: [T * C]."""
    log_prob = buffer.log_prob.reshape(-1).copy()
    action = buffer.action[:-1].reshape(len(log_prob), -1).copy()
    learning.stored.append((action, log_prob))


def _first_minibatch(minibatch: Minibatch, outputs: Outputs, record: PolicyEvidence) -> None:
    """Record the composition of an update's first minibatch, before any step."""
    record.log_ratio.append((outputs.log_prob - minibatch.log_prob).detach().cpu().numpy())
    record.targets.append(minibatch.value_target.detach().cpu().numpy().copy())
