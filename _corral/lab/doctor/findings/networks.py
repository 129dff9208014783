"""What reaches the networks, and what moves in them."""

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


def dead_layers(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Layers that put out the same whatever they are given."""
    dead = found.playing.dead
    if not dead:
        return None
    return Finding(
        "dead-layer",
        "A layer of the actor puts out the same for every observation: what is before it is lost.",
        f"{some(dead)}: the same for {min(256, _decisions(found))} decisions that differ",
        "outputs that differ where inputs do",
        "look for units that no input turns on (ReLU behind a large negative bias, after a large "
        "step), saturation (inputs of large numbers), and products with 0",
        3,
        found.policy,
    )


def _decisions(found: PolicyEvidence) -> int:
    return int(found.acted[-1].sum()) if found.acted else 0


def no_gradient(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Parameters that the loss does not reach."""
    learned = any(
        np.ptp(a.advantage[t.valid]) > 1e-9
        for t, a in zip(found.trajectories, found.advantages, strict=False)
        if t.valid.any()
    )
    if not learned or not found.gradients:
        return None
    learner = getattr(evidence.trainer, "learners", {}).get(found.policy)
    if learner is None:  # of another library: what it noted is all that there is
        shapes, idle = dict.fromkeys(found.gradients, 0), set[str]()
    else:
        shapes = {name: p.ndim for name, p in learner.named_parameters() if p.requires_grad}
        idle = _without_memory(found, learner)
    dead = [
        name
        for name, size in found.gradients.items()
        if not size > 0 and name in shapes and name not in idle
    ]
    if not dead:
        return None
    images = any(shapes[name] >= 4 for name in dead)
    return Finding(
        "no-gradient",
        "Part of the network gets no gradient"
        + (": images are not learned from." if images else "."),
        f"{len(dead)} of {len(found.gradients)} parameters: {some(dead)}",
        "a finite gradient that is not 0 in every parameter that is to learn",
        "look for detach(), no_grad(), a branch whose output is not used, or a loss that leaves "
        "the actor out",
        3,
        found.policy,
    )


def _without_memory(found: PolicyEvidence, learner: Any) -> set[str]:
    """Return the parameters that hidden states are multiplied by, where all of these are the 0 that
    an episode begins with: no agent decides twice in one."""
    if not found.acted or not found.terminated:
        return set()  # nobody watched who decided
    ended = np.concatenate(found.terminated) | np.concatenate(found.truncated)  # [T, C]
    acted = np.concatenate(found.acted)[: len(ended)]
    before = np.zeros(acted.shape[1], dtype=bool)
    for now, over in zip(acted, ended, strict=True):
        if (now & before).any():
            return set()
        before = (before | now) & ~over
    return {
        f"{name}.{own}"
        for name, module in learner.named_modules()
        if isinstance(module, nn.RNNBase)
        for own, _ in module.named_parameters()
        if own.startswith("weight_hh")
    }


def frozen_weights(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Parameters that are not to learn."""
    learner = evidence.trainer.learners[found.policy]
    frozen = [name for name, each in learner.named_parameters() if not each.requires_grad]
    if not frozen:
        return None
    return Finding(
        "frozen-weights",
        "Part of the network is frozen.",
        f"requires_grad is False: {some(frozen)}",
        "parameters that learn, where they are not meant to stay as they are",
        "leave requires_grad_(False) out, unless what is frozen was trained before",
        1,
        found.policy,
    )


def not_moved(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """No weight moves."""
    if evidence.error or not found.moved or any(size > 0 for size in found.moved.values()):
        return None
    if found.gradients and not any(size > 0 for size in found.gradients.values()):
        return None  # there was nothing to learn
    rate = max(found.learning_rates, default=0.0)
    return Finding(
        "learning-rate-zero" if rate == 0 else "weights-fixed",
        "No weight moves" + (": the learning rate is 0." if rate == 0 else "."),
        f"largest change of a weight in {len(found.learning_rates)} updates: 0, learning rate "
        f"{rate:g}",
        "weights that move with every update",
        "look at learning_rate, its schedule (anneal ends at the steps that were planned: "
        "--stretch plans anew), and at which parameters the optimizer was given",
        3,
        found.policy,
    )


def ignored_fields(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Inputs that vary and change no output."""
    if not found.ignored:
        return None
    return Finding(
        "observation-ignored",
        "Part of the observation varies, and changes nothing that the policy puts out.",
        some(found.ignored),
        "every part that varies reaches the networks",
        "look at what the network concatenates, at the order of keys, and at scaling that rounds "
        "to 0",
        3,
        found.policy,
    )


def cut_inputs(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Inputs that change outputs, and whose layers learn nothing for it."""
    images = [name for name in found.playing.cut if name.startswith("the image")]
    if not images:
        return None  # columns that are rounded, or looked up, have no gradient and need none
    return Finding(
        "no-gradient",
        "Images change what the policy puts out, but no gradient goes back to them.",
        some(images),
        "a gradient through every layer that takes in the image",
        "look for detach(), no_grad() and frozen parameters in the branch of the image",
        2,
        found.policy,
    )


def some(names: list[str], most: int = 4) -> str:
    """Return the first names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
