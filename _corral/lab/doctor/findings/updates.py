"""Findings that need one update: its inputs and its effect, and observations that stay equal.

They are also looked for during training.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding, joined
from corral.trainers.on_policy.maths import gae

__all__ = [
    "STILL",
    "constant_obs",
    "entropy_of_illegal",
    "first_ratio",
    "not_moved",
    "unsigned_advantages",
    "zero_advantages",
]

STILL = 1e-7
"""Largest change of a weight that counts as none: the rounding of a weight of 1."""

NOTHING = 1e-8
"""Gradients up to this size may move no weight: the optimizer's epsilon is larger."""


def zero_advantages(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    for trajectories, learned in zip(record.trajectories, record.advantages, strict=False):
        valid = trajectories.valid
        if not valid.any():
            continue
        # Different rewards and values give different advantages, unless the values are exact.
        raw = trajectories.reward[valid] - trajectories.value[valid]
        gamma = getattr(getattr(evidence.trainer, "settings", None), "gamma", 0.99)
        monte_carlo = gae(**vars(trajectories), gamma=gamma, gae_lambda=1.0)[valid]
        if np.std(learned.advantage[valid]) <= 1e-9 < 1e-6 < min(np.std(raw), np.std(monte_carlo)):
            return Finding(
                "zero-advantages",
                "All advantages are equal: the actor gets no gradient.",
                f"advantages have a standard deviation of {np.std(learned.advantage[valid]):.3g}, "
                f"rewards minus values one of {np.std(raw):.3g}",
                "advantages that vary with rewards and values",
                "check the code that computes advantages (RLlib: a module without ValueFunctionAPI "
                "gets "
                "none), a normalization that divides by 0, and a mask of valid transitions "
                "that is all False",
                3,
                record.policy,
            )
    return None


def unsigned_advantages(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report advantages that follow the sizes of the estimated ones and not their signs."""
    settings: Any = evidence.trainer.settings
    gae_lambda = vars(settings).get("gae_lambda")
    for trajectories, learned in zip(record.trajectories, record.advantages, strict=False):
        valid = trajectories.valid
        if valid.sum() < 32 or gae_lambda is None:
            continue
        signed = gae(**vars(trajectories), gamma=settings.gamma, gae_lambda=gae_lambda)
        signed, used = signed[valid], learned.advantage[valid]
        negative = float(np.mean(signed < 0))
        if not 0.1 < negative < 0.9 or np.std(used) <= 1e-9 or np.std(np.abs(signed)) <= 1e-9:
            continue
        by_size = float(np.corrcoef(np.abs(signed), used)[0, 1])
        if by_size > 0.999 and float(np.corrcoef(signed, used)[0, 1]) < 0.9:
            return Finding(
                "advantage-unsigned",
                "Advantages have lost their sign: bad actions count as good ones.",
                f"they correlate {by_size:.3f} with the sizes of reward + gamma V(next) - V, "
                f"{negative:.0%} of which are negative",
                "negative advantages for actions that are worse than expected",
                "look for abs(), a square or a norm of advantages",
                3,
                record.policy,
            )
    return None


def first_ratio(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    if not record.log_ratio:
        return None
    worst = max(float(np.abs(np.expm1(item)).max(initial=0.0)) for item in record.log_ratio)
    if worst <= 1e-3:
        return None
    return Finding(
        "ratio-not-one",
        "Before the first step of an update, the policy differs from the one that played.",
        f"probability ratios differ from 1 by up to {worst:.3g}",
        "1 within 0.0001: the same weights, observations, masks and hidden states",
        "apply the stored mask in the loss as in play; compare observations, normalizers and "
        "hidden states in play and in the loss",
        3,
        record.policy,
    )


def entropy_of_illegal(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    for reported, legal_entropy in record.entropy:
        if reported > legal_entropy + 1e-3 * max(1.0, legal_entropy):
            return Finding(
                "mask-lost-in-entropy",
                "The entropy includes illegal actions.",
                f"entropy in the loss {reported:.4g}, of the legal actions {legal_entropy:.4g}",
                "entropy over legal actions only",
                "use the entropy of the masked distribution; illegal actions contribute 0",
                3,
                record.policy,
            )
    return None


def not_moved(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report updates that change no weight."""
    if evidence.error or not record.moved or max(record.moved.values()) > STILL:
        return None
    if max(record.gradients.values(), default=np.inf) <= NOTHING:
        return None  # no gradient, so nothing to learn
    rate, largest = max(record.learning_rates, default=0.0), max(record.moved.values())
    return Finding(
        "learning-rate-zero" if rate == 0 else "weights-fixed",
        "No weight changes: the learning rate is 0."
        if rate == 0
        else "No weight changes by more than its rounding.",
        f"largest change of a weight {largest:.2g}, learning rate {rate:g}",
        "weights that change in every update",
        "check learning_rate and its schedule (anneal reaches 0 at the planned number of steps: "
        "--stretch extends the plan), and the parameters passed to the optimizer",
        3,
        record.policy,
    )


# --- Observations --------------------------------------------------------------------------------


def constant_obs(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report observations that never change within an episode."""
    if not record.playing.repeats or not record.obs:
        return None
    masks, _ = joined(record.masks)
    reasons: list[str] = []
    begins = [
        np.repeat(item[: len(repeats)], len(record.agents), axis=1)
        for item, repeats in zip(evidence.env.begins, record.playing.repeats, strict=False)
    ]
    within = [~begin[1:] for begin in begins]  # steps after the first of an episode
    pairs = zip(record.playing.repeats, within, strict=False)
    repeated = [repeats[1 : len(pair) + 1] for repeats, pair in pairs]
    if not within or not np.concatenate(within).any():
        return None
    frozen = bool(np.concatenate(repeated)[np.concatenate(within)].all())
    if not frozen:
        return None
    acts = np.concatenate(record.acted)[: len(masks)]
    if ((masks[1:] != masks[:-1]).any(axis=-1) & acts[1:] & acts[:-1]).any():
        reasons.append("action masks change from step to step")
    if _moves(evidence):
        reasons.append("the global state changes within episodes")
    return Finding(
        "observation-constant",
        "The observation never changes within an episode.",
        f"equal to the previous observation in all {int(sum(each.sum() for each in within)):,} "
        "steps "
        f"after the first of an episode; {'; '.join(reasons) or 'nothing else changes'}",
        "an observation of the current state at each step",
        "look for an observation that is made at reset and never updated, an array that is never "
        "written, or a wrapper that returns an old observation",
        2 if reasons else 1,
        record.policy,
    )


def _moves(evidence: Evidence) -> bool:
    """Return True if the global state changes in most steps within episodes."""
    changes = [
        (states[1:] != states[:-1]).any(axis=-1)[~begins[1:]]
        for states, begins in zip(evidence.env.states, evidence.env.begins, strict=True)
        if states.shape[-1]
    ]
    return bool(changes) and bool(np.concatenate(changes).mean() > 0.5)
