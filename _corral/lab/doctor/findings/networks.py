"""Findings about the networks: inputs, gradients and weights that have no effect."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.stored import first_policy

__all__ = [
    "cut_inputs",
    "dead_layers",
    "frozen_weights",
    "ignored_fields",
    "no_gradient",
    "softmax_twice",
    "untrained_policies",
    "weights_decay",
]


def dead_layers(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report layers with the same output for every input."""
    dead = record.playing.dead
    if not dead:
        return None
    return Finding(
        "dead-layer",
        "A layer of the actor has the same output for every observation: its input is lost.",
        f"{some(dead)}: the same output for {min(256, _decisions(record))} different decisions",
        "different outputs for different inputs",
        "look for units that no input activates (ReLU with a large negative bias after a large "
        "step), saturation (large inputs) and products with 0",
        3,
        record.policy,
    )


def _decisions(record: PolicyEvidence) -> int:
    return int(record.acted[-1].sum()) if record.acted else 0


def no_gradient(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report parameters without a gradient from the loss."""
    learned = any(
        np.ptp(a.advantage[t.valid]) > 1e-9
        for t, a in zip(record.trajectories, record.advantages, strict=False)
        if t.valid.any()
    )
    if not learned or not record.gradients:
        return None
    learner = getattr(evidence.trainer, "learners", {}).get(record.policy)
    if learner is None:  # another library's trainer: only its recorded gradients are available
        shapes, idle = dict.fromkeys(record.gradients, 0), set[str]()
    else:
        shapes = {name: p.ndim for name, p in learner.named_parameters() if p.requires_grad}
        idle = _without_memory(record, learner)
    dead = [
        name
        for name, size in record.gradients.items()
        if not size > 0 and name in shapes and name not in idle
    ]
    if not dead:
        return None
    images = any(shapes[name] >= 4 for name in dead)
    whole = any(
        all(name in dead for name in shapes if name.startswith(role) and name not in idle)
        for role in ("actor.", "critic.")
    )
    return Finding(
        "no-gradient",
        "Part of the network gets no gradient"
        + (": it does not learn from images." if images else "."),
        f"{len(dead)} of {len(record.gradients)} parameters: {some(dead)}",
        "a finite gradient, not 0, in every trainable parameter",
        "look for detach(), no_grad(), a branch with an unused output, or a loss without the actor",
        3 if whole or images else 2,  # a branch may be unused on purpose
        record.policy,
    )


def _without_memory(record: PolicyEvidence, learner: Any) -> set[str]:
    """Return the recurrent weights that can have no gradient.

    If no agent decides twice in an episode, these weights only multiply the initial hidden state 0.
    """
    if not record.acted or not record.terminated:
        return set()  # no record of the deciding agents
    ended = np.concatenate(record.terminated) | np.concatenate(record.truncated)  # [T, C]
    acted = np.concatenate(record.acted)[: len(ended)]
    before = np.zeros(acted.shape[1], dtype=bool)
    for now, over in zip(acted, ended, strict=True):
        if (now & before).any():
            return set()
        before = (before | now) & ~over
    return {
        f"{name}.{weight}"
        for name, module in learner.named_modules()
        if isinstance(module, nn.RNNBase)
        for weight, _ in module.named_parameters()
        if weight.startswith("weight_hh")
    }


def frozen_weights(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report parameters with requires_grad=False."""
    learner = evidence.trainer.learners[record.policy]
    frozen = [
        name
        for name, named_parameter in learner.named_parameters()
        if not named_parameter.requires_grad
    ]
    if not frozen:
        return None
    return Finding(
        "frozen-weights",
        "Part of the network is frozen.",
        f"requires_grad is False: {some(frozen)}",
        "trainable parameters, unless they are frozen on purpose",
        "remove requires_grad_(False), unless the frozen part is pretrained",
        1,
        record.policy,
    )


def untrained_policies(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report policies of the run that are not trained."""
    learners = evidence.trainer.learners
    fixed = [name for name, learner in learners.items() if not learner.trained]
    if not fixed or not first_policy(record, evidence):
        return None
    agents = [agent for name in fixed for agent in learners[name].group.agents]
    return Finding(
        "policy-untrained",
        "Some policies are not trained: their agents play with fixed weights.",
        f"{', '.join(fixed)} of {len(learners)} policies "
        f"{'is' if len(fixed) == 1 else 'are'} not in policies_to_train; "
        f"{'it plays' if len(fixed) == 1 else 'they play'} {', '.join(agents)}",
        "every policy in policies_to_train, unless it is fixed on purpose",
        "leave policies_to_train out, or add these policies",
        1,
    )


def softmax_twice(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report a softmax of probabilities: every action keeps a large probability."""
    if not record.learning.softmax_twice:
        return None
    return Finding(
        "softmax-twice",
        "The softmax is taken twice: probabilities are used as logits.",
        f"in all {record.learning.softmax_twice} decisions of a minibatch, the policy is the "
        "softmax of probabilities",
        "a softmax of the network's outputs; a softmax of probabilities makes no action more than "
        "2.72 times as likely as another",
        "pass logits, not probabilities, to the distribution",
        3,
        record.policy,
    )


def weights_decay(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report weight decay that removes the weights of the actor."""
    groups = evidence.trainer.learners[record.policy].optimizer.param_groups
    decay = max(float(group.get("weight_decay", 0.0)) for group in groups)
    if not decay > 0 or record.kept is None or record.kept >= 0.5:
        return None
    return Finding(
        "weights-decay",
        "Weight decay removes the weights faster than the loss builds them.",
        f"weight_decay {decay:g}: the norm of the actor's weights fell to {record.kept:.0%} in "
        f"{len(record.learning_rates)} updates",
        "a norm that stays or grows",
        "use a weight_decay of 0, or at most 0.01",
        2,
        record.policy,
    )


def ignored_fields(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report inputs that vary without changing any output."""
    if not record.ignored:
        return None
    return Finding(
        "observation-ignored",
        "Part of the observation varies but does not change the policy's output.",
        some(record.ignored),
        "every part that varies reaches the networks",
        "check the inputs that the network concatenates, the order of keys, and scaling that "
        "rounds to 0",
        2,
        record.policy,
    )


def cut_inputs(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report images that change the outputs but get no gradient."""
    images = [name for name in record.playing.cut if name.startswith("the image")]
    if not images:
        return None  # rounded or looked-up columns need no gradient
    return Finding(
        "no-gradient",
        "Images change the policy's output, but no gradient flows back to them.",
        some(images),
        "a gradient through every layer that processes the image",
        "look for detach(), no_grad() and frozen parameters in the image branch",
        2,
        record.policy,
    )


def some(names: list[str], limit: int = 4) -> str:
    """Join the first names and append the number of the remaining ones."""
    return ", ".join(names[:limit]) + (
        f" and {len(names) - limit} more" if len(names) > limit else ""
    )
