"""Distributions over actions, and the masking of logits in torch. Requires only torch.

    logits = torch.tensor([[0.0, 5.0, 1.0]])
    policy = MaskedCategorical(logits, torch.tensor([[True, False, True]]))
    action = policy.sample()  # 0 or 2, never 1

The logit of a masked action is -inf. With the usual -1e8, a legal logit of -2e8 would be less
probable than a masked action, and a row without legal actions would silently become uniform.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch

from corral.adapters.spaces import ActionCodec
from corral.envs.core import Array
from corral.errors import MaskError, NonFiniteError

__all__ = [
    "Distribution",
    "Gaussian",
    "MaskedCategorical",
    "MultiCategorical",
    "likeliest",
    "make_distribution",
    "masked_logits",
]

Generator = torch.Generator | None


class Distribution(Protocol):
    """A distribution of actions [R, ...], in the form that an ActionCodec stores."""

    @property
    def mode(self) -> torch.Tensor: ...

    def sample(self, generator: Generator = None) -> torch.Tensor: ...

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Return the log-probabilities of ``actions`` [R, ...]: float32 [R]."""
        ...

    def entropy(self) -> torch.Tensor:
        """Return the entropies over legal actions, in nats: float32 [R]."""
        ...

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        """The parameters of the distribution, detached: named tensors [R, ...]."""
        ...

    def kl_from(self, old: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return KL(old || this), in nats, float32 [R]. ``old`` are the ``parameters`` of a
        distribution with the same masks."""
        ...

    def kl_to(self, other: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return KL(this || other), float32 [R], without a gradient for ``other``.

        ``other`` are the ``parameters`` of a distribution with the same masks.
        """
        ...

    def __getitem__(self, row: int) -> Distribution:
        """Return the distribution of one row, without its axis."""
        ...


# --- Masks ---------------------------------------------------------------------------------------


def masked_logits(
    logits: torch.Tensor, mask: torch.Tensor, *, finite: bool = False
) -> torch.Tensor:
    """Return ``logits`` [..., A] with -inf for actions with ``mask`` [..., A] 0.

    With ``finite``, masked logits are the lowest float instead of -inf. This is for libraries that
    compute a KL divergence without masks, because -inf minus -inf is NaN. Probabilities of masked
    actions are still exactly 0. Sampling, the mode, log-probabilities of legal actions, entropy and
    divergence depend only on the legal actions, with finite gradients.

    Rows without a legal action stay unchanged, because no agent acts there. Learners that include
    these rows in batches need finite numbers. (RLlib leaves them out of its loss, and DQN
    multiplies them by 0.)
    """
    legal = mask != 0
    legal = legal | ~legal.any(dim=-1, keepdim=True)
    return logits.masked_fill(~legal, torch.finfo(logits.dtype).min if finite else -torch.inf)


def likeliest(logits: torch.Tensor, mask: torch.Tensor) -> Array:
    """Return the ``mode`` of ``MaskedCategorical(logits, mask)`` as int64 NumPy [...].

    This is fast, for play that needs no probabilities. Rows without a legal action give 0.
    """
    masked = logits.detach().masked_fill(~mask, -torch.inf)
    if masked.device.type != "cpu":
        return np.asarray(masked.argmax(dim=-1).cpu().numpy())
    return np.asarray(masked.numpy().argmax(axis=-1))  # several times faster than in torch


class MaskedCategorical:
    """Categorical distributions with ``logits`` float [..., A] over actions with ``mask`` True.

    | attribute | |
    |---|---|
    | ``logits`` | log-probabilities [..., A], normalized over legal actions; -inf if illegal |
    | ``probs`` | probabilities [..., A]; 0 for illegal actions |
    | ``mask`` | the mask, bool [..., A] |
    | ``mode`` | the most probable legal action, int64 [...] |

    Values and gradients are finite for all finite logits. The only exception is the log-probability
    of an illegal action: -inf, with gradient 0. The gradient of an illegal action's logit is
    exactly 0. For a single legal action, log-probability, entropy and all gradients are exactly 0.

    Raises NonFiniteError if a logit is NaN or infinite. Raises MaskError if the mask is not bool,
    does not have the shape of the logits, or leaves a row without a legal action.
    """

    def __init__(self, logits: torch.Tensor, mask: torch.Tensor) -> None:
        if mask.dtype is not torch.bool or mask.shape != logits.shape:
            raise MaskError(
                f"the mask is {mask.dtype} {tuple(mask.shape)}; pass torch.bool with the shape of "
                f"the logits, {tuple(logits.shape)}, True for legal actions"
            )
        # One fast pass shows if all logits are finite and moderate, which is nearly always true.
        flat = logits.detach().reshape(-1)
        moderate = math.isfinite(torch.dot(flat, flat).item())
        if not moderate:
            _require_finite(logits)
        self.mask = mask
        self._masked = logits.masked_fill(~mask, -torch.inf)
        self.logits = self._masked.log_softmax(dim=-1)
        # log_softmax gives NaN in all columns of a row without a legal action, else no NaN.
        if self.logits.detach()[..., 0].isnan().any():
            raise MaskError(
                f"no action is legal in {_rows(~mask.any(dim=-1))}. Call the policy only for "
                "agents that act, and check the action_mask of the environment"
            )
        if not moderate:
            # Keeps log-probabilities of legal actions, and sums weighted by probabilities, finite
            # even if the difference of two logits overflows.
            lowest = torch.finfo(logits.dtype).min / 4
            self.logits = self.logits.clamp(min=lowest).masked_fill(~mask, -torch.inf)

    @property
    def probs(self) -> torch.Tensor:
        return self.logits.exp()

    @property
    def mode(self) -> torch.Tensor:
        # Uses the unnormalized logits, because close logits may become equal when normalized.
        return self._masked.argmax(dim=-1)

    def sample(
        self, generator: Generator = None, sample_shape: tuple[int, ...] = ()
    ) -> torch.Tensor:
        """Return sampled legal actions, int64 [*sample_shape, ...].

        With ``generator``, sampling inverts the distribution function. Without, it is a race of
        exponential clocks, with the global generator of torch.
        """
        probs = self.probs.detach().expand(*sample_shape, *self.logits.shape)
        if generator is not None:
            # Selects the first action at which the running sum exceeds a uniform number. In double
            # precision, that number times the total stays below the total. Illegal actions add 0.
            sums = probs.double().cumsum(dim=-1)
            whole = sums[..., -1:]
            drawn = torch.rand(whole.shape, dtype=torch.float64, generator=generator)
            return torch.searchsorted(sums, drawn.to(whole.device) * whole, right=True)[..., 0]
        # A race of exponential clocks, as in torch.multinomial. Illegal actions never take part.
        clocks = torch.empty_like(probs, memory_format=torch.contiguous_format).exponential_()
        race = probs / clocks.clamp(min=torch.finfo(probs.dtype).tiny)
        return race.masked_fill(~self.mask, -1).argmax(dim=-1)

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Return the log-probabilities of ``actions``, integers [...]: float [...].

        The log-probability of an illegal action is -inf.
        """
        log_probs = self.logits.gather(-1, actions.long().unsqueeze(-1)).squeeze(-1)
        return log_probs.masked_fill(
            log_probs.detach() == -torch.inf, -torch.inf
        )  # without a gradient

    def entropy(self) -> torch.Tensor:
        """Return the entropies in nats, float [...]; illegal actions count 0."""
        finite = self._finite  # computed first: the last bits of gradients depend on the order
        return -(self.probs * finite).sum(dim=-1)

    def kl(self, other: MaskedCategorical) -> torch.Tensor:
        """Return KL(this || other), in nats, float [...]; illegal actions count 0.

        Raises MaskError unless both have the same mask.
        """
        if not torch.equal(self.mask, other.mask):
            raise MaskError(
                "the masks differ; a KL divergence requires equal masks in both distributions"
            )
        return (self.probs * (self._finite - other._finite)).sum(dim=-1)

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        """Log-probabilities [..., A], normalized over legal actions; -inf if illegal."""
        return {"logits": self.logits.detach()}

    def kl_from(self, old: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return KL(old || this), float [...], for the ``parameters`` ``old``."""
        logits = old["logits"]
        return (logits.exp() * (logits.masked_fill(~self.mask, 0) - self._finite)).sum(dim=-1)

    def kl_to(self, other: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return KL(this || other), float [...], for the ``parameters`` ``other``."""
        logits = other["logits"].masked_fill(~self.mask, 0)
        return (self.probs * (self._finite - logits)).sum(dim=-1)

    def __getitem__(self, row: int) -> MaskedCategorical:
        """Return the distribution of one row, without its axis."""
        single = copy.copy(self)  # a copy skips the checks, which have passed
        parts = self.mask[row], self._masked[row], self.logits[row]
        single.mask, single._masked, single.logits = parts
        return single

    @property
    def _finite(self) -> torch.Tensor:
        """Log-probabilities for sums, with 0 for illegal actions."""
        return self.logits.masked_fill(~self.mask, 0)


def _require_finite(logits: torch.Tensor) -> None:
    bad = ~torch.isfinite(logits).all(dim=-1)
    if bad.any():
        raise NonFiniteError(
            f"the logits of {_rows(bad)} are not finite: {logits[bad][:1].tolist()}. The weights "
            "or the inputs of the network are not finite. Resume from an earlier checkpoint, and "
            "lower the learning rate or check the observations"
        )


def _rows(bad: torch.Tensor) -> str:
    """Return the numbers of the rows that are True: "row 3 (1 of 64)", "rows 0, 2 (2 of 64)"."""
    if bad.dim() == 0:
        return "the only row"
    rows = bad.nonzero().tolist()
    names = ", ".join(str(row[0] if len(row) == 1 else tuple(row)) for row in rows[:5])
    more = ", ..." if len(rows) > 5 else ""
    return f"row{'s' if len(rows) > 1 else ''} {names}{more} ({len(rows)} of {bad.numel()})"


# --- MultiDiscrete and continuous actions --------------------------------------------------------


class MultiCategorical:
    """Several independent categorical choices: int64 [R, D]."""

    def __init__(self, choices: Sequence[MaskedCategorical]) -> None:
        self.choices = choices

    @property
    def mode(self) -> torch.Tensor:
        return torch.stack([choice.mode for choice in self.choices], dim=-1)

    def sample(self, generator: Generator = None) -> torch.Tensor:
        return torch.stack([choice.sample(generator) for choice in self.choices], dim=-1)

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        pairs = zip(self.choices, actions.unbind(dim=-1), strict=True)
        return torch.stack([choice.log_prob(taken) for choice, taken in pairs]).sum(dim=0)

    def entropy(self) -> torch.Tensor:
        return torch.stack([choice.entropy() for choice in self.choices]).sum(dim=0)

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        return {"logits": torch.cat([choice.parameters["logits"] for choice in self.choices], -1)}

    def kl_from(self, old: Mapping[str, torch.Tensor]) -> torch.Tensor:
        parts = self._pairs(old["logits"])
        return torch.stack([choice.kl_from({"logits": part}) for choice, part in parts]).sum(dim=0)

    def kl_to(self, other: Mapping[str, torch.Tensor]) -> torch.Tensor:
        parts = self._pairs(other["logits"])
        return torch.stack([choice.kl_to({"logits": part}) for choice, part in parts]).sum(dim=0)

    def _pairs(self, logits: torch.Tensor) -> Iterable[tuple[MaskedCategorical, torch.Tensor]]:
        sizes = [choice.logits.shape[-1] for choice in self.choices]
        return zip(self.choices, torch.split(logits, sizes, -1), strict=True)

    def __getitem__(self, row: int) -> MultiCategorical:
        return MultiCategorical([choice[row] for choice in self.choices])


class Gaussian:
    """Independent normal distributions around ``mean`` [R, D]: float32 [R, D], unbounded."""

    def __init__(self, mean: torch.Tensor, log_std: torch.Tensor) -> None:
        if not (torch.isfinite(mean).all() and torch.isfinite(log_std).all()):
            raise NonFiniteError(
                "the mean or the standard deviation of an action is not finite. The weights or the "
                "inputs of the network are not finite. Resume from an earlier checkpoint, and "
                "lower the learning rate or check the observations"
            )
        self.mode = mean
        self.log_std = log_std.clamp(-20.0, 4.0)

    def sample(self, generator: Generator = None) -> torch.Tensor:
        noise = torch.randn(self.mode.shape, generator=generator).to(self.mode.device)
        return self.mode + self.log_std.exp() * noise

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        z = (actions - self.mode) * (-self.log_std).exp()
        return (-0.5 * z.square() - self.log_std - 0.5 * math.log(2 * math.pi)).sum(dim=-1)

    def entropy(self) -> torch.Tensor:
        per_number = self.log_std + 0.5 * (1 + math.log(2 * math.pi))
        return per_number.sum().expand(self.mode.shape[:-1])

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        log_std = self.log_std.detach().expand_as(self.mode)
        return {"mean": self.mode.detach(), "log_std": log_std}

    def kl_from(self, old: Mapping[str, torch.Tensor]) -> torch.Tensor:
        log_ratio = 2 * (old["log_std"] - self.log_std)
        difference = (old["mean"] - self.mode) * (-self.log_std).exp()
        return 0.5 * (log_ratio.exp() + difference.square() - 1 - log_ratio).sum(dim=-1)

    def kl_to(self, other: Mapping[str, torch.Tensor]) -> torch.Tensor:
        log_ratio = 2 * (self.log_std - other["log_std"])
        difference = (other["mean"] - self.mode) * (-other["log_std"]).exp()
        return 0.5 * (log_ratio.exp() + difference.square() - 1 - log_ratio).sum(dim=-1)

    def __getitem__(self, row: int) -> Gaussian:
        return Gaussian(self.mode[row], self.log_std)


def make_distribution(
    actions: ActionCodec, outputs: torch.Tensor, mask: torch.Tensor, log_std: torch.Tensor | None
) -> Distribution:
    """Return the distribution for the ``outputs`` float32 [R, outputs] of a network.

    ``mask`` is bool [R, masks]. ``log_std`` [D] is for continuous actions, else None.
    """
    if log_std is not None:
        return Gaussian(outputs, log_std)
    if not actions.shape:
        return MaskedCategorical(outputs, mask)
    sizes = actions.sizes.tolist()
    pairs = zip(torch.split(outputs, sizes, -1), torch.split(mask, sizes, -1), strict=True)
    return MultiCategorical([MaskedCategorical(logits, legal) for logits, legal in pairs])
