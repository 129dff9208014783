"""Findings about optimizer steps and their effect on the policy."""

from __future__ import annotations

import numpy as np

from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding
from corral.trainers.on_policy.maths import valid_decisions
from corral.trainers.schedules import scheduled

__all__ = [
    "clipped_away",
    "diverged",
    "missing_parameters",
    "nothing_valid",
    "policy_unchanged",
    "put_back",
    "rate_of_plan",
    "too_large_steps",
]

FAR = 5.0
"""KL divergence of one update, in nats, above which the update is too large.

Becoming sure of one of two equally likely actions takes 1 to 3 nats; small games need one update.
"""


def diverged(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    if evidence.error_kind != "NonFiniteError":
        return None
    if record is not next(iter(evidence.policies.values())):
        return None  # report once, with the first policy
    return Finding(
        "diverged",
        "Training diverges: numbers overflow or become NaN.",
        evidence.error,
        "finite losses, weights and outputs",
        "lower learning_rate, and check the scale of rewards and observations",
        3,
    )


def nothing_valid(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report decisions with a known outcome that training leaves out."""
    lost, of = 0, 0
    for trajectories, acted, terminated, truncated in zip(
        record.trajectories, record.acted, record.terminated, record.truncated, strict=False
    ):
        learnable = valid_decisions(
            acted=acted,
            ended=terminated | truncated,
            acts_next=np.zeros(acted.shape[1], dtype=bool),  # leaves out each agent's last decision
        )
        lost, of = lost + int((learnable & ~trajectories.valid).sum()), of + int(learnable.sum())
    if not of or lost <= 0.5 * of:
        return None
    return Finding(
        "decisions-left-out",
        "Training uses less than half of the decisions.",
        f"{lost:,} of {of:,} decisions with an outcome in the rollout are left out",
        "every decision except the last one before the rollout ends",
        "check the mask of valid decisions: it must be True if an agent acted",
        3 if lost == of else 2,
        record.policy,
    )


def rate_of_plan(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report a learning rate that is 0 for much of the planned training."""
    trainer = evidence.trainer
    settings, steps = trainer.learners[record.policy].settings, trainer.steps
    progress = record.learning.progress
    if not hasattr(settings, "learning_rate") or min(progress, default=1.0) >= 1:
        return None
    rates = [
        scheduled(settings, "learning_rate", env_steps=int(steps * at), progress=at)
        for at in np.linspace(0.0, 1.0, 20, endpoint=False).tolist()
    ]
    zero = np.mean([rate == 0 for rate in rates])
    if zero < 0.25:
        return None
    return Finding(
        "learning-rate-zero",
        "The learning rate is 0 for much of the training.",
        f"it is 0 in {zero:.0%} of the {steps:,} planned env steps",
        "a learning rate above 0 until the planned end",
        "use a schedule that ends with the planned steps (learning_rate='linear:3e-3')",
        3,
        record.policy,
    )


def missing_parameters(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report parameters that get a gradient but are not in the optimizer."""
    missing = [n for n in record.learning.missing if record.gradients.get(n, 0.0) > 0]
    if not missing:
        return None
    networks = {
        role: [name for name in record.gradients if name.startswith(f"{role}.")]
        for role in ("actor", "critic")
    }
    whole = [role for role, names in networks.items() if names and set(names) <= set(missing)]
    return Finding(
        "weights-fixed",
        f"The optimizer does not contain the {' and the '.join(whole)}."
        if whole
        else "The optimizer contains only some of the weights.",
        f"{len(missing)} of {len(record.gradients)} parameters get gradients and are in no group "
        "of "
        f"the optimizer: {', '.join(missing[:3])}{' ...' if len(missing) > 3 else ''}",
        "all trainable parameters in the optimizer; requires_grad=False for the rest",
        "pass all trainable parameters to the optimizer",
        3 if whole else 2,
        record.policy,
    )


def clipped_away(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report gradient clipping that leaves almost nothing."""
    for role, at in (("actor", 0), ("critic", 2)):
        norms = [(norm[at], norm[at + 1]) for norm in record.learning.norms if norm[at] > 0]
        if not norms:
            continue
        before, after = (float(np.median(item)) for item in zip(*norms, strict=True))
        if after < 1e-6 and after < 1e-2 * before:
            return Finding(
                "gradient-clipped-away",
                f"Gradient clipping reduces the gradients of the {role} to almost 0.",
                f"norm {before:.2g} before clipping, {after:.2g} after",
                "clipping that affects only unusually large gradients",
                "raise max_grad_norm to 0.5 or more",
                3,
                record.policy,
            )
    return None


def too_large_steps(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report an update that changes the policy too much."""
    learning = record.learning
    worst = max(learning.divergence, default=0.0)
    collapses = any(a > 0.5 and b < 0.02 for a, b in learning.entropy)
    if not worst > FAR and not collapses:
        return None
    at = int(np.argmax(learning.divergence))
    fell = ""
    if at < len(learning.entropy):
        a, b = learning.entropy[at]
        fell = f"; entropy goes from {a:.0%} to {b:.0%} of log(legal actions)"
    return Finding(
        "steps-too-large",
        "One update changes the policy completely.",
        f"KL(before || after) of an update is {worst:.3g} nats{fell}; learning rate "
        f"{max(record.learning_rates):g}",
        "about 0.01 to 0.1 nats",
        "divide learning_rate by 10, use fewer epochs, or stop them with target_kl=0.02",
        2,
        record.policy,
    )


def put_back(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report updates that are undone when they end."""
    learning = record.learning
    updates = list(zip(learning.ratios, learning.changed, record.learning_rates, strict=False))
    later = [(max(ratios), changed) for ratios, changed, rate in updates[1:] if rate > 0 and ratios]
    if not later or any(changed > 1e-7 or moved < 1e-3 for moved, changed in later):
        return None
    return Finding(
        "weights-put-back",
        "Each update changes the policy and then restores the old one: nothing is learned.",
        f"within {len(later)} updates log-probabilities moved by up to "
        f"{max(moved for moved, _ in later):.2g}; after each update every probability is the same "
        "as "
        "before it",
        "a policy that keeps the result of its last step",
        "look for old weights that are copied back after an update: a target network, an "
        "average of weights or a loaded checkpoint",
        3,
        record.policy,
    )


def policy_unchanged(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report updates with different advantages that leave all probabilities unchanged."""
    learning = record.learning
    rate = max(record.learning_rates, default=0.0)
    open_minded = [before for before, _ in learning.entropy]
    if not learning.changed or not rate > 0 or not open_minded or max(open_minded) < 0.05:
        return None
    has_signal = learning.response.spread > 1e-6 and learning.response.advantage is not None
    if not has_signal or max(learning.changed) > 1e-5:
        return None
    return Finding(
        "policy-unchanged",
        "Updates do not change the policy.",
        f"no probability changes by more than {max(learning.changed):.1g} in "
        f"{len(learning.changed)} updates, while advantages differ by "
        f"{learning.response.spread:.2g}; "
        f"learning rate {rate:g}",
        "probabilities that change by a few percent per update",
        "raise learning_rate; check the scale of the gradients and the parameters in the optimizer",
        2,
        record.policy,
    )
