"""The trainer policy_iteration: what it learns, how it goes on, and what it refuses."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

import corral
from corral.adapters.masked_distribution import MaskedCategorical
from corral.adapters.snapshots import SnapshotBatch, snapshot_rules
from corral.adapters.zoo.batch import zoo_rules
from corral.envs.core import generator
from corral.envs.registry import make_rules
from corral.errors import CheckpointError, UnknownNameError, UnsupportedSpaceError
from corral.lab.doctor.audit import audit
from corral.lab.doctor.audit.findings import against_truth
from corral.lab.doctor.evidence.gathering import gather
from corral.lab.doctor.facts import facts_of
from corral.lab.doctor.findings.rules import RULES
from corral.trainers.on_policy.learner import START
from corral.trainers.on_policy.records import Minibatch, Outputs
from corral.trainers.policy_iteration.record import GAIN, TRIED, comparison_loss, policy_iteration
from corral.trainers.policy_iteration.trainer import PolicyIteration
from support.arena_scalar import PlainArena
from support.loads import small_trace
from support.mappo_teams import content, make, policy_bytes, separate
from support.turn_rules import MortalRules, PileRules
from support.zoo_envs import MixedEnv

LITTLE: dict[str, Any] = {
    **{"num_envs": 4, "n_steps": 4, "n_minibatches": 2, "n_epochs": 2, "net_arch": (16,)},
    **{"candidates": 3, "lookahead": 3, "device": "cpu", "preset": "none", "progress": False},
}
DFAAS: dict[str, Any] = {"trace": small_trace(), "max_cycles": 10}


def trained(env: Any, out: Path, steps: int = 64, **given: Any) -> Any:
    settings = {**LITTLE, **given}
    return corral.train(env, trainer="policy_iteration", steps=steps, out=out, **settings)


# --- The loss ------------------------------------------------------------------------------------


def test_the_loss_is_huber_of_the_differences_between_logits() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.2, 0.8, 0.0]]).clamp(min=1e-9))
    mask = torch.tensor([[True, True, True], [True, True, False]])
    tried = torch.tensor([[0, 1, 0], [1, 0, 1]])
    gain = torch.tensor([[0.0, 1.0, 0.0], [0.0, -20.0, 0.0]])
    zero = torch.zeros(2)
    extras = {TRIED: tried, GAIN: gain}
    parts: Any = {"action": tried[:, 0], "mask": mask, "log_prob": zero, "advantage": zero}
    parts |= {"value_target": zero, "old_value": zero, "epoch": 0, "progress": 0.0, "kl_coef": 0.0}
    distribution = MaskedCategorical(logits, mask)
    outputs = Outputs(distribution, zero, zero)
    settings = policy_iteration.Settings(gain_delta=10.0)
    found = comparison_loss(Minibatch(**parts, extras=extras), outputs, settings).terms
    first = (np.log(0.5) - 1) ** 2 / 2  # log(0.25) - log(0.5) should be 1
    second = 10 * (20 - np.log(4) - 5)  # log(0.2) - log(0.8) should be -20: linear from 10 on
    assert float(found["gain_error"]) == pytest.approx((first + second) / 6, rel=1e-5)


def test_with_stay_coef_the_start_is_a_prior() -> None:
    """Logits that are the start's, so many times, plus what the actions earned have no error."""
    start = torch.tensor([[1.0, 3.0, -50.0]])  # differences beyond 20 count as 20
    tried, gain = torch.tensor([[0, 1, 2]]), torch.tensor([[0.0, -0.5, 2.0]])
    learned = torch.tensor([[0.0, 0.5 * 2.0 - 0.5, 0.5 * -20.0 + 2.0]])
    mask, zero = torch.ones(1, 3, dtype=torch.bool), torch.zeros(1)
    parts: Any = {"action": tried[:, 0], "mask": mask, "log_prob": zero, "advantage": zero}
    parts |= {"value_target": zero, "old_value": zero, "epoch": 0, "progress": 0.0, "kl_coef": 0.0}
    extras = {TRIED: tried, GAIN: gain, f"{START}logits": start}
    outputs = Outputs(MaskedCategorical(learned, mask), zero, zero)
    settings = policy_iteration.Settings()
    assert settings.stay_coef == 0
    errors = [
        comparison_loss(Minibatch(**parts, extras=extras, stay_coef=coef), outputs, settings)
        for coef in (0.5, 1.0)
    ]
    assert float(errors[0].terms["gain_error"]) == pytest.approx(0, abs=1e-10)
    assert float(errors[1].terms["gain_error"]) > 1


