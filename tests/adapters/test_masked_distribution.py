"""MaskedCategorical: no illegal action, no NaN, whatever the logits."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

from corral.adapters.masked_distribution import (
    Gaussian,
    MaskedCategorical,
    MultiCategorical,
    make_distribution,
    masked_logits,
)
from corral.adapters.spaces import ActionCodec
from corral.errors import MaskError, NonFiniteError
from support.messages import refused

LARGEST = torch.finfo(torch.float32).max
EXTREMES = (0.0, 1.0, -2e8, 1e30, -1e30, LARGEST, -LARGEST)


def random_numbers(seed: int = 0) -> Any:
    return torch.Generator().manual_seed(seed)


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


@pytest.mark.parametrize("inverse", [False, True])
def test_a_million_samples_and_none_illegal(inverse: bool) -> None:
    torch.manual_seed(0)
    mask = masks_of(8)
    illegal = drawn = 0
    for seed in range(4):
        ours = MaskedCategorical(wild(mask, seed), mask)
        generator = random_numbers(seed) if inverse else None
        actions = ours.sample(generator, (1000,))  # [1000, 255]
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
    counts = torch.bincount(ours.sample(sample_shape=(draws,)), minlength=4)
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
    assert set(ours.sample(sample_shape=(1000,)).tolist()) == {1}
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
    with refused(MaskError, "rows 2, 5 (2 of 8)", "action_mask"):
        MaskedCategorical(torch.zeros(8, 3), mask)
    with refused(MaskError, "only", "action_mask"):
        MaskedCategorical(torch.zeros(3), torch.zeros(3, dtype=torch.bool))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 2])  # legal, illegal
def test_logits_that_are_not_finite_are_refused(value: float, place: int) -> None:
    logits = torch.zeros(4, 3)
    logits[1, place] = value
    mask = torch.tensor([True, True, False]).expand(4, 3)
    with refused(NonFiniteError, "row 1 (1 of 4)", "learning rate"):
        MaskedCategorical(logits, mask)


@pytest.mark.parametrize(
    "mask", [torch.ones(3, dtype=torch.bool), torch.ones(2, 3), torch.ones(2, 4, dtype=torch.bool)]
)
def test_masks_that_do_not_fit_are_refused(mask: torch.Tensor) -> None:
    with refused(MaskError, "torch.bool", "(2, 3)"):
        MaskedCategorical(torch.zeros(2, 3), mask)


def test_divergence_needs_equal_masks() -> None:
    one = MaskedCategorical(torch.zeros(1, 2), torch.tensor([[True, True]]))
    two = MaskedCategorical(torch.zeros(1, 2), torch.tensor([[True, False]]))
    with refused(MaskError, "masks", "both"):
        one.kl(two)


# --- Draws, and other distributions --------------------------------------------------------------


@st.composite
def logits_and_masks(draw: Any) -> tuple[Any, Any]:
    rows, actions = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scale = draw(st.sampled_from([0.1, 3.0, 1e4, 2e8]))
    mask = rng.random((rows, actions)) < draw(st.sampled_from([0.2, 0.7, 1.0]))
    mask[np.arange(rows), rng.integers(actions, size=rows)] = True
    logits = rng.normal(size=(rows, actions)).astype(np.float32) * np.float32(scale)
    return torch.from_numpy(logits), torch.from_numpy(mask)


@settings(max_examples=200, deadline=None)
@given(logits_and_masks())
def test_numbers_and_draws_agree_with_a_restatement(case: tuple[Any, Any]) -> None:
    """Of the legal actions alone, row by row, in double precision."""
    logits, mask = case
    ours = MaskedCategorical(logits, mask)
    drawn = [ours.sample(random_numbers(seed)) for seed in range(3)]
    uniform = [
        torch.rand(len(logits), 1, dtype=torch.float64, generator=random_numbers(seed))
        for seed in range(3)
    ]
    for row, legal in enumerate(mask):
        actions = legal.nonzero()[:, 0]
        expected = torch.log_softmax(logits[row][actions].double(), dim=0)
        torch.testing.assert_close(
            ours.logits[row][actions].double(), expected, atol=1e-5, rtol=1e-6
        )
        entropy = -(expected.exp() * expected).sum().item()
        assert ours.entropy()[row].item() == pytest.approx(entropy, abs=1e-4)
        assert ours.mode[row] == actions[logits[row][actions].argmax()]
        sums = ours.logits[row][actions].exp().double().cumsum(0)
        for seed in range(3):
            passed = int((sums <= uniform[seed][row] * sums[-1]).sum())
            assert drawn[seed][row] == actions[passed]


def test_without_a_generator_torchs_own_is_raced() -> None:
    mask = masks_of(5)
    ours = MaskedCategorical(torch.randn(mask.shape, generator=random_numbers()), mask)
    torch.manual_seed(3)
    drawn = ours.sample()
    torch.manual_seed(3)
    clocks = torch.empty(mask.shape).exponential_()
    for row, legal in enumerate(mask):
        actions = legal.nonzero()[:, 0]
        winner = (ours.probs[row] / clocks[row])[actions].argmax()
        assert drawn[row] == actions[winner]


def test_a_generator_draws_by_itself_and_for_any_shape() -> None:
    before = torch.get_rng_state()
    logits = torch.randn(3, 2, 4, generator=random_numbers())
    ours = MaskedCategorical(logits, torch.ones(3, 2, 4, dtype=torch.bool))
    flat = MaskedCategorical(logits.reshape(6, 4), torch.ones(6, 4, dtype=torch.bool))
    drawn = ours.sample(random_numbers(1))
    assert torch.equal(drawn.reshape(-1), flat.sample(random_numbers(1)))
    many = ours.sample(random_numbers(1), sample_shape=(50,))
    assert many.shape == (50, 3, 2)
    assert not torch.equal(many[0], many[1])
    assert torch.equal(torch.get_rng_state(), before)


def test_the_gradient_of_an_illegal_actions_log_probability_is_zero() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    for scale in (1.0, 1e30):
        choice = MaskedCategorical(logits * scale, torch.tensor([[True, False, True]]))
        log_prob = choice.log_prob(torch.tensor([1]))
        assert log_prob.item() == -math.inf
        (gradient,) = torch.autograd.grad(log_prob.sum(), logits)
        assert gradient.tolist() == [[0.0, 0.0, 0.0]]


def test_masked_logits_for_other_libraries() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    mask = torch.tensor([[1, 0, 1], [0, 0, 0]], dtype=torch.int8)
    hard, soft = masked_logits(logits, mask), masked_logits(logits, mask, finite=True)
    assert hard.tolist() == [[1.0, -math.inf, 3.0], [1.0, 2.0, 3.0]]
    assert soft.tolist() == [[1.0, torch.finfo(torch.float32).min, 3.0], [1.0, 2.0, 3.0]]
    assert soft.softmax(-1)[0].tolist() == hard.softmax(-1)[0].tolist()


@settings(max_examples=50, deadline=None)
@given(logits_and_masks())
def test_illegal_logits_get_no_gradient(case: tuple[Any, Any]) -> None:
    logits, mask = case[0].requires_grad_(), case[1]
    choice = MaskedCategorical(logits, mask)
    loss = choice.log_prob(choice.mode).sum() + choice.entropy().sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    assert torch.isfinite(gradient).all()
    assert not gradient[~mask].any()


def test_a_single_legal_action_has_no_gradient_at_all() -> None:
    logits = torch.tensor([[3.0, -200.0, 1.0]], requires_grad=True)
    choice = MaskedCategorical(logits, torch.tensor([[False, True, False]]))
    log_prob, entropy = choice.log_prob(torch.tensor([1])), choice.entropy()
    assert log_prob.item() == 0.0
    assert entropy.item() == 0.0
    (gradient,) = torch.autograd.grad((log_prob + entropy).sum(), logits)
    assert gradient.tolist() == [[0.0, 0.0, 0.0]]


def test_samples_come_as_often_as_they_should_and_illegal_ones_never() -> None:
    logits = torch.tensor([[0.0, 50.0, 1.0, -3.0, 2.0]]).expand(200_000, 5)
    mask = torch.tensor([[True, False, True, True, False]]).expand(200_000, 5)
    drawn = MaskedCategorical(logits, mask).sample(random_numbers())
    shares = np.bincount(drawn.numpy(), minlength=5) / len(drawn)
    weights = np.array([1.0, 0.0, math.e, math.exp(-3), 0.0])
    assert shares == pytest.approx(weights / weights.sum(), abs=0.005)
    assert shares[1] == shares[4] == 0.0


def test_what_cannot_be_chosen_from_is_named() -> None:
    mask = torch.tensor([[True, True], [False, False]])
    with refused(MaskError, "row 1 (1 of 2)", "action_mask"):
        MaskedCategorical(torch.zeros(2, 2), mask)
    with refused(MaskError, "row 1 (1 of 2)", "action_mask"):
        MaskedCategorical(torch.full((2, 2), 1e30), mask)
    with refused(NonFiniteError, "row 0 (1 of 1)", "nan"):
        MaskedCategorical(torch.tensor([[math.nan, 0.0]]), torch.tensor([[True, True]]))
    with refused(NonFiniteError, "mean", "standard deviation"):
        Gaussian(torch.tensor([[math.inf]]), torch.zeros(1))


def test_several_choices_are_independent() -> None:
    first, second = torch.randn(4, 2, generator=random_numbers()), torch.zeros(4, 3)
    space = spaces.MultiDiscrete([2, 3])
    actions = ActionCodec("agent", space)
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[:, 4] = False
    choice = make_distribution(actions, torch.cat([first, second], -1), mask, None)
    assert isinstance(choice, MultiCategorical)
    taken = torch.tensor([[0, 1], [1, 0], [1, 1], [0, 0]])
    each = first.log_softmax(-1).gather(-1, taken[:, :1])[:, 0] + math.log(0.5)
    assert choice.log_prob(taken).tolist() == pytest.approx(each.tolist(), abs=1e-6)
    entropy = MaskedCategorical(first, mask[:, :2]).entropy() + math.log(2)
    assert choice.entropy().tolist() == pytest.approx(entropy.tolist(), abs=1e-6)
    drawn = torch.stack([choice.sample(random_numbers(seed)) for seed in range(50)])
    assert drawn.shape == (50, 4, 2)
    assert set(drawn[..., 1].unique().tolist()) == {0, 1}
    assert choice.mode.tolist() == [[row.argmax().item(), 0] for row in first]
    played = actions.decode(taken.numpy())
    assert all(space.contains(row) for row in played)
    assert actions.encode(taken.numpy())[0].tolist() == [1, 0, 0, 1, 0]


def test_gaussian_agrees_with_torch() -> None:
    mean, log_std = torch.randn(5, 2, generator=random_numbers()), torch.tensor([-0.5, 0.7])
    ours, theirs = Gaussian(mean, log_std), torch.distributions.Normal(mean, log_std.exp())
    taken = torch.randn(5, 2, generator=random_numbers(1))
    assert torch.allclose(ours.log_prob(taken), theirs.log_prob(taken).sum(-1), atol=1e-5)
    assert torch.allclose(ours.entropy(), theirs.entropy().sum(-1), atol=1e-6)
    many = Gaussian(mean[:1].expand(100_000, 2), log_std).sample(random_numbers())
    assert many.mean(0).tolist() == pytest.approx(mean[0].tolist(), abs=0.03)
    assert many.std(0).tolist() == pytest.approx(log_std.exp().tolist(), abs=0.03)
