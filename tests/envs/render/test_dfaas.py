"""Pictures of dfaas_v0, and the drawing primitives.

Two pictures are kept in ``pictures/`` and compared within a tolerance. After a wanted change of
the drawing, refresh them and look at them before keeping them:

    CORRAL_REFRESH_PICTURES=1 pytest tests/envs/render/test_dfaas.py -k kept_picture
"""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.envs.dfaas_v0.render import Frame, ansi, draw
from corral.envs.render.canvas import (
    bend,
    label_box,
    outside,
    overlap,
    path,
    percent,
    ring,
    short_count,
)
from corral.envs.render.columns import columns_of
from corral.errors import MissingExtraError
from support.messages import shown

PICTURES = Path(__file__).parent / "pictures"
TOLERANCE = 0.05  # mean absolute difference, of 255; Pillow 10.1 and 13 differ by 0.004
COUNTS = (1, 2, 3, 5, 8, 12, 40, 200)
NAMES = ("lyon", "milano", "amsterdam", "san francisco", "köln", "porto")


def frame(n: int, *, times: int = 1, queue: int = 5, t: int = 35) -> Frame:
    """A step in which each overloaded node sends a quarter of the excess to each of the next 3."""
    arrivals = [(24 + 41 * i % 97) * times for i in range(n)]
    capacity = [(63 + 43 * i % 59) * times for i in range(n)]
    own = [min(a, c) for a, c in zip(arrivals, capacity, strict=True)]
    spare = [c - s for c, s in zip(capacity, own, strict=True)]
    forwarded = [a - s if n > 1 else 0 for a, s in zip(arrivals, own, strict=True)]
    flow = [[0] * n for _ in range(n)]
    for i in range(n):
        left = forwarded[i]
        for j in [(i + step) % n for step in range(1, min(n, 4))]:
            flow[i][j] = min(left, spare[j], forwarded[i] // 4)
            spare[j] -= flow[i][j]
            left -= flow[i][j]
    rest = [a - s - sum(row) for a, s, row in zip(arrivals, own, flow, strict=True)]
    waiting = [min(r, queue) for r in rest]
    return Frame(
        t=t,
        max_cycles=288,
        clock="2026-01-05 08:35",
        names=tuple(f"node_{i} {NAMES[i % len(NAMES)]}" for i in range(n)),
        arrivals=tuple(arrivals),
        capacity=tuple(capacity),
        served_local=tuple(own),
        served_remote=tuple(sum(row[j] for row in flow) for j in range(n)),
        forwarded=tuple(forwarded),
        lost=tuple(r - w for r, w in zip(rest, waiting, strict=True)),
        waiting=tuple(waiting),
        queue=queue,
        flow=tuple(tuple(row) for row in flow),
        load_scale=120.0 * times,
        capacity_scale=121.0 * times,
    )


def start(n: int) -> Frame:
    """Before the first step: arrivals are known, nothing else has happened."""
    none = (0,) * n
    return dataclasses.replace(
        frame(n, t=0),
        served_local=none,
        served_remote=none,
        forwarded=none,
        lost=none,
        waiting=none,
        flow=(none,) * n,
    )


def empty(n: int) -> Frame:
    none = (0,) * n
    return dataclasses.replace(
        start(n), t=7, clock="", arrivals=none, capacity=none, load_scale=1.0, capacity_scale=1.0
    )


@pytest.fixture
def pillow() -> Any:
    return pytest.importorskip("PIL.Image", reason="Pillow is not installed: corral[render]")


def difference(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.abs(first.astype(float) - second.astype(float)).mean())


# --- Pictures ------------------------------------------------------------------------------------


def test_the_frames_of_these_tests_lose_no_request() -> None:
    for n in COUNTS:
        f = frame(n)
        gone = np.array(f.served_local) + np.array(f.flow).sum(1) + f.lost + f.waiting
        np.testing.assert_array_equal(gone, f.arrivals)
        assert sum(f.arrivals) == f.offered
        assert all(s >= 0 for s in f.free)


@pytest.mark.usefixtures("pillow")
@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("kind", [frame, start, empty], ids=lambda kind: kind.__name__)
def test_a_picture_has_its_size_and_clear_borders(n: int, kind: Any) -> None:
    image = draw(kind(n))
    assert image.shape == (640, 960, 3)
    assert image.dtype == np.uint8
    border = np.concatenate([image[:4].reshape(-1, 3), image[-4:].reshape(-1, 3)])
    sides = np.concatenate([image[:, :4].reshape(-1, 3), image[:, -4:].reshape(-1, 3)])
    background = image[0, 0]
    assert background.min() > 230
    assert (border == background).all()
    assert (sides == background).all()
    assert (image != background).any(axis=2).sum() > 5000


@pytest.mark.usefixtures("pillow")
@pytest.mark.parametrize("n", [3, 40, 200])
def test_the_same_frame_gives_the_same_bytes(n: int) -> None:
    assert draw(frame(n)).tobytes() == draw(frame(n)).tobytes()


@pytest.mark.usefixtures("pillow")
@pytest.mark.parametrize(("width", "height"), [(480, 320), (500, 900), (1200, 400)])
def test_other_sizes(width: int, height: int) -> None:
    for n in (3, 12, 200):
        image = draw(frame(n), width=width, height=height)
        assert image.shape == (height, width, 3)
        assert (image[:, :2] == image[0, 0]).all()


@pytest.mark.usefixtures("pillow")
def test_numbers_up_to_a_million_and_long_foreign_names_are_drawn() -> None:
    big = dataclasses.replace(
        frame(12, times=10_000, t=100_000, queue=500_000),
        max_cycles=100_000,
        names=tuple(f"node_{i} 東京 " + "x" * 60 for i in range(12)),
    )
    image = draw(big)
    assert (image[:, -4:] == image[0, 0]).all()


@pytest.mark.parametrize("n", [3, 8])
def test_the_kept_picture(n: int, pillow: Any) -> None:
    file = PICTURES / f"dfaas_{n}.png"
    image = draw(frame(n))
    if os.environ.get("CORRAL_REFRESH_PICTURES") == "1":
        file.parent.mkdir(exist_ok=True)
        pillow.fromarray(image).save(file, optimize=True)
    with pillow.open(file) as opened:
        kept = np.asarray(opened.convert("RGB"))
    assert difference(image, kept) <= TOLERANCE, f"look at {file.name}, then refresh it"


@pytest.mark.usefixtures("pillow")
@pytest.mark.parametrize("n", [3, 8])
def test_a_changed_frame_exceeds_the_tolerance(n: int) -> None:
    f = frame(n)
    image = draw(f)
    busiest = f.lost.index(max(f.lost))
    fewer_lost = tuple(0 if i == busiest else lost for i, lost in enumerate(f.lost))
    changes: list[dict[str, Any]] = [
        {"lost": fewer_lost},
        {"flow": ((0,) * n,) * n},
        {"served_remote": (0,) * n},
        {"names": tuple(name.upper() for name in f.names)},
    ]
    for change in changes:
        assert difference(image, draw(dataclasses.replace(f, **change))) > TOLERANCE, change


@pytest.mark.usefixtures("pillow")
def test_red_appears_only_where_something_is_lost() -> None:
    def red(f: Frame) -> int:
        cards = draw(f)[84:590].astype(int)  # without header and legend
        return int(((cards[..., 0] > 180) & (cards[..., 1:].max(axis=2) < 80)).sum())

    lossless = dataclasses.replace(frame(3), lost=(0, 0, 0))
    assert red(lossless) == 0
    assert red(dataclasses.replace(lossless, lost=(0, 1, 0))) > 300


# --- Layout --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(1, 13))
def test_nodes_of_a_ring_stay_apart_and_inside(n: int) -> None:
    area = (16.0, 88.0, 944.0, 590.0)
    boxes = ring(n, area, 150.0, 88.0)
    assert len(boxes) == n
    for i, box in enumerate(boxes):
        assert area[0] - 0.01 <= box[0]
        assert box[2] <= area[2] + 0.01
        assert area[1] - 0.01 <= box[1]
        assert box[3] <= area[3] + 0.01
        assert not any(overlap(box, other) for other in boxes[:i])


def test_arrows_pass_other_nodes_and_both_directions_stay_apart() -> None:
    area = (16.0, 88.0, 944.0, 590.0)
    for n in (2, 3, 5, 8, 12):
        boxes = ring(n, area, 150.0, 88.0)
        for i in range(n):
            for j in range(i):
                there, back = (path(boxes, *ends, area, 3.0) for ends in ((i, j), (j, i)))
                middles = there[len(there) // 2], back[len(back) // 2]
                assert np.linalg.norm(middles[0] - middles[1]) > 10, (n, i, j)
                for curve in (there, back):
                    for box in boxes:
                        assert len(outside(curve, box)) == len(curve), (n, i, j)


def test_a_label_takes_a_free_place_or_none() -> None:
    curve = bend((0, 50), (50, 50), (100, 50))
    first = label_box(curve, 10, 5, taken=[], avoid=[])
    assert first is not None
    np.testing.assert_allclose(first, (40, 45, 60, 55))
    second = label_box(curve, 10, 5, taken=[first], avoid=[])
    assert second is not None
    assert not overlap(first, second)
    assert label_box(curve, 10, 5, taken=[(0, 0, 100, 100)], avoid=[]) is None


@pytest.mark.parametrize(
    ("number", "digits", "text"),
    [
        (0, 4, "0"),
        (9999, 4, "9999"),
        (12_345, 4, "12.3k"),
        (999_999, 6, "999999"),
        (999_999, 4, "1M"),
        (1_234_567, 6, "1.23M"),
        (2**31, 7, "2.15G"),
    ],
)
def test_short_counts(number: int, digits: int, text: str) -> None:
    assert short_count(number, digits) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 0, "0 %"),
        (0, 5, "0 %"),
        (5, 5, "100 %"),
        (1, 3, "33.3 %"),
        (1, 10**6, "<0.1 %"),
        (10**6 - 1, 10**6, ">99.9 %"),
    ],
)
def test_percent_is_0_or_100_only_when_it_is(part: int, whole: int, text: str) -> None:
    assert percent(part, whole) == text


