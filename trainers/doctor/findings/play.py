"""The policies as they play: greedily, and after saving and loading."""

from __future__ import annotations

from corral.trainers.doctor.evidence import Evidence, PolicyEvidence
from corral.trainers.doctor.findings.finding import Finding

__all__ = ["greedy_legal", "same_after_reload"]


def greedy_legal(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    if not found.greedy_illegal:
        return None
    return Finding(
        "mask-lost-in-greedy",
        "Greedy play chooses illegal actions.",
        f"{found.greedy_illegal} illegal actions in play without sampling",
        "the likeliest legal action",
        "take the argmax of the masked logits",
        3,
        found.policy,
    )


def same_after_reload(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    if not found.reloaded_illegal and found.reloaded_differs <= 1e-5:
        return None
    mask = found.reloaded_illegal > found.greedy_illegal
    return Finding(
        "mask-lost-after-reload" if mask else "reload-differs",
        "After saving and loading, the policy plays illegal actions."
        if mask
        else "After saving and loading, the policy is another.",
        f"{found.reloaded_illegal} illegal actions"
        if mask
        else f"probabilities differ by up to {found.reloaded_differs:.3g}",
        "the same policy",
        "save everything that play depends on: weights, normalizers, buffers, the mask's place",
        3,
        found.policy,
    )
