"""Runs trained side by side: each ends as its command says, and goes on where it was stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.trainers.runs.run import load_run
from corral.trainers.study.jobs import Job, finished, play, threads_of_each

pytest.importorskip("safetensors", reason="needs the extra mappo")

SMALL = ("two_step_v0", "--steps", "200", "--num-envs", "4", "--n-steps", "5")


def test_jobs_are_played_once_and_a_failure_says_why(tmp_path: Path) -> None:
    jobs = [
        Job(tmp_path / "first", (*SMALL, "--seed", "1")),
        Job(tmp_path / "wrong", ("two_step_v0", "--no-such-option", "1")),
    ]
    ended = {each.job.folder.name: each for each in play(jobs, processes=2)}
    assert ended["first"].code == 0
    assert ended["wrong"].code == 2
    assert "no-such-option" in ended["wrong"].words
    run = finished(tmp_path / "first")
    assert run is not None
    assert run.config.seed == 1
    assert run.progress["env_steps"].iloc[-1] == 200
    assert [each.code for each in play(jobs[:1])] == [None]


def test_a_job_that_is_stopped_is_not_finished_and_goes_on(tmp_path: Path) -> None:
    job = Job(tmp_path / "run", (*SMALL[:2], "4000", *SMALL[3:], "--checkpoint-every", "20"))

    def early(_: Job) -> bool:
        return len([*job.folder.glob("checkpoints/[!.]*")]) < 2

    [stopped] = play([job], watch=early)
    assert stopped.code != 0
    assert finished(job.folder) is None
    before = load_run(job.folder).progress["env_steps"].iloc[-1]
    assert 0 < before < 4000
    assert "--resume" in job.words()
    [ended] = play([job])
    assert ended.code == 0
    assert finished(job.folder) is not None
    assert load_run(job.folder).progress["env_steps"].is_monotonic_increasing


def test_the_command_is_what_was_run() -> None:
    job = Job(Path("runs/a b"), ("arena_v0", "--arg", "x=a b"))
    assert job.words() == ["train", "arena_v0", "--arg", "x=a b", "--out", "runs/a b"]
    assert job.command(2) == "OMP_NUM_THREADS=2 corral train arena_v0 --arg 'x=a b'"


def test_threads_are_shared_out_unless_they_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert [threads_of_each(n) for n in (1, 3, 16)] == [8, 2, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads_of_each(16) == 3
