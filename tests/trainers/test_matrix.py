"""Every environment runs with every trainer, or is refused with a command that runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.envs import ENVIRONMENTS, PROBES
from corral.trainers.base import BUILT_IN
from support.matrix import ENVS, SHORT, outcome

ELSEWHERE = ("rllib", "benchmarl")  # their matrices are in tests/frameworks
TRAINERS = [name for name, spec in BUILT_IN.items() if spec.needs[1] not in ELSEWHERE]


def test_no_trainer_is_left_out() -> None:
    assert set(SHORT) == set(BUILT_IN)


def is_slow(env: str, trainer: str) -> bool:
    """Of the probes, which are alike, each is fast with one trainer."""
    return env in PROBES and TRAINERS[ENVS.index(env) % len(TRAINERS)] != trainer


@pytest.mark.parametrize(
    ("env", "trainer"),
    [
        pytest.param(env, trainer, marks=[pytest.mark.slow] if is_slow(env, trainer) else [])
        for env in ENVS
        for trainer in TRAINERS
    ],
)
def test_it_runs_or_names_what_runs(env: str, trainer: str, tmp_path: Path) -> None:
    pytest.importorskip(BUILT_IN[trainer].needs[0])
    said = outcome(env, trainer, tmp_path / "run")
    if BUILT_IN[trainer].needs[1] == "mappo":  # in house
        assert said == "runs"
    elif said != "runs":
        assert said == f"corral train {env} --trainer mappo"
    elif env in ENVIRONMENTS:
        assert ENVIRONMENTS[env].simultaneous
