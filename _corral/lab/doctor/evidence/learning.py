"""Measure the effect of a loss's inputs on its gradient, and of an update on a policy.

A loss is a pure function of a minibatch and of the networks' outputs. It is evaluated again with
one number changed: an advantage, an old log-probability, a value or a target. The change of the
gradient shows which decisions that number affects, and in which direction. No formula is assumed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from corral.envs.core import Array
from corral.trainers.on_policy.records import Losses, Minibatch, Outputs

__all__ = [
    "Learning",
    "LossResponse",
    "ask_loss",
    "legal_entropy",
    "logits_of",
    "mean_log_legal",
    "moved_from",
    "softmax_twice",
    "weights_of",
]

TRIED = 6
"""Number of rows that are changed, one at a time."""

LEAK = 0.02
"""Largest share of a change that may appear in unrelated rows."""

Loss = Callable[[Minibatch, Outputs, Any], Losses]


@dataclass(frozen=True)
class LossResponse:
    """Measured behavior of a loss on one minibatch; None: not measurable there."""

    choice: bool | None = None  # some decision has more than one legal action
    advantage: str | None = None  # effect: "own", "opposite", "elsewhere" or "nothing"
    old_log_prob: bool | None = None  # the gradient depends on the old log-probabilities
    tight: bool | None = None  # a change of probability by 1 % removes the gradient
    off_one: float | None = None  # share of decisions clipped although all ratios are 1
    unsigned: bool | None = None  # a negative advantage makes its action likelier, too
    dropped: float | None = None  # share of decisions with an advantage that has no effect
    spread: float = 0.0  # standard deviation of the minibatch's advantages
    weight: float | None = None  # of an advantage of 1, at its own action's log-probability
    entropy_weight: float | None = None  # positive if the loss rewards entropy
    # Shares of the decisions with a value that differs from its target.
    value_flat: float | None = None  # no gradient
    value_away: float | None = None  # a gradient away from the target
    value_short: float | None = None  # no gradient after a tenth of the way
    value_linear: float | None = None  # the same gradient after nine tenths of the way
    value_astray: float | None = None  # a considerable gradient at the target itself
    target_elsewhere: bool | None = None  # a target moves other decisions' values more than its own


@dataclass
class Learning:
    """Record of the updates of one policy."""

    response: LossResponse = field(default_factory=LossResponse)
    progress: list[float] = field(default_factory=list)  # share of the planned env steps
    # Decisions in the loss, in an update's first epoch: action, log_prob, advantage, target
    rows: list[list[tuple[Array, ...]]] = field(default_factory=list)
    possible: list[float] = field(default_factory=list)  # actions with a probability in these rows
    stored: list[tuple[Array, Array]] = field(default_factory=list)  # action, log_prob, as played
    ratios: list[list[float]] = field(default_factory=list)  # largest |log ratio|, by minibatch
    softmax_twice: int = 0  # decisions of a minibatch with a softmax of probabilities; 0: not all
    norms: list[tuple[float, float, float, float]] = field(default_factory=list)
    """Gradient norms per step: actor before and after clipping, critic before and after."""
    missing: list[str] = field(default_factory=list)  # parameters that the optimizer does not have
    divergence: list[float] = field(default_factory=list)  # KL(before || after) of each update
    changed: list[float] = field(default_factory=list)  # largest change of a probability
    entropy: list[tuple[float, float]] = field(default_factory=list)  # share of log(legal actions)


def ask_loss(
    loss: Loss, minibatch: Minibatch, outputs: Outputs, settings: Any, logits: torch.Tensor
) -> LossResponse:
    """Measure the behavior of ``loss`` on a minibatch; ``logits`` [R, ...] are the actor's outputs.

    All measurements assume the first step of an update: old log-probabilities equal the new ones.
    """
    now = dataclasses.replace(minibatch, log_prob=outputs.log_prob.detach())

    def at_actor(**changes: Any) -> torch.Tensor:
        total = loss(dataclasses.replace(now, **changes), outputs, settings).total
        return _gradient(total, logits)

    try:
        of_policy, used = _of_policy(at_actor, now, outputs, logits)
        return LossResponse(**of_policy, **_of_values(loss, now, outputs, settings, used))
    except Exception:  # from the loss, which rejects the changed numbers
        return LossResponse()


def _gradient(total: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    """Return the gradient of ``total`` with respect to ``of`` [R, ...] as [R, D]; 0 if none."""
    gradient = None
    if total.requires_grad:
        (gradient,) = torch.autograd.grad(total, of, retain_graph=True, allow_unused=True)
    return (
        (torch.zeros_like(of) if gradient is None else gradient)
        .detach()
        .reshape(len(of), -1)
        .double()
    )


# --- The actor -----------------------------------------------------------------------------------


def _of_policy(
    at_actor: Callable[..., torch.Tensor], now: Minibatch, outputs: Outputs, logits: torch.Tensor
) -> tuple[dict[str, Any], torch.Tensor]:
    """Return the measurements of the actor, and the rows that the loss uses: bool [R]."""
    every_row = torch.ones(len(now), dtype=torch.bool, device=logits.device)
    likelier = _gradient(outputs.distribution.log_prob(now.action).sum(), logits)  # [R, D]
    size = likelier.square().sum(dim=1)  # [R] 0: the actor cannot change the action's probability
    spread = float(now.advantage.double().std(unbiased=False))
    movable = torch.nonzero(size > 1e-6).flatten()
    result: dict[str, Any] = {"spread": spread, "choice": bool((size > 0).any())}
    if not len(movable):
        return result, every_row
    step = spread if spread > 0 else 1.0
    middle = float(now.advantage.double().mean())
    effects, weights = [], []
    at = np.linspace(0, len(movable) - 1, TRIED).round().astype(int)
    for row in sorted(set(movable[torch.from_numpy(at)].tolist())):
        ends = []
        for sign in (1.0, -1.0):
            advantage = now.advantage.clone()
            advantage[row] = middle + sign * step
            ends.append(at_actor(advantage=advantage))
        moved = -((ends[0] - ends[1]) * likelier).sum(dim=1)[movable] / size[movable]
        own_effect = float(moved[movable == row]) / (2 * step) * len(now)
        largest, noise = float(moved.abs().max()), 1e-6 * float(ends[0].abs().max())
        weights.append(own_effect)
        if largest <= noise:
            effects.append("nothing")
        elif abs(float(moved[movable == row])) < (1 - 1e-3) * largest or _of_all(moved):
            effects.append("elsewhere")
        else:
            effects.append("own" if own_effect > 0 else "opposite")
    result["advantage"] = effects[0] if len(set(effects)) == 1 else _of_several(effects)
    result["weight"] = float(np.median(np.abs(weights)))
    used = _used(at_actor, now)
    result["dropped"] = dropped = float((~used[movable]).double().mean())
    partly = 0 < dropped < 1  # else the loss ignores advantages, and may still use the rows
    if partly:
        movable = movable[used[movable]]
    result["unsigned"] = _unsigned(at_actor, now, likelier, movable)
    result |= _of_old(at_actor, now, movable)
    return result | _of_entropy(at_actor, now, outputs, logits), used if partly else every_row


def _used(at_actor: Callable[..., torch.Tensor], now: Minibatch) -> torch.Tensor:
    """Return the rows with an advantage that changes their gradient: bool [R]."""
    good = torch.ones_like(now.advantage)
    good[::2] = 2.0  # unequal, because a loss may normalize them
    change = (at_actor(advantage=good) - at_actor(advantage=-good)).abs().amax(dim=1)
    return change > 1e-6 * change.max()


def _unsigned(
    at_actor: Callable[..., torch.Tensor],
    now: Minibatch,
    likelier: torch.Tensor,
    movable: torch.Tensor,
) -> bool | None:
    """Return True if negative advantages make their actions likelier, as positive ones do."""
    signs = torch.ones_like(now.advantage)
    signs[movable[::2]] = -1.0
    change = at_actor(advantage=signs) - at_actor(advantage=torch.zeros_like(signs))
    moved = -(change * likelier).sum(dim=1)
    negative, positive = moved[movable[::2]], moved[movable[1::2]]
    if len(movable) < 4 or not torch.isfinite(moved).all():
        return None
    least = 1e-3 * float(moved.abs().max())
    return bool(
        (negative > least).double().mean() > 0.9 and (positive > least).double().mean() > 0.9
    )


def _of_all(moved: torch.Tensor) -> bool:
    """Return True if most rows moved about as far as the farthest: a sign of broadcasting."""
    return len(moved) > 3 and bool(moved.abs().median() > 0.5 * moved.abs().max())


def _of_several(effects: list[str]) -> str | None:
    """Combine the results of rows that disagree; a single outlier may be chance."""
    if effects.count("elsewhere") * 2 >= len(effects):
        return "elsewhere"
    return "own" if "opposite" not in effects and "own" in effects else None


def _of_old(
    at_actor: Callable[..., torch.Tensor], now: Minibatch, movable: torch.Tensor
) -> dict[str, Any]:
    good = torch.ones_like(now.advantage)
    good[::2] = 2.0  # unequal, because a loss may normalize them
    gradients = at_actor(advantage=good)
    farther = at_actor(advantage=good, log_prob=now.log_prob - 0.1)
    near = at_actor(advantage=good, log_prob=now.log_prob - 0.01)
    largest = float(gradients.abs().max())
    if not largest > 0:
        return {}
    lost = near[movable].abs().amax(dim=1) <= 1e-6 * gradients[movable].abs().amax(dim=1)
    return {
        "old_log_prob": bool((farther - gradients).abs().max() > 1e-5 * largest),
        "tight": bool(lost.double().mean() > 0.4),
        "off_one": _taken_for_clipped(at_actor, now, movable),
    }


def _taken_for_clipped(
    at_actor: Callable[..., torch.Tensor], now: Minibatch, movable: torch.Tensor
) -> float:
    """Return the share of decisions that the loss clips although all ratios are 1.

    Such a decision has no gradient at a ratio of 1 but has one after a large shift of the old
    log-probability.
    """
    signs = torch.ones_like(now.advantage)
    signs[::2] = -1.0
    largest = 0.0
    for advantage, shift in ((signs, -1.0), (-signs, -1.0), (signs, 1.0), (-signs, 1.0)):
        sizes = [
            at_actor(advantage=advantage, log_prob=now.log_prob + shift * far).abs().amax(dim=1)
            for far in (0.0, 1.0, 3.0, 6.0)
        ]
        lost = sizes[0] <= 1e-6 * sizes[0].max()
        back = torch.stack(sizes[1:]).amax(dim=0) > 1e-6 * sizes[0].max()
        # Count only decisions with an advantage of this sign, about half of all.
        rows = movable[advantage[movable] < 0] if shift < 0 else movable[advantage[movable] > 0]
        if len(rows):
            largest = max(largest, float((lost & back)[rows].double().mean()))
    return largest


def _of_entropy(
    at_actor: Callable[..., torch.Tensor], now: Minibatch, outputs: Outputs, logits: torch.Tensor
) -> dict[str, Any]:
    """Return the weight of the entropy, from the gradient without advantages."""
    remaining = at_actor(advantage=torch.zeros_like(now.advantage))
    wider = _gradient(outputs.distribution.entropy().mean(), logits)
    size, both = float(wider.square().sum()), float((remaining * wider).sum())
    if not size > 0 or not torch.isfinite(remaining).all():
        return {}
    if float(remaining.abs().max()) <= 1e-7 / len(now):  # rounding error
        return {"entropy_weight": 0.0}
    likeness = both / np.sqrt(size * float(remaining.square().sum()))
    return {"entropy_weight": -both / size} if abs(likeness) > 0.9 else {}


# --- The critic ----------------------------------------------------------------------------------


def _of_values(
    loss: Loss, now: Minibatch, outputs: Outputs, settings: Any, used: torch.Tensor
) -> dict[str, Any]:
    """Return the measurements of the critic at the rows that the loss uses, bool [R]."""
    old, target = now.old_value.detach(), now.value_target

    def slope(share: float, target: torch.Tensor = target) -> torch.Tensor:
        """Return the gradient [R] at values moved by ``share`` of the way to their targets."""
        value = (old + share * (now.value_target - old)).detach().requires_grad_()
        changed = dataclasses.replace(now, value_target=target)
        shifted = Outputs(outputs.distribution, outputs.log_prob, value)
        return _gradient(loss(changed, shifted, settings).total, value)[:, 0]

    gap = (target - old).double()
    off = gap.abs() > 0.05 * float(target.double().std(unbiased=False)) + 1e-6
    off &= used
    if len(now) < 2 or not off.any():
        return {}
    at_value, near, far, reached = slope(0.0), slope(0.1), slope(0.9), slope(1.0)
    none = 1e-9 * max(1e-3, float(at_value.abs().max()))
    with_gradient = off & (at_value.abs() > none)
    result: dict[str, Any] = {"value_flat": float((at_value.abs() <= none)[off].double().mean())}
    if not with_gradient.any():
        return result
    row = int(torch.nonzero(with_gradient).flatten()[0])
    raised = target.clone()
    raised[row] += float(target.double().std(unbiased=False)) + 1e-3
    moved = (slope(0.0, raised) - at_value).abs()
    typical = at_value[off].abs().median()
    return result | {
        "value_away": float((at_value * gap > 0)[with_gradient].double().mean()),
        "value_short": float((near.abs() <= none)[with_gradient].double().mean()),
        "value_linear": float(
            ((far - at_value).abs() < 0.02 * at_value.abs())[with_gradient].double().mean()
        ),
        "value_astray": float((reached.abs() > 0.2 * typical)[off].double().mean()),
        "target_elsewhere": bool(moved.sum() - moved[row] > moved[row])
        if float(moved.sum()) > none
        else None,
    }


def weights_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a copy of the parameters."""
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}


