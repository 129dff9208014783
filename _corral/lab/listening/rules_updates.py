"""All rules about updates: gradients, steps, losses and the network, nearest to the root first.

A rule is a function from the record of a policy to a finding, or None. It is certain only about
numbers that have no other explanation.
"""

from __future__ import annotations

from collections.abc import Callable

from corral.lab.doctor.findings.finding import Finding
from corral.lab.listening import (
    rules_masks,
    rules_networks,
    rules_policy,
    rules_steps,
    rules_values,
)
from corral.lab.listening.heard import Heard

__all__ = ["RULES"]

RULES: tuple[Callable[[Heard], Finding | None], ...] = (
    rules_steps.not_finite,
    rules_policy.equal_advantages,
    rules_masks.played_illegally,
    rules_policy.policy_in_loss,
    rules_masks.masks_in_loss,
    rules_policy.first_ratio,
    rules_policy.recomputed,
    rules_policy.reversed_clip,
    rules_steps.frozen,
    rules_steps.clipped_away,
    rules_steps.kept_gradients,
    rules_steps.without_rate,
    rules_steps.not_moved,
    rules_steps.put_back,
    rules_networks.dead_layers,
    rules_networks.same_units,
    rules_masks.softmax_of_probabilities,
    rules_networks.modes_differ,
    rules_networks.unscaled_inputs,
    rules_networks.tiny_inputs,
    rules_steps.no_gradient,
    rules_steps.larger_gradients,
    rules_steps.weights_decay,
    rules_values.values_in_loss,
    rules_values.values_dominate,
    rules_masks.entropy_in_loss,
    rules_masks.other_terms,
    rules_policy.clip_range,
    rules_policy.size_of_updates,
    rules_networks.saturated,
    rules_steps.still_policy,
)
"""An early fault causes the later ones."""
