"""What the state of dfaas_v0 keeps of past steps: reports that come late.

Where a node knows what others reported k steps ago, k > 1, the state holds the reports of the k - 1
steps before the last, in a ring: step s of the episode has place s mod (k - 1). So the oldest, of
step t - k, stands where that of step t - 1 goes when step t is played.
"""

from __future__ import annotations

import numpy as np

from corral.envs.core import Array

__all__ = ["keep_reports", "late_reports", "no_reports"]


def no_reports(num_envs: int, nodes: int, delay: int) -> Array:
    """Return the ring at the start of an episode: spare and lost of 0, int64 [B, K, N, 2]."""
    return np.zeros((num_envs, max(delay - 1, 0), nodes, 2), dtype=np.int64)


def late_reports(reports: Array, t: Array) -> tuple[Array, Array]:
    """Return the oldest spare and lost, [B, N] each, before step ``t`` [B] is played."""
    oldest = reports[np.arange(len(t)), (t - 1) % reports.shape[1]]  # [B, N, 2]
    return oldest[..., 0], oldest[..., 1]


def keep_reports(reports: Array, t: Array, spare: Array, lost: Array) -> None:
    """Put what step ``t`` - 1 ended with in the place of the oldest."""
    if reports.shape[1]:
        reports[np.arange(len(t)), (t - 1) % reports.shape[1]] = np.stack([spare, lost], axis=-1)
