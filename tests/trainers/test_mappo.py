"""MAPPO and IPPO: what they learn, what stays out of it, and that a stop changes nothing."""

from __future__ import annotations

import json
import random
import signal
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

import corral
from corral.adapters.batch import Batch
from corral.envs.core import Outcome, agent_views
from corral.envs.dfaas_v0 import DfaasRules
from corral.errors import CheckpointError, NonFiniteError, UnsupportedSpaceError
from corral.trainers import maths, training
from corral.trainers.checkpoint import Content
from corral.trainers.evaluation import evaluate_team
from corral.trainers.mappo import IPPO, MAPPO
from corral.trainers.players import Player
from corral.trainers.trainer import make_settings
from corral.trainers.training import resume, train
from support.loads import small_trace
from support.mask_rules import BEST_OF_FIFTEEN, FifteenRules
from support.runs import FaultyRules, PaidRules, everything, kept, rows, weights
from support.steady_rules import SteadyRules
from support.turn_rules import MortalRules, PileRules

TRAINERS = {"mappo": MAPPO, "ippo": IPPO}
CRITICS = ("state", "observations", "observations+actions")
SMALL: dict[str, Any] = {
    "copies": 4,
    "n_steps": 16,
    "n_minibatches": 2,
    "n_epochs": 2,
    "net_arch": (16,),
    "device": "cpu",
}
ROLLOUT = 64


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make(rules: Any, trainer: Any = MAPPO, updates: int = 1, **given: Any) -> Any:
    """A small trainer; ``policies`` and ``to_train`` as in ``train``."""
    policies = given.pop("policies", None) or dict.fromkeys(rules.agents, "shared")
    to_train = given.pop("to_train", None) or list(dict.fromkeys(policies.values()))
    seed, make_batch = given.pop("seed", 0), given.pop("make_batch", Batch)
    settings = {**SMALL, **given}
    return trainer(
        rules,
        trainer.Settings(**settings),
        seed=seed,
        policies=policies,
        policies_to_train=to_train,
        steps=updates * settings["copies"] * settings["n_steps"],
        make_batch=make_batch,
    )


def separate(rules: Any) -> dict[str, str]:
    return {agent: agent for agent in rules.agents}


def content(trainer: Any) -> tuple[str, dict[str, bytes]]:
    """All that is saved, in a form to compare."""
    saved = trainer.save()
    arrays = {
        f"{file}.{name}": array.tobytes()
        for file, found in saved.arrays.items()
        for name, array in found.items()
    }
    return json.dumps(saved.documents, sort_keys=True), arrays


def policy_bytes(trainer: Any, name: str) -> list[bytes]:
    return [array.tobytes() for array in trainer.save().arrays[f"policy_{name}"].values()]


# --- Rules with other spaces ---------------------------------------------------------------------


class ManyRules(SteadyRules):
    """``SteadyRules`` whose two agents have actions of other kinds; see ``ManyBatch``.

    agent_0 aims at 3 within 0..4, agent_1 at (1, 2) of (2, 3): paid 1 less the distance.
    """

    name = "many_v0"
    max_cycles = 4

    def observation_space(self, agent: str) -> spaces.Dict:
        return spaces.Dict({"observation": spaces.Box(0, 1, (1,), np.float32)})

    def action_space(self, agent: str) -> Any:
        if agent == "agent_0":
            return spaces.Box(0, 4, (1,), np.float32)
        return spaces.MultiDiscrete([2, 3])

    def step(self, state: Any, action: Any) -> Any:
        state.t = state.t + 1
        pay = np.stack(
            [
                1 - np.abs(action["agent_0"][:, 0] - 3),
                1.0 * (action["agent_1"] == [1, 2]).all(axis=1),
            ],
            axis=1,
        )
        ended = np.zeros(pay.shape, dtype=bool)
        return Outcome(state, pay.astype(np.float32), ended, self.info(state))


class ManyBatch(Batch):
    """A Batch that takes a dict of actions, as those of third-party environments do."""

    def __init__(self, rules: Any, copies: int, seed: int | None = None) -> None:
        shown = SteadyRules()
        super().__init__(shown, copies, seed)
        self.rules = rules
        self.played: list[Any] = []

    def _checked(self, actions: Any) -> Any:
        for agent in self.agents:
            space = self.rules.action_space(agent)
            assert actions[agent].shape == (self.copies, *space.shape)
            assert all(space.contains(action) for action in actions[agent])
        self.played.append(actions)
        return actions


