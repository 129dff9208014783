"""Pictures of arena_v0: what is drawn, what the text says, and that neither outgrows its room."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.envs import arena_v0
from corral.envs.arena_v0.render import Frame, ansi, draw
from support.messages import shown

PICTURES = Path(__file__).parent / "pictures"
TOLERANCE = 0.05  # mean absolute difference, of 255; see test_render.py

SIZES = ((2, 1), (1, 9), (6, 5), (10, 10), (40, 17), (120, 90))  # columns, rows


def frame(width: int = 6, height: int = 5, t: int = 9) -> Frame:
    """The explorer has walked along the rows for t steps, the blocker one row up."""
    entered = [[0] * width for _ in range(height)]
    for step in range(min(t, width * height)):
        entered[step // width][step % width] = step + 1
    last = max(0, min(t, width * height) - 1)
    here, was = divmod(last, width), divmod(max(0, last - 1), width)
    corner = (height - 1, width - 1)
    return Frame(
        t=t,
        max_cycles=100,
        entered=tuple(map(tuple, entered)),
        places=(here, (max(0, height - 2), width - 1)),
        before=(was, corner),
        score=(float(t), -0.1 * t),
        first=1,
        collision=(False, False),
        new_field=True,
    )


def start(width: int, height: int) -> Frame:
    first = dataclasses.replace(frame(width, height, t=0), first=None, new_field=False)
    places = ((0, 0), (height - 1, width - 1))
    return dataclasses.replace(first, places=places, before=places)


def clash(*agents: int) -> Frame:
    """Two adjacent agents; ``agents`` collide."""
    places = ((1, 2), (1, 3))
    collision = (0 in agents, 1 in agents)
    changes: dict[str, Any] = {"places": places, "before": places, "collision": collision}
    return dataclasses.replace(frame(), **changes, new_field=False)


@pytest.fixture
def pillow() -> Any:
    return pytest.importorskip("PIL.Image", reason="Pillow is not installed: corral[render]")


def difference(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.abs(first.astype(float) - second.astype(float)).mean())


# --- Pictures ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("pillow")
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("kind", [frame, start], ids=lambda kind: kind.__name__)
def test_a_picture_has_its_size_and_clear_borders(size: tuple[int, int], kind: Any) -> None:
    image = draw(kind(*size))
    assert image.shape == (640, 960, 3)
    assert image.dtype == np.uint8
    border = np.concatenate([image[:20].reshape(-1, 3), image[-20:].reshape(-1, 3)])
    sides = np.concatenate([image[:, :20].reshape(-1, 3), image[:, -20:].reshape(-1, 3)])
    assert (border == image[0, 0]).all()
    assert (sides == image[0, 0]).all()
    assert image[0, 0].min() > 230
    assert draw(kind(*size)).tobytes() == image.tobytes()


@pytest.mark.usefixtures("pillow")
@pytest.mark.parametrize(("width", "height"), [(480, 320), (500, 900), (1200, 400)])
def test_other_sizes(width: int, height: int) -> None:
    image = draw(frame(10, 10), width=width, height=height)
    assert image.shape == (height, width, 3)
    assert (image[:, :2] == image[0, 0]).all()


@pytest.mark.parametrize("name", ["step", "clash"])
def test_the_kept_picture(name: str, pillow: Any) -> None:
    file = PICTURES / f"arena_{name}.png"
    image = draw(frame(10, 10, t=37) if name == "step" else clash(0, 1))
    if os.environ.get("CORRAL_REFRESH_PICTURES") == "1":
        file.parent.mkdir(exist_ok=True)
        pillow.fromarray(image).save(file, optimize=True)
    with pillow.open(file) as opened:
        kept = np.asarray(opened.convert("RGB"))
    assert difference(image, kept) <= TOLERANCE, f"look at {file.name}, then refresh it"


@pytest.mark.usefixtures("pillow")
def test_a_changed_frame_exceeds_the_tolerance() -> None:
    f = frame()
    image = draw(f)
    changes: list[dict[str, Any]] = [
        {"entered": (*f.entered[:-1], (3, *f.entered[-1][1:]))},
        {"places": (f.places[0], (4, 4))},
        {"before": f.places},
        {"score": (2.0, -8.8)},
        {"first": 0},
        {"new_field": False},
    ]
    for change in changes:
        assert difference(image, draw(dataclasses.replace(f, **change))) > TOLERANCE, change
    pictures = [draw(clash(*agents)) for agents in ((), (0,), (1,), (0, 1))]
    for i, one in enumerate(pictures):
        for other in pictures[:i]:
            assert difference(one, other) > TOLERANCE


@pytest.mark.usefixtures("pillow")
def test_red_appears_only_in_a_collision() -> None:
    def red(f: Frame) -> int:
        grid = draw(f)[:, :620].astype(int)  # without the panel and its legend
        return int(((grid[..., 0] > 180) & (grid[..., 1:].max(axis=2) < 80)).sum())

    assert red(clash()) == 0
    assert red(clash(0)) > 100
    assert red(clash(1)) > 100
    assert red(clash(0, 1)) > 150


@pytest.mark.parametrize("walls", ["bump", "mask"])
@pytest.mark.usefixtures("pillow")
def test_every_step_of_an_episode_can_be_drawn(walls: str) -> None:
    env = arena_v0.parallel_env(
        render_mode="rgb_array", width=3, height=2, max_cycles=9, walls=walls
    )
    observations, _ = env.reset(seed=0)
    rng = np.random.default_rng(0)
    pictures = {env.render().tobytes()}
    while env.agents:
        actions = {
            agent: int(rng.choice(np.flatnonzero(observations[agent]["action_mask"])))
            for agent in env.agents
        }
        observations, *_ = env.step(actions)
        pictures.add(env.render().tobytes())
    assert len(pictures) == 10  # the count of steps is in each


def test_the_arrow_of_a_collision_leads_to_where_it_happened() -> None:
    """The arrow ends at the blocker's field at the time of the explorer's move."""
    f = dataclasses.replace(clash(0), places=((1, 2), (1, 4)), before=((1, 2), (1, 3)), first=0)
    assert f.hit(0) == (1, 3)  # the blocker has gone on since
    f = dataclasses.replace(f, places=((1, 2), (1, 3)), before=((1, 2), (1, 4)), first=1)
    assert f.hit(0) == (1, 3)  # the blocker had come before


# --- Text ----------------------------------------------------------------------------------------


def test_text_of_a_step() -> None:
    assert (
        ansi(frame())
        == """\
