"""Runs of rps_v0 that are opponents of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from corral.trainers.driver import train
from support.mappo_teams import ROLLOUT, SMALL


def run_of(folder: Path, env: str = "rps_v0", updates: int = 2, **changes: Any) -> Any:
    given: dict[str, Any] = {"trainer": "mappo", **SMALL, **changes}
    return train(env, steps=updates * ROLLOUT, out=folder, **given)


def other_run(folder: Path) -> Path:
    """Train both agents of rps_v0; every checkpoint is kept."""
    given = {"memory": 4, "seed": 7, "checkpoint_every": ROLLOUT, "keep": "all"}
    return Path(run_of(folder, updates=4, **given).folder)
