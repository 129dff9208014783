"""Sessions: the loop of training in the user's hands gives the run that ``corral.train`` gives."""

from __future__ import annotations

import inspect
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.errors import CheckpointError, NonFiniteError, RunError, UnknownNameError
from corral.trainers import Session, load_run
from corral.trainers.driver import resume
from support.runs import ROLLOUT, everything, rows, small_run

GIVEN: dict[str, Any] = {
    "env": "arena_v0",
    "env_kwargs": {"max_cycles": 10},
    "steps": 4 * ROLLOUT,
    "seed": 5,
    "trainer": "mappo",
    **{"num_envs": 4, "n_steps": 16, "n_epochs": 1, "n_minibatches": 1, "net_arch": (16,)},
}
SB3 = {"trainer": "sb3_ppo", "batch_size": 64, "n_minibatches": None}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corral.train(**GIVEN, out=tmp_path_factory.mktemp("runs") / "whole").folder


def test_iterating_gives_the_rows_and_the_run_of_train(tmp_path: Path, whole: Path) -> None:
    seen = []
    with corral.session(**GIVEN, out=tmp_path / "run") as session:
        assert isinstance(session, Session)
        for row in session:
            assert row is session.row
            assert row["env_steps"] == session.env_steps
            seen.append(row["return_team"])
    assert everything(session.run) == everything(whole)
    assert rows(session.run) == rows(whole)
    assert [str(value or "") for value in seen] == [row["return_team"] for row in rows(whole)]
    assert session.over
    assert session.run.policies.keys() == load_run(whole).policies.keys()


def test_another_trainer_in_the_users_loop(tmp_path: Path) -> None:
    given = {**GIVEN, **SB3}
    del given["n_minibatches"]
    run = corral.train(**given, out=tmp_path / "run")
    with corral.session(**given, out=tmp_path / "other") as session:
        count = sum(1 for _ in session)
    assert count == 4
    assert everything(session.run) == everything(run)


def test_leaving_early_saves_what_was_learned(tmp_path: Path, whole: Path) -> None:
    with corral.session(**GIVEN, out=tmp_path / "run", checkpoint_every=10**6) as session:
        for row in session:
            if row["updates"] == 2:
                break
    assert len(rows(session.run)) == 2
    assert session.run.stopped is None
    resume(session.run.folder)
    assert everything(session.run) == everything(whole)
    assert rows(session.run) == rows(whole)


def test_an_error_in_the_block_saves_too(tmp_path: Path, whole: Path) -> None:
    folder = tmp_path / "run"

    def fail() -> None:
        with corral.session(**GIVEN, out=folder, checkpoint_every=10**6) as session:
            for _ in session:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    resume(folder)
    assert everything(folder) == everything(whole)


