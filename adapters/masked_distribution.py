"""A categorical distribution over the legal actions alone. Torch only.

    logits = torch.tensor([[0.0, 5.0, 1.0]])
    policy = MaskedCategorical(logits, torch.tensor([[True, False, True]]))
    action = policy.sample()  # 0 or 2, never 1

A masked action gets no large negative logit but -inf: against -1e8, the usual choice, a legal
logit of -2e8 loses, and a row in which nothing is legal becomes uniform without a word.
"""

from __future__ import annotations

import torch

from corral.errors import MaskError, NonFiniteError

__all__ = ["MaskedCategorical"]


class MaskedCategorical:
    """Categorical distributions of ``logits`` float [..., A], where ``mask`` bool [..., A] is True.

    | attribute | |
    |---|---|
    | ``logits`` | log-probabilities [..., A], normalised over legal actions; -inf for the others |
    | ``probs`` | probabilities [..., A]; 0 for illegal actions |
    | ``mask`` | as given |
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
        if not torch.isfinite(logits).all():
            bad = ~torch.isfinite(logits).all(dim=-1)
            raise NonFiniteError(
                f"the logits of {_rows(bad)} are not finite: {logits[bad][:1].tolist()}. The "
                "network that gave them, or what it was shown, is no longer finite; go back to an "
                "earlier checkpoint, and lower the learning rate or check the observations"
            )
        if not mask.any(dim=-1).all():
            raise MaskError(
                f"no action is legal in {_rows(~mask.any(dim=-1))}: a policy can choose none. Ask "
                "it only for agents that act, and check the action_mask of the environment"
            )
        self.mask = mask
        self._masked = logits.masked_fill(~mask, -torch.inf)
        lowest = torch.finfo(logits.dtype).min / 4  # sums weighed by probabilities stay finite too
        # The log-probability of a legal action stays finite where the difference of two logits is
        # not. Clamping comes first: it would lift the illegal ones too.
        log_probs = torch.log_softmax(self._masked, dim=-1).clamp(min=lowest)
        self._finite = log_probs.masked_fill(~mask, 0)  # for sums: illegal ones count 0
        self.logits = log_probs.masked_fill(~mask, -torch.inf)

    @property
    def probs(self) -> torch.Tensor:
        return self.logits.exp()

    @property
    def mode(self) -> torch.Tensor:
        # Of the logits as given: normalised, close ones may become equal.
        return self._masked.argmax(dim=-1)

    def sample(self, sample_shape: tuple[int, ...] = ()) -> torch.Tensor:
        """Legal actions, int64 [*sample_shape, ...], drawn from torch's generator."""
        # A race of exponential clocks, which is what torch.multinomial runs, with the illegal
        # actions kept out of it whatever the clocks show.
        probs = self.probs.detach().expand(*sample_shape, *self.logits.shape)
        clocks = torch.empty_like(probs, memory_format=torch.contiguous_format).exponential_()
        race = probs / clocks.clamp(min=torch.finfo(probs.dtype).tiny)
        return race.masked_fill(~self.mask, -1).argmax(dim=-1)

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Of ``actions``, integers [...]: float [...], -inf for an illegal action."""
        return self.logits.gather(-1, actions.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> torch.Tensor:
        """In nats, float [...]; illegal actions count 0."""
        return -(self.probs * self._finite).sum(dim=-1)

    def kl(self, other: MaskedCategorical) -> torch.Tensor:
        """KL divergence of ``other`` from this one, in nats, float [...]; illegal actions count 0.

        Raises MaskError unless the two have the same mask.
        """
        if not torch.equal(self.mask, other.mask):
            raise MaskError("the masks differ: a divergence needs the same legal actions in both")
        return (self.probs * (self._finite - other._finite)).sum(dim=-1)


def _rows(bad: torch.Tensor) -> str:
    """Which rows are True, the first few by name: "row 3", "rows 0, 2 (2 of 64)"."""
    if bad.dim() == 0:
        return "the only row"
    rows = bad.nonzero().tolist()
    names = ", ".join(str(row[0] if len(row) == 1 else tuple(row)) for row in rows[:5])
    more = ", ..." if len(rows) > 5 else ""
    return f"row{'s' if len(rows) > 1 else ''} {names}{more} ({len(rows)} of {bad.numel()})"
