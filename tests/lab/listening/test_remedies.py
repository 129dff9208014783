"""Remedies name the settings of the framework that is heard."""

from __future__ import annotations

import re

import pytest

from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.texts import TEXTS
from corral.lab.listening.frameworks.traps import remedied

FRAMEWORKS = ("sb3", "rllib", "torchrl", "tianshou", "")


def remedy(cause: str, framework: str) -> str:
    title, expected, todo = TEXTS[cause]
    return remedied(Finding(cause, title, "", expected, todo, 3, ""), framework).todo


@pytest.mark.parametrize(
    ("framework", "cause", "setting"),
    [
        ("sb3", "clip-too-tight", "clip_range"),
        ("rllib", "clip-too-tight", "clip_param"),
        ("torchrl", "clip-too-tight", "clip_epsilon"),
        ("tianshou", "clip-too-tight", "eps_clip"),
        ("rllib", "weights-fixed", "lr"),
        ("corral", "weights-fixed", "learning_rate"),
        ("", "weights-fixed", "learning_rate"),
    ],
)
def test_settings_have_the_framework_s_names(framework: str, cause: str, setting: str) -> None:
    assert re.search(rf"\b{setting}\b", remedy(cause, framework))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_option_of_corral_train_is_advised_elsewhere(framework: str) -> None:
    for cause in TEXTS:
        assert not re.search(r"(?<!corral check ENV )--\w", remedy(cause, framework)), cause


def test_corral_s_own_runs_keep_their_options() -> None:
    assert "--stretch" in remedy("learning-rate-zero", "corral")
