"""Runs trained side by side: each ends as its command says, and goes on where it was stopped."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.cli.train_options import OPTIONS
from corral.lab.jobs import REPEATED, Ended, Job, finished, play, threads_of_each
from corral.trainers.runs.folders import locked
from corral.trainers.runs.run import CHECKPOINTS, load_run

pytest.importorskip("safetensors", reason="needs the extra mappo")

SMALL = ("two_step_v0", "--steps", "200", "--num-envs", "4", "--n-steps", "5")


@pytest.mark.slow
def test_jobs_are_played_once_and_a_failure_says_why(tmp_path: Path) -> None:
    jobs = [
        Job(tmp_path / "first", (*SMALL, "--seed", "1")),
        Job(tmp_path / "wrong", ("two_step_v0", "--no-such-option", "1")),
    ]
    ended = {each.job.folder.name: each for each in play(jobs, processes=2)}
    assert ended["first"].code == 0
    assert ended["wrong"].code == 2
    assert "no-such-option" in ended["wrong"].last_line
    run = finished(tmp_path / "first")
    assert run is not None
    assert run.config.seed == 1
    assert run.progress["env_steps"].iloc[-1] == 200
    assert [each.code for each in play(jobs[:1])] == [None]


@pytest.mark.slow
def test_a_run_that_was_killed_between_two_files_goes_on(tmp_path: Path) -> None:
    """A row is written before the checkpoint: who is killed in between has not finished."""
    job = Job(tmp_path / "first", (*SMALL, "--seed", "1"))
    assert [each.code for each in play([job])] == [0]
    _checkpoint_behind_its_rows(job)
    _killed_before_its_first_checkpoint(job)


def _checkpoint_behind_its_rows(job: Job) -> None:
    checkpoints = job.folder / CHECKPOINTS
    shutil.rmtree(load_run(job.folder).checkpoint())
    for pointer in ("latest", "best"):
        (checkpoints / pointer).unlink()
    assert finished(job.folder) is None
    assert [each.code for each in play([job])] == [0]
    assert finished(job.folder) is not None


def _killed_before_its_first_checkpoint(job: Job) -> None:
    shutil.rmtree(job.folder / CHECKPOINTS)
    assert finished(job.folder) is None
    assert [each.code for each in play([job])] == [0], job.log.read_text()
    assert finished(job.folder) is not None


@pytest.mark.slow
def test_a_job_that_is_stopped_is_not_finished_and_goes_on(tmp_path: Path) -> None:
    job = Job(tmp_path / "run", (*SMALL[:2], "600", *SMALL[3:], "--checkpoint-every", "20"))

    def early(_: Job) -> bool:
        return len([*job.folder.glob("checkpoints/[!.]*")]) < 2

    [stopped] = play([job], watch=early)
    assert stopped.code != 0
    assert finished(job.folder) is None
    before = load_run(job.folder).progress["env_steps"].iloc[-1]
    assert 0 < before < 600
    assert "--resume" in job.cli_arguments()
    [ended] = play([job])
    assert ended.code == 0
    assert finished(job.folder) is not None
    assert load_run(job.folder).progress["env_steps"].is_monotonic_increasing


def test_the_command_is_what_was_run() -> None:
    job = Job(Path("runs/a b"), ("arena_v0", "--arg", "x=a b"))
    assert job.cli_arguments() == ["train", "arena_v0", "--arg", "x=a b", "--out", "runs/a b"]
    assert job.command(2) == "OMP_NUM_THREADS=2 corral train arena_v0 --arg 'x=a b'"


def test_threads_are_shared_out_unless_they_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert [threads_of_each(n) for n in (1, 3, 16)] == [8, 2, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads_of_each(16) == 3


def test_a_run_that_goes_on_is_told_again_what_it_does_not_keep(tmp_path: Path) -> None:
    """A stop criterion, for one; and environments and networks of one's own."""
    words = ("--steps", "9", "--stop", "return_team>=1", "--gamma", "0.9", "--api=aec")
    job = Job(tmp_path, ("two_step_v0", *words))
    (tmp_path / "config.json").write_text("{}")
    again = ("--stop", "return_team>=1", "--api=aec")
    assert job.cli_arguments() == ["train", "--resume", str(tmp_path), *again]
    others = Job(tmp_path, ("my_game:make", *words[:2], "--trainer", "my.py:mine"))
    assert job.cli_arguments()[1] == "--resume"
    mine = ["my_game:make", "--resume", str(tmp_path), "--trainer", "my.py:mine"]
    assert others.cli_arguments() == ["train", *mine]


def test_every_option_that_a_resumed_run_takes_is_told_again() -> None:
    both = {"--" + each.name.replace("_", "-") for each in OPTIONS if each.used == "both"}
    assert both - {"--steps", "--keep"} == set(REPEATED)  # those two are kept with the run


@pytest.mark.slow
def test_a_run_that_another_process_trains_is_waited_for(tmp_path: Path) -> None:
    """The processes of a study that was killed may live on."""
    job = Job(tmp_path / "run", (*SMALL, "--seed", "1"))
    job.folder.mkdir()
    free = threading.Event()
    with locked(job.folder):
        ended: list[Ended] = []
        thread = threading.Thread(target=lambda: ended.extend(play([job])))
        thread.start()
        assert not free.wait(1.0)
        assert thread.is_alive()
        assert not job.log.exists()
    thread.join()
    assert [each.code for each in ended] == [0]


def test_a_generator_may_have_nothing_to_play_yet(tmp_path: Path) -> None:
    asked: list[int] = []

    def jobs() -> Iterator[Job | None]:
        while len(asked) < 3:
            asked.append(1)
            yield None
        yield Job(tmp_path / "wrong", ("no_such_game",))

    assert [each.code for each in play(jobs())] == [2]