def test_ctrl_c_in_the_block_ends_the_loop_and_saves(
    tmp_path: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, after = tmp_path / "run", []
    before = signal.getsignal(signal.SIGINT)

    def interrupted() -> None:
        with corral.session(**GIVEN, out=folder, checkpoint_every=10**6) as session:
            for row in session:
                if row["updates"] == 2:
                    signal.raise_signal(signal.SIGINT)
                    after.append(row["updates"])  # the block goes on to its end

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert after == [2]
    assert len(rows(folder)) == 2
    assert signal.getsignal(signal.SIGINT) is before
    shown(capsys.readouterr().err, 128, 256, f"corral train --resume {folder}")
    resume(folder)
    assert everything(folder) == everything(whole)


def test_stop_save_and_evaluate(tmp_path: Path) -> None:
    with corral.session(**GIVEN, out=tmp_path / "run", checkpoint_every=10**6) as session:
        next(session)
        session.save()
        assert (session.run.folder / "checkpoints" / "step_000000000064").is_dir()
        score = session.evaluate(episodes=3)
        assert score.rows[0].episodes == 3
        assert session.evaluate(episodes=3).value == score.value
        next(session)
        session.stop("enough is known")
        assert session.over
        assert list(session) == []
    assert session.run.stopped == "enough is known"
    assert len(rows(session.run)) == 2


def test_a_session_is_a_context(tmp_path: Path) -> None:
    session = corral.session(**GIVEN, out=tmp_path / "run")
    with refused(RuntimeError, "corral.session(...)"):
        next(session)
    assert list(tmp_path.iterdir()) == []
    with session:
        with refused(RunError, tmp_path / "run"):
            corral.train(**GIVEN, out=tmp_path / "run")
        next(session)
    with refused(RuntimeError, "corral.resume_session"):
        next(session)


def test_train_and_session_take_the_same() -> None:
    train, session = (inspect.signature(each) for each in (corral.train, corral.session))
    assert train.parameters == session.parameters
    assert (train.return_annotation, session.return_annotation) == ("Run", "Session")
    train_doc, session_doc = (inspect.getdoc(each) for each in (corral.train, corral.session))
    assert train_doc is not None
    assert session_doc is not None
    assert train_doc.startswith("Train the agents of an environment, and return the run.")
    assert train_doc.splitlines()[1:] == session_doc.splitlines()[1:]
    assert corral.train.__name__ == "train"


# --- Step by step --------------------------------------------------------------------------------


def test_sample_and_update_are_an_iteration(tmp_path: Path, whole: Path) -> None:
    with corral.session(**GIVEN, out=tmp_path / "run") as session:
        next(session)
        while not session.over:
            rollout = session.sample()
            assert rollout.reward.shape == (16, 4, 2)
            metrics = session.update(rollout)
            assert session.row["policy_loss"] == metrics["policy_loss"]
    assert everything(session.run) == everything(whole)
    assert rows(session.run) == rows(whole)


def test_what_is_learned_from_may_be_changed(tmp_path: Path, whole: Path) -> None:
    with corral.session(**GIVEN, out=tmp_path / "run") as session:
        while not session.over:
            rollout = session.sample()
            rollout.reward[...] += 1
            session.update(rollout)
    assert everything(session.run) != everything(whole)
    gain = [float(row["reward_per_step"]) for row in rows(session.run)]
    assert gain[0] == pytest.approx(float(rows(whole)[0]["reward_per_step"]) + 2)


def test_a_rollout_is_learned_from_once(tmp_path: Path) -> None:
    with corral.session(**GIVEN, out=tmp_path / "run") as session:
        with refused(ValueError, "update(rollout)", "sample()"):
            session.update(None)
        rollout = session.sample()
        session.update(rollout)
        with pytest.raises(ValueError, match="once"):
            session.update(rollout)


def test_ctrl_c_ends_a_loop_of_samples(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def interrupted() -> None:
        with corral.session(**GIVEN, out=folder) as session:
            while True:
                session.update(session.sample())
                if session.row["updates"] == 2:
                    signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(rows(folder)) == 2
    assert len(rows(resume(folder))) == 4


def test_weights_can_be_taken_and_given(tmp_path: Path) -> None:
    with corral.session(**GIVEN, out=tmp_path / "run") as session:
        begun = session.weights()
        assert all(name.startswith("shared.") for name in begun)
        next(session)
        learned = session.weights()
        assert any(not np.array_equal(begun[name], learned[name]) for name in begun)
        session.set_weights(begun)
        again = session.weights()
        assert all(np.array_equal(begun[name], again[name]) for name in begun)
        next(session)
        name = next(key for key in begun if key.endswith("weight"))
        kept = session.weights()
        for wrong, named in (
            ({**begun, "more": begun[name]}, ("'more'", "weights")),
            ({key: a for key, a in begun.items() if key != name}, (f"'{name}'", "missing")),
            ({**begun, name: begun[name][:1]}, ("(1, 202)", "(16, 202)")),
            ({**begun, name: begun[name].astype(np.float64)}, ("float64", "float32")),
        ):
            with refused(CheckpointError, *named):
                session.set_weights(wrong)
        with pytest.raises(NonFiniteError, match=name):
            session.set_weights({**begun, name: np.full_like(begun[name], np.nan)})
        assert all(np.array_equal(kept[key], a) for key, a in session.weights().items())


def test_a_trainer_of_another_library_has_no_rollouts(tmp_path: Path) -> None:
    given = {key: value for key, value in {**GIVEN, **SB3}.items() if key != "n_minibatches"}
    with corral.session(**given, out=tmp_path / "run") as session:
        for call in (session.sample, session.weights, lambda: session.update(None)):
            with refused(TypeError, "sb3_ppo", "mappo"):
                call()
        next(session)


def test_pauses_of_the_user_are_no_seconds_of_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = time.perf_counter
    with corral.session(**GIVEN, out=tmp_path / "run") as session:
        next(session)
        first = session.row["wall_s"]
        monkeypatch.setattr(time, "perf_counter", lambda: clock() + 10_000)
        next(session)
        assert session.row["wall_s"] - first < 5_000


def test_mistakes_are_found_before_a_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError):
        corral.session("nothing_v0", out=tmp_path / "run")
    with pytest.raises(TypeError, match="callback"):
        corral.session(**GIVEN, out=tmp_path / "run", callback=[print])
    assert list(tmp_path.iterdir()) == []


def test_a_session_of_dfaas(tmp_path: Path) -> None:
    """What small runs of other tests are: the same, row by row."""
    run = small_run(tmp_path / "run")
    settings = {key: value for key, value in run.config.settings.items() if key != "more"}
    with corral.session(
        "dfaas_v0",
        trainer=run.config.trainer,
        steps=run.config.steps,
        env_kwargs={"trace": run.config.env_config.trace, "max_cycles": 30},
        out=tmp_path / "other",
        **settings,
    ) as session:
        session.finish()
    assert everything(session.run) == everything(run)


def test_a_plan_with_long_rollouts_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Any] = {"trainer": "ippo", "num_envs": 16, "n_steps": 8, "steps": 384}
    given |= {"self_play": {"every": 50}, "ent_coef": 0.0, "ent_coef_end": 0.01}
    with corral.session("tictactoe_v0", out=tmp_path / "run", **given):
        pass
    printed = shown(capsys.readouterr().err, "--num-envs", "--n-steps")
    shown(printed, "every=50", 128)
    shown(printed, "3 updates", "0.01")
