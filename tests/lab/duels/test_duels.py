"""Duels of players in Python and reference players: the matrix, notes, files, bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import corral
from corral.envs import make_rules
from corral.envs.policy import RandomPolicy
from corral.envs.reference import reference_player
from corral.envs.rps_v0.baselines import AlwaysSame
from corral.errors import IllegalActionWarning, InfeasibleError, RunError, UnknownNameError
from corral.lab.duels.driver import FILES, Duels, duel
from corral.trainers.evaluation.players import Player
from corral.trainers.evaluation.zero_sum import evaluate_seat
from support.messages import refused, shown
from support.turn_rules import PileRules

MOVES = {move: AlwaysSame(move) for move in ("rock", "paper", "scissors")}


def first_free(observation: Any) -> int:
    return int(np.argmax(observation["action_mask"]))


def takes_three(observation: Any) -> int:
    return int(observation["action_mask"].sum()) - 1


def said(duels: Duels) -> str:
    return "\n".join(duels.notes)


# --- What is played ------------------------------------------------------------------------------


def test_each_plays_each_in_both_seats_as_evaluate_does() -> None:
    duels = corral.duel("perfect", "random", env="tictactoe_v0", episodes=300, seed=3)
    assert isinstance(duels, corral.Duels)
    assert [(row.player, row.seat, row.other) for row in duels] == [
        ("perfect", "player_1", "random"),
        ("random", "player_1", "perfect"),
    ]
    rules = make_rules("tictactoe_v0")
    perfect = reference_player("perfect", rules, "player_1")
    first = evaluate_seat(
        rules, "player_1", perfect, RandomPolicy(), episodes=300, deterministic=False, seed=3
    )
    row = duels[0]
    assert (row.return_player, row.low, row.high) == (first.return_seat, first.low, first.high)
    assert (row.won, row.drawn, row.lost) == (first.won * 300, first.drawn * 300, 0)
    assert row.return_other == -row.return_player
    assert (row.episodes, row.same) == (300, False)
    assert row.points == pytest.approx(first.won + first.drawn / 2)
    assert row.points_low is not None
    assert row.points_high is not None
    assert row.points_low < row.points < row.points_high
    assert row.won_low is not None
    assert row.won_high is not None
    assert row.won_low < first.won < row.won_high
    assert duels.matrix.loc["perfect", "random"] == row.return_player
    assert duels.matrix.loc["random", "perfect"] == duels[1].return_player < 0
    assert np.isnan(duels.matrix.loc["random", "random"])
    second = duels[1].points
    assert duels.points.loc["perfect", "random"] == pytest.approx((row.points + 1 - second) / 2)
    assert list(duels.ratings.index) == ["perfect", "random"]
    ratings = duels.ratings["rating"]
    assert ratings["perfect"] > 100 > -100 > ratings["random"]
    assert duels.to_dataframe()["won"].tolist() == [row.won, duels[1].won]


def test_against_itself_is_played_on_request_and_not_rated() -> None:
    plain = duel("perfect", "random", env="tictactoe_v0", episodes=50)
    mirror = duel("perfect", "random", env="tictactoe_v0", episodes=50, itself=True)
    assert (len(plain), len(mirror)) == (2, 4)
    assert mirror.matrix.loc["perfect", "perfect"] == 0
    pd.testing.assert_frame_equal(mirror.ratings, plain.ratings)


def test_an_anchor_is_0() -> None:
    duels = duel("perfect", "random", env="tictactoe_v0", episodes=50, anchor="random")
    assert duels.ratings.loc["random", "rating"] == 0
    assert duels.ratings.loc["perfect", "rating"] > 200


def test_all_meet_the_same_episodes_and_a_seed_returns_them() -> None:
    chance = {name: RandomPolicy() for name in ("a", "b", "c")}
    duels = duel(chance, env="tictactoe_v0", episodes=80)
    assert len({row.return_player for row in duels}) == 1
    assert duel(chance, env="tictactoe_v0", episodes=80).rows == duels.rows
    assert duel(chance, env="tictactoe_v0", episodes=80, seed=1).rows != duels.rows


def test_players_are_sampled_greedy_or_as_a_player_says() -> None:
    class Says(RandomPolicy):
        def act(
            self, observation: Any, state: Any = None, rng: Any = None, deterministic: bool = False
        ) -> Any:
            asked.append(deterministic)
            return super().act(observation, state, rng, deterministic)

    asked: list[bool] = []
    plan: dict[str, Any] = {"env": "rps_v0", "episodes": 2}
    duel({"one": Says()}, "random", **plan)
    assert set(asked) == {False}
    asked.clear()
    duel({"one": Says()}, "random", sampled=False, **plan)
    assert set(asked) == {True}
    asked.clear()
    team = dict.fromkeys(("player_0", "player_1"), Says())
    found = duel({"one": Player(team, deterministic=True)}, "random", **plan)
    assert set(asked) == {True}
    assert found.modes == {"one": "greedy", "random": "sampled"}


def test_a_game_in_which_both_may_gain() -> None:
    """Who moves is paid nothing, the other 2: what counts is who earned more."""
    rules: Any = PileRules((8, 9), gift=2.0)
    duels = duel({"one": first_free, "three": takes_three}, env=rules, episodes=4)
    # 8 stones, 3 and 1 in turn: 3 + 1 + 3 + 1, the second takes the last one.
    row = next(row for row in duels if row.player == "three")
    assert (row.return_player, row.return_other) == (-1 + 4, 1 + 4)
    assert (row.won, row.lost) == (0, 4)
    shown(said(duels), 8)  # the sum, and that it is not constant over games


def test_masked_actions_are_counted_for_who_chose_them() -> None:
    with pytest.warns(IllegalActionWarning):
        duels = duel({"bad": lambda obs: 0, "good": first_free}, env="tictactoe_v0", episodes=3)
    counted = {row.player: (row.illegal_player, row.illegal_other) for row in duels}
    assert counted == {"bad": (3, 0), "good": (0, 3)}


# --- What is said --------------------------------------------------------------------------------


def test_a_cycle_is_named() -> None:
    duels = duel(MOVES, env="rps_v0", episodes=20)
    assert duels.cycles == [("rock", "scissors", "paper")]
    shown(said(duels), "rock", "scissors", "paper")
    assert len(duels.notes) == 3  # that all episodes were the same, the cycle, what it does
    assert duels.ratings["rating"].tolist() == pytest.approx([0, 0, 0])


def test_a_duel_prints_its_matrix_ratings_and_notes() -> None:
    text = str(duel(MOVES, env="rps_v0", episodes=20))
    shown(text, 3, "rps_v0", 6, "rock", "scissors")
    assert [line.split()[0] for line in text.splitlines()].count("paper") == 2


def test_one_and_the_same_episode_has_no_interval() -> None:
    duels = duel({"rock": MOVES["rock"], "paper": MOVES["paper"]}, env="rps_v0", episodes=500)
    for row in duels:
        assert row.same
        assert (row.low, row.points_low, row.won_low, row.drawn_high) == (None,) * 4
    assert len(duels.notes) == 2
    shown(duels.notes[0])
    gap = duels.ratings.loc["paper", "rating"] - duels.ratings.loc["rock", "rating"]
    assert gap == pytest.approx(400 * np.log10(2.5 / 0.5))  # of two games won, and the prior's
    assert duels.ratings.loc["paper", "low"] < 0


def test_who_lost_nothing_is_no_measurement() -> None:
    duels = duel({"paper": MOVES["paper"], "rock": MOVES["rock"]}, env="rps_v0", episodes=9)
    assert any("rock" in note and "paper" in note for note in duels.notes)
    fair = duel("perfect", "random", env="tictactoe_v0", episodes=100)
    assert "random" not in said(fair)


def test_three_seats_have_a_table_and_no_ratings() -> None:
    kwargs = {"trace": "edge3", "max_cycles": 20}
    duels = duel("local", "overflow", env="dfaas_v0", env_kwargs=kwargs, episodes=3)
    agents = ("node_0", "node_1", "node_2")
    assert list(duels.matrix.index) == [(p, a) for p in ("local", "overflow") for a in agents]
    assert len(duels) == 2 * 2 * 3
    assert not duels.matrix.isna().any().any()
    assert (len(duels.ratings), duels.cycles, duels.points.notna().sum().sum()) == (0, (), 0)
    shown(duels.notes[-1], "dfaas_v0", 3)
    # What a node earns that forwards nothing does not hang on the others, but on what they send.
    own = [row for row in duels if row.player == row.other == "local"]
    assert [row.seat for row in own] == list(agents)


def test_a_player_of_one_seat_plays_that_one() -> None:
    duels = duel("nearest/still", "chase", env="arena_v0", episodes=4)
    assert [(row.player, row.other) for row in duels] == [("nearest/still", "chase")]
    shown(duels.notes[0], "chase", "agent_2")


# --- Files ---------------------------------------------------------------------------------------


def test_what_is_written_can_be_read_back(tmp_path: Path) -> None:
    duels = duel(MOVES, "random", env="rps_v0", episodes=20, out=tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert {file.name for file in folder.iterdir()} == set(FILES)
    matrix = pd.read_csv(folder / "matrix.csv", index_col=0)
    assert matrix.loc["rock", "scissors"] == 10
    assert matrix.loc["scissors", "rock"] == -10
    pd.testing.assert_frame_equal(matrix, duels.matrix, check_names=False)
    rows = pd.read_csv(folder / "duels.csv")
    assert rows.columns.tolist() == duels.to_dataframe().columns.tolist()
    assert len(rows) == 12
    ratings = pd.read_csv(folder / "ratings.csv", index_col="player")
    assert ratings["rating"].to_dict() == pytest.approx(duels.ratings["rating"].to_dict())
    found = json.loads((folder / "duels.json").read_text())
    assert found["cycles"] == [["rock", "scissors", "paper"]]
    assert (found["env"], found["players"][-1], found["seed"]) == ("rps_v0", "random", 0)
    assert found["pairings"][0]["episodes"] == 20
    assert found["matrix"][0] == [None, -10.0, 10.0, duels.matrix.loc["rock", "random"]]


@pytest.mark.parametrize("players", [2, 14])
def test_the_picture_is_an_svg_for_light_and_dark(tmp_path: Path, players: int) -> None:
    names = ["<b>&\x1b\"'", *(f"a name that is far too long, number {i}" for i in range(13))]
    given = {name: RandomPolicy() for name in names[:players]}
    text = duel(given, env="rps_v0", episodes=2).write(tmp_path)["duels.svg"].read_text()
    drawing = ElementTree.fromstring(text)
    shown(text, "prefers-color-scheme: dark")
    width = float(drawing.attrib["viewBox"].split()[2])
    boxes = [each for each in drawing.iter() if each.tag.endswith("rect") and "x" in each.attrib]
    assert len(boxes) == players**2 + players * (players - 1)
    assert all(float(b.attrib["x"]) + float(b.attrib["width"]) < width for b in boxes)
    words = [each.text or "" for each in drawing.iter() if each.tag.endswith("text")]
    assert any(word.startswith("<b>&") for word in words)
    assert sum(word.endswith("number 0") for word in words) == 3


def test_a_picture_of_three_seats(tmp_path: Path) -> None:
    kwargs = {"trace": "edge3", "max_cycles": 5}
    duels = duel("local", "random", env="dfaas_v0", env_kwargs=kwargs, episodes=2)
    written = duels.write(tmp_path)
    assert set(written) == set(FILES) - {"ratings.csv"}
    shown(written["duels.svg"].read_text(), "local", "node_2")
    read = pd.read_csv(written["matrix.csv"])
    assert read.columns.tolist() == ["player", "seat", "local", "random"]


# --- Bad input -----------------------------------------------------------------------------------

BAD: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    (("perfect",), {}, ValueError, "perfect"),
    ((), {}, ValueError, "none"),
    (("perfct", "random"), {}, UnknownNameError, "'perfct'; did you mean 'perfect'?"),
    (("perfect", "random"), {"episodes": 0}, ValueError, "episodes=0: give a whole number, 1"),
    (("random", "random"), {}, ValueError, "2 players are named random"),
    (("random", "perfect"), {"anchor": "perfekt"}, UnknownNameError, "did you mean 'perfect'?"),
    (("rps_v0", "random"), {"env": None}, ValueError, "rps_v0 is an environment, not a player: "),
    (("runs/none", "random"), {}, RunError, "runs/none is not a run"),
    (("none@best", "random"), {}, RunError, "none@best is not a run"),
    (("perfect", "random"), {"env": "tictacto"}, UnknownNameError, "did you mean 'tictactoe_v0'"),
    (("perfect", "random"), {"env_kwargs": {"size": 4}}, InfeasibleError, "perfect play on 4 x 4"),
    (("perfect", "random"), {"model": "f.py:make"}, ValueError, "model and trainer are for runs"),
    (("perfect", "random"), {"env": None}, ValueError, "name the environment, env=tictactoe_v0"),
    (("runs/none", "random"), {"env": None}, RunError, "runs/none is not a run"),
    (
        ({"mine": {"player_1": first_free}}, "random"),
        {},
        ValueError,
        "mine: no policy plays player_2",
    ),
    (({"player_1": first_free}, "random"), {}, ValueError, "team: no policy plays player_2"),
    (
        ({"mine": {"player_1": first_free, "player_x": first_free}}, "random"),
        {},
        UnknownNameError,
        "no agent of tictactoe_v0 named 'player_x'",
    ),
    (({"mine": 5}, "random"), {}, ValueError, "player_1: 5 is"),
    (("chase", "chase/x"), {"env": "arena_v0"}, UnknownNameError, "no player of arena_v0 named"),
    (("chase", "still"), {"env": "arena_v0"}, ValueError, "no policy plays agent_1"),
]


@pytest.mark.parametrize(("players", "options", "error", "message"), BAD)
def test_bad_input_is_named(
    players: tuple[Any, ...], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        duel(*players, **{"env": "tictactoe_v0", "episodes": 2, **options})
    assert message in str(caught.value)


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with refused(RunError, tmp_path):
        duel(tmp_path, "random", env="tictactoe_v0")


def test_duels_of_reference_players_need_no_torch() -> None:
    code = (
        "import sys, corral\n"
        "assert 'corral.trainers.selfplay' not in sys.modules\n"
        "corral.duel('perfect', 'random', env='tictactoe_v0', episodes=2)\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_four_opponents_that_are_alike_make_nobody_surer() -> None:
    """Of n players one is (n - 1) / n of its gap to the others above the mean."""
    widths = []
    for many in (1, 4):
        others = {f"other {i}": "beat-last" for i in range(many)}
        found = duel({"me": RandomPolicy(), **others}, env="rps_v0", episodes=100)
        low, high = found.ratings.loc["me", ["low", "high"]]
        widths.append(high - low)
    assert widths[1] == pytest.approx(widths[0] * (4 / 5) / (1 / 2), rel=0.2)
