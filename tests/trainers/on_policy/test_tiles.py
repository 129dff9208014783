"""Unlike agents that see images and vectors: trained, saved, gone on with, judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.envs.tiles_v0 import TilesRules
from corral.errors import RunError
from corral.trainers.driver import resume, train
from corral.trainers.evaluation.scores import evaluate_team
from corral.trainers.runs.checkpoint import latest_checkpoint, load_checkpoint
from corral.trainers.runs.run import load_run

SMALL: dict[str, Any] = {"num_envs": 8, "n_steps": 8, "n_minibatches": 2, "net_arch": (16,)}


def small_run(folder: Path, *, updates: int = 3, **changes: Any) -> Any:
    given = {"trainer": "mappo", "seed": 1, "policies": "separate", **SMALL, **changes}
    return train("tiles_v0", steps=64 * updates, out=folder, **given)


def weights(run: Any) -> dict[str, bytes]:
    content = load_checkpoint(latest_checkpoint(run.folder / "checkpoints"))
    return {
        f"{file}.{name}": values.tobytes()
        for file, arrays in content.arrays.items()
        if file.startswith("policy_")
        for name, values in arrays.items()
    }


@pytest.mark.parametrize("trainer", ["mappo", "ippo"])
def test_a_team_learns_a_little_and_all_stays_finite(tmp_path: Path, trainer: str) -> None:
    run = small_run(tmp_path / "run", updates=8, trainer=trainer)
    figures = run.progress.drop(columns=["wall_s"])
    told = figures.dropna(axis=1, how="all").ffill().bfill()
    assert np.isfinite(told.to_numpy(dtype=float)).all()
    assert len(figures) == 8
    assert figures["kpi_illegal_actions"].dropna().eq(0).all()
    score = evaluate_team(run.config.env_config.rules(), run.policies, episodes=32)
    assert score.illegal_actions == 0


def test_a_partner_with_nothing_to_choose_is_trained_with(tmp_path: Path) -> None:
    """levels=1: one action, no entropy, a ratio of 1; and a team that can be judged."""
    run = small_run(tmp_path / "run", updates=4, env_kwargs={"levels": 1})
    assert (run.progress["level_0/entropy"] == 0).all()
    assert (run.progress["level_0/approx_kl"].abs() == 0).all()
    assert (run.progress["tile_0/entropy"] > 0.5).all()
    losses = [name for name in run.progress if "loss" in name or "grad" in name]
    assert np.isfinite(run.progress[losses].to_numpy()).all()
    rows = corral.evaluate(run, episodes=8)
    assert [row.illegal_actions for row in rows] == [0] * len(rows)
    assert load_run(run.folder).config.env_config.env_kwargs["levels"] == 1


def test_a_run_goes_on_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    whole = small_run(tmp_path / "whole", updates=4, anneal=False, ent_coef_end=None)
    small_run(tmp_path / "part", updates=2, anneal=False, ent_coef_end=None)
    assert weights(resume(tmp_path / "part", steps=4 * 64)) == weights(whole)


def test_a_run_keeps_the_images_it_was_trained_on(tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((4, 3, 32, 32))
    np.save(tmp_path / "images.npy", images)
    for name, given in (("array", images), ("file", str(tmp_path / "images.npy"))):
        run = small_run(tmp_path / name, updates=1, env_kwargs={"templates": given})
        config = json.loads((run.folder / "config.json").read_text())
        assert config["env_kwargs"]["templates"]["file"] == "templates.npy"
    (tmp_path / "images.npy").unlink()
    loaded = load_run(tmp_path / "file")
    rules = loaded.config.env_config.rules()
    assert isinstance(rules, TilesRules)
    np.testing.assert_array_equal(rules.templates, images)
    resumed = resume(tmp_path / "file", steps=128)
    assert resumed.progress["env_steps"].iloc[-1] == 128

    np.save(tmp_path / "file" / "templates.npy", images[:3])
    with refused(RunError, "templates.npy", config["env_kwargs"]["templates"]["digest"][:12]):
        load_run(tmp_path / "file")
    (tmp_path / "file" / "templates.npy").write_bytes(b"nothing")
    with refused(RunError, "templates.npy"):
        load_run(tmp_path / "file")


@pytest.mark.slow
def test_a_learned_team_knows_more_than_a_raster_at_equal_values(tmp_path: Path) -> None:
    """Surer than a raster scan of level 1 that sends all its tiles, for fewer values. After 70,000
    env steps that hangs on the last bits of the processor's arithmetic, after 120,000 no more."""
    run = train(
        "tiles_v0", trainer="mappo", policies="separate", steps=120_000, out=tmp_path / "run"
    )
    score = evaluate_team(run.config.env_config.rules(), run.policies, episodes=512, num_envs=256)
    assert score.illegal_actions == 0
    assert score.kpis["correct"] > 0.92  # raster-1: 0.85, with 152 values
    assert score.return_team > 4.05  # raster-1: 3.87, random 3.15
