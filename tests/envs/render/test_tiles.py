"""Pictures of tiles_v0: what is drawn, what the text says, and that neither outgrows its room."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.envs import tiles_v0
from corral.envs.tiles_v0 import TilesRules
from corral.envs.tiles_v0.render import Frame, ansi, draw
from support.thinned import fast_every

PICTURES = Path(__file__).parent / "pictures"
TOLERANCE = 0.05  # mean absolute difference, of 255; see test_render.py


def frame(*actions: int, seed: int = 3, **kwargs: Any) -> Frame:
    """What is seen after ``actions``, in turn tile_0's and level_0's."""
    rules = TilesRules(**kwargs)
    state = rules.start([np.random.default_rng(seed)])
    info = rules.info(state)
    for action in actions:
        outcome = rules.step(state, np.array([[action, action]]))
        state, info = outcome.state, outcome.info
    return rules.frame(state, info)


def middle() -> Frame:
    return frame(5, 0, 10, 1, 0, 2, 6, 1, confidence=1.0)


FRAMES = {
    "start": frame(),
    "picked": frame(5, 0, 9),
    "middle": middle(),
    "illegal": frame(5, 0, 5),
    "fine": frame(5, 3, 7, 3),
    "one level": frame(15, 0, levels=1),
    "grey": frame(3, 1, templates=np.full((2, 3, 32, 32), 0.5)),
    "loud": frame(3, 1, templates=np.random.default_rng(0).random((3, 3, 32, 32)).round()),
    "many classes": frame(3, 1, templates=np.random.default_rng(0).random((1200, 3, 32, 32))),
}


@pytest.fixture
def pillow() -> Any:
    return pytest.importorskip("PIL.Image", reason="Pillow is not installed: corral[render]")


def difference(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.abs(first.astype(float) - second.astype(float)).mean())


# --- Pictures ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("pillow")
@pytest.mark.parametrize("name", fast_every(3, FRAMES))
def test_a_picture_has_its_size_and_clear_borders(name: str) -> None:
    image = draw(FRAMES[name])
    assert image.shape == (640, 960, 3)
    assert image.dtype == np.uint8
    border = np.concatenate([image[:20].reshape(-1, 3), image[-20:].reshape(-1, 3)])
    sides = np.concatenate([image[:, :20].reshape(-1, 3), image[:, -20:].reshape(-1, 3)])
    assert (border == image[0, 0]).all()
    assert (sides == image[0, 0]).all()
    assert draw(FRAMES[name]).tobytes() == image.tobytes()


@pytest.mark.usefixtures("pillow")
@pytest.mark.parametrize(("width", "height"), [(480, 320), (500, 900), (1200, 400)])
def test_other_sizes(width: int, height: int) -> None:
    image = draw(middle(), width=width, height=height)
    assert image.shape == (height, width, 3)
    assert (image[:, :2] == image[0, 0]).all()


@pytest.mark.parametrize("name", ["picked", "middle"])
def test_the_kept_picture(name: str, pillow: Any) -> None:
    file = PICTURES / f"tiles_{name}.png"
    image = draw(FRAMES[name])
    if os.environ.get("CORRAL_REFRESH_PICTURES") == "1":
        pillow.fromarray(image).save(file, optimize=True)
    with pillow.open(file) as opened:
        kept = np.asarray(opened.convert("RGB"))
    assert difference(image, kept) <= TOLERANCE, f"look at {file.name}, then refresh it"


@pytest.mark.usefixtures("pillow")
def test_a_changed_frame_exceeds_the_tolerance() -> None:
    f = middle()
    image = draw(f)
    changes: list[dict[str, Any]] = [
        {"received": 255 - f.received},
        {"image": 1 - f.image},
        {"sent": (*f.sent[:-1], 0)},
        {"newest": 0},
        {"picked": 15},
        {"left": 100},
        {"score": 1.11},
        {"true_probability": 0.9},
        {"likeliest": ((*f.likeliest[0][:1], 0.8), *f.likeliest[1:])},
        {"illegal": "tile_0"},
    ]
    for change in changes:
        assert difference(image, draw(dataclasses.replace(f, **change))) > TOLERANCE, change


@pytest.mark.usefixtures("pillow")
def test_the_true_image_is_shown_as_it_is() -> None:
    f = middle()
    shown = draw(f)[116:396, 336:616]
    places = (np.arange(32) * 280 + 140) // 32  # the middle of each pixel
    expected = np.rint(f.image.clip(0, 1) * 255).transpose(1, 2, 0)
    found = shown[places[:, None], places].astype(float)
    assert np.abs(found - expected).mean() < 3


@pytest.mark.usefixtures("pillow")
def test_every_step_of_an_episode_can_be_drawn() -> None:
    env = tiles_v0.env(render_mode="rgb_array", budget=40)
    env.reset(seed=1)
    pictures = {env.render().tobytes()}
    steps = 0
    while not any(env.terminations.values()):
        mask = env.last()[0]["action_mask"]
        env.step(int(np.flatnonzero(mask)[min(1, mask.sum() - 1)]))
        pictures.add(env.render().tobytes())
        steps += 1
    assert len(pictures) == steps + 1


# --- Text ----------------------------------------------------------------------------------------


def test_text_of_a_step() -> None:
    lines = ansi(middle()).splitlines()
    assert lines[:7] == [
        "4 of 16 tiles sent: tile 6 is sent at level 1: 12 values",
        "2 . . .",
        ". 0 1 .",
        ". . 1 .",
        ". . . .",
        "tiles: . unsent  ? picked  0..3 sent at that level",
        "budget: 75 of 384 values sent",
    ]
    assert "class" in lines[7]
    assert lines[8].startswith("team return: ")
    assert lines[9] == "next: tile_0 picks a tile"


@pytest.mark.parametrize(
    ("name", "event", "following"),
    [
        ("start", "waiting for the first tile", "next: tile_0 picks a tile"),
        ("picked", "tile_0 picks tile 9", "next: level_0 picks a level for tile 9"),
        ("illegal", "tile_0 chose a sent tile: the turn is lost", "next: tile_0 picks"),
        ("fine", "tile 7 is sent at level 3: 192 values", "The end: class"),
    ],
)
def test_text_says_what_happened(name: str, event: str, following: str) -> None:
    lines = ansi(FRAMES[name]).splitlines()
    assert lines[0].split(": ", 1)[1] == event
    assert lines[-1].startswith(following)


def test_the_end_says_whether_the_guess_is_right() -> None:
    f = dataclasses.replace(FRAMES["fine"], over=True)
    guess = f.likeliest[0][0]
    assert dataclasses.replace(f, truth=guess).next.endswith(": right")
    assert dataclasses.replace(f, truth=99).next.endswith(": wrong, the class is 99")
    assert [name for name, _ in dataclasses.replace(f, truth=999).named][-1] == 999


@pytest.mark.parametrize("name", FRAMES)
def test_text_has_at_most_120_columns(name: str) -> None:
    assert max(map(len, ansi(FRAMES[name]).splitlines())) <= 120