# --- Learning ------------------------------------------------------------------------------------


@pytest.mark.parametrize("trainer", TRAINERS.values())
def test_it_learns_what_masks_allow(trainer: Any) -> None:
    learner = make(
        FifteenRules(),
        trainer,
        20,
        copies=16,
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
        copies=16,
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
    stored = learner._rollout.tracks[0].action
    assert stored.shape[-1] == 1
    first, last = updates[0].figures["agent_0/entropy"], updates[-1].figures["agent_0/entropy"]
    assert last < first


def test_actions_are_clipped_when_played_and_not_when_they_are_judged() -> None:
    learner = make(
        ManyRules(), policies=separate(ManyRules()), make_batch=ManyBatch, action_std=5.0
    )
    next(learner.learn())
    track = learner._rollout.tracks[0]
    drawn = track.action[..., 0]
    assert (np.abs(drawn) > 1).mean() > 0.5
    played = np.stack([actions["agent_0"] for actions in learner._batch.played])
    assert played.min() == 0.0
    assert played.max() == 4.0
    # At first the mean is 0 or so: log N(x; 0, 5).
    expected = -0.5 * (drawn / 5) ** 2 - np.log(5) - 0.5 * np.log(2 * np.pi)
    assert track.log_prob == pytest.approx(expected, abs=0.02)


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
    assert set(updates[0].figures) == {
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
    learner = make(rules, IPPO, 40, copies=16, gamma=0.9)
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
        rules, IPPO, 60, copies=16, gamma=0.9, learning_rate=0.01, policies=separate(rules), **given
    )
    for _ in learner.learn():
        pass
    seen = Batch(rules, 1, 0).reset()
    return float(learner.values(seen)["agent_0"][0])


@pytest.mark.parametrize("normalise", [True, False])
def test_a_constant_reward_is_worth_the_same_whatever_the_time_limit(normalise: bool) -> None:
    assert value_of_steady(normalise_values=normalise) == pytest.approx(10.0, abs=0.2)


def test_a_cut_taken_for_an_end_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    gae = maths.gae

    def blind(**given: Any) -> Any:
        return gae(**{**given, "final_value": np.zeros_like(given["final_value"])})

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
        rollout, given = learner._rollout, seen[-1]
        cut = rollout.truncated.reshape(16, 8)
        assert cut.sum() > 20
        assert (given["ended"] == cut).all()
        assert (given["final_value"] != 0)[cut].all()
        assert not given["final_value"][~cut].any()
    # Without memory, the critic of the last update's beginning is gone; the values still differ.
    assert len(np.unique(given["final_value"][cut].round(4))) > 4


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
    assert ROLLOUT - SMALL["copies"] <= len(together) <= ROLLOUT
    assert together.mean().item() == pytest.approx(0.0, abs=1e-5)
    assert together.std(correction=0).item() == pytest.approx(1.0, abs=1e-5)


def test_one_decision_teaches_the_actor_nothing_and_breaks_nothing() -> None:
    learner = make(FifteenRules(), IPPO, copies=1, n_steps=1, n_minibatches=4)
    before = [p.detach().clone() for p in learner._learners["shared"].actor.parameters()]
    (update,) = learner.learn()
    after = learner._learners["shared"].actor.parameters()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert update.figures["policy_loss"] == 0.0
    assert update.figures["grad_norm_actor"] == 0.0
    assert np.isfinite(list(update.figures.values())).all()


def test_a_policy_without_an_outcome_in_a_rollout_waits() -> None:
    """Agent 1 moves last, and what comes of it is not in the rollout; agent 0 is to move again."""
    rules = PileRules(illegal="raise")
    learner = make(rules, policies=separate(rules), n_steps=2)
    before = policy_bytes(learner, "agent_1")
    (update,) = learner.learn()
    assert policy_bytes(learner, "agent_1") == before
    assert update.figures["agent_1/policy_loss"] == 0.0
    assert update.figures["agent_0/grad_norm_critic"] > 0.0


def test_gradients_are_clipped_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[tuple[float, float]] = []
    step = torch.optim.Adam.step

    def watched(self: Any, *given: Any, **named: Any) -> Any:
        length = [
            float(torch.cat([p.grad.flatten() for p in net.parameters()]).norm())
            for net in (learner._learners["shared"].actor, learner._learners["shared"].critic)
        ]
        lengths.append((length[0], length[1]))
        return step(self, *given, **named)

    monkeypatch.setattr(torch.optim.Adam, "step", watched)
    learner = make(PileRules(illegal="raise"), max_grad_norm=0.01)
    (update,) = learner.learn()
    assert len(lengths) == 4
    assert np.array(lengths) == pytest.approx(np.full((4, 2), 0.01), rel=1e-3)
    assert update.figures["grad_norm_critic"] > 0.01  # told as it was before


def test_schedules_begin_where_they_say_and_end_at_nothing() -> None:
    learner = make(FifteenRules(), updates=4, learning_rate=0.008, ent_coef=0.4, ent_coef_end=0.0)
    entropies: list[float] = []
    minibatch = learner._minibatch
    learner._minibatch = lambda *given: (entropies.append(given[4]), minibatch(*given))
    rates = [update.figures["learning_rate"] for update in learner.learn()]
    assert rates == pytest.approx([0.008, 0.006, 0.004, 0.002])
    assert sorted(set(entropies), reverse=True) == pytest.approx([0.4, 0.3, 0.2, 0.1])
    steady = make(FifteenRules(), updates=2, learning_rate=0.008, anneal=False)
    assert [update.figures["learning_rate"] for update in steady.learn()] == [0.008, 0.008]


def test_the_entropy_bonus_keeps_the_policy_open() -> None:
    given: dict[str, Any] = {"updates": 10, "copies": 16, "gamma": 0.0, "learning_rate": 0.01}
    plain = list(make(FifteenRules(), **given).learn())[-1].figures["entropy"]
    bonus = list(make(FifteenRules(), ent_coef=10.0, **given).learn())[-1].figures["entropy"]
    legal = [bin(k).count("1") for k in range(1, 16)]
    assert bonus == pytest.approx(np.mean(np.log(legal)), abs=0.02)
    assert plain < bonus - 0.2


def test_epochs_end_at_the_divergence_told() -> None:
    def count(**given: Any) -> int:
        learner = make(FifteenRules(), n_epochs=20, learning_rate=0.02, **given)
        steps: list[Any] = []
        minibatch = learner._minibatch
        learner._minibatch = lambda *arguments: (steps.append(1), minibatch(*arguments))
        list(learner.learn())
        return len(steps)

    assert count() == 40
    assert 2 <= count(kl_stop=0.01) < 40


def test_the_penalty_on_divergence_holds_the_policy_and_adapts() -> None:
    given: dict[str, Any] = {"n_epochs": 10, "learning_rate": 0.02, "updates": 2}
    loose = list(make(FifteenRules(), **given).learn())[-1].figures["approx_kl"]
    held = list(make(FifteenRules(), kl_coef=100.0, **given).learn())[-1].figures["approx_kl"]
    assert held < loose / 3
    learner = make(FifteenRules(), kl_coef=0.25, target_kl=1e-5, **given)
    list(learner.learn())
    assert learner._learners["shared"].kl_coef == 1.0
    other = make(FifteenRules(), kl_coef=0.25, target_kl=1e-5, **given)
    other.load(learner.save())
    assert other._learners["shared"].kl_coef == 1.0


def test_value_clipping_changes_what_is_learned() -> None:
    found = []
    for clip in (None, 1e-6):
        learner = make(PileRules(illegal="raise"), value_clip=clip, n_epochs=8)
        list(learner.learn())
        found.append(policy_bytes(learner, "shared"))
    assert found[0] != found[1]


# --- Critics -------------------------------------------------------------------------------------


class SignRules(SteadyRules):
    """One step; both are paid the sign that agent_1 alone sees. Fields of the state are rows."""

    name = "sign_v0"

    def __init__(self) -> None:
        super().__init__(1)

    def start(self, rngs: Any) -> Any:
        state = super().start(rngs)
        state.pay[...] = np.array([rng.choice([-1.0, 1.0]) for rng in rngs])[:, None]
        return state

    def observation_space(self, agent: str) -> spaces.Dict:
        seen = spaces.Box(-1, 1, (1,), np.float32)
        return spaces.Dict({"observation": seen, "action_mask": spaces.Box(0, 1, (3,), np.int8)})

    def observe(self, state: Any) -> Any:
        shown = state.pay[..., None] * np.array([[0.0], [1.0]], np.float32)
        mask = np.tile(np.array([1, 1, 0], np.int8), (len(state.t), 2, 1))
        return agent_views(self.agents, observation=shown.astype(np.float32), action_mask=mask)

    def step(self, state: Any, action: Any) -> Any:
        outcome = super().step(state, action)
        outcome.reward = outcome.reward.copy()  # the state's own is that of the next episode soon
        outcome.terminated = np.ones(action.shape, dtype=bool)
        return outcome

    def global_state(self, state: Any) -> Any:
        return state.pay[:, :1].copy()


@pytest.mark.parametrize("critic_input", [*CRITICS, "own"])
def test_what_the_critic_sees_decides_what_it_knows(critic_input: str) -> None:
    trainer = IPPO if critic_input == "own" else MAPPO
    given = {} if critic_input == "own" else {"critic_input": critic_input}
    learner = make(SignRules(), trainer, 60, copies=16, learning_rate=0.01, **given)
    for _ in learner.learn():
        pass
    batch = Batch(SignRules(), 32, 5)
    seen = batch.reset()
    signs = batch.global_state()[:, 0]
    values = learner.values(seen, batch.global_state())
    assert values["agent_1"] == pytest.approx(signs, abs=0.15)
    expected = np.zeros(32) if critic_input == "own" else signs
    assert values["agent_0"] == pytest.approx(expected, abs=0.25)
    # Nothing of what the other sees reaches an actor.
    views = [{**seen["agent_0"]} for _ in range(2)]
    chances = [
        learner.policies["agent_0"].act(view, deterministic=True).extra["probabilities"]
        for view in views
    ]
    assert (chances[0] == chances[0][0]).all()


def test_critics_are_shown_what_the_others_do_and_not_what_oneself_does() -> None:
    rules = PileRules((20, 30), takes=(2, 3), illegal="raise", max_cycles=3)
    policies = separate(rules)
    learner = make(rules, policies=policies, critic_input="observations+actions", n_epochs=1)
    list(learner.learn())
    rollout = learner._rollout
    for i, others in ((0, slice(3 + 3 + 2, None)), (1, slice(3 + 3, 3 + 3 + 2))):
        shown = learner._critic_sees(rollout, i)[0].numpy()  # [T + 1, B, 1, 6 + 2 + 3]
        assert shown.shape == (17, 4, 1, 11)
        both = np.concatenate([track.vector for track in rollout.tracks], axis=-1)
        assert (shown[..., :6] == both).all()
        actions = shown[:, :, 0, 6:].copy()
        own = slice(0, 2) if i == 0 else slice(2, 5)
        assert not actions[..., own].any()
        told = shown[:16, :, 0, others].argmax(-1)
        acted = rollout.acted[:, :, 1 - i]
        assert (shown[:16, :, 0, others].sum(-1) == acted).all()
        assert (told == rollout.tracks[1 - i].action[..., 0])[acted].all()
        # What would follow is drawn too: at the cut of the rollout, and at those of episodes.
        assert (shown[16, :, 0, others].sum(-1) == rollout.acting[:, 1 - i]).all()
        final = learner._critic_sees(rollout, i, final=True)[0].numpy()
        assert len(final) == 20
        moves = rollout.finals[1 - i][0].mask[:, 0].any(-1)
        assert (final[:4, 0, others].sum(-1) == moves).all()


def test_the_own_action_in_the_critic_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="own_action=True: a critic that sees the own action"):
        learner = make(SteadyRules(), critic_input="observations+actions", own_action=True)
    list(learner.learn())
    shown = learner._critic_sees(learner._rollout, 0)[0].numpy()
    assert (shown[:16, :, :, 2:8].sum(-1) == 2).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(SteadyRules(), critic_input="observations+actions")


