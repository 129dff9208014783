"""Rules about the policy loss: its use of advantages, and of the policy that played."""

from __future__ import annotations

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.steps import some
from corral.lab.doctor.findings.texts import finding_of
from corral.lab.listening.formula import TEXTS as FORMULA_TEXTS
from corral.lab.listening.heard import Heard, Minibatch
from corral.lab.listening.minibatches import (
    DIFFERS,
    ONE,
    ROWS,
    Verdict,
    close,
    correlation,
    flat,
    names_of,
    ratio_of,
    reach_of,
    unreached,
    vary,
    verdict_of,
)
from corral.lab.listening.steps import place_of

__all__ = [
    "clip_range",
    "equal_advantages",
    "first_ratio",
    "policy_in_loss",
    "recomputed",
    "reversed_clip",
    "size_of_updates",
]

FAR = 2.0
"""KL divergence, in nats, of a minibatch within an update, above which the update is too large."""


def equal_advantages(heard: Heard) -> Finding | None:
    """Report advantages of minibatches that are all equal, although the targets are not.

    If rollouts have advantages, the rule about their formula reports this.
    """
    if any(rollout.advantages is not None for rollout in heard.rollouts):
        return None
    pairs = [(flat(item.advantages), flat(item.returns)) for item in heard.minibatches]
    told = [(a, r) for a, r in pairs if a is not None and r is not None and len(a) >= ROWS]
    if not all(np.isfinite(part).all() for pair in told for part in pair):
        return None  # the rule about NaN reports this
    if len(told) < FEWEST or any(vary(a) or not vary(r) for a, r in told):
        return None
    size = max(abs(float(a.mean())) for a, _ in told)
    spread = min(float(r.std()) for _, r in told)
    measured = (
        f"advantages are {size:.3g} in all rows of {len(told)} minibatches, targets have a "
        f"standard deviation of {spread:.3g} or more"
    )
    title, expected, todo = FORMULA_TEXTS["zero-advantages"]
    if size > 0:
        title = "All advantages are equal: the gradient of the actor is noise."
    return Finding("zero-advantages", title, measured, expected, todo, 3, heard.policy)


FEWEST = 3
"""Minibatches from which equal advantages are reported."""


def policy_in_loss(heard: Heard) -> Finding | None:
    """Compare the gradient of the loss for each log-probability with its advantage."""
    return verdict_of(heard, "log_probs", _policy_verdict) or unreached(heard, "log_probs")


def _policy_verdict(minibatch: Minibatch, gradient: Array) -> Verdict | None:
    advantage = flat(minibatch.advantages)
    ratio = ratio_of(minibatch)
    at_one = ratio is None or bool(np.all(np.abs(ratio - 1) < ONE))
    if advantage is None:
        return None
    if len(gradient) != len(advantage) or len(gradient) < ROWS or not vary(advantage):
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
    return _dropped(minibatch, gradient, advantage, at_one=at_one) or _direction(
        -gradient[used], advantage[used], len(gradient), at_one=at_one
    )


def _dropped(
    minibatch: Minibatch, gradient: Array, advantage: Array, *, at_one: bool
) -> Verdict | None:
    """Return the verdict about rows without a gradient, unless they are padding."""
    padding = advantage == 0
    if (log_probs := flat(minibatch.log_probs)) is not None and len(log_probs) == len(padding):
        padding &= log_probs == 0
    idle = (gradient == 0) & ~padding
    share = float(idle.sum() / max(1, (~padding).sum()))
    if not at_one or share <= 0.1:
        return None
    used = gradient != 0
    measured = f"{share:.0%} of the decisions in a minibatch have no gradient"
    if used.sum() >= ROWS and correlation(-gradient[used], advantage[used]) < 0.98:
        measured += ", although their ratio is 1; the others differ from their advantages"
        return Verdict("ratio-wrong-in-loss", measured, 2)
    if (advantage[idle] < 0).all() and (advantage[used] >= 0).all():
        measured += ": exactly those with negative advantages"
    return Verdict("decisions-left-out", measured, 2 if share > 0.3 else 1)


