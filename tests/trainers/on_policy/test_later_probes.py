"""P14 to P19: memory, accounts, nothing to learn, a frozen opponent, everything learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

from corral.envs import probes
from corral.envs.probes.base import Probe
from corral.errors import AlgorithmError
from corral.trainers.on_policy.trainer import IPPO, MAPPO, OnPolicyTrainer
from corral.trainers.runs.log import Statistics
from support import planted_bugs as planted
from support import probing
from support.probing import chances, first_ratios, learn, make_trainer, misses
from support.thinned import fast_every

BOTH = [IPPO, MAPPO]


def rules_of(name: str, **kwargs: Any) -> Probe:
    return probes.PROBES[name](illegal="raise", **kwargs)


# --- P14: memory ---------------------------------------------------------------------------------

RECURRENT: dict[str, Any] = {
    "steps": 20_000,
    "memory": 16,
    "n_steps": 20,
    "n_epochs": 4,
    "n_minibatches": 4,
}


def answers(found: probing.Learned) -> float:
    """Mean return of both agents, late in training."""
    return float(np.mean(list(found.returns.values())))


@pytest.mark.parametrize("trainer", fast_every(2, BOTH), ids=lambda trainer: trainer.name)
def test_p14_a_memory_keeps_the_cue(trainer: type[OnPolicyTrainer]) -> None:
    assert answers(learn(rules_of("probe_p14_v0"), trainer, **RECURRENT)) >= 0.95


@pytest.mark.slow  # learns
def test_p14_without_a_memory_there_is_nothing_but_chance() -> None:
    found = learn(rules_of("probe_p14_v0"), **{**RECURRENT, "memory": 0})
    assert answers(found) == pytest.approx(0, abs=0.15)


@pytest.mark.slow  # learns
def test_p14_a_memory_does_not_outlive_an_episode() -> None:
    found = learn(rules_of("probe_p14_v0", cue="last"), **RECURRENT)
    assert answers(found) == pytest.approx(0, abs=0.15)


@pytest.mark.slow  # learns
def test_p14_sees_a_memory_that_outlives_episodes() -> None:
    outliving = planted.memory_outlives_episodes(IPPO)
    found = learn(rules_of("probe_p14_v0", cue="last"), outliving, **RECURRENT)
    assert answers(found) > 0.5


# --- P15: accounts -------------------------------------------------------------------------------

TEAMS = {"agent_0": "a", "agent_1": "a", "agent_2": "b"}


def accounts(to_train: list[str], trainer: type[OnPolicyTrainer] = IPPO) -> dict[str, Any]:
    """The last row of progress, of rollouts of three steps in episodes of five."""
    rules = rules_of("probe_p15_v0")
    given: dict[str, Any] = {"n_steps": 3, "num_envs": 4, "steps": 3 * 4 * 6, "policies": TEAMS}
    found = learn(rules, trainer, to_train=to_train, **given)
    statistics = Statistics(TEAMS)
    rows = [statistics.row(update, 12, 0.1) for update in found.updates]
    assert rows[-1]["episodes"] == 3 * 4
    return rows[-1]


@pytest.mark.parametrize("to_train", [["a", "b"], ["a"], []])
def test_p15_every_reward_is_accounted_for(to_train: list[str]) -> None:
    row = accounts(to_train)
    assert [row[f"return_agent_{i}"] for i in range(3)] == [5, 50, 500]
    assert (row["return_of_a"], row["return_of_b"], row["return_team"]) == (55, 500, 555)
    assert row["length"] == 5


def test_p15_sees_returns_that_are_cut_with_the_rollout() -> None:
    assert accounts(["a"], planted.returns_cut_with_the_rollout(IPPO))["return_team"] != 555


def test_p15_the_values_of_separate_policies() -> None:
    """Each policy has its own scale of values."""
    rules = rules_of("probe_p15_v0")
    policies = {agent: agent for agent in rules.agents}
    assert misses(learn(rules, n_steps=5, policies=policies).trainer, rules) == []


# --- P16, P17: nothing to learn ------------------------------------------------------------------


def weights(network: Any) -> dict[str, bytes]:
    return {name: w.detach().numpy().tobytes() for name, w in network.named_parameters()}


def learner_of(trainer: Any, policy: str = "shared") -> Any:
    return trainer.learners[policy]


def moved(
    name: str, kind: type[OnPolicyTrainer] = IPPO, **given: Any
) -> tuple[bool, bool, list[Any]]:
    """Whether actor and critic are moved by ten updates of a probe, and these updates."""
    trainer = make_trainer(rules_of(name), kind, **{"steps": 10 * 8 * 64, **given})
    learner = learner_of(trainer)
    actor, critic = weights(learner.actor), weights(learner.critic)
    updates = list(trainer.learn())
    return weights(learner.actor) != actor, weights(learner.critic) != critic, updates


def test_p16_one_legal_action_moves_no_actor(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios = first_ratios(monkeypatch)
    actor, critic, updates = moved("probe_p16_v0", ent_coef=0.1)
    assert (actor, critic) == (False, True)
    assert all((ratio == 1).all() for ratio in ratios)
    for update in updates:
        zero = ("entropy", "approx_kl", "clip_fraction", "grad_norm_actor")
        assert [update.metrics[name] for name in zero] == [0.0] * 4


def test_p16_sees_a_mask_that_training_lost() -> None:
    assert moved("probe_p16_v0", planted.mask_lost_in_training(IPPO))[0]


@pytest.mark.parametrize(
    "given", [{}, {"num_envs": 1, "n_steps": 1, "steps": 10}], ids=["equal", "one"]
)
def test_p17_equal_advantages_move_no_actor(given: dict[str, Any]) -> None:
    actor, critic, updates = moved("probe_p17_v0", **given)
    assert (actor, critic) == (False, True)
    assert len(updates) == 10
    assert all(np.isfinite(list(update.metrics.values())).all() for update in updates)


@pytest.mark.parametrize(
    "given", [{}, {"num_envs": 1, "n_steps": 1, "steps": 10}], ids=["equal", "one"]
)
def test_p17_sees_a_division_by_no_spread(given: dict[str, Any]) -> None:
    with refused(AlgorithmError, "shared", "advantage", "nan"):
        moved("probe_p17_v0", planted.plain_normalization(IPPO), **given)


# --- P18: a frozen opponent ----------------------------------------------------------------------

SEATS = {"agent_0": "learner", "agent_1": "rock"}


def against_rock(to_train: list[str], kind: type[OnPolicyTrainer] = IPPO) -> tuple[float, bool]:
    """How likely agent 0 plays paper in the end, and whether the rock's weights have changed."""
    rules = rules_of("probe_p18_v0")
    trainer = make_trainer(rules, kind, steps=10_000, policies=SEATS, to_train=to_train)
    rock = learner_of(trainer, "rock")
    with torch.no_grad():
        rock.actor.head.bias.copy_(torch.tensor([20.0, 0.0, 0.0]))
    before = weights(rock)
    list(trainer.learn())
    paper = float(chances(trainer, rules, "agent_0")[0, probes.PAPER])
    return paper, weights(rock) != before


