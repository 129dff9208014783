"""Minutes in place of steps: what is planned from the first rollouts, and what it ends at."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.trainers.driver import resume
from corral.trainers.planning import Deadline, Minutes, one_thread, threads_set
from support.runs import everything

SMALL: dict[str, Any] = {
    **{"num_envs": 4, "n_steps": 16, "n_epochs": 1, "n_minibatches": 1, "net_arch": (16,)},
    **{"env_kwargs": {"max_cycles": 10}, "preset": "none"},
}


def test_steps_are_planned_and_are_the_runs_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = corral.train("arena_v0", minutes=0.02, out=tmp_path / "timed", **SMALL)
    steps = run.config.steps
    assert run.config.horizon == steps
    assert steps % 64 == 0
    assert f"{steps:,} env steps are planned" in capsys.readouterr().err
    assert steps < 100_000  # as many as a run without minutes has
    again = corral.train("arena_v0", steps=steps, out=tmp_path / "counted", **SMALL)
    if run.stopped is None:  # a machine that was busy ends it early
        assert everything(again.folder) == everything(run.folder)


def test_no_plan_is_of_0_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corral.train("arena_v0", minutes=0.0001, out=tmp_path / "run", **SMALL)
    said = capsys.readouterr().err
    shown(said, 64)
    assert "0" not in said.split()


def test_more_steps_than_are_wanted_are_not_planned(tmp_path: Path) -> None:
    """However much time there is; in whole rollouts, one at least."""
    for most, steps in ((150, 128), (1, 64)):
        limit = Minutes(5.0, time.monotonic(), most)
        run = corral.train("arena_v0", minutes=limit, out=tmp_path / f"{most}", **SMALL)
        assert run.config.steps == run.config.horizon == run.progress.env_steps.max() == steps


def test_a_run_that_takes_too_long_is_stopped_and_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    late = Deadline(0.0, "0.1 minutes are over")
    run = corral.train("arena_v0", steps=256, out=out, callbacks=[late], **SMALL)
    assert run.stopped == "0.1 minutes are over"
    assert len(run.progress) == 1
    assert len(resume(out).progress) == 4


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"minutes": 1, "steps": 64}, ("minutes=1", "steps")),
        ({"minutes": 0}, ("minutes=0", "0")),
        ({"minutes": -1}, ("minutes=-1",)),
        ({"minutes": 1, "self_play": "past=0.5,every=64"}, ("steps=",)),
    ],
)
def test_what_minutes_cannot_be(
    given: dict[str, Any], named: tuple[object, ...], tmp_path: Path
) -> None:
    with refused(ValueError, *named):
        corral.train("arena_v0", out=tmp_path / "run", **given, **SMALL)
    assert not (tmp_path / "run").exists()


def test_torch_has_one_thread_meanwhile_unless_the_user_says_how_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra mappo")
    with threads_set(2):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        with one_thread():
            assert torch.get_num_threads() == 2
