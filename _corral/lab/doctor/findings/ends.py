"""Findings about episode ends: termination, time limit and reset must be kept apart."""

from __future__ import annotations

import numpy as np

from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding, mean
from corral.lab.doctor.findings.texts import finding_of

__all__ = ["ends"]


def ends(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report terminations, time limits and resets that are confused with each other."""
    for trajectories, terminated, truncated, final in zip(
        record.trajectories, record.terminated, record.truncated, record.final_value, strict=False
    ):
        unmarked = (terminated | truncated) & ~trajectories.ended
        if unmarked.any():
            measured = f"{int(unmarked.sum())} episode ends are not marked"
            return finding_of("end-ignored", measured, 3, record.policy)
        after = trajectories.final_obs_value[terminated]
        if (np.abs(after) > 1e-6).any():
            measured = f"V after a terminated step is {mean(after):.4g}"
            return finding_of("end-taken-for-limit", measured, 3, record.policy)
        cut = truncated & ~np.isnan(final)
        if not cut.any() or np.allclose(final[cut], 0.0, atol=1e-4):
            continue
        used = trajectories.final_obs_value[cut]
        if np.allclose(used, final[cut], rtol=1e-2, atol=1e-2 * np.abs(final[cut]).max()):
            continue
        following = np.concatenate([trajectories.value[1:], trajectories.bootstrap_value[None]])
        cause, certainty = "limit-value", 2
        if np.allclose(used, 0.0, atol=1e-6):
            cause, certainty = "limit-taken-for-end", 3
        elif np.allclose(used, following[cut], rtol=1e-3, atol=1e-4):
            cause, certainty = "bootstraps-from-reset", 3
        measured = (
            f"V used at time limits {mean(used):.4g}, V of the final observations "
            f"{mean(final[cut]):.4g}"
        )
        return finding_of(cause, measured, certainty, record.policy)
    return None