def moved_from(before: dict[str, torch.Tensor], module: torch.nn.Module) -> dict[str, float]:
    """Return the largest change of each parameter."""
    after = weights_of(module)
    return {name: float((after[name] - old).abs().max()) for name, old in before.items()}


def legal_entropy(minibatch: Any, outputs: Outputs) -> float | None:
    """Return the mean entropy of the legal actions; None for distributions without logits."""
    logits = logits_of(outputs.distribution)
    if logits is None:
        return None
    with torch.no_grad():
        chances = torch.where(minibatch.mask, logits, -torch.inf).double().softmax(dim=-1)
        return float(-(chances * chances.clamp(min=1e-300).log()).sum(dim=-1).mean())


def mean_log_legal(mask: torch.Tensor) -> float | None:
    """Return the mean of log(legal actions) of masks [R, A]; None for continuous actions."""
    if not mask.shape[-1]:
        return None
    return float(mask.sum(dim=-1).clamp(min=1).double().log().mean())


def softmax_twice(outputs: torch.Tensor, distribution: Any, mask: torch.Tensor) -> bool:
    """Return True if the ``distribution`` is, in every row, a softmax of probabilities.

    ``outputs`` [R, A] are the actor's. They are probabilities themselves, or the distribution
    differs from their softmax and equals that of their probabilities.
    """
    logits = logits_of(distribution)
    if logits is None or logits.shape != outputs.shape or not len(logits):
        return False
    with torch.no_grad():
        probabilities = outputs.double()
        if bool((probabilities >= 0).all()) and _close(probabilities.sum(dim=1), 1.0):
            return bool((probabilities > 1e-9).any(dim=0).all())
        legal = [outputs.double().masked_fill(~item, -torch.inf) for item in (mask, mask | True)]
        once, whole = (item.softmax(dim=1) for item in legal)
        played = logits.double().masked_fill(~mask, -torch.inf).softmax(dim=1)
        twice = [item.masked_fill(~mask, -torch.inf).softmax(dim=1) for item in (once, whole)]
        return not _close(played, once) and any(_close(played, item) for item in twice)


def logits_of(distribution: Any) -> torch.Tensor | None:
    """Return the logits of a distribution; None if it has none."""
    logits = getattr(distribution, "logits", None)
    return logits if isinstance(logits, torch.Tensor) else None


def _close(values: torch.Tensor, others: Any) -> bool:
    return bool((values - others).abs().max() < 1e-5)