def test_with_values_the_policy_learns_the_softmax_of_the_gains() -> None:
    """Only actions that were tried count, and each of them once."""
    tried, gain = torch.tensor([[0, 1, 1]]), torch.tensor([[0.0, np.log(3), np.log(3)]])
    mask, zero = torch.ones(1, 3, dtype=torch.bool), torch.zeros(1)
    parts: Any = {"action": tried[:, 0], "mask": mask, "log_prob": zero, "advantage": zero}
    parts |= {"value_target": zero, "old_value": zero, "epoch": 0, "progress": 0.0, "kl_coef": 0.0}
    minibatch = Minibatch(**parts, extras={TRIED: tried, GAIN: gain})
    settings = policy_iteration.Settings(bootstrap=True)
    errors = []
    for chances in ((0.2, 0.6, 0.2), (0.4, 0.4, 0.2)):
        outputs = Outputs(MaskedCategorical(torch.tensor([chances]).log(), mask), zero, zero)
        errors.append(float(comparison_loss(minibatch, outputs, settings).terms["gain_error"]))
    assert errors[0] == pytest.approx(0, abs=1e-6)
    assert errors[1] == pytest.approx(0.25 * np.log(0.25 / 0.5) + 0.75 * np.log(0.75 / 0.5))


# --- Learning ------------------------------------------------------------------------------------


def test_it_learns_to_go_through_the_worse_looking_game() -> None:
    rules: Any = make_rules("two_step_v0")
    given = {"num_envs": 16, "lookahead": 2, "n_epochs": 4, "n_steps": 4, "learning_rate": 0.02}
    trainer = make(rules, PolicyIteration, 12, **given)
    list(trainer.learn())
    state, total = rules.start([generator(0, "eval")]), 0.0
    for _ in range(2):
        outcome = rules.step(state, trainer.decide(rules.observe(state), rules.acting(state)))
        state, total = outcome.state, total + float(outcome.reward.sum())
    assert total == 8  # the safe game pays 7


def test_with_values_it_learns_beyond_its_lookahead() -> None:
    """Of five stones it takes one: whoever leaves four wins."""
    rules = PileRules((5, 6))
    given: dict[str, Any] = {"lookahead": 1, "bootstrap": True, "gamma": 0.9, "explore": 1.0}
    given |= {"num_envs": 32, "n_steps": 8, "n_epochs": 4, "learning_rate": 0.01}
    given |= {"net_arch": (64,), "gae_lambda": 0.5}
    trainer = make(rules, PolicyIteration, 25, **given)
    list(trainer.learn())
    state = rules.start([generator(0, "eval")])
    assert trainer.decide(rules.observe(state), rules.acting(state))[0, 0] == 0


def test_the_value_is_that_of_the_player_to_move_and_its_negative() -> None:
    rules = PileRules((5, 6))
    trainer = make(rules, PolicyIteration, 1, policies=separate(rules), bootstrap=True)
    state = rules.start([generator(0, "eval")] * 2)
    for mover in (0, 1):
        observations = rules.observe(state)
        value = trainer.value(observations, rules.acting(state))
        expected = list(trainer.values(observations, rules.global_state(state)).values())[mover]
        assert expected.all()
        assert value[:, mover] == pytest.approx(expected)
        assert (value[:, 1 - mover] == -value[:, mover]).all()
        state = rules.step(state, np.zeros((2, 2), dtype=np.int64)).state
    assert not trainer.value(observations, np.zeros((2, 2), dtype=bool)).any()


