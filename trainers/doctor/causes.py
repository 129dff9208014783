"""Findings about a whole run, and all findings in the order of their causes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from corral.trainers.doctor.evidence.imitation import Imitation
from corral.trainers.doctor.findings.finding import Finding

__all__ = ["FOLLOWS", "RAISED", "by_cause", "cannot_imitate", "raised"]

FOLLOWS: dict[str, tuple[str, ...]] = {
    "zero-advantages": ("weights-fixed", "entropy-flat", "advantage-elsewhere", "critic-blind"),
    "learning-rate-zero": ("weights-fixed", "entropy-flat", "critic-blind"),
}
"""A cause -> what surely follows from it."""


def by_cause(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings, the surest first, then those nearest to the root.

    The same cause in several policies is one finding that names them; what surely follows from
    another finding has its cause as ``follows``, and comes last. ``found`` is in the order of the
    rules: from the root outwards.
    """
    merged: dict[str, list[Finding]] = {}
    for one in found:
        if all(one.policy != other.policy for other in merged.setdefault(one.cause, [])):
            merged[one.cause].append(one)
    once = []
    for same in merged.values():
        first = max(same, key=lambda one: one.certainty)
        policies = ", ".join(dict.fromkeys(one.policy for one in same if one.policy))
        once.append(dataclasses.replace(first, policy=policies))
    surest = sorted(once, key=lambda one: -one.certainty)  # stable
    roots = {one.cause for one in surest if one.certainty >= 2}
    marked = [dataclasses.replace(one, follows=_root_of(one, roots)) for one in surest]
    return tuple(sorted(marked, key=lambda one: bool(one.follows)))


def _root_of(one: Finding, roots: set[str]) -> str:
    return next((root for root in FOLLOWS if root in roots and one.cause in FOLLOWS[root]), "")


# --- Of a whole run ------------------------------------------------------------------------------


def raised(kind: str, message: str) -> Finding:
    """Return the finding of a training that ends in an exception."""
    cause, title, todo = RAISED.get(kind, RAISED[""])
    return Finding(cause, title, f"{kind}: {message}", "training that goes on", todo, 3)


RAISED = {
    "IllegalActionError": (
        "illegal-action",
        "The team plays an action that the mask forbids, and training ends.",
        "follow the mask from the observation to the draw: what is sampled has probability 0 "
        "where it is 0 (corral.adapters.masked_distribution); corral check looks at the "
        "environment's own masks",
    ),
    "NonFiniteError": (
        "not-finite",
        "A number is not finite any more, and training ends.",
        "look at rewards and observations first (corral check), then at logarithms, divisions and "
        "square roots of a loss of your own, then at the learning rate",
    ),
    "AlgorithmError": (
        "algorithm-refused",
        "A function of the algorithm returns what cannot be learned from.",
        "put that function right: the message says which, and what it is to return",
    ),
    "ModelError": (
        "model-refused",
        "The network of one's own is refused.",
        "put its make or forward right: the message says what is wrong with it",
    ),
    "": (
        "training-raises",
        "Training ends in an exception.",
        "put that right first: corral train ... --traceback shows where it comes from",
    ),
}
"""Kind of an exception -> cause, title, what to do."""

ABLE = 0.25
"""Share of decisions by which a network that can play as a team beats a constant action."""


def cannot_imitate(found: Imitation) -> Finding | None:
    """Return what is wrong where a network does no better than a constant action, and corral's
    default network does; where neither does, time may have been too short."""
    able = found.default is not None and found.default >= found.constant + ABLE
    if not (found.blind and able):
        return None
    return Finding(
        "network-cannot-imitate",
        "The network cannot play as a reference team does, even when it is shown how.",
        f"it learned to decide as {found.teacher} in {found.share:.0%} of decisions, and one "
        f"action alone agrees in {found.constant:.0%}; corral's default network, in less time, "
        f"{found.default:.0%}",
        "a network that can play well can be taught to",
        "look at what reaches the network: inputs it drops, layers too small, a learning rate "
        "that kills units (ReLU); leave --model out to compare",
        2,
    )