step 9 of 100: the explorer finds a new field
o o o o o o
o o E . . .
. . . . . .
. . . . . B
. . . . . .
E explorer  B blocker  o visited: 9 of 30  . not visited
so far: explorer 9.0 (+1), blocker -0.9 (-0.1)"""
    )


@pytest.mark.parametrize(
    ("shown", "event"),
    [
        (clash(), "no new field"),
        (clash(0), "the explorer collides with the blocker"),
        (clash(1), "the blocker collides with the explorer"),
        (clash(0, 1), "both agents collide"),
        (start(3, 3), "waiting for the first step"),
    ],
)
def test_text_says_what_happened(shown: Frame, event: str) -> None:
    lines = ansi(shown).splitlines()
    assert lines[0] == f"step {shown.t} of 100: {event}"
    paid = {0: "", 9: " (-1)" if any(shown.collision) else " (-0.5)"}[shown.t]
    assert lines[-1].startswith(f"so far: explorer {shown.score[0]:.1f}{paid}, blocker")


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_text_has_at_most_80_columns_and_shows_the_explorer(size: tuple[int, int]) -> None:
    for t in (0, 1, 9, size[0] * size[1]):
        text = ansi(dataclasses.replace(frame(*size, t=t), max_cycles=10**6))
        lines = text.splitlines()
        assert max(map(len, lines)) <= 80
        grid = [line for line in lines if set(line) <= set("EBo. ")]
        assert len(grid) == min(size[1], 80)
        assert sum(line.count("E") for line in grid) == 1


def test_the_text_of_a_large_grid_says_which_part_it_shows() -> None:
    shown(ansi(frame(120, 90, t=240)), "0..79 of 90", "40..119 of 120")
    assert "rows" not in ansi(frame(40, 17))
