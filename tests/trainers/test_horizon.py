"""A run knows the env steps that it was planned for: portions of it are one uninterrupted run."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra sb3")

import torch

from corral.errors import RunError
from corral.trainers.config_files.read import read_config
from corral.trainers.driver import resume, train
from corral.trainers.rllib.config import schedule
from corral.trainers.runs.run import Run, load_run
from support.loads import small_trace
from support.runs import ROLLOUT, everything, rows, small_run

SETTINGS: dict[str, dict[str, Any]] = {
    "sb3_ppo": {"batch_size": 64},
    "mappo": {"n_minibatches": 1, "ent_coef": 0.1, "ent_coef_end": 0.0},
}


def annealed(folder: Path, trainer: str, updates: int, **given: Any) -> Run:
    """A run of so many updates whose learning rate is annealed."""
    return train(
        "dfaas_v0",
        trainer=trainer,
        steps=updates * ROLLOUT,
        out=folder,
        env_kwargs={"trace": small_trace(), "max_cycles": 30},
        **{"num_envs": 4, "n_steps": 16, "n_epochs": 2, "net_arch": (16,), "anneal": True},
        **SETTINGS[trainer],
        **given,
    )


def rates(run: Any) -> list[float]:
    return [float(row["learning_rate"]) for row in rows(run)]


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["mappo", "sb3_ppo"])
def test_portions_are_one_uninterrupted_run(tmp_path: Path, trainer: str) -> None:
    whole = annealed(tmp_path / "whole", trainer, updates=6)
    run = annealed(tmp_path / "run", trainer, updates=1, horizon=6 * ROLLOUT)
    config = load_run(run.folder).config
    assert (config.steps, config.horizon) == (ROLLOUT, 6 * ROLLOUT)
    for steps in (2 * ROLLOUT, 3 * ROLLOUT + 5, 6 * ROLLOUT):  # what does not fill a rollout waits
        resume(run.folder, steps=steps)
        assert len(rows(run)) == steps // ROLLOUT
    assert everything(run) == everything(whole)
    assert rows(run) == rows(whole)
    first, *_, last = rates(run)
    assert last == pytest.approx(first / 6)


@pytest.mark.parametrize("trainer", ["mappo", "sb3_ppo"])
def test_beyond_the_plan_what_is_annealed_stays_at_its_end(
    tmp_path: Path, trainer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = annealed(tmp_path / "run", trainer, updates=2)
    capsys.readouterr()
    resume(run.folder, steps=3 * ROLLOUT)
    (warning,) = capsys.readouterr().err.splitlines()
    shown(warning, run.folder, 128, "learning rate of 0", "--stretch", "stretch=True")
    first, second, third = rates(run)
    assert (second, third) == (pytest.approx(first / 2), 0.0)
    resume(run.folder, steps=6 * ROLLOUT, stretch=True)
    assert capsys.readouterr().err == ""
    assert rates(run)[3:] == pytest.approx([first / 2, first / 3, first / 6])
    config = load_run(run.folder).config
    assert (config.steps, config.horizon) == (6 * ROLLOUT, 6 * ROLLOUT)


def test_nothing_is_said_where_nothing_is_annealed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = small_run(tmp_path / "whole", updates=4, anneal=False)
    run = small_run(tmp_path / "run", updates=2, anneal=False)
    capsys.readouterr()
    resume(run.folder, steps=4 * ROLLOUT)
    assert capsys.readouterr().err == ""
    assert everything(run) == everything(whole)


def test_plans_that_make_no_sense(tmp_path: Path) -> None:
    for horizon in (0, -1, "x"):
        with refused(ValueError, f"horizon={horizon!r}", 1):
            small_run(tmp_path / "run", horizon=horizon)
    assert not (tmp_path / "run").exists()
    run = small_run(tmp_path / "run", updates=1)
    with refused(ValueError, "steps="):
        resume(run.folder, stretch=True)


def test_a_run_that_went_beyond_its_plan_is_repeated(tmp_path: Path) -> None:
    run = annealed(tmp_path / "run", "mappo", updates=2)
    resume(run.folder, steps=3 * ROLLOUT)
    values = read_config(run.folder)
    again = train(**{**values, "out": tmp_path / "again", "progress": False})
    assert (again.config.steps, again.config.horizon) == (3 * ROLLOUT, 2 * ROLLOUT)
    assert everything(again) == everything(run)
    assert rows(again) == rows(run)


def test_a_run_without_a_plan_is_planned_for_its_steps(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", updates=1)
    path = run.folder / "config.json"
    values = json.loads(path.read_text())
    del values["horizon"], values["keep"]
    path.write_text(json.dumps(values))
    config = load_run(run.folder).config
    assert (config.horizon, config.keep) == (ROLLOUT, 3)


def test_other_versions_and_threads_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run(tmp_path / "run", updates=1)
    path = run.folder / "config.json"
    path.write_text(path.read_text().replace(torch.__version__, "1.0").replace('"numpy"', '"nump"'))
    capsys.readouterr()
    torch.set_num_threads(2)
    resume(run.folder, steps=2 * ROLLOUT, stretch=True)
    (warning,) = capsys.readouterr().err.splitlines()
    shown(warning, run.folder, "torch 1.0", "torch threads 1", "torch threads 2")
    shown(warning, f"torch {torch.__version__}")


def test_a_run_goes_on_from_its_latest_checkpoint_alone(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", updates=2, keep="all", checkpoint_every=1)
    for name in ("best", "64", "0"):
        with refused(RunError, f"{run.folder}@{name}", f"--init {run.folder}@{name}"):
            resume(f"{run.folder}@{name}", steps=5 * ROLLOUT)
    assert len(rows(resume(f"{run.folder}@latest", steps=3 * ROLLOUT))) == 3


def test_schedules_of_rllib_go_on_where_they_were() -> None:
    assert schedule(0.5, 0.0, 0, 100) == [[0, 0.5], [100, 0.0]]
    assert schedule(0.5, 0.0, 50, 100) == [[0, 0.25], [50, 0.0]]
    for at in (100, 300):
        (first, begin), (then, end) = schedule(0.5, 0.1, at, 100)
        assert (first, begin, then, end) == (0, pytest.approx(0.1), 1, 0.1)


def test_a_kill_after_a_checkpoint_was_announced_is_made_good(tmp_path: Path) -> None:
    """Killed before ``best`` named it, and before older ones were removed."""
    run = train(
        "tictactoe_v0",
        steps=2 * ROLLOUT,
        out=tmp_path / "run",
        keep=1,
        progress=False,
        **{"num_envs": 4, "n_steps": 16, "n_epochs": 1, "net_arch": (16,)},
    )
    folder = run.folder / "checkpoints"
    names = sorted(path.name for path in folder.iterdir())
    latest = (folder / "latest").read_text()
    assert (folder / "best").read_text() == latest  # in self-play of a zero-sum game
    older = folder / "step_000000000064"
    shutil.copytree(folder / latest.split()[0], older)
    digest = hashlib.sha256((older / "manifest.json").read_bytes()).hexdigest()
    (folder / "best").write_text(f"{older.name} {digest}\n")
    resume(run.folder)
    assert (folder / "best").read_text() == latest
    assert sorted(path.name for path in folder.iterdir()) == names
