"""What progress.csv alone tells: each rule finds its fault, and leaves a sound run alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.lab.doctor.watching.progress import (
    PolicyInfo,
    policy_columns,
    policy_infos,
    progress_findings,
    trend,
)
from corral.trainers.runs.run import Run
from support.mappo_teams import SMALL

UPDATES = 30


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The configuration of a run whose rows are then written by hand."""
    folder = tmp_path_factory.mktemp("progress") / "run"
    given: dict[str, Any] = {"preset": "none", "progress": False, "policies": "shared", **SMALL}
    return corral.train("arena_v0", steps=UPDATES * 64, out=folder, dry_run=True, **given).config


def sound() -> dict[str, Sequence[float | None]]:
    """Columns of a run that learns."""
    steps, rng = np.arange(1, UPDATES + 1), np.random.default_rng(0)
    noise = rng.normal(size=(6, UPDATES))
    returns = 10 + steps + noise[0]
    return {
        "env_steps": 64 * steps,
        "episodes": 150 * steps,
        "return_team": returns,
        "return_of_shared": returns,
        "reward_per_step": returns / 10,
        "learning_rate": 0.003 * (1 - (steps - 1) / UPDATES),
        "policy_loss": -0.01 + 0.002 * noise[1],
        "value_loss": np.exp(-steps / 10) + 0.1,
        "entropy": 1.4 - 0.02 * steps,
        "approx_kl": 0.01 + 0.001 * np.abs(noise[2]),
        "clip_fraction": 0.1 + 0.01 * np.abs(noise[3]),
        "explained_variance": 0.9 - np.exp(-steps / 5),
        "grad_norm_actor": 0.3 + 0.01 * noise[4],
        "warnings": 0 * steps,
    }


def found(config: Any, folder: Path, **changed: Any) -> dict[str, int]:
    """Cause -> certainty, of a sound run with some columns changed; None takes one away."""
    columns = {**sound(), **changed}
    names = [name for name, values in columns.items() if values is not None]
    lines = [",".join(names)]
    for i in range(UPDATES):
        cells = (np.broadcast_to(np.asarray(columns[name]), UPDATES)[i] for name in names)
        lines.append(",".join("" if cell != cell else str(cell) for cell in cells))
    (folder / "progress.csv").write_text("\n".join(lines) + "\n")
    return {one.cause: one.certainty for one in progress_findings(Run(folder, config))}


def late(value: float, since: int = 10) -> Any:
    """A factor that is ``value`` from a row on, and 1 before."""
    return np.where(np.arange(UPDATES) < since, 1.0, value)


def test_a_sound_run_has_nothing(config: Any, tmp_path: Path) -> None:
    assert found(config, tmp_path) == {}


@pytest.mark.parametrize(
    ("updates", "found"), [(1, ["few-updates"]), (3, ["few-updates"]), (4, [])]
)
@pytest.mark.parametrize("trainer", ["mappo", "sb3_ppo"])
def test_a_rollout_that_is_nearly_the_whole_run(
    tmp_path: Path, trainer: str, updates: int, found: list[str]
) -> None:
    given: dict[str, Any] = {"preset": "none", "num_envs": 4, "n_steps": 16, "progress": False}
    run = corral.train("rps_v0", trainer=trainer, steps=64 * updates, out=tmp_path / "run", **given)
    assert [(one.cause, one.certainty) for one in progress_findings(run)] == [
        (cause, 1) for cause in found
    ]


def test_a_run_that_has_only_begun_or_clones_has_few_updates_by_design(
    config: Any, tmp_path: Path
) -> None:
    frame = "env_steps,episodes\n64,150\n"
    (tmp_path / "progress.csv").write_text(frame)
    assert progress_findings(Run(tmp_path, config)) == []
    cloned = corral.clone(
        "rps_v0", "copy-last", out=tmp_path / "run", steps=512, progress=False, episodes=8
    )
    assert progress_findings(cloned) == []


