"""Rules about entropy, masks and logits in the loss."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.texts import finding_of
from corral.lab.listening.heard import Heard, Minibatch
from corral.lab.listening.minibatches import (
    ONE,
    ROWS,
    Verdict,
    chosen,
    close,
    flat,
    largest_entropy,
    log_softmax,
    vary,
)
from corral.lab.listening.rules_policy import policy_in_loss
from corral.lab.listening.steps import place_of

__all__ = [
    "entropy_in_loss",
    "masks_in_loss",
    "other_terms",
    "played_illegally",
    "softmax_of_probabilities",
]


def entropy_in_loss(heard: Heard) -> Finding | None:
    """Report an entropy weight that is negative or larger than that of the advantages."""
    weights, shares, kept = [], [], []
    for minibatch in heard.minibatches:
        gradients = minibatch.gradients
        if gradients is None or gradients.entropy is None or gradients.log_probs is None:
            continue
        pull = flat(gradients.log_probs)
        if pull is None or len(pull) < ROWS or not vary(pull):
            continue
        weights.append(-float(np.sum(gradients.entropy)))
        shares.append(weights[-1] / float(np.std(pull) * len(pull)))
        if (share := _share_of_entropy(minibatch)) is not None:
            kept.append(share)
    if not shares:
        return None
    share = float(np.median(shares))
    measured = (
        f"weight of the entropy {np.median(weights):.3g}, {abs(share):.3g} times that of typical "
        "advantages"
    )
    if share < -1e-3:
        return Finding(
            "entropy-sign",
            "The loss penalizes entropy: the policy becomes deterministic too early.",
            measured,
            "0 or more",
            "the loss is minimized: it must contain -ent_coef * entropy",
            2,
            heard.policy,
        )
    if share <= 1.0 or (kept and kept[-1] < 0.9):
        return None
    if policy_in_loss(heard) is not None:
        return None  # the gradients are not those of the advantages
    if kept:
        measured += f"; entropy is {kept[-1]:.0%} of log(legal actions)"
    return Finding(
        "entropy-too-large",
        "The entropy bonus outweighs the advantages: the policy stays random.",
        measured,
        "an entropy weight that is small compared with that of the advantages",
        "lower ent_coef, to 0.01 or less at first; or normalize advantages",
        2 if kept else 1,
        heard.policy,
    )


OUTWEIGHS = 3.0
"""Gradient of other terms at the logits divided by the policy's, from which on it is a finding."""


def other_terms(heard: Heard) -> Finding | None:
    """Report terms of the loss that outweigh the policy's and the entropy's at the logits."""
    times = [item for batch in heard.minibatches if (item := _of_other_terms(batch)) is not None]
    if not times or not times[0] > OUTWEIGHS:  # later, they may have reached their minimum
        return None
    return Finding(
        "loss-term-dominates",
        "Another term of the loss outweighs the advantages at the outputs of the policy.",
        f"its gradient is {times[0]:.3g} times that of the policy's log-probabilities in the first "
        "minibatch",
        "a smaller gradient than that of the advantages",
        "average each term over the minibatch, as the policy's loss does, and lower its weight",
        2 if times[0] > 2 * OUTWEIGHS else 1,
        heard.policy,
    )


def _of_other_terms(minibatch: Minibatch) -> float | None:
    """Return the size of what log-probabilities and entropy leave of the gradient at the logits."""
    parts, logits, new = minibatch.gradients, minibatch.logits, flat(minibatch.new_log_probs)
    if parts is None or not minibatch.first or logits is None or logits.ndim != 2 or new is None:
        return None
    pull, bonus, total = (flat(item) for item in (parts.log_probs, parts.entropy, parts.logits))
    choice = chosen(minibatch, logits.shape[1])
    if pull is None or bonus is None or total is None or choice is None or not pull.any():
        return None
    table, rows = log_softmax(logits), np.arange(len(logits))
    if len(pull) != len(rows) or not close(new, table[rows, choice]):
        return None
    if close(new, logits[rows, choice]):
        return None  # of normalized logits, a log-probability has another gradient
    chances = np.exp(table)
    table = np.where(chances > 0, table, 0.0)
    entropy = -np.sum(chances * table, axis=1, keepdims=True)
    policy = pull[:, None] * (np.eye(logits.shape[1])[choice] - chances)
    share = bonus if len(bonus) == len(rows) else np.full(len(rows), bonus.sum() / len(rows))
    rest = total.reshape(logits.shape) - policy
    # The entropy may come from other logits, such as those before the mask.
    both = (rest, rest + share[:, None] * chances * (table + entropy))
    size, least = float(np.linalg.norm(policy)), min(float(np.linalg.norm(item)) for item in both)
    return least / size if size > 0 and np.isfinite(least) else None


def _share_of_entropy(minibatch: Minibatch) -> float | None:
    """Return the entropy as a share of its maximum; None if the number of actions is unknown."""
    largest = largest_entropy(minibatch)
    if largest is None or minibatch.entropy is None:
        return None
    return float(np.mean(minibatch.entropy)) / largest


def masks_in_loss(heard: Heard) -> Finding | None:
    """Compare the actions and the entropy in the loss with those of the legal actions."""
    verdicts = [item for minibatch in heard.minibatches if (item := _mask_verdict(minibatch))]
    if not verdicts:
        return None
    first = max(verdicts, key=lambda verdict: verdict.certainty)
    return finding_of(first.cause, first.measured, first.certainty, heard.policy)


