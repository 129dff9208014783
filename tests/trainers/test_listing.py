"""The list of runs, and ``corral runs``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra sb3")

from corral.trainers.listing import list_runs
from corral.trainers.runs.folders import locked
from corral.trainers.runs.run_config import CONFIG
from support.command import within
from support.messages import shown
from support.runs import small_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, at two depths, and a folder without a run."""
    folder = tmp_path_factory.mktemp("runs")
    for number, name in enumerate(("a", "deep/b")):
        run = small_run(folder / name, seed=number)
        os.utime(run.folder / "progress.csv", (1e9 + number, 1e9 + number))
    (folder / "empty").mkdir()
    return folder


def test_runs_are_found_at_any_depth_the_latest_first(folder: Path) -> None:
    listed = list_runs([folder])
    assert [run.folder for run in listed] == [folder / "deep/b", folder / "a"]
    assert [run.seed for run in listed] == [1, 0]
    assert listed[0].modified.timestamp() == 1e9 + 1
    assert list_runs([folder / "a"]) == listed[1:]
    assert list_runs([folder, folder / "a"]) == listed


def test_a_run_is_summarized_as_it_describes_itself(folder: Path) -> None:
    (run,) = list_runs([folder / "a"])
    from corral.trainers.runs.run import load_run

    loaded = load_run(folder / "a")
    last = loaded.progress.iloc[-1]
    assert (run.env, run.trainer) == (loaded.config.env_config.env, loaded.config.trainer)
    assert (run.env_steps, run.steps) == (last["env_steps"], loaded.config.steps)
    assert run.return_team == pytest.approx(last["return_team"])
    assert run.best == pytest.approx((loaded.best_by or {})["value"])
    assert (run.training, run.fault) == (False, None)
    with locked(folder / "a"):
        assert list_runs([folder / "a"])[0].training


def test_a_damaged_run_is_listed_with_its_fault(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / CONFIG).write_text("{", encoding="utf-8")
    (run,) = list_runs([tmp_path])
    assert run.env is None
    assert CONFIG in (run.fault or "")
    headings = within("runs", tmp_path).strip().splitlines()[0].split()
    assert headings[:3] == ["run", "environment", "trainer"]


def listed(*arguments: str | Path) -> Any:
    """The runs that ``corral runs --json`` prints."""
    return json.loads(within("runs", "--json", *arguments))["runs"]


def test_a_place_without_runs_is_no_error(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert json.loads(within("runs", "--json")) == {"runs": [], "advices": []}
    shown(within("runs"), "runs", "corral train")
    shown(within("runs", folder, "--env", "arena_v0"), folder, "--env arena_v0")
    (tmp_path / "runs").symlink_to(folder)
    assert len(listed()) == 2


def test_the_command_filters_and_sorts(folder: Path) -> None:
    both = listed(folder, "--sort", "run")
    assert [Path(run["folder"]).name for run in both] == ["a", "b"]
    assert listed(folder, "--env", "arena_v0") == []
    trainer = both[0]["trainer"]
    assert listed(folder, "--trainer", trainer, "--sort", "run") == both
    returns = listed(folder, "--sort", "return")
    assert returns[0]["return_team"] >= returns[1]["return_team"]
    table = within("runs", folder)
    assert shown(table, both[0]["env"], both[0]["trainer"], str(folder / "a"))
    assert shown(within("runs", folder / "nothing", code=2), str(folder / "nothing"))


def test_runs_of_one_environment_and_trainer_fit_a_narrow_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = folder.with_name("experiments")
    long.symlink_to(folder)
    monkeypatch.chdir(folder.parent)
    first = list_runs([folder])[0]
    lines = within("runs", long.name).splitlines()
    assert max(map(len, lines)) <= 80
    shown("\n".join(lines), str(first.env), str(first.trainer), f"{first.steps:,}", "experiments/a")
