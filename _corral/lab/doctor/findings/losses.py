"""Findings about the loss: its use of advantages, entropy, values and targets.

They use the measurements of ``evidence.learning``, which changes one input of the loss at a time.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding

__all__ = [
    "advantage_in_loss",
    "clip_too_tight",
    "clipped_too_early",
    "critic_in_loss",
    "dropped_rows",
    "entropy_in_loss",
    "old_log_prob",
    "rows_aligned",
]


# --- The actor -----------------------------------------------------------------------------------


def advantage_in_loss(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report a loss in which a larger advantage does not make its own action likelier."""
    effect = record.learning.response.advantage
    unsigned = record.learning.response.unsigned
    if effect == "nothing" and not unsigned and evidence.trainer.capabilities.advantages:
        return Finding(
            "policy-loss-cut",
            "Advantages do not reach the actor: the loss has no gradient from them.",
            "changing a decision's advantage from low to high changes no gradient of the actor",
            "a larger advantage makes its action likelier",
            "look for detach(), item() or no_grad() on log-probabilities, and for a normalization "
            "or a factor that sets advantages to 0 in the loss",
            3,
            record.policy,
        )
    if unsigned:
        return Finding(
            "advantage-unsigned",
            "The loss ignores the sign of advantages: bad actions become likelier, too.",
            "both a positive and a negative advantage make their action more likely",
            "a negative advantage makes its action less likely",
            "look for abs(), a square or a norm of advantages in the loss",
            3,
            record.policy,
        )
    if effect == "opposite":
        return Finding(
            "advantage-sign",
            "The loss has the wrong sign: actions with a high advantage become less likely.",
            "raising a decision's advantage makes its action less likely",
            "a larger advantage makes its action likelier",
            "the loss is minimized: it must contain -ratio * advantage or -log_prob * advantage",
            3,
            record.policy,
        )
    if effect == "elsewhere":
        return Finding(
            "advantage-shuffled",
            "An advantage changes the probabilities of other decisions than its own.",
            "raising a decision's advantage changes the gradients of other decisions more",
            "row r of the advantages belongs to row r of the log-probabilities",
            "index all arrays of a minibatch in the same way; look for shapes [R, 1] and [R], "
            "which "
            "broadcast to [R, R]",
            3,
            record.policy,
        )
    return None


