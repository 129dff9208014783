"""A study whose folder was edited, leads elsewhere by links, or whose disk is full."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from support.messages import refused

pytest.importorskip("optuna", reason="needs the extra tune")
pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.errors import CorralError, SizeError, StudyError
from corral.lab.jobs import is_finished
from corral.lab.tuning.judging import curve
from corral.lab.tuning.plan import STUDY, Plan
from corral.lab.tuning.space import Space
from corral.trainers.base import find_trainer
from support.edited import odd_files, require_plain_errors
from support.thinned import fast_every
from support.tuning import SMALL, in_this_process

GRID = {"learning_rate": "1e-2,1e-3"}
SLOW = pytest.mark.slow
LEARNING = ("learning_rate", "gamma", "gae_lambda", "clip_range")
WRITTEN = ("study.json", "study.db", "study.db-journal", "trials.csv", "curves.svg")


def plan() -> Plan:
    kind = find_trainer("mappo").kind
    space = Space.of(kind, (), GRID, {}, [{"learning_rate": 0.5}])
    return Plan(("two_step_v0",), space, 3, (0, 1), lag=2, threads=1)


def tune(folder: Path, **given: Any) -> Any:
    return corral.tune("two_step_v0", out=folder, **{"grid": GRID, **SMALL, **given})


def test_an_edited_plan_ends_plain(tmp_path: Path) -> None:
    plan().write(tmp_path)
    path = tmp_path / STUDY
    assert require_plain_errors(path, lambda: plan().stored_in(tmp_path)) > 100
    assert plan().stored_in(tmp_path) == {"lag": 2, "threads": 1}
    for _ in odd_files(path):
        with pytest.raises(StudyError, match=STUDY):
            plan().stored_in(tmp_path)


@pytest.mark.parametrize("name", fast_every(3, WRITTEN))
def test_links_in_its_folder_lead_nowhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)
    folder, other = tmp_path / "study", tmp_path / "other"
    tune(folder)
    other.write_text("theirs")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(other)
    if name in ("trials.csv", "curves.svg"):
        tune(folder)
        assert not (folder / name).is_symlink()
    else:
        with pytest.raises(StudyError, match=name):
            tune(folder)
    assert other.read_text() == "theirs"


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A disk that is full from the n-th file on that is written through, n being "left" + 1."""
    state = {"left": 10**6}
    fsync = os.fsync

    def limited(handle: int) -> None:
        state["left"] -= 1
        if state["left"] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", limited)
    return state


@pytest.mark.parametrize("left", fast_every(4, (0, 2, 5, 13)))
def test_a_full_disk_ends_plain_and_leaves_nothing_half_written(
    left: int, full: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)
    full["left"] = left
    if left < 3:  # what the study itself writes; later a trial fails, and the study goes on
        with pytest.raises((CorralError, OSError), match=str(tmp_path)):
            tune(tmp_path / "study")
    else:
        with contextlib.suppress(CorralError, OSError):
            tune(tmp_path / "study")
    assert not [*tmp_path.rglob(".writing-*")]
    full["left"] = 10**6
    study = tune(tmp_path / "study")  # and goes on once there is room
    assert [trial.number for trial in study.trials] == [0, 1]


@pytest.mark.slow
def test_what_was_there_stays_where_the_disk_is_full(
    full: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)
    tune(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in ("study.json", "trials.csv")}
    for left in range(3):
        full["left"] = left
        with refused(OSError, errno=28):
            tune(tmp_path)
        assert {name: (tmp_path / name).read_bytes() for name in before} == before


@pytest.mark.skipif(sys.platform == "win32", reason="has no such limit")
@pytest.mark.parametrize("limit", fast_every(3, (1, 10_000, 100_000)))
def test_a_database_that_cannot_grow_ends_plain(
    limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource
    import signal

    in_this_process(monkeypatch)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises((CorralError, OSError)):
            tune(tmp_path / "study")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.slow
def test_an_edited_run_of_a_study_ends_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)
    run = tune(tmp_path / "study").best.run
    learners = ["agent_0", "agent_1"]
    path = run / "progress.csv"
    whole = path.read_bytes()
    assert curve(run, learners)
    row = whole.split(b"\n")[1]
    for edited in (b"", b"\xff\n", b"env_steps\nmany\n", whole.replace(row[:2], b"x,"), whole[:40]):
        path.write_bytes(edited)
        with contextlib.suppress(StudyError):
            curve(run, learners)
        assert is_finished(run) in (True, False)
    path.write_bytes(whole)
    for _ in odd_files(path):
        with pytest.raises(StudyError, match=r"progress\.csv"):
            curve(run, learners)
        assert not is_finished(run)
    config = run / "config.json"
    require_plain_errors(config, lambda: is_finished(run))
    for _ in odd_files(config):
        assert not is_finished(run)


@pytest.mark.parametrize(
    "given",
    [
        {"seeds": 10**12},
        {"grid": {name: ",".join(f"0.{i:03}" for i in range(1, 999)) for name in LEARNING}},
    ],
    ids=["seeds", "grid"],
)
def test_more_runs_than_can_be_listed_are_refused(given: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(SizeError):
        tune(tmp_path / "study", **given)
    assert not (tmp_path / "study").exists()
