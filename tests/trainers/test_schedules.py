"""Schedules: what a setting is worth at a moment of training, and what is none."""

from __future__ import annotations

from typing import Any

import pytest

from corral.trainers.on_policy.settings import A2CSettings, IPPOSettings
from corral.trainers.schedules import changes, linear, scheduled
from support.messages import refused


def at(progress: float, name: str = "learning_rate", **given: Any) -> float:
    """The value of a setting in a plan of 1,000 env steps."""
    settings = IPPOSettings(**given)
    return scheduled(settings, name, env_steps=round(1000 * progress), progress=progress)


def test_linear_schedules_stop_at_their_ends() -> None:
    found = [linear(2.0, 1.0, progress) for progress in (-1.0, 0.0, 0.25, 1.0, 2.0)]
    assert found == [2.0, 2.0, 1.75, 1.0, 1.0]


def test_a_number_stays_or_falls_by_the_setting_beside_it() -> None:
    assert at(0.25, learning_rate=0.04) == pytest.approx(0.03)
    assert at(0.25, learning_rate=0.04, anneal=False) == 0.04
    assert at(0.25, "ent_coef", ent_coef=0.1) == 0.1
    assert at(0.25, "ent_coef", ent_coef=0.1, ent_coef_end=0.02) == pytest.approx(0.08)
    assert at(0.9, "clip_range", clip_range=0.3) == 0.3


def test_linear_falls_to_0_from_the_default_or_a_number() -> None:
    assert at(0.5, learning_rate="linear") == pytest.approx(1.5e-3)
    assert at(0.5, learning_rate="linear:1e-2", anneal=False) == pytest.approx(5e-3)
    assert at(0.75, "clip_range", clip_range="linear") == pytest.approx(0.05)
    assert at(2.0, "clip_range", clip_range="linear") == 0.0


def test_points_are_joined_by_lines_and_constant_outside() -> None:
    points = "100:2,200:4,600:0"
    found = [at(p, "ent_coef", ent_coef=points) for p in (0, 0.1, 0.15, 0.2, 0.5, 0.6, 9)]
    assert found == pytest.approx([2, 2, 3, 4, 1, 0, 0])
    assert at(0.5, learning_rate="0:2e-5,1e6:1e-8") == pytest.approx(2e-5, rel=1e-3)


def test_which_settings_change() -> None:
    settings = IPPOSettings(clip_range="linear", ent_coef=0.1)
    assert changes(settings, "learning_rate")
    assert changes(settings, "clip_range")
    assert not changes(settings, "ent_coef")
    assert not changes(IPPOSettings(anneal=False), "learning_rate")


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({"learning_rate": "fast"}, ("learning_rate='fast'", "linear")),
        ({"learning_rate": "linear:x"}, ("'x'", "linear:NUMBER")),
        ({"learning_rate": "0:1e-3,nan:2"}, ("'nan'", "finite")),
        ({"learning_rate": "0:1,100:0.5,100:0"}, ("env steps", "increasing")),
        ({"learning_rate": "-1:1"}, ("env steps", "increasing")),
        ({"learning_rate": "0:1e-3,100:-1e-3"}, ("learning_rate=-0.001", 0, "schedule")),
        ({"clip_range": "0:0.2,100:0"}, ("clip_range=0.0", "above 0")),
        ({"ent_coef": [[0, 0.1], [20000, 0]]}, ("0:0.1,20000:0",)),
        ({"ent_coef": "linear"}, ("ent_coef='linear'", "linear:0.01")),
        (
            {"ent_coef": "linear:0.1", "ent_coef_end": 0.05},
            ("ent_coef='linear:0.1'", "ent_coef_end"),
        ),
        ({"gamma": "linear"}, ("gamma='linear'", "finite")),
    ],
)
def test_invalid_schedules_are_refused_with_the_right_form(
    given: Any, values: tuple[Any, ...]
) -> None:
    with refused(ValueError, *values):
        IPPOSettings(**given)


def test_settings_of_an_algorithm_hold_what_it_uses() -> None:
    with pytest.raises(TypeError):
        A2CSettings(n_epochs=4)  # type: ignore[call-arg]
