"""Compare the numbers of minibatches with the gradients of the user's loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Set
from typing import NamedTuple

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.steps import some
from corral.lab.doctor.findings.texts import finding_of
from corral.lab.listening.heard import Heard, Minibatch
from corral.lab.listening.steps import place_of

__all__ = [
    "DIFFERS",
    "ONE",
    "POLICY",
    "ROWS",
    "Verdict",
    "chosen",
    "close",
    "correlation",
    "flat",
    "largest_entropy",
    "log_softmax",
    "names_of",
    "ratio_of",
    "reach_of",
    "unreached",
    "vary",
    "verdict_of",
]

ROWS = 8
"""Rows of a minibatch from which its gradients are compared with its numbers."""

ONE = 1e-3
"""Largest difference of a ratio from 1 that counts as rounding."""

DIFFERS = 0.02
"""Difference of a ratio from 1 that half precision does not explain."""


class Verdict(NamedTuple):
    """A cause in one minibatch."""

    cause: str
    measured: str
    certainty: int


def flat(values: Array | None) -> Array | None:
    """Return numbers as float64 [R]; None if there are none."""
    return None if values is None else np.asarray(values, np.float64).reshape(-1)


def ratio_of(minibatch: Minibatch) -> Array | None:
    """Return the probabilities in the loss divided by those in play: [R]."""
    new, old = flat(minibatch.new_log_probs), flat(minibatch.log_probs)
    if new is None or old is None or len(new) != len(old) or not len(new):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.exp(np.clip(new - old, -50, 50)))


def verdict_of(
    heard: Heard, field: str, judge: Callable[[Minibatch, Array], Verdict | None]
) -> Finding | None:
    """Return the usual verdict about the first minibatches of updates, if half have one.

    An optimizer that maximizes turns the meaning of all gradients around.
    """
    verdicts: list[Verdict] = []
    updates: set[int] = set()
    for minibatch in heard.minibatches:
        if minibatch.update in updates:  # clipped decisions and values may have no gradient
            continue
        gradient = flat(getattr(minibatch.gradients, field, None))
        if gradient is None:
            continue
        updates.add(minibatch.update)
        uphill = any(step.uphill for step in heard.steps[minibatch.step : minibatch.step + 1])
        verdict = judge(minibatch, -gradient if uphill else gradient)
        if verdict is not None and uphill:
            verdict = verdict._replace(measured=f"{verdict.measured}; the optimizer maximizes")
        if verdict is not None:
            verdicts.append(verdict)
    for cause, count in Counter(verdict.cause for verdict in verdicts).most_common(1):
        same = [verdict for verdict in verdicts if verdict.cause == cause]
        surest = max(same, key=lambda verdict: verdict.certainty)
        if 2 * count >= len(updates):
            return finding_of(cause, surest.measured, surest.certainty, heard.policy)
    return None


def unreached(heard: Heard, field: str) -> Finding | None:
    """Report an output that backward() never reaches, and that the given tensors depend on."""
    actor = field == "log_probs"
    cause = "policy-loss-cut" if actor else "critic-untaught"
    name = "new_log_probs" if actor else "values"
    heard_of = [item for item in heard.minibatches if item.gradients and item.gradients.done]
    gradients = [item.gradients for item in heard_of if item.gradients]
    if any(getattr(item, field) is not None for item in gradients):
        return None
    watched = [item for item in gradients if field in item.watched]
    sizes: dict[str, float] = {}
    for step in heard.steps:
        for parameter, size in step.gradients.items():
            sizes[parameter] = max(size, sizes.get(parameter, 0.0))
    if not watched:
        idle = [parameter for parameter, size in sizes.items() if size == 0]
        stored = not actor and not heard.framework  # may be the values of the rollout
        cut = any(field in item.cut for item in gradients) and not stored
        if idle and cut and len(heard.steps) > 2:
            measured = f"{name} has no graph, and no gradient reaches {some(idle)}"
            return finding_of(cause, measured, 2, heard.policy)
        return None
    rest = ("values",) if actor else POLICY
    exclusive = names_of(
        heard,
        frozenset().union(*(item.reach.get(field, frozenset()) for item in watched))
        - frozenset().union(
            *(item.reach.get(key, frozenset()) for item in watched for key in rest)
        ),
    )
    idle = [parameter for parameter in exclusive if not sizes.get(parameter, 0.0) > 0]
    measured = f"backward() gives {name} no gradient in {len(watched)} minibatches"
    if exclusive and len(idle) == len(exclusive) and heard.steps:
        heard.places[cause] = place_of(heard, exclusive[-1])
        measured += f", and none to {some(exclusive)}"
        return finding_of(cause, measured, 3, heard.policy)
    bonus = actor and any(item.entropy is not None or item.logits is not None for item in gradients)
    if exclusive and not bonus:
        return None  # another tensor of the same network is in the loss
    return finding_of(cause, measured, 3 if heard.framework else 2, heard.policy)


def reach_of(heard: Heard, update: int, outputs: tuple[str, ...]) -> set[int]:
    """Return the ids of the parameters that outputs of an update depend on."""
    return {
        parameter
        for item in heard.minibatches
        if item.update == update and item.gradients
        for name in outputs
        for parameter in item.gradients.reach.get(name, ())
    }


def names_of(heard: Heard, ids: Set[int]) -> list[str]:
    if heard.network is None:
        return []
    return [name for name, p in heard.network.named_parameters() if id(p) in ids]


def chosen(minibatch: Minibatch, actions: int) -> Array | None:
    """Return the actions [R] if each is one choice from ``actions``, else None."""
    if minibatch.actions is None or minibatch.new_log_probs is None:
        return None
    chosen = np.asarray(minibatch.actions).reshape(-1)
    if len(chosen) != np.size(minibatch.new_log_probs) or not len(chosen):
        return None
    if (chosen != chosen.astype(np.int64)).any() or chosen.min() < 0 or chosen.max() >= actions:
        return None
    return chosen.astype(np.int64)


def largest_entropy(minibatch: Minibatch) -> float | None:
    """Return the mean entropy of uniform legal play; None without a single choice of actions."""
    actions = minibatch.mask if minibatch.mask is not None else minibatch.logits
    if actions is None or actions.ndim != 2:
        return None
    if minibatch.actions is not None and minibatch.actions.size != len(actions):
        return None  # several choices
    legal = actions.shape[1] if minibatch.mask is None else minibatch.mask.sum(axis=1)
    return float(np.mean(np.log(np.maximum(legal, 1)))) or None


def log_softmax(logits: Array) -> Array:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def close(values: Array, expected: Array) -> bool:
    return len(values) == len(expected) and bool(np.abs(values - expected).max() < 1e-4)


def vary(values: Array) -> bool:
    return bool(np.ptp(values) > 1e-6 * np.abs(values).max() and np.ptp(values) > 1e-12)


def correlation(one: Array, other: Array) -> float:
    if not vary(one) or not vary(other):
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


POLICY = ("log_probs", "entropy", "logits")
"""Outputs of the actor."""
