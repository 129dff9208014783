"""Rules about the loss: its gradients for log-probabilities, values and entropy, and its masks.

They compare numbers of the user's own minibatches with the gradients that backward() computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.steps import some
from corral.lab.doctor.findings.texts import finding_of
from corral.lab.listening.heard import Heard, Minibatch
from corral.lab.listening.steps import place_of

__all__ = [
    "clip_range",
    "entropy_in_loss",
    "first_ratio",
    "flat",
    "masks_in_loss",
    "played_illegally",
    "policy_in_loss",
    "ratio_of",
    "recomputed",
    "reversed_clip",
    "size_of_updates",
    "softmax_of_probabilities",
    "values_in_loss",
]

ROWS = 8
"""Rows of a minibatch from which its gradients are compared with its numbers."""

ONE = 1e-3
"""Largest difference of a ratio from 1 that counts as rounding."""

DIFFERS = 0.02
"""Difference of a ratio from 1 that half precision does not explain."""

FAR = 2.0
"""KL divergence, in nats, of a minibatch within an update, above which the update is too large."""

POLICY = ("log_probs", "entropy", "logits")
"""Outputs of the actor."""


class Verdict(NamedTuple):
    """A cause in one minibatch."""

    cause: str
    measured: str
    certainty: int


# --- The actor -----------------------------------------------------------------------------------


def policy_in_loss(heard: Heard) -> Finding | None:
    """Compare the gradient of the loss for each log-probability with its advantage."""
    return _most(heard, "log_probs", _policy_verdict) or _unreached(heard, "log_probs")


def _policy_verdict(minibatch: Minibatch, gradient: Array, *, first: bool) -> Verdict | None:
    advantage = flat(minibatch.advantages)
    ratio = ratio_of(minibatch)
    at_one = ratio is None or bool(np.all(np.abs(ratio - 1) < ONE))
    if advantage is None or not (first or at_one):
        return None
    if len(gradient) != len(advantage) or len(gradient) < ROWS or not _vary(advantage):
        return None
    if not np.isfinite(gradient).all():
        return None
    if not gradient.any():
        measured = (
            f"the loss has a gradient of 0 for all {len(gradient)} log-probabilities, while their "
            f"advantages are {_range(advantage)}"
        )
        return Verdict("policy-loss-cut", measured, 3)
    used = gradient != 0
    if ratio is not None and not at_one:  # another rule reports the ratio
        gradient = gradient / np.maximum(ratio, 1e-6)
    return _left_out(minibatch, gradient, advantage, at_one=at_one) or _direction(
        -gradient[used], advantage[used], len(gradient), at_one=at_one
    )


def _left_out(
    minibatch: Minibatch, gradient: Array, advantage: Array, *, at_one: bool
) -> Verdict | None:
    """Return the verdict about rows without a gradient, if they are no padding."""
    padding = advantage == 0
    if (log_probs := flat(minibatch.log_probs)) is not None and len(log_probs) == len(padding):
        padding &= log_probs == 0
    left = (gradient == 0) & ~padding
    share = float(left.sum() / max(1, (~padding).sum()))
    if not at_one or share <= 0.1:
        return None
    used = gradient != 0
    measured = f"{share:.0%} of the decisions in a minibatch have no gradient"
    if used.sum() >= ROWS and _correlation(-gradient[used], advantage[used]) < 0.98:
        measured += ", although their ratio is 1; the others differ from their advantages"
        return Verdict("ratio-wrong-in-loss", measured, 2)
    if (advantage[left] < 0).all() and (advantage[used] >= 0).all():
        measured += ": exactly those with negative advantages"
    return Verdict("decisions-left-out", measured, 2 if share > 0.3 else 1)


def _direction(pull: Array, advantage: Array, rows: int, *, at_one: bool) -> Verdict | None:
    """Compare the pull on log-probabilities, the negative gradient, with their advantages."""
    if len(pull) < ROWS or not _vary(advantage):
        return None
    if np.ptp(pull) <= 1e-5 * np.abs(pull).max():
        return _same_for_all(float(pull.mean()) * rows, advantage) if at_one else None
    along = _correlation(pull, advantage)
    if along > 0.98:
        return None
    says = f"correlation of minus the gradient with the advantages: {along:.3f}"
    if along < -0.98:
        return Verdict("advantage-sign", f"{says}, in {rows} decisions", 3)
    negative = float(np.mean(advantage < 0))
    sizes = (advantage, advantage - advantage.mean())
    for size in (np.abs(sizes[0]), np.abs(sizes[1]), sizes[0] ** 2, sizes[1] ** 2):
        if (by_size := _correlation(pull, size)) > 0.999 and along < 0.9:
            measured = f"{says}, with their sizes: {by_size:.3f}; {negative:.0%} are negative"
            return Verdict("advantage-unsigned", measured, 3 if at_one else 2)
    by_rank = _correlation(_ranks(pull), _ranks(advantage))
    agreed = max(float(np.mean(pull * size > 0)) for size in sizes)
    if by_rank > 0.9 or agreed > 0.9:  # weighted or clipped advantages
        return None
    if by_rank < -0.9 or max(float(np.mean(pull * size < 0)) for size in sizes) > 0.95:
        return Verdict("advantage-sign", f"{says}; rank correlation {by_rank:.3f}", 2)
    in_order = max(_correlation(np.sort(item), np.sort(advantage)) for item in (pull, -pull))
    if in_order > 0.9999:
        measured = f"{says}; the same numbers in another order: {in_order:.4f} once both are sorted"
        return Verdict("advantage-shuffled", measured, 3 if at_one else 2)
    if abs(along) < 0.5 and len(pull) >= 4 * ROWS:
        return Verdict("advantage-shuffled", f"{says}, in {rows} decisions", 2)
    return None


def _same_for_all(pull: float, advantage: Array) -> Verdict:
    """Return the verdict about one gradient for all rows; ``pull`` is its sum."""
    mean, spread = float(advantage.mean()), float(advantage.std())
    says = (
        f"all {len(advantage)} log-probabilities have the same gradient, {-pull:.3g} in sum, while "
        f"their advantages are {_range(advantage)}"
    )
    of_mean = abs(pull - mean) < 1e-2 * abs(mean) + 1e-5 * spread
    if of_mean or abs(pull) < 1e-6:  # the mean of normalized advantages is 0
        says += "; that is the mean of the advantages, as if [R, 1] were broadcast with [R]"
        return Verdict("advantage-shuffled", says, 3)
    return Verdict("policy-loss-cut", says, 3 if abs(abs(pull) - 1) < 1e-3 else 2)


def first_ratio(heard: Heard) -> Finding | None:
    """Compare stored log-probabilities with those of the first minibatch, before any step."""
    for minibatch in heard.minibatches:
        ratio = ratio_of(minibatch)
        if ratio is None or not minibatch.first or not np.isfinite(ratio).any():
            continue
        earlier = heard.steps[: minibatch.step]
        if any(step.update == minibatch.update for step in earlier):
            continue
        off = np.abs(ratio - 1)
        share = float(np.mean(off > DIFFERS))
        if not off.max() > ONE:
            continue
        exact = heard.network is not None and minibatch.update == 1 and not earlier
        certainty = (3 if exact else 2) if share > 0.1 else 1
        measured = (
            f"probability ratios differ from 1 by up to {off.max():.3g}, by more than {DIFFERS:g} "
            f"in {share:.0%} of {len(ratio)} decisions, before the first step of update "
            f"{minibatch.update}"
        )
        new, old = flat(minibatch.new_log_probs), flat(minibatch.log_probs)
        if new is None or old is None:
            continue
        if certainty > 1 and _vary(old) and _close(np.sort(new), np.sort(old)):
            measured += "; sorted, both are the same numbers: they are in another order"
            return finding_of("probability-of-another", measured, certainty, heard.policy)
        if _close(np.exp(new), old):
            measured += "; the stored numbers are probabilities, not their logarithms"
        noisy = [
            f"{name} ({layer.kind})"
            for name, layer in heard.layers.items()
            if True in layer.learning and layer.kind.startswith(("Dropout", "BatchNorm"))
        ]
        if noisy:
            measured += f"; in training mode in the loss: {some(noisy)}"
            heard.places["ratio-not-one"] = place_of(heard, noisy[0].partition(" ")[0])
        return Finding(
            "ratio-not-one",
            "Before the first step of an update, the policy differs from the one that played.",
            measured,
            "1 within 0.0001: the same weights, observations, masks and hidden states",
            "apply the stored mask in the loss as in play; compare observations, normalizers, "
            "hidden states, and train() or eval() in play and in the loss",
            certainty,
            heard.policy,
        )
    return None


def recomputed(heard: Heard) -> Finding | None:
    """Report old log-probabilities that follow the policy within an update."""
    still, moved, known = 0, 0.0, True
    for minibatch in heard.minibatches:
        ratio = ratio_of(minibatch)
        if ratio is None or minibatch.first:
            continue
        names = _names(heard, _reach(heard, minibatch.update, ("log_probs", "logits")))
        change = max(
            (
                size
                for step in heard.steps[: minibatch.step]
                if step.update == minibatch.update
                for name, size in step.changes.items()
                if not names or name in names
            ),
            default=0.0,
        )
        if change <= 1e-4:
            continue
        if not np.abs(np.log(ratio)).max() <= 1e-6:
            return None
        still, moved, known = still + 1, max(moved, change), known and bool(names)
    if not still:
        return None
    measured = (
        f"in {still} minibatches after steps that changed weights by up to {moved:.2g}, all ratios "
        "are exactly 1"
    )
    return finding_of(
        "old-log-prob-recomputed", measured, 3 if still > 1 and known else 2, heard.policy
    )


def clip_range(heard: Heard) -> Finding | None:
    """Report a clip range that removes gradients at tiny changes of the policy."""
    tight, seen = [], 0
    for minibatch in heard.minibatches:
        ratio = ratio_of(minibatch)
        gradient = flat(minibatch.gradients.log_probs) if minibatch.gradients else None
        if ratio is None or gradient is None or minibatch.first or len(gradient) != len(ratio):
            continue
        off = np.abs(ratio - 1)
        if not gradient.any() and off.max() < 0.02 and np.median(off) > 1e-6:
            tight.append(1.0)
        elif off.max() > 1e-6:
            left = (gradient == 0) & (off < 0.02) & (off > 1e-6)
            tight.append(float(left.mean()))
        seen += 1
    if seen < 2 or not tight or np.median(tight) < 0.3:
        return None
    measured = (
        f"in minibatches after the first step, {np.median(tight):.0%} of the decisions have no "
        "gradient although their probability changed by less than 2 %"
    )
    return finding_of("clip-too-tight", measured, 2, heard.policy)


def reversed_clip(heard: Heard) -> Finding | None:
    """Report clipping that removes the gradients of decisions that should return to a ratio of 1.

    A clipped decision has moved in the direction of its advantage.
    """
    against, clipped = 0, 0
    for minibatch in heard.minibatches:
        ratio, advantage = ratio_of(minibatch), flat(minibatch.advantages)
        gradient = flat(minibatch.gradients.log_probs) if minibatch.gradients else None
        if minibatch.first or ratio is None or advantage is None or gradient is None:
            continue
        if not len(gradient) == len(ratio) == len(advantage) or not gradient.any():
            continue
        good = np.sign(advantage)
        sure = good == np.sign(advantage - advantage.mean())  # with and without normalization
        left = sure & (gradient == 0) & (np.abs(ratio - 1) > DIFFERS)
        against += int((good * (ratio - 1) < 0)[left].sum())
        clipped += int(left.sum())
    if clipped < 2 * ROWS or against < 0.9 * clipped:
        return None
    return Finding(
        "clip-reversed",
        "Clipping works in reverse: it removes the gradients that it should keep.",
        f"{against} of {clipped} decisions without a gradient have moved against their advantage",
        "no gradient for decisions that have moved with their advantage, beyond the clip range",
        "the loss is minimized: -torch.min(ratio * advantage, clipped_ratio * advantage), or "
        "torch.max of both with a minus sign before each",
        3,
        heard.policy,
    )


def size_of_updates(heard: Heard) -> Finding | None:
    """Report a policy that moves far from the one that played within the first minibatches."""
    worst: tuple[float, Minibatch] | None = None
    for minibatch in heard.minibatches:
        ratio = ratio_of(minibatch)
        if ratio is None or not np.isfinite(ratio).all():
            continue
        if minibatch.first and np.abs(ratio - 1).max() > DIFFERS:
            return None  # the stored log-probabilities are of another policy
        divergence = float(np.mean(ratio - 1 - np.log(np.maximum(ratio, 1e-300))))
        if worst is None or divergence > worst[0]:
            worst = divergence, minibatch
    if worst is None or not worst[0] > FAR:
        return None
    rates = [step.learning_rate for step in heard.steps if step.update == worst[1].update]
    measured = (
        f"KL(policy that played || policy in the loss) is about {worst[0]:.3g} nats in update "
        f"{worst[1].update}" + (f"; learning rate {max(rates):g}" if rates else "")
    )
    return finding_of("updates-too-large", measured, 2, heard.policy)


# --- The critic ----------------------------------------------------------------------------------


def values_in_loss(heard: Heard) -> Finding | None:
    """Compare the gradient of the loss for each value with its target."""
    return _most(heard, "values", _value_verdict) or _unreached(heard, "values")


def _value_verdict(minibatch: Minibatch, gradient: Array, *, first: bool) -> Verdict | None:
    value, target = flat(minibatch.values), flat(minibatch.returns)
    if not first:  # clipped values may have no gradient
        return None
    if value is None or target is None or len(value) < ROWS:
        return None
    if not len(gradient) == len(value) == len(target) or not np.isfinite(gradient).all():
        return None
    gap, spread = value - target, float(target.std())
    off = (np.abs(gap) > 0.05 * spread + 1e-6) & (target != 0)  # targets of 0 may be padding
    if off.sum() < ROWS:
        return None
    none = off & (gradient == 0)
    share = float(none.sum() / off.sum())
    says = f"of {int(off.sum())} values that differ from their targets"
    if share == 1:
        return Verdict("critic-untaught", f"all gradients {says} are 0", 3)
    used = off & (gradient != 0)
    if share > 0.3:
        farther = np.abs(gap[none]).min() >= 0.9 * np.abs(gap[used]).max()
        measured = f"{share:.0%} {says} have no gradient"
        if farther:
            measured += f": those farther than {np.abs(gap[used]).max():.3g} from it"
        return Verdict("value-clipped", measured, 3 if farther else 2)
    if used.sum() < ROWS:
        return None
    right = float(np.mean(gradient[used] * gap[used] > 0))
    measured = f"{1 - right:.0%} of gradients {says} lead away from the target"
    if right >= 0.95:
        return _limited(gradient, value, target, measured)
    if right <= 0.05:
        return Verdict("critic-sign", measured, 3)
    return _other_targets(gradient, value, target, measured, clear=right < 0.8)


def _other_targets(
    gradient: Array, value: Array, target: Array, measured: str, *, clear: bool
) -> Verdict | None:
    """Return the verdict about values that the loss leads to other numbers than their targets."""
    spread = float(target.std())
    fit = _fitted(gradient, value, target)
    if fit is not None and fit[0] == 0:
        measured += f"; they lead to {fit[1]:.3g} for all rows"
        if abs(fit[1] - target.mean()) < 0.05 * spread + 1e-4 * abs(fit[1]):
            measured += ", the mean of the targets, as if [R, 1] were broadcast with [R]"
            return Verdict("targets-shuffled", measured, 3)
        return Verdict("targets-changed", measured, 2)
    if fit is not None:
        return _changed(fit, target, measured)
    scales = [np.polyfit(value, gradient, 1)[0] if _vary(value) else 0.0]
    if abs(value.mean() - target.mean()) > 0.05 * spread:
        scales.append(gradient.mean() / (value.mean() - target.mean()))
    for scale in scales:
        if scale > 0 and spread > 0:
            led_to = np.sort(value - gradient / scale)
            if np.abs(led_to - np.sort(target)).max() < 0.02 * spread:
                measured += "; they lead to the targets of other rows"
                return Verdict("targets-shuffled", measured, 3)
    return Verdict("targets-changed", measured, 2) if clear else None


def _limited(gradient: Array, value: Array, target: Array, measured: str) -> Verdict | None:
    """Return the verdict about values with the right direction and scaled or limited targets."""
    spread = float(target.std())
    fit = _fitted(gradient, value, target)
    if fit is not None:
        near = abs(fit[0] - 1) < 0.05 and abs(fit[1] + (fit[0] - 1) * target.mean()) < 0.1 * spread
        return None if near else _changed(fit, target, measured)
    gap = value - target
    scale = float(np.median(gradient[gap != 0] / gap[gap != 0]))
    if not scale > 0:
        return None
    led_to = value - gradient / scale
    other = np.abs(led_to - target) > 0.02 * spread
    limits = np.unique((led_to[other] / (0.01 * spread)).round())
    if not 0.05 < other.mean() < 0.5 or other.sum() < ROWS or len(limits) > 4:
        return None
    at = f"{led_to[other].min():.3g}" + (
        f" or {led_to[other].max():.3g}" if np.ptp(led_to[other]) > 0.05 * spread else ""
    )
    measured = f"{other.mean():.0%} of the values lead to {at} instead of their targets"
    return Verdict("targets-changed", measured, 2)


def _fitted(gradient: Array, value: Array, target: Array) -> tuple[float, float] | None:
    """Return slope and shift of the targets that a squared loss has; None for another loss."""
    if not _vary(value) or not _vary(target):
        return None
    terms = np.stack([value, target, np.ones_like(value)], axis=1)
    (of_value, of_target, rest), *_ = np.linalg.lstsq(terms, gradient, rcond=None)
    unexplained = float(np.var(gradient - terms @ (of_value, of_target, rest)))
    if not unexplained < 1e-6 * float(gradient.var()) or not of_value > 0:
        return None
    slope = float(-of_target / of_value)
    return (0.0 if abs(slope) < 0.02 else slope), float(-rest / of_value)


def _changed(fit: tuple[float, float], target: Array, measured: str) -> Verdict:
    """Return the verdict about scaled targets, which may be normalized on purpose."""
    slope, shift = fit
    made = slope * target + shift
    normalized = slope > 0 and abs(made.mean()) < 0.5 and 0.3 < made.std() < 3
    measured += f"; they lead to {slope:.3g} x target + {shift:.3g}"
    return Verdict("targets-changed", measured, 1 if normalized else 2)


# --- Entropy and masks ---------------------------------------------------------------------------


def entropy_in_loss(heard: Heard) -> Finding | None:
    """Report an entropy weight that is negative or larger than that of the advantages."""
    weights, shares, kept = [], [], []
    for minibatch in heard.minibatches:
        gradients = minibatch.gradients
        if gradients is None or gradients.entropy is None or gradients.log_probs is None:
            continue
        pull = flat(gradients.log_probs)
        if pull is None or len(pull) < ROWS or not _vary(pull):
            continue
        weights.append(-float(np.sum(gradients.entropy)))
        shares.append(weights[-1] / float(np.std(pull) * len(pull)))
        if (share := _share_of_entropy(minibatch)) is not None:
            kept.append(share)
    if not shares or policy_in_loss(heard) is not None:
        return None  # the gradients are not those of the advantages
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


def _share_of_entropy(minibatch: Minibatch) -> float | None:
    """Return the entropy as a share of its maximum; None if the number of actions is unknown."""
    actions = minibatch.mask if minibatch.mask is not None else minibatch.logits
    if actions is None or actions.ndim != 2 or minibatch.entropy is None:
        return None
    legal = minibatch.mask.sum(axis=1) if minibatch.mask is not None else actions.shape[1]
    most = float(np.mean(np.log(np.maximum(legal, 1))))
    return float(np.mean(minibatch.entropy)) / most if most > 0 else None


def masks_in_loss(heard: Heard) -> Finding | None:
    """Compare the actions and the entropy in the loss with those of the legal actions."""
    found = [item for minibatch in heard.minibatches if (item := _mask_verdict(minibatch))]
    if not found:
        return None
    first = max(found, key=lambda verdict: verdict.certainty)
    return finding_of(first.cause, first.measured, first.certainty, heard.policy)


def _mask_verdict(minibatch: Minibatch) -> Verdict | None:
    mask, entropy = minibatch.mask, minibatch.entropy
    if mask is None or mask.ndim != 2 or mask.all() or not mask.any(axis=1).all():
        return None
    choice = _chosen(minibatch, mask.shape[1])
    if choice is None:
        return None  # several choices: the mask has the actions of all of them
    rows, new = np.arange(len(mask)), flat(minibatch.new_log_probs)
    logits = minibatch.logits
    masked: Array | None = None
    if logits is not None and logits.shape == mask.shape and new is not None:
        whole = _log_softmax(logits)
        masked = _log_softmax(np.where(mask, logits, -np.inf))
        if not mask[rows, choice].all():
            return None  # another rule reports illegal actions
        off = np.abs(new - masked[rows, choice])
        if _close(new, whole[rows, choice]) and (off > 1e-3).mean() > 0.05:
            lost = float(np.exp(whole)[~mask].sum() / len(mask))
            measured = (
                f"illegal actions have {lost:.1%} of the probability in the loss; the mask forbids "
                f"{1 - mask.mean():.0%} of the actions"
            )
            return Verdict("mask-lost-in-ratio", measured, 3)
        if not _close(new, masked[rows, choice]):
            masked = None  # the logits are of another distribution
    if entropy is None:
        return None
    if float(np.mean(entropy)) > np.log(mask.shape[1]) + ONE:
        return None  # a sum
    legal, what = float(np.mean(np.log(mask.sum(axis=1)))), "at most"
    if masked is not None:
        chances = np.exp(masked)
        legal = float(np.mean(-np.sum(chances * np.where(mask, masked, 0.0), axis=1)))
        what = ""
    if float(np.mean(entropy)) > legal + 1e-3 * max(1.0, legal):
        measured = (
            f"entropy in the loss {np.mean(entropy):.4g}, of the legal actions {what} {legal:.4g}"
        ).replace("  ", " ")
        return Verdict("mask-lost-in-entropy", measured, 3)
    return None


def played_illegally(heard: Heard) -> Finding | None:
    """Report actions in minibatches that their mask forbids."""
    illegal, played = 0, 0
    for minibatch in heard.minibatches:
        mask = minibatch.mask
        choice = None if mask is None or mask.ndim != 2 else _chosen(minibatch, mask.shape[1])
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
            choice = _chosen(minibatch, outputs.shape[1])
            if choice is None or new is None or len(new) < rows or rows < ROWS:
                continue
            if len(np.unique(outputs.round(6), axis=0)) < 2 or outputs.max() > 1.0 + 1e-6:
                continue
            if not any(
                _close(new[:rows], _log_softmax(logits)[np.arange(rows), choice[:rows]])
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


# --- What all use --------------------------------------------------------------------------------


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


def _most(heard: Heard, field: str, judge: Callable[..., Verdict | None]) -> Finding | None:
    """Return the most frequent verdict about minibatches, if half of the updates have one.

    An optimizer that maximizes turns the meaning of all gradients around.
    """
    verdicts: list[Verdict] = []
    updates: set[int] = set()
    for minibatch in heard.minibatches:
        gradient = flat(getattr(minibatch.gradients, field, None))
        if gradient is None:
            continue
        uphill = any(step.uphill for step in heard.steps[minibatch.step : minibatch.step + 1])
        first = minibatch.update not in updates
        updates.add(minibatch.update)
        verdict = judge(minibatch, -gradient if uphill else gradient, first=first)
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


def _unreached(heard: Heard, field: str) -> Finding | None:
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
        if idle and len(heard.steps) > 2 and any(field in item.cut for item in gradients):
            measured = f"{name} has no graph, and no gradient reaches {some(idle)}"
            return finding_of(cause, measured, 2, heard.policy)
        return None
    others = ("values",) if actor else POLICY
    own = _names(
        heard,
        frozenset().union(*(item.reach.get(field, frozenset()) for item in watched))
        - frozenset().union(
            *(item.reach.get(key, frozenset()) for item in watched for key in others)
        ),
    )
    idle = [parameter for parameter in own if not sizes.get(parameter, 0.0) > 0]
    measured = f"backward() gives {name} no gradient in {len(watched)} minibatches"
    if own and len(idle) == len(own) and heard.steps:
        heard.places[cause] = place_of(heard, own[-1])
        measured += f", and none to {some(own)}"
        return finding_of(cause, measured, 3, heard.policy)
    bonus = actor and any(item.entropy is not None or item.logits is not None for item in gradients)
    if own and not bonus:
        return None  # another tensor of the same network is in the loss
    return finding_of(cause, measured, 3 if heard.framework else 2, heard.policy)


def _reach(heard: Heard, update: int, outputs: tuple[str, ...]) -> set[int]:
    """Return the ids of the parameters that outputs of an update depend on."""
    return {
        parameter
        for item in heard.minibatches
        if item.update == update and item.gradients
        for name in outputs
        for parameter in item.gradients.reach.get(name, ())
    }


def _names(heard: Heard, ids: set[int]) -> list[str]:
    if heard.network is None:
        return []
    return [name for name, p in heard.network.named_parameters() if id(p) in ids]


def _chosen(minibatch: Minibatch, actions: int) -> Array | None:
    """Return the actions [R] if each is one choice from ``actions``, else None."""
    if minibatch.actions is None or minibatch.new_log_probs is None:
        return None
    chosen = np.asarray(minibatch.actions).reshape(-1)
    if len(chosen) != np.size(minibatch.new_log_probs) or not len(chosen):
        return None
    if (chosen != chosen.astype(np.int64)).any() or chosen.min() < 0 or chosen.max() >= actions:
        return None
    return chosen.astype(np.int64)


def _log_softmax(logits: Array) -> Array:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _close(values: Array, others: Array) -> bool:
    return len(values) == len(others) and bool(np.abs(values - others).max() < 1e-4)


def _vary(values: Array) -> bool:
    return bool(np.ptp(values) > 1e-6 * np.abs(values).max() and np.ptp(values) > 1e-12)


def _correlation(one: Array, other: Array) -> float:
    if not _vary(one) or not _vary(other):
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


def _ranks(values: Array) -> Array:
    return np.unique(values, return_inverse=True)[1].astype(np.float64)


def _range(values: Array) -> str:
    return f"{values.min():.3g} to {values.max():.3g}"