@pytest.mark.slow
def test_it_serves_as_much_as_the_optimum_of_the_default_day(tmp_path: Path) -> None:
    run = corral.train(
        "dfaas_v0", trainer="policy_iteration", steps=20_480, out=tmp_path / "run", progress=False
    )
    table = corral.evaluate(run).to_dataframe().set_index("policy")
    served = table["served"]
    assert served["policy_iteration, greedy"] >= 0.99 * served["overflow/equal"]


def test_the_teacher_plays_its_share_and_no_more() -> None:
    rules = make_rules("dfaas_v0", **DFAAS)
    trainer = make(rules, PolicyIteration, 4, teacher="local", taught=0.5, explore=0.0, n_steps=4)
    shares = [
        (trainer.rollout.actions(0) == 0).mean() for _ in trainer.learn()
    ]  # "local" forwards nothing
    assert shares[:2] == [1, 1]
    assert max(shares[2:]) < 1


def test_untrained_policies_only_play(tmp_path: Path) -> None:
    rules = make_rules("dfaas_v0", **DFAAS)
    names = separate(rules)
    kept = names[rules.agents[0]]
    others = [name for name in names.values() if name != kept]
    trainer = make(rules, PolicyIteration, 2, policies=names, to_train=others)
    before = policy_bytes(trainer, kept), policy_bytes(trainer, others[0])
    list(trainer.learn())
    assert policy_bytes(trainer, kept) == before[0]
    assert policy_bytes(trainer, others[0]) != before[1]


@pytest.mark.parametrize("rules", [PileRules(illegal="raise"), MortalRules(illegal="raise")])
def test_turns_ends_and_masks_are_kept(rules: Any) -> None:
    trainer = make(rules, PolicyIteration, 4, policies=separate(rules), own_reward=True)
    for update in trainer.learn():  # an illegal action raises
        assert np.isfinite(list(update.metrics.values())).all()
    for buffer in trainer.rollout.groups:
        rows = buffer.acting[:-1]
        legal = np.take_along_axis(buffer.mask[:-1], buffer.extras[TRIED], axis=-1)
        assert rows.any()
        assert legal[rows].all()
        assert not buffer.extras[GAIN][..., 0].any()


def test_the_doctor_finds_nothing_in_its_updates() -> None:
    rules = make_rules("dfaas_v0", **DFAAS)

    def begun() -> Any:
        return make(rules, PolicyIteration, 4, n_steps=4)

    evidence = gather(begun(), begun, updates=2)
    assert not evidence.error
    found = [rule(each, evidence) for each in evidence.policies.values() for rule in RULES]
    assert [each.cause for each in found if each is not None and each.certainty >= 2] == []
    facts = {fact.name for fact in facts_of(evidence, None)}
    assert "entropy" in facts
    assert "advantages" not in facts  # which it does not learn from


def test_the_doctor_tells_nothing_of_advantages_which_it_does_not_learn_from() -> None:
    rules = make_rules("dfaas_v0", **DFAAS)
    report = audit(make(rules, PolicyIteration, 4, n_steps=4))
    (each,) = report.policies
    assert len(each.values.known.said)
    assert not len(each.advantages.known.said)
    assert (each.credit, each.sample) == (None, None)
    assert [found.cause for found in against_truth(report)] == []


# --- Going on ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [1, 3], ids=["taught", "by itself"])
def test_it_goes_on_bit_for_bit(stop: int) -> None:
    rules = make_rules("dfaas_v0", **DFAAS)

    def begun() -> Any:
        return make(rules, PolicyIteration, 5, teacher="overflow", taught=0.4, n_steps=4)

    whole, part, after = begun(), begun(), begun()
    list(whole.learn())
    list(part.learn(stop * part.rollout_steps))
    after.load(part.save())
    list(after.learn())
    assert content(after) == content(whole)


