"""Values on the scale that a critic learns best: mean 0 and standard deviation 1."""

from __future__ import annotations

import math

import torch
from torch import nn

__all__ = ["ValueNorm"]

SMALLEST_VARIANCE = 1e-8
"""Below it, returns count as constant."""


class ValueNorm(nn.Module):
    """A running mean and variance of returns, without the bias of its beginning.

    m <- d m + (1 - d) mean(batch), the same for squares and for the weight w of what was seen (1
    each time); the mean is m / w. This is ValueNorm of Yu et al. (The Surprising Effectiveness of
    PPO in Cooperative Multi-Agent Games, 2022), and Adam's correction of bias. The sums are
    float64, and part of the ``state_dict``. Before the first ``update`` nothing is scaled.
    """

    total: torch.Tensor
    squares: torch.Tensor
    weight: torch.Tensor

    def __init__(self, decay: float = 0.99, enabled: bool = True) -> None:
        super().__init__()
        self.decay = decay
        self.enabled = enabled
        for name in ("total", "squares", "weight"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    @property
    def mean(self) -> float:
        return float(self.total / self.weight) if self._used else 0.0

    @property
    def scale(self) -> float:
        """The standard deviation."""
        if not self._used:
            return 1.0
        variance = float(self.squares / self.weight) - self.mean**2
        return math.sqrt(max(variance, SMALLEST_VARIANCE, 1e-12 * self.mean**2))

    def update(self, returns: torch.Tensor) -> None:
        """Take in ``returns`` [R]; an empty batch changes nothing."""
        if not self.enabled or not returns.numel():
            return
        wide = returns.detach().to(torch.float64)
        for kept, new in (
            (self.total, wide.mean()),
            (self.squares, wide.square().mean()),
            (self.weight, torch.ones((), dtype=torch.float64)),
        ):
            kept.mul_(self.decay).add_(new.to(kept.device), alpha=1 - self.decay)

    def normalize(self, returns: torch.Tensor) -> torch.Tensor:
        """From the environment's scale to the critic's."""
        return (returns - self.mean) / self.scale

    def restore(self, values: torch.Tensor) -> torch.Tensor:
        """From the critic's scale to the environment's."""
        return values * self.scale + self.mean

    @property
    def _used(self) -> bool:
        return self.enabled and float(self.weight) > 0
