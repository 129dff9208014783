"""Numbers about a run that are shown with the findings in every diagnosis."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence

__all__ = ["FACTS", "Fact", "facts_of"]

FACTS = {
    "entropy": "entropy / log(legal actions)",
    "advantages": "spread of advantages",
    "explained_variance": "explained variance",
    "approx_kl": "KL divergence of an update",
    "clip_fraction": "share of clipped ratios",
    "learning_rate": "learning rate",
    "weights": "largest change of a weight",
}
"""Name of a fact -> its label on the screen."""


@dataclass(frozen=True)
class Fact:
    """One number of a policy, in the first updates and at the checkpoint; None if not measured."""

    name: str  # of FACTS
    policy: str
    beginning: float | None
    latest: float | None


def facts_of(beginning: Evidence | None, latest: Evidence | None) -> tuple[Fact, ...]:
    """Return the facts of each policy that appears in either evidence."""
    policies = dict.fromkeys(
        name for item in (beginning, latest) if item is not None for name in item.policies
    )
    facts = []
    for policy in policies:
        sides = [
            {}
            if item is None or policy not in item.policies
            else _numbers(item.policies[policy], item.trainer.capabilities.advantages)
            for item in (beginning, latest)
        ]
        facts += [
            Fact(name, policy, sides[0].get(name), sides[1].get(name))
            for name in FACTS
            if name in sides[0] or name in sides[1]
        ]
    return tuple(facts)


def _numbers(record: PolicyEvidence, uses_advantages: bool) -> dict[str, float]:
    """Return the facts of the last observed update."""
    numbers: dict[str, float] = {}
    if record.entropy and record.max_entropy and record.max_entropy[-1] > 0:
        numbers["entropy"] = record.entropy[-1][1] / record.max_entropy[-1]
    if uses_advantages and record.advantages and len(record.trajectories) == len(record.advantages):
        valid = record.trajectories[-1].valid
        if valid.any():
            numbers["advantages"] = float(np.std(record.advantages[-1].advantage[valid]))
    metrics = record.metrics[-1] if record.metrics else {}
    numbers |= {
        name: float(metrics[name])
        for name in ("explained_variance", "approx_kl", "clip_fraction", "learning_rate")
        if name in metrics
    }
    if record.moved:
        numbers["weights"] = max(record.moved.values())
    return {name: value for name, value in numbers.items() if math.isfinite(value)}
