"""MAPPO and IPPO: what they learn, who learns, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

from corral.envs.batch import Batch
from corral.errors import UnsupportedSpaceError
from corral.trainers.evaluation.players import Player
from corral.trainers.evaluation.scores import evaluate_team
from corral.trainers.on_policy import maths
from corral.trainers.on_policy.trainer import IPPO, MAPPO
from corral.trainers.settings import make_settings
from support.mappo_teams import (
    CRITICS,
    TRAINERS,
    ManyBatch,
    ManyRules,
    make,
    policy_bytes,
    separate,
)
from support.mask_rules import BEST_OF_FIFTEEN, FifteenRules
from support.runs import PaidRules
from support.steady_rules import SteadyRules
from support.thinned import fast_every
from support.turn_rules import MortalRules, PileRules

# --- Learning ------------------------------------------------------------------------------------


@pytest.mark.parametrize("trainer", TRAINERS.values())
def test_it_learns_what_masks_allow(trainer: Any) -> None:
    learner = make(
        FifteenRules(),
        trainer,
        20,
        num_envs=16,
        n_steps=30,
        n_minibatches=4,
        gamma=0.5,
        learning_rate=0.02,
    )
    episodes = [episode for update in learner.learn() for episode in update.episodes]
    late = np.mean([episode.returns["agent_0"] for episode in episodes[-64:]])
    early = np.mean([episode.returns["agent_0"] for episode in episodes[:16]])
    assert early < 26
    assert late > BEST_OF_FIFTEEN - 1
    score = evaluate_team(FifteenRules(), Player(learner.policies), episodes=16)
    assert score.return_team == BEST_OF_FIFTEEN


def test_it_learns_continuous_and_several_choices() -> None:
    learner = make(
        ManyRules(),
        updates=40,
        policies=separate(ManyRules()),
        make_batch=ManyBatch,
        num_envs=16,
        learning_rate=0.02,
        gamma=0.0,
    )
    updates = list(learner.learn())
    seen = {"observation": np.ones((3, 1), np.float32)}
    aimed = learner.policies["agent_0"].act(seen, deterministic=True).action
    assert aimed == pytest.approx(np.full((3, 1), 3.0), abs=0.3)
    assert aimed.dtype == np.float32
    chosen = learner.policies["agent_1"].act(seen, deterministic=True).action
    assert chosen.tolist() == [[1, 2]] * 3
    rng = np.random.default_rng(0)
    single = learner.policies["agent_0"].act({"observation": np.ones(1, np.float32)}, rng=rng)
    assert single.action.shape == (1,)
    # Drawn beyond the bounds now and then at first, and played within them.
    stored = learner.rollout.groups[0].action
    assert stored.shape[-1] == 1
    first, last = updates[0].metrics["agent_0/entropy"], updates[-1].metrics["agent_0/entropy"]
    assert last < first


def test_actions_are_clipped_when_played_and_not_when_they_are_judged() -> None:
    learner = make(
        ManyRules(), policies=separate(ManyRules()), make_batch=ManyBatch, action_std=5.0
    )
    next(learner.learn())
    buffer = learner.rollout.groups[0]
    drawn = buffer.action[:-1, ..., 0]
    assert (np.abs(drawn) > 1).mean() > 0.5
    played = np.stack([actions["agent_0"] for actions in learner.batch.played])
    assert played.min() == 0.0
    assert played.max() == 4.0
    # At first the mean is 0 or so: log N(x; 0, 5).
    expected = -0.5 * (drawn / 5) ** 2 - np.log(5) - 0.5 * np.log(2 * np.pi)
    assert buffer.log_prob == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("memory", [0, 8])
@pytest.mark.parametrize("critic_input", CRITICS)
def test_turns_and_unlike_agents(critic_input: str, memory: int) -> None:
    rules = PileRules(takes=(2, 3), illegal="raise", max_cycles=5)
    learner = make(
        rules, updates=3, policies=separate(rules), critic_input=critic_input, memory=memory
    )
    updates = list(learner.learn())
    assert [update.env_steps for update in updates] == [64, 128, 192]
    for update in updates:
        for episode in update.episodes:
            assert episode.length <= 5
            assert sum(episode.returns.values()) == 0
    assert set(updates[0].metrics) == {
        f"{agent}/{name}"
        for agent in rules.agents
        for name in (
            *("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction"),
            *("explained_variance", "grad_norm_actor", "grad_norm_critic", "value_scale"),
            "learning_rate",
        )
    }


def test_a_last_stone_is_learned_to_be_taken() -> None:
    """From 2 or 3 stones the first to move wins by taking all of them."""
    rules = PileRules((2, 4), illegal="raise")
    learner = make(rules, IPPO, 40, num_envs=16, gamma=0.9)
    episodes = [episode for update in learner.learn() for episode in update.episodes]
    late = np.mean([episode.returns["agent_0"] for episode in episodes[-100:]])
    assert late > 0.95


@pytest.mark.parametrize("memory", [0, 8])
def test_agents_that_die_leave_no_trace(monkeypatch: pytest.MonkeyPatch, memory: int) -> None:
    seen: list[dict[str, Any]] = []
    gae = maths.gae
    monkeypatch.setattr(maths, "gae", lambda **given: seen.append(given) or gae(**given))
    learned: list[int] = []
    surrogate = maths.clipped_surrogate

    def counted(log_ratio: Any, advantage: Any, clip: float) -> Any:
        learned.append(len(advantage))
        return surrogate(log_ratio, advantage, clip)

    monkeypatch.setattr(maths, "clipped_surrogate", counted)
    rules = MortalRules((3, 3), lives=(2, 4), illegal="raise")
    learner = make(rules, memory=memory, n_epochs=1)
    (update,) = learner.learn()
    (given,) = seen
    # Episodes of 4 steps: agent_0 acts in the first two, agent_1 in all.
    acted = given["acted"].reshape(16, 4, 2)
    assert acted[:, 0, 0].tolist() == [True, True, False, False] * 4
    assert acted[:, :, 1].all()
    assert sum(learned) == 4 * (8 + 16)
    assert {tuple(episode.returns.values()) for episode in update.episodes} == {(2.0, 40.0)}


# --- Time limits ---------------------------------------------------------------------------------


def value_of_steady(**given: Any) -> float:
    rules = PaidRules((1.0, 1.0))
    learner = make(
        rules,
        IPPO,
        60,
        num_envs=16,
        gamma=0.9,
        learning_rate=0.01,
        policies=separate(rules),
        **given,
    )
    for _ in learner.learn():
        pass
    seen = Batch(rules, 1, 0).reset()
    return float(learner.values(seen)["agent_0"][0])


@pytest.mark.parametrize("normalize", fast_every(2, [True, False]))
def test_a_constant_reward_is_worth_the_same_whatever_the_time_limit(normalize: bool) -> None:
    assert value_of_steady(normalize_values=normalize) == pytest.approx(10.0, abs=0.2)


def test_a_cut_taken_for_an_end_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    gae = maths.gae

    def blind(**given: Any) -> Any:
        return gae(**{**given, "final_obs_value": np.zeros_like(given["final_obs_value"])})

    monkeypatch.setattr(maths, "gae", blind)
    # The mean of what is left: (4 - sum of 0.9^k ...) as in 1 + 0.9 + ... over 1 to 4 steps.
    assert value_of_steady() == pytest.approx(2.3, abs=0.3)


def test_final_observations_are_valued_at_their_own_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where agents are cut at different steps of different copies, each value is its own."""
    seen: list[dict[str, Any]] = []
    gae = maths.gae
    monkeypatch.setattr(maths, "gae", lambda **given: seen.append(given) or gae(**given))
    for memory in (0, 8):
        learner = make(PileRules((20, 30), illegal="raise", max_cycles=3), IPPO, memory=memory)
        next(learner.learn())
        rollout, given = learner.rollout, seen[-1]
        cut = rollout.truncated.reshape(16, 8)
        assert cut.sum() > 20
        assert (given["ended"] == cut).all()
        assert (given["final_obs_value"] != 0)[cut].all()
        assert not given["final_obs_value"][~cut].any()
    # Without memory, the critic of the last update's beginning is gone; the values still differ.
    assert len(np.unique(given["final_obs_value"][cut].round(4))) > 4