def rows_aligned(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report minibatch rows that carry another decision's advantage or value target."""
    learning = record.learning
    for rows, stored, trajectories, learned in zip(
        learning.rows, learning.stored, record.trajectories, record.advantages, strict=False
    ):
        if not rows or not trajectories.valid.any():
            continue
        action, log_prob, advantage, target = (np.concatenate(p) for p in zip(*rows, strict=True))
        at = trajectories.valid.reshape(-1)
        stored_keys = stored[0][at], stored[1][at]
        for quantity, got, made in (
            ("advantage", advantage, learned.advantage.reshape(-1)[at]),
            ("value target", target, learned.value_target.reshape(-1)[at]),
        ):
            wrong, same = _astray((action, log_prob, got), (*stored_keys, made.astype(np.float32)))
            if wrong is not None and wrong > 0.5:
                return Finding(
                    "advantage-shuffled" if quantity == "advantage" else "targets-shuffled",
                    f"The loss uses other decisions' {quantity}s.",
                    f"{wrong:.0%} of a minibatch's rows have an action and log-probability that "
                    f"had another {quantity} in the rollout",
                    f"each decision with its own {quantity}",
                    "draw one permutation and index all arrays with it",
                    3 if same else 2,
                    record.policy,
                )
    return None


def _astray(
    got: tuple[Array, Array, Array], made: tuple[Array, Array, Array]
) -> tuple[float | None, bool]:
    """Return the share of rows (action, log_prob, number) that have another decision's number, and
    whether the numbers are the same in another order.

    The share is None if too few rows are unique. The loss may have scaled and shifted the numbers.
    """
    keys, made_keys = (_keys(item[0], item[1]) for item in (got, made))
    pairs = Counter(zip(made_keys, made[2].tolist(), strict=True))
    pairs_got = Counter(zip(keys, got[2].tolist(), strict=True))
    if sum((pairs & pairs_got).values()) >= 0.98 * len(keys):
        return 0.0, True
    counts = Counter(made_keys)
    number = dict(zip(made_keys, made[2].tolist(), strict=True))
    alone = [i for i, key in enumerate(keys) if counts[key] == 1]
    if len(alone) < 32:
        return None, False
    received, expected = got[2][alone].astype(float), np.array([number[keys[i]] for i in alone])
    if min(np.ptp(received), np.ptp(expected)) < 1e-9:
        return None, False
    # Compare ranks: any positive scaling within a minibatch keeps the order of the numbers.
    correlation = float(np.corrcoef(_ranks(received), _ranks(expected))[0, 1])
    in_order = float(np.corrcoef(np.sort(received), np.sort(expected))[0, 1])
    return max(0.0, 1.0 - correlation), in_order > 0.9999


def _ranks(values: Array) -> Array:
    return np.unique(values, return_inverse=True)[1].astype(float)


def _keys(action: Array, log_prob: Array) -> list[bytes]:
    return [
        a.tobytes() + p.tobytes()
        for a, p in zip(np.ascontiguousarray(action), log_prob.astype(np.float32), strict=True)
    ]


def entropy_in_loss(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report an entropy weight that is negative or larger than that of the advantages."""
    response = record.learning.response
    if response.entropy_weight is None or not response.weight or not response.spread > 1e-6:
        return None
    share = response.entropy_weight / (response.weight * response.spread)
    if share < -1e-3:
        return Finding(
            "entropy-sign",
            "The loss penalizes entropy: the policy becomes deterministic too early.",
            f"weight of the entropy {response.entropy_weight:.3g}, measured from its gradient; of "
            f"typical advantages {response.weight * response.spread:.3g}",
            "0 or more",
            "the loss is minimized: it must contain -ent_coef * entropy",
            2,
            record.policy,
        )
    kept = [after for _, after in record.learning.entropy]
    if share <= 1.0 or (kept and kept[-1] < 0.9):
        return None
    return Finding(
        "entropy-too-large",
        "The entropy bonus outweighs the advantages: the policy stays random.",
        f"weight of the entropy {response.entropy_weight:.3g}, of typical advantages "
        f"{response.weight * response.spread:.3g}"
        + (f"; entropy is {kept[-1]:.0%} of log(legal actions)" if kept else ""),
        "an entropy weight that is small compared with that of the advantages",
        "lower ent_coef, to 0.01 or less at first; or normalize advantages",
        2,
        record.policy,
    )


def old_log_prob(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report several epochs on one rollout without the log-probabilities of the rollout."""
    learning = record.learning
    uses_advantage = learning.response.advantage == "own"
    for ratios, rows, changed in zip(
        learning.ratios, learning.rows, learning.changed, strict=False
    ):
        again = len(ratios) > len(rows) > 0
        still = len(ratios) > 1 and max(ratios[1:]) <= 1e-6 and changed > 1e-4
        unused = again and learning.response.old_log_prob is False and uses_advantage
        if not still and not unused:
            continue
        return Finding(
            "old-log-prob-recomputed",
            "The loss compares the policy with itself, not with the one that played: updates are "
            "unbounded.",
            f"in {len(ratios)} steps on one rollout the log ratio stays within "
            f"{max(ratios[1:]):.1g}, while probabilities change by up to {changed:.2g}"
            if still
            else "the gradient does not depend on the log-probabilities of the rollout, which is "
            f"used for {len(ratios) / len(rows):.0f} epochs",
            "ratio = exp(log_prob - log_prob when the action was played)",
            "store log-probabilities in the rollout and keep them until the next rollout; or use "
            "each rollout for one epoch only",
            3 if still else 2,
            record.policy,
        )
    return None


def clipped_too_early(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report decisions that the loss clips before the first step, while all ratios are 1."""
    share = record.learning.response.off_one
    if not share or share < 0.2:
        return None
    return Finding(
        "ratio-wrong-in-loss",
        "The loss clips decisions before the first optimizer step: its ratio is not 1.",
        f"with old log-probabilities equal to the new ones, {share:.0%} of the decisions (all with "
        "advantages of the same sign) have no gradient; with old log-probabilities shifted far "
        "away, these decisions have a gradient",
        "a ratio of 1 before the first step, and a gradient for every decision",
        "compute log-probabilities in the loss like outputs.log_prob: over legal actions only "
        "(-inf for illegal ones, not 0), minus the old ones of the same actions",
        3 if share > 0.5 else 2,
        record.policy,
    )


def dropped_rows(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report a loss that uses only some decisions of a minibatch."""
    share = record.learning.response.dropped
    if share is None or not 0.1 < share < 0.999:
        return None
    return Finding(
        "decisions-left-out",
        "The loss leaves out some decisions of a minibatch.",
        f"the advantages of {share:.0%} of the decisions with several legal actions change no "
        "gradient of the actor",
        "every decision in the loss",
        "look for indices and masks that select rows in the loss",
        2 if share > 0.3 else 1,
        record.policy,
    )


def clip_too_tight(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    annealed = any(progress > 0.9 for progress in record.learning.progress)
    if not record.learning.response.tight or annealed:
        return None
    return Finding(
        "clip-too-tight",
        "The clip range is so small that each update ends after its first step.",
        "the gradient is 0 as soon as a probability has changed by 1 %",
        "a clip range of 0.1 to 0.3",
        "raise clip_range",
        2,
        record.policy,
    )


# --- The critic ----------------------------------------------------------------------------------


def critic_in_loss(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report a value loss that does not lead values to their targets."""
    response = record.learning.response
    if response.value_flat is None:
        return None
    if response.value_flat >= 0.99:
        return Finding(
            "critic-untaught",
            "The critic is not trained: the loss has no gradient for the values.",
            "values that differ from their targets have no gradient",
            "a value loss that moves values to their targets",
            "add value_loss(minibatch, outputs, settings) to the loss terms, without detach()",
            3,
            record.policy,
        )
    if response.value_flat > 0.3 or (response.value_short or 0.0) > 0.5:
        where = "" if response.value_flat > 0.3 else " after a tenth of the way to the target"
        share = response.value_flat if response.value_flat > 0.3 else response.value_short
        return Finding(
            "value-clipped",
            "Many values get no gradient, as by value clipping: they cannot reach their targets.",
            f"{share:.0%} of the values that differ from their targets have no gradient{where}",
            "a gradient toward the target at any distance",
            "omit clip_range_vf, or raise it to the spread of the targets; do not clamp losses or "
            "targets",
            3 if response.value_flat > 0.3 else 2,
            record.policy,
        )
    if (response.value_away or 0.0) > 0.9:
        return Finding(
            "critic-sign",
            "The value loss moves values away from their targets.",
            f"{response.value_away:.0%} of gradients have the wrong sign",
            "values that move toward their targets",
            "the loss is minimized: it must contain +(value - target) ** 2",
            3,
            record.policy,
        )
    if response.target_elsewhere:
        return Finding(
            "targets-shuffled",
            "A value target changes the values of other decisions.",
            "raising one target changes the gradients of other values more than its own",
            "row r of the targets belongs to row r of the values",
            "compare shapes: [R, 1] minus [R] gives [R, R]; index all arrays in the same way",
            3,
            record.policy,
        )
    if (response.value_astray or 0.0) > 0.1:
        return Finding(
            "targets-changed",
            "The value loss moves values to numbers other than their targets.",
            f"{response.value_astray:.0%} of the values have a gradient even when they equal their "
            "targets",
            "no gradient for a value that equals its target",
            "do not clamp, scale or shift targets in the loss: they already use the critic's scale",
            2,
            record.policy,
        )
    if (response.value_linear or 0.0) > 0.8:
        return Finding(
            "value-clipped",
            "The value loss is linear for most decisions: only the sign of the error counts.",
            f"for {response.value_linear:.0%} of decisions the gradient is unchanged after nine "
            "tenths of "
            "the way to the target",
            "a squared error, linear for outliers only",
            "raise the Huber range (huber_delta) to the spread of the targets or more",
            2,
            record.policy,
        )
    return None
