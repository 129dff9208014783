"""What goes into an update, and what comes out of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from corral.trainers.doctor.evidence.record import Evidence, PolicyEvidence
from corral.trainers.on_policy.records import Advantages, Losses, Minibatch, Outputs, Trajectories

__all__ = ["watch_update"]


def watch_update(trainer: Any, evidence: Evidence) -> None:
    """Let the trainer learn from its rollout, and note what goes into it."""
    algorithm = trainer.algorithm
    names = iter([name for name, learner in trainer.learners.items() if learner.trained])
    now: dict[str, PolicyEvidence] = {}

    def advantages(trajectories: Trajectories, settings: Any) -> Advantages:
        now["policy"] = found = evidence.policies[next(names)]
        learned: Advantages = algorithm.advantages(trajectories, settings)
        # Copies: the rollout is written over by the next one.
        copies = {name: np.array(values) for name, values in vars(trajectories).items()}
        found.trajectories.append(Trajectories(**copies))
        found.advantages.append(learned)
        now.pop("seen", None)
        return learned

    def loss(minibatch: Minibatch, outputs: Outputs, settings: Any) -> Losses:
        losses: Losses = algorithm.loss(minibatch, outputs, settings)
        found = now["policy"]
        if len(found.log_ratio) < len(found.advantages):
            learner = trainer.learners[found.policy]
            _first_minibatch(learner, minibatch, outputs, losses, found)
        return losses

    def gradients(learner: Any, settings: Any) -> Any:
        found = evidence.policies[learner.group.policy]
        for name, parameter in learner.named_parameters():
            size = 0.0 if parameter.grad is None else float(parameter.grad.abs().max())
            found.gradients[name] = max(found.gradients.get(name, 0.0), size)
        return algorithm.gradients(learner, settings)

    trainer.algorithm = algorithm.but(advantages=advantages, loss=loss, gradients=gradients)
    try:
        metrics = trainer.update()
    finally:
        trainer.algorithm = algorithm
    for name, found in evidence.policies.items():
        learner = trainer.learners[name]
        found.learning_rates.append(float(learner.optimizer.param_groups[0]["lr"]))
        prefix = f"{name}/" if len(trainer.learners) > 1 else ""
        own = {k.removeprefix(prefix): v for k, v in metrics.items() if k.startswith(prefix)}
        found.metrics.append(own)


def _first_minibatch(
    learner: Any, minibatch: Minibatch, outputs: Outputs, losses: Losses, found: PolicyEvidence
) -> None:
    """Note what the first minibatch of an update is made of, before any step."""
    found.log_ratio.append((outputs.log_prob - minibatch.log_prob).detach().cpu().numpy())
    logits = getattr(outputs.distribution, "logits", None)
    legal = minibatch.mask.sum(dim=-1).clamp(min=1)
    found.most_entropy.append(float(legal.double().log().mean()))
    if logits is not None:
        with torch.no_grad():
            chances = torch.where(minibatch.mask, logits, -torch.inf).double().softmax(dim=-1)
            own = -(chances * chances.clamp(min=1e-300).log()).sum(dim=-1).mean()
        found.entropy.append((float(outputs.entropy.detach()), float(own)))
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
