"""Warnings while training: planted faults are told by the third update, sound runs hear none."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import shown

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

import corral
from corral import algorithms as alg
from corral.adapters.masked_distribution import MaskedCategorical
from corral.adapters.zoo.batch import zoo_rules
from corral.lab.doctor.watching.live import Watch
from corral.trainers.callbacks.listeners import Listeners
from corral.trainers.on_policy.records import Outputs
from corral.trainers.on_policy.trainer import MAPPO
from faults.sound import Depots, depots
from support.bits_env import BitsEnv
from support.mappo_teams import ROLLOUT, SMALL
from support.runs import everything, rows, weights
from support.thinned import fast_every

GAME: dict[str, Any] = {"env": "arena_v0", "env_kwargs": {"max_cycles": 10}, "policies": "shared"}


def trained(folder: Path, trainer: Any = "mappo", updates: int = 5, **given: Any) -> Any:
    """A small run, of arena_v0 unless told otherwise."""
    given = {**GAME, "progress": False, "preset": "none", **SMALL, **given}
    return corral.train(trainer=trainer, steps=updates * ROLLOUT, out=folder, **given)


def warned(run: Any, column: str = "warnings") -> list[str]:
    return [row.get(column, "") for row in rows(run)]


def zero(trajectories: Any, settings: Any) -> Any:
    found = alg.gae(trajectories, settings)
    return alg.Advantages(np.zeros_like(found.advantage), found.value_target)


zeroed = alg.mappo.but(name="zeroed", advantages=zero)


# --- When it is said, and where ------------------------------------------------------------------


def test_zero_advantages_are_told_once_by_the_third_update(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path / "run", zeroed)
    said = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert len(said) == 1
    shown(said[0], run.folder, f"{3 * ROLLOUT:,}", "advantages")
    assert warned(run) == ["0", "0", "1", "1", "1"]
    assert warned(run, "warning_zero_advantages") == ["", "", "1", "1", "1"]


@pytest.mark.parametrize(("trainer", "heard"), [("mappo", "0"), (zeroed, "1")])
def test_with_a_pool_the_same_is_told(trainer: Any, heard: str, tmp_path: Path) -> None:
    pool = f"past=0.6,every={ROLLOUT},keep=2,best=0"
    assert warned(trained(tmp_path / "run", trainer, self_play=pool))[-1] == heard


def test_policies_are_counted_each_and_named_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path / "run", zeroed, updates=3, policies="separate")
    said = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert len(said) == 1
    shown(said[0], "agent_1", "agent_2")
    assert warned(run) == ["0", "0", "2"]
    assert warned(run, "agent_2/warning_zero_advantages") == ["", "", "1"]


def test_a_single_bad_update_may_be_chance(tmp_path: Path) -> None:
    calls = []

    def at_times(trajectories: Any, settings: Any) -> Any:
        calls.append(0)
        function = alg.gae if len(calls) % 3 == 0 else zero
        return function(trajectories, settings)

    run = trained(tmp_path / "run", alg.mappo.but(name="at_times", advantages=at_times), updates=8)
    assert warned(run) == ["0"] * 8


@pytest.mark.parametrize("before", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_resumed_run_goes_on_as_if_it_had_never_stopped(
    tmp_path: Path, before: int, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = trained(tmp_path / "whole", zeroed, updates=6, anneal=False)
    capsys.readouterr()
    run = trained(tmp_path / "run", zeroed, updates=before, anneal=False)
    corral.resume(run.folder, trainer=zeroed, steps=6 * ROLLOUT, progress=False)
    assert rows(run) == rows(whole)
    assert capsys.readouterr().err.count("warning at") == 1


def test_training_stops_at_a_warning_where_that_is_asked_for(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", zeroed, updates=6, stop=["warnings>=1"])
    assert len(rows(run)) == 3


# --- Sound runs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trainer", fast_every(6, ["mappo", "ippo", "ppo_kl", "a2c", "pg", "pg_episode"])
)
def test_numbers_do_not_depend_on_it_and_sound_trainers_hear_nothing(
    trainer: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = (
        {} if trainer in ("mappo", "ippo", "ppo_kl") else {"n_minibatches": None, "n_epochs": None}
    )
    given = {name: value for name, value in {**SMALL, **own}.items() if value is not None}
    env = {**GAME, "progress": False, "preset": "none", **given}
    run = corral.train(trainer=trainer, steps=12 * ROLLOUT, out=tmp_path / "run", **env)
    assert warned(run) == ["0"] * 12
    assert "warning" not in capsys.readouterr().err
    monkeypatch.setattr(Listeners, "attach", lambda self, *given: self.metrics.attach(*given))
    bare = corral.train(trainer=trainer, steps=12 * ROLLOUT, out=tmp_path / "bare", **env)
    assert weights(bare) == weights(run)
    assert everything(bare) == everything(run)
    assert rows(bare) == rows(run)


def test_memory_hears_nothing(tmp_path: Path) -> None:
    assert warned(trained(tmp_path / "run", memory=8)) == ["0"] * 5


def test_a_loss_that_has_no_use_for_advantages_may_make_none(tmp_path: Path) -> None:
    def loss(minibatch: Any, outputs: Any, settings: Any) -> Any:
        lowest = -outputs.distribution.logits[:, 0].mean()
        return alg.Losses({"own": lowest, "value": alg.value_loss(minibatch, outputs, settings)})

    run = trained(tmp_path / "run", alg.mappo.but(name="own", advantages=zero, loss=loss))
    assert warned(run) == ["0"] * 5


def test_a_rate_that_is_annealed_to_0_is_no_fault(tmp_path: Path) -> None:
    assert warned(trained(tmp_path / "run", learning_rate="linear:0.003")) == ["0"] * 5


@pytest.mark.parametrize("kind", ["discrete", "box", "bits"])
def test_no_kind_of_action_is_said_to_leave_no_choice(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path / "run", env=zoo_rules(functools.partial(BitsEnv, kind=kind)), env_kwargs={})
    said = [line.split(" at ")[0] for line in capsys.readouterr().err.splitlines()]
    assert [line for line in said if line.endswith(("note", "warning"))] == []


def test_where_all_rewards_are_the_same_there_is_a_note_and_no_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path / "run", updates=12, env="probe_p01_v0", env_kwargs={})
    said = capsys.readouterr().err
    assert said.count("corral check ENV --learnable") == 1
    shown(said, run.folder, f"{11 * ROLLOUT:,}")
    assert "warning" not in said
    assert warned(run) == ["0"] * 12


# --- Planted faults ------------------------------------------------------------------------------


def causes(run: Any) -> set[str]:
    return {name for name, value in rows(run)[2].items() if name.startswith("warning_") and value}


def test_masks_that_the_loss_ignores(tmp_path: Path) -> None:
    class Unmasked(MAPPO):
        def update_minibatch(self, learner: Any, minibatch: Any, outputs: Any) -> Any:
            logits, everything = self.logits, torch.ones_like(minibatch.mask)
            distribution = MaskedCategorical(logits, everything)
            log_prob = distribution.log_prob(minibatch.action)
            changed = Outputs(distribution, log_prob, outputs.value)
            return super().update_minibatch(learner, minibatch, changed)

        def begin(self) -> None:
            super().begin()
            for learner in self.learners.values():
                masked = learner.distribution

                def hear(outputs: Any, mask: Any, masked: Any = masked) -> Any:
                    self.logits = outputs
                    return masked(outputs, mask)

                learner.distribution = hear

    run = trained(tmp_path / "run", Unmasked, env="tictactoe_v0", env_kwargs={})
    assert causes(run) == {"warning_ratio_not_one"}


@pytest.mark.parametrize("constant", [0.0, 1.0])
def test_advantages_that_are_all_the_same(constant: float, tmp_path: Path) -> None:
    def same(trajectories: Any, settings: Any) -> Any:
        whole = alg.gae(trajectories, settings)
        return alg.Advantages(np.full_like(whole.advantage, constant), whole.value_target)

    run = trained(tmp_path / "run", alg.mappo.but(name="same", advantages=same))
    assert causes(run) == {"warning_zero_advantages"}


def test_gradients_that_are_0(tmp_path: Path) -> None:
    def gradients(learner: Any, settings: Any) -> Any:
        for parameter in learner.parameters():
            parameter.grad = torch.zeros_like(parameter)
        return alg.mappo.gradients(learner, settings)

    run = trained(tmp_path / "run", alg.mappo.but(name="zero", gradients=gradients))
    assert causes(run) == {"warning_no_gradient"}


def test_observations_that_never_change(tmp_path: Path) -> None:
    class Blind(Depots):
        def look(self, i: int) -> Any:
            return np.full(4, 0.5, np.float32)

    run = trained(tmp_path / "run", env=depots(Blind), env_kwargs={})
    assert causes(run) == {"warning_observation_constant"}


@pytest.mark.parametrize("rate", [0.0, 1e-12])
def test_a_learning_rate_that_moves_nothing(rate: float, tmp_path: Path) -> None:
    run = trained(tmp_path / "run", learning_rate=rate, anneal=False)
    assert causes(run) & {"warning_learning_rate_zero", "warning_weights_fixed"}


def test_a_learning_rate_that_is_0_too_early(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", learning_rate=f"0:0.003,{2 * ROLLOUT}:0", updates=8)
    assert rows(run)[-1]["warning_learning_rate_zero"] == "1"


def test_a_ratio_that_does_not_begin_at_1(tmp_path: Path) -> None:
    def loss(minibatch: Any, outputs: Any, settings: Any) -> Any:
        wrong = dataclasses.replace(minibatch, log_prob=minibatch.log_prob - 1.0)
        return alg.ppo_loss(wrong, outputs, settings)

    class Unmasked(corral.Callback):
        """Log-probabilities of another policy than the one that played."""

        def on_rollout(self, session: Any, rollout: Any) -> None:
            for buffer in rollout.groups:
                buffer.log_prob[...] -= 0.5

    run = trained(tmp_path / "run", callbacks=[Unmasked()])
    assert causes(run) == {"warning_ratio_not_one"}


def test_an_entropy_of_illegal_actions(tmp_path: Path) -> None:
    def loss(minibatch: Any, outputs: Any, settings: Any) -> Any:
        count = minibatch.mask.shape[-1]
        vars(outputs)["entropy"] = outputs.entropy * 0 + float(np.log(count))
        return alg.ppo_loss(minibatch, outputs, settings)

    own = alg.mappo.but(name="own", loss=loss)
    run = trained(tmp_path / "run", own, env="tictactoe_v0", env_kwargs={}, ent_coef=0.01)
    assert causes(run) == {"warning_mask_lost_in_entropy"}


def test_an_optimizer_that_was_given_other_parameters(tmp_path: Path) -> None:
    def optimizer(parameters: Any, settings: Any) -> Any:
        return alg.adam([each.detach().clone().requires_grad_() for each in parameters], settings)

    run = trained(tmp_path / "run", alg.mappo.but(name="own", optimizer=optimizer))
    assert causes(run) == {"warning_weights_fixed"}


def test_a_loss_that_cuts_off_the_actor(tmp_path: Path) -> None:
    def loss(minibatch: Any, outputs: Any, settings: Any) -> Any:
        terms = dict(alg.ppo_loss(minibatch, outputs, settings).terms)
        return alg.Losses({**terms, "policy_loss": 0.0 * terms["policy_loss"]})

    run = trained(tmp_path / "run", alg.mappo.but(name="own", loss=loss))
    assert causes(run) == {"warning_policy_loss_cut"}


def test_a_critic_whose_targets_are_in_another_order(tmp_path: Path) -> None:
    def advantages(trajectories: Any, settings: Any) -> Any:
        found = alg.gae(trajectories, settings)
        far = np.sign(found.value_target - found.value_target.mean())
        vars(trajectories)["value"] = (-30 * far).astype(np.float32)
        return found

    own = alg.mappo.but(name="own", advantages=advantages)
    run = trained(tmp_path / "run", own, updates=12)
    assert rows(run)[8]["warnings"] == "0"
    assert rows(run)[9]["warning_critic_misleads"] == "1"


def test_trainers_of_other_libraries_are_judged_by_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.buffers import DictRolloutBuffer

    whole = DictRolloutBuffer.compute_returns_and_advantage
    sb3 = {**SMALL, "batch_size": 32}
    del sb3["n_minibatches"]
    given = {**GAME, "progress": False, "preset": "none", "trainer": "sb3_ppo", **sb3}
    sound = corral.train(steps=5 * ROLLOUT, out=tmp_path / "sound", **given)
    assert warned(sound) == ["0"] * 5

    def cut(self: Any, *args: Any, **kwargs: Any) -> None:
        whole(self, *args, **kwargs)
        self.advantages[...] = 0

    monkeypatch.setattr(DictRolloutBuffer, "compute_returns_and_advantage", cut)
    run = corral.train(steps=5 * ROLLOUT, out=tmp_path / "run", **given)
    assert causes(run) == {"warning_policy_loss_cut"}


def test_every_session_has_one(tmp_path: Path) -> None:
    session = corral.session(out=tmp_path / "run", steps=ROLLOUT, preset="none", **GAME, **SMALL)
    assert isinstance(session.listeners.watch, Watch)
