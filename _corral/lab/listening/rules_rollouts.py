"""Rules about rollouts and episodes: observations, rewards, play, formulas of advantages."""

from __future__ import annotations

from collections.abc import Callable

from corral.lab.doctor.findings.finding import Finding
from corral.lab.listening import formula, rules_obs, rules_play, rules_rewards
from corral.lab.listening.heard import Heard

__all__ = ["RULES"]

RULES: tuple[Callable[[Heard], Finding | None], ...] = (
    rules_obs.not_finite,
    rules_play.no_action,
    rules_play.illegal,
    rules_play.still_masks,
    rules_play.late_masks,
    rules_obs.equal_copies,
    rules_obs.constant,
    rules_obs.late,
    rules_rewards.constant_ends,
    rules_rewards.ends_unmarked,
    rules_rewards.reset_incomplete,
    rules_rewards.same_rewards,
    rules_rewards.tiny_rewards,
    rules_rewards.running_total,
    rules_rewards.equal_in_copies,
    rules_rewards.clipped,
    rules_play.one_action,
    rules_play.always_greedy,
    rules_play.likely_actions,
    rules_play.sure_from_start,
    rules_play.wrong_log_probs,
    rules_play.foreign_log_probs,
    *formula.RULES,
    rules_obs.unscaled,
    rules_rewards.huge_targets,
    rules_play.values_flat,
    rules_play.misleading_values,
    rules_rewards.short_horizon,
    rules_rewards.unseen_ends,
    rules_rewards.few_updates,
    rules_play.idle,
    rules_play.never_allowed,
    rules_play.shifted_codes,
    rules_obs.wraps,
    rules_obs.blank,
    rules_obs.drifting,
    rules_obs.equal_starts,
    rules_rewards.goal_avoided,
    rules_rewards.returns_fell,
)
"""From the root cause outwards: an early fault causes the later ones."""
