"""corral train with callbacks, metrics, sinks and stop criteria, as files name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.messages import shown

pytest.importorskip("torch", reason="needs the extra mappo")

from corral.trainers.runs.run import load_run
from support.command import run as command
from support.command import within
from support.runs import rows

SMALL = (
    *("--num-envs", "4", "--n-steps", "16", "--n-epochs", "1", "--net-arch", "16"),
    *("--max-cycles", "10"),
)
MINE = """
import corral

class Doubles(corral.Callback):
    def on_update(self, session, row):
        row["double"] = 2 * row["updates"]

def fails(row):
    raise ValueError("not today")

def longest(episode):
    return episode.length

class Lines:
    def open(self, folder, config, updates): self.path = folder / "lines.txt"
    def write(self, row, histograms): self.path.open("a").write(f"{row['env_steps']}\\n")
    def close(self): pass
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_all_of_them_and_a_stop(tmp_path: Path, mine: Path) -> None:
    folder = tmp_path / "run"
    printed = command(
        *("train", "arena_v0", "--steps", "640", *SMALL, "--out", folder),
        *("--callback", f"{mine}:Doubles", "--metric", f"longest={mine}:longest"),
        *("--sink", f"{mine}:Lines", "--evaluate-every", "64"),
        *("--stop", "double>=4", "--stop", "wall_s>=1e6"),
    )
    shown(printed, 128, 640, "double>=4", "validation")
    found = rows(folder)
    assert [row["double"] for row in found] == ["2", "4"]
    assert [row["longest_max"] for row in found] == ["10.0", "10.0"]
    assert (folder / "lines.txt").read_text() == "64\n128\n"
    shown(str(load_run(folder).stopped), "double>=4", 4)
    within("train", "--resume", folder, "--steps", "192", "--callback", f"{mine}:Doubles")
    assert [row["double"] for row in rows(folder)] == ["2", "4", "6"]


def test_a_callback_that_fails_is_told_in_a_line(tmp_path: Path, mine: Path) -> None:
    folder = tmp_path / "run"
    train = ("train", "arena_v0", "--steps", "640", *SMALL, "--out", folder)
    printed = within(*train, "--callback", f"{mine}:fails", code=None)
    shown(printed, "fails", "on_update", 1, 64, "ValueError")
    assert "(mine.py:9)" in printed
    assert f"corral train --resume {folder}" in printed
    assert len(rows(folder)) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--stop", "return_team"), "criterion 'return_team': "),
        (("--stop", "return_team"), "'return_team>=15'"),
        (("--stop", "return_taem>=1"), "did you mean 'return_team'"),
        (("--metric", "mine.py:f"), "--metric mine.py:f: give name=file.py:function"),
        (("--metric", "a=nowhere.py:f"), "metric a: file nowhere.py"),
        (("--callback", "nowhere.py:f"), "callback: file nowhere.py"),
        (("--sink", "tensorbord"), "did you mean 'tensorboard'"),
        (("--evaluate-every", "0"), "every=0: give a whole number, 1 or more"),
    ],
)
def test_mistakes_are_told_before_a_folder_is_made(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    train = ("train", "arena_v0", "--steps", "64", *SMALL, "--out", tmp_path / "run")
    assert said in within(*train, *options, code=2)
    assert list(tmp_path.iterdir()) == []


WRONG = """
import corral

class Typo(corral.Callback):
    def on_updates(self, session, row): ...

class OfRllib(corral.Callback):
    def on_train_result(self, *, algorithm, result, **kwargs): ...

class NoWrite:
    def open(self, folder, config, updates): ...
    def close(self): ...

class Wants(corral.Callback):
    def __init__(self, limit): ...
"""


@pytest.mark.parametrize(
    ("option", "name", "said"),
    [
        ("--callback", "Typo", "has on_updates, which is never called; did you mean 'on_update'?"),
        ("--callback", "OfRllib", "has on_train_result, which is never called"),
        ("--callback", "Wants", "missing 1 required positional argument: 'limit'"),
        ("--callback", "NoWrite", "NoWrite is not a corral.Callback class"),
        ("--callback", "Nope", "callback: no object in"),
        ("--sink", "NoWrite", "lacks write"),
    ],
)
def test_wrong_methods_are_told_in_a_line(
    tmp_path: Path, option: str, name: str, said: str
) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(WRONG)
    train = ("train", "arena_v0", "--steps", "64", *SMALL, "--out", tmp_path / "run")
    printed = within(*train, option, f"{path}:{name}", code=2)
    assert said in printed
    assert "Traceback" not in printed
    assert not (tmp_path / "run").exists()
