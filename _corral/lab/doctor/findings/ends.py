"""Findings about episode ends: termination, time limit and reset must be kept apart."""

from __future__ import annotations

import numpy as np

from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding, mean

__all__ = ["ends"]


def ends(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report terminations, time limits and resets that are confused with each other."""
    for trajectories, terminated, truncated, final in zip(
        record.trajectories, record.terminated, record.truncated, record.final_value, strict=False
    ):
        if (terminated & ~trajectories.ended).any() or (truncated & ~trajectories.ended).any():
            return Finding(
                "end-ignored",
                "Episode ends are ignored: values of the next episode enter the advantages.",
                f"{int(((terminated | truncated) & ~trajectories.ended).sum())} episode ends are "
                "not "
                "marked",
                "advantages stop at the end of an episode",
                "set done = terminated | truncated for the trace, and V(next) = 0 if terminated",
                3,
                record.policy,
            )
        if (np.abs(trajectories.final_obs_value[terminated]) > 1e-6).any():
            return Finding(
                "end-taken-for-limit",
                "Terminated steps are bootstrapped as if a time limit had ended the episode.",
                "V after a terminated step is "
                f"{mean(trajectories.final_obs_value[terminated]):.4g}",
                "0 if terminated is True",
                "multiply V(next) by 1 - terminated (not by 1 - done)",
                3,
                record.policy,
            )
        cut = truncated & ~np.isnan(final)
        if not cut.any() or np.allclose(final[cut], 0.0, atol=1e-4):
            continue
        used = trajectories.final_obs_value[cut]
        if np.allclose(used, final[cut], rtol=1e-2, atol=1e-2 * np.abs(final[cut]).max()):
            continue
        following = np.concatenate([trajectories.value[1:], trajectories.bootstrap_value[None]])[
            cut
        ]
        zero = np.allclose(used, 0.0, atol=1e-6)
        reset = np.allclose(used, following, rtol=1e-3, atol=1e-4)
        title = (
            "A time limit is treated as a termination: the value after it counts as 0."
            if zero
            else "Truncated steps bootstrap from the next episode's first observation."
            if reset
            else "Truncated steps do not bootstrap from the value of the final observation."
        )
        return Finding(
            "limit-taken-for-end" if zero else "bootstraps-from-reset" if reset else "limit-value",
            title,
            f"V used at time limits {mean(used):.4g}, V of the final observations "
            f"{mean(final[cut]):.4g}",
            "V(final observation) if truncated",
            "bootstrap from the final observation (info['final_obs']), which autoreset "
            "replaces with the first observation of the next episode",
            3 if zero or reset else 2,
            record.policy,
        )
    return None
