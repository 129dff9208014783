"""Distributions over actions, and the one way in which torch handles a mask. Torch only.

    logits = torch.tensor([[0.0, 5.0, 1.0]])
    policy = MaskedCategorical(logits, torch.tensor([[True, False, True]]))
    action = policy.sample()  # 0 or 2, never 1

A masked action gets no large negative logit but -inf: against -1e8, the usual choice, a legal
logit of -2e8 loses, and a row in which nothing is legal becomes uniform without a word.
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
    """A distribution of actions [R, ...], as an ActionCodec stores them."""

    @property
    def mode(self) -> torch.Tensor: ...

    def sample(self, generator: Generator = None) -> torch.Tensor: ...

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Return the log-probabilities of ``actions`` [R, ...]: float32 [R]."""
        ...

    def entropy(self) -> torch.Tensor:
        """Return the entropies, in nats, of the legal actions alone: float32 [R]."""
        ...

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        """All that tells it, detached: named tensors [R, ...]."""
        ...

    def kl_from(self, old: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return KL(old || this) of a distribution with the ``parameters`` ``old`` and the same
        masks: float32 [R], in nats."""
        ...

    def kl_to(self, other: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return KL(this || other) of such a one, which is no part of a gradient: float32 [R]."""
        ...

    def __getitem__(self, row: int) -> Distribution:
        """Return the distribution of one row, without its axis."""
        ...


# --- Masks ---------------------------------------------------------------------------------------


def masked_logits(
    logits: torch.Tensor, mask: torch.Tensor, *, finite: bool = False
) -> torch.Tensor:
    """Return ``logits`` [..., A] with -inf where ``mask`` [..., A] is 0; ``finite``: least floats.

    ``finite`` is for libraries that compute a divergence of what they take for any categorical
    distribution: -inf minus -inf is NaN. The probabilities of masked actions are exactly 0 all the
    same, and sampling, the likeliest action, log-probabilities of legal actions, entropy and
    divergence are those of the legal actions alone, with finite gradients.

    Rows without a legal action are left as they are: nobody acts there, and a learner that batches
    them (RLlib leaves them out of its loss, DQN multiplies them by 0) needs finite numbers.
    """
    legal = mask != 0
    legal = legal | ~legal.any(dim=-1, keepdim=True)
    return logits.masked_fill(~legal, torch.finfo(logits.dtype).min if finite else -torch.inf)


def likeliest(logits: torch.Tensor, mask: torch.Tensor) -> Array:
    """Return the ``mode`` of ``MaskedCategorical(logits, mask)``, int64 NumPy [...], and nothing
    else of it: for play that asks for no probability.

    Rows without a legal action give 0.
    """
    masked = logits.detach().masked_fill(~mask, -torch.inf)
    if masked.device.type != "cpu":
        return np.asarray(masked.argmax(dim=-1).cpu().numpy())
    return np.asarray(masked.numpy().argmax(axis=-1))  # several times as quick as torch's


class MaskedCategorical:
    """Categorical distributions of ``logits`` float [..., A], where ``mask`` bool [..., A] is True.

    | attribute | |
    |---|---|
    | ``logits`` | log-probabilities [..., A], normalized over legal actions; -inf for the others |
    | ``probs`` | probabilities [..., A]; 0 for illegal actions |
    | ``mask`` | the mask that was given |
    | ``mode`` | the most probable action, int64 [...]; always a legal one |

    Values and gradients are finite for all finite logits, but for the log-probability of an illegal
    action, which is -inf with gradient 0. The gradient of an illegal action's logit is exactly 0;
    where one action is legal, log-probability, entropy and all gradients are exactly 0.

    Raises NonFiniteError where a logit is NaN or infinite, MaskError where the mask is not bool of
    the logits' shape or leaves a row without a legal action.
    """

    def __init__(self, logits: torch.Tensor, mask: torch.Tensor) -> None:
        if mask.dtype is not torch.bool or mask.shape != logits.shape:
            raise MaskError(
                f"the mask is {mask.dtype} {tuple(mask.shape)}; give torch.bool of the logits' "
                f"shape {tuple(logits.shape)}, True where an action is legal"
            )
        # One pass tells that all is finite, and far from the largest float: as nearly always.
        flat = logits.detach().reshape(-1)
        moderate = math.isfinite(torch.dot(flat, flat).item())
        if not moderate:
            _require_finite(logits)
        self.mask = mask
        self._masked = logits.masked_fill(~mask, -torch.inf)
        self.logits = self._masked.log_softmax(dim=-1)
        # Of a row without a legal action it makes NaN everywhere, of others nowhere.
        if self.logits.detach()[..., 0].isnan().any():
            raise MaskError(
                f"no action is legal in {_rows(~mask.any(dim=-1))}: a policy can choose none. Ask "
                "it only for agents that act, and check the action_mask of the environment"
            )
        if not moderate:
            # The log-probability of a legal action stays finite where the difference of two logits
            # is not, and so do sums weighted by probabilities.
            lowest = torch.finfo(logits.dtype).min / 4
            self.logits = self.logits.clamp(min=lowest).masked_fill(~mask, -torch.inf)

    @property
    def probs(self) -> torch.Tensor:
        return self.logits.exp()

    @property
    def mode(self) -> torch.Tensor:
        # Of the logits as given: normalized, close ones may become equal.
        return self._masked.argmax(dim=-1)

    def sample(
        self, generator: Generator = None, sample_shape: tuple[int, ...] = ()
    ) -> torch.Tensor:
        """Return legal actions, int64 [*sample_shape, ...], drawn from ``generator`` by the inverse
        of the distribution function; None: from torch's own, by a race."""
        probs = self.probs.detach().expand(*sample_shape, *self.logits.shape)
        if generator is not None:
            # The first action at which the running sum passes a uniform number; in double precision
            # that number times the whole sum stays below it, and illegal actions add exactly 0.
            sums = probs.double().cumsum(dim=-1)
            whole = sums[..., -1:]
            drawn = torch.rand(whole.shape, dtype=torch.float64, generator=generator)
            return torch.searchsorted(sums, drawn.to(whole.device) * whole, right=True)[..., 0]
        # A race of exponential clocks, which is what torch.multinomial runs, with the illegal
        # actions kept out of it whatever the clocks show.
        clocks = torch.empty_like(probs, memory_format=torch.contiguous_format).exponential_()
        race = probs / clocks.clamp(min=torch.finfo(probs.dtype).tiny)
        return race.masked_fill(~self.mask, -1).argmax(dim=-1)

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Return log-probabilities of ``actions``, integers [...]: float [...], -inf for an illegal
        action."""
        found = self.logits.gather(-1, actions.long().unsqueeze(-1)).squeeze(-1)
        return found.masked_fill(found.detach() == -torch.inf, -torch.inf)  # without a gradient

    def entropy(self) -> torch.Tensor:
        """Return entropies in nats, float [...]; illegal actions count 0."""
        finite = self._finite  # first: the last bits of gradients go by the order
        return -(self.probs * finite).sum(dim=-1)

    def kl(self, other: MaskedCategorical) -> torch.Tensor:
        """Return the KL divergence of ``other`` from this one, in nats, float [...]; illegal
        actions count 0.

        Raises MaskError unless the two have the same mask.
        """
        if not torch.equal(self.mask, other.mask):
            raise MaskError("the masks differ: a divergence needs the same legal actions in both")
        return (self.probs * (self._finite - other._finite)).sum(dim=-1)

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        """Log-probabilities over legal actions [..., A]; -inf for the others."""
        return {"logits": self.logits.detach()}

    def kl_from(self, old: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return KL(old || this), float [...], of what had the ``parameters`` ``old``."""
        logits = old["logits"]
        return (logits.exp() * (logits.masked_fill(~self.mask, 0) - self._finite)).sum(dim=-1)

    def kl_to(self, other: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return KL(this || other), float [...], of what had the ``parameters`` ``other``."""
        logits = other["logits"].masked_fill(~self.mask, 0)
        return (self.probs * (self._finite - logits)).sum(dim=-1)

    def __getitem__(self, row: int) -> MaskedCategorical:
        """Return the distribution of one row, without its axis."""
        found = copy.copy(self)  # not made anew: it has been checked
        parts = self.mask[row], self._masked[row], self.logits[row]
        found.mask, found._masked, found.logits = parts
        return found

    @property
    def _finite(self) -> torch.Tensor:
        """Log-probabilities for sums: illegal actions count 0."""
        return self.logits.masked_fill(~self.mask, 0)


def _require_finite(logits: torch.Tensor) -> None:
    bad = ~torch.isfinite(logits).all(dim=-1)
    if bad.any():
        raise NonFiniteError(
            f"the logits of {_rows(bad)} are not finite: {logits[bad][:1].tolist()}. The "
            "network that gave them, or what it was shown, is no longer finite; go back to an "
            "earlier checkpoint, and lower the learning rate or check the observations"
        )


def _rows(bad: torch.Tensor) -> str:
    """Return which rows are True, the first few by name: "row 3", "rows 0, 2 (2 of 64)"."""
    if bad.dim() == 0:
        return "the only row"
    rows = bad.nonzero().tolist()
    names = ", ".join(str(row[0] if len(row) == 1 else tuple(row)) for row in rows[:5])
    more = ", ..." if len(rows) > 5 else ""
    return f"row{'s' if len(rows) > 1 else ''} {names}{more} ({len(rows)} of {bad.numel()})"


# --- Several choices, and numbers ----------------------------------------------------------------


class MultiCategorical:
    """Several choices at once, independent of each other: int64 [R, D]."""

    def __init__(self, choices: Sequence[MaskedCategorical]) -> None:
        self.choices = choices

    @property
    def mode(self) -> torch.Tensor:
        return torch.stack([choice.mode for choice in self.choices], dim=-1)

    def sample(self, generator: Generator = None) -> torch.Tensor:
        return torch.stack([choice.sample(generator) for choice in self.choices], dim=-1)

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        each = zip(self.choices, actions.unbind(dim=-1), strict=True)
        return torch.stack([choice.log_prob(taken) for choice, taken in each]).sum(dim=0)

    def entropy(self) -> torch.Tensor:
        return torch.stack([choice.entropy() for choice in self.choices]).sum(dim=0)

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        return {"logits": torch.cat([choice.parameters["logits"] for choice in self.choices], -1)}

    def kl_from(self, old: Mapping[str, torch.Tensor]) -> torch.Tensor:
        parts = self._each(old["logits"])
        return torch.stack([choice.kl_from({"logits": part}) for choice, part in parts]).sum(dim=0)

    def kl_to(self, other: Mapping[str, torch.Tensor]) -> torch.Tensor:
        parts = self._each(other["logits"])
        return torch.stack([choice.kl_to({"logits": part}) for choice, part in parts]).sum(dim=0)

    def _each(self, logits: torch.Tensor) -> Iterable[tuple[MaskedCategorical, torch.Tensor]]:
        sizes = [choice.logits.shape[-1] for choice in self.choices]
        return zip(self.choices, torch.split(logits, sizes, -1), strict=True)

    def __getitem__(self, row: int) -> MultiCategorical:
        return MultiCategorical([choice[row] for choice in self.choices])


class Gaussian:
    """Independent normal distributions around ``mean`` [R, D]: float32 [R, D], unbounded."""

    def __init__(self, mean: torch.Tensor, log_std: torch.Tensor) -> None:
        if not (torch.isfinite(mean).all() and torch.isfinite(log_std).all()):
            raise NonFiniteError(
                "the mean or the standard deviation of an action is not finite. The network that "
                "gave it, or what it was shown, is no longer finite; go back to an earlier "
                "checkpoint, and lower the learning rate or check the observations"
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
        each = self.log_std + 0.5 * (1 + math.log(2 * math.pi))
        return each.sum().expand(self.mode.shape[:-1])

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        log_std = self.log_std.detach().expand_as(self.mode)
        return {"mean": self.mode.detach(), "log_std": log_std}

    def kl_from(self, old: Mapping[str, torch.Tensor]) -> torch.Tensor:
        wider = 2 * (old["log_std"] - self.log_std)
        apart = (old["mean"] - self.mode) * (-self.log_std).exp()
        return 0.5 * (wider.exp() + apart.square() - 1 - wider).sum(dim=-1)

    def kl_to(self, other: Mapping[str, torch.Tensor]) -> torch.Tensor:
        wider = 2 * (self.log_std - other["log_std"])
        apart = (other["mean"] - self.mode) * (-other["log_std"]).exp()
        return 0.5 * (wider.exp() + apart.square() - 1 - wider).sum(dim=-1)

    def __getitem__(self, row: int) -> Gaussian:
        return Gaussian(self.mode[row], self.log_std)


def make_distribution(
    actions: ActionCodec, outputs: torch.Tensor, mask: torch.Tensor, log_std: torch.Tensor | None
) -> Distribution:
    """Return the distribution of a network's ``outputs`` float32 [R, outputs], with ``mask`` bool
    [R, masks]; ``log_std`` [D] where actions are continuous."""
    if log_std is not None:
        return Gaussian(outputs, log_std)
    if not actions.shape:
        return MaskedCategorical(outputs, mask)
    sizes = actions.sizes.tolist()
    each = zip(torch.split(outputs, sizes, -1), torch.split(mask, sizes, -1), strict=True)
    return MultiCategorical([MaskedCategorical(logits, legal) for logits, legal in each])
