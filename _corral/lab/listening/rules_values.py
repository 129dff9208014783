"""Rules about the value loss: it must lead every value to its own target."""

from __future__ import annotations

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.findings.finding import Finding
from corral.lab.listening.heard import Heard, Minibatch
from corral.lab.listening.minibatches import ROWS, Verdict, flat, most, unreached, vary

__all__ = [
    "values_in_loss",
]


def values_in_loss(heard: Heard) -> Finding | None:
    """Compare the gradient of the loss for each value with its target."""
    return most(heard, "values", _value_verdict) or unreached(heard, "values")


def _value_verdict(minibatch: Minibatch, gradient: Array, *, first: bool) -> Verdict | None:
    value, target = flat(minibatch.values), flat(minibatch.returns)
    if not first:  # clipped values may have no gradient
        return None
    if value is None or target is None or len(value) < ROWS:
        return None
    if not len(gradient) == len(value) == len(target) or not np.isfinite(gradient).all():
        return None
    gap, spread = value - target, float(target.std())
    off = (np.abs(gap) > 0.05 * spread + 1e-6) & (target != 0)  # targets of 0 may be padding
    if off.sum() < ROWS:
        return None
    none = off & (gradient == 0)
    share = float(none.sum() / off.sum())
    says = f"of {int(off.sum())} values that differ from their targets"
    if share == 1:
        return Verdict("critic-untaught", f"all gradients {says} are 0", 3)
    used = off & (gradient != 0)
    if share > 0.3:
        farther = np.abs(gap[none]).min() >= 0.9 * np.abs(gap[used]).max()
        measured = f"{share:.0%} {says} have no gradient"
        if farther:
            measured += f": those farther than {np.abs(gap[used]).max():.3g} from it"
        return Verdict("value-clipped", measured, 3 if farther else 2)
    if used.sum() < ROWS:
        return None
    right = float(np.mean(gradient[used] * gap[used] > 0))
    measured = f"{1 - right:.0%} of gradients {says} lead away from the target"
    if right >= 0.95:
        return _limited(gradient, value, target, measured)
    if right <= 0.05:
        return Verdict("critic-sign", measured, 3)
    return _other_targets(gradient, value, target, measured, clear=right < 0.8)


def _other_targets(
    gradient: Array, value: Array, target: Array, measured: str, *, clear: bool
) -> Verdict | None:
    """Return the verdict about values that the loss leads to other numbers than their targets."""
    spread = float(target.std())
    fit = _fitted(gradient, value, target)
    if fit is not None:
        return _one_target(fit, target) or _changed(fit, target, measured)
    scales = [np.polyfit(value, gradient, 1)[0] if vary(value) else 0.0]
    if abs(value.mean() - target.mean()) > 0.05 * spread:
        scales.append(gradient.mean() / (value.mean() - target.mean()))
    for scale in scales:
        if scale > 0 and spread > 0:
            led_to = np.sort(value - gradient / scale)
            if np.abs(led_to - np.sort(target)).max() < 0.02 * spread:
                measured += "; they lead to the targets of other rows"
                return Verdict("targets-shuffled", measured, 3)
    return Verdict("targets-changed", measured, 2) if clear else None


def _limited(gradient: Array, value: Array, target: Array, measured: str) -> Verdict | None:
    """Return the verdict about values with the right direction and scaled or limited targets."""
    spread = float(target.std())
    fit = _fitted(gradient, value, target)
    if fit is not None:
        near = abs(fit[0] - 1) < 0.05 and abs(fit[1] + (fit[0] - 1) * target.mean()) < 0.1 * spread
        return None if near else _one_target(fit, target) or _changed(fit, target, measured)
    gap = value - target
    scale = float(np.median(gradient[gap != 0] / gap[gap != 0]))
    if not scale > 0:
        return None
    led_to = value - gradient / scale
    other = np.abs(led_to - target) > 0.02 * spread
    limits = np.unique((led_to[other] / (0.01 * spread)).round())
    if not 0.05 < other.mean() < 0.5 or other.sum() < ROWS or len(limits) > 4:
        return None
    at = f"{led_to[other].min():.3g}" + (
        f" or {led_to[other].max():.3g}" if np.ptp(led_to[other]) > 0.05 * spread else ""
    )
    measured = f"{other.mean():.0%} of the values lead to {at} instead of their targets"
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


def _one_target(fit: tuple[float, float], target: Array) -> Verdict | None:
    """Return the verdict about a loss that leads all values to one number."""
    if fit[0] != 0:
        return None
    measured = f"the gradients of all {len(target)} values lead to {fit[1]:.3g}"
    if abs(fit[1] - target.mean()) < 0.05 * float(target.std()) + 1e-4 * abs(fit[1]):
        measured += ", the mean of the targets, as if [R, 1] were broadcast with [R]"
        return Verdict("targets-shuffled", measured, 3)
    return Verdict("targets-changed", measured, 2)


def _changed(fit: tuple[float, float], target: Array, measured: str) -> Verdict:
    """Return the verdict about scaled targets, which may be normalized on purpose."""
    slope, shift = fit
    made = slope * target + shift
    normalized = slope > 0 and abs(made.mean()) < 0.5 and 0.3 < made.std() < 3
    measured += f"; they lead to {slope:.3g} x target + {shift:.3g}"
    return Verdict("targets-changed", measured, 1 if normalized else 2)
