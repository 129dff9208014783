"""Findings about the scale of observations and rewards."""

from __future__ import annotations

import numpy as np

from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding, joined

__all__ = ["huge_targets", "tiny_rewards", "unlike_rewards", "unscaled_obs"]

HUGE = 1000.0
"""Value targets above this size are out of reach: a new critic starts with values near 0."""

UNLIKE = 30.0
"""Ratio of agents' rewards from which the smaller ones hardly count in a shared policy."""


def unscaled_obs(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    _, kept = joined(record.obs)
    if not kept.size:
        return None
    largest = np.abs(kept).max(axis=(0, 1))
    if not (largest > 30).any():
        return None
    return Finding(
        "observation-unscaled",
        "Observations contain large numbers, which hide the small ones.",
        f"largest {largest.max():.4g}; {int((largest > 30).sum())} of {len(largest)} columns "
        "exceed 30",
        "values of about -1 to 1",
        "divide large entries by their typical size in the environment; corral scales only a Box "
        "of uint8",
        2 if largest.max() > 100 else 1,
        record.policy,
    )


def tiny_rewards(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    rewards, _ = joined(record.rewards)
    if not rewards.size:
        return None
    largest = float(np.abs(rewards).max())
    if not 0 < largest < 1e-4:
        return None
    return Finding(
        "reward-tiny",
        "Rewards are so small that rounding and the optimizer's epsilon dominate them.",
        f"largest reward {largest:.3g}",
        "returns of about 1 to 100",
        "multiply the rewards, or divide them by their typical size, in the environment",
        2,
        record.policy,
    )


def unlike_rewards(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report agents of one policy with rewards of very different sizes."""
    rewards, _ = joined(record.rewards)
    if len(record.agents) < 2 or not rewards.size:
        return None
    spread = rewards.reshape(-1, len(record.agents)).std(axis=0)
    largest, smallest = int(spread.argmax()), int(np.where(spread > 0, spread, np.inf).argmin())
    if not spread[smallest] > 0 or spread[largest] < UNLIKE * spread[smallest]:
        return None
    return Finding(
        "reward-scales-differ",
        "Agents of one policy get rewards of very different sizes: the small ones hardly count.",
        f"standard deviation of rewards {spread[largest]:.3g} for {record.agents[largest]}, "
        f"{spread[smallest]:.3g} for {record.agents[smallest]}",
        f"sizes within a factor of {UNLIKE:.0f}",
        "divide each agent's rewards by their typical size, or use policies='separate'",
        1,
        record.policy,
    )


def huge_targets(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report value targets, in the critic's scale, that are too large to reach."""
    if not record.targets:
        return None
    target = np.concatenate(record.targets)
    size = float(np.sqrt(np.mean(np.square(target.astype(np.float64)))))
    if not size > HUGE:
        return None
    return Finding(
        "reward-huge",
        "Returns are so large that the critic cannot reach them and its gradients dominate.",
        f"value targets of about {size:.3g}, in the critic's scale",
        "targets of about 1; an untrained network outputs about 1",
        "keep normalize_values on, or divide rewards by their typical size",
        2,
        record.policy,
    )
