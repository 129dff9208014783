"""Sound runs hear no warning: environments beside trainers, from the first update to the last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra mappo")
pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

import corral
from corral.envs import ENVIRONMENTS, PROBES
from corral.errors import UnsupportedSpaceError
from corral.lab.doctor.watching.progress import progress_findings
from support.runs import rows

UPDATES, STEPS = 14, 64
IN_HOUSE: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("mappo", "ippo", "ppo_kl", "a2c", "pg", "pg_episode")},
    "mappo with memory": {"memory": 16},
    "clone": {"teacher": "random"},
}
TRAINERS = {**IN_HOUSE, "sb3_ppo": {"batch_size": 32}, "sb3_maskable_ppo": {"batch_size": 32}}
TRAINERS |= {
    "sb3_a2c": {},
    "sb3_dqn": {"learning_starts": 64, "train_freq": 4, "log_interval": 4},
}
PAIRS = [(env, trainer) for env in ENVIRONMENTS for trainer in TRAINERS]
PAIRS += [
    (env, trainer) for env in PROBES for trainer in ("mappo", "pg", "sb3_ppo", "sb3_a2c", "sb3_dqn")
]
QUICK = [
    ("rps_v0", "mappo"),
    ("probe_p01_v0", "mappo with memory"),
    pytest.param("probe_p07_v0", "clone", marks=pytest.mark.slow),
]


def warned(env: str, trainer: str, folder: Path) -> list[str]:
    """Train; return the causes of certainty 2 and 3, while training and afterwards."""
    given = {"preset": "none", "num_envs": 4, **TRAINERS[trainer]}
    if trainer != "sb3_dqn":
        given["n_steps"] = 16
    steps, name = UPDATES * STEPS, trainer.partition(" ")[0]
    try:
        run = corral.train(env, trainer=name, steps=steps, out=folder, progress=False, **given)
    except UnsupportedSpaceError:
        if not name.startswith("sb3"):
            raise
        pytest.skip(f"{name} refuses the spaces of {env}")
    last = rows(run)[-1]
    live = [name for name, value in last.items() if "warning_" in name and value]
    assert last["warnings"] == str(len(live))
    return live + [one.cause for one in progress_findings(run) if one.certainty >= 2]


@pytest.mark.parametrize(("env", "trainer"), QUICK)
def test_sound_runs_hear_nothing(env: str, trainer: str, tmp_path: Path) -> None:
    assert warned(env, trainer, tmp_path / "run") == []


@pytest.mark.slow
@pytest.mark.parametrize(("env", "trainer"), [pair for pair in PAIRS if pair not in QUICK])
def test_no_sound_run_hears_anything(env: str, trainer: str, tmp_path: Path) -> None:
    assert warned(env, trainer, tmp_path / "run") == []
