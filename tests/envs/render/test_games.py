"""Pictures of tictactoe_v0 and rps_v0: what is drawn, what the text says, that both fit."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.envs import make_rules, rps_v0, tictactoe_v0
from corral.envs.rps_v0 import render as rps_render
from corral.envs.tictactoe_v0 import render as tictactoe_render
from support.messages import shown

PICTURES = Path(__file__).parent / "pictures"
TOLERANCE = 0.05  # mean absolute difference, of 255; see test_render.py

Module = Any
MODULES: dict[str, Module] = {"tictactoe_v0": tictactoe_render, "rps_v0": rps_render}


def frame(name: str, moves: list[Any], **kwargs: Any) -> Any:
    """The frame after some moves: fields, or pairs of moves."""
    rules: Any = make_rules(name, **kwargs)
    state = rules.start([np.random.default_rng(0)])
    for move in moves:
        pair = [move, move] if isinstance(move, int) else list(move)
        state = rules.step(state, np.array([pair])).state
    return rules.frame(state)


WON = [4, 0, 2, 6, 3, 1, 5]
ROUNDS = [(0, 1), (1, 1), (2, 1), (0, 2)]
FRAMES: dict[str, tuple[str, Any]] = {
    "tictactoe_start": ("tictactoe_v0", frame("tictactoe_v0", [])),
    "tictactoe_step": ("tictactoe_v0", frame("tictactoe_v0", WON[:4])),
    "tictactoe_won": ("tictactoe_v0", frame("tictactoe_v0", WON)),
    "tictactoe_illegal": ("tictactoe_v0", frame("tictactoe_v0", [4, 0, 0])),
    "tictactoe_wide": (
        "tictactoe_v0",
        frame("tictactoe_v0", list(range(0, 300, 7)), size=(19, 26), line=5),
    ),
    "tictactoe_tall": ("tictactoe_v0", frame("tictactoe_v0", [0, 3, 5], size=(26, 1))),
    "rps_start": ("rps_v0", frame("rps_v0", [])),
    "rps_step": ("rps_v0", frame("rps_v0", ROUNDS)),
    "rps_long": ("rps_v0", frame("rps_v0", [(i % 3, i * i % 3) for i in range(40)], rounds=50)),
    "rps_short": ("rps_v0", frame("rps_v0", [(2, 2)], rounds=1)),
}
KEPT = ("tictactoe_step", "tictactoe_won", "rps_step")


def drawn(label: str, **size: int) -> np.ndarray:
    name, pictured = FRAMES[label]
    image: np.ndarray = MODULES[name].draw(pictured, **size)
    return image


def difference(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.abs(first.astype(float) - second.astype(float)).mean())


@pytest.fixture
def pillow() -> Any:
    return pytest.importorskip("PIL.Image", reason="Pillow is not installed: corral[render]")


# --- Pictures ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("pillow")
@pytest.mark.parametrize("label", FRAMES)
def test_a_picture_has_its_size_and_clear_borders(label: str) -> None:
    image = drawn(label)
    assert (image.shape, image.dtype) == ((640, 960, 3), np.uint8)
    edges = [image[:20], image[-20:], image[:, :20], image[:, -20:]]
    assert all((edge == image[0, 0]).all() for edge in edges)
    assert image[0, 0].min() > 230
    assert drawn(label).tobytes() == image.tobytes()
    small = drawn(label, width=480, height=500)
    assert small.shape == (500, 480, 3)
    assert (small[:, :8] == small[0, 0]).all()


@pytest.mark.parametrize("label", KEPT)
def test_the_kept_picture(label: str, pillow: Any) -> None:
    file, image = PICTURES / f"{label}.png", drawn(label)
    if os.environ.get("CORRAL_REFRESH_PICTURES") == "1":
        pillow.fromarray(image).save(file, optimize=True)
    with pillow.open(file) as opened:
        kept = np.asarray(opened.convert("RGB"))
    assert difference(image, kept) <= TOLERANCE, f"look at {file.name}, then refresh it"


@pytest.mark.usefixtures("pillow")
def test_a_changed_frame_exceeds_the_tolerance() -> None:
    _, pictured = FRAMES["tictactoe_won"]
    changes: list[dict[str, Any]] = [
        {"board": ((2, 2, 1), (1, 1, 1), (2, 2, 0))},
        {"winning": ()},
        {"ended": "full"},
        {"t": 6},
    ]
    for change in changes:
        image = tictactoe_render.draw(dataclasses.replace(pictured, **change))
        assert difference(drawn("tictactoe_won"), image) > TOLERANCE, change
    _, pictured = FRAMES["tictactoe_step"]
    image = tictactoe_render.draw(dataclasses.replace(pictured, last=(0, 0)))
    assert difference(drawn("tictactoe_step"), image) > TOLERANCE
    for moves in (ROUNDS[:3], [(1, 0), *ROUNDS[1:]], [*ROUNDS[:3], (2, 0)]):
        image = rps_render.draw(frame("rps_v0", moves))
        assert difference(drawn("rps_step"), image) > TOLERANCE, moves


@pytest.mark.usefixtures("pillow")
def test_red_appears_only_for_an_illegal_move() -> None:
    def red(label: str) -> int:
        image = drawn(label).astype(int)
        return int(((image[..., 0] > 180) & (image[..., 1:].max(axis=2) < 80)).sum())

    assert red("tictactoe_illegal") > 200
    assert not any(red(label) for label in FRAMES if label != "tictactoe_illegal")


@pytest.mark.usefixtures("pillow")
def test_every_step_of_an_episode_can_be_drawn() -> None:
    turns = tictactoe_v0.env(render_mode="rgb_array")
    turns.reset(seed=0)
    pictures = [turns.render().tobytes()]
    for field in WON:
        turns.step(field)
        pictures.append(turns.render().tobytes())
    assert len(set(pictures)) == len(WON) + 1
    rounds = rps_v0.parallel_env(render_mode="rgb_array", rounds=4)
    rounds.reset(seed=0)
    pictures = [rounds.render().tobytes()]
    for one, other in ROUNDS:
        rounds.step({"player_0": one, "player_1": other})
        pictures.append(rounds.render().tobytes())
    assert len(set(pictures)) == len(ROUNDS) + 1


# --- Text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", FRAMES)
def test_text_has_at_most_80_columns(label: str) -> None:
    name, pictured = FRAMES[label]
    assert max(map(len, MODULES[name].ansi(pictured).splitlines())) <= 80


def test_text_of_a_game() -> None:
    assert (
        tictactoe_render.ansi(FRAMES["tictactoe_won"][1])
        == """\