def test_agents_of_one_policy_are_told_apart_unless_told_otherwise() -> None:
    with_id, without = make(SteadyRules()), make(SteadyRules(), agent_id=False)
    assert with_id._learners["shared"].actor.layers[0].in_features == 1 + 2
    assert without._learners["shared"].actor.layers[0].in_features == 1
    alone = make(SteadyRules(), policies=separate(SteadyRules()))
    assert alone._learners["agent_0"].actor.layers[0].in_features == 1
    seen = {"observation": np.ones((1, 1), np.float32), "action_mask": np.array([[1, 1, 0]])}
    played = [with_id.policies[agent].act(seen, deterministic=True) for agent in with_id.policies]
    chances = [decision.extra["probabilities"] for decision in played]
    assert (chances[0] != chances[1]).any()


def test_images_and_vectors_together() -> None:
    for critic_input in CRITICS:
        learner = make(SteadyRules(nested=True), critic_input=critic_input)
        list(learner.learn())
        played = learner.policies["agent_0"].act(
            {
                "observation": {
                    "level.now": np.ones(1, np.float32),
                    "picture": np.zeros((2, 3), np.uint8),
                },
                "action_mask": np.array([1, 1, 0], np.int8),
            },
            rng=np.random.default_rng(0),
        )
        assert played.action in (0, 1)


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
    with pytest.raises(ValueError, match="sampling needs rng="):
        policy.act(seen, state)
    if memory:
        assert state.shape == (6, memory)
        with pytest.raises(ValueError, match=r"give what initial_state\(6\)"):
            policy.act(seen, state[:2], deterministic=True)
        other = policy.act(seen, policy.initial_state(6), deterministic=True)
        assert (other.extra["probabilities"] != many.extra["probabilities"]).any()


