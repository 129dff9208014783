"""The twelve exercises, in the order of the tutorial."""

from __future__ import annotations

from corral.lab.course.environments import environment_loop, reward_shaping
from corral.lab.course.experiments import callback, paired_comparison, policy_returns
from corral.lab.course.losses import action_masks, clipped_surrogate
from corral.lab.course.networks import frozen_snapshot, masked_network
from corral.lab.course.returns import (
    discounted_returns,
    generalized_advantages,
    normalized_advantages,
)

__all__ = ["EXERCISES"]

EXERCISES = (
    environment_loop,
    action_masks,
    discounted_returns,
    generalized_advantages,
    clipped_surrogate,
    normalized_advantages,
    policy_returns,
    masked_network,
    callback,
    paired_comparison,
    frozen_snapshot,
    reward_shaping,
)
"""Exercise n is at index n - 1."""