# --- Text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 10_000, 20_000_000])
@pytest.mark.parametrize("n", [*range(1, 13), 40])
def test_text_has_at_most_80_columns(n: int, times: int) -> None:
    for f in (frame(n, times=times), frame(n, times=times, queue=0), start(n), empty(n)):
        lines = ansi(f).splitlines()
        assert max(map(len, lines)) <= 80
        assert not any("\x1b" in line for line in lines)
        assert sum(line.startswith("node_") for line in lines) == n


def test_text_of_a_step() -> None:
    assert (
        ansi(frame(3))
        == """\
step 35 of 288   2026-01-05 08:35
                                            arrived own others free lost waiting
node_0 lyon      ███····                         24  24      4   35    0       0
node_1 milano    ███████····                     65  65      4   37    0       0
node_2 amsterdam ██████████×                    106  90      0    0    3       5
                 -> node_0 4, node_1 4, no room for 8
total                                           195 179      8   72    3       5
█ own served  ▒ served for others  · free capacity  × lost
served 95.9 %, lost 1.5 %, waiting 2.6 %"""
    )


def test_text_before_the_first_step() -> None:
    text = ansi(start(3))
    assert "arriving" in text
    assert text.endswith("first step")


def test_a_small_loss_always_shows() -> None:
    f = dataclasses.replace(frame(3), lost=(1, 0, 0), load_scale=1e6, capacity_scale=1e6)
    assert "×" in ansi(f).splitlines()[2]