def test_a_team_with_memory_is_evaluated() -> None:
    rules = PileRules(illegal="raise")
    learner = make(rules, memory=4)
    list(learner.learn())
    score = evaluate_team(rules, Player(learner.policies, deterministic=False), episodes=10)
    assert score.illegal_actions == 0


# --- Seeds and going on --------------------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "mappo": {},
    "ippo": {"trainer": IPPO},
    "memory": {"memory": 4},
    "actions": {"critic_input": "observations+actions", "memory": 4},
    "penalty": {"kl_coef": 0.5, "target_kl": 0.001, "ent_coef": 0.1, "ent_coef_end": 0.0},
}


@pytest.mark.parametrize("rules", [PileRules, FifteenRules, MortalRules])
@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_it_goes_on_bit_for_bit(kind: str, rules: Any) -> None:
    def fresh() -> Any:
        made = rules(illegal="raise") if rules is not FifteenRules else rules()
        return make(made, updates=4, n_steps=13, **KINDS[kind])

    whole = fresh()
    figures = [update.figures for update in whole.learn()]
    trainer = fresh()
    told = []
    for _ in range(4):
        told.append(next(trainer.learn()).figures)
        # Within an episode, and through the very bytes of a checkpoint.
        saved = trainer.save()
        documents = json.loads(json.dumps(saved.documents))
        trainer = fresh()
        trainer.load(Content(documents, saved.arrays))
        assert trainer.resumes_exactly
    assert told == figures
    assert trainer.env_steps == whole.env_steps
    next(trainer.learn(), None)  # the copies are restored when it goes on; here it is at its end
    first, second = content(whole), content(trainer)
    assert first == second


