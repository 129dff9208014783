"""Algorithms as records: their functions, and that any one of them can be replaced."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

from corral import algorithms
from corral.algorithms import Losses, Minibatch, OnPolicy, Outputs, Trajectories
from corral.envs import probes
from corral.trainers.base import trainer_class
from corral.trainers.on_policy import algorithms as functions
from corral.trainers.on_policy import records, settings
from support.mappo_teams import make, policy_bytes
from support.mask_rules import FifteenRules
from support.probing import learn, misses

# --- Another algorithm ---------------------------------------------------------------------------


def a2c_loss(minibatch: Minibatch, outputs: Outputs, settings: Any) -> Losses:
    """Mnih et al., Asynchronous Methods for Deep Reinforcement Learning (2016)."""
    error = outputs.value - minibatch.value_target
    return Losses(
        {
            "policy_loss": -(outputs.log_prob * minibatch.advantage).mean(),
            "value_loss": 0.5 * error.square().mean(),
        }
    )


def total(minibatch: Any, outputs: Any, losses: Losses, settings: Any) -> Any:
    return {"total": losses.total}


A2C: OnPolicy = algorithms.ippo.but(
    name="a2c",
    advantages=algorithms.normalize(algorithms.reward_to_go),
    loss=a2c_loss,
    metrics=total,
    reports={"policy_loss": "update", "value_loss": "update"},
    stop_early=lambda metrics, settings: False,
    after_update=lambda learner, metrics, settings: None,
)


@pytest.mark.parametrize("advantage", ["right", "turned"])
def test_another_loss_learns_a_probe_with_masks(advantage: str) -> None:
    """P6 draws the legal actions anew in every episode; the trainer masks, the loss does not."""

    def turned(*given: Any) -> Any:
        found = A2C.advantages(*given)
        return dataclasses.replace(found, advantage=-found.advantage)

    algorithm = A2C if advantage == "right" else A2C.but(advantages=turned)
    trainer = algorithms.trainer_of(algorithm)
    rules = probes.PROBES["probe_p06_v0"](illegal="raise")
    given = {"n_epochs": 1, "n_steps": 2, "num_envs": 32, "learning_rate": 0.01}
    learned = learn(rules, trainer, to_the_end=False, **given)
    metrics = set(learned.updates[-1].metrics)
    assert {"policy_loss", "value_loss", "grad_norm_actor"} < metrics
    assert not {"entropy", "approx_kl", "clip_fraction"} & metrics
    assert (misses(learned.trainer, rules) == []) == (advantage == "right")


def test_a_trainer_has_the_name_and_the_settings_of_its_algorithm() -> None:
    trainer = algorithms.trainer_of(A2C)
    assert (trainer.name, trainer.__name__) == ("a2c", "A2C")
    assert trainer.Settings is algorithms.ippo.Settings
    assert algorithms.ippo.name == "ippo"  # it is not changed
    assert algorithms.ippo.loss is algorithms.mappo.loss
    for name in ("mappo", "ippo"):
        registered: Any = trainer_class(name)
        assert registered.algorithm is getattr(algorithms, name)


def test_each_function_is_replaced_by_itself() -> None:
    plain = make(FifteenRules(), algorithms.trainer_of(algorithms.mappo))
    list(plain.learn())

    def sgd(parameters: Any, settings: Any) -> Any:
        return torch.optim.SGD(parameters, lr=settings.learning_rate)

    def unclipped(learner: Any, settings: Any) -> Any:
        return algorithms.clip_norm(learner, dataclasses.replace(settings, max_grad_norm=1e9))

    for change in (
        {"advantages": algorithms.normalize(algorithms.reward_to_go)},
        {"optimizer": sgd},
        {"gradients": unclipped},
        {"stop_early": lambda metrics, settings: True},
        {"critic_input": "own"},
    ):
        other = make(FifteenRules(), algorithms.trainer_of(algorithms.mappo.but(**change)))
        (update,) = other.learn()
        assert policy_bytes(other, "shared") != policy_bytes(plain, "shared"), change
        assert np.isfinite(list(update.metrics.values())).all()


# --- Functions -----------------------------------------------------------------------------------


def trajectories(**changes: Any) -> Trajectories:
    """Two columns of four steps: an end by the rules, a cut; all decide in each step."""
    given: dict[str, Any] = {
        "reward": np.array([[1, 0], [2, 1], [4, 2], [8, 3]], np.float32),
        "value": np.array([[1, 2], [3, 4], [5, 6], [7, 8]], np.float32),
        "acted": np.ones((4, 2), dtype=bool),
        "ended": np.array([[0, 0], [1, 1], [0, 0], [0, 0]], dtype=bool),
        "final_obs_value": np.array([[0, 0], [0, 10], [0, 0], [0, 0]], np.float32),
        "bootstrap_value": np.array([16, 32], np.float32),
        "valid": np.ones((4, 2), dtype=bool),
    }
    return Trajectories(**{**given, **changes})


def test_rewards_to_go_are_discounted_sums() -> None:
    settings = algorithms.ippo.Settings(gamma=0.5, gae_lambda=0.3)
    found = algorithms.reward_to_go(trajectories(), settings)
    returns = [
        [1 + 2 / 2, 0 + 1 / 2 + 10 / 4],
        [2, 1 + 10 / 2],
        [4 + 8 / 2 + 16 / 4, 2 + 3 / 2 + 8],
    ]
    returns.append([8 + 16 / 2, 3 + 32 / 2])
    np.testing.assert_allclose(found.value_target, returns, rtol=1e-6)
    np.testing.assert_allclose(found.advantage, np.array(returns) - trajectories().value, rtol=1e-6)
    assert not np.allclose(algorithms.gae(trajectories(), settings).advantage, found.advantage)


def test_advantages_are_normalized_over_what_is_valid() -> None:
    settings = algorithms.ippo.Settings(gamma=0.5)
    valid = np.ones((4, 2), dtype=bool)
    valid[3, 1] = False
    given = trajectories(valid=valid)
    plain, scaled = (
        f(given, settings) for f in (algorithms.gae, algorithms.normalize(algorithms.gae))
    )
    assert scaled.advantage[valid].mean() == pytest.approx(0, abs=1e-6)
    assert scaled.advantage[valid].std() == pytest.approx(1, abs=1e-5)
    assert scaled.advantage[3, 1] == 0
    np.testing.assert_array_equal(scaled.value_target, plain.value_target)


def test_what_is_minimized_is_the_sum_of_the_terms() -> None:
    terms = {"a": torch.tensor(1.5), "b": torch.tensor(-4.0), "c": torch.tensor(0.25)}
    assert Losses(terms).total.item() == -2.25


def test_terms_without_a_weight_are_left_out() -> None:
    seen: list[Losses] = []

    def watched(*given: Any) -> Losses:
        seen.append(algorithms.ppo_loss(*given))
        return seen[-1]

    trainer = algorithms.trainer_of(algorithms.mappo.but(loss=watched))
    list(make(FifteenRules(), trainer).learn())
    assert {*seen[0].terms} == {"policy_loss", "value_loss"}
    list(make(FifteenRules(), trainer, kl_coef=0.5, ent_coef=0.1).learn())
    assert [*seen[-1].terms] == ["policy_loss", "entropy_bonus", "kl_penalty", "value_loss"]


# --- The face ------------------------------------------------------------------------------------


def test_every_name_is_there_and_none_needs_torch_before_it_is_asked_for() -> None:
    for name in algorithms.__all__:
        assert getattr(algorithms, name) is not None
    with refused(AttributeError, "'pppo'"):
        _ = algorithms.pppo
    code = (
        "import sys, corral\n"
        "assert 'mappo' in dir(corral.algorithms)\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_public_face_has_the_names_of_the_modules() -> None:
    own = {*records.__all__, *functions.__all__, *settings.__all__, "trainer_of", "setting"}
    inside = {name for name in records.__all__ if name.islower()} | {"CRITIC_INPUTS"}
    assert set(algorithms.__all__) == own - inside
