"""corral compare: the screen at 80 columns, training of what is missing, and mistakes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from support.messages import shown

pytest.importorskip("safetensors", reason="needs the extra mappo")

from corral.cli.commands.compare import _require_same_study
from corral.errors import StudyError
from support.command import within
from support.edited import odd_files, require_plain_errors

GAME = ("two_step_v0", "--trainers", "mappo,ippo", "--seeds", "1")
SMALL = ("--steps", "64", "--num-envs", "4", "--n-steps", "16", "--episodes", "4")


def flat(printed: str) -> str:
    return " ".join(printed.split())


@pytest.mark.slow
def test_missing_runs_are_trained_and_compared(tmp_path: Path) -> None:
    place = tmp_path / "out"
    printed = within("compare", *GAME, *SMALL, "--out", place)
    shown(printed.splitlines()[0], 2, 64)
    shown(flat(printed), "mappo-seed0")
    kept = json.loads((place / "compare.json").read_text())
    assert kept["environment"] == "two_step_v0"
    verdict = kept["verdict"].split()[0]
    told = shown(printed[printed.index(verdict) : printed.index("Results:")], "mappo", "ippo")
    assert max(map(len, told.splitlines())) <= 80
    assert flat(kept["verdict"]) in flat(told)
    trained = {path: path.stat().st_mtime_ns for path in place.glob("*/progress.csv")}
    again = within("compare", *GAME, *SMALL, "--out", place)
    shown(flat(again), "mappo-seed0")
    assert trained == {path: path.stat().st_mtime_ns for path in place.glob("*/progress.csv")}
    other = within("compare", *GAME, "--steps", "128", "--out", place, code=2)
    shown(flat(other), "study.json", "corral train two_step_v0 --steps 64")
    # The shell writes both groups, and the logs that lie beside the runs.
    mappo, ippo = ([*map(str, sorted(place.glob(f"{name}-*")))] for name in ("mappo", "ippo"))
    assert len(mappo) == 2
    printed = within(
        *("compare", *mappo, "--against", *ippo, "--episodes", "4", "--name", "first"),
    )
    shown(flat(printed), "first", "ippo")
    printed = within("compare", *mappo, "--against", f"file={place / 'marl_eval.json'}")
    assert "file-mappo" in printed


@pytest.mark.slow
def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    printed = within("compare", *GAME, "--no-such", "1", "--out", tmp_path / "out", code=2)
    assert "--no-such" in printed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name two groups of runs"),
        (("a", "b"), "name two groups of runs"),
        (("a", "--against", "b", "--foo"), "--foo"),
        (("nix-*", "--against", "b"), "nix-* does not exist; the pattern matches nothing"),
        (("arena_v0", "--trainers", "mappo"), "--trainers mappo:"),
        (("arena_v0", "--trainers", "mappo,mappo"), "--trainers mappo,mappo:"),
        (("arena_v0", "--trainers", "mappo,mapo"), "mapo"),
        (("arena_v0", "--trainers", "mappo,ippo", "--seeds", "0"), "give 1 or more"),
        (("--trainers", "mappo,ippo"), "--trainers takes an environment"),
    ],
)
def test_mistakes(words: tuple[str, ...], said: str) -> None:
    assert said in flat(within("compare", *words, code=2))


def test_a_folder_without_runs_takes_other_options(tmp_path: Path) -> None:
    _require_same_study(tmp_path, {"env": "arena_v0", "options": ["--no-such", "1"]})
    _require_same_study(tmp_path, {"env": "arena_v0", "options": []})
    run = tmp_path / "mappo-seed0"
    run.mkdir()
    (run / "config.json").write_text("{}")
    with pytest.raises(StudyError, match=r"study\.json"):
        _require_same_study(tmp_path, {"env": "tiles_v0", "options": []})
    tuned = '{"format": 1, "arguments": ["arena_v0"]}'
    for other in (tuned, "{", "[]"):
        (tmp_path / "study.json").write_text(other)
        with pytest.raises(StudyError, match=r"study\.json"):
            _require_same_study(tmp_path, {"env": "arena_v0", "options": []})


def test_a_group_of_nothing_but_logs_has_no_runs(tmp_path: Path) -> None:
    (tmp_path / "a-seed0.log").touch()
    printed = within("compare", tmp_path / "a-seed0.log", "--against", "b", code=2)
    shown(flat(printed), "a-seed0.log")


@pytest.mark.parametrize("command", ["evaluate", "duel"])
def test_logs_beside_runs_are_passed_over(command: str, tmp_path: Path) -> None:
    (tmp_path / "a-seed0.log").touch()
    missing = [tmp_path / "no-such-run", tmp_path / "nor-this"]
    printed = flat(within(command, tmp_path / "a-seed0.log", *missing, code=2))
    assert "no-such-run" in printed
    assert "a-seed0.log" not in printed


def test_an_edited_study_ends_plain(tmp_path: Path) -> None:
    study = {"env": "two_step_v0", "options": ["--steps", "100"]}
    _require_same_study(tmp_path / "compared", study)
    path = tmp_path / "compared" / "study.json"
    run = tmp_path / "compared" / "mappo-seed0"
    run.mkdir()
    (run / "config.json").write_text("{}")  # a run, for all that can be seen
    read = partial(_require_same_study, path.parent, study)
    read()
    assert require_plain_errors(path, read) > 30
    for _ in odd_files(path):
        with pytest.raises(StudyError, match=r"study\.json"):
            read()


def test_a_link_in_the_place_of_a_study_is_replaced(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("theirs")
    (tmp_path / "compared").mkdir()
    (tmp_path / "compared" / "study.json").symlink_to(other)
    _require_same_study(tmp_path / "compared", {"env": "two_step_v0", "options": []})
    assert other.read_text() == "theirs"