def test_a_seed_decides_everything_and_nothing_else_does() -> None:
    random.seed(1)
    np.random.seed(2)  # noqa: NPY002
    torch.manual_seed(3)
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    one = make(PileRules(illegal="raise"), updates=2, memory=4)
    list(one.learn())
    one.policies["agent_0"].initial_state(1)
    after = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    assert before[0] == after[0]
    assert all(np.array_equal(a, b) for a, b in zip(before[1], after[1], strict=True))
    assert torch.equal(before[2], after[2])
    torch.manual_seed(4)
    again = make(PileRules(illegal="raise"), updates=2, memory=4)
    list(again.learn())
    assert content(one) == content(again)
    other = make(PileRules(illegal="raise"), updates=2, memory=4, seed=1)
    list(other.learn())
    assert (
        content(one)[1]["policy_shared.actor.head.weight"]
        != (content(other)[1]["policy_shared.actor.head.weight"])
    )


def run_of(folder: Path, updates: int = 4, **changes: Any) -> Any:
    """A run of a few updates on a small trace."""
    given: dict[str, Any] = {"trainer": "mappo", "environment": "dfaas_v0", **SMALL, **changes}
    if given["environment"] == "dfaas_v0":
        given["env"] = {"trace": small_trace(), "max_cycles": 30}
    return train(steps=updates * ROLLOUT, out=folder, **given)


