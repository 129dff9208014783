"""Rules over what is seen of a trainer of Stable-Baselines3."""

from __future__ import annotations

import numpy as np

from corral.trainers.doctor.evidence import Evidence, PolicyEvidence
from corral.trainers.doctor.findings import networks, scales, updates
from corral.trainers.doctor.findings.finding import Finding, Rule

__all__ = ["column_findings"]


def illegal_in_buffer(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Actions were played that the mask of their own observation forbids."""
    wrong = sum(
        int(np.count_nonzero(~np.take_along_axis(mask, action[..., None], axis=-1)))
        for (_, mask), action in zip(found.masks, found.actions, strict=False)
    )
    if not wrong:
        return None
    return Finding(
        "mask-ignored-in-play",
        "The team plays actions that the mask forbids.",
        f"{wrong} of {sum(each.size for each in found.actions):,} actions in the rollout buffer",
        "no illegal action",
        "take a policy that applies the mask (MaskablePPO, or one that reads it from the "
        "observation), and hand it the mask of the moment that is decided on",
        3,
        found.policy,
    )


RULES: tuple[Rule, ...] = (
    illegal_in_buffer,
    updates.zero_advantages,
    updates.first_ratio,
    networks.not_moved,
    networks.no_gradient,
    scales.unscaled_obs,
    scales.tiny_rewards,
)
"""From the root outwards; each reads what a rollout buffer holds."""


def column_findings(evidence: Evidence) -> list[Finding]:
    """Return all findings, the surest and those nearest to the root first."""
    found = [
        one
        for rule in RULES
        for policy in evidence.policies.values()
        if (one := rule(policy, evidence)) is not None
    ]
    return sorted(found, key=lambda each: -each.certainty)
