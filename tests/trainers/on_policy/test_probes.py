"""The in-house trainers come out at the exact answers of the probes; with planted bugs they do not.

Each probe is learned beside companions in which the one thing is switched off that the probe is
about: what does not fail then would tell nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

from corral.envs import probes
from corral.envs.probes.base import Probe
from corral.envs.two_step_v0 import TwoStepRules
from corral.errors import IllegalActionError
from corral.trainers.driver import train
from corral.trainers.on_policy import maths
from corral.trainers.on_policy.trainer import IPPO, MAPPO, OnPolicyTrainer
from corral.trainers.runs.run import load_run
from support import planted_bugs as planted
from support import probing
from support.planted_bugs import Plant
from support.probing import chances, first_ratios, learn, make_trainer, misses, values

BOTH = [IPPO, MAPPO]
SEPARATE = {"agent_0": "agent_0", "agent_1": "agent_1"}

GIVEN: dict[str, dict[str, Any]] = {
    # A plain PPO for each agent; two agents that share a policy have an exclusive or to learn.
    "probe_p05_v0": {"policies": SEPARATE},
    "probe_p09_v0": {"steps": 25_000},
    "probe_p10_v0": {"steps": 10_000},
    "probe_p11_v0": {"policies": SEPARATE},
}
"""What a probe is learned with, besides the probes' own settings."""


def rules_of(name: str, **kwargs: Any) -> Probe:
    return probes.PROBES[name](illegal="raise", **kwargs)


def learned(name: str, trainer: type[OnPolicyTrainer] = IPPO, **kwargs: Any) -> Any:
    rules = rules_of(name, **kwargs)
    return learn(rules, trainer, to_the_end=False, **GIVEN.get(name, {})).trainer, rules


# --- Probes that are learned: P1 - P13 -----------------------------------------------------------

LEARNED = [f"probe_p{n:02}_v0" for n in (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13)]


@pytest.mark.parametrize(
    ("name", "trainer"),
    [
        pytest.param(
            name,
            trainer,
            id=f"{name}-{trainer.name}",
            # They differ in what the critic sees: each probe is fast with one of them.
            marks=[pytest.mark.slow] if trainer is BOTH[place % 2] else [],
        )
        for place, name in enumerate(LEARNED)
        for trainer in BOTH
    ],
)
def test_the_answer_comes_out(name: str, trainer: type[OnPolicyTrainer]) -> None:
    assert misses(*learned(name, trainer)) == []


PLANTED: list[tuple[Sequence[int], Plant]] = [
    ((4, 5, 6, 7, 11), planted.zeroed_advantages),
    ((1, 2, 3, 7, 9, 10), planted.mixed_rewards),
    ((1, 2, 3, 10), planted.end_taken_for_a_cut),
    ((9,), planted.end_taken_for_a_cut),
    ((9,), planted.cut_taken_for_an_end),
    ((9,), planted.value_after_the_reset),
    ((12,), planted.rewards_between_moves_lost),
    ((13,), planted.early_rewards_credited),
]


@pytest.mark.parametrize(
    ("name", "plant"),
    [
        pytest.param(
            f"probe_p{n:02}_v0",
            plant,
            id=f"p{n:02}-{plant.__name__}",
            marks=[pytest.mark.slow] if n != numbers[0] else [],
        )
        for numbers, plant in PLANTED
        for n in numbers
    ],
)
def test_with_a_planted_bug_the_answer_does_not_come_out(name: str, plant: Plant) -> None:
    assert misses(*learned(name, plant(IPPO))) != []


def test_p4_needs_to_know_who_plays() -> None:
    rules = rules_of("probe_p04_v0")
    trainer = learn(rules, agent_id=False).trainer
    assert misses(trainer, rules) != []
    # One policy for both: what the one gains the other loses.
    right = chances(trainer, rules, "agent_0")[0, 0], chances(trainer, rules, "agent_1")[0, 1]
    assert sum(right) == pytest.approx(1)
    apart = learn(rules, agent_id=False, policies=SEPARATE).trainer
    assert misses(apart, rules) == []


