"""Findings about a whole run, and all findings in the order of their causes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.imitation import Imitation

__all__ = ["ABLE", "FOLLOWS", "RAISED", "by_cause", "cannot_imitate", "raised"]

STILL = ("policy-unchanged", "policy-still", "entropy-flat", "returns-flat", "loss-cut-off")
"""What follows where the actor is told nothing."""

BADLY_VALUED = ("critic-blind", "critic-biased", "critic-weak", "critic-misleads")

NO_NUMBERS = ("not-finite", "diverged", "training-raises", "training-stops")
"""What follows where the environment gives no numbers."""

ANOTHER = ("probability-of-another", "ratio-not-one")
"""What follows where not what was played is stored."""

LEAPS = ("steps-too-large", "updates-too-large", "updates-large")
"""What follows where updates have no bound."""

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
    "advantage-sign": ("advantages-unrelated-to-truth", "returns-fell", "returns-flat"),
    "advantage-shuffled": ("advantages-unrelated-to-truth", "returns-flat"),
    "advantage-elsewhere": (
        *("limit-taken-for-end", "end-ignored", "myopic", "value-clipped"),
        *("advantages-unrelated-to-truth", "returns-flat"),
    ),
    "reward-of-another": ("advantages-unrelated-to-truth",),
    "reward-changed": ("advantages-unrelated-to-truth",),
    "reward-tiny": ("advantages-tiny", *STILL),
    "reward-huge": ("value-clipped",),
    "observation-unscaled": LEAPS,
    "steps-too-large": LEAPS[1:],
    "dead-layer": ("no-gradient", "observation-ignored", "model-refused", *STILL),
    "no-gradient": ("observation-ignored", "model-refused"),
    "critic-untaught": ("no-gradient", *BADLY_VALUED),
    "critic-sign": BADLY_VALUED,
    "value-clipped": BADLY_VALUED,
    "values-clamped": BADLY_VALUED,
    "entropy-too-large": STILL,
    "entropy-sign": STILL,
    "targets-changed": BADLY_VALUED,
    "weights-put-back": (*STILL, *BADLY_VALUED),
}
"""A cause -> what surely follows from it, in the same policy."""


def by_cause(
    found: Iterable[Finding], rank: Mapping[str, int] | None = None
) -> tuple[Finding, ...]:
    """Return findings, the surest first, and of equally sure ones those nearest to the root.

    The same cause in several policies is one finding that names them; what surely follows from
    another finding has its cause as ``follows``, and comes last. ``rank`` says how near to the
    root a cause is, the less the nearer; without it, and of others, their order does.
    """
    merged: dict[str, list[Finding]] = {}
    for one in found:
        same = merged.setdefault(one.cause, [])
        if all(one.policy != other.policy or one.certainty > other.certainty for other in same):
            same.append(one)
    once = []
    for same in merged.values():
        first = max(same, key=lambda one: one.certainty)
        policies = ", ".join(dict.fromkeys(one.policy for one in same if one.policy))
        once.append(dataclasses.replace(first, policy=policies))
    near = rank or {}
    once.sort(key=lambda one: (-one.certainty, near.get(one.cause, len(near))))  # stable
    marked = [dataclasses.replace(one, follows=_root_of(one, once)) for one in once]
    return tuple(sorted(marked, key=lambda one: bool(one.follows)))


def _root_of(one: Finding, found: Sequence[Finding]) -> str:
    """Return the first cause of all that ``one`` follows from; "" where it is one itself."""
    root, known = "", {one.cause}
    while True:
        causes = [
            each
            for each in found
            if each.certainty >= 2
            and (root or one.cause) in FOLLOWS.get(each.cause, ())
            and each.cause not in known
            and _same_policy(each, one)
        ]
        if not causes:
            return root
        root = causes[0].cause
        known.add(root)


def _same_policy(cause: Finding, effect: Finding) -> bool:
    """Return whether the cause is found in every policy of the effect."""
    if not cause.policy or not effect.policy:
        return True
    return set(effect.policy.split(", ")) <= set(cause.policy.split(", "))


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
"""Share of decisions by which a network that can play as a team beats one that sees nothing."""


def cannot_imitate(found: Imitation) -> Finding | None:
    """Return what is wrong where a network does no better than without an observation, and corral's
    default network does; where neither does, time may have been too short."""
    able = found.default is not None and found.default >= found.unseen + ABLE
    if not (found.blind and able):
        return None
    return Finding(
        "network-cannot-imitate",
        "The network cannot play as a reference team does, even when it is shown how.",
        f"it learned {found.share:.0%} of the decisions of {found.teacher}; the mask alone tells "
        f"{found.unseen:.0%}; corral's default network, in less time, learned {found.default:.0%}",
        "a network that can play well can be taught to",
        "look at what reaches the network: inputs it drops, layers too small, a learning rate "
        "that kills units (ReLU); leave --model out to compare",
        2,
    )
