"""What checkpoints stand: kills, failing disks, damage, enemies."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.checkpoints import (
    CALLS,
    alone,
    content_of,
    damaged_loads,
    fail_everywhere,
    largest_file,
    names,
    same,
    saved,
    step_of,
)
from support.messages import refused

pytest.importorskip("safetensors", reason="needs the extra mappo")

from corral.errors import CheckpointError
from corral.trainers.runs.checkpoint import (
    best_checkpoint,
    latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
    verify_checkpoint,
)

# --- Kills and failing file systems --------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.slow
def test_a_kill_while_saving_leaves_the_newest_or_the_one_before(tmp_path: Path) -> None:
    seen = alone("kill_savers", folder=str(tmp_path), kills=20, seed=0, size=150)
    assert seen["faults"] == 0, seen
    assert seen["newest announced"] + seen["one newer"] == 20
    assert seen["left half written"] > 0, "no kill came while files were written"
    assert seen["steps saved"] > 3
    assert seen["leftovers after the next save"] == 0


@pytest.mark.parametrize(
    ("number", "stays"),
    [pytest.param(errno.ENOSPC, True, marks=pytest.mark.slow), (errno.EACCES, False)],
)
def test_a_failure_anywhere_is_loud_and_loses_nothing(
    tmp_path: Path, number: int, stays: bool
) -> None:
    seen = fail_everywhere(tmp_path, number, stays=stays)
    assert seen["failures"] > 40
    assert seen["loud"] == seen["failures"]
    assert seen["faults"] == 0
    assert 0 < seen["new one announced"] < seen["failures"]


def test_a_full_disk_is_loud_and_leaves_the_one_before(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    with largest_file(20_000), refused(CheckpointError, os.strerror(errno.EFBIG)):
        save_checkpoint(tmp_path, 2, content_of(2, 200))
    assert names(tmp_path) == ["latest", "step_000000000001"]
    assert same(load_checkpoint(latest_checkpoint(tmp_path)), content_of(1, 20))
    save_checkpoint(tmp_path, 2, content_of(2, 200))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_named(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    tmp_path.chmod(0o555)
    try:
        with refused(CheckpointError, os.strerror(errno.EACCES)):
            saved(tmp_path, 2)
        assert step_of(latest_checkpoint(tmp_path)) == 1
    finally:
        tmp_path.chmod(0o755)


def test_everything_is_on_the_disk_before_it_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, str]] = []

    def record(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(first: Any, *rest: Any, **named: Any) -> Any:
            place = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else first
            events.append((name, str(place)))
            return call(first, *rest, **named)

        return recorded

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc to tell which file is synced")
    saved(tmp_path, 1)
    for name in ("fsync", "rename", "replace"):
        assert name in CALLS
        monkeypatch.setattr(os, name, record(name, getattr(os, name)))
    save_checkpoint(tmp_path, 2, content_of(2, 20), keep=1)
    short = [(name, Path(place).name.partition(f"-{os.getpid()}-")[2]) for name, place in events]
    files = [Path(place).name for name, place in events[:5] if name == "fsync"]
    assert sorted(files[:4]) == sorted(
        name for name in os.listdir(latest_checkpoint(tmp_path)) if name != "manifest.json"
    )
    assert files[4] == "manifest.json"
    assert short[5:7] == [("fsync", "step_000000000002"), ("rename", "step_000000000002")]
    assert events[7] == ("fsync", str(tmp_path))
    assert short[8:10] == [("fsync", "latest"), ("replace", "latest")]
    assert events[10] == ("fsync", str(tmp_path))
    assert events[11] == ("rename", str(tmp_path / "step_000000000001"))
    assert len(events) == 12


def test_a_write_that_does_not_read_back_is_not_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, 1)

    def spoil(handle: int) -> None:
        place = os.readlink(f"/proc/self/fd/{handle}")
        if place.endswith("networks.safetensors"):
            with open(place, "r+b") as file:
                file.seek(-1, os.SEEK_END)
                file.write(b"\x55")

    monkeypatch.setattr(os, "fsync", spoil)
    with refused(CheckpointError, "networks.safetensors", "SHA-256"):
        saved(tmp_path, 2)
    assert names(tmp_path) == ["latest", "step_000000000001"]


# --- Damage --------------------------------------------------------------------------------------

FILES = ("manifest.json", "run.json", "generators.json", "networks.safetensors", "envs.safetensors")


@pytest.mark.parametrize("kind", ["truncation", "bit flip"])
@pytest.mark.parametrize("file", [*FILES, "latest"])
def test_damage_is_refused_and_an_intact_one_named(tmp_path: Path, file: str, kind: str) -> None:
    seen = damaged_loads(tmp_path, file, kind, times=40, seed=len(file))
    assert seen == {"refused": 40, "loaded an intact one": 0, "wrong": 0}


def test_damage_names_the_one_before_not_a_later_one(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 3)
    (tmp_path / "step_000000000002" / "run.json").write_text("{}")
    with refused(CheckpointError, "step_000000000002/run.json", "step_000000000001"):
        load_checkpoint(tmp_path / "step_000000000002")
    (tmp_path / "step_000000000001" / "run.json").write_text("{}")
    with pytest.raises(CheckpointError) as caught:
        verify_checkpoint(tmp_path / "step_000000000002")
    assert "step_000000000001" not in str(caught.value)


@pytest.mark.parametrize("file", FILES)
def test_a_missing_file_is_named(tmp_path: Path, file: str) -> None:
    path = saved(tmp_path, 1)
    (path / file).unlink()
    with pytest.raises(CheckpointError, match=file):
        load_checkpoint(path)


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "readme.txt").write_text("hello")
    (tmp_path / "model.zip").write_bytes(b"PK")
    for name, named in (
        ("notes", ("manifest.json",)),
        ("model.zip", ("pickles",)),
        ("missing", ("No such file or directory",)),
    ):
        with refused(CheckpointError, *named) as caught:
            load_checkpoint(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)


def test_a_newer_format_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path, 1)
    value = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**value, "version": 7}))
    with refused(CheckpointError, "manifest.json", 7, 1):
        load_checkpoint(path)


def test_a_copy_under_another_name_loads(tmp_path: Path) -> None:
    path = saved(tmp_path, 1)
    path.rename(tmp_path / "my_favourite")
    assert same(load_checkpoint(tmp_path / "my_favourite"), content_of(1, 20))


def test_while_best_is_in_doubt_nothing_is_removed(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, content_of(1, 20), best=True)
    (tmp_path / "best").write_text("step_000000000009\n")
    with refused(CheckpointError, tmp_path / "best"):
        best_checkpoint(tmp_path)
    with refused(CheckpointError, tmp_path / "best", "step_000000000002", "latest"):
        save_checkpoint(tmp_path, 2, content_of(2, 20), keep=1)
    assert step_of(latest_checkpoint(tmp_path)) == 2
    assert (tmp_path / "step_000000000001").is_dir()


# --- Enemies -------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc for the memory")
def test_hostile_checkpoints_run_nothing_and_reach_nothing() -> None:
    met = alone("meet_all", module="support.hostile_checkpoints", large=False)
    assert len(met) >= 30
    for name, found in met.items():
        assert found["result"] == "CheckpointError", (name, found)
        assert (found["code"], found["writes"], found["changed outside"]) == (0, 0, False), name
        assert found["growth"] < 16e6 + 40 * found["size"], (name, found)
        assert found["seconds"] < 60, (name, found)