def test_p18_paper_beats_a_frozen_rock() -> None:
    paper, changed = against_rock(["learner"])
    assert paper >= 0.95
    assert not changed


def test_p18_sees_an_opponent_that_is_not_frozen() -> None:
    assert against_rock(["learner", "rock"])[1]


def test_p18_sees_zeroed_advantages() -> None:
    assert against_rock(["learner"], planted.zeroed_advantages(IPPO))[0] < 0.5


# --- P19: everything learns ----------------------------------------------------------------------


def idle_parameters(trainer: Any) -> list[str]:
    """The parameters that one update leaves without a finite gradient, or as they are."""
    learner = learner_of(trainer)
    before = weights(learner)
    next(trainer.learn())
    idle = []
    for name, parameter in learner.named_parameters():
        gradient = parameter.grad
        alive = gradient is not None and bool(torch.isfinite(gradient).all())
        alive = alive and bool((gradient != 0).any())
        if not alive or weights(learner)[name] == before[name]:
            idle.append(name)
    assert len(before) > 4
    return idle


@pytest.mark.parametrize("memory", [0, 8])
@pytest.mark.parametrize("trainer", BOTH, ids=lambda trainer: trainer.name)
def test_p19_one_update_moves_every_parameter(trainer: type[OnPolicyTrainer], memory: int) -> None:
    # The first step of an episode teaches a memory nothing about what it keeps.
    rules = rules_of("probe_p14_v0" if memory else "probe_p05_v0")
    assert idle_parameters(make_trainer(rules, trainer, memory=memory, n_epochs=2)) == []


@pytest.mark.parametrize("network", ["actor", "critic"])
def test_p19_sees_a_dead_encoder(network: str) -> None:
    """Frozen at random, with a head that learns on top of it: that solves the other probes."""
    trainer = make_trainer(rules_of("probe_p05_v0"), n_epochs=2)
    encoder = getattr(learner_of(trainer), network).layers
    encoder.requires_grad_(False)
    assert idle_parameters(trainer) == [
        f"{network}.layers.0.weight",
        f"{network}.layers.0.bias",
    ]
