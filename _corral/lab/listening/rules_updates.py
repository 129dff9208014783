"""All rules about updates: gradients, steps, losses and the network, nearest to the root first.

A rule is a function from what was heard of a policy to a finding, or None. It is certain only about
numbers that have no other explanation.
"""

from __future__ import annotations

from collections.abc import Callable

from corral.lab.doctor.findings.finding import Finding
from corral.lab.listening import rules_losses, rules_steps
from corral.lab.listening.heard import Heard

__all__ = ["RULES"]

RULES: tuple[Callable[[Heard], Finding | None], ...] = (
    rules_steps.not_finite,
    rules_losses.played_illegally,
    rules_losses.policy_in_loss,
    rules_losses.masks_in_loss,
    rules_losses.first_ratio,
    rules_losses.recomputed,
    rules_losses.reversed_clip,
    rules_steps.frozen,
    rules_steps.clipped_away,
    rules_steps.kept_gradients,
    rules_steps.without_rate,
    rules_steps.not_moved,
    rules_steps.put_back,
    rules_steps.dead_layers,
    rules_steps.units_alike,
    rules_losses.softmax_of_probabilities,
    rules_steps.modes_differ,
    rules_steps.unscaled_inputs,
    rules_steps.no_gradient,
    rules_steps.larger_gradients,
    rules_steps.weights_decay,
    rules_losses.values_in_loss,
    rules_losses.entropy_in_loss,
    rules_losses.clip_range,
    rules_losses.size_of_updates,
    rules_steps.saturated,
    rules_steps.still_policy,
)
"""An early fault causes the later ones."""
