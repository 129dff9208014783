"""Rules about rows: numbers for pairs of decisions, and numbers of other decisions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.losses import astray
from corral.lab.doctor.findings.texts import finding_of
from corral.lab.listening.heard import Heard, Minibatch, Rollout

__all__ = ["RULES", "broadcast", "misaligned"]

CAUSES = {
    "advantages": "advantage-shuffled",
    "returns": "targets-shuffled",
    "values": "targets-shuffled",
}
"""Field with one number for each decision -> cause if it has one for each pair of them."""


def broadcast(heard: Heard) -> Finding | None:
    """Report numbers for pairs of decisions, instead of one for each decision."""
    for minibatch in heard.minibatches:
        rows = _rows(minibatch)
        for name, cause in CAUSES.items():
            values = getattr(minibatch, name)
            if rows > 1 and values is not None and values.shape == (rows, rows):
                measured = f"{name} have the shape [{rows}, {rows}], log-probabilities [{rows}]"
                return finding_of(cause, measured, 3, heard.policy)
    return None


def _rows(minibatch: Minibatch) -> int:
    """Return the number of decisions, from the log-probabilities; 0 if it is not known."""
    stored = (minibatch.new_log_probs, minibatch.log_probs)
    return next((part.size for part in stored if part is not None), 0)


def misaligned(heard: Heard) -> Finding | None:
    """Report minibatches with advantages or targets of other decisions than in the rollout.

    A decision is known again by its action and its stored log-probability.
    """
    for rollout in heard.rollouts:
        batches = [item for item in heard.minibatches if item.update == rollout.update]
        for name in ("advantages", "returns"):
            made = _rows_of([rollout], name)
            rows = _rows_of(batches, name)
            if made is None or rows is None:
                continue
            wrong, same = astray(rows, made)
            if wrong is not None and wrong > 0.5:
                measured = (
                    f"{wrong:.0%} of a minibatch's rows have an action and log-probability that "
                    f"had other {name} in the rollout"
                )
                return finding_of(CAUSES[name], measured, 3 if same else 2, heard.policy)
    return None


def _rows_of(parts: Sequence[Rollout | Minibatch], name: str) -> tuple[Array, Array, Array] | None:
    """Return actions [R, D], log-probabilities [R] and a field [R] of decisions with all three."""
    columns: tuple[list[Array], list[Array], list[Array]] = ([], [], [])
    for part in parts:
        log_probs, values, actions = part.log_probs, getattr(part, name), part.actions
        if log_probs is None or values is None or actions is None:
            continue
        if values.size == log_probs.size and actions.size % log_probs.size == 0:
            columns[0].append(actions.reshape(log_probs.size, -1).astype(np.float64))
            columns[1].append(log_probs.reshape(-1).astype(np.float32))
            columns[2].append(values.reshape(-1).astype(np.float32))
    if not columns[0] or len({part.shape[1] for part in columns[0]}) > 1:
        return None
    actions, log_probs, values = (np.concatenate(column) for column in columns)
    return actions, log_probs, values


RULES = (broadcast, misaligned)
