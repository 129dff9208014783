"""Findings about a whole run, and the order of all findings by cause."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.imitation import Imitation

__all__ = ["ABLE", "FOLLOWS", "RAISED", "by_cause", "cannot_imitate", "raised"]

STILL = ("policy-unchanged", "play-unchanged", "entropy-flat", "returns-flat", "loss-cut-off")
"""Consequences of an actor without a gradient."""

BADLY_VALUED = ("critic-blind", "critic-biased", "critic-misleads")

NO_NUMBERS = ("not-finite", "diverged", "training-raises", "training-stops")
"""Consequences of numbers that are not finite."""

ANOTHER = ("probability-of-another", "ratio-not-one")
"""Consequences of stored data that differ from the played data."""

FOLLOWS: dict[str, tuple[str, ...]] = {
    "mask-ignored-in-play": ("illegal-action", "training-raises", "training-stops"),
    "not-finite": (*NO_NUMBERS[2:], *STILL),
    "observation-not-finite": NO_NUMBERS,
    "reward-not-finite": NO_NUMBERS,
    "mask-lost-in-rollout": ("mask-lost-in-ratio", "ratio-not-one", "mask-ignored-in-play"),
    "mask-lost-in-ratio": ("ratio-not-one",),
    "mask-lost-in-greedy": ("play-differs",),
    "mask-lost-after-reload": ("mask-lost-in-greedy", "play-differs"),
    "observation-changed": ANOTHER,
    "observation-late": ANOTHER,
    "observation-of-another": ANOTHER,
    "actions-permuted": ANOTHER,
    "probability-of-another": ("ratio-not-one",),
    "learning-rate-zero": ("weights-fixed", *STILL, *BADLY_VALUED),
    "weights-fixed": (*STILL, *BADLY_VALUED),
    "gradient-clipped-away": ("weights-fixed", *STILL),
    "decisions-left-out": ("weights-fixed", *STILL),
    "zero-advantages": (
        *("policy-loss-cut", "advantage-elsewhere", "advantages-tiny", *STILL),
        "advantages-unrelated-to-truth",
    ),
    "policy-loss-cut": ("no-gradient", *STILL),
    "advantage-unsigned": (
        *("advantage-elsewhere", "advantage-sign", "advantage-shuffled"),
        *("advantages-unrelated-to-truth", "returns-flat"),
    ),
    "softmax-twice": STILL,
    "advantage-sign": (
        *("advantages-unrelated-to-truth", "clip-reversed", "returns-fell", "returns-flat"),
    ),
    "play-greedy": ("log-probs-wrong",),
    "log-probs-wrong": ("ratio-not-one",),
    "advantage-shuffled": ("advantages-unrelated-to-truth", "returns-flat"),
    "advantage-elsewhere": (
        *("limit-taken-for-end", "end-ignored", "myopic", "value-clipped"),
        *("advantages-unrelated-to-truth", "returns-flat"),
    ),
    "reward-of-another": ("advantages-unrelated-to-truth",),
    "same-rewards": (*BADLY_VALUED, "returns-flat"),
    "reward-changed": ("advantages-unrelated-to-truth",),
    "reward-tiny": ("advantages-tiny", *STILL),
    "reward-huge": ("value-clipped", *STILL),
    "observation-unscaled": ("updates-too-large", "policy-sure"),
    "updates-too-large": ("dead-layer", "layer-saturated"),
    "dead-layer": ("no-gradient", "observation-ignored", "model-refused", *STILL),
    "no-gradient": ("observation-ignored", "model-refused"),
    "critic-untaught": ("no-gradient", *BADLY_VALUED),
    "critic-sign": BADLY_VALUED,
    "value-clipped": ("critic-untaught", *BADLY_VALUED),
    "values-clamped": BADLY_VALUED,
    "entropy-too-large": STILL,
    "entropy-sign": STILL,
    "targets-changed": BADLY_VALUED,
    "weights-put-back": (*STILL, *BADLY_VALUED),
}
"""A cause -> its certain consequences for the same policy."""


def by_cause(
    findings: Iterable[Finding], rank: Mapping[str, int] | None = None
) -> tuple[Finding, ...]:
    """Sort findings by certainty, then by distance from the root cause.

    The same cause in several policies becomes one finding that names them. A certain consequence of
    another finding gets that cause as ``follows`` and comes last. ``rank`` maps a cause to its
    distance from the root; causes without a rank come after the ranked ones and keep their order.
    """
    merged: dict[str, list[Finding]] = {}
    for finding in findings:
        same = merged.setdefault(finding.cause, [])
        if all(
            finding.policy != other.policy or finding.certainty > other.certainty for other in same
        ):
            same.append(finding)
    once = []
    for same in merged.values():
        first = max(same, key=lambda finding: finding.certainty)
        policies = ", ".join(dict.fromkeys(finding.policy for finding in same if finding.policy))
        once.append(dataclasses.replace(first, policy=policies))
    near = rank or {}
    once.sort(key=lambda finding: (-finding.certainty, near.get(finding.cause, math.inf)))  # stable
    marked = [dataclasses.replace(finding, follows=_root_of(finding, once)) for finding in once]
    return tuple(sorted(marked, key=lambda finding: bool(finding.follows)))


def _root_of(finding: Finding, findings: Sequence[Finding]) -> str:
    """Return the first cause in the chain that leads to ``one``; "" if ``one`` is a root cause."""
    root, visited = "", {finding.cause}
    while True:
        causes = [
            item
            for item in findings
            if item.certainty >= 2
            and (root or finding.cause) in FOLLOWS.get(item.cause, ())
            and item.cause not in visited
            and _same_policy(item, finding)
        ]
        if not causes:
            return root
        root = causes[0].cause
        visited.add(root)


def _same_policy(cause: Finding, effect: Finding) -> bool:
    """Return True if the cause affects every policy of the effect."""
    if not cause.policy or not effect.policy:
        return True
    return set(effect.policy.split(", ")) <= set(cause.policy.split(", "))


# --- Findings about a whole run ------------------------------------------------------------------


def raised(kind: str, message: str) -> Finding:
    """Return the finding for a training run that ends in an exception."""
    cause, title, todo = RAISED.get(kind, RAISED[""])
    return Finding(cause, title, f"{kind}: {message}", "training that continues", todo, 3)


RAISED = {
    "IllegalActionError": (
        "illegal-action",
        "The policy plays an action that the mask forbids, and training stops.",
        "follow the mask from the observation to the sampled action: illegal actions must have "
        "probability 0 (corral.adapters.masked_distribution); corral check tests the "
        "environment's own masks",
    ),
    "NonFiniteError": (
        "not-finite",
        "A number is not finite, and training stops.",
        "check rewards and observations first (corral check), then logarithms, divisions and "
        "square roots in a custom loss, then the learning rate",
    ),
    "AlgorithmError": (
        "algorithm-refused",
        "A function of the algorithm returns an invalid value.",
        "correct that function: the message names it and the required return value",
    ),
    "ModelError": (
        "model-refused",
        "The custom network is invalid.",
        "correct its make or forward: the message states the fault",
    ),
    "": (
        "training-raises",
        "Training stops with an exception.",
        "fix this exception first: corral train ... --traceback shows its origin",
    ),
}
"""Exception class -> cause, title and remedy."""

ABLE = 0.25
"""Required lead, as a share of decisions, of a trained network over one without observations."""


def cannot_imitate(imitation: Imitation) -> Finding | None:
    """Return a finding if the network imitates no better than without observations.

    It needs corral's default network to succeed; if both fail, the updates may have been too few.
    """
    able = imitation.default is not None and imitation.default >= imitation.unseen + ABLE
    if not (imitation.blind and able):
        return None
    return Finding(
        "network-cannot-imitate",
        "The network cannot imitate a reference team, even with supervised training.",
        f"it learned {imitation.share:.0%} of the decisions of {imitation.teacher}; the mask alone "
        "gives "
        f"{imitation.unseen:.0%}; corral's default network, in half the updates, learned "
        f"{imitation.default:.0%}",
        "a network that can imitate a good team",
        "check the network's input: dropped inputs, layers that are too small, a learning rate "
        "that disables units (ReLU); compare by leaving --model out",
        2,
    )