# --- Play ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [0, 8])
def test_policies_play_one_or_many_alike(memory: int) -> None:
    rules = MortalRules((4, 4, 4), illegal="raise")
    learner = make(rules, updates=2, memory=memory)
    list(learner.learn())
    policy = learner.policies["agent_1"]
    rng = np.random.default_rng(0)
    seen = {
        "observation": rng.random((6, 2)).astype(np.float32),
        "action_mask": np.array([[1, 0, 1, 1]] * 6, np.int8),
    }
    state = policy.initial_state(6)
    singles = [policy.initial_state(1) for _ in range(6)]
    assert (state is None) == (not memory)
    for _ in range(3):
        many = policy.act(seen, state, deterministic=True)
        for row in range(6):
            one = {key: values[row] for key, values in seen.items()}
            decision = policy.act(one, singles[row], deterministic=True)
            assert decision.action == many.action[row]
            chances = many.extra["probabilities"][row]
            assert decision.extra["probabilities"] == pytest.approx(chances, abs=1e-5)
            singles[row] = decision.state
        state = many.state
    drawn = [policy.act(seen, state, np.random.default_rng(s)).action for s in range(200)]
    assert set(np.unique(drawn)) == {0, 2, 3}
    again = policy.act(seen, state, np.random.default_rng(0)).action
    assert (again == drawn[0]).all()
    with refused(ValueError, "rng=", "deterministic=True"):
        policy.act(seen, state)
    if memory:
        assert state.shape == (6, memory)
        with refused(ValueError, "agent_1", "(2, 8)", "initial_state(6)"):
            policy.act(seen, state[:2], deterministic=True)
        other = policy.act(seen, policy.initial_state(6), deterministic=True)
        assert (other.extra["probabilities"] != many.extra["probabilities"]).any()