def test_the_same_seed_gives_the_same_run_and_the_best_is_the_latest(tmp_path: Path) -> None:
    runs = [trained("two_step_v0", tmp_path / name, checkpoint_every=16) for name in "ab"]
    one, other = (corral.load_run(run.folder) for run in runs)
    assert one.content("latest").arrays.keys() == other.content("latest").arrays.keys()
    for file, arrays in one.content("latest").arrays.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, other.content("latest").arrays[file][name])
    assert corral.load_run(f"{one.folder}@best").at is not None
    assert one.checkpoint("best").resolve() == one.checkpoint("latest").resolve()
    source = corral.load_run(f"{one.folder}@best").source()
    shown(source, 64, "--evaluate-every")
    assert source.endswith("(--evaluate-every)")  # no number of it


def test_a_mappo_run_may_start_it_and_start_from_it(tmp_path: Path) -> None:
    given: dict[str, Any] = {"env_kwargs": DFAAS, "steps": 64, "preset": "none", "progress": False}
    given |= {"num_envs": 4, "n_steps": 8}
    first = corral.train("dfaas_v0", trainer="ippo", out=tmp_path / "a", **given)
    second = trained("dfaas_v0", tmp_path / "b", env_kwargs=DFAAS, init=first, net_arch=(64, 64))
    third = corral.train("dfaas_v0", trainer="ippo", out=tmp_path / "c", init=second, **given)
    assert third.config.init is not None


def test_a_run_may_teach_and_must_stay_what_it_was(tmp_path: Path) -> None:
    taught: dict[str, Any] = {"env_kwargs": DFAAS, "taught": 0.5}
    run = trained("dfaas_v0", tmp_path / "teacher", env_kwargs=DFAAS)
    rules = make_rules("dfaas_v0", **DFAAS)
    trainer = make(rules, PolicyIteration, 4, teacher=str(run.folder), taught=0.5, n_steps=4)
    list(trainer.learn(trainer.rollout_steps))
    saved = trainer.save()
    saved.documents["comparisons"]["taught_by"] = "0" * 64
    trainer = make(rules, PolicyIteration, 4, teacher=str(run.folder), taught=0.5, n_steps=4)
    trainer.load(saved)
    with refused(CheckpointError, run.folder):
        list(trainer.learn())
    assert trained("dfaas_v0", tmp_path / "b", teacher=str(run.folder), **taught).folder.is_dir()


def test_the_route_that_a_teacher_is_named_with_is_taken_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained("dfaas_v0", tmp_path / "run", env_kwargs=DFAAS, teacher="overflow/spare")
    assert run.config.env_config.env_kwargs["route"] == "spare"
    shown(capsys.readouterr().err, "overflow/spare", "route=spare")
    with refused(ValueError, "overflow/spare", "route='spare'", "route='two'"):
        trained(
            "dfaas_v0",
            tmp_path / "other",
            env_kwargs={**DFAAS, "route": "two"},
            teacher="overflow/spare",
        )


def test_presets_that_were_found_for_returns_are_left_out(tmp_path: Path) -> None:
    given = {"trainer": "policy_iteration", "out": tmp_path / "run", "dry_run": True}
    run = corral.train("dfaas_v0", env_kwargs=DFAAS, **given)
    assert run.config.settings["gamma"] == 1.0  # that of the environment's entry: 0.5


def test_a_target_that_adapts_nothing_is_refused() -> None:
    with refused(ValueError, "stay_target=0.1"):
        policy_iteration.Settings(stay_coef=0.1, stay_target=0.1)


# --- Third-party environments ---------------------------------------------------------------------