def _direction(pull: Array, advantage: Array, rows: int, *, at_one: bool) -> Verdict | None:
    """Compare the pull on log-probabilities, the negative gradient, with their advantages."""
    if len(pull) < ROWS or not vary(advantage):
        return None
    if np.ptp(pull) <= 1e-5 * np.abs(pull).max():
        return _same_for_all(float(pull.mean()) * rows, advantage) if at_one else None
    along = correlation(pull, advantage)
    if along > 0.98:
        return None
    says = f"correlation of minus the gradient with the advantages: {along:.3f}"
    if along < -0.98:
        return Verdict("advantage-sign", f"{says}, in {rows} decisions", 3)
    negative = float(np.mean(advantage < 0))
    sizes = (advantage, advantage - advantage.mean())
    for size in (np.abs(sizes[0]), np.abs(sizes[1]), sizes[0] ** 2, sizes[1] ** 2):
        if (by_size := correlation(pull, size)) > 0.999 and along < 0.9:
            measured = f"{says}, with their sizes: {by_size:.3f}; {negative:.0%} are negative"
            return Verdict("advantage-unsigned", measured, 3 if at_one else 2)
    by_rank = correlation(_ranks(pull), _ranks(advantage))
    agreed = max(float(np.mean(pull * size > 0)) for size in sizes)
    if by_rank > 0.9 or agreed > 0.9:  # weighted or clipped advantages
        return None
    if by_rank < -0.9 or max(float(np.mean(pull * size < 0)) for size in sizes) > 0.95:
        return Verdict("advantage-sign", f"{says}; rank correlation {by_rank:.3f}", 2)
    in_order = max(correlation(np.sort(item), np.sort(advantage)) for item in (pull, -pull))
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
    rows = len(advantage)
    of_mean = any(  # of means or sums over one or both axes
        abs(pull - factor * mean) < 1e-2 * abs(factor * mean) for factor in (1, rows, rows**2)
    )
    broadcast = "; the mean of the advantages, as if [R, 1] were broadcast with [R]"
    if abs(mean) > 1e-4 * spread and of_mean:
        return Verdict("advantage-shuffled", says + broadcast, 3)
    if abs(mean) <= 1e-4 * spread and abs(pull) < 1e-6 * rows**2:  # normalized: the mean is 0
        return Verdict("advantage-shuffled", says + broadcast, 3 if abs(pull) < 1e-6 else 2)
    if abs(pull) < 1e-6:  # normalized in the loss
        return Verdict("advantage-shuffled", says + broadcast, 3)
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
        if certainty > 1 and vary(old) and close(np.sort(new), np.sort(old)):
            measured += "; sorted, both are the same numbers: they are in another order"
            return finding_of("probability-of-another", measured, certainty, heard.policy)
        if close(np.exp(new), old):
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
    still, moved, traced = 0, 0.0, True
    if heard.counted:
        return None  # it is unknown which minibatches share a rollout
    for minibatch in heard.minibatches:
        ratio = ratio_of(minibatch)
        if ratio is None or minibatch.first:
            continue
        names = names_of(heard, reach_of(heard, minibatch.update, ("log_probs", "logits")))
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
            return _without_ratio(heard)
        still, moved, traced = still + 1, max(moved, change), traced and bool(names)
    if not still:
        return _without_ratio(heard)
    measured = (
        f"in {still} minibatches after steps that changed weights by up to {moved:.2g}, all ratios "
        "are exactly 1"
    )
    return finding_of(
        "old-log-prob-recomputed", measured, 3 if still > 1 and traced else 2, heard.policy
    )


def _without_ratio(heard: Heard) -> Finding | None:
    """Report gradients in proportion to the advantages, without the ratio of the probabilities."""
    without, ratios = 0, 1.0
    used_before: dict[int, set[bytes]] = {}
    for minibatch in heard.minibatches:
        rows, earlier = _keys(minibatch), used_before.setdefault(minibatch.update, set())
        again = rows and len(rows & earlier) > 0.5 * len(rows)
        earlier |= rows
        if not again:
            continue  # one epoch needs no ratio
        ratio, advantage = ratio_of(minibatch), flat(minibatch.advantages)
        pull = flat(minibatch.gradients.log_probs) if minibatch.gradients is not None else None
        if ratio is None or advantage is None or pull is None:
            continue
        if not len(pull) == len(ratio) == len(advantage) >= ROWS or np.std(np.log(ratio)) < 0.02:
            continue
        used = pull != 0
        if used.sum() < ROWS or not vary(advantage[used]):
            continue
        if not np.isclose(abs(correlation(pull[used], advantage[used])), 1.0, atol=1e-6):
            return None
        without, ratios = without + 1, max(ratios, float(ratio.max()))
    if without < 2:
        return None
    measured = (
        f"in {without} minibatches the gradients are in proportion to the advantages alone, "
        f"although ratios are up to {ratios:.3g}"
    )
    return finding_of("old-log-prob-recomputed", measured, 2, heard.policy)


def _keys(minibatch: Minibatch) -> set[bytes]:
    """Return keys of decisions, by which they are known again in another epoch."""
    columns = [
        part.reshape(len(minibatch.log_probs), -1).astype(np.float64)
        for part in (minibatch.log_probs, minibatch.returns, minibatch.obs)
        if isinstance(part, np.ndarray)
        and minibatch.log_probs is not None
        and len(part) == len(minibatch.log_probs)
    ]
    if minibatch.log_probs is None or not columns:
        return set()
    return {row.tobytes() for row in np.concatenate(columns, axis=1)}


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
            idle = (gradient == 0) & (off < 0.02) & (off > 1e-6)
            tight.append(float(idle.mean()))
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
        idle = sure & (gradient == 0) & (np.abs(ratio - 1) > DIFFERS)
        against += int((good * (ratio - 1) < 0)[idle].sum())
        clipped += int(idle.sum())
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


def _ranks(values: Array) -> Array:
    return np.unique(values, return_inverse=True)[1].astype(np.float64)


def _range(values: Array) -> str:
    return f"{values.min():.3g} to {values.max():.3g}"