def test_a_team_with_memory_is_evaluated() -> None:
    rules = PileRules(illegal="raise")
    learner = make(rules, memory=4)
    list(learner.learn())
    score = evaluate_team(rules, Player(learner.policies, deterministic=False), episodes=10)
    assert score.illegal_actions == 0


# --- Who learns ----------------------------------------------------------------------------------


def test_policies_that_do_not_train_only_play() -> None:
    rules = PileRules(illegal="raise")
    learner = make(rules, updates=2, policies=separate(rules), to_train=["agent_1"])
    before = {agent: policy_bytes(learner, agent) for agent in rules.agents}
    updates = list(learner.learn())
    assert policy_bytes(learner, "agent_0") == before["agent_0"]
    assert policy_bytes(learner, "agent_1") != before["agent_1"]
    assert all(name.startswith("agent_1/") for name in updates[0].metrics)
    assert learner.save().arrays["optimizer_agent_0"] == {}
    other = make(rules, updates=2, policies=separate(rules), to_train=["agent_1"])
    other.load(learner.save())


def test_every_weight_learns() -> None:
    learner = make(FifteenRules(), memory=4, ent_coef=0.01)
    one = learner.learners["shared"]
    before = {name: p.detach().clone() for name, p in one.named_parameters()}
    next(learner.learn())
    for name, parameter in one.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert not torch.equal(parameter, before[name]), name


# --- Mistakes ------------------------------------------------------------------------------------


def test_agents_of_one_policy_must_be_alike() -> None:
    with refused(UnsupportedSpaceError, "shared", "agent_0", "agent_1", "policies='separate'"):
        make(PileRules(takes=(2, 3)))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"gamma": 1.5}, ("gamma=1.5", 0, 1)),
        ({"num_envs": 0}, ("num_envs=0", 1)),
        ({"n_minibatches": 0}, ("n_minibatches=0", 1)),
        ({"memory": -1}, ("memory=-1", 0)),
        ({"clip_range": 0.0}, ("clip_range=0.0", 0)),
        ({"clip_range_vf": 0.0}, ("clip_range_vf=0.0", 0, None)),
        ({"huber_delta": -1.0}, ("huber_delta=-1.0", 0, None)),
        ({"value_decay": 1.0}, ("value_decay=1.0", 0, 1)),
        ({"kl_target": 0.01}, ("kl_target=0.01", "kl_coef=0", "target_kl")),
        ({"net_arch": 16}, ("net_arch=16",)),
        ({"net_arch": (16, 0)}, ("net_arch=0", 1)),
        ({"cnn_arch": 16}, ("cnn_arch=16",)),
        ({"cnn_arch": (16, 0)}, ("cnn_arch=0", 1)),
        ({"cnn_arch": (16,)}, ("cnn_arch=(16,)", "(32, 128)")),
        ({"cnn_patch": -1}, ("cnn_patch=-1", 0)),
        ({"activation": "rely"}, ("activation='rely'", "'relu'", "'tanh'")),
        ({"critic_input": "stat"}, ("critic_input='stat'", "'state'", "'observations'")),
        ({"own_action": True}, ("own_action=True", "critic_input='observations+actions'")),
        ({"anneal": 1}, ("anneal=1", True, False)),
        ({"ent_coef_end": float("nan")}, ("ent_coef_end=nan", 0, None)),
        ({"device": "tpu"}, ("device='tpu'", "'cpu'", "'cuda'")),
    ],
)
def test_settings_out_of_range_are_named(given: dict[str, Any], named: tuple[object, ...]) -> None:
    with refused(ValueError, *named):
        make_settings(MAPPO, given)


def test_ippo_has_no_setting_of_what_its_critic_sees() -> None:
    with pytest.raises(TypeError, match="critic_input"):
        make_settings(IPPO, {"critic_input": "state"})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_named() -> None:
    trainer = make(SteadyRules(), device="cuda")  # a run of another machine can still be played
    assert {learner.device.type for learner in trainer.learners.values()} == {"cpu"}
    with refused(ValueError, "device='cuda'", "'cpu'", "'auto'"):
        trainer.check()
    with pytest.raises(ValueError, match="device='cuda'"):
        next(trainer.learn())