@pytest.mark.parametrize(
    "given",
    [
        {"trainer": "mappo"},
        {"trainer": "ippo", "policies": "separate"},
        {"environment": PileRules(illegal="raise"), "memory": 4},
    ],
)
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    whole = run_of(tmp_path / "whole", **given)
    show = training.Bar.show

    def and_stop(bar: Any, row: Any, *shown: Any) -> None:
        show(bar, row, *shown)
        if row["env_steps"] == 2 * ROLLOUT:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(training.Bar, "show", and_stop)
        run = run_of(tmp_path / "run", **given)
    assert run.stopped_by == signal.SIGINT
    assert len(rows(run)) == 2
    assert everything(run) != everything(whole)
    resume(run.folder, rules=given.get("environment"))
    assert everything(run) == everything(whole)
    assert rows(run) == rows(whole)


def test_a_run_without_a_saved_environment_begins_new_episodes() -> None:
    learner = make(PileRules(illegal="raise"), updates=2, memory=4)
    next(learner.learn())
    saved = learner.save()
    documents = {"trainer": dict(saved.documents["trainer"])}
    del documents["trainer"]["environment"]
    other = make(PileRules(illegal="raise"), updates=2, memory=4)
    other.load(Content(documents, saved.arrays))
    assert not other.resumes_exactly
    (update,) = other.learn()
    assert update.env_steps == 2 * ROLLOUT


def test_checkpoints_that_do_not_fit_are_refused_before_anything_changes() -> None:
    learner = make(PileRules(illegal="raise"), updates=2, memory=4)
    next(learner.learn())
    saved = learner.save()
    for changes in ({"net_arch": (17,)}, {"memory": 0}, {"memory": 5}, {"agent_id": False}):
        other = make(PileRules(illegal="raise"), updates=2, **{"memory": 4, **changes})
        before = content(other)
        with pytest.raises(CheckpointError, match="does not fit"):
            other.load(saved)
        assert content(other) == before
    other = make(PileRules(illegal="raise"), updates=2, memory=4)
    for missing in saved.documents["trainer"]:
        if missing == "environment":  # it may be missing: see above
            continue
        told = {key: v for key, v in saved.documents["trainer"].items() if key != missing}
        with pytest.raises(CheckpointError, match=missing):
            make(PileRules(illegal="raise"), memory=4).load(
                Content({"trainer": told}, saved.arrays)
            )
    for missing in saved.arrays:
        arrays = {file: found for file, found in saved.arrays.items() if file != missing}
        with pytest.raises(CheckpointError, match=missing):
            make(PileRules(illegal="raise"), memory=4).load(Content(saved.documents, arrays))
    fewer = make(PileRules(illegal="raise"), updates=2, memory=4, copies=3)
    with pytest.raises(CheckpointError, match="memory: does not fit"):
        fewer.load(saved)
    other.load(saved)


# --- Who learns ----------------------------------------------------------------------------------


def test_policies_that_do_not_train_only_play() -> None:
    rules = PileRules(illegal="raise")
    learner = make(rules, updates=2, policies=separate(rules), to_train=["agent_1"])
    before = {agent: policy_bytes(learner, agent) for agent in rules.agents}
    updates = list(learner.learn())
    assert policy_bytes(learner, "agent_0") == before["agent_0"]
    assert policy_bytes(learner, "agent_1") != before["agent_1"]
    assert all(name.startswith("agent_1/") for name in updates[0].figures)
    assert learner.save().arrays["optimizer_agent_0"] == {}
    other = make(rules, updates=2, policies=separate(rules), to_train=["agent_1"])
    other.load(learner.save())


