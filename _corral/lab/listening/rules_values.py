"""Rules about the value loss: it must lead every value to its own target."""

from __future__ import annotations

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.findings.finding import Finding
from corral.lab.listening.heard import Heard, Minibatch
from corral.lab.listening.minibatches import ROWS, Verdict, flat, unreached, vary, verdict_of

__all__ = ["values_dominate", "values_in_loss"]

DOMINATE = 50.0
"""Gradient of the values divided by that of the log-probabilities, from which on it is a finding.
"""


def values_in_loss(heard: Heard) -> Finding | None:
    """Compare the gradient of the loss for each value with its target."""
    return verdict_of(heard, "values", _value_verdict) or unreached(heard, "values")


def values_dominate(heard: Heard) -> Finding | None:
    """Report value gradients that dwarf those of the policy in layers that both share."""
    times = []
    for minibatch in heard.minibatches:
        parts = minibatch.gradients
        if parts is None or parts.values is None or parts.log_probs is None or not minibatch.first:
            continue
        if not parts.reach.get("values", frozenset()) & parts.reach.get("log_probs", frozenset()):
            continue
        of_policy = float(np.abs(parts.log_probs).sum())
        if of_policy > 0 and np.isfinite(parts.values).all():
            times.append(float(np.abs(parts.values).sum()) / of_policy)
    if not times or not np.median(times) > DOMINATE:
        return None
    return Finding(
        "shared-layers",
        "The loss of the values dominates the layers that actor and critic share.",
        f"gradients of the values are {np.median(times):.3g} times those of the log-probabilities",
        "a loss of the values of about the size of the policy's loss",
        "lower the weight of the value loss, scale the rewards, or use separate networks",
        2 if np.median(times) > 20 * DOMINATE else 1,
        heard.policy,
    )


def _value_verdict(minibatch: Minibatch, gradient: Array) -> Verdict | None:
    value, target = flat(minibatch.values), flat(minibatch.returns)
    if value is None or target is None or len(value) < ROWS:
        return None
    if not len(gradient) == len(value) == len(target) or not np.isfinite(gradient).all():
        return None
    gap, spread = value - target, float(target.std())
    off = (np.abs(gap) > 0.05 * spread + 1e-6) & (target != 0)  # targets of 0 may be padding
    if off.sum() < ROWS:
        return None
    idle = off & (gradient == 0)
    share = float(idle.sum() / off.sum())
    says = f"of {int(off.sum())} values that differ from their targets"
    if share == 1:
        return Verdict("critic-untaught", f"all gradients {says} are 0", 3)
    used = off & (gradient != 0)
    if share > 0.3:
        farther = np.abs(gap[idle]).min() >= 0.9 * np.abs(gap[used]).max()
        measured = f"{share:.0%} {says} have no gradient"
        if farther:
            measured += f": those farther than {np.abs(gap[used]).max():.3g} from it"
        return Verdict("value-clipped", measured, 2)
    if used.sum() < ROWS:
        return None
    right = float(np.mean(gradient[used] * gap[used] > 0))
    if right <= 0.05:
        measured = f"{1 - right:.0%} of gradients {says} lead away from the target"
        return Verdict("critic-sign", measured, 3)
    return _other_targets(gradient, value, target, right) if vary(value) else None


def _other_targets(gradient: Array, value: Array, target: Array, right: float) -> Verdict | None:
    """Return the verdict about values that the loss leads to other numbers than their targets.

    ``right`` is the share of gradients that lead in the direction of the targets.
    """
    spread = float(target.std())
    fit = _fitted(gradient, value, target)
    if fit is not None and fit[0] == 0:
        measured = f"values of all rows lead to {fit[1]:.3g}, targets are {_range(target)}"
        if abs(fit[1] - target.mean()) < 0.05 * spread + 1e-4 * abs(fit[1]):
            measured += "; that is their mean, as if [R, 1] were broadcast with [R]"
            return Verdict("targets-shuffled", measured, 3)
        return Verdict("targets-changed", measured, 2)
    if fit is not None:
        slope, shift = fit
        if abs(slope - 1) < 0.05 and abs(shift + (slope - 1) * target.mean()) < 0.1 * spread:
            return None
        made = slope * target + shift
        normalized = slope > 0 and abs(made.mean()) < 0.5 and 0.3 < made.std() < 3
        measured = f"values lead to {slope:.3g} x target + {shift:.3g}"
        return Verdict("targets-changed", measured, 1 if normalized else 2)
    scales = [np.polyfit(value, gradient, 1)[0]]
    if abs(value.mean() - target.mean()) > 0.05 * spread:
        scales.append(gradient.mean() / (value.mean() - target.mean()))
    for scale in scales:
        if scale > 0 and spread > 0:
            led_to = value - gradient / scale
            astray = float(np.mean(np.abs(led_to - target) > 0.1 * spread))
            if astray > 0.1 and np.abs(np.sort(led_to) - np.sort(target)).max() < 0.02 * spread:
                measured = f"{astray:.0%} of the values lead to the targets of other rows"
                return Verdict("targets-shuffled", measured, 3)
    if right >= 0.95:
        return _limited(gradient, value, target)
    measured = f"{1 - right:.0%} of the gradients lead away from the targets"
    return Verdict("targets-changed", measured, 2) if right < 0.8 else None


def _limited(gradient: Array, value: Array, target: Array) -> Verdict | None:
    """Return the verdict about targets that the loss clamps.

    A Huber loss limits the distance from the value, not the target.
    """
    spread, gap = float(target.std()), value - target
    scale = float(np.median(gradient[gap != 0] / gap[gap != 0]))
    if not scale > 0:
        return None
    led_to = value - gradient / scale
    other = np.abs(led_to - target) > 0.02 * spread
    if not 0.05 < other.mean() < 0.5 or other.sum() < ROWS:
        return None
    limits = []
    for side in (other & (led_to > target), other & (led_to < target)):
        if side.any():
            if np.ptp(led_to[side]) > 0.1 * np.ptp(value[side]) or side.sum() < 2:
                return None
            limits.append(f"{led_to[side].mean():.3g}")
    measured = f"{other.mean():.0%} of the values lead to {' or '.join(limits)}, not to the target"
    return Verdict("targets-changed", measured, 2)


def _fitted(gradient: Array, value: Array, target: Array) -> tuple[float, float] | None:
    """Return slope and shift of the targets that a squared loss has; None for another loss."""
    if not vary(value) or not vary(target):
        return None
    terms = np.stack([value, target, np.ones_like(value)], axis=1)
    (of_value, of_target, rest), *_ = np.linalg.lstsq(terms, gradient, rcond=None)
    unexplained = float(np.var(gradient - terms @ (of_value, of_target, rest)))
    if not unexplained < 1e-6 * float(gradient.var()) or not of_value > 0:
        return None
    slope = float(-of_target / of_value)
    return (0.0 if abs(slope) < 0.02 else slope), float(-rest / of_value)


def _range(values: Array) -> str:
    return f"{values.min():.3g} to {values.max():.3g}"
