"""One update of MAPPO: ratios, advantages, losses, and numbers that are not finite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

from corral.algorithms import ppo_loss
from corral.errors import NonFiniteError
from corral.trainers.on_policy import maths
from corral.trainers.on_policy.trainer import IPPO, OnPolicyTrainer
from support.mappo_teams import (
    ROLLOUT,
    SMALL,
    ManyBatch,
    ManyRules,
    make,
    policy_bytes,
    run_of,
    separate,
)
from support.mask_rules import FifteenRules
from support.runs import FaultyRules, kept, rows
from support.steady_rules import SteadyRules
from support.turn_rules import PileRules

# --- Ratios, advantages, losses ------------------------------------------------------------------


@pytest.mark.parametrize("case", ["plain", "memory", "turns", "turns with memory", "many"])
def test_before_the_first_step_every_ratio_is_one(
    monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    ratios: list[Any] = []
    surrogate = maths.clipped_surrogate

    def watched(log_ratio: Any, advantage: Any, clip: float) -> Any:
        ratios.append(log_ratio.detach().exp())
        return surrogate(log_ratio, advantage, clip)

    monkeypatch.setattr(maths, "clipped_surrogate", watched)
    given: dict[str, Any] = {"n_minibatches": 1, "n_epochs": 2, "updates": 3}
    rules: Any = FifteenRules()
    if "memory" in case:
        given["memory"] = 8
    if "turns" in case:
        rules = PileRules(illegal="raise")
    if case == "many":
        rules = ManyRules()
        given |= {"policies": separate(rules), "make_batch": ManyBatch}
    list(make(rules, **given).learn())
    epochs = len(ratios) // len(set(given.get("policies", {"": ""}).values()))
    assert epochs == 6
    for first, second in zip(ratios[::2], ratios[1::2], strict=True):
        assert (first - 1).abs().max() < 1e-4
        assert (second - 1).abs().max() > 1e-4


def test_advantages_are_normalised_over_decisions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    weighed: list[Any] = []
    surrogate = maths.clipped_surrogate

    def watched(log_ratio: Any, advantage: Any, clip: float) -> Any:
        weighed.append(advantage)
        return surrogate(log_ratio, advantage, clip)

    monkeypatch.setattr(maths, "clipped_surrogate", watched)
    list(make(PileRules(illegal="raise"), n_epochs=1, n_minibatches=3).learn())
    together = torch.cat(weighed).double()
    # One of two agents acts in each step; the last move of each copy may still be open.
    assert ROLLOUT - SMALL["num_envs"] <= len(together) <= ROLLOUT
    assert together.mean().item() == pytest.approx(0.0, abs=1e-5)
    assert together.std(correction=0).item() == pytest.approx(1.0, abs=1e-5)


def test_one_decision_teaches_the_actor_nothing_and_breaks_nothing() -> None:
    learner = make(FifteenRules(), IPPO, num_envs=1, n_steps=1, n_minibatches=4)
    before = [p.detach().clone() for p in learner.learners["shared"].actor.parameters()]
    (update,) = learner.learn()
    after = learner.learners["shared"].actor.parameters()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert update.metrics["policy_loss"] == 0.0
    assert update.metrics["grad_norm_actor"] == 0.0
    assert np.isfinite(list(update.metrics.values())).all()


def test_a_policy_without_an_outcome_in_a_rollout_waits() -> None:
    """Agent 1 moves last, and what comes of it is not in the rollout; agent 0 is to move again."""
    rules = PileRules(illegal="raise")
    learner = make(rules, policies=separate(rules), n_steps=2)
    before = policy_bytes(learner, "agent_1")
    (update,) = learner.learn()
    assert policy_bytes(learner, "agent_1") == before
    assert update.metrics["agent_1/policy_loss"] == 0.0
    assert update.metrics["agent_0/grad_norm_critic"] > 0.0


def test_gradients_are_clipped_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[tuple[float, float]] = []
    step = torch.optim.Adam.step

    def watched(self: Any, *given: Any, **named: Any) -> Any:
        length = [
            float(torch.cat([p.grad.flatten() for p in net.parameters()]).norm())
            for net in (learner.learners["shared"].actor, learner.learners["shared"].critic)
        ]
        lengths.append((length[0], length[1]))
        return step(self, *given, **named)

    monkeypatch.setattr(torch.optim.Adam, "step", watched)
    learner = make(PileRules(illegal="raise"), max_grad_norm=0.01)
    (update,) = learner.learn()
    assert len(lengths) == 4
    assert np.array(lengths) == pytest.approx(np.full((4, 2), 0.01), rel=1e-3)
    assert update.metrics["grad_norm_critic"] > 0.01  # told as it was before


def test_schedules_begin_where_they_say_and_end_at_nothing() -> None:
    learner = make(FifteenRules(), updates=4, learning_rate=0.008, ent_coef=0.4, ent_coef_end=0.0)
    bonuses: list[float] = []

    def watched(minibatch: Any, outputs: Any, settings: Any) -> Any:
        losses = ppo_loss(minibatch, outputs, settings)
        bonus = losses.terms.get("entropy_bonus", torch.zeros(()))
        bonuses.append(-(bonus / outputs.entropy).item())
        return losses

    learner.algorithm = learner.algorithm.but(loss=watched)
    rates = [update.metrics["learning_rate"] for update in learner.learn()]
    assert rates == pytest.approx([0.008, 0.006, 0.004, 0.002])
    assert bonuses == pytest.approx(np.repeat([0.4, 0.3, 0.2, 0.1], 4))
    steady = make(FifteenRules(), updates=2, learning_rate=0.008, anneal=False)
    assert [update.metrics["learning_rate"] for update in steady.learn()] == [0.008, 0.008]


def test_the_entropy_bonus_keeps_the_policy_open() -> None:
    given: dict[str, Any] = {"updates": 10, "num_envs": 16, "gamma": 0.0, "learning_rate": 0.01}
    plain = list(make(FifteenRules(), **given).learn())[-1].metrics["entropy"]
    bonus = list(make(FifteenRules(), ent_coef=10.0, **given).learn())[-1].metrics["entropy"]
    legal = [bin(k).count("1") for k in range(1, 16)]
    assert bonus == pytest.approx(np.mean(np.log(legal)), abs=0.02)
    assert plain < bonus - 0.2


def test_epochs_end_at_the_divergence_told() -> None:
    def count(**given: Any) -> int:
        learner = make(FifteenRules(), n_epochs=20, learning_rate=0.02, **given)
        steps: list[Any] = []

        def watched(*given: Any) -> Any:
            steps.append(1)
            return ppo_loss(*given)

        learner.algorithm = learner.algorithm.but(loss=watched)
        list(learner.learn())
        return len(steps)

    assert count() == 40
    assert 2 <= count(target_kl=0.01) < 40


def test_the_penalty_on_divergence_holds_the_policy_and_adapts() -> None:
    given: dict[str, Any] = {"n_epochs": 10, "learning_rate": 0.02, "updates": 2}
    loose = list(make(FifteenRules(), **given).learn())[-1].metrics["approx_kl"]
    held = list(make(FifteenRules(), kl_coef=100.0, **given).learn())[-1].metrics["approx_kl"]
    assert held < loose / 3
    learner = make(FifteenRules(), kl_coef=0.25, kl_target=1e-5, **given)
    list(learner.learn())
    assert learner.learners["shared"].kl_coef == 1.0
    other = make(FifteenRules(), kl_coef=0.25, kl_target=1e-5, **given)
    other.load(learner.save())
    assert other.learners["shared"].kl_coef == 1.0


def test_value_clipping_changes_what_is_learned() -> None:
    found = []
    for clip in (None, 1e-6):
        learner = make(PileRules(illegal="raise"), clip_range_vf=clip, n_epochs=8)
        list(learner.learn())
        found.append(policy_bytes(learner, "shared"))
    assert found[0] != found[1]


# --- Numbers that are not finite -----------------------------------------------------------------


@pytest.mark.parametrize("where", ["observation", "last observation", "reward"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_ends_training_before_anything_is_saved(
    tmp_path: Path, where: str, value: float
) -> None:
    rules = FaultyRules(where, 2 * 16 + 3, value)
    with refused(NonFiniteError, 3, "agent_1", where.split()[-1]):
        run_of(tmp_path / "run", 5, env=rules, checkpoint_every=1, preset="none")
    assert [row["env_steps"] for row in rows(tmp_path / "run")] == ["64", "128"]
    for values in kept(tmp_path / "run").arrays.values():
        assert all(np.isfinite(array).all() for array in values.values())


def test_a_global_state_that_is_not_finite_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        SteadyRules, "global_state", lambda self, state: np.full((len(state.t), 1), np.nan)
    )
    with refused(NonFiniteError, 0, "global_state"):
        next(make(SteadyRules()).learn())
    next(make(SteadyRules(), IPPO).learn())  # does not look at it


@pytest.mark.parametrize("where", ["surrogate", "value", "gradient", "weight"])
def test_a_loss_gradient_or_weight_that_is_not_finite_ends_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    calls: list[int] = []

    def third() -> bool:
        calls.append(1)
        return len(calls) == 2 * 4 + 1  # in the third update of four minibatches

    if where == "surrogate":
        surrogate = maths.clipped_surrogate

        def broken(*given: Any) -> Any:
            return surrogate(*given) * (float("nan") if third() else 1.0)

        monkeypatch.setattr(maths, "clipped_surrogate", broken)
    elif where == "value":
        loss = maths.value_loss

        def lossy(*given: Any, **named: Any) -> Any:
            return loss(*given, **named) * (float("inf") if third() else 1.0)

        monkeypatch.setattr(maths, "value_loss", lossy)
    elif where == "gradient":
        backward = torch.Tensor.backward

        def backwards(self: Any, *given: Any, **named: Any) -> None:
            backward(self, *given, **named)
            if third():
                one.critic.head.weight.grad[0, 0] = torch.nan

        monkeypatch.setattr(torch.Tensor, "backward", backwards)
    else:
        step = torch.optim.Adam.step

        def stepped(self: Any, *given: Any, **named: Any) -> Any:
            step(self, *given, **named)
            if third():
                with torch.no_grad():
                    one.actor.head.bias[0] = torch.nan

        monkeypatch.setattr(torch.optim.Adam, "step", stepped)
    learners: list[Any] = []
    begin = OnPolicyTrainer.begin

    def begun(self: Any) -> None:
        learners.append(self)
        nonlocal one
        one = self.learners["shared"]
        begin(self)

    one: Any = None
    monkeypatch.setattr(OnPolicyTrainer, "begin", begun)
    named = {
        "surrogate": ("shared", "policy_loss"),
        "value": ("shared", "value_loss"),
        "gradient": ("shared", "grad_norm_critic"),
        "weight": ("logits", "nan"),
    }
    with refused(NonFiniteError, *named[where]):
        run_of(tmp_path / "run", 5, checkpoint_every=1)
    assert [row["env_steps"] for row in rows(tmp_path / "run")] == ["64", "128"]
