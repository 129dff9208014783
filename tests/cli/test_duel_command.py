"""corral duel: the screen at 80 columns, files, and mistakes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from corral.lab.duels.driver import FILES, Duel
from corral.lab.duels.tables import _cell
from support.command import run as command
from support.command import within
from support.messages import shown

GAME = ("--env", "tictactoe_v0", "--episodes", "30")


def test_the_screen_shows_the_matrix_ratings_and_notes() -> None:
    printed = within("duel", "perfect", "random", *GAME, "--anchor", "random")
    assert max(map(len, printed.splitlines())) <= 80
    for line in (
        r"player_1 \\ player_2 +perfect +random",
        r"perfect +- +\+0\.\d\d",
        r"player +rating +95 % interval +points +won/drawn/lost",
        r"random +\+0 +\d",
        r"Illegal actions: 0\.",
    ):
        assert re.search(line, printed), (line, printed)


def test_many_players_are_numbered_and_fit_80_columns() -> None:
    printed = within(
        *("duel", "random", "always-same", "copy-last", "beat-last", "--env", "rps_v0"),
        *("--episodes", "5", "--greedy"),
    )
    assert max(map(len, printed.splitlines())) <= 80
    teams = ["nearest/still", "nearest/chase", "nearest/random", "random/still", "random/chase"]
    printed = within("duel", *teams, "random", "--env", "arena_v0", "--episodes", "2")
    assert max(map(len, printed.splitlines())) <= 80
    assert re.search(r"agent_1 \\ agent_2 +1 +2 +3 +4 +5 +6", printed)
    assert re.search(r"5 +random/chase", printed)


def test_no_return_is_minus_zero() -> None:
    rows = {
        each: Duel("a", "x", "b", value, None, None, 0.0, 1, False, 1.0, 0, 0)
        for each, value in {"least": -0.001, "some": -0.01, "much": -123.456}.items()
    }
    shown = {each: _cell(row, False) for each, row in rows.items()}
    assert shown == {"least": "+0.00", "some": "-0.01", "much": "-123.5"}


def test_results_are_written_once(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    printed = within("duel", "perfect", "random", *GAME, "--out", folder)
    assert f"Results: {folder}, matrix.csv, duels.csv" in printed
    assert {file.name for file in folder.iterdir()} == set(FILES)
    again = command("duel", "perfect", "random", *GAME, "--out", folder, code=2)
    shown(again, "matrix.csv", "--overwrite")
    within("duel", "perfect", "random", *GAME, "--out", folder, "--overwrite")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["perfct", "random", *GAME], "named 'perfct'; did you mean 'perfect'?"),
        (["perfect", *GAME], "perfect"),
        (["perfect", "random"], "no player is a run: name the environment, --env tictactoe_v0"),
        (["perfect", "random", *GAME, "--episodes", "0"], "--episodes 0: give a whole number, 1"),
        (["perfect", "perfect", *GAME], "2 players are named perfect"),
        (["runs/no", "random", *GAME], "runs/no is not a run"),
        (["perfect", "random", *GAME, "--deterministic"], "did you mean '--greedy'?"),
        (["perfect", "random", *GAME, "--arg", "size=4"], "perfect play on 4 x 4"),
    ],
)
def test_mistakes_end_in_one_line(words: list[str], message: str) -> None:
    printed = " ".join(within("duel", *words, code=2).split())
    assert printed.startswith("corral: ")
    assert message in printed
