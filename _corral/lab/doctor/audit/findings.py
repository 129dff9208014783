"""Findings from the comparison of a run's values and advantages with true ones.

If all forks of a state share one future (rules without ``redraw``), true values contain information
that no critic can have. Values are then not judged. Advantages are compared within that future.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from corral.lab.doctor.audit.audited import Audit, Audited
from corral.lab.doctor.findings.finding import Finding

__all__ = ["against_truth"]

OLD = 50
"""Number of updates after which a critic should match a plain fit on a few states."""

FEWEST = 24
"""Minimum number of states for a finding."""

SURE = 4.0
"""Required distance from a faultless result, in standard errors."""

RELIABLE = 0.8
"""Minimum share of the variance of true values that is not noise."""


def against_truth(report: Audit) -> Iterator[Finding]:
    """Yield the audit's findings that are clear of noise."""
    for audited in report.policies:
        if audited.moments < FEWEST:
            continue
        findings = [_loss_cut_off(audited), _unrelated(audited), _not_those(audited)]
        if not report.given_this_future and audited.values.reliability >= RELIABLE:
            findings += [rule(audited, report.updates >= OLD) for rule in VALUES]
        yield from (finding for finding in findings if finding is not None)


# --- Advantages ----------------------------------------------------------------------------------


def _loss_cut_off(audited: Audited) -> Finding | None:
    """Report an actor without advantages or gradient although actions matter."""
    advantages = audited.advantages
    matter = int((np.abs(advantages.true) > SURE * advantages.error + 1e-9).sum())
    flat = audited.learned_spread <= 1e-9
    still = audited.actor_gradient is not None and audited.actor_gradient <= 1e-12
    if matter < FEWEST // 4 or not (flat or still):
        return None
    correlation = audited.value_correlation
    critic = (
        "" if correlation is None else f"values correlate {correlation:.2f} with the true ones; "
    )
    gradient = (
        "" if audited.actor_gradient is None else f", its gradient {audited.actor_gradient:.1g}"
    )
    return Finding(
        "loss-cut-off",
        "The actor gets no training signal, although actions affect the return.",
        f"{critic}true advantages are clearly not 0 in {matter} of {audited.moments} states; the "
        f"spread of the training advantages is {audited.learned_spread:.1g}{gradient}",
        "training advantages that differ, and a gradient of the actor",
        "follow the advantages from their computation to the actor's loss",
        3 if still else 2,
        audited.policy,
    )


def _unrelated(audited: Audited) -> Finding | None:
    """Report an advantage function that does not correlate with true advantages.

    The reference is plain GAE on the same forks.
    """
    if audited.credit is None or audited.plain is None or audited.learned_spread <= 1e-9:
        return None
    correlation, plain = audited.credit.correlation or 0.0, audited.plain
    apart = _apart(plain, correlation, audited.moments)
    if plain < 0.5 or correlation > plain / 4 or apart < SURE:
        return None
    title = "The advantages are unrelated to the true advantages."
    if correlation < -plain / 2:
        title = "The advantages have the wrong sign."
    return Finding(
        "advantages-unrelated-to-truth",
        title,
        f"mean advantages over forks correlate {correlation:.2f} with the true ones in "
        f"{audited.moments} "
        "states",
        f"the correlation of plain GAE on the same forks: {plain:.2f}",
        "check the advantage function: its rewards, its columns and its sign",
        2,
        audited.policy,
    )


def _apart(reference: float, correlation: float, count: int) -> float:
    """Return the distance of two correlations of ``count`` pairs, in standard errors (Fisher)."""
    first, second = np.arctanh(np.clip([reference, correlation], -0.999, 0.999))
    return float((first - second) * np.sqrt((count - 3) / 2))


def _not_those(audited: Audited) -> Finding | None:
    """Report training advantages that differ from the run's own advantage function."""
    correlation = audited.advantage_correlation
    if correlation is None or audited.sample is None:
        return None
    mean, deviation = audited.sample
    deviation = max(deviation, 1 / np.sqrt(audited.moments))
    if correlation > mean / 4 or mean - correlation < SURE * deviation:
        return None
    return Finding(
        "advantages-unrelated-to-truth",
        "The actor's training advantages do not belong to its decisions.",
        f"they correlate {correlation:.2f} with the true ones in {audited.moments} states",
        f"the correlation in forks of the same decisions: {mean:.2f} ± {2 * deviation:.2f}",
        "check every step between the computation of advantages and the loss",
        2,
        audited.policy,
    )


# --- Values --------------------------------------------------------------------------------------


def _blind(audited: Audited, old: bool) -> Finding | None:
    """Report a critic that predicts much worse than a plain fit on its inputs."""
    values, fitted = audited.values.known, audited.fitted
    if fitted is None or len(values.said) < FEWEST or fitted < 0.5:
        return None
    correlation = audited.value_correlation or 0.0
    if correlation > 0.2 or _apart(fitted, correlation, len(values.said)) < SURE:
        return None
    measured = (
        "the critic's values do not vary"
        if audited.value_correlation is None
        else f"the critic's values correlate {correlation:.2f} with the true ones in "
        f"{audited.moments} states"
    )
    return Finding(
        "critic-blind",
        "The critic ignores the inputs that determine the values."
        if old
        else "The critic does not yet use the inputs that determine the values.",
        measured,
        f"a correlation of {fitted:.2f}, as a plain fit on the same inputs reaches",
        "check the critic's input, its encoder, its learning rate and its targets",
        2 if old else 1,
        audited.policy,
    )


def _biased(audited: Audited, old: bool) -> Finding | None:
    """Report a critic with the right order of values but the wrong scale or level."""
    values, correlation = audited.values.known, audited.value_correlation
    if not old or correlation is None or correlation < 0.7 or audited.assumed > 0.2:
        return None
    spread = float(np.std(values.true))
    slope = correlation * spread / float(np.std(values.said))
    offset = float(np.mean(values.said - values.true)) / spread
    if 0.4 <= slope <= 2.5 and abs(offset) <= 1.5:
        return None
    return Finding(
        "critic-biased",
        "The critic's values have the wrong scale or level.",
        f"true values rise by {slope:.2f} if the critic's value rises by 1; the critic's mean is "
        f"{offset:+.2f} standard deviations off",
        "a slope of 1 and an offset of 0",
        "check the scaling of value targets, and gamma",
        1,
        audited.policy,
    )


def _clamped(audited: Audited, old: bool) -> Finding | None:
    """Report different states that share one extreme value."""
    if audited.clamped is None:
        return None
    extreme, share = audited.clamped
    values = audited.values.known
    at = np.abs(values.said - extreme) <= 1e-6 * np.ptp(values.said)
    noise = float(np.sqrt(np.mean(values.error[at] ** 2)))
    if float(np.std(values.true[at])) < SURE * noise + 0.1 * float(np.std(values.true)):
        return None
    return Finding(
        "values-clamped",
        "The critic's values are clamped.",
        f"{share:.0%} of the states, all different, have the value {extreme:.3g}; their true "
        "values "
        "differ",
        "critic values without a bound, or with a bound that true values never reach",
        "look for a clamp, or an activation in the critic's last layer",
        2,
        audited.policy,
    )


VALUES: tuple[Callable[[Audited, bool], Finding | None], ...] = (_blind, _biased, _clamped)