def test_text_lists_only_the_largest_flows_of_many_nodes() -> None:
    row = tuple(range(40))
    f = dataclasses.replace(frame(40), flow=((0,) * 40,) * 39 + ((*row[:39], 0),))
    shown(ansi(f), "-> node_38 38, node_37 37, node_36 36")
    shown(" ".join(ansi(f).split()), "33 more", 561)


def test_without_pillow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "PIL" or name.startswith("PIL.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"PIL.*'\.\[render\]"):
        draw(frame(3))
    assert "node_0" in ansi(frame(3))  # text needs nothing


def test_names_in_text_are_told_apart_in_any_script() -> None:
    servers = ["2001:db8:85a3:8d3:1319:8a2e:370:7341", "2001:db8:85a3:8d3:1319:8a2e:370:7342"]
    names = [f"node_{i} {name}" for i, name in enumerate([*servers, "東京データセンター"])]
    rows = ansi(dataclasses.replace(frame(3), names=tuple(names))).splitlines()
    assert rows[2].startswith("node_0 2001:…2e:370:7341 ")
    assert rows[3].startswith("node_1 2001:…2e:370:7342 ")
    assert rows[4].startswith("node_2 東京デ…タセンター ")
    assert [columns_of(row) for row in rows[2:5]] == [80, 80, 80]
