"""Small runs that are served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corral.trainers.driver import train
from corral.trainers.runs.run import Run
from support.loads import days, small_trace

SMALL: dict[str, Any] = {
    "num_envs": 2,
    "n_steps": 16,
    "n_minibatches": 1,
    "n_epochs": 1,
    "net_arch": (16,),
}


@pytest.fixture(scope="package")
def team(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of three nodes with a queue."""
    return _run(tmp_path_factory.mktemp("team") / "run", queue=5)


@pytest.fixture(scope="package")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose networks have a memory, and whose reports are late."""
    return _run(tmp_path_factory.mktemp("late") / "run", memory=4, report_delay=3)


@pytest.fixture(scope="package")
def planning(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of three nodes that do not know the arrivals of a step, and keep so many."""
    settings = {"arrivals": "unknown", "amount": "keep", "queue": 5, "link_limit": 4}
    return _run(tmp_path_factory.mktemp("planning") / "run", route="least", **settings)


@pytest.fixture(scope="package")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same with a memory, late reports, three counts and the mean load at the time of day."""
    settings = {"arrivals": "unknown", "amount": "share", "trace": days(2), "daily_mean": True}
    folder = tmp_path_factory.mktemp("timed") / "run"
    return _run(folder, memory=4, report_delay=2, last_counts=3, **settings)


def _run(folder: Path, memory: int = 0, **env_kwargs: Any) -> Run:
    pytest.importorskip("torch", reason="needs the extra mappo")
    env_kwargs = {"trace": small_trace(), "max_cycles": 10, **env_kwargs}
    settings = SMALL if not memory else {**SMALL, "memory": memory}
    return train(
        "dfaas_v0", trainer="mappo", steps=32, out=folder, env_kwargs=env_kwargs, **settings
    )
