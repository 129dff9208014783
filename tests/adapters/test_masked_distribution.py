"""MaskedCategorical: no illegal action, no NaN, whatever the logits."""

from __future__ import annotations

import itertools
import math

import pytest

torch = pytest.importorskip("torch", reason="needs the extra sb3")

from corral.adapters.masked_distribution import MaskedCategorical  # noqa: E402
from corral.errors import MaskError, NonFiniteError  # noqa: E402

LARGEST = torch.finfo(torch.float32).max
EXTREMES = (0.0, 1.0, -2e8, 1e30, -1e30, LARGEST, -LARGEST)


def masks_of(actions: int) -> torch.Tensor:
    """All non-empty masks: bool [2**actions - 1, actions]."""
    every = list(itertools.product([False, True], repeat=actions))
    return torch.tensor(every[1:])


def wild(mask: torch.Tensor, seed: int) -> torch.Tensor:
    """Logits for ``mask``, each a normal number or one of EXTREMES."""
    generator = torch.Generator().manual_seed(seed)
    picks = torch.randint(len(EXTREMES) + 3, mask.shape, generator=generator)
    tame = torch.randn(mask.shape, generator=generator)
    extremes = torch.tensor(EXTREMES)[picks.clamp(max=len(EXTREMES) - 1)]
    return torch.where(picks < len(EXTREMES), extremes, tame)


def test_against_a_softmax_over_the_legal_logits_alone() -> None:
    mask = masks_of(5)
    logits = torch.randn(mask.shape, generator=torch.Generator().manual_seed(0)) * 3
    other = torch.randn(mask.shape, generator=torch.Generator().manual_seed(1))
    ours, another = MaskedCategorical(logits, mask), MaskedCategorical(other, mask)
    for row, legal in enumerate(mask):
        p = torch.log_softmax(logits[row][legal].double(), dim=0)
        q = torch.log_softmax(other[row][legal].double(), dim=0)
        torch.testing.assert_close(ours.logits[row][legal].double(), p, atol=1e-5, rtol=0)
        assert (ours.logits[row][~legal] == -torch.inf).all()
        assert (ours.probs[row][~legal] == 0).all()
        entropy, kl = -(p.exp() * p).sum().item(), (p.exp() * (p - q)).sum().item()
        assert ours.entropy()[row].item() == pytest.approx(entropy, abs=1e-5)
        assert ours.kl(another)[row].item() == pytest.approx(kl, abs=1e-5)
        best = legal.nonzero()[logits[row][legal].argmax()].item()
        assert ours.mode[row].item() == best
        for action in range(5):
            expected = ours.logits[row, action].item()
            given = torch.full((len(mask),), action)
            assert ours.log_prob(given)[row].item() == expected
    assert ours.kl(ours).abs().max() == 0


def test_worked_numbers() -> None:
    """Logits 0 and ln 3 are 1/4 and 3/4, whatever the masked one between them."""
    logits = torch.tensor([[0.0, 1e30, math.log(3)]])
    ours = MaskedCategorical(logits, torch.tensor([[True, False, True]]))
    assert ours.probs.tolist() == [[pytest.approx(0.25), 0.0, pytest.approx(0.75)]]
    expected = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert ours.entropy().item() == pytest.approx(expected)
    assert ours.log_prob(torch.tensor([1])).item() == -math.inf


def test_a_million_samples_and_none_illegal() -> None:
    torch.manual_seed(0)
    mask = masks_of(8)
    illegal = drawn = 0
    for seed in range(4):
        ours = MaskedCategorical(wild(mask, seed), mask)
        actions = ours.sample((1000,))  # [1000, 255]
        illegal += int((~mask.expand(1000, *mask.shape).gather(-1, actions[..., None])).sum())
        illegal += int((~mask.gather(-1, ours.mode[:, None])).sum())
        drawn += actions.numel()
    assert drawn >= 1_000_000
    assert illegal == 0


def test_samples_follow_the_probabilities() -> None:
    torch.manual_seed(0)
    logits = torch.tensor([0.0, 1.0, 9.0, 2.0])
    mask = torch.tensor([True, True, False, True])
    ours = MaskedCategorical(logits, mask)
    draws = 200_000
    counts = torch.bincount(ours.sample((draws,)), minlength=4)
    spread = (draws * ours.probs * (1 - ours.probs)).sqrt()  # of a binomial
    assert ((counts - draws * ours.probs).abs() <= 4 * spread).all(), counts


def test_samples_are_legal_whatever_the_generator_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that shows 0 gives 0 / 0 for an illegal action in torch's own sampling."""
    mask = masks_of(4)
    ours = MaskedCategorical(wild(mask, 0), mask)
    for shown in (0.0, math.inf):
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "exponential_", lambda clocks, to=shown: clocks.fill_(to))
            actions = ours.sample()
        assert mask.gather(-1, actions[:, None]).all()
        if shown == 0:  # nor one that is legal, but of probability 0
            assert (ours.probs.gather(-1, actions[:, None]) > 0).all()


def test_the_mode_tells_close_logits_apart() -> None:
    """Normalised they are equal."""
    ours = MaskedCategorical(torch.tensor([1e-9, 2e-9, 3e-9]), torch.tensor([True, True, False]))
    assert ours.logits[0] == ours.logits[1]
    assert ours.mode.item() == 1


