"""What a study tries: values of settings, points, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from support.messages import refused

pytest.importorskip("safetensors", reason="needs the extra mappo")

from corral.errors import ArgumentError, UnknownNameError
from corral.lab.tuning.space import Choices, Range, Space
from corral.trainers.base import find_trainer

MAPPO = find_trainer("mappo").kind


def space(grid: Any = None, search: Any = None, points: Any = ()) -> Space:
    return Space.of(MAPPO, ["height"], grid or {}, search or {}, points)


def test_values_have_the_type_of_their_setting() -> None:
    found = space(
        {"n_epochs": "2,1e1", "net_arch": "64,64;128,", "anneal": "on,off", "activation": "relu"}
    ).grid
    assert found["n_epochs"] == Choices((2, 10))
    assert all(isinstance(each, int) for each in found["n_epochs"].values)
    assert found["net_arch"] == Choices(((64, 64), (128,)))
    assert found["anneal"] == Choices((True, False))
    assert found["activation"] == Choices(("relu",))
    assert str(found["net_arch"]) == "64,64;128,"
    assert space({"target_kl": [None, 0.1]}).grid["target_kl"] == Choices((None, 0.1))


def test_ranges_are_read_as_text_and_as_python_has_them() -> None:
    found = space(
        search={
            "gae_lambda": "0.9..1",
            "clip_range": "log:0.005..0.3",
            "n_epochs": (2, 8),
            "gamma": (0.9, 1),
            "activation": ["relu", "tanh"],
        }
    ).search
    assert found["gae_lambda"] == Range(0.9, 1.0)
    assert found["clip_range"] == Range(0.005, 0.3, log=True)
    assert found["n_epochs"] == Range(2, 8, whole=True)
    assert found["gamma"] == Range(0.9, 1.0)
    assert found["activation"] == Choices(("relu", "tanh"))


def test_points_come_first_and_each_point_once() -> None:
    grid = {"gamma": "0.9,0.99", "n_epochs": "1,2"}
    found = space(grid, points=[{"gamma": "0.99", "n_epochs": 1}, {"gamma": 0.5, "n_epochs": 4}])
    listed = [(point["gamma"], point["n_epochs"]) for point in found.listed()]
    assert listed == [(0.99, 1), (0.5, 4), (0.9, 1), (0.9, 2), (0.99, 2)]
    assert len(space(points=[{"gamma": 0.9}, {"gamma": 0.9}, {"gamma": 0.8}]).listed()) == 2


def test_corners_hold_every_value_and_both_ends() -> None:
    corners = space({"gamma": "0.9,0.99"}, {"n_epochs": "2..8"}).corners()
    assert {point["gamma"] for point in corners} == {0.9, 0.99}
    assert {point["n_epochs"] for point in corners} == {2, 8}


@pytest.mark.parametrize(
    ("given", "error", "named"),
    [
        ({"grid": {"learning_rat": "1"}}, UnknownNameError, ("'learning_rat'", "'learning_rate'")),
        ({"grid": {"height": "5,6"}}, ArgumentError, ("height", "mappo")),
        ({"grid": {"seed": "5,6"}}, ArgumentError, ("seeds=3",)),
        ({"grid": {"gamma": ""}}, ValueError, ("gamma=",)),
        ({"grid": {"gamma": []}}, ValueError, ("gamma=",)),
        ({"grid": {"gamma": "0.9..1"}}, ValueError, ("gamma=0.9..1", "search=")),
        ({"grid": {"n_epochs": "1,two"}}, ValueError, ("n_epochs='two'",)),
        ({"grid": {"n_epochs": "1.5"}}, ValueError, ("n_epochs='1.5'",)),
        ({"grid": {"anneal": "maybe"}}, ValueError, ("anneal='maybe'", "on", "off")),
        ({"search": {"gamma": "0.9..0.8"}}, ValueError, ("gamma=", "0.8..0.9")),
        ({"search": {"gamma": (0.9, 0.8)}}, ValueError, ("gamma=", "0.8..0.9")),
        ({"search": {"gamma": "0.9..0.9"}}, ValueError, ("gamma=0.9..0.9",)),
        ({"search": {"gamma": "log:0..0.9"}}, ValueError, ("gamma=log:0..0.9", 0)),
        ({"search": {"gamma": "log:0.9"}}, ValueError, ("gamma=log:0.9", "log:LOW..HIGH")),
        ({"search": {"gamma": "0.9"}}, ValueError, ("gamma=0.9", "LOW..HIGH")),
        ({"search": {"gamma": "nan..1"}}, ValueError, ("gamma=nan..1", "LOW..HIGH")),
        ({"search": {"gamma": "..1"}}, ValueError, ("gamma=..1", "LOW..HIGH")),
        ({"search": {"activation": "a..b"}}, ValueError, ("activation=a..b",)),
        (
            {"grid": {"gamma": "1"}, "search": {"gamma": "0..1"}},
            ValueError,
            ("gamma", "grid=", "search="),
        ),
        ({}, ValueError, ("grid=", "search=", "points=")),
        (
            {"search": {"gamma": "0..1"}, "points": [{"gamma": 2}]},
            ValueError,
            ("gamma=2.0", "0.0..1.0"),
        ),
        ({"grid": {"gamma": "1"}, "points": [{"n_epochs": 2}]}, ValueError, ("n_epochs=2",)),
        (
            {"points": [{"gamma": 1, "n_epochs": 2}, {"gamma": 1}]},
            ValueError,
            ("gamma=1.0", "n_epochs"),
        ),
    ],
)
def test_what_is_no_space_is_refused(
    given: dict[str, Any], error: type[Exception], named: tuple[object, ...]
) -> None:
    with refused(error, *named):
        space(**given)
