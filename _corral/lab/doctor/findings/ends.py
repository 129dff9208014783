"""Ends, time limits and resets, each taken for itself."""

from __future__ import annotations

import numpy as np

from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding, mean

__all__ = ["ends"]


def ends(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """An end, a time limit and a reset, each taken for itself."""
    for given, terminated, truncated, final in zip(
        found.trajectories, found.terminated, found.truncated, found.final_value, strict=False
    ):
        if (terminated & ~given.ended).any() or (truncated & ~given.ended).any():
            return Finding(
                "end-ignored",
                "Episodes go on past their end: the next one's values are added to them.",
                f"{int(((terminated | truncated) & ~given.ended).sum())} ends are not marked",
                "advantages stop where an episode ends",
                "set done = terminated | truncated for the trace, and V(next) = 0 where terminated",
                3,
                found.policy,
            )
        if (np.abs(given.final_obs_value[terminated]) > 1e-6).any():
            return Finding(
                "end-taken-for-limit",
                "Ends by the rules are bootstrapped, as if a time limit had cut them.",
                f"V after a terminated step is {mean(given.final_obs_value[terminated]):.4g}",
                "0 where terminated is True",
                "multiply V(next) by 1 - terminated (not by 1 - done)",
                3,
                found.policy,
            )
        cut = truncated & ~np.isnan(final)
        if not cut.any() or np.allclose(final[cut], 0.0, atol=1e-4):
            continue
        used = given.final_obs_value[cut]
        if np.allclose(used, final[cut], rtol=1e-2, atol=1e-2 * np.abs(final[cut]).max()):
            continue
        following = np.concatenate([given.value[1:], given.bootstrap_value[None]])[cut]
        zero = np.allclose(used, 0.0, atol=1e-6)
        reset = np.allclose(used, following, rtol=1e-3, atol=1e-4)
        title = (
            "A time limit is taken for an end: what would follow counts nothing."
            if zero
            else "Where a time limit cuts, V of the next episode's first observation is used."
            if reset
            else "Where a time limit cuts, not V of the last observation is used, but another."
        )
        return Finding(
            "limit-taken-for-end" if zero else "bootstraps-from-reset",
            title,
            f"V used there {mean(used):.4g}, V of the last observations {mean(final[cut]):.4g}",
            "V(final observation) where truncated",
            "bootstrap from the final observation (info['final_obs']), which autoreset "
            "replaces by the first of the next episode",
            3,
            found.policy,
        )
    return None
