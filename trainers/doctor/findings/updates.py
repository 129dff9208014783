"""What goes into an update: advantages, ratios, entropy, values."""

from __future__ import annotations

import numpy as np

from corral.trainers.doctor.evidence import Evidence, PolicyEvidence
from corral.trainers.doctor.findings.finding import Finding

__all__ = ["clipped_values", "entropy_of_illegal", "entropy_wins", "first_ratio", "zero_advantages"]


def zero_advantages(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    for given, learned in zip(found.trajectories, found.advantages, strict=False):
        valid = given.valid
        if not valid.any():
            continue
        # What one step more would tell: rewards and values that differ make advantages differ.
        raw = given.reward[valid] - given.value[valid]
        if np.std(learned.advantage[valid]) <= 1e-9 < 1e-6 < np.std(raw):
            return Finding(
                "zero-advantages",
                "All advantages are the same: the actor is told nothing.",
                f"advantages have a standard deviation of {np.std(learned.advantage[valid]):.3g}, "
                f"rewards less values one of {np.std(raw):.3g}",
                "advantages that vary as rewards and values do",
                "look at what makes advantages (RLlib: a module that is no ValueFunctionAPI gets "
                "none), at a normalization that divides by nothing, and at a mask of transitions "
                "that is all False",
                3,
                found.policy,
            )
    return None


def first_ratio(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    if not found.log_ratio:
        return None
    worst = max(float(np.abs(np.expm1(each)).max(initial=0.0)) for each in found.log_ratio)
    if worst <= 1e-3:
        return None
    return Finding(
        "ratio-not-one",
        "Before the first step of an update, the policy is not the one that played.",
        f"probability ratios are off 1 by up to {worst:.3g}",
        "1 within 0.0001: the same weights, observations, masks and hidden states",
        "apply the stored mask in the loss as in play; compare observations, normalizers and "
        "hidden states of both",
        3,
        found.policy,
    )


def entropy_of_illegal(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    for told, own in found.entropy:
        if told > own + 1e-3 * max(1.0, own):
            return Finding(
                "mask-lost-in-entropy",
                "The entropy counts actions that are illegal.",
                f"entropy in the loss {told:.4g}, of the legal actions {own:.4g}",
                "entropy over legal actions alone",
                "take the entropy of the masked distribution; illegal actions count 0",
                3,
                found.policy,
            )
    return None


def entropy_wins(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    if not found.entropy or not found.term_gradients:
        return None
    names = [name for name in found.term_gradients if "entropy" in name]
    others = [n for n in found.term_gradients if n not in names and "value" not in n]
    if not names or not others:
        return None
    bonus = max(abs(terms.get(name, 0.0)) for terms in found.terms for name in names)
    policy = max(abs(terms.get(name, 0.0)) for terms in found.terms for name in others)
    told, most = found.entropy[-1][0], found.most_entropy[-1]
    scale = float(
        np.std(
            np.concatenate(
                [
                    a.advantage[t.valid]
                    for t, a in zip(found.trajectories, found.advantages, strict=False)
                ]
            )
        )
    )
    if most > 0 and told >= 0.97 * most and bonus > 2.0 * max(scale, 1e-9) * most:
        return Finding(
            "entropy-too-large",
            "The bonus for entropy outweighs what advantages say: the policy stays random.",
            f"entropy {told:.3g} of at most {most:.3g}; its term in the loss is {bonus:.3g}, the "
            f"policy's {policy:.3g}",
            "a bonus that is small beside normalized advantages",
            "lower ent_coef, to 0.01 or less at first",
            2,
            found.policy,
        )
    return None


def clipped_values(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    settings = evidence.trainer.settings
    clip = getattr(settings, "clip_range_vf", None)
    if clip is None or not found.targets:
        return None
    value, target, old = (np.concatenate(each) for each in zip(*found.targets, strict=True))
    far = np.abs(target - old) > 10 * clip
    if far.mean() <= 0.5:
        return None
    return Finding(
        "value-clipped",
        "Values may move so little in an update that they never reach their targets.",
        f"clip_range_vf {clip:g}; {far.mean():.0%} of targets lie more than 10 times that from "
        f"the value (median distance {np.median(np.abs(target - value)):.3g})",
        "a clip range of the size of the targets' spread (1, where values are normalized), or none",
        "leave clip_range_vf out, or raise it to 1",
        2,
        found.policy,
    )
