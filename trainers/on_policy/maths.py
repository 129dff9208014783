"""The mathematics of proximal policy optimization, as pure functions.

Axis 0 is time with T steps; C are columns, one per environment copy and agent. Discounting counts
an agent's own decisions: gamma and lambda apply once per decision, however many env steps lie
between two decisions.
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
    """Return generalized advantages of the agents' decisions: float32 [T, C]; 0 for other steps.

    If all agents act in every step, this is equation 16 of Schulman et al., High-Dimensional
    Continuous Control Using Generalized Advantage Estimation (2016):
    A_t = delta_t + gamma lambda A_{t+1}, delta_t = r_t + gamma V_{t+1} - V_t. In general t and t+1
    are two successive decisions of the agent, and r_t is the undiscounted sum of its rewards from
    the first decision up to the second.

    | argument | |
    |---|---|
    | ``reward`` | [T, C] reward of step t |
    | ``value`` | [T, C] V of the observation before step t; used only if the agent acted |
    | ``acted`` | bool [T, C] True if step t was a decision of the agent |
    | ``ended`` | bool [T, C] True if its episode ended in step t, terminated or truncated |
    | ``final_obs_value`` | [T, C] if ended: 0 if terminated, V(final obs) if truncated |
    | ``bootstrap_value`` | [C] V of the observation after the last step |
    | ``valid`` | bool [T, C] decisions selected by ``valid_decisions``; None: all |

    Rewards before an agent's first decision of an episode are ignored, and so are rewards for a
    decision in the previous rollout. A decision that is not ``valid`` has advantage 0, and the
    advantages of earlier decisions stop there. Raises ValueError if shapes differ.
    """
    _require_shapes(
        reward=reward, value=value, acted=acted, ended=ended, final_obs_value=final_obs_value
    )
    if reward.ndim != 2 or bootstrap_value.shape != reward.shape[1:]:
        raise ValueError(
            f"reward is {reward.shape}, bootstrap_value {bootstrap_value.shape}; "
            "expected [T, C] and [C]"
        )
    advantage = np.zeros(reward.shape, dtype=np.float32)
    # rewards that this backward pass has not yet assigned to a decision
    pending = np.zeros(bootstrap_value.shape)
    next_value = bootstrap_value.astype(np.float64)
    next_advantage = np.zeros(bootstrap_value.shape)
    for t in range(len(reward) - 1, -1, -1):
        if ended[t].any():
            # Later rewards belong to the next episode, in which the agent has not acted yet.
            pending = np.where(ended[t], 0.0, pending)
            next_value = np.where(ended[t], final_obs_value[t], next_value)
            next_advantage = np.where(ended[t], 0.0, next_advantage)
        pending = pending + reward[t]
        delta = pending + gamma * next_value - value[t]
        estimate = delta + gamma * gae_lambda * next_advantage
        if valid is not None:
            estimate = np.where(valid[t], estimate, 0.0)
        if acted[t].all():
            pending, next_value, next_advantage = np.zeros_like(pending), value[t], estimate
            advantage[t] = estimate
        else:
            pending = np.where(acted[t], 0.0, pending)
            next_value = np.where(acted[t], value[t], next_value)
            next_advantage = np.where(acted[t], estimate, next_advantage)
            advantage[t] = np.where(acted[t], estimate, 0.0)
    return advantage


def valid_decisions(*, acted: Array, ended: Array, acts_next: Array) -> Array:
    """Return the decisions with a complete outcome in the rollout: bool [T, C].

    A decision is valid if the agent decides again later (``acted`` [T, C]), if its episode ends
    (``ended`` [T, C]), or if the agent acts next at the end of the rollout (``acts_next`` [C]).
    Otherwise other agents still move, and its reward may be incomplete. The critic is not trained
    on the observation at that point, and discounting would count a step that is not a decision.
    """
    _require_shapes(acted=acted, ended=ended)
    valid = np.zeros(acted.shape, dtype=bool)
    known_outcome = np.asarray(acts_next, dtype=bool)
    for t in range(len(acted) - 1, -1, -1):
        known_outcome = known_outcome | ended[t]
        valid[t] = acted[t] & known_outcome
        known_outcome = known_outcome | acted[t]
    return valid


def normalized(advantage: Array) -> Array:
    """Return ``advantage`` [R] with mean 0 and standard deviation 1; all 0 if all are equal.

    Differences within rounding error count as equal.
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
    """Return the policy loss of each decision [R], with the ratio r = exp(``log_ratio``).

    -min(r A, clip(r, 1 - clip_range, 1 + clip_range) A), the negative of equation 7 of Schulman et
    al., Proximal Policy Optimization Algorithms (2017). Raises ValueError if shapes differ.
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
    """Return the loss of each predicted ``value`` [R]: 0.5 e^2 with e = ``value`` - ``target``.

    With ``huber_delta`` d, the loss is d (abs(e) - d / 2) for abs(e) > d, after Huber (1964). With
    ``clip_range``, it is the maximum of two losses: of ``value``, and of ``value`` clipped to
    within ``clip_range`` of ``old_value``, the prediction before the update. See Yu et al. (The
    Surprising Effectiveness of PPO in Cooperative Multi-Agent Games, 2022, appendix). Raises
    ValueError if shapes differ, or ``old_value`` is missing.
    """
    _require_shapes(value=value, target=target)

    def loss(predicted: torch.Tensor) -> torch.Tensor:
        if huber_delta is None:
            return 0.5 * (predicted - target).square()
        huber: torch.Tensor = nn.functional.huber_loss(
            predicted, target, reduction="none", delta=huber_delta
        )
        return huber

    if clip_range is None:
        return loss(value)
    if old_value is None:
        raise ValueError("clip_range needs old_value=, the values predicted before the update")
    _require_shapes(value=value, old_value=old_value)
    near = old_value + (value - old_value).clamp(-clip_range, clip_range)
    return torch.max(loss(value), loss(near))


def clip_gradient(parameters: Sequence[nn.Parameter], max_norm: float) -> torch.Tensor:
    """Scale the gradients of ``parameters`` to a common norm of at most ``max_norm``.

    Returns their norm before scaling. Same as ``nn.utils.clip_grad_norm_``, without grouping the
    tensors by device and dtype.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:  # the loss does not depend on these parameters
        return torch.zeros(())
    norms = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])
    norm: torch.Tensor = torch.linalg.vector_norm(norms)
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(scale)
    return norm


