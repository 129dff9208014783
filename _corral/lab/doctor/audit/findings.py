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
    for each in report.policies:
        if each.moments < FEWEST:
            continue
        found = [_loss_cut_off(each), _unrelated(each), _not_those(each)]
        if not report.given_this_future and each.values.reliability >= RELIABLE:
            found += [rule(each, report.updates >= OLD) for rule in VALUES]
        yield from (one for one in found if one is not None)


# --- Advantages ----------------------------------------------------------------------------------


def _loss_cut_off(each: Audited) -> Finding | None:
    """Report an actor without advantages or gradient although actions matter."""
    advantages = each.advantages
    matter = int((np.abs(advantages.true) > SURE * advantages.error + 1e-9).sum())
    flat = each.learned_spread <= 1e-9
    still = each.actor_gradient is not None and each.actor_gradient <= 1e-12
    if matter < FEWEST // 4 or not (flat or still):
        return None
    correlation = each.value_correlation
    critic = (
        "" if correlation is None else f"values correlate {correlation:.2f} with the true ones; "
    )
    gradient = "" if each.actor_gradient is None else f", its gradient {each.actor_gradient:.1g}"
    return Finding(
        "loss-cut-off",
        "The actor gets no training signal, although actions affect the return.",
        f"{critic}true advantages are clearly not 0 in {matter} of {each.moments} states; the "
        f"spread of the training advantages is {each.learned_spread:.1g}{gradient}",
        "training advantages that differ, and a gradient of the actor",
        "follow the advantages from their computation to the actor's loss",
        3 if still else 2,
        each.policy,
    )


def _unrelated(each: Audited) -> Finding | None:
    """Report an advantage function that does not correlate with true advantages.

    The reference is plain GAE on the same forks.
    """
    if each.credit is None or each.plain is None or each.learned_spread <= 1e-9:
        return None
    own, plain = each.credit.correlation or 0.0, each.plain
    apart = (np.arctanh(min(plain, 0.999)) - np.arctanh(np.clip(own, -0.999, 0.999))) * np.sqrt(
        (each.moments - 3) / 2
    )
    if plain < 0.5 or own > plain / 4 or apart < SURE:
        return None
    title = "The advantages are unrelated to the true advantages."
    if own < -plain / 2:
        title = "The advantages have the wrong sign."
    return Finding(
        "advantages-unrelated-to-truth",
        title,
        f"mean advantages over forks correlate {own:.2f} with the true ones in {each.moments} "
        "states",
        f"the correlation of plain GAE on the same forks: {plain:.2f}",
        "check the advantage function: its rewards, its columns and its sign",
        2,
        each.policy,
    )


def _not_those(each: Audited) -> Finding | None:
    """Report training advantages that differ from the run's own advantage function."""
    own = each.advantage_correlation
    if own is None or each.sample is None:
        return None
    mean, deviation = each.sample
    deviation = max(deviation, 1 / np.sqrt(each.moments))
    if own > mean / 4 or mean - own < SURE * deviation:
        return None
    return Finding(
        "advantages-unrelated-to-truth",
        "The actor's training advantages do not belong to its decisions.",
        f"they correlate {own:.2f} with the true ones in {each.moments} states",
        f"the correlation in forks of the same decisions: {mean:.2f} ± {2 * deviation:.2f}",
        "check every step between the computation of advantages and the loss",
        2,
        each.policy,
    )


# --- Values --------------------------------------------------------------------------------------


def _blind(each: Audited, old: bool) -> Finding | None:
    """Report a critic that predicts much worse than a plain fit on its inputs."""
    values, fitted = each.values.known, each.fitted
    if fitted is None or len(values.said) < FEWEST or fitted < 0.5:
        return None
    own = each.value_correlation or 0.0
    apart = (np.arctanh(min(fitted, 0.999)) - np.arctanh(np.clip(own, -0.999, 0.999))) * np.sqrt(
        (len(values.said) - 3) / 2
    )
    if own > 0.2 or apart < SURE:
        return None
    said = (
        "the critic's values do not vary"
        if each.value_correlation is None
        else f"the critic's values correlate {own:.2f} with the true ones in {each.moments} states"
    )
    return Finding(
        "critic-blind",
        "The critic ignores the inputs that determine the values."
        if old
        else "The critic does not yet use the inputs that determine the values.",
        said,
        f"a correlation of {fitted:.2f}, as a plain fit on the same inputs reaches",
        "check the critic's input, its encoder, its learning rate and its targets",
        2 if old else 1,
        each.policy,
    )


def _biased(each: Audited, old: bool) -> Finding | None:
    """Report a critic with the right order of values but the wrong scale or level."""
    values, own = each.values.known, each.value_correlation
    if not old or own is None or own < 0.7 or each.assumed > 0.2:
        return None
    spread = float(np.std(values.true))
    slope = own * spread / float(np.std(values.said))
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
        each.policy,
    )


def _clamped(each: Audited, old: bool) -> Finding | None:
    """Report different states that share one extreme value."""
    if each.clamped is None:
        return None
    extreme, share = each.clamped
    values = each.values.known
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
        "values without a bound, or with a bound that true values never reach",
        "look for a clamp, or an activation in the critic's last layer",
        2,
        each.policy,
    )


VALUES: tuple[Callable[[Audited, bool], Finding | None], ...] = (_blind, _biased, _clamped)
