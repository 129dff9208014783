"""What a run believes, beside the truth.

Where all forks of a moment meet one future (rules without ``redraw``), true values hold what no
critic can know: nothing is said of values then. Advantages are compared within that future.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from corral.lab.doctor.audit.audited import Audit, Audited
from corral.lab.doctor.findings.finding import Finding

__all__ = ["against_truth"]

OLD = 50
"""Updates after which a critic should have learned what a plain fit of a few moments can."""

FEWEST = 24
"""Moments below which nothing is said."""

SURE = 4.0
"""Standard errors between what was measured and what is no fault."""

RELIABLE = 0.8
"""Share of what varies in true values that must be no noise."""


def against_truth(report: Audit) -> Iterator[Finding]:
    """Yield what the audit says is wrong, where its noise allows to say it."""
    for each in report.policies:
        if each.moments < FEWEST:
            continue
        found = [_loss_cut_off(each), _unrelated(each), _not_those(each)]
        if not report.given_this_future and each.values.reliability >= RELIABLE:
            found += [rule(each, report.updates >= OLD) for rule in VALUES]
        yield from (one for one in found if one is not None)


# --- Advantages ----------------------------------------------------------------------------------


def _loss_cut_off(each: Audited) -> Finding | None:
    """Actions matter, and the actor is not told."""
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
        "The loss is cut off: actions differ in truth, and the actor is not told.",
        f"{critic}true advantages are surely not 0 at {matter} of {each.moments} moments; the "
        f"spread of those that the actor learned from is {each.learned_spread:.1g}{gradient}",
        "advantages that differ, and a gradient",
        "follow the advantages from where they are computed into the actor's loss",
        3 if still else 2,
        each.policy,
    )


def _unrelated(each: Audited) -> Finding | None:
    """The advantage function does not tell what actions are worth, averaged over the same forks
    that plain advantages tell it of."""
    if each.credit is None or each.plain is None or each.learned_spread <= 1e-9:
        return None
    own, plain = each.credit.correlation or 0.0, each.plain
    apart = (np.arctanh(min(plain, 0.999)) - np.arctanh(np.clip(own, -0.999, 0.999))) * np.sqrt(
        (each.moments - 3) / 2
    )
    if plain < 0.5 or own > plain / 4 or apart < SURE:
        return None
    title = "The advantages do not tell what actions are worth."
    if own < -plain / 2:
        title = "The advantages have the wrong sign."
    return Finding(
        "advantages-unrelated-to-truth",
        title,
        f"averaged over forks they correlate {own:.2f} with the true ones of {each.moments} "
        "moments",
        f"as plain advantages do of the same forks: {plain:.2f}",
        "look at the advantage function: which rewards, which columns, which sign",
        2,
        each.policy,
    )


def _not_those(each: Audited) -> Finding | None:
    """What the run learned from is no sample of what its own function says of these decisions."""
    own = each.advantage_correlation
    if own is None or each.sample is None:
        return None
    mean, deviation = each.sample
    deviation = max(deviation, 1 / np.sqrt(each.moments))
    if own > mean / 4 or mean - own < SURE * deviation:
        return None
    return Finding(
        "advantages-unrelated-to-truth",
        "The advantages that the actor learns from are not those of its decisions.",
        f"they correlate {own:.2f} with the true ones of {each.moments} moments",
        f"as those of forks of the same decisions do: {mean:.2f} ± {2 * deviation:.2f}",
        "look at what happens to advantages between their computation and the loss",
        2,
        each.policy,
    )


# --- Values --------------------------------------------------------------------------------------


def _blind(each: Audited, old: bool) -> Finding | None:
    """A plain fit of what the critic observes tells the values, and the critic does not."""
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
        "its values do not vary"
        if each.value_correlation is None
        else f"its values correlate {own:.2f} with the true ones of {each.moments} moments"
    )
    return Finding(
        "critic-blind",
        "The critic sees nothing of what values depend on."
        if old
        else "The critic does not yet see what values depend on.",
        said,
        f"{fitted:.2f}, as a plain fit of what it observes",
        "look at what the critic is given, its encoder, its learning rate, and its targets",
        2 if old else 1,
        each.policy,
    )


def _biased(each: Audited, old: bool) -> Finding | None:
    """The critic orders moments rightly, by another scale."""
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
        "The critic's values are off in scale or level.",
        f"true values rise by {slope:.2f} where its own rise by 1; on average it is "
        f"{offset:+.2f} deviations off",
        "1, and 0",
        "look at what value targets are scaled with, and at gamma",
        1,
        each.policy,
    )


def _clamped(each: Audited, old: bool) -> Finding | None:
    """Unlike moments share one extreme value."""
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
        "The critic's values are cut.",
        f"{share:.0%} of unlike moments are all worth {extreme:.3g} to it; in truth they differ",
        "values without a bound, or one that true values keep",
        "look for a clamp, or an activation at the critic's end",
        2,
        each.policy,
    )


VALUES: tuple[Callable[[Audited, bool], Finding | None], ...] = (_blind, _biased, _clamped)
