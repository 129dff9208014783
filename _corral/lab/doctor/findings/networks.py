"""Findings about the networks: inputs, gradients and weights that have no effect."""

from __future__ import annotations

from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.steps import some

__all__ = [
    "dead_layers",
    "equal_units",
    "ignored_fields",
    "scale_of_inputs",
    "softmax_of_features",
    "softmax_twice",
    "weights_decay",
]


def dead_layers(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report layers with the same output for every input."""
    dead = record.playing.dead
    if not dead:
        return None
    return Finding(
        "dead-layer",
        "A layer of the actor has the same output for every observation: its input is lost.",
        f"{some(dead)}: the same output for {min(256, _decisions(record))} different decisions",
        "different outputs for different inputs",
        "look for units that no input activates (ReLU with a large negative bias after a large "
        "step), saturation (large inputs) and products with 0",
        3,
        record.policy,
    )


def _decisions(record: PolicyEvidence) -> int:
    return int(record.acted[-1].sum()) if record.acted else 0


def softmax_twice(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report a softmax of probabilities: every action keeps a large probability."""
    if not record.learning.softmax_twice:
        return None
    return Finding(
        "softmax-twice",
        "The softmax is taken twice: probabilities are used as logits.",
        f"in all {record.learning.softmax_twice} decisions of a minibatch, the policy is the "
        "softmax of probabilities",
        "a softmax of the network's outputs; a softmax of probabilities makes no action more than "
        "2.72 times as likely as another",
        "pass logits, not probabilities, to the distribution",
        3,
        record.policy,
    )


def equal_units(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report layers in which all units are the same and stay the same."""
    if not record.playing.equal_units:
        return None
    return Finding(
        "units-alike",
        "All units of a layer have the same weights: they compute and learn the same.",
        f"{some(record.playing.equal_units)}, after {len(record.learning_rates)} updates",
        "different weights in each unit",
        "start with random weights, such as torch's default or orthogonal initialization, not with "
        "a constant",
        3,
        record.policy,
    )


def softmax_of_features(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report a softmax in front of the last layer: its inputs are small and almost equal."""
    if not record.playing.probabilities:
        return None
    return Finding(
        "softmax-of-features",
        "The network ends in a softmax, and another layer follows: its inputs are almost equal.",
        f"the inputs of the last layer are positive and sum to 1 in all "
        f"{record.playing.probabilities} decisions",
        "features without a softmax; the trainer adds the last layer and the softmax",
        "return features, not probabilities, from your own network",
        2,
        record.policy,
    )


def scale_of_inputs(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report a network to which an observation and a multiple of it are the same."""
    if not record.playing.scale_free:
        return None
    return Finding(
        "scale-ignored",
        "The network ignores the size of the observation, such as after a LayerNorm of the input.",
        f"an observation x and 3 x + 1 have the same outputs in {record.playing.scale_free} "
        "decisions",
        "outputs that depend on the size of numbers",
        "remove the normalization of each observation by itself from the first layer; scale "
        "columns by constants or by running statistics",
        2,
        record.policy,
    )


def weights_decay(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report weight decay that removes the weights of the actor."""
    groups = evidence.trainer.learners[record.policy].optimizer.param_groups
    decay = max(float(group.get("weight_decay", 0.0)) for group in groups)
    if not decay > 0 or record.kept is None or record.kept >= 0.5:
        return None
    return Finding(
        "weights-decay",
        "Weight decay removes the weights faster than the loss builds them.",
        f"weight_decay {decay:g}: the norm of the actor's weights fell to {record.kept:.0%} in "
        f"{len(record.learning_rates)} updates",
        "a norm that stays or grows",
        "use a weight_decay of 0, or at most 0.01",
        2,
        record.policy,
    )


def ignored_fields(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report inputs that vary without changing any output."""
    if not record.ignored:
        return None
    return Finding(
        "observation-ignored",
        "Part of the observation varies but does not change the policy's output.",
        some(record.ignored),
        "every part that varies reaches the networks",
        "check the inputs that the network concatenates, the order of keys, and scaling that "
        "rounds to 0",
        2,
        record.policy,
    )
