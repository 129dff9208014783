"""Record the inputs of an update and its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from corral.adapters.masked_distribution import Distribution
from corral.envs.core import Array
from corral.lab.doctor.evidence.learning import Learning, ask_loss, legal_entropy
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
        found = evidence.policies[name]
        found.learning_rates.append(float(learner.optimizer.param_groups[0]["lr"]))
        prefix = f"{name}/" if len(trainer.learners) > 1 else ""
        own = {
            key.removeprefix(prefix): value
            for key, value in report.metrics.items()
            if key.startswith(prefix)
        }
        found.metrics.append(own)
        _note_stored(found.learning, buffers[name])
        _note_changes(found.learning, before[name], _distribution(learner, buffers[name]))
        optimized = {
            id(each) for group in learner.optimizer.param_groups for each in group["params"]
        }
        found.learning.missing = [
            each
            for each, parameter in learner.named_parameters()
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

    def on_advantages(
        self, learner: Any, trajectories: Trajectories, advantages: Advantages
    ) -> None:
        found = self.evidence.policies[learner.group.policy]
        # Copies: the next rollout overwrites these arrays.
        copies = {name: np.array(values) for name, values in vars(trajectories).items()}
        found.trajectories.append(Trajectories(**copies))
        found.advantages.append(advantages)
        found.learning.progress.append(self.trainer.env_steps / max(1, self.trainer.steps))
        found.learning.rows.append([])
        found.learning.ratios.append([])

    def on_minibatch(
        self, learner: Any, minibatch: Minibatch, outputs: Outputs, losses: Losses
    ) -> None:
        found = self.evidence.policies[learner.group.policy]
        logits = self.seen[found.policy].get("logits")
        if len(found.log_ratio) < len(found.advantages):
            _first_minibatch(learner, minibatch, outputs, losses, found)
            if logits is not None and found.learning.asked.advantage is None:
                loss = self.trainer.algorithm.loss
                asked = ask_loss(loss, minibatch, outputs, learner.settings, logits)
                found.learning.asked = asked
        _note_rows(found.learning, minibatch, outputs)

    def on_gradients(self, learner: Any, *, clipped: bool) -> None:
        found = self.evidence.policies[learner.group.policy]
        if clipped:
            (actor, critic), (actor_after, critic_after) = self.norms, _norms(learner)
            found.learning.norms.append((actor, actor_after, critic, critic_after))
            return
        self.norms = _norms(learner)
        for name, parameter in learner.named_parameters():
            idle = found.learning.asked.choice is False and name.startswith("actor.")
            if parameter.requires_grad and not idle:  # idle: one legal action, nothing to learn
                size = 0.0 if parameter.grad is None else float(parameter.grad.abs().max())
                found.gradients[name] = max(found.gradients.get(name, 0.0), size)


def _hear_logits(learner: Any) -> dict[str, Any]:
    """Record the actor's outputs under "logits" until "end" is called."""
    original: Callable[..., Distribution] = learner.distribution
    heard: dict[str, Any] = {}

    def distribution(outputs: torch.Tensor, mask: torch.Tensor) -> Distribution:
        heard["logits"] = outputs
        return original(outputs, mask)

    heard["end"] = lambda: vars(learner).pop("distribution", None)
    learner.distribution = distribution
    return heard


def _norms(learner: Any) -> tuple[float, float]:
    """Return the gradient norms of actor and critic."""
    found = []
    for parameters in (learner.actor_parameters, learner.critic_parameters):
        grads = [each.grad.norm() for each in parameters if each.grad is not None]
        found.append(float(torch.stack(grads).norm()) if grads else 0.0)
    return found[0], found[1]


