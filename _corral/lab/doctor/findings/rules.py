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
    signals,
    steps,
    stored,
    updates,
)
from corral.lab.doctor.findings.finding import Rule

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    stored.not_finite,
    stored.stored_masks,
    agents.misplaced_obs,
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
    updates.masks_in_loss,
    updates.first_ratio,
    steps.nothing_moves,
    steps.larger_gradients,
    networks.dead_layers,
    networks.equal_units,
    networks.softmax_twice,
    networks.softmax_of_features,
    networks.scale_of_inputs,
    networks.weights_decay,
    networks.ignored_fields,
    play.greedy_legal,
    play.same_after_reload,
    play.plays_as_it_learns,
    stored.reported_returns,
    scales.unscaled_obs,
    losses.values_in_loss,
    losses.entropy_in_loss,
    effects.permuted_actions,
    scales.tiny_rewards,
    scales.huge_targets,
    steps.size_of_updates,
    effects.misdirected_rewards,
    effects.unearned_rewards,
    effects.idle_actions,
    signals.never_allowed,
    signals.wrapped,
    signals.shifted_codes,
    signals.running_total,
    scales.unlike_rewards,
)
"""From the root cause outwards: an early fault causes the later ones."""
