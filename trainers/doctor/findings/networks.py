"""What reaches the networks, and what moves in them."""

from __future__ import annotations

import numpy as np

from corral.trainers.doctor.evidence import Evidence, PolicyEvidence
from corral.trainers.doctor.findings.finding import Finding

__all__ = ["ignored_fields", "no_gradient", "not_moved"]


def no_gradient(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    learned = any(
        np.ptp(a.advantage[t.valid]) > 1e-9
        for t, a in zip(found.trajectories, found.advantages, strict=False)
        if t.valid.any()
    )
    if not learned or not found.gradients:
        return None
    dead = [name for name, size in found.gradients.items() if not size > 0]
    if not dead:
        return None
    some = ", ".join(dead[:3]) + (f" and {len(dead) - 3} more" if len(dead) > 3 else "")
    images = any(".cnn" in name for name in dead)
    return Finding(
        "no-gradient",
        "Part of the network gets no gradient"
        + (": images are not learned from." if images else "."),
        f"{len(dead)} of {len(found.gradients)} parameters: {some}",
        "a finite gradient that is not 0 in every parameter that is to learn",
        "look for detach(), no_grad(), a branch whose output is not used, or a loss that leaves "
        "the actor out",
        3,
        found.policy,
    )


def not_moved(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    if not found.moved or any(size > 0 for size in found.moved.values()):
        return None
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
    if not found.ignored:
        return None
    return Finding(
        "observation-ignored",
        "Part of the observation varies, and changes nothing that the policy puts out.",
        ", ".join(found.ignored[:6]) + (" ..." if len(found.ignored) > 6 else ""),
        "every part that varies reaches the networks",
        "look at what the network concatenates, at the order of keys, and at scaling that rounds "
        "to 0",
        3,
        found.policy,
    )