def _distribution(learner: Any, buffer: Any) -> tuple[Distribution, Array] | None:
    """Return the actor's current distribution at decisions of the rollout, and log(legal actions).

    Recurrent networks use the hidden state of an episode's start.
    """
    steps = len(buffer.log_prob)
    parts: list[Any] = []
    for t in sorted({0, steps // 2}):
        rows = np.flatnonzero(buffer.decides(t))[:LOOKED_AT]
        parts.append(buffer.tensors(t, rows, learner.device))
    inputs = [torch.cat(each) for each in zip(*(own for own, _ in parts), strict=True)]
    mask = torch.cat([each for _, each in parts])
    if not len(mask):
        return None
    with torch.no_grad():
        outputs, _ = learner.actor.step(inputs, learner.actor.initial(len(mask)))
        found = learner.distribution(outputs, mask)
    return found, mask.sum(dim=-1).double().log().cpu().numpy()


def _note_changes(learning: Learning, before: Any, after: Any) -> None:
    if before is None or after is None:
        return
    (old, most), (new, _) = before, after
    with torch.no_grad():
        learning.divergence.append(float(new.kl_from(old.parameters).double().mean()))
        changes = [
            (
                old.parameters[name].exp() - each.exp()
                if name == "logits"
                else old.parameters[name] - each
            )
            for name, each in new.parameters.items()
        ]
        learning.changed.append(max(float(each.abs().max()) for each in changes))
        choices = most > 0
        if choices.any() and "logits" in new.parameters:
            share = [
                float(each.entropy().cpu().numpy()[choices].sum() / most[choices].sum())
                for each in (old, new)
            ]
            learning.entropy.append((share[0], share[1]))


def _note_rows(learning: Learning, minibatch: Minibatch, outputs: Outputs) -> None:
    """Record the decisions of a minibatch, and how far the policy is from the one that played."""
    log_ratio = (outputs.log_prob - minibatch.log_prob).detach()
    learning.ratios[-1].append(float(log_ratio.abs().max()))
    if minibatch.epoch == 0:
        rows = (
            minibatch.action.reshape(len(minibatch), -1),
            minibatch.log_prob,
            minibatch.advantage,
            minibatch.value_target,
        )
        kept = [each.detach().cpu().numpy().copy() for each in rows]
        learning.rows[-1].append((kept[0], kept[1], kept[2], kept[3]))
    learning.latest = minibatch.log_prob.detach().cpu().numpy().copy()


def _note_stored(learning: Learning, buffer: Any) -> None:
    """Record the played decisions [T * C], and the share of the last minibatch not among them."""
    log_prob = buffer.log_prob.reshape(-1).copy()
    action = buffer.action[:-1].reshape(len(log_prob), -1).copy()
    learning.stored.append((action, log_prob))
    if learning.latest is not None and len(learning.latest):
        learning.stale.append(1.0 - float(np.isin(learning.latest, log_prob).mean()))


def _first_minibatch(
    learner: Any, minibatch: Minibatch, outputs: Outputs, losses: Losses, found: PolicyEvidence
) -> None:
    """Record the composition of an update's first minibatch, before any step."""
    found.log_ratio.append((outputs.log_prob - minibatch.log_prob).detach().cpu().numpy())
    legal = minibatch.mask.sum(dim=-1).clamp(min=1)
    found.most_entropy.append(float(legal.double().log().mean()))
    own = legal_entropy(minibatch, outputs)
    if own is not None:
        found.entropy.append((float(outputs.entropy.detach()), own))
    found.targets.append(
        tuple(
            each.detach().cpu().numpy().copy()
            for each in (outputs.value, minibatch.value_target, minibatch.old_value)
        )  # type: ignore[arg-type]
    )
    found.terms.append({name: float(term.detach()) for name, term in losses.terms.items()})
    weights = [each for each in learner.actor_parameters if each.requires_grad]
    for name, term in losses.terms.items():
        if not term.requires_grad:
            found.term_gradients[name] = 0.0
            continue
        parts = torch.autograd.grad(term, weights, retain_graph=True, allow_unused=True)
        norms = [each.norm() for each in parts if each is not None]
        size = float(torch.stack(norms).norm()) if norms else 0.0
        found.term_gradients[name] = max(found.term_gradients.get(name, 0.0), size)
