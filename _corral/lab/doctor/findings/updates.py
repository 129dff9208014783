"""Findings about the inputs of an update: advantages, ratios and entropy."""

from __future__ import annotations

import numpy as np

from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding
from corral.trainers.on_policy.maths import gae

__all__ = ["entropy_of_illegal", "first_ratio", "zero_advantages"]


def zero_advantages(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    for trajectories, learned in zip(record.trajectories, record.advantages, strict=False):
        valid = trajectories.valid
        if not valid.any():
            continue
        # Different rewards and values give different advantages, unless the values are exact.
        raw = trajectories.reward[valid] - trajectories.value[valid]
        gamma = getattr(getattr(evidence.trainer, "settings", None), "gamma", 0.99)
        monte_carlo = gae(**vars(trajectories), gamma=gamma, gae_lambda=1.0)[valid]
        if np.std(learned.advantage[valid]) <= 1e-9 < 1e-6 < min(np.std(raw), np.std(monte_carlo)):
            return Finding(
                "zero-advantages",
                "All advantages are equal: the actor gets no gradient.",
                f"advantages have a standard deviation of {np.std(learned.advantage[valid]):.3g}, "
                f"rewards minus values one of {np.std(raw):.3g}",
                "advantages that vary with rewards and values",
                "check the code that computes advantages (RLlib: a module without ValueFunctionAPI "
                "gets "
                "none), a normalization that divides by 0, and a mask of valid transitions "
                "that is all False",
                3,
                record.policy,
            )
    return None


def first_ratio(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    if not record.log_ratio:
        return None
    worst = max(float(np.abs(np.expm1(item)).max(initial=0.0)) for item in record.log_ratio)
    if worst <= 1e-3:
        return None
    return Finding(
        "ratio-not-one",
        "Before the first step of an update, the policy differs from the one that played.",
        f"probability ratios differ from 1 by up to {worst:.3g}",
        "1 within 0.0001: the same weights, observations, masks and hidden states",
        "apply the stored mask in the loss as in play; compare observations, normalizers and "
        "hidden states in play and in the loss",
        3,
        record.policy,
    )


def entropy_of_illegal(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    for reported, legal_entropy in record.entropy:
        if reported > legal_entropy + 1e-3 * max(1.0, legal_entropy):
            return Finding(
                "mask-lost-in-entropy",
                "The entropy includes illegal actions.",
                f"entropy in the loss {reported:.4g}, of the legal actions {legal_entropy:.4g}",
                "entropy over legal actions only",
                "use the entropy of the masked distribution; illegal actions contribute 0",
                3,
                record.policy,
            )
    return None
