"""Sessions that go on, and what is said of those that are used wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.errors import ListenerError, UnknownNameError
from corral.trainers import EarlyStop
from support.runs import ROLLOUT, everything

GIVEN: dict[str, Any] = {
    "env": "arena_v0",
    "env_kwargs": {"max_cycles": 10},
    "steps": 4 * ROLLOUT,
    "seed": 5,
    **{"num_envs": 4, "n_steps": 16, "n_epochs": 1, "net_arch": (16,)},
}
SB3 = {"trainer": "sb3_ppo", "batch_size": 64}


def test_a_session_that_goes_on_gives_the_run_that_never_stopped(tmp_path: Path) -> None:
    given = {**GIVEN, "steps": 3 * ROLLOUT}
    whole = corral.train(**given, out=tmp_path / "whole").folder
    corral.train(**{**given, "steps": ROLLOUT, "horizon": 3 * ROLLOUT}, out=tmp_path / "run")
    with corral.resume_session(tmp_path / "run", steps=3 * ROLLOUT) as session:
        seen = [row["updates"] for row in session]
    assert seen == [2, 3]
    assert everything(session.run) == everything(whole)


def test_a_session_is_used_in_its_block_and_in_order(tmp_path: Path) -> None:
    with corral.session(**{**GIVEN, "steps": ROLLOUT}, out=tmp_path / "run") as session:
        rollout = session.sample()
        with pytest.raises(ValueError, match="update\\(rollout\\) comes first"):
            session.sample()
        session.update(rollout)
        with pytest.raises(ValueError, match="training is over"):
            session.sample()
        with pytest.raises(TypeError, match="give what weights\\(\\) returns"):
            session.set_weights(None)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="this session has ended"):
        session.sample()
    with (
        corral.session(**GIVEN, **SB3, out=tmp_path / "other") as other,
        pytest.raises(TypeError, match="has no weights of its own"),
    ):
        other.weights()


def test_what_is_missing_where_a_run_goes_on_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the command that goes on gives again what was given as text."""
    mine = tmp_path / "mine_for_sessions.py"
    mine.write_text("def longest(episode): return episode.length\n")
    folder = tmp_path / "run"
    given = {**GIVEN, "metrics": {"longest": f"{mine}:longest"}, "evaluate_every": ROLLOUT}
    corral.train(**given, stop="updates>=1", out=folder)
    said = " ".join(capsys.readouterr().err.split())
    assert f"--resume {folder} --evaluate-every {ROLLOUT} --metric longest={mine}:longest" in said
    assert "--stop" not in said  # it is met
    corral.resume(folder, steps=2 * ROLLOUT)
    said = capsys.readouterr().err
    assert "goes on without metric longest; give it again" in said
    assert "goes on without evaluations; give them again" in said


def test_where_nothing_is_left_no_command_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corral.train(**{**GIVEN, "steps": ROLLOUT}, stop="updates>=1", out=tmp_path / "run")
    said = capsys.readouterr().err
    assert "stopped at" in said
    assert "--resume" not in said


def test_a_column_of_an_evaluation_that_nobody_makes(tmp_path: Path) -> None:
    stop = EarlyStop("validation_return_team", patience=2)
    with pytest.raises(UnknownNameError, match="--evaluate-every"):
        corral.train(**GIVEN, callbacks=[stop], out=tmp_path / "run")


def test_arguments_of_train_are_meant(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="did you mean 'steps'"):
        corral.train("arena_v0", step=3)
    with pytest.raises(ListenerError, match="give texts such as 'return_team>=15'"):
        corral.train("arena_v0", stop={"return_team": 15})  # type: ignore[arg-type]
