"""List the rules that derive findings from the evidence of a run.

A rule is a function from the ``Evidence`` of one policy to a finding, or None. A rule compares
measured with required values. It never depends on the name of an environment or a trainer.
"""

from __future__ import annotations

from corral.lab.doctor.findings import (
    agents,
    effects,
    ends,
    losses,
    networks,
    play,
    scales,
    steps,
    stored,
    updates,
)
from corral.lab.doctor.findings.finding import Rule

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    stored.not_finite,
    stored.stored_masks,
    stored.stored_obs,
    stored.stored_rewards,
    stored.played_actions,
    play.mask_lies,
    play.played_illegally,
    stored.stored_chances,
    ends.ends,
    steps.nothing_valid,
    updates.zero_advantages,
    updates.unsigned_advantages,
    losses.advantage_in_loss,
    losses.rows_aligned,
    losses.dropped_rows,
    play.legal_in_loss,
    updates.first_ratio,
    losses.clipped_too_early,
    updates.entropy_of_illegal,
    play.entropy_of_masked,
    steps.missing_parameters,
    steps.rate_of_plan,
    steps.clipped_away,
    networks.dead_layers,
    networks.softmax_twice,
    networks.weights_decay,
    networks.no_gradient,
    networks.cut_inputs,
    updates.not_moved,
    steps.put_back,
    networks.ignored_fields,
    play.greedy_legal,
    play.same_after_reload,
    play.plays_as_it_learns,
    stored.reported_returns,
    scales.unscaled_obs,
    losses.critic_in_loss,
    losses.old_log_prob,
    losses.entropy_in_loss,
    losses.clip_too_tight,
    agents.late_obs,
    effects.permuted_actions,
    updates.constant_obs,
    agents.missing_identity,
    scales.tiny_rewards,
    scales.huge_targets,
    steps.too_large_steps,
    steps.policy_unchanged,
    steps.diverged,
    effects.misdirected_rewards,
    effects.unearned_rewards,
    effects.idle_actions,
    scales.unlike_rewards,
    agents.shown_another,
    networks.untrained_policies,
    agents.same_views,
    agents.blank_columns,
    networks.frozen_weights,
)
"""From the root cause outwards: an early fault causes the later ones."""
