"""A rule about shapes: numbers [R, 1] and [R] broadcast to [R, R]."""

from __future__ import annotations

from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.texts import finding_of
from corral.lab.listening.heard import Heard, Minibatch

__all__ = ["RULES", "broadcast"]

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


RULES = (broadcast,)
