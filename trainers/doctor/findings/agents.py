"""Who observes what, and who plays."""

from __future__ import annotations

import numpy as np

from corral.trainers.doctor.evidence import Evidence, PolicyEvidence
from corral.trainers.doctor.findings.finding import Finding, joined

__all__ = ["same_views", "untold_identity"]


def same_views(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    said, _ = joined(found.obs)
    width = said.shape[-1] if said.size else 0
    if width < 2:
        return None
    flat = said.reshape(-1, width)
    varies = np.flatnonzero(np.ptp(flat, axis=0) > 1e-6)
    if len(varies) < 2:
        return None
    twins = [
        (int(a), int(b))
        for at, a in enumerate(varies)
        for b in varies[at + 1 :]
        if np.array_equal(flat[:, a], flat[:, b])
    ]
    if not twins or len(twins) > width:
        return None
    return (
        None
        if not twins
        else Finding(
            "observation-repeated",
            "Parts of the observation are always equal: one may stand where another should.",
            f"columns {', '.join(f'{a} and {b}' for a, b in twins[:4])} are equal in "
            f"{len(flat):,} decisions",
            "each thing once",
            "look for two entries that are written under one key or index",
            1,
            found.policy,
        )
    )


def untold_identity(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Agents of one policy that is not told who plays, for whom the same moments differ."""
    settings = evidence.trainer.settings
    if len(found.agents) < 2 or getattr(settings, "agent_id", True):
        return None
    said, _ = joined(found.obs)
    flat = said.reshape(len(said), -1, len(found.agents), said.shape[-1])  # [T, B, P, F]
    if not (np.ptp(flat, axis=2) < 1e-6).all(axis=-1).mean() > 0.02:
        return None  # what they observe tells them apart
    return Finding(
        "shared-without-identity",
        "Agents share one policy that is not told which of them it plays, and they observe the "
        "same.",
        f"{', '.join(found.agents)}: equal observations in "
        f"{(np.ptp(flat, axis=2) < 1e-6).all(axis=-1).mean():.0%} of steps",
        "an observation that tells who plays, or a policy each",
        "leave agent_id=True, or give policies='separate'",
        2,
        found.policy,
    )
