"""The mathematics of PPO: numbers worked out by hand, closed forms, and a slow scalar oracle."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

from corral.trainers.on_policy import maths

# --- Advantages ----------------------------------------------------------------------------------


def one_column(**columns: Any) -> np.ndarray[Any, Any]:
    """``maths.gae`` of one column, given as lists over time."""
    last = np.array([columns.pop("bootstrap_value", 0.0)])
    numbers = {"gamma": columns.pop("gamma", 0.9), "gae_lambda": columns.pop("gae_lambda", 0.5)}
    steps = len(columns["reward"])
    plain = {
        "acted": [True] * steps,
        "ended": [False] * steps,
        "final_obs_value": [0.0] * steps,
    }
    arrays = {key: np.array(value)[:, None] for key, value in {**plain, **columns}.items()}
    return maths.gae(**arrays, bootstrap_value=last, **numbers)[:, 0]  # type: ignore[arg-type]


def test_gae_of_a_rollout_without_an_end() -> None:
    # delta = 1 + 0.9*2 - 1 = 1.8; 2 + 0.9*3 - 2 = 2.7; 3 + 0.9*4 - 3 = 3.6
    found = one_column(reward=[1.0, 2.0, 3.0], value=[1.0, 2.0, 3.0], bootstrap_value=4.0)
    assert found == pytest.approx([1.8 + 0.45 * (2.7 + 0.45 * 3.6), 2.7 + 0.45 * 3.6, 3.6])
    assert found.dtype == np.float32


def test_an_end_by_the_rules_stops_the_bootstrap_and_the_trace() -> None:
    found = one_column(
        reward=[1.0, 2.0, 3.0],
        value=[1.0, 2.0, 3.0],
        ended=[False, True, False],
        bootstrap_value=4.0,
    )
    # Of the middle step only its reward counts: 2 - 2 = 0; the first goes on to it: 1.8 + 0.45 * 0.
    assert found == pytest.approx([1.8, 0.0, 3.6])


def test_a_time_limit_bootstraps_from_the_final_observation_and_cuts_the_trace() -> None:
    found = one_column(
        reward=[1.0, 2.0, 3.0],
        value=[1.0, 2.0, 3.0],
        ended=[False, True, False],
        final_obs_value=[0.0, 10.0, 0.0],
        bootstrap_value=4.0,
    )
    middle = 2 + 0.9 * 10 - 2
    assert found == pytest.approx([1.8 + 0.45 * middle, middle, 3.6])


def test_rewards_between_two_decisions_are_summed_undiscounted() -> None:
    found = one_column(
        reward=[1.0, 10.0, 100.0, 5.0],
        value=[1.0, 77.0, 77.0, 3.0],
        acted=[True, False, False, True],
        bootstrap_value=4.0,
    )
    # One own decision later the value is 3: 111 + 0.9 * 3 - 1, then 5 + 0.9 * 4 - 3.
    assert found == pytest.approx([112.7 + 0.45 * 5.6, 0.0, 0.0, 5.6])


def test_rewards_before_the_first_decision_are_in_no_advantage() -> None:
    found = one_column(
        reward=[50.0, 1.0, 2.0, 60.0, 3.0],
        value=[9.0, 1.0, 2.0, 9.0, 3.0],
        acted=[False, True, True, False, True],
        ended=[False, False, True, False, False],
        bootstrap_value=4.0,
    )
    # 60 belongs to the episode that began after step 2, in which it acts at step 4 first.
    assert found == pytest.approx([0.0, 1.8, 0.0, 0.0, 3.6])


def test_an_episode_that_another_ends_pays_the_last_decision() -> None:
    found = one_column(
        reward=[0.0, -1.0, 0.0],
        value=[0.5, 9.0, 0.25],
        acted=[True, False, True],
        ended=[False, True, False],
        bootstrap_value=1.0,
    )
    assert found == pytest.approx([-1.5, 0.0, 0.9 - 0.25])


def test_a_column_that_never_acts_has_no_advantage() -> None:
    found = one_column(
        reward=[1.0, 2.0], value=[3.0, 4.0], acted=[False, False], bootstrap_value=9.0
    )
    assert found.tolist() == [0.0, 0.0]


def test_gae_of_a_constant_reward_is_zero_at_the_closed_form() -> None:
    value = 1 / (1 - 0.9)
    found = one_column(reward=[1.0] * 50, value=[value] * 50, bootstrap_value=value)
    assert found == pytest.approx(np.zeros(50), abs=1e-5)
    # With lambda 1 it is the discounted return less the value, whatever the values between.
    rng = np.random.default_rng(0)
    values = rng.normal(size=20)
    found = one_column(reward=[1.0] * 20, value=values, gae_lambda=1.0, bootstrap_value=value)
    assert found == pytest.approx(value - values, abs=1e-5)


def oracle(
    reward: Any,
    value: Any,
    acted: Any,
    ended: Any,
    final: Any,
    last: float,
    gamma: float,
    lam: float,
) -> list[float]:
    """Forward, decision by decision: an independent restatement for one column."""
    steps = len(reward)
    decisions = [t for t in range(steps) if acted[t]]
    deltas: dict[int, float] = {}
    linked: dict[int, int | None] = {}
    for t in decisions:
        total, u = 0.0, t
        while True:
            total += reward[u]
            if ended[u]:
                follows, linked[t] = final[u], None
                break
            u += 1
            if u == steps:
                follows, linked[t] = last, None
                break
            if acted[u]:
                follows, linked[t] = value[u], u
                break
        deltas[t] = total + gamma * follows - value[t]
    found = [0.0] * steps
    for t in decisions:
        weight, here = 1.0, t
        while here is not None:
            found[t] += weight * deltas[here]
            weight *= gamma * lam
            here = linked[here]  # type: ignore[assignment]
    return found


@st.composite
def rollouts(draw: Any) -> dict[str, Any]:
    steps, columns = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = (steps, columns)
    ended = rng.random(shape) < draw(st.sampled_from([0.0, 0.2, 0.6]))
    return {
        "reward": rng.normal(size=shape),
        "value": rng.normal(size=shape),
        "acted": rng.random(shape) < draw(st.sampled_from([0.0, 0.4, 0.8, 1.0])),
        "ended": ended,
        "final_obs_value": np.where(ended & (rng.random(shape) < 0.5), rng.normal(size=shape), 0.0),
        "bootstrap_value": rng.normal(size=columns),
        "gamma": draw(st.sampled_from([0.0, 0.5, 0.9, 1.0])),
        "gae_lambda": draw(st.sampled_from([0.0, 0.5, 1.0])),
    }


@settings(max_examples=300, deadline=None)
@given(rollouts())
def test_gae_agrees_with_the_oracle(case: dict[str, Any]) -> None:
    found = maths.gae(**case)
    for c in range(found.shape[1]):
        keys = ("reward", "value", "acted", "ended", "final_obs_value")
        columns = [case[key][:, c].tolist() for key in keys]
        last = float(case["bootstrap_value"][c])
        expected = oracle(*columns, last, case["gamma"], case["gae_lambda"])
        assert found[:, c] == pytest.approx(expected, abs=1e-4)


@settings(max_examples=50, deadline=None)
@given(rollouts())
def test_where_all_act_gae_is_the_line_of_the_paper(case: dict[str, Any]) -> None:
    case["acted"] = np.ones_like(case["acted"])
    gamma, lam = case["gamma"], case["gae_lambda"]
    following = np.concatenate([case["value"][1:], case["bootstrap_value"][None]])
    following = np.where(case["ended"], case["final_obs_value"], following)
    expected, ahead = np.zeros_like(case["value"]), np.zeros_like(case["bootstrap_value"])
    for t in reversed(range(len(following))):
        delta = case["reward"][t] + gamma * following[t] - case["value"][t]
        ahead = expected[t] = delta + gamma * lam * ahead * ~case["ended"][t]
    assert maths.gae(**case) == pytest.approx(expected, abs=1e-4)


def test_gae_names_shapes_that_differ() -> None:
    good: dict[str, Any] = {
        **{key: np.zeros((3, 2)) for key in ("reward", "value", "final_obs_value")},
        **{key: np.zeros((3, 2), dtype=bool) for key in ("acted", "ended")},
        "bootstrap_value": np.zeros(2),
        "gamma": 0.9,
        "gae_lambda": 0.9,
    }
    maths.gae(**good)
    for name in ("reward", "value", "final_obs_value", "acted", "ended"):
        with refused(ValueError, f"{name} (2, 2)"):
            maths.gae(**{**good, name: good[name][:2]})
    with refused(ValueError, "bootstrap_value (3,)"):
        maths.gae(**{**good, "bootstrap_value": np.zeros(3)})


def test_normalised_advantages() -> None:
    found = maths.normalized(np.array([1.0, 2.0, 3.0, 6.0], dtype=np.float32))
    spread = math.sqrt((4 + 1 + 0 + 9) / 4)
    assert found == pytest.approx(np.array([-2, -1, 0, 3]) / spread)
    assert found.dtype == np.float32


@pytest.mark.parametrize("value", [0.0, 1.0, -7.3, 1e-30, 1e30])
@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_equal_advantages_become_zero(value: float, count: int) -> None:
    found = maths.normalized(np.full(count, value, dtype=np.float32))
    assert found.tolist() == [0.0] * count


def test_nearly_equal_advantages_become_zero_and_small_ones_do_not() -> None:
    near = np.full(10, 0.1, dtype=np.float32)
    near[0] = np.nextafter(near[0], np.float32(1))
    assert not maths.normalized(near).any()
    small = np.array([1e-12, -1e-12], dtype=np.float32)
    assert maths.normalized(small) == pytest.approx([1.0, -1.0])


# --- Losses --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "moves"),
    [
        (1.0, 2.0, -2.0, True),
        (1.1, 2.0, -2.2, True),
        (1.5, 2.0, -2.4, False),  # clipped at 1.2: no more to be gained
        (0.5, 2.0, -1.0, True),  # worse than before: not clipped
        (1.5, -2.0, 3.0, True),
        (0.5, -2.0, 1.6, False),
        (0.9, -2.0, 1.8, True),
    ],
)
def test_clipped_surrogate(ratio: float, advantage: float, loss: float, moves: bool) -> None:
    log_ratio = torch.tensor([math.log(ratio)], requires_grad=True)
    found = maths.clipped_surrogate(log_ratio, torch.tensor([advantage]), 0.2)
    assert found.item() == pytest.approx(loss)
    (gradient,) = torch.autograd.grad(found.sum(), log_ratio)
    assert gradient.item() == pytest.approx(-ratio * advantage if moves else 0.0)


def test_value_loss() -> None:
    value, target = torch.tensor([1.0, 1.0, 1.0]), torch.tensor([1.0, 3.0, -9.0])
    assert maths.value_loss(value, target).tolist() == [0.0, 2.0, 50.0]
    assert maths.value_loss(value, target, huber_delta=3.0).tolist() == [0.0, 2.0, 25.5]


def test_value_loss_with_clipping_takes_the_larger() -> None:
    given: dict[str, Any] = {"clip_range": 0.5}
    value = torch.tensor([2.0, 2.0, 1.2], requires_grad=True)
    before, target = torch.tensor([1.0, 1.0, 1.0]), torch.tensor([3.0, 1.5, 3.0])
    # Kept within 0.5 of before: 1.5, 1.5, 1.2. Errors 1.5 > 1; 0 < 0.5; the same.
    found = maths.value_loss(value, target, old_value=before, **given)
    assert found.tolist() == pytest.approx([1.125, 0.125, 1.62])
    (gradient,) = torch.autograd.grad(found.sum(), value)
    assert gradient.tolist() == pytest.approx([0.0, 0.5, -1.8])
    with refused(ValueError, "clip_range", "old_value="):
        maths.value_loss(value, target, **given)


@pytest.mark.parametrize("longest", [0.1, 100.0])
def test_gradients_are_shortened_as_torch_does_it(longest: float) -> None:
    torch.manual_seed(0)
    nets = [torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Linear(4, 2)) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    for net in nets:
        net(torch.linspace(-1, 1, 15).reshape(3, 5)).square().sum().backward()
    ours = maths.clip_gradient(list(nets[0].parameters()), longest)
    theirs = torch.nn.utils.clip_grad_norm_(nets[1].parameters(), longest)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-6)
    assert (ours.item() > longest) == (longest == 0.1)
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_losses_name_shapes_that_differ() -> None:
    """[R] against [R, 1] would be broadcast to [R, R] without a word."""
    flat, column = torch.zeros(3), torch.zeros(3, 1)
    with refused(ValueError, "value (3,)", "target (3, 1)"):
        maths.value_loss(flat, column)
    with refused(ValueError, "log_ratio (3, 1)", "advantage (3,)"):
        maths.clipped_surrogate(column, flat, 0.2)
    with refused(ValueError, "prediction (3,)", "target (3, 1)"):
        maths.explained_variance(flat.numpy(), column.numpy())
    with refused(ValueError, "old_value (3, 1)"):
        maths.value_loss(flat, flat, old_value=column, clip_range=0.2)


def test_kl_estimate_is_unbiased_with_its_gradient() -> None:
    old = torch.tensor([0.2, 0.5, 0.3])
    logits = torch.tensor([0.1, -0.4, 0.3], requires_grad=True)
    new = logits.log_softmax(-1)
    exact = (old * (old.log() - new)).sum()
    estimate = (old * maths.kl_estimate(new - old.log())).sum()  # the mean over old's decisions
    assert estimate.item() == pytest.approx(exact.item(), abs=1e-6)
    (a,) = torch.autograd.grad(exact, logits, retain_graph=True)
    (b,) = torch.autograd.grad(estimate, logits)
    assert a.tolist() == pytest.approx(b.tolist(), abs=1e-6)
    assert (maths.kl_estimate(torch.linspace(-3, 3, 50)) >= 0).all()
    small = maths.kl_estimate(torch.tensor([1e-3], dtype=torch.float32)).item()
    assert small == pytest.approx(5.001667e-7, rel=0.05)


def test_explained_variance() -> None:
    target = np.array([1.0, 2.0, 3.0, 4.0])
    assert maths.explained_variance(target, target) == 1.0
    assert maths.explained_variance(np.zeros(4), target) == 0.0
    assert maths.explained_variance(-target, target) == pytest.approx(-3.0)
    assert maths.explained_variance(target, np.full(4, 0.1)) == 0.0
    assert maths.explained_variance(np.zeros(0), np.zeros(0)) == 0.0


@pytest.mark.parametrize(
    ("divergence", "expected"), [(0.016, 1.0), (0.014, 0.5), (0.007, 0.5), (0.006, 0.25)]
)
def test_the_penalty_follows_the_divergence(divergence: float, expected: float) -> None:
    assert maths.adapted_penalty(0.5, divergence, 0.01) == expected


def test_valid_decisions_decisions_by_hand() -> None:
    """One column a case: what follows the first decision within a rollout of three steps."""
    cases = {
        "acts again": ([1, 0, 1], [0, 0, 0], 1, [1, 0, 1]),
        "acts again, then others move": ([1, 0, 1], [0, 0, 0], 0, [1, 0, 0]),
        "others move on": ([1, 0, 0], [0, 0, 0], 0, [0, 0, 0]),
        "is to act at the end": ([1, 0, 0], [0, 0, 0], 1, [1, 0, 0]),
        "its episode ends": ([1, 0, 0], [0, 1, 0], 0, [1, 0, 0]),
        "ends with its move": ([0, 0, 1], [0, 0, 1], 0, [0, 0, 1]),
    }
    acted, ended, last, expected = (
        np.array([case[k] for case in cases.values()], dtype=bool) for k in range(4)
    )
    found = maths.valid_decisions(acted=acted.T, ended=ended.T, acts_next=last)
    assert found.T.tolist() == expected.tolist()


def test_a_decision_that_is_not_valid_has_no_advantage_and_bounds_those_before() -> None:
    given = {
        "reward": np.array([[1.0], [5.0], [7.0]]),
        "value": np.array([[2.0], [3.0], [0.0]]),
        "acted": np.array([[True], [True], [False]]),
        "ended": np.zeros((3, 1), dtype=bool),
        "final_obs_value": np.zeros((3, 1)),
        "bootstrap_value": np.array([100.0]),
        "gamma": 0.5,
        "gae_lambda": 0.9,
    }
    valid = maths.valid_decisions(
        acted=given["acted"], ended=given["ended"], acts_next=np.array([False])
    )
    assert valid[:, 0].tolist() == [True, False, False]
    advantage = maths.gae(**given, valid=valid)  # type: ignore[arg-type]
    assert advantage[:, 0].tolist() == pytest.approx([1 + 0.5 * 3 - 2, 0, 0])