move 7: player_1 took field 5; player_1 wins with 3 in a line
0 | O O X
3 | X X X
6 | O . .
X player_1 (+1)  O player_2 (-1)  3 in a line win"""
    )


@pytest.mark.parametrize(
    ("moves", "told"),
    [
        ([], "move 0: empty board; player_1 moves next"),
        ([4], "move 1: player_1 took field 4; player_2 moves next"),
        (
            [4, 4],
            "move 2: player_2 chose field 4, which is occupied; an illegal move ends the game",
        ),
        ([0, 1, 2, 4, 3, 5, 7, 6, 8], "move 9: player_1 took field 8; the board is full: a draw"),
    ],
)
def test_text_says_what_happened_in_a_game(moves: list[int], told: str) -> None:
    lines = tictactoe_render.ansi(frame("tictactoe_v0", moves)).splitlines()
    assert lines[0] == told
    paid = {0: ("", ""), 1: ("", ""), 2: (" (0)", " (-1)"), 9: (" (0)", " (0)")}[len(moves)]
    assert lines[-1].startswith(f"X player_1{paid[0]}  O player_2{paid[1]}  ")


def test_all_lines_of_a_double_win_are_struck() -> None:
    """Two lines at once, and one that is longer than it must be."""
    both = frame("tictactoe_v0", [0, 1, 2, 3, 6, 5, 8, 7, 4])
    assert len(tictactoe_render._strikes(both)) == 2
    long = frame("tictactoe_v0", [0, 10, 1, 12, 3, 20, 2], size=5, line=3)
    assert tictactoe_render._strikes(long) == [((0, 0), (0, 3))]


def test_text_of_rounds() -> None:
    assert (
        rps_render.ansi(FRAMES["rps_step"][1])
        == """\
round 4 of 10: player_0 wins: rock blunts scissors
player_0  R P S R
player_1  P P P S
won by    1 = 0 0
R rock  P paper  S scissors  0, 1 the player that won  = a draw
rounds won: 2 and 1"""
    )
    shown(rps_render.ansi(FRAMES["rps_start"][1]), "0 of 10")
    shown(rps_render.ansi(FRAMES["rps_short"][1]), "scissors", "draw")
    shown(rps_render.ansi(FRAMES["rps_long"][1]), "(the last 30")
