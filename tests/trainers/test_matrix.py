"""Every environment runs with every trainer, or is refused with a command that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corral.envs import ENVIRONMENTS
from corral.trainers.base import BUILT_IN
from support.matrix import ENVS, SHORT, outcome

ELSEWHERE = ("rllib", "benchmarl")  # their matrices are in tests/frameworks
TRAINERS = [name for name, spec in BUILT_IN.items() if spec.needs[1] not in ELSEWHERE]


def test_no_trainer_is_left_out() -> None:
    assert set(SHORT) == set(BUILT_IN)


LONGER = ("mappo", "pg", "sb3_ppo", "sb3_a2c", "sb3_dqn")
"""Trainers that tests/lab/doctor/test_healthy.py trains on every probe, for more updates."""


def rows() -> list[Any]:
    """Every environment with every trainer, in turn fast with one in three. Probes have the same
    kinds of spaces: each is fast with one trainer, and slow with the others that are not trained on
    it elsewhere."""
    found: list[Any] = []
    for place, env in enumerate(ENVS):
        for number, trainer in enumerate(TRAINERS):
            turn = 3 if env in ENVIRONMENTS else len(TRAINERS)
            if number % turn == place % turn:
                found.append((env, trainer))
            elif env in ENVIRONMENTS or trainer not in LONGER:
                found.append(pytest.param(env, trainer, marks=pytest.mark.slow))
    return found


@pytest.mark.parametrize(("env", "trainer"), rows())
def test_it_runs_or_names_what_runs(env: str, trainer: str, tmp_path: Path) -> None:
    pytest.importorskip(BUILT_IN[trainer].needs[0])
    said = outcome(env, trainer, tmp_path / "run")
    if BUILT_IN[trainer].needs[1] == "mappo":  # in house
        assert said == "runs"
    elif said != "runs":
        assert said == f"corral train {env} --trainer mappo"
    elif env in ENVIRONMENTS:
        assert ENVIRONMENTS[env].simultaneous