@pytest.mark.parametrize("name", ["probe_p04_v0", "two_step_v0"])
def test_they_are_trained_by_name(name: str, tmp_path: Path) -> None:
    small = {"num_envs": 4, "n_steps": 4, "device": "cpu"}
    run = train(name, trainer="ippo", steps=32, out=tmp_path / "run", progress=False, **small)
    read = load_run(run.folder)
    assert read.config.env_config.env == name
    assert read.config.env_config.rules().illegal == "raise"
    assert list(read.progress["env_steps"]) == [16, 32]


# --- P6: masks -----------------------------------------------------------------------------------


def test_p6_returns_the_mean_of_the_highest_legal_actions() -> None:
    trainer, rules = learned("probe_p06_v0", MAPPO)
    for agent in rules.agents:
        played = chances(trainer, rules, agent)  # [15, 4]
        masks = rules.observe(rules.answer().state)[agent]["action_mask"]
        assert (played[masks == 0] == 0).all()
        assert (played @ np.arange(4)).mean() == pytest.approx(34 / 15, abs=0.1)
        untrained = chances(make_trainer(rules), rules, agent)
        assert (untrained @ np.arange(4)).mean() == pytest.approx(1.5, abs=0.1)


@pytest.mark.parametrize("trainer", BOTH, ids=lambda trainer: trainer.name)
def test_p6_begins_every_update_with_ratios_of_one(
    trainer: type[OnPolicyTrainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = first_ratios(monkeypatch)
    updates = learn(rules_of("probe_p06_v0"), trainer, steps=3_000).updates
    epochs = probing.SMALL["n_epochs"]
    assert len(seen) == epochs * len(updates) > 30
    for ratio in seen[::epochs]:
        assert ratio.numel() == 2 * 64 * 8
        torch.testing.assert_close(ratio, torch.ones_like(ratio), atol=1e-4, rtol=0)
    assert (seen[1] - 1).abs().max() > 1e-3  # after a step of the optimiser


def test_p6_sees_a_mask_that_training_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = first_ratios(monkeypatch)
    learn(rules_of("probe_p06_v0"), planted.mask_lost_in_training(IPPO), steps=512)
    assert (seen[0] - 1).abs().max() > 0.1


def test_p6_sees_a_mask_that_play_ignores() -> None:
    with pytest.raises(IllegalActionError):
        learn(rules_of("probe_p06_v0"), planted.mask_ignored_in_rollout(IPPO), steps=512)


# --- P7, P8: who learns from what ----------------------------------------------------------------


def test_p7_with_a_teams_reward_is_played_the_other_way() -> None:
    own, team = rules_of("probe_p07_v0"), rules_of("probe_p07_v0", reward="team")
    alone, together = learn(own), learn(team)
    assert misses(together.trainer, team) == []
    assert misses(alone.trainer, own) == []
    assert misses(alone.trainer, team) != []
    assert alone.returns == pytest.approx({"agent_0": 1, "agent_1": 0}, abs=0.1)
    assert together.returns == pytest.approx({"agent_0": 1, "agent_1": 1}, abs=0.1)


@pytest.mark.parametrize("critic_input", ["state", "observations", "observations+actions"])
def test_p8_a_central_critic_knows_what_the_other_sees(critic_input: str) -> None:
    rules = rules_of("probe_p08_v0")
    trainer = learn(rules, MAPPO, critic_input=critic_input, policies=SEPARATE).trainer
    if critic_input == "observations+actions":  # asked without actions it only tells the sign
        found = values(trainer, rules)[:, 0]
        assert found[0] < -0.5
        assert found[1] > 0.5
    else:
        assert misses(trainer, rules) == []
    # Of agent 0's actor the other's observation is no part.
    both = chances(trainer, rules, "agent_0")
    np.testing.assert_array_equal(both[0], both[1])


def test_p8_a_critic_that_sees_its_own_view_does_not() -> None:
    rules = rules_of("probe_p08_v0")
    trainer = learn(rules, IPPO).trainer
    assert misses(trainer, rules) != []
    np.testing.assert_allclose(values(trainer, rules), 0, atol=0.2)


def test_p8_sees_mixed_rewards() -> None:
    assert misses(*learned("probe_p08_v0", planted.mixed_rewards(MAPPO))) != []


# --- P10, P12, P13: an agent's own decisions -----------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kwargs", "decisions", "returns"),
    [
        ("probe_p10_v0", {}, (2, 4), (2, 4)),
        ("probe_p12_v0", {}, (1, 1), None),
        ("probe_p12_v0", {"replies": 2}, (1, 2), None),
        ("probe_p13_v0", {}, (1, 1), (0, 1.5)),
    ],
)
def test_every_decision_is_one_transition(
    name: str, kwargs: dict[str, Any], decisions: Any, returns: Any, monkeypatch: Any
) -> None:
    taken: list[Any] = []
    gae = maths.gae

    def watched(**given: Any) -> Any:
        taken.append(given["acted"].sum(axis=0))  # [C] agents of a copy side by side
        return gae(**given)

    monkeypatch.setattr(maths, "gae", watched)
    rules = rules_of(name, **kwargs)
    length = max(rules.lengths)
    update = learn(rules, n_steps=2 * length, steps=1).updates[0]
    assert taken[0].reshape(64, 2).tolist() == [[2 * d for d in decisions]] * 64
    assert len(update.episodes) == 2 * 64
    for episode in update.episodes:
        assert episode.length == length
        if returns is None:
            assert sum(episode.returns.values()) == 0
        else:
            assert tuple(episode.returns.values()) == returns


def test_p12_is_not_discounted_by_the_moves_of_the_other() -> None:
    """Rollouts of whole episodes: see the test below."""
    rules = rules_of("probe_p12_v0", replies=2)
    assert misses(learn(rules, n_steps=9).trainer, rules) == []


@pytest.mark.parametrize(
    "plant", [planted.rewards_between_moves_discounted, planted.rewards_between_moves_lost]
)
def test_p12_sees_moves_of_the_other_that_cost(plant: Plant) -> None:
    rules = rules_of("probe_p12_v0", replies=2)
    told = misses(learn(rules, plant(IPPO), n_steps=9).trainer, rules)
    assert any("agent_0" in miss for miss in told)


def test_p12_whatever_the_rollouts() -> None:
    """Rollouts that end between an agent's move and its pay: such a move is not learned from."""
    rules = rules_of("probe_p12_v0", replies=2)
    assert misses(learn(rules, n_steps=8).trainer, rules) == []


def test_p12_fails_where_a_move_without_outcome_is_learned_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maths, "valid_decisions", lambda *, acted, **_: acted)
    rules = rules_of("probe_p12_v0", replies=2)
    assert misses(learn(rules, n_steps=8).trainer, rules) != []