def test_every_weight_learns() -> None:
    learner = make(FifteenRules(), memory=4, ent_coef=0.01)
    one = learner._learners["shared"]
    before = {name: p.detach().clone() for name, p in one.named_parameters()}
    next(learner.learn())
    for name, parameter in one.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert not torch.equal(parameter, before[name]), name


# --- Mistakes ------------------------------------------------------------------------------------


def test_agents_of_one_policy_must_be_alike() -> None:
    with pytest.raises(UnsupportedSpaceError, match=r"policy shared plays agent_0 .* agent_1 "):
        make(PileRules(takes=(2, 3)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"gamma": 1.5}, "gamma=1.5: give a number of 0 to 1"),
        ({"copies": 0}, "copies=0: give a whole number, 1 or more"),
        ({"n_minibatches": 0}, "n_minibatches=0: give a whole number, 1 or more"),
        ({"memory": -1}, "memory=-1: give a whole number"),
        ({"clip_range": 0.0}, "clip_range=0.0: give a number above 0"),
        ({"value_clip": 0.0}, "value_clip=0.0: give a number above 0, or None"),
        ({"huber_delta": -1.0}, "huber_delta=-1.0: give a finite number"),
        ({"value_decay": 1.0}, "value_decay=1.0: give a number of 0 to below 1"),
        ({"target_kl": 0.01}, "target_kl=0.01 adapts a penalty that kl_coef=0 leaves out"),
        ({"net_arch": 16}, "net_arch=16: give a tuple"),
        ({"net_arch": (16, 0)}, "net_arch=0: give a whole number, 1 or more"),
        ({"cnn_arch": 16}, "cnn_arch=16: give a tuple"),
        ({"cnn_arch": (16, 0)}, "cnn_arch=0: give a whole number, 1 or more"),
        ({"cnn_arch": (16,)}, "give filters and units, such as"),
        ({"cnn_patch": -1}, "cnn_patch=-1: give a whole number, 0 or more"),
        ({"activation": "rely"}, "did you mean 'relu'"),
        ({"critic_input": "stat"}, "did you mean 'state'"),
        ({"own_action": True}, "own_action=True needs critic_input='observations"),
        ({"anneal": 1}, "anneal=1: give True or False"),
        ({"ent_coef_end": float("nan")}, "ent_coef_end=nan: give a finite number"),
        ({"device": "tpu"}, "device='tpu'"),
    ],
)
def test_settings_out_of_range_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        make_settings(MAPPO, given)


def test_ippo_has_no_setting_of_what_its_critic_sees() -> None:
    with pytest.raises(TypeError, match="critic_input"):
        make_settings(IPPO, {"critic_input": "state"})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="device='cuda': torch finds no CUDA device"):
        make(SteadyRules(), device="cuda")


# --- Numbers that are not finite -----------------------------------------------------------------


