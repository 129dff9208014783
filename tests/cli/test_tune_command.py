"""corral tune: its words, the screen at 80 columns, and mistakes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.messages import shown

pytest.importorskip("safetensors", reason="needs the extra mappo")
pytest.importorskip("optuna", reason="needs the extra tune")

from corral.cli.commands.tune import _spread
from support.command import within
from support.tuning import in_this_process

SMALL = ("two_step_v0", "--steps", "60", "--num-envs", "4", "--n-steps", "5")


def wide(printed: str) -> list[str]:
    """Lines of more than 80 characters, but for commands and paths, which are pasted whole."""
    lines = printed.splitlines()
    return [line for line in lines if len(line) > 80 and "corral " not in line and "/" not in line]


def test_several_words_may_follow_an_option() -> None:
    words = [
        "arena_v0",
        "--grid",
        "a=1,2",
        "b=3",
        "--seeds",
        "2",
        "--search=c=1..2",
        "d=0..1",
        "--out",
        "x=y",
        "z=1",
    ]
    expected = "arena_v0 --grid a=1,2 --grid b=3 --seeds 2 --search=c=1..2 --search d=0..1 "
    assert [*_spread(words)] == (expected + "--out x=y z=1").split()
    assert [*_spread(["--grid", "a=1", "arena_v0", "b=2"])] == ["--grid", "a=1", "arena_v0", "b=2"]


def test_help_is_of_this_command() -> None:
    printed = " ".join(within("tune", "--help").split())
    assert "--resume" not in printed
    shown(printed, "corral tune dfaas_v0 --help")


def test_the_screen_shows_trials_and_the_command_of_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)
    folder = tmp_path / "study"
    words = ["tune", *SMALL, "--checkpoint-every", "1000", "--seeds", "2"]
    words += ["--grid", "learning_rate=1e-2", "n_epochs=1,2"]
    printed = within(*words, "--out", folder)
    assert wide(printed) == []
    for line in (
        r"^4 runs of 60 env steps\n",
        r"Trial 0, learning_rate 0\.01, n_epochs 1: \d\S*\n",
        r"trial +learning_rate +n_epochs +value +over seeds +state",
        r"1 +0\.01 +2 +\d\S* +\d\S* \.\. \d\S* +complete",
        r"random play +\d\S*",
        r"2 trials: 2 complete\.",
        r"Value: .*64",
        r"\ncorral evaluate \S+trial-000\d-seed0",
        r"for seed in 0 1; do OMP_NUM_THREADS=\d+ corral train two_step_v0 --trainer mappo .*"
        r"--learning-rate 0\.\d+ .*--seed \$seed; done",
    ):
        assert re.search(line, printed), (line, printed)
    again = within(*words, "--out", folder)
    assert not re.search(r"Trial \d+,", again)  # nothing was left to train
    assert again.split("trial ")[1] == printed.split("trial ")[1]


def test_a_study_in_which_all_fails_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)
    words = ["tune", *SMALL, "--grid", "learning_rate=1e30", "--max-grad-norm", "1e30"]
    printed = within(*words, "--out", tmp_path / "study", code=1)
    assert re.search(r"Trial 0, learning_rate 1e\+30: failed, ", printed)
    assert re.search(r"0 complete, 1 failed\.", printed)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--grid", "learning_rat=1,2"], "did you mean 'learning_rate'"),
        (["--grid", "learning-rate=1e-3", "learning_rate=1e-2"], "learning_rate is repeated"),
        (["--grid", "gamma"], "--grid gamma: give setting=values"),
        (["--search", "gamma=1..0.9"], "gamma=1..0.9: the range is reversed"),
        (["--grid", "gamma=0.9", "--search", "gamma=0..1"], "gamma: give it in --grid"),
        (["--grid", "gamma=0.9", "--gamma", "0.8"], "gamma has several values"),
        (["--grid", "gamma=0.9", "--seeds", "0"], "--seeds 0: give a whole number, 1 or more"),
        (["--point", "0.9"], "--point 0.9: give setting=value"),
        (["--grid", "gamma=0.9", "--gama", "1"], "did you mean '--gamma'"),
        ([], "nothing to try: give --grid, --search or --point"),
        (["--search", "gamma=..1"], "gamma=..1: give two numbers, LOW..HIGH"),
    ],
)
def test_mistakes_are_said_in_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    printed = within("tune", *SMALL, *words, "--out", tmp_path / "study", code=2)
    assert said in printed, printed
    assert not (tmp_path / "study").exists()
