"""Findings about the loss: its use of advantages, entropy, values and targets.

They use the measurements of ``evidence.learning``, which changes one input of the loss at a time.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.texts import finding_of

__all__ = [
    "advantage_in_loss",
    "astray",
    "dropped_rows",
    "entropy_in_loss",
    "rows_aligned",
    "values_in_loss",
]


# --- The actor -----------------------------------------------------------------------------------


def advantage_in_loss(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report a loss in which a larger advantage does not make its own action likelier."""
    response = record.learning.response
    effect = "unsigned" if response.unsigned else response.advantage
    if effect not in EFFECTS:
        return None
    if effect == "nothing" and not evidence.trainer.capabilities.advantages:
        return None
    return finding_of(*EFFECTS[effect], 3, record.policy)


EFFECTS = {
    "unsigned": ("advantage-unsigned", "an advantage of either sign makes its action likelier"),
    "nothing": ("policy-loss-cut", "changing an advantage changes no gradient of the actor"),
    "opposite": ("advantage-sign", "raising an advantage in the loss makes its action unlikelier"),
    "elsewhere": ("advantage-shuffled", "raising an advantage moves other decisions' gradients"),
}
"""Effect of an advantage in the loss -> cause and measurement; the right effect is "own"."""


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
            wrong, same = astray((action, log_prob, got), (*stored_keys, made.astype(np.float32)))
            if wrong is not None and wrong > 0.5:
                cause = "advantage-shuffled" if quantity == "advantage" else "targets-shuffled"
                measured = (
                    f"{wrong:.0%} of a minibatch's rows have an action and log-probability that "
                    f"had another {quantity} in the rollout"
                )
                return finding_of(cause, measured, 3 if same else 2, record.policy)
    return None


def astray(
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


def dropped_rows(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report a loss that uses only some decisions of a minibatch."""
    share = record.learning.response.dropped
    if share is None or not 0.1 < share < 0.999:
        return None
    measured = (
        f"the advantages of {share:.0%} of the decisions with several legal actions in a minibatch "
        "change no gradient of the actor"
    )
    return finding_of("decisions-left-out", measured, 2 if share > 0.3 else 1, record.policy)


# --- The critic ----------------------------------------------------------------------------------


def values_in_loss(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report a value loss that does not lead values to their targets."""
    response, off = record.learning.response, "of the values that differ from their targets"
    flat, short = response.value_flat or 0.0, response.value_short or 0.0
    away, astray = response.value_away or 0.0, response.value_astray or 0.0
    linear, certainty = response.value_linear or 0.0, 3
    if flat > 0.3:
        cause = "critic-untaught" if flat >= 0.99 else "value-clipped"
        measured = f"{flat:.0%} {off} have no gradient"
    elif short > 0.5:
        cause, certainty = "value-clipped", 2
        measured = f"{short:.0%} {off} have no gradient after a tenth of the way to the target"
    elif away > 0.9:
        cause, measured = "critic-sign", f"{away:.0%} of gradients lead away from the target"
    elif response.target_elsewhere:
        cause = "targets-shuffled"
        measured = "raising one target changes the gradients of other values more than its own"
    elif astray > 0.1:
        cause, certainty = "targets-changed", 2
        measured = f"{astray:.0%} of the values have a gradient even when they equal their targets"
    elif linear > 0.8:
        cause, certainty = "value-clipped", 2
        measured = f"{linear:.0%} {off} have the same gradient after nine tenths of the way to it"
    else:
        return None
    return finding_of(cause, measured, certainty, record.policy)
