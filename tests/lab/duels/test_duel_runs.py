"""Duels of runs: their checkpoints, names, seats and games; environments of others."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.errors import CheckpointError, IllegalActionWarning, RunError
from corral.lab.duels.driver import duel
from support.command import within

SMALL: dict[str, Any] = {"num_envs": 4, "n_steps": 16, "n_epochs": 1, "net_arch": (8,)}
FAST: dict[str, Any] = {"episodes": 10}


def small(folder: Path, env: Any = "tictactoe_v0", updates: int = 1, **changes: Any) -> Path:
    plan = {"trainer": "ippo", "steps": updates * 64, "preset": "none", **SMALL, **changes}
    return corral.train(env, out=folder, progress=False, **plan).folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    small(folder / "long", updates=4, checkpoint_every=64, keep="all")
    small(folder / "other", seed=1)
    small(folder / "taught", opponents={"player_2": "random"})
    small(folder / "wide", env_kwargs={"size": 4})
    small(folder / "rps", "rps_v0")
    return folder


def test_runs_and_checkpoints_play_each_other_and_reference_players(runs: Path) -> None:
    long, other = runs / "long", str(runs / "other")
    duels = duel(long, f"{long}@64", f"{long}@0", corral.load_run(other), "perfect", **FAST)
    assert duels.players == ("long", "long@64", "long@0", "other", "perfect")
    assert len(duels) == 20
    assert duels.ratings.index[0] == "perfect"
    for note in (
        "long is the checkpoint of 256 env steps.",
        "long@64 is the checkpoint of 64 env steps.",
        "long@0 is the start of the run, before any update.",
        "Runs sample their actions.",
    ):
        assert note in duels.notes
    assert sum(row.illegal_player + row.illegal_other for row in duels) == 0
    assert duels.env_kwargs["size"] == 3


def test_greedy_runs_say_so_and_play_one_episode(runs: Path) -> None:
    plan: dict[str, Any] = {"episodes": 20, "sampled": False}
    duels = duel(runs / "long", runs / "other", **plan)
    shown(" ".join(duels.notes), "long", "other", 256, 64)
    assert all(row.same for row in duels)
    assert set(duels.modes.values()) == {"greedy"}
    assert not any(row.same for row in duel(runs / "long", runs / "other", episodes=20))


def test_a_run_plays_the_seats_that_it_learned(runs: Path) -> None:
    duels = duel(runs / "taught", "perfect", "random", **FAST)
    assert any("taught" in note and "player_1" in note for note in duels.notes)
    assert "taught" not in duels.matrix.columns
    assert list(duels.matrix.index) == ["taught", "perfect", "random"]


def test_a_team_that_plays_masked_actions_beside_a_run_is_counted(runs: Path) -> None:
    with pytest.warns(IllegalActionWarning):
        duels = duel(runs / "long", {"bad": lambda observation: 0}, **FAST)
    assert {row.player: row.illegal_player > 0 for row in duels} == {"long": False, "bad": True}


def test_runs_of_one_name_are_called_by_their_paths(runs: Path, tmp_path: Path) -> None:
    copy = tmp_path / "long"
    shutil.copytree(runs / "long", copy)
    assert duel(runs / "long", copy, **FAST).players == (str(runs / "long"), str(copy))
    assert duel({"mine": copy}, runs / "long", **FAST).players[0] == "mine"
    with refused(ValueError, 2, "long", "corral.duel("):
        duel({"long": runs / "other"}, runs / "long", **FAST)


def test_other_arguments_of_one_game_are_told(runs: Path, tmp_path: Path) -> None:
    cut = small(tmp_path / "cut", env_kwargs={"max_cycles": 5})
    assert not any("max_cycles" in note for note in duel(runs / "long", "random", **FAST).notes)
    notes = duel(runs / "long", cut, **FAST).notes
    (told,) = (note for note in notes if "max_cycles" in note)
    shown(told, "cut", 5, None)


def test_bad_runs_are_named(runs: Path, tmp_path: Path) -> None:
    with refused(ValueError, runs / "long", runs / "wide", "player_1", "size", 3, 4):
        duel(runs / "long", runs / "wide", **FAST)
    with refused(ValueError, runs / "long", "tictactoe_v0", runs / "rps", "rps_v0"):
        duel(runs / "long", runs / "rps", **FAST)
    with refused(RunError, runs / "long", "tictactoe_v0", "rps_v0"):
        duel(runs / "long", "random", env="rps_v0", **FAST)
    with refused(CheckpointError, 99, "@64", "--keep all"):
        duel(f"{runs / 'long'}@99", "random", **FAST)
    empty = tmp_path / "empty"
    shutil.copytree(runs / "other", empty)
    shutil.rmtree(empty / "checkpoints")
    with pytest.raises(CheckpointError, match="empty/checkpoints"):
        duel(empty, "random", **FAST)
    with refused(ValueError, "env_kwargs={'size': 4}", "tictactoe_v0"):
        duel(runs / "long", "random", env_kwargs={"size": 4}, **FAST)


def test_the_command_fits_80_columns_and_writes_what_it_says(runs: Path, tmp_path: Path) -> None:
    words = [runs / "long", f"{runs / 'long'}@64", runs / "taught", "perfect", "random"]
    printed = within("duel", *words, "--episodes", "20", "--out", tmp_path / "out", "--itself")
    lines = [line for line in printed.splitlines() if not line.startswith("Results:")]
    assert max(map(len, lines)) <= 80
    shown(lines[0], "tictactoe_v0", 20)
    shown(printed, "won/drawn/lost")
    assert (tmp_path / "out" / "duels.svg").exists()


def test_a_zero_sum_game_of_others(tmp_path: Path) -> None:
    pytest.importorskip("pettingzoo.classic.connect_four_v3")
    env = "classic/connect_four-v3"
    run = small(tmp_path / "four", env)
    duels = duel(run, "random", **FAST)  # an installed id need not be named again
    shown(duels.notes[-1], 0, 20)
    assert np.isfinite(duels.ratings["rating"]).all()
    first, second = duels
    assert first.won + first.drawn + first.lost == second.won + second.drawn + second.lost == 10