# --- two_step_v0: the optimum instead of the safe choice -----------------------------------------

TWO_STEP: dict[str, Any] = {"steps": 20_000, "n_epochs": 4, "gamma": 0.99}
"""Those of benchmarks/core/two_step.py."""


def greedy_team_return(trainer: Any) -> float:
    rules = TwoStepRules(illegal="raise")
    state = rules.start([np.random.default_rng(0)])
    total = 0.0
    for _ in range(2):
        seen = rules.observe(state)
        moves = [trainer.policies[a].act(seen[a], deterministic=True).action for a in rules.agents]
        outcome = rules.step(state, np.stack(moves, axis=1))
        state, total = outcome.state, total + float(outcome.reward.sum())
    return total


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_two_step_is_played_at_its_optimum(seed: int) -> None:
    trainer = make_trainer(TwoStepRules(illegal="raise"), MAPPO, seed=seed, **TWO_STEP)
    list(trainer.learn())
    assert greedy_team_return(trainer) == 8


def test_two_step_is_played_by_chance_with_zeroed_advantages() -> None:
    broken = planted.zeroed_advantages(MAPPO)
    trainer = make_trainer(TwoStepRules(illegal="raise"), broken, **TWO_STEP)
    episodes = [episode for update in trainer.learn() for episode in update.episodes]
    returns = [sum(episode.returns.values()) for episode in episodes]
    assert np.mean(returns) == pytest.approx(4.75, abs=0.2)