def test_it_compares_actions_in_copies_of_a_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = functools.partial(PlainArena, width=3, height=3, max_cycles=8)
    given: dict[str, Any] = {"steps": 256, "num_envs": 16, "n_steps": 4, "lookahead": 4}
    given |= {"trainer": "policy_iteration", "progress": False, "seed": 1}
    run = corral.train(plain, out=tmp_path / "run", **given)
    shown(capsys.readouterr().err, "pickle")
    with refused(CheckpointError, "arena_plain"):
        SnapshotBatch(snapshot_rules(zoo_rules(plain)), 2, 0).snapshot()
    resumed = corral.resume(run.folder, env=plain, steps=320, progress=False)
    assert resumed.config.steps == 320
    scales = pd.read_csv(run.folder / "progress.csv")["gain_scale"]
    assert len(scales) == 320 // (16 * 4)
    assert (scales > 0).all()


def test_its_gains_are_those_of_the_array_rules() -> None:
    """The first rollout of a class compares as the array rules of the same game do."""
    gains = []
    for rules in (
        make_rules("two_step_v0"),
        zoo_rules(functools.partial(corral.make, "two_step_v0")),
    ):
        trainer = make(rules, PolicyIteration, 4, n_steps=4)
        trainer.check()
        trainer.begin()
        trainer.collect()
        gains.append([buffer.extras[GAIN].copy() for buffer in trainer.rollout.groups])
    assert any(gain.any() for gain in gains[0])
    for one, two in zip(*gains, strict=True):
        assert (one == two).all()


# --- What it refuses -----------------------------------------------------------------------------


def test_values_need_rewards_that_sum_to_zero() -> None:
    """tiles_v0 is a game of two in turn, who earn together."""
    small = {"num_envs": 2, "n_steps": 4, "lookahead": 1}
    rules: Any = make_rules("tiles_v0")
    policies = separate(rules)
    trainer = make(rules, PolicyIteration, 8, policies=policies, bootstrap=True, **small)
    with refused(ValueError, "bootstrap=True", "tiles_v0"):
        list(trainer.learn())


@pytest.mark.parametrize(
    ("env", "given", "kind", "named"),
    [
        ("rps_v0", {}, ValueError, ("--own-reward", "own_reward=True")),
        ("tictactoe_v0", {}, ValueError, ("--own-reward", "own_reward=True")),
        ("rps_v0", {"bootstrap": True}, ValueError, ("bootstrap=True", "rps_v0")),
        ("two_step_v0", {"memory": 8}, ValueError, ("memory=8", "mappo")),
        ("two_step_v0", {"clip_range": 0.3}, ValueError, ("clip_range=0.3",)),
        ("two_step_v0", {"candidates": 1}, ValueError, ("candidates=1",)),
        ("two_step_v0", {"lookahead": 0}, ValueError, ("lookahead=0",)),
        ("two_step_v0", {"teacher": "overflow"}, UnknownNameError, ("'overflow'",)),
        (
            "two_step_v0",
            {"opponents": {"agent_0": "random"}},
            ValueError,
            ("policy_iteration", "opponents={'agent_0': 'random'}"),
        ),
        ("two_step_v0", {"self_play": "past=0.2"}, ValueError, ("policy_iteration", "snapshots")),
        (
            "two_step_v0",
            {"settings_of": {"shared": {"explore": 1}}},
            ValueError,
            ("shared.explore", "explore="),
        ),
        (MixedEnv, {}, UnsupportedSpaceError, ("walker", "--trainer mappo")),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_played(
    env: Any, given: Any, kind: Any, named: tuple[object, ...], tmp_path: Path
) -> None:
    with refused(kind, *named):
        trained(env, tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


def test_a_teacher_with_a_hidden_state_is_refused(tmp_path: Path) -> None:
    memory = {"memory": 4, "num_envs": 4, "n_steps": 8, "preset": "none", "progress": False}
    teacher = corral.train(
        "two_step_v0", trainer="ippo", steps=32, out=tmp_path / "teacher", **memory
    )
    with refused(ValueError, teacher.folder, "agent_0", "corral clone", "--init"):
        trained("two_step_v0", tmp_path / "run", teacher=str(teacher.folder))
