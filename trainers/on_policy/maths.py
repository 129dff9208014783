"""The mathematics of proximal policy optimisation, as pure functions.

Time runs along the first axis, T steps; C are columns, a copy's agent each. An agent's time is its
own decisions: gamma and lambda apply once per decision, whatever happens between two of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from corral.envs.core import Array

__all__ = [
    "adapted_penalty",
    "clipped_surrogate",
    "explained_variance",
    "gae",
    "kl_estimate",
    "linear",
    "normalized",
    "settled",
    "shorten_gradient",
    "value_loss",
]


def gae(
    *,
    reward: Array,
    value: Array,
    acted: Array,
    ended: Array,
    final_value: Array,
    last_value: Array,
    gamma: float,
    gae_lambda: float,
    known: Array | None = None,
) -> Array:
    """Generalised advantages of each agent's own decisions: float32 [T, C], 0 where none was made.

    Where all act in every step this is equation 16 of Schulman et al., High-Dimensional Continuous
    Control Using Generalized Advantage Estimation (2016):
    A_t = delta_t + gamma lambda A_{t+1}, delta_t = r_t + gamma V_{t+1} - V_t. In general t and t+1
    are two successive decisions of the agent, and r_t sums, undiscounted, all it is paid from the
    first up to the second.

    | argument | |
    |---|---|
    | ``reward`` | [T, C] paid in step t |
    | ``value`` | [T, C] V of what the agent saw before step t; counts where it acted |
    | ``acted`` | bool [T, C] whether step t was its decision |
    | ``ended`` | bool [T, C] whether its episode ended in step t, by the rules or the time limit |
    | ``final_value`` | [T, C] where it ended: 0 by the rules, V(final observation) by the limit |
    | ``last_value`` | [C] V of what it sees after the last step |
    | ``known`` | bool [T, C] of the decisions, those that ``settled`` finds; None: all |

    What is paid before an agent's first decision of an episode, and what is paid in this rollout
    for a decision of the one before, is in no advantage. A decision that is not ``known`` has
    advantage 0, and those before it look no further. Raises ValueError where shapes differ.
    """
    _require_shapes(reward=reward, value=value, acted=acted, ended=ended, final_value=final_value)
    if reward.ndim != 2 or last_value.shape != reward.shape[1:]:
        raise ValueError(
            f"reward is {reward.shape}, last_value {last_value.shape}; give [T, C] and [C]"
        )
    advantage = np.zeros(reward.shape, dtype=np.float32)
    pending = np.zeros(last_value.shape)  # paid since the decision that is still to come
    next_value = last_value.astype(np.float64)
    next_advantage = np.zeros(last_value.shape)
    for t in range(len(reward) - 1, -1, -1):
        if ended[t].any():
            # What was paid later belongs to the next episode, in which it did not act yet.
            pending = np.where(ended[t], 0.0, pending)
            next_value = np.where(ended[t], final_value[t], next_value)
            next_advantage = np.where(ended[t], 0.0, next_advantage)
        pending = pending + reward[t]
        delta = pending + gamma * next_value - value[t]
        here = delta + gamma * gae_lambda * next_advantage
        if known is not None:
            here = np.where(known[t], here, 0.0)
        if acted[t].all():
            pending, next_value, next_advantage = np.zeros_like(pending), value[t], here
            advantage[t] = here
        else:
            pending = np.where(acted[t], 0.0, pending)
            next_value = np.where(acted[t], value[t], next_value)
            next_advantage = np.where(acted[t], here, next_advantage)
            advantage[t] = np.where(acted[t], here, 0.0)
    return advantage


def settled(*, acted: Array, ended: Array, last_acts: Array) -> Array:
    """The decisions whose outcome the rollout shows: bool [T, C].

    After it the agent decides again (``acted`` [T, C]), its episode ends (``ended`` [T, C]), or it
    is to decide where the rollout stops (``last_acts`` [C]). Else others still move, and its reward
    may be to come: what it sees there is no state that a critic learns about, and to discount to
    it would count a step of an agent's time that is none.
    """
    _require_shapes(acted=acted, ended=ended)
    found = np.zeros(acted.shape, dtype=bool)
    sure = np.asarray(last_acts, dtype=bool)
    for t in range(len(acted) - 1, -1, -1):
        sure = sure | ended[t]
        found[t] = acted[t] & sure
        sure = sure | acted[t]
    return found


def normalized(advantage: Array) -> Array:
    """``advantage`` [R] with mean 0 and standard deviation 1; all 0 where they are equal.

    A difference that rounding could have made counts as none.
    """
    if not len(advantage):
        return advantage
    wide = advantage.astype(np.float64)
    centered = wide - wide.mean()
    spread = centered.std()
    if spread <= 1e-6 * np.abs(wide).max():
        return np.zeros_like(advantage)
    scaled: Array = (centered / spread).astype(advantage.dtype)
    return scaled


def clipped_surrogate(
    log_ratio: torch.Tensor, advantage: torch.Tensor, clip_range: float
) -> torch.Tensor:
    """The loss of each decision [R], with the ratio r = exp(``log_ratio``).

    -min(r A, clip(r, 1 - clip_range, 1 + clip_range) A), the negative of equation 7 of Schulman et
    al., Proximal Policy Optimization Algorithms (2017). Raises ValueError where shapes differ.
    """
    _require_shapes(log_ratio=log_ratio, advantage=advantage)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
    return -torch.min(ratio * advantage, clipped * advantage)


def value_loss(
    value: torch.Tensor,
    target: torch.Tensor,
    *,
    huber_delta: float | None = None,
    before: torch.Tensor | None = None,
    clip_range: float | None = None,
) -> torch.Tensor:
    """The loss of each predicted ``value`` [R]: 0.5 e^2, e = ``value`` - ``target``.

    With ``huber_delta`` d, where abs(e) > d: d (abs(e) - d / 2), after Huber (1964). With
    ``clip_range``, the larger of the losses of ``value`` and of ``value`` kept within that of what
    was predicted ``before`` the update, as Yu et al. do it (The Surprising Effectiveness of PPO in
    Cooperative Multi-Agent Games, 2022, appendix). Raises ValueError where shapes differ, or one of
    the last two is missing.
    """
    _require_shapes(value=value, target=target)

    def loss(predicted: torch.Tensor) -> torch.Tensor:
        if huber_delta is None:
            return 0.5 * (predicted - target).square()
        found: torch.Tensor = nn.functional.huber_loss(
            predicted, target, reduction="none", delta=huber_delta
        )
        return found

    if clip_range is None:
        return loss(value)
    if before is None:
        raise ValueError("clip_range needs before=, the values predicted before the update")
    _require_shapes(value=value, before=before)
    near = before + (value - before).clamp(-clip_range, clip_range)
    return torch.max(loss(value), loss(near))


def shorten_gradient(parameters: Sequence[nn.Parameter], longest: float) -> torch.Tensor:
    """Scale the gradients of ``parameters`` to a common norm of at most ``longest``.

    Returns their norm before. What ``nn.utils.clip_grad_norm_`` does, without its grouping of
    tensors by device and dtype.
    """
    gradients = [each.grad for each in parameters if each.grad is not None]
    lengths = torch.stack([torch.linalg.vector_norm(each) for each in gradients])
    norm: torch.Tensor = torch.linalg.vector_norm(lengths)
    scale = (longest / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(scale)
    return norm


def kl_estimate(log_ratio: torch.Tensor) -> torch.Tensor:
    """Of each decision [R]: r - 1 - log r >= 0, r = exp(``log_ratio``) = new / old probability.

    Its mean over decisions of the old policy is an unbiased estimate of KL(old || new) of little
    variance, and so is its gradient (Schulman, Approximating KL Divergence, 2020).
    """
    # expm1, since r - 1 loses all digits of small changes.
    return torch.expm1(log_ratio) - log_ratio


def explained_variance(prediction: Array, target: Array) -> float:
    """1 - Var(target - prediction) / Var(target); at most 1, and 0 for a constant prediction.

    Where the target does not vary it says nothing, and is 0. Raises ValueError where shapes differ.
    """
    _require_shapes(prediction=prediction, target=target)
    spread = float(np.var(target, dtype=np.float64)) if target.size else 0.0
    if spread <= 1e-12 * float(np.square(target, dtype=np.float64).max(initial=0.0)):
        return 0.0
    return 1.0 - float(np.var(target - prediction, dtype=np.float64)) / spread


def adapted_penalty(coefficient: float, divergence: float, target: float) -> float:
    """The weight of the KL penalty for the next update: section 4 of Schulman et al. (2017).

    Doubled where ``divergence`` exceeded 1.5 times the ``target``, halved below target / 1.5.
    """
    if divergence > 1.5 * target:
        return min(2.0 * coefficient, 1e6)
    if divergence < target / 1.5:
        return max(0.5 * coefficient, 1e-6)
    return coefficient


def linear(begin: float, end: float, progress: float) -> float:
    """From ``begin`` at ``progress`` 0 to ``end`` at 1, and no further."""
    return begin + (end - begin) * min(max(progress, 0.0), 1.0)


def _require_shapes(**arrays: Array | torch.Tensor) -> None:
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    if len(set(shapes.values())) > 1:
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"{told}: give arrays of one shape")