LATE_RISE = np.repeat([20.0, 24.0, 21.0, 60.0, 130.0, 420.0], UPDATES // 6)
"""Means of 100 episodes, with as large a spread in the last third as its rise."""

FLAT = np.full(UPDATES, 10.0) + np.random.default_rng(1).normal(size=UPDATES)


@pytest.mark.parametrize(
    ("changed", "cause", "certainty"),
    [
        ({"policy_loss": 0.0}, "policy-loss-cut", 2),
        ({"policy_loss": -0.0, "grad_norm_actor": 0.0}, "policy-loss-cut", 2),
        ({"grad_norm_actor": 0.0}, "no-gradient", 3),
        ({"learning_rate": 0.003 * late(0.0)}, "learning-rate-zero", 3),
        ({"approx_kl": 50.0}, "updates-too-large", 2),
        ({"approx_kl": 1e-10}, "policy-unchanged", 2),
        ({"approx_kl": 0.5}, "updates-too-large", 1),
        ({"clip_fraction": 0.8}, "updates-too-large", 1),
        ({"explained_variance": -0.5}, "critic-misleads", 1),
        ({"return_of_shared": FLAT, "return_team": FLAT}, "returns-flat", 1),
        ({"return_of_shared": -np.arange(UPDATES)}, "returns-fell", 1),
        ({"return_of_shared": FLAT, "entropy": 1.386}, "entropy-flat", 1),
        ({"warning_ratio_not_one": np.where(late(0) == 0, 1.0, np.nan)}, "ratio-not-one", 2),
    ],
)
def test_a_fault_is_named_first(
    config: Any, tmp_path: Path, changed: Any, cause: str, certainty: int
) -> None:
    causes = found(config, tmp_path, **changed)
    assert next(iter(causes.items())) == (cause, certainty) or causes[cause] == certainty == 1
    if certainty >= 2:
        assert list(causes) == [cause]  # what follows from it goes with it


def test_a_return_that_rose_20_fold_improved(config: Any, tmp_path: Path) -> None:
    """Six independent rows, of which the last third spreads as far as it rose."""
    few = np.arange(UPDATES) // (UPDATES // 6)
    changed = {"episodes": 100 * (few + 1), "return_of_shared": LATE_RISE, "return_team": LATE_RISE}
    assert "returns-flat" not in found(config, tmp_path, **changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"policy_loss": np.where(np.arange(UPDATES) % 3, 0.0, 0.01)},  # never three in a row
        {"policy_loss": 0.0, "entropy": 0.0, "return_of_shared": None},  # decisions are forced
        {"grad_norm_actor": 0.0, "policy_loss": None},  # cloning that is over
        {"learning_rate": 0.003 * late(0.0, UPDATES - 1)},  # annealed to its end
        {"approx_kl": np.where(np.arange(UPDATES) % 3, 9.0, 0.01)},  # leaps, but not in a row
        {"explained_variance": -3.0 * (1 - late(0.0))},  # where targets hardly differ
    ],
)
def test_what_only_looks_like_a_fault_is_none(config: Any, tmp_path: Path, changed: Any) -> None:
    assert all(certainty < 2 for certainty in found(config, tmp_path, **changed).values())


def test_where_nothing_varies_there_is_a_note_alone(config: Any, tmp_path: Path) -> None:
    same = dict.fromkeys(("return_of_shared", "return_team", "reward_per_step"), 5.0)
    causes = found(config, tmp_path, policy_loss=0.0, grad_norm_actor=0.0, approx_kl=0.0, **same)
    assert causes.pop("same-rewards") == 1
    assert all(certainty == 1 for certainty in causes.values())


def test_what_a_configuration_says_of_a_policy(config: Any) -> None:
    (told,) = policy_infos(config)
    assert told == PolicyInfo("shared", ("agent_1", "agent_2"), "", True, UPDATES * 64)


def test_columns_of_others_are_translated() -> None:
    told = PolicyInfo("a", ("agent_1",), "a/", True, 100)
    row = {"env_steps": 5, "a/entropy_loss": -1.2, "a/policy_gradient_loss": 0.5, "b/entropy": 3.0}
    own = policy_columns(row, told)
    assert own["entropy"] == 1.2
    assert own["policy_loss"] == 0.5
    assert own["b/entropy"] == 3.0


def test_the_trend_is_that_of_episodes_that_are_not_counted_twice() -> None:
    rows = [{"episodes": 10 * i, "return_team": float(i)} for i in range(1, 61)]
    assert trend(rows[:50]) is None  # 500 episodes are five means of 100
    first, last, deviation = trend(rows) or (0.0, 0.0, 0.0)
    assert (first, last) == (15.0, 55.0)
    assert deviation > 0
