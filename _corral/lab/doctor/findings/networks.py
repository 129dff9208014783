"""Findings about the networks: inputs, gradients and weights that have no effect."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding

__all__ = [
    "cut_inputs",
    "dead_layers",
    "frozen_weights",
    "ignored_fields",
    "no_gradient",
    "not_moved",
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
    return Finding(
        "no-gradient",
        "Part of the network gets no gradient"
        + (": it does not learn from images." if images else "."),
        f"{len(dead)} of {len(record.gradients)} parameters: {some(dead)}",
        "a finite gradient, not 0, in every trainable parameter",
        "look for detach(), no_grad(), a branch with an unused output, or a loss without the actor",
        3,
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


def not_moved(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report an update that changes no weight."""
    if evidence.error or not record.moved or any(size > 0 for size in record.moved.values()):
        return None
    if record.gradients and not any(size > 0 for size in record.gradients.values()):
        return None  # no gradient, so nothing to learn
    rate = max(record.learning_rates, default=0.0)
    return Finding(
        "learning-rate-zero" if rate == 0 else "weights-fixed",
        "No weight changes" + (": the learning rate is 0." if rate == 0 else "."),
        f"largest change of a weight in {len(record.learning_rates)} updates: 0, learning rate "
        f"{rate:g}",
        "weights that change in every update",
        "check learning_rate and its schedule (anneal reaches 0 at the planned number of steps: "
        "--stretch extends the plan), and the parameters passed to the optimizer",
        3,
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
        3,
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
