"""Folders whose names are no UTF-8: a run is trained, resumed, judged and compared in them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.data import write_trace
from support.command import within
from support.loads import days
from support.tuning import in_this_process

SMALL = ("--steps", "64", "--num-envs", "4", "--n-steps", "8", "--net-arch", "8")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names are bytes there")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(os.fsdecode(os.fsencode(tmp_path) + b"/of-\xff"))


def read(folder: Path, *names: str) -> None:
    """Assert that files are there, in UTF-8."""
    for name in names:
        assert (folder / name).read_bytes().decode("utf-8")


def test_a_run(folder: Path) -> None:
    within("train", "two_step_v0", *SMALL, "--out", folder / "a")
    within("train", "--resume", folder / "a", "--steps", "128")
    assert len(corral.load_run(folder / "a").progress) == 4
    within("train", "two_step_v0", *SMALL, "--init", folder / "a", "--out", folder / "b")
    within("evaluate", folder / "a", "--episodes", "4")
    read(folder / "a", "results.json", "results.csv")


def test_runs_beside_each_other(folder: Path) -> None:
    named = [folder.with_name(f"{folder.name}{each}") for each in ("a", "b")]
    for each in named:
        within("train", "rps_v0", *SMALL, "--out", each)
    within("compare", named[0], "--against", named[1], "--episodes", "2", "--out", folder / "c")
    read(folder / "c", "report.html", "compare.json", "curves.csv", "profile.svg")
    within("duel", *named, "--episodes", "4", "--out", folder / "d")
    read(folder / "d", "duels.json", "duels.csv", "duels.svg", "matrix.csv")


def test_a_study(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_this_process(monkeypatch)
    grid = ("--grid", "learning_rate=1e-2,1e-3")
    within("tune", "two_step_v0", *SMALL, *grid, "--out", folder)
    read(folder, "study.json", "trials.csv")
    assert len([*folder.glob("trial-*/config.json")]) == 2


def test_a_load(folder: Path) -> None:
    within("replay", "edge3", "--rows", "0:288", "--policies", "local", "--out", folder / "r")
    read(folder / "r", "report.html", "results.json", "results.csv")


@pytest.mark.slow
def test_an_advice(folder: Path) -> None:
    folder.mkdir()
    write_trace(days(6), folder / "load.csv")
    within("advise", folder / "load.csv", "--no-train", "--out", folder / "a")
    read(folder / "a", "report.html", "advice.json")