def test_a_legal_logit_far_below_the_illegal_ones() -> None:
    """A masked logit of -1e8, the usual choice, would win against -2e8."""
    torch.manual_seed(0)
    ours = MaskedCategorical(torch.tensor([0.0, -2e8, 0.0]), torch.tensor([False, True, False]))
    assert ours.probs.tolist() == [0.0, 1.0, 0.0]
    assert set(ours.sample((1000,)).tolist()) == {1}
    assert ours.mode.item() == 1


@pytest.mark.parametrize("logit", EXTREMES)
def test_one_legal_action(logit: float) -> None:
    """P16: log-probability, entropy, divergence and gradients are exactly 0; the ratio is 1."""
    mask = torch.eye(4, dtype=torch.bool)
    logits = torch.full((4, 4), 3.0).fill_diagonal_(logit).requires_grad_()
    ours = MaskedCategorical(logits, mask)
    actions = ours.sample()
    other = MaskedCategorical(torch.randn(4, 4), mask)
    log_prob, entropy, kl = ours.log_prob(actions), ours.entropy(), ours.kl(other)
    assert actions.tolist() == [0, 1, 2, 3]
    for values in (log_prob, entropy, kl):
        assert values.tolist() == [0.0] * 4
        (gradient,) = torch.autograd.grad(values.sum(), logits, retain_graph=True)
        assert gradient.tolist() == [[0.0] * 4] * 4
    assert (log_prob - other.log_prob(actions)).exp().tolist() == [1.0] * 4


@pytest.mark.parametrize("seed", range(5))
def test_no_nan_in_values_or_gradients(seed: int) -> None:
    torch.manual_seed(seed)
    mask = masks_of(6)
    logits = wild(mask, seed).requires_grad_()
    ours, other = MaskedCategorical(logits, mask), MaskedCategorical(wild(mask, 100 + seed), mask)
    drawn, best = ours.sample(), ours.mode
    illegal = (~mask).int().argmax(dim=-1)  # a legal one where there is no illegal one
    measures = {
        "log_prob of a sample": ours.log_prob(drawn),
        "log_prob of the mode": ours.log_prob(best),
        "entropy": ours.entropy(),
        "divergence from another": ours.kl(other),
        "divergence of another": other.kl(ours),
    }
    for name, values in measures.items():
        assert torch.isfinite(values).all(), name
        (gradient,) = torch.autograd.grad(values.sum(), logits, retain_graph=True)
        assert torch.isfinite(gradient).all(), name
        assert (gradient[~mask] == 0).all(), name
    assert (ours.entropy() >= 0).all()
    # The log-probability of an illegal action is -inf, but even then no gradient is NaN.
    (gradient,) = torch.autograd.grad(ours.log_prob(illegal).sum(), logits)
    assert torch.isfinite(gradient).all()
    assert (gradient[~mask] == 0).all()


def test_the_gradient_is_that_of_a_softmax() -> None:
    """One-hot minus probabilities on the legal logits, exactly 0 on the illegal one."""
    logits = torch.tensor([[0.5, 3.0, -1.0, 0.0]], requires_grad=True)
    ours = MaskedCategorical(logits, torch.tensor([[True, False, True, True]]))
    (gradient,) = torch.autograd.grad(ours.log_prob(torch.tensor([2])).sum(), logits)
    expected = torch.tensor([0.0, 0.0, 1.0, 0.0]) - ours.probs.detach()
    torch.testing.assert_close(gradient, expected)
    assert gradient[0, 1] == 0


def test_rows_without_a_legal_action_are_named() -> None:
    mask = torch.ones(8, 3, dtype=torch.bool)
    mask[[2, 5]] = False
    with pytest.raises(MaskError, match=r"no action is legal in rows 2, 5 \(2 of 8\)"):
        MaskedCategorical(torch.zeros(8, 3), mask)
    with pytest.raises(MaskError, match=r"the only row"):
        MaskedCategorical(torch.zeros(3), torch.zeros(3, dtype=torch.bool))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 2])  # legal, illegal
def test_logits_that_are_not_finite_are_refused(value: float, place: int) -> None:
    logits = torch.zeros(4, 3)
    logits[1, place] = value
    mask = torch.tensor([True, True, False]).expand(4, 3)
    with pytest.raises(NonFiniteError, match=r"row 1 \(1 of 4\) are not finite.*network"):
        MaskedCategorical(logits, mask)


@pytest.mark.parametrize(
    "mask", [torch.ones(3, dtype=torch.bool), torch.ones(2, 3), torch.ones(2, 4, dtype=torch.bool)]
)
def test_masks_that_do_not_fit_are_refused(mask: torch.Tensor) -> None:
    with pytest.raises(MaskError, match=r"give torch.bool of the logits' shape \(2, 3\)"):
        MaskedCategorical(torch.zeros(2, 3), mask)


def test_divergence_needs_equal_masks() -> None:
    one = MaskedCategorical(torch.zeros(1, 2), torch.tensor([[True, True]]))
    two = MaskedCategorical(torch.zeros(1, 2), torch.tensor([[True, False]]))
    with pytest.raises(MaskError, match="the masks differ"):
        one.kl(two)
