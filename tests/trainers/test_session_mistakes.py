"""Sessions that go on, and what is said of those that are used wrongly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.errors import CallbackError, ConfigError, RunError, UnknownNameError
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
        with refused(ValueError, "sample()", "update(rollout)", "session.over"):
            session.sample()
        session.update(rollout)
        with refused(ValueError, "sample()", "session.over") as caught:
            session.sample()
        assert "update" not in str(caught.value)
        with refused(TypeError, "set_weights(None)", "weights()"):
            session.set_weights(None)  # type: ignore[arg-type]
    with refused(RuntimeError, "corral.resume_session"):
        session.sample()
    with (
        corral.session(**GIVEN, **SB3, out=tmp_path / "other") as other,
        refused(TypeError, "weights()", "sb3_ppo"),
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
    shown(said, "--metric longest=file.py:name", "--evaluate-every")


def test_where_nothing_is_left_no_command_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corral.train(**{**GIVEN, "steps": ROLLOUT}, stop="updates>=1", out=tmp_path / "run")
    said = capsys.readouterr().err
    shown(said, "updates>=1")
    assert "--resume" not in said


def test_a_column_of_an_evaluation_that_nobody_makes(tmp_path: Path) -> None:
    stop = EarlyStop("validation_return_team", patience=2)
    with pytest.raises(UnknownNameError, match="--evaluate-every"):
        corral.train(**GIVEN, callbacks=[stop], out=tmp_path / "run")


def test_arguments_of_train_are_meant(tmp_path: Path) -> None:
    with refused(TypeError, "'step'", "'steps'"):
        corral.train("arena_v0", step=3)
    with refused(ValueError, "'return_team>=many'", "'return_team>=15'"):
        corral.train("arena_v0", stop={"return_team": "many"})  # type: ignore[dict-item]


def as_text(episode: Any) -> str:
    return "12"


def as_array(episode: Any) -> Any:
    return episode.rewards.sum(axis=1)


def of_nothing(episode: Any) -> Any:
    return episode.info["visited"].sum()


@pytest.mark.parametrize(
    ("metric", "named"),
    [
        (as_text, ("'12'", "test_session_mistakes.py")),
        (as_array, ("test_session_mistakes.py",)),
        (of_nothing, ("'visited'", "fields_visited", "test_session_mistakes.py")),
    ],
)
def test_what_a_metric_gives_is_a_number(
    tmp_path: Path, metric: Any, named: tuple[object, ...]
) -> None:
    with refused(CallbackError, *named):
        corral.train(**GIVEN, metrics={"mine": metric}, out=tmp_path / "run")


def test_few_rows_to_train_on_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {**GIVEN, "env": "dfaas_v0", "env_kwargs": {"max_cycles": 1440}, "steps": ROLLOUT}
    corral.train(**given, held_out=0.99, out=tmp_path / "run")
    shown(capsys.readouterr().err, 40, "1,440", "--held-out", "max_cycles")
    config = tmp_path / "run" / "config.json"
    values = json.loads(config.read_text())
    config.write_text(json.dumps({key: each for key, each in values.items() if key != "seed"}))
    with refused(RunError, config, "seed"):
        corral.load_run(tmp_path / "run")
    config.write_text(json.dumps({**values, "held_out": [1]}))
    with refused(RunError, config, "held_out", "[1]"):
        corral.load_run(tmp_path / "run")


def test_without_rows_for_validation_nothing_evaluates(tmp_path: Path) -> None:
    given = {**GIVEN, "env": "dfaas_v0", "env_kwargs": {}, "validation": 0, "evaluate_every": 1}
    with refused(ValueError, "dfaas_v0", "validation=0"):
        corral.train(**given, out=tmp_path / "run")


def test_a_folder_of_a_run_is_a_configuration(tmp_path: Path) -> None:
    folder = corral.train(**{**GIVEN, "steps": ROLLOUT}, out=tmp_path / "run").folder
    assert corral.read_config(folder) == corral.read_config(folder / "config.json")
    file = tmp_path / "run.toml"
    file.write_text('env = "dfaas_v0"\n[env_kwargs]\nqueue = 50\n')
    with refused(ConfigError, "'queue'", "dfaas_v0", "arena_v0"):
        corral.read_config(file, env="arena_v0")