def kl_estimate(log_ratio: torch.Tensor) -> torch.Tensor:
    """Return r - 1 - log r >= 0 for each decision [R], with r = exp(``log_ratio``) = new / old.

    Its mean over decisions of the old policy is an unbiased, low-variance estimate of
    KL(old || new); its gradient is unbiased as well (Schulman, Approximating KL Divergence, 2020).
    """
    # expm1, because r - 1 loses all digits of small changes.
    return torch.expm1(log_ratio) - log_ratio


def explained_variance(prediction: Array, target: Array) -> float:
    """Return 1 - Var(target - prediction) / Var(target): at most 1; 0 for a constant prediction.

    A constant target also gives 0. Raises ValueError if shapes differ.
    """
    _require_shapes(prediction=prediction, target=target)
    spread = float(np.var(target, dtype=np.float64)) if target.size else 0.0
    if spread <= 1e-12 * float(np.square(target, dtype=np.float64).max(initial=0.0)):
        return 0.0
    return 1.0 - float(np.var(target - prediction, dtype=np.float64)) / spread


def adapted_penalty(coefficient: float, divergence: float, target: float) -> float:
    """Return the weight of the KL penalty for the next update: section 4 of Schulman et al. (2017).

    The weight doubles if ``divergence`` > 1.5 ``target``, and halves if it is < ``target`` / 1.5.
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
        raise ValueError(f"{listed}: expected equal shapes")
