"""The mathematics of proximal policy optimization, as pure functions.

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
    "clip_gradient",
    "clipped_surrogate",
    "explained_variance",
    "gae",
    "kl_estimate",
    "normalized",
    "valid_decisions",
    "value_loss",
]


def gae(
    *,
    reward: Array,
    value: Array,
    acted: Array,
    ended: Array,
    final_obs_value: Array,
    bootstrap_value: Array,
    gamma: float,
    gae_lambda: float,
    valid: Array | None = None,
) -> Array:
    """Return generalized advantages of each agent's own decisions: float32 [T, C], else 0.

    Where all act in every step this is equation 16 of Schulman et al., High-Dimensional Continuous
    Control Using Generalized Advantage Estimation (2016):
    A_t = delta_t + gamma lambda A_{t+1}, delta_t = r_t + gamma V_{t+1} - V_t. In general t and t+1
    are two successive decisions of the agent, and r_t sums, undiscounted, its rewards from the
    first up to the second.

    | argument | |
    |---|---|
    | ``reward`` | [T, C] of step t |
    | ``value`` | [T, C] V of the observation before step t; counts where the agent acted |
    | ``acted`` | bool [T, C] whether step t was its decision |
    | ``ended`` | bool [T, C] whether its episode ended in step t, by the rules or the time limit |
    | ``final_obs_value`` | [T, C] where it ended: 0 by the rules, V(final obs) by the limit |
    | ``bootstrap_value`` | [C] V of the observation after the last step |
    | ``valid`` | bool [T, C] of the decisions, those that ``valid_decisions`` finds; None: all |

    A reward before an agent's first decision of an episode, or for a decision of the rollout
    before, is in no advantage. A decision that is not ``valid`` has advantage 0, and those before
    it look no further. Raises ValueError where shapes differ.
    """
    _require_shapes(
        reward=reward, value=value, acted=acted, ended=ended, final_obs_value=final_obs_value
    )
    if reward.ndim != 2 or bootstrap_value.shape != reward.shape[1:]:
        raise ValueError(
            f"reward is {reward.shape}, bootstrap_value {bootstrap_value.shape}; "
            "give [T, C] and [C]"
        )
    advantage = np.zeros(reward.shape, dtype=np.float32)
    pending = np.zeros(bootstrap_value.shape)  # rewards since the decision that is still to come
    next_value = bootstrap_value.astype(np.float64)
    next_advantage = np.zeros(bootstrap_value.shape)
    for t in range(len(reward) - 1, -1, -1):
        if ended[t].any():
            # Later rewards belong to the next episode, in which it did not act yet.
            pending = np.where(ended[t], 0.0, pending)
            next_value = np.where(ended[t], final_obs_value[t], next_value)
            next_advantage = np.where(ended[t], 0.0, next_advantage)
        pending = pending + reward[t]
        delta = pending + gamma * next_value - value[t]
        here = delta + gamma * gae_lambda * next_advantage
        if valid is not None:
            here = np.where(valid[t], here, 0.0)
        if acted[t].all():
            pending, next_value, next_advantage = np.zeros_like(pending), value[t], here
            advantage[t] = here
        else:
            pending = np.where(acted[t], 0.0, pending)
            next_value = np.where(acted[t], value[t], next_value)
            next_advantage = np.where(acted[t], here, next_advantage)
            advantage[t] = np.where(acted[t], here, 0.0)
    return advantage


def valid_decisions(*, acted: Array, ended: Array, acts_next: Array) -> Array:
    """Return the decisions whose outcome is in the rollout: bool [T, C].

    After it the agent decides again (``acted`` [T, C]), its episode ends (``ended`` [T, C]), or it
    is to decide where the rollout stops (``acts_next`` [C]). Else others still move, and its reward
    may be to come: its observation there is no state that a critic learns about, and to discount to
    it would count a step of an agent's time that is none.
    """
    _require_shapes(acted=acted, ended=ended)
    found = np.zeros(acted.shape, dtype=bool)
    sure = np.asarray(acts_next, dtype=bool)
    for t in range(len(acted) - 1, -1, -1):
        sure = sure | ended[t]
        found[t] = acted[t] & sure
        sure = sure | acted[t]
    return found


def normalized(advantage: Array) -> Array:
    """Return ``advantage`` [R] with mean 0 and standard deviation 1; all 0 where they are equal.

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
    """Return the loss of each decision [R], with the ratio r = exp(``log_ratio``).

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
    old_value: torch.Tensor | None = None,
    clip_range: float | None = None,
) -> torch.Tensor:
    """Return the loss of each predicted ``value`` [R]: 0.5 e^2, e = ``value`` - ``target``.

    With ``huber_delta`` d, where abs(e) > d: d (abs(e) - d / 2), after Huber (1964). With
    ``clip_range``, the larger of the losses of ``value`` and of ``value`` kept within that of what
    was predicted before the update, ``old_value``, as Yu et al. do it (The Surprising Effectiveness
    of PPO in Cooperative Multi-Agent Games, 2022, appendix). Raises ValueError where shapes differ,
    or ``old_value`` is missing.
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
    if old_value is None:
        raise ValueError("clip_range needs old_value=, the values predicted before the update")
    _require_shapes(value=value, old_value=old_value)
    near = old_value + (value - old_value).clamp(-clip_range, clip_range)
    return torch.max(loss(value), loss(near))


def clip_gradient(parameters: Sequence[nn.Parameter], max_norm: float) -> torch.Tensor:
    """Scale the gradients of ``parameters`` to a common norm of at most ``max_norm``.

    Returns their norm before. The same as ``nn.utils.clip_grad_norm_``, without its grouping of
    tensors by device and dtype.
    """
    gradients = [each.grad for each in parameters if each.grad is not None]
    if not gradients:  # no term of the loss hangs on them
        return torch.zeros(())
    norms = torch.stack([torch.linalg.vector_norm(each) for each in gradients])
    norm: torch.Tensor = torch.linalg.vector_norm(norms)
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(scale)
    return norm


def kl_estimate(log_ratio: torch.Tensor) -> torch.Tensor:
    """Return r - 1 - log r >= 0 of each decision [R]: r = exp(``log_ratio``) = new / old.

    Its mean over decisions of the old policy is an unbiased estimate of KL(old || new) of little
    variance, and so is its gradient (Schulman, Approximating KL Divergence, 2020).
    """
    # expm1, since r - 1 loses all digits of small changes.
    return torch.expm1(log_ratio) - log_ratio


def explained_variance(prediction: Array, target: Array) -> float:
    """Return 1 - Var(target - prediction) / Var(target): at most 1; 0 for a constant prediction.

    Where the target does not vary it says nothing, and is 0. Raises ValueError where shapes differ.
    """
    _require_shapes(prediction=prediction, target=target)
    spread = float(np.var(target, dtype=np.float64)) if target.size else 0.0
    if spread <= 1e-12 * float(np.square(target, dtype=np.float64).max(initial=0.0)):
        return 0.0
    return 1.0 - float(np.var(target - prediction, dtype=np.float64)) / spread


def adapted_penalty(coefficient: float, divergence: float, target: float) -> float:
    """Return the weight of the KL penalty for the next update: section 4 of Schulman et al. (2017).

    Doubled where ``divergence`` exceeded 1.5 times the ``target``, halved below target / 1.5.
    """
    if divergence > 1.5 * target:
        return min(2.0 * coefficient, 1e6)
    if divergence < target / 1.5:
        return max(0.5 * coefficient, 1e-6)
    return coefficient


def _require_shapes(**arrays: Array | torch.Tensor) -> None:
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"{listed}: give arrays of one shape")
