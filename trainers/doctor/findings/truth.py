"""What a run believes, beside the truth."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from corral.trainers.doctor.audit import Audit
from corral.trainers.doctor.findings.finding import Finding

__all__ = ["against_truth"]


def against_truth(report: Audit) -> Iterator[Finding]:
    """Yield what the audit says is wrong, where its noise allows to say it."""
    for each in report.policies:
        signal = float(np.std(each.value))
        noise = float(np.sqrt(np.mean(each.value_error**2)))
        correlation = each.value_correlation
        # Given one future, the truth holds what no critic can know: no alarm.
        if report.given_this_future or correlation is None:
            continue
        if signal > 5 * noise and correlation < 0.1:
            yield Finding(
                "critic-blind",
                "The critic does not see what its values depend on.",
                f"values correlate {correlation:.2f} with the true ones of {each.moments} moments",
                "0.5 or more after training, where true values differ",
                "look at what the critic is given, its learning rate, and its targets",
                2,
                each.policy,
            )