def _mask_verdict(minibatch: Minibatch) -> Verdict | None:
    mask, entropy = minibatch.mask, minibatch.entropy
    if mask is None or mask.ndim != 2 or mask.all() or not mask.any(axis=1).all():
        return None
    choice = chosen(minibatch, mask.shape[1])
    if choice is None:
        return None  # several choices: the mask has the actions of all of them
    rows, new = np.arange(len(mask)), flat(minibatch.new_log_probs)
    logits = minibatch.logits
    masked: Array | None = None
    if logits is not None and logits.shape == mask.shape and new is not None:
        whole = log_softmax(logits)
        masked = log_softmax(np.where(mask, logits, -np.inf))
        if not mask[rows, choice].all():
            return None  # another rule reports illegal actions
        off = np.abs(new - masked[rows, choice])
        if close(new, whole[rows, choice]) and (off > 1e-3).mean() > 0.05:
            lost = float(np.exp(whole)[~mask].sum() / len(mask))
            measured = (
                f"illegal actions have {lost:.1%} of the probability in the loss; the mask forbids "
                f"{1 - mask.mean():.0%} of the actions"
            )
            return Verdict("mask-lost-in-ratio", measured, 3)
        if not close(new, masked[rows, choice]):
            masked = None  # the logits are of another distribution
    if entropy is None:
        return None
    if float(np.mean(entropy)) > np.log(mask.shape[1]) + ONE:
        return None  # a sum
    legal, limit = float(np.mean(np.log(mask.sum(axis=1)))), "at most"
    if masked is not None:
        chances = np.exp(masked)
        legal = float(np.mean(-np.sum(chances * np.where(mask, masked, 0.0), axis=1)))
        limit = ""
    if float(np.mean(entropy)) > legal + 1e-3 * max(1.0, legal):
        measured = (
            f"entropy in the loss {np.mean(entropy):.4g}, of the legal actions {limit} {legal:.4g}"
        ).replace("  ", " ")
        return Verdict("mask-lost-in-entropy", measured, 3)
    return None


def played_illegally(heard: Heard) -> Finding | None:
    """Report actions in minibatches that their mask forbids."""
    illegal, played = 0, 0
    for minibatch in heard.minibatches:
        mask = minibatch.mask
        choice = None if mask is None or mask.ndim != 2 else chosen(minibatch, mask.shape[1])
        if mask is None or choice is None:
            continue
        rows = mask.any(axis=1)  # a row without a legal action is padding
        illegal += int((~mask[np.arange(len(mask)), choice])[rows].sum())
        played += int(rows.sum())
    if not illegal:
        return None
    return Finding(
        "mask-ignored-in-play",
        "The policy plays actions that the mask forbids.",
        f"{illegal} of {played} decisions in minibatches are illegal",
        "no illegal action",
        "sample from the masked distribution: logits of illegal actions are -inf before the "
        "softmax (corral.adapters.masked_distribution); store the mask of the same step",
        3,
        heard.policy,
    )


def softmax_of_probabilities(heard: Heard) -> Finding | None:
    """Report probabilities that are used as logits."""
    for minibatch in heard.minibatches:
        new = flat(minibatch.new_log_probs)
        for name, outputs in _candidates(heard, minibatch):
            rows = len(outputs)
            choice = chosen(minibatch, outputs.shape[1])
            if choice is None or new is None or len(new) < rows or rows < ROWS:
                continue
            if len(np.unique(outputs.round(6), axis=0)) < 2 or outputs.max() > 1.0 + 1e-6:
                continue
            if not any(
                close(new[:rows], log_softmax(logits)[np.arange(rows), choice[:rows]])
                for logits in (outputs, _masked(outputs, minibatch.mask))
            ):
                continue
            if name:
                heard.places["softmax-twice"] = place_of(heard, name)
            return Finding(
                "softmax-twice",
                "The softmax is taken twice: probabilities are used as logits.",
                f"in all {rows} decisions of a minibatch, the policy is the softmax of "
                f"probabilities{f', the outputs of {name}' if name else ''}",
                "a softmax of the network's outputs; a softmax of probabilities makes no action "
                "more than 2.72 times as likely as another",
                "pass logits, not probabilities, to the distribution",
                3,
                heard.policy,
            )
    return None


def _masked(logits: Array, mask: Array | None) -> Array:
    """Return logits that are -inf if the mask [R or more, A] forbids the action."""
    if mask is None or mask.shape[1:] != logits.shape[1:] or len(mask) < len(logits):
        return logits
    return np.where(mask[: len(logits)], logits, -np.inf)


def _candidates(heard: Heard, minibatch: Minibatch) -> Iterator[tuple[str, Array]]:
    """Yield outputs that are probabilities: the given logits, and those of layers."""
    logits = minibatch.logits
    if logits is not None and logits.ndim == 2 and logits.shape[1] > 1:
        numbers = logits.astype(np.float64)
        if (numbers >= 0).all() and np.abs(numbers.sum(axis=1) - 1).max() < 1e-4:
            yield "", numbers
    for name, layer in heard.layers.items():
        if layer.probabilities is not None:
            yield name, layer.probabilities.astype(np.float64)