@pytest.mark.parametrize("where", ["observation", "last observation", "reward"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_ends_training_before_anything_is_saved(
    tmp_path: Path, where: str, value: float
) -> None:
    rules = FaultyRules(where, 2 * 16 + 3, value)
    with pytest.raises(NonFiniteError, match=r"copy \d, agent_1: the (observation|reward) "):
        run_of(tmp_path / "run", 5, environment=rules, checkpoint_every=1)
    assert [row["env_steps"] for row in rows(tmp_path / "run")] == ["64", "128"]
    for values in kept(tmp_path / "run").arrays.values():
        assert all(np.isfinite(array).all() for array in values.values())


def test_a_global_state_that_is_not_finite_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        SteadyRules, "global_state", lambda self, state: np.full((len(state.t), 1), np.nan)
    )
    with pytest.raises(NonFiniteError, match="copy 0: global_state holds"):
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
    begin = MAPPO._begin

    def begun(self: Any) -> None:
        learners.append(self)
        nonlocal one
        one = self._learners["shared"]
        begin(self)

    one: Any = None
    monkeypatch.setattr(MAPPO, "_begin", begun)
    with pytest.raises(NonFiniteError, match=r"policy shared|not finite"):
        run_of(tmp_path / "run", 5, checkpoint_every=1)
    assert [row["env_steps"] for row in rows(tmp_path / "run")] == ["64", "128"]


# --- Runs ----------------------------------------------------------------------------------------


def test_a_run_is_read_back_evaluated_and_exported(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", policies={"node_0": "a", "node_1": "b", "node_2": "a"})
    seen = Batch(run.config.task.rules(), 8, 3).reset()
    chances = run.policies["node_0"].act(seen["node_0"], deterministic=True).extra["probabilities"]
    again = corral.load_run(run.folder).policies["node_0"]
    told = again.act(seen["node_0"], deterministic=True).extra["probabilities"]
    assert (told == chances).all()
    result = corral.evaluate(run, references=("local/equal",), optimum_windows=1)
    assert {score.policy for score in result.scores} >= {"mappo, greedy", "mappo, sampled"}
    assert all(score.illegal_actions == 0 for score in result.scores)
    paths = run.export(tmp_path / "export")
    assert sorted(path.name for path in paths) == [
        *("a.json", "a.safetensors", "b.json", "b.safetensors")
    ]
    from safetensors.numpy import load_file

    arrays = load_file(tmp_path / "export" / "a.safetensors")
    told_of = json.loads((tmp_path / "export" / "a.json").read_text())
    assert told_of["agents"] == ["node_0", "node_2"]
    # Played by hand, layer by layer.
    hidden = np.concatenate([seen["node_0"]["observation"], np.tile([1.0, 0.0], (8, 1))], axis=1)
    hidden = np.maximum(hidden @ arrays["layers.0.weight"].T + arrays["layers.0.bias"], 0)
    logits = hidden @ arrays["head.weight"].T + arrays["head.bias"]
    legal = seen["node_0"]["action_mask"] == 1
    powers = np.where(legal, np.exp(logits - logits.max(axis=1, keepdims=True)), 0)
    assert powers / powers.sum(axis=1, keepdims=True) == pytest.approx(chances, abs=1e-5)


def test_no_stable_baselines_is_needed(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys\n"
        "for name in ('stable_baselines3', 'sb3_contrib', 'supersuit'): sys.modules[name] = None\n"
        "import corral\n"
        f"corral.train('dfaas_v0', trainer='ippo', steps=64, copies=4, n_steps=16, "
        f"out={str(tmp_path / 'run')!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_it_comes_near_the_optimum_of_the_bundled_trace(tmp_path: Path) -> None:
    run = train("dfaas_v0", trainer="mappo", steps=150_000, seed=1, out=tmp_path / "run")
    result = corral.evaluate(run, references=("overflow/equal",), optimum_windows=1)
    shares = {score.policy: score.share_of_optimum for score in result.scores}
    assert shares["mappo, greedy"] > 0.995
    assert isinstance(run.config.task.rules(), DfaasRules)


def test_third_party_environments_are_played_through_zoo_batches() -> None:
    zoo = pytest.importorskip("corral.adapters.zoo")
    from support.zoo_envs import MixedEnv

    with zoo.make_zoo_batch(MixedEnv, 2, 0) as batch:
        rules = batch.rules

    def many(rules: Any, copies: int, seed: int) -> Any:
        return zoo.make_zoo_batch(MixedEnv, copies, seed)

    for critic_input in CRITICS:
        learner = make(
            rules,
            updates=2,
            policies=separate(rules),
            make_batch=many,
            critic_input=critic_input,
            memory=4,
        )
        updates = list(learner.learn())
        learner.close()
        assert not learner.resumes_exactly
        assert "environment" not in learner.save().documents["trainer"]
        assert sum(len(update.episodes) for update in updates) >= 8
        assert np.isfinite([*updates[-1].figures.values()]).all()


def test_weights_of_a_run_are_those_of_its_seed(tmp_path: Path) -> None:
    first, again = run_of(tmp_path / "a", 2, seed=3), run_of(tmp_path / "b", 2, seed=3)
    other = run_of(tmp_path / "c", 2, seed=4)
    assert everything(first) == everything(again)
    heads = [weights(run)["policy_shared.actor.head.weight"] for run in (first, other)]
    assert heads[0] != heads[1]
