"""The codec of spaces: observations as vectors and images, actions as they are stored."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from corral.adapters.spaces import ActionCodec, ObservationCodec
from corral.errors import UnsupportedSpaceError
from support.messages import refused

# --- Observations --------------------------------------------------------------------------------


def written(space: spaces.Space[Any], observation: Any, rows: int) -> tuple[Any, list[Any]]:
    layout = ObservationCodec.of("agent", space)
    vector = np.zeros((rows, layout.width), np.float32)
    images = [np.zeros((rows, *image), np.uint8) for image in layout.images]
    layout.write(layout.inner(observation), vector, images)
    return vector, images


def test_numbers_of_every_kind_become_columns() -> None:
    space = spaces.Dict(
        {
            "real": spaces.Box(-1, 1, (2,), np.float64),
            "grid": spaces.Box(0, 9, (1, 2), np.int64),
            "level": spaces.Box(0, 200, (1,), np.uint8),
            "which": spaces.Discrete(3, start=5),
            "both": spaces.MultiDiscrete([2, 3]),
            "flags": spaces.MultiBinary(2),
        }
    )
    observation = {
        "real": np.array([[0.5, -1.0]]),
        "grid": np.array([[[7, 9]]]),
        "level": np.array([[50]], np.uint8),
        "which": np.array([6]),
        "both": np.array([[1, 2]]),
        "flags": np.array([[0, 1]], np.int8),
    }
    names = sorted(space.spaces)  # both, flags, grid, level, real, which
    assert names == ["both", "flags", "grid", "level", "real", "which"]
    parts = {
        "real": [0.5, -1.0],
        "grid": [7, 9],
        "level": [0.25],
        "which": [0, 1, 0],
        "both": [0, 1, 0, 0, 1],
        "flags": [0, 1],
    }
    vector, images = written(space, observation, 1)
    assert vector[0].tolist() == [number for key in space.spaces for number in parts[key]]
    assert images == []


@pytest.mark.parametrize(
    ("shape", "image"), [((3, 8, 9), (3, 8, 9)), ((8, 9, 3), (3, 8, 9)), ((3, 3, 3), (3, 3, 3))]
)
def test_images_come_with_their_channels_in_front(shape: Any, image: Any) -> None:
    space = spaces.Dict({"observation": spaces.Box(0, 255, shape, np.uint8)})
    pixels = np.arange(2 * math.prod(shape)).reshape(2, *shape).astype(np.uint8)
    vector, images = written(space, {"observation": pixels}, 2)
    assert vector.shape == (2, 0)
    assert images[0].shape == (2, *image)
    expected = pixels if shape == image else np.moveaxis(pixels, -1, 1)
    assert (images[0] == expected).all()


def test_images_are_scaled_by_the_bound_of_their_space() -> None:
    space = spaces.Dict(
        {
            "plane": spaces.Box(0, 1, (1, 4, 4), np.uint8),
            "picture": spaces.Box(0, 255, (3, 4, 4), np.uint8),
        }
    )
    layout = ObservationCodec.of("agent", space)
    by_name = dict(zip([part.key for part in layout.entries], layout.scales, strict=True))
    assert by_name == {"plane": 1.0, "picture": 255.0}


def test_what_is_too_narrow_for_an_image_is_a_vector() -> None:
    for shape in ((2, 3), (3, 2, 8), (4,)):
        space = spaces.Box(0, 255, shape, np.uint8)
        vector, images = written(space, np.full((1, *shape), 51, np.uint8), 1)
        assert vector == pytest.approx(np.full((1, math.prod(shape)), 0.2))
        assert images == []


@pytest.mark.parametrize(
    ("space", "values"),
    [
        (spaces.Text(5), ("agent", "observation", "Text(1, 5")),
        (
            spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(2)})}),
            ("agent", "'a'", "Dict('b': Discrete(2))"),
        ),
        (
            spaces.Dict({"action_mask": spaces.MultiBinary(2), "seen": spaces.Discrete(2)}),
            ("agent", "action_mask", "['seen']"),
        ),
    ],
)
def test_other_spaces_are_refused_by_name(
    space: spaces.Space[Any], values: tuple[Any, ...]
) -> None:
    with refused(UnsupportedSpaceError, *values):
        ObservationCodec.of("agent", space)


def test_rows_tell_one_observation_from_a_batch() -> None:
    masked = spaces.Dict(
        {"observation": spaces.Discrete(2), "action_mask": spaces.Box(0, 1, (3,), np.int8)}
    )
    pair = spaces.Dict({"a": spaces.Box(0, 1, (2, 3)), "b": spaces.Discrete(2)})
    for space, one in (
        (masked, {"observation": np.array(1), "action_mask": np.ones(3, np.int8)}),
        (pair, {"a": np.zeros((2, 3)), "b": np.array(0)}),
        (spaces.MultiDiscrete([2, 3]), np.array([0, 2])),
    ):
        codec = ObservationCodec.of("agent", space)
        assert codec.rows(one) is None
        batch = {k: np.stack([v] * 4) for k, v in one.items()} if isinstance(one, dict) else one
        assert codec.rows(batch if isinstance(one, dict) else np.stack([one] * 4)) == 4


# --- Actions -------------------------------------------------------------------------------------


def test_boxes_are_stored_unclipped_and_played_within_their_bounds() -> None:
    low, high = np.array([0, -np.inf, 0], np.float32), np.array([4, np.inf, np.inf], np.float32)
    actions = ActionCodec("agent", spaces.Box(low, high))
    stored = np.array([[0.0, 3.0, -1.0], [0.5, -3.0, 2.0], [7.0, 0.0, 0.0]], np.float32)
    assert actions.decode(stored).tolist() == [[2, 3, 0], [3, -3, 2], [4, 0, 0]]
    assert actions.decode(stored).dtype == np.float32
    shaped = ActionCodec("agent", spaces.Box(-1, 1, (2, 2), np.float64))
    assert shaped.decode(np.zeros((3, 4), np.float32)).shape == (3, 2, 2)


@pytest.mark.parametrize(
    "space",
    [spaces.Discrete(3, start=1), spaces.Box(0, 5, (2,), np.int64), spaces.MultiBinary(3)],
)
def test_other_actions_are_refused(space: spaces.Space[Any]) -> None:
    with refused(UnsupportedSpaceError, "agent", space, "Discrete or MultiDiscrete"):
        ActionCodec("agent", space)


def test_a_mask_must_fit_the_actions() -> None:
    seen = spaces.Dict(
        {"observation": spaces.Discrete(2), "action_mask": spaces.Box(0, 1, (3,), np.int8)}
    )
    ActionCodec("agent", spaces.Discrete(3)).require_mask("agent", seen)
    ActionCodec("agent", spaces.MultiDiscrete([2, 1])).require_mask("agent", seen)
    for space in (spaces.Discrete(4), spaces.Box(0, 1, (3,), np.float32)):
        with refused(UnsupportedSpaceError, "agent", "(3,)", space):
            ActionCodec("agent", space).require_mask("agent", seen)
