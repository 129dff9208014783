"""Sizes of observations and rewards."""

from __future__ import annotations

import numpy as np

from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding, joined

__all__ = ["huge_targets", "tiny_rewards", "unscaled_obs"]

HUGE = 1000.0
"""Value targets that a critic which begins near 0 does not reach in many updates."""


def unscaled_obs(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    _, kept = joined(found.obs)
    if not kept.size:
        return None
    largest = np.abs(kept).max(axis=(0, 1))
    if not (largest > 30).any():
        return None
    return Finding(
        "observation-unscaled",
        "Observations are large numbers, beside which others vanish.",
        f"largest {largest.max():.4g}; {int((largest > 30).sum())} of {len(largest)} columns "
        "exceed 30",
        "numbers of about -1 to 1",
        "give finite bounds in the observation space (corral scales by them), or scale in the "
        "environment",
        2 if largest.max() > 100 else 1,
        found.policy,
    )


def tiny_rewards(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    said, _ = joined(found.rewards)
    if not said.size:
        return None
    largest = float(np.abs(said).max())
    if not 0 < largest < 1e-4:
        return None
    return Finding(
        "reward-tiny",
        "Rewards are so small that they drown in rounding and in constants of the optimizer.",
        f"largest reward {largest:.3g}",
        "returns of about 1 to 100",
        "multiply rewards, or divide them by their typical size, in the environment",
        2,
        found.policy,
    )


def huge_targets(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """The critic's targets, by the scale that it learns them in, must be within its reach."""
    if not found.targets:
        return None
    target = np.concatenate([each[1] for each in found.targets])
    size = float(np.sqrt(np.mean(np.square(target.astype(np.float64)))))
    if not size > HUGE:
        return None
    return Finding(
        "reward-huge",
        "Returns are so large that the critic does not get there, and its gradients drown all "
        "others.",
        f"value targets of about {size:.3g}, by the critic's scale",
        "targets of about 1; a network puts out about 1 at first",
        "leave normalize_values on, or divide rewards by their typical size",
        2,
        found.policy,
    )
