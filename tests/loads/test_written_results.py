"""Whatever is written appears whole or not at all, and replaces links in place of following them:
tables, reports, pictures and JSON of every result."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.lab.comparing.comparison import Comparison
from corral.lab.comparing.groups import Group, Member
from corral.loads.replay import replay
from corral.loads.report import write_report
from support.messages import refused

SMALL: dict[str, Any] = {"num_envs": 4, "n_steps": 8, "net_arch": (8,), "progress": False}

Write = Callable[[Path], Mapping[str, Path]]
"""Writes a result into a folder; returns the files by name."""


def compared() -> Comparison:
    steps = np.linspace(0, 2e5, 20)

    def group(name: str, *scores: float) -> Group:
        each = enumerate(scores)
        return tuple(Member(f"{name}{k}", k, 200_000, s, steps, s * steps) for k, s in each)

    groups = {"a": group("a", 1, 2, 3, 4, 5), "b": group("b", 2, 3, 1, 0.5, 2)}
    return Comparison("arena_v0", "return", groups, versions={"corral": "1"})


@pytest.fixture(scope="module")
def writers() -> dict[str, Write]:
    replayed = replay("edge3", ["local", "overflow"], rows=(0, 576))
    duels = corral.duel("random", "beat-last", env="rps_v0", episodes=4)
    exploit = corral.exploit("random", "rps_v0")
    return {
        "replay": lambda folder: write_report(replayed, folder),
        "comparison": compared().write,
        "duels": duels.write,
        "exploit": exploit.write,
    }


NAMES = ("replay", "comparison", "duels", "exploit")


@pytest.mark.parametrize("name", NAMES)
def test_links_are_replaced_and_none_is_followed(
    name: str, writers: dict[str, Write], tmp_path: Path
) -> None:
    files = writers[name](tmp_path / "first")
    folder, other = tmp_path / "second", tmp_path / "other"
    folder.mkdir()
    other.write_text("theirs")
    # Names that earlier ways of writing went through, too.
    for file in files:
        for link in (file, f".{file}", f"{file}.tmp", f".{file}.part", f".{file}.writing"):
            (folder / link).symlink_to(other)
    assert writers[name](folder).keys() == files.keys()
    assert other.read_text() == "theirs"
    for file in files:
        assert (folder / file).is_file()
        assert not (folder / file).is_symlink()
        assert (folder / f".{file}").is_symlink()


def failing(call: str, left: int) -> Callable[..., Any]:
    """Return a function of ``os`` that fails after ``left`` calls, of ``open`` those that write."""
    works, count = getattr(os, call), itertools.count()

    def limited(*args: Any, **kwargs: Any) -> Any:
        if (call != "open" or args[1] & os.O_CREAT) and next(count) >= left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return works(*args, **kwargs)

    return limited


@pytest.mark.parametrize("call", ["fsync", "replace", "open"])
@pytest.mark.parametrize("name", NAMES)
def test_a_full_disk_leaves_what_was_there(
    name: str,
    call: str,
    writers: dict[str, Write],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each call in its turn fails; what is there is then of before, or of now, and whole."""
    files = writers[name](tmp_path)
    new = {file: path.read_bytes() for file, path in files.items()}
    old = {file: f"of before: {file}".encode() for file in files}
    for left in range(len(files)):
        for file, data in old.items():
            (tmp_path / file).write_bytes(data)
        with monkeypatch.context() as disk:
            full = failing(call, 2 * left if call == "fsync" else left)  # of files, and folders
            disk.setattr(os, call, full)
            with refused(OSError, errno=errno.ENOSPC) as error:
                writers[name](tmp_path)
        assert Path(str(error.value.filename)).name in files
        there = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        assert there.keys() == files.keys()
        for file, data in there.items():
            assert data in (old[file], new[file])
        assert sum(there[file] == new[file] for file in files) == left


def test_an_evaluation_follows_no_link_of_a_run(tmp_path: Path) -> None:
    run = corral.train("rps_v0", out=tmp_path / "run", steps=64, **SMALL)
    other = tmp_path / "other"
    other.write_text("theirs")
    names = ("results.json", "results.csv", "report.html", "config.json", "progress.csv")
    links = [run.folder / f".{name}" for name in names]
    links += [run.folder / name for name in ("results.json", "results.csv", "report.html")]
    for link in links:
        link.symlink_to(other)
    corral.evaluate(run, episodes=2)
    corral.resume(run.folder, steps=128, progress=False)
    assert other.read_text() == "theirs"
    assert not (run.folder / "results.json").is_symlink()
    outside = tmp_path / "outside"
    outside.mkdir()
    (run.folder / "evaluation@64").symlink_to(outside)
    with pytest.raises(corral.errors.FileError):
        corral.evaluate(f"{run.folder}@64", episodes=2)
    assert [*outside.iterdir()] == []
