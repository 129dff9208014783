"""Folders of runs: one trainer in each at a time; a start that fails or is killed blocks none."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra sb3")

import corral
from corral.errors import RunError
from corral.trainers.driver import resume, train
from corral.trainers.runs.folders import locked, new_folder
from corral.trainers.runs.run import load_run
from corral.trainers.runs.run_config import RunConfig
from support.runs import ENVIRONMENT, SMALL, PaidRules, everything, rows, small_run


def everything_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_new_folders_have_names_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = [new_folder("a-1")[0] for _ in range(3)]
    assert names == [Path("runs/a-1"), Path("runs/a-1-2"), Path("runs/a-1-3")]
    assert all(folder.is_dir() for folder in names)


# --- Locks ---------------------------------------------------------------------------------------


def test_one_thread_at_a_time(tmp_path: Path) -> None:
    met: list[str] = []

    def try_it() -> None:
        try:
            with locked(tmp_path):
                met.append("locked twice")
        except RunError as error:
            met.append(str(error))

    with locked(tmp_path):
        thread = threading.Thread(target=try_it)
        thread.start()
        thread.join()
        try_it()  # nor does one thread twice
    assert met == 2 * [
        f"{tmp_path} is being trained by process {os.getpid()}; wait for it, or stop it"
    ]
    try_it()
    assert met[2] == "locked twice"


def test_another_process_is_named_and_its_name_stays(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from corral.trainers.runs.folders import locked\n"
        "with locked(Path(sys.argv[1])): print('locked', flush=True); sys.stdin.readline()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    try:
        for _ in range(2):  # who is refused leaves the file as it is
            with (
                refused(RunError, tmp_path, process.pid),
                locked(tmp_path),
            ):
                raise AssertionError("locked twice")
    finally:
        process.kill()
        process.communicate()
    with locked(tmp_path):  # it went with the process
        pass


def test_a_forked_child_does_not_hold_the_lock(tmp_path: Path) -> None:
    with locked(tmp_path):
        child = os.fork()
        if child == 0:
            import time

            time.sleep(60)
            os._exit(0)
    try:
        with locked(tmp_path):
            pass
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_two_threads_do_not_train_one_run(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", env=PaidRules(), updates=1)
    refused: list[Exception] = []

    def in_a_thread() -> None:
        try:
            resume(run.folder, env=PaidRules(), steps=640)
        except RunError as error:
            refused.append(error)

    with locked(run.folder):
        thread = threading.Thread(target=in_a_thread)
        thread.start()
        thread.join()
    assert len(refused) == 1
    assert len(rows(run)) == 1


# --- Starts that fail ----------------------------------------------------------------------------


class RaisingRules(PaidRules):
    """Cannot begin an episode."""

    name = "raising_v0"

    def start(self, rngs: Any) -> Any:
        raise OSError("no simulator there")


class RaisingLater(PaidRules):
    """Raises in its second rollout."""

    name = "raising_later_v0"
    steps = 0

    def step(self, state: Any, action: Any) -> Any:
        self.steps += 1
        if self.steps > 20:
            raise OSError("the simulator has gone")
        return super().step(state, action)


def test_a_start_that_fails_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for out in (None, tmp_path / "deep" / "run"):
        with refused(OSError, "simulator"):
            train(RaisingRules(), trainer="sb3_ppo", out=out, steps=128, **SMALL)
        assert everything_in(tmp_path) == []
    (tmp_path / "mine").mkdir()
    with refused(OSError, "simulator"):
        train(RaisingRules(), trainer="sb3_ppo", out="mine", steps=128, **SMALL)
    assert everything_in(tmp_path) == ["mine"]
    assert everything_in(tmp_path / "mine") == []
    assert len(rows(train(PaidRules(), trainer="sb3_ppo", out="mine", steps=64, **SMALL))) == 1


def test_a_config_that_cannot_be_written_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunConfig, "write", full)
    with refused(OSError, errno=28):
        small_run(tmp_path / "run")
    assert everything_in(tmp_path) == []


def test_a_folder_that_cannot_be_locked_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("corral.trainers.runs.folders.FileLock", refuse)
    with refused(OSError, errno=38):
        small_run(tmp_path / "deep" / "run")
    assert everything_in(tmp_path) == []


def test_a_run_that_fails_after_an_update_stays(tmp_path: Path) -> None:
    with refused(OSError, "simulator"):
        small_run(tmp_path / "run", env=RaisingLater(), preset="none")
    assert len(rows(tmp_path / "run")) == 1


@pytest.mark.slow
def test_a_start_that_was_killed_blocks_nothing(tmp_path: Path) -> None:
    plain = small_run(tmp_path / "plain", updates=1)
    folder = tmp_path / "run"
    code = (
        "import os, sys; from pathlib import Path; from corral.trainers.runs import run_config\n"
        "from support.runs import small_run\n"
        "run_config.write_file = lambda *_, **__: os._exit(9)\n"
        "small_run(Path(sys.argv[1]), updates=1)\n"
    )
    env = {**ENVIRONMENT, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code, str(folder)], env=env, timeout=600)
    assert done.returncode == 9
    assert everything_in(folder) == [".lock", ".lock.pid", "trace.csv.gz"]
    (folder / "trace.csv.gz").write_bytes(b"half of it")
    (folder / ".writing-0123456789abcdef").write_text("{")
    again = small_run(folder, updates=1)
    assert everything(again) == everything(plain)
    assert load_run(folder).policies


def test_a_folder_of_others_is_left_alone(tmp_path: Path) -> None:
    cases = (["trace.csv.gz"], ["mine.txt"], [".lock", "mine.txt"], [".lock", "trace.csv.gz", "a"])
    for files in cases:
        folder = tmp_path / "-".join(files)
        folder.mkdir()
        for name in files:
            (folder / name).write_text("mine")
        with refused(RunError, folder):
            corral.train(PaidRules(), trainer="sb3_ppo", out=folder, steps=64, **SMALL)
        assert everything_in(folder) == sorted(files)
        assert {path.read_text() for path in folder.iterdir()} == {"mine"}


def test_a_folder_that_is_being_begun_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with (
        locked(tmp_path / "run"),
        refused(RunError, tmp_path / "run", os.getpid()),
    ):
        small_run(tmp_path / "run", updates=1)
    assert everything_in(tmp_path / "run") == [".lock"]


# --- Overwriting ---------------------------------------------------------------------------------


def test_a_run_is_replaced_only_if_that_is_requested(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    small_run(folder, updates=2)
    (folder / "notes.txt").write_text("old", encoding="utf-8")
    before = everything(folder)
    with refused(RunError, folder, "overwrite=True"):
        small_run(folder, updates=1)
    with refused(ValueError, "num_envs"):  # nothing is removed before all arguments are checked
        small_run(folder, updates=1, overwrite=True, num_envs=-1)
    assert everything(folder) == before
    run = small_run(folder, updates=1, overwrite=True, seed=3)
    assert (run.config.seed, len(run.progress)) == (3, 1)
    assert not (folder / "notes.txt").exists()
    assert load_run(folder).config.seed == 3


@pytest.mark.parametrize("name", ["notes.txt", "config.json"])
def test_a_folder_that_is_no_run_is_never_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}", encoding="utf-8")
    with refused(RunError, tmp_path):
        small_run(tmp_path, updates=1, overwrite=True)
    assert everything_in(tmp_path) == [name]


def test_a_run_in_training_is_not_replaced(tmp_path: Path) -> None:
    small_run(tmp_path / "run", updates=1)
    with locked(tmp_path / "run"), refused(RunError, tmp_path / "run", os.getpid()):
        small_run(tmp_path / "run", updates=1, overwrite=True)
    assert load_run(tmp_path / "run").config.seed == 0
