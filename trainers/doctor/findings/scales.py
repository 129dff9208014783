"""Sizes of observations and rewards."""

from __future__ import annotations

import numpy as np

from corral.trainers.doctor.evidence import Evidence, PolicyEvidence
from corral.trainers.doctor.findings.finding import Finding, joined

__all__ = ["tiny_rewards", "unscaled_obs"]


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
        2,
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
