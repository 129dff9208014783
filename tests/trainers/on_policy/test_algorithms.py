"""Algorithms: each comes out at the answers of the probes that it must, and its parts are right.

All of them learn values from rewards to come and policies from advantages of an agent's own
decisions: due are the values of P1 - P3, the actions of P4 - P7 and P11 (identity, observations,
masks, credit, spaces), ends and cuts (P9, P10), and decisions in turn (P12, P13). P8 is about a
central critic, which mappo alone has, P14 about hidden state, which is the networks'.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import numpy as np
import pytest

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

from corral import algorithms as alg
from corral.adapters.masked_distribution import Gaussian, MaskedCategorical, MultiCategorical
from corral.envs import probes
from corral.errors import AlgorithmError, NonFiniteError
from corral.trainers.base import trainer_class
from support.mappo_teams import SMALL, content, make, separate
from support.mask_rules import FifteenRules
from support.probing import learn, misses
from support.turn_rules import MortalRules, PileRules

NAMES = ("ppo_kl", "a2c", "pg", "pg_episode")
SEPARATE = {"agent_0": "agent_0", "agent_1": "agent_1"}


def weights(trainer: Any, policy: str) -> dict[str, bytes]:
    """What is saved of a policy, by name."""
    arrays = trainer.save().arrays[f"policy_{policy}"]
    return {name: array.tobytes() for name, array in arrays.items()}


# --- Probes --------------------------------------------------------------------------------------

ONE_STEP: dict[str, Any] = {"n_steps": 2, "num_envs": 32, "learning_rate": 0.01}
"""For algorithms with one step of the optimizer for each rollout: shorter rollouts."""

GIVEN: dict[int, dict[str, Any]] = {
    5: {"policies": SEPARATE},
    9: {"steps": 25_000, "n_steps": 4, "num_envs": 16},
    10: {"steps": 10_000, "n_steps": 4, "num_envs": 16},
    11: {"policies": SEPARATE},
}
QUICK = (3, 4)
DUE = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13)


def learned(name: str, probe: int, algorithm: Any = None) -> Any:
    trainer = alg.trainer_of(algorithm or getattr(alg, name))
    rules = probes.PROBES[f"probe_p{probe:02}_v0"](illegal="raise")
    given = {} if name == "ppo_kl" else ONE_STEP
    given = {**given, **GIVEN.get(probe, {})}
    return learn(rules, trainer, to_the_end=False, **given).trainer, rules


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "probe", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in DUE]
)
def test_the_answer_comes_out(name: str, probe: int) -> None:
    assert misses(*learned(name, probe)) == []


@pytest.mark.parametrize("name", NAMES)
def test_with_the_advantages_turned_it_does_not(name: str) -> None:
    right = getattr(alg, name)

    def turned(*given: Any) -> Any:
        found = right.advantages(*given)
        return dataclasses.replace(found, advantage=-found.advantage)

    wrong = right.but(advantages=turned)
    assert misses(*learned(name, 4, wrong)) != []


# --- Records -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_each_is_registered_and_made_of_another_with_settings_that_it_uses(name: str) -> None:
    record = getattr(alg, name)
    registered: Any = trainer_class(name)
    assert registered.algorithm is record
    of_one_epoch = "n_epochs" not in vars(record.Settings())
    assert of_one_epoch == (name != "ppo_kl")
    assert "clip_range" not in vars(record.Settings())
    source = inspect.getsource(inspect.getmodule(alg.mappo.loss))  # type: ignore[arg-type]
    made = source.split(f"\n{name} = ")[1].split("\n)\n")[0]
    assert ".but(" in made.partition("\n")[0]
    assert len(made.splitlines()) <= 40


def trajectories(**changes: Any) -> Any:
    """A column of five steps: an episode of two and one that goes on; all act but in step 3."""
    given: dict[str, Any] = {
        "reward": np.array([[1], [2], [4], [8], [16]], np.float32),
        "value": np.array([[10], [20], [30], [0], [50]], np.float32),
        "acted": np.array([[1], [1], [1], [0], [1]], dtype=bool),
        "ended": np.array([[0], [1], [0], [0], [0]], dtype=bool),
        "final_obs_value": np.zeros((5, 1), np.float32),
        "bootstrap_value": np.array([32], np.float32),
        "valid": np.array([[1], [1], [1], [0], [1]], dtype=bool),
    }
    return alg.Trajectories(**{**given, **changes})


def test_policy_gradient_weighs_by_rewards_to_go_or_by_the_whole_episode() -> None:
    settings = alg.PGSettings(gamma=0.5)
    to_go = np.array([1 + 1, 2, 4 + 8 + 16 / 2 + 32 / 4, 0, 16 + 16])
    found = alg.without_baseline(alg.reward_to_go)(trajectories(), settings)
    valid = trajectories().valid[:, 0]
    np.testing.assert_allclose(found.advantage[valid, 0], to_go[valid])
    whole = alg.episode_return(trajectories(), settings)
    np.testing.assert_allclose(whole.advantage[valid, 0], [2, 2, 28, 28])
    np.testing.assert_allclose(whole.value_target[valid, 0], to_go[valid])
    critic = np.array([[0], [0], [7], [0], [9]], np.float32)  # values inside cancel out
    other = alg.episode_return(trajectories(value=critic), settings)
    np.testing.assert_allclose(other.advantage, whole.advantage)


# --- Exact divergences, and what is kept of a decision -------------------------------------------


def some_logits(rows: int, columns: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def test_divergences_are_those_of_torch() -> None:
    mask = torch.tensor([[True, False, True, True], [True, True, False, False]])
    old, new = (MaskedCategorical(some_logits(2, 4, seed), mask) for seed in (0, 1))
    expected = [
        torch.distributions.kl_divergence(
            *(torch.distributions.Categorical(logits=d.logits[row, mask[row]]) for d in (old, new))
        )
        for row in range(2)
    ]
    torch.testing.assert_close(new.kl_from(old.parameters), torch.stack(expected))
    torch.testing.assert_close(new.kl_from(old.parameters), old.kl(new))
    both_old, both_new = MultiCategorical([old, old]), MultiCategorical([new, old])
    torch.testing.assert_close(both_new.kl_from(both_old.parameters), torch.stack(expected))
    means, stds = (some_logits(3, 2, 2), some_logits(3, 2, 3)), (some_logits(1, 2, 4)[0], 0.1)
    first, second = Gaussian(means[0], stds[0]), Gaussian(means[1], torch.full((2,), stds[1]))
    exact = torch.distributions.kl_divergence(
        *(torch.distributions.Normal(g.mode, g.log_std.exp()) for g in (first, second))
    )
    torch.testing.assert_close(second.kl_from(first.parameters), exact.sum(dim=-1))


@pytest.mark.parametrize("memory", [0, 4])
@pytest.mark.parametrize("rules", [PileRules, FifteenRules, MortalRules])
def test_what_was_kept_belongs_to_its_decision(rules: Any, memory: int) -> None:
    """Before the first step of an update the policy is the one that played: its KL is 0."""
    seen = []

    def watched(minibatch: Any, outputs: Any, settings: Any) -> Any:
        divergence = outputs.distribution.kl_from(minibatch.extras)
        assert divergence.shape == minibatch.log_prob.shape
        if minibatch.epoch == 0:
            seen.append(float(divergence.detach().abs().max()))
        return alg.ppo_kl_loss(minibatch, outputs, settings)

    trainer = alg.trainer_of(alg.ppo_kl.but(loss=watched))
    made = rules(illegal="raise") if rules is not FifteenRules else rules()
    list(make(made, trainer, updates=3, n_minibatches=1, memory=memory).learn())
    assert len(seen) == 3
    assert max(seen) < 1e-5


def test_the_penalty_is_adapted_to_the_exact_divergence() -> None:
    far = make(FifteenRules(), trainer_class("ppo_kl"), updates=3, kl_target=1e-12)
    assert all(update.metrics["kl"] > 1.5e-12 for update in far.learn())
    assert far.learners["shared"].kl_coef == 0.2 * 2**3
    near = make(FifteenRules(), trainer_class("ppo_kl"), updates=3, kl_target=10.0)
    assert all(0 < update.metrics["kl"] < 5 for update in near.learn())
    assert near.learners["shared"].kl_coef == 0.2 / 2**3


# --- Terms, statistics, gradient rules and optimizers of one's own -------------------------------


def other_terms(minibatch: Any, outputs: Any, settings: Any) -> Any:
    return alg.Losses(
        {
            "climb": -(outputs.log_prob * minibatch.advantage).mean(),
            "critic": (outputs.value - minibatch.value_target).abs().mean(),
        }
    )


def test_a_loss_of_other_terms_needs_nothing_else_replaced() -> None:
    for record in (alg.mappo, alg.ppo_kl, alg.a2c):
        trainer = alg.trainer_of(record.but(name="own", loss=other_terms))
        (update,) = make(FifteenRules(), trainer).learn()
        assert {"climb", "critic", "entropy"} < set(update.metrics)
        assert not {"policy_loss", "value_loss"} & set(update.metrics)


def test_a_statistic_is_one_function() -> None:
    def likeliest(minibatch: Any, outputs: Any, losses: Any, settings: Any) -> Any:
        return {"likeliest": outputs.distribution.probs.max(dim=-1).values.mean()}

    both = alg.mappo.but(metrics=alg.also(alg.ppo_metrics, likeliest))
    (update,) = make(FifteenRules(), alg.trainer_of(both)).learn()
    assert 0.25 <= update.metrics["likeliest"] <= 1
    assert "approx_kl" in update.metrics
    alone = alg.trainer_of(alg.mappo.but(metrics=likeliest))
    with refused(AlgorithmError, "target_kl", "approx_kl", "metrics=also(approx_kl, ...)"):
        list(make(FifteenRules(), alone, target_kl=0.1).learn())


OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda parameters, settings: torch.optim.SGD(parameters, lr=0.0, momentum=0.9),
    "plain sgd": lambda parameters, settings: torch.optim.SGD(parameters, lr=0.0),
    "rmsprop": lambda parameters, settings: torch.optim.RMSprop(parameters, momentum=0.5),
    "nadam": lambda parameters, settings: torch.optim.NAdam(parameters),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_it_goes_on_bit_for_bit_with_any_optimizer(optimizer: str) -> None:
    trainer = alg.trainer_of(alg.ppo_kl.but(name="own", optimizer=OPTIMIZERS[optimizer]))

    def fresh() -> Any:
        return make(PileRules(illegal="raise"), trainer, updates=4, n_steps=13)

    whole = fresh()
    figures = [update.metrics for update in whole.learn()]
    stopped, told = fresh(), []
    for _ in range(4):
        told.append(next(stopped.learn()).metrics)
        saved = stopped.save()
        stopped = fresh()
        stopped.load(saved)
    assert told == figures
    next(stopped.learn(), None)
    assert content(stopped) == content(whole)
    if optimizer != "plain sgd":
        arrays = saved.arrays["optimizer_shared"]
        del arrays[next(iter(arrays))]
        if any(name.startswith("0.") for name in arrays):
            with refused(ValueError, "optimizer_shared"):
                fresh().load(saved)


def test_a_critic_without_a_loss_is_saved_and_loaded() -> None:
    def actor_alone(minibatch: Any, outputs: Any, settings: Any) -> Any:
        return alg.Losses({"climb": other_terms(minibatch, outputs, settings).terms["climb"]})

    trainer = alg.trainer_of(alg.a2c.but(name="own", loss=actor_alone))
    first = make(FifteenRules(), trainer, updates=2)
    next(first.learn())
    second = make(FifteenRules(), trainer, updates=2)
    second.load(first.save())
    assert next(first.learn()).metrics == next(second.learn()).metrics


# --- Schedules and settings of single policies ---------------------------------------------------


def test_schedules_reach_the_loss() -> None:
    given: dict[str, Any] = {"updates": 4, "learning_rate": "0:1e-3,128:2e-3", "num_envs": 4}
    seen = []

    def watched(minibatch: Any, outputs: Any, settings: Any) -> Any:
        seen.append((minibatch.env_steps, minibatch.now(settings, "clip_range")))
        return alg.ppo_loss(minibatch, outputs, settings)

    trainer = alg.trainer_of(alg.mappo.but(loss=watched))
    learner = make(FifteenRules(), trainer, clip_range="linear:0.4", ent_coef="0:0,64:1", **given)
    updates = list(learner.learn())
    rates = [update.metrics["learning_rate"] for update in updates]
    assert rates == pytest.approx([1e-3, 1.5e-3, 2e-3, 2e-3])
    assert dict(seen) == pytest.approx({0: 0.4, 64: 0.3, 128: 0.2, 192: 0.1})
    bonuses = [update.metrics["entropy_bonus"] for update in updates]
    assert bonuses[0] == 0
    assert all(bonus < -0.1 for bonus in bonuses[1:])


def test_a_policy_may_have_settings_of_its_own() -> None:
    rules = PileRules(illegal="raise")
    kind: Any = trainer_class("mappo")
    own = {"agent_0": {"learning_rate": 0.0}, "agent_1": {"net_arch": (8,), "memory": 3}}

    def fresh() -> Any:
        return kind(
            rules,
            kind.Settings(**SMALL),
            seed=0,
            policies=separate(rules),
            policies_to_train=list(rules.agents),
            steps=128,
            settings_of=own,
        )

    trainer = fresh()
    before = [weights(trainer, name) for name in ("agent_0", "agent_1")]
    update = next(trainer.learn())
    rates = [update.metrics[f"agent_{i}/learning_rate"] for i in range(2)]
    assert rates == [0.0, 3e-3]
    after = [weights(trainer, name) for name in ("agent_0", "agent_1")]
    actors = [{k: v for k, v in each.items() if "actor" in k} for each in (before[0], after[0])]
    assert actors[0] == actors[1]
    assert before[1] != after[1]
    assert trainer.hidden["agent_1"].actor.shape[1] == 3
    other = fresh()
    other.load(trainer.save())
    assert next(other.learn()).metrics == next(trainer.learn()).metrics


# --- What is no loss -----------------------------------------------------------------------------


def bad(name: str, minibatch: Any, outputs: Any, settings: Any) -> Any:
    found = dict(alg.policy_gradient_loss(minibatch, outputs, settings).terms)
    if name == "nan":
        found["policy_loss"] = found["policy_loss"] * float("nan")
    elif name == "shape":
        found["policy_loss"] = outputs.log_prob
    elif name == "number":
        found["policy_loss"] = 0.5  # type: ignore[assignment]
    elif name == "detached":
        found["policy_loss"] = found["policy_loss"].detach()
    elif name == "all detached":
        found = {key: term.detach() for key, term in found.items()}
    elif name == "tensor":
        return found["policy_loss"]
    return alg.Losses(found)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("nan", ("own", "shared", "policy_loss", "nan")),
        ("shape", ("own", "shared", "policy_loss", "(32,)")),
        ("number", ("own", "shared", "policy_loss", 0.5)),
        ("detached", ("own", "shared", "actor", "outputs.log_prob")),
        ("all detached", ("own", "shared", "actor", "outputs.log_prob")),
        ("tensor", ("own", "shared", "loss", "Tensor", "Losses")),
    ],
)
def test_what_is_no_loss_ends_before_a_weight_changes(name: str, named: tuple[object, ...]) -> None:
    def loss(*given: Any) -> Any:
        return bad(name, *given)

    record = alg.a2c.but(name="own", loss=loss)
    trainer = make(FifteenRules(), alg.trainer_of(record), num_envs=2)
    before = weights(trainer, "shared")
    with refused((AlgorithmError, NonFiniteError), *named):
        next(trainer.learn())
    after = weights(trainer, "shared")
    networks = [key for key in before if "value_norm" not in key]
    assert len(networks) > 4
    assert {key: after[key] for key in networks} == {key: before[key] for key in networks}
