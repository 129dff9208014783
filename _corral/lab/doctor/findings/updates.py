"""Findings that need one update: the inputs of its loss, and its effect.

They are also looked for during training.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding, joined
from corral.lab.doctor.findings.texts import finding_of, strongest
from corral.trainers.on_policy.maths import gae

__all__ = [
    "FAR",
    "STILL",
    "constant_obs",
    "first_ratio",
    "masks_in_loss",
    "not_moved",
    "repeats_of",
    "unsigned_advantages",
    "zero_advantages",
]

STILL = 1e-7
"""Largest change of a weight that counts as none: the rounding of a weight of 1."""

NOTHING = 1e-6
"""Gradients up to this size may move no weight: the epsilon of an optimizer may be larger."""

FAR = 5.0
"""KL divergence of one update, in nats, above which the update is too large.

Becoming sure of one of two equally likely actions takes 1 to 3 nats; small games need one update.
"""


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
            measured = (
                f"advantages correlate {by_size:.3f} with the sizes of reward + gamma V(next) - V, "
                f"{negative:.0%} of which are negative"
            )
            return finding_of("advantage-unsigned", measured, 3, record.policy)
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


def masks_in_loss(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Compare the possible actions in the loss, and its entropies, with the legal actions."""
    return strongest(_of_loss(record))


def _of_loss(record: PolicyEvidence) -> Iterator[Finding]:
    for possible, rows, (_, masks), trajectories in zip(
        *(record.learning.possible, record.learning.rows, record.masks, record.trajectories),
        strict=False,
    ):
        legal, valid = float(masks[trajectories.valid].sum()), trajectories.valid.sum()
        if possible and sum(len(row[0]) for row in rows) == valid and abs(possible - legal) >= 0.5:
            measured = (
                f"{possible:,.0f} actions have a probability in the first epoch, {legal:,.0f} were "
                "legal in these decisions"
            )
            yield finding_of("mask-lost-in-ratio", measured, 3, record.policy)
            break
    for reported, legal in record.entropy:
        if reported > legal + 1e-3 * max(1.0, legal):
            measured = f"entropy in the loss {reported:.4g}, of the legal actions {legal:.4g}"
            yield finding_of("mask-lost-in-entropy", measured, 3, record.policy)
            break
    for name, pairs in record.entropies.items():
        term, entropy = np.array(pairs, dtype=np.float64).T
        at = (entropy > 1e-6) & (term != 0)  # an unreported entropy is 0
        if at.sum() < 2 or np.ptp(entropy[at]) < 1e-3 * entropy[at].max():
            continue
        ratio = term[at] / entropy[at]
        if np.ptp(ratio) > 0.1 * np.ptp(entropy[at]) / entropy[at].max() * np.abs(ratio).max():
            measured = (
                f"{name} is {ratio.min():.4g} to {ratio.max():.4g} times the entropy of the legal "
                "actions, depending on the minibatch"
            )
            yield finding_of("mask-lost-in-entropy", measured, 2, record.policy)
            break


def not_moved(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report updates that change no weight."""
    if evidence.error or not record.moved or max(record.moved.values()) > STILL:
        return None
    if max(record.gradients.values(), default=np.inf) <= NOTHING:
        return None  # no gradient, so nothing to learn
    rate = max(record.learning_rates, default=0.0)
    cause = "learning-rate-zero" if rate == 0 else "weights-fixed"
    measured = (
        f"largest change of a weight {max(record.moved.values()):.2g}, learning rate {rate:g}"
    )
    return finding_of(cause, measured, 3, record.policy)


# --- Observations that stay equal ----------------------------------------------------------------


def constant_obs(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report observations that never change within an episode."""
    repeats = np.concatenate(repeats_of(record, evidence))
    if not len(repeats) or not repeats.all() or not record.obs:
        return None
    masks, _ = joined(record.masks)
    acts = np.concatenate(record.acted)[: len(masks)]
    reasons = []
    if ((masks[1:] != masks[:-1]).any(axis=-1) & acts[1:] & acts[:-1]).any():
        reasons.append("action masks change from step to step")
    if _moves(evidence):
        reasons.append("the global state changes within episodes")
    measured = (
        f"equal to the previous observation in all {len(repeats):,} steps after the first of an "
        f"episode; {'; '.join(reasons) or 'nothing else changes'}"
    )
    return finding_of("observation-constant", measured, 2 if reasons else 1, record.policy)


def repeats_of(record: PolicyEvidence, evidence: Evidence) -> tuple[Array, Array]:
    """Return if observations equal the one before: the second ones of episodes, and later ones.

    Each is bool [R], over all rollouts. A rollout may begin within an episode, so its first two
    steps do not count.
    """
    both: tuple[list[Array], list[Array]] = ([np.zeros(0, bool)], [np.zeros(0, bool)])
    for repeats, begins in zip(record.playing.repeats, evidence.env.begins, strict=False):
        begun = np.repeat(begins[: len(repeats)], len(record.agents), axis=1)
        within, second = ~begun[1:], begun[:-1]
        both[0].append(repeats[1 : len(begun)][within & second])
        both[1].append(repeats[2 : len(begun)][(within & ~second)[1:]])
    return np.concatenate(both[0]), np.concatenate(both[1])


def _moves(evidence: Evidence) -> bool:
    """Return True if the global state changes in most steps within episodes."""
    changes = [
        (states[1:] != states[:-1]).any(axis=-1)[~begins[1:]]
        for states, begins in zip(evidence.env.states, evidence.env.begins, strict=True)
        if states.shape[-1]
    ]
    return bool(changes) and bool(np.concatenate(changes).mean() > 0.5)
