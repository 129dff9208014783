"""A checkpoint knows the configuration that made it, and is refused under any other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra mappo")

from corral.errors import CheckpointError, CorralError
from corral.trainers.driver import resume, train
from corral.trainers.runs.checkpoint import latest_checkpoint, named_checkpoint
from corral.trainers.runs.run import Run, load_run
from corral.trainers.runs.run_config import HARMLESS, RunConfig
from support.config_digits import Change, digits, judged, other_values
from support.loads import small_trace
from support.runs import everything

SMALL: dict[str, Any] = {"num_envs": 4, "n_steps": 16, "n_epochs": 1, "net_arch": (16,)}


def small_run(folder: Path, updates: int = 1, **more: Any) -> Run:
    """A run of dfaas_v0 with a trace of its own."""
    kwargs = {"trace": small_trace(), "max_cycles": 30, "capacity": 60}
    return train("dfaas_v0", env_kwargs=kwargs, steps=64 * updates, out=folder, **SMALL, **more)


THEIRS = "classic/tictactoe-v3"


@pytest.fixture(scope="module", params=["dfaas_v0", pytest.param(THEIRS, marks=pytest.mark.slow)])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("digest") / "run"
    if request.param == THEIRS:
        pytest.importorskip("pettingzoo.classic.tictactoe_v3", exc_type=ImportError)
        return train(THEIRS, steps=64, out=folder, seed=1, **SMALL)
    return small_run(folder, anneal=True)


def again(run: Run) -> dict[str, Any]:
    return {"env": THEIRS} if run.config.env_config.own_rules is not None else {}


def once_a_key(changes: Iterator[Change]) -> Iterator[Change]:
    """Yield all changes of what matters, and one of each key that does not."""
    done = set()
    for change in changes:
        if change.key not in done or not change.key.startswith(("versions", "env_kwargs.trace.d")):
            done.add(change.key)
            yield change


# --- One thing in config.json is another ---------------------------------------------------------


def test_every_digit_changed_is_refused_or_harmless(run: Run, tmp_path: Path) -> None:
    text = (run.folder / "config.json").read_text()
    found = [
        judged(run.folder, change, tmp_path / "copy", **again(run))
        for change in once_a_key(digits(text))
    ]
    assert len(found) > 50
    unseen = {change.key for change in found if change.resumed is None}
    first = {key.split(".")[0] for key in unseen}
    assert first == {"defaults", "versions", "steps", "keep"} <= {*HARMLESS}
    # Policies that only play do not need what is planned.
    played = {change.key for change in found if change.read is None}
    assert played - unseen == {"horizon"}


@pytest.mark.slow
def test_every_other_value_is_refused_or_harmless(run: Run, tmp_path: Path) -> None:
    text = (run.folder / "config.json").read_text()
    found = [
        judged(run.folder, change, tmp_path / "copy", **again(run))
        for change in once_a_key(other_values(text))
    ]
    assert len(found) > 15
    for change in found:
        harmless = (
            change.key.startswith(("defaults", "versions")) or change.key == "settings.device"
        )
        assert harmless or change.resumed is not None, change.key
        assert harmless or change.read is not None, change.key


def test_an_error_names_what_differs(run: Run, tmp_path: Path) -> None:
    place = shutil.copytree(run.folder, tmp_path / "copy")
    values = json.loads((place / "config.json").read_text())
    was, values["settings"]["gamma"] = values["settings"]["gamma"], 0.25
    (place / "config.json").write_text(json.dumps(values))
    named = ("settings.gamma", 0.25, was, "--init")
    for at in ("", "@latest", "@64", "@0"):
        with refused(CheckpointError, *named):
            assert load_run(f"{place}{at}", **again(run)).policies
    before = everything(run)
    with refused(CheckpointError, *named):
        resume(place, steps=128, **again(run))
    assert everything(place) == before
    assert json.loads((place / "config.json").read_text()) == values


def test_every_field_counts_but_those_named_harmless() -> None:
    harmless = {key for key in HARMLESS if "." not in key}
    assert harmless == {"defaults", "format", "keep", "steps", "versions"}
    assert {"seed", "settings", "held_out", "env_kwargs", "opponents"} <= {*RunConfig.keys()}


def test_the_canonical_form_is_in_the_manifest(run: Run) -> None:
    path = latest_checkpoint(run.folder / "checkpoints")
    listed = json.loads((path / "manifest.json").read_text())["files"]
    assert len(listed["configuration.json"]["sha256"]) == 64
    kept = json.loads((path / "configuration.json").read_text())
    assert kept == load_run(run.folder, **again(run)).config.canonical() == run.config.canonical()
    assert {*kept} == {*json.loads((run.folder / "config.json").read_text())} - {*HARMLESS}


# --- Checkpoints of another run ------------------------------------------------------------------


def test_checkpoints_of_another_run_are_refused(tmp_path: Path) -> None:
    one, other, same = (
        small_run(tmp_path / f"run{i}", updates=2, seed=seed) for i, seed in enumerate((1, 2, 1))
    )
    for what in ("checkpoints", "checkpoints/latest", "checkpoints/best"):
        place = shutil.copytree(one.folder, tmp_path / what.replace("/", "_"))
        if (place / what).is_dir():
            shutil.rmtree(place / what)
            shutil.copytree(other.folder / what, place / what)
            named: tuple[object, ...] = ("seed", 1, 2)
        else:
            shutil.copy(other.folder / what, place / what)
            named = (f"{place / what}:",)
        with refused(CheckpointError, *named):
            assert load_run(f"{place}@best" if "best" in what else place).policies
        if "best" not in what:
            with refused(CheckpointError, *named):
                resume(place, steps=256)
    # Of a run that is the same they are the same.
    shutil.rmtree(one.folder / "checkpoints")
    shutil.copytree(same.folder / "checkpoints", one.folder / "checkpoints")
    assert load_run(one.folder).policies


def test_a_checkpoint_that_does_not_say_what_made_it_is_refused(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", updates=1)
    path = latest_checkpoint(run.folder / "checkpoints")
    manifest = path / "manifest.json"
    from corral.trainers.runs.checkpoint_format import Manifest

    made = Manifest.decode("manifest", manifest.read_bytes())
    (path / "configuration.json").unlink()
    del made.files["configuration.json"]
    manifest.write_bytes(made.encode())
    (run.folder / "checkpoints" / "latest").unlink()
    with refused(CheckpointError, f"{path}:"):
        assert load_run(run.folder).policies
    with refused(CorralError, f"{path}:"):
        resume(run.folder, steps=128)


# --- A run that is planned anew ------------------------------------------------------------------


def test_every_kept_checkpoint_loads_after_a_stretch(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", updates=2, keep="all", anneal=True)
    resume(run.folder, steps=256, stretch=True)
    for at in ("64", "128", "192", "256", "best", "latest", "0"):
        assert load_run(f"{run.folder}@{at}").policies, at
    folder = run.folder / "checkpoints"
    kept = {
        step: json.loads((named_checkpoint(folder, step) / "configuration.json").read_text())
        for step in ("64", "128", "256")
    }
    assert {step: of["horizon"] for step, of in kept.items()} == {"64": 128, "128": 256, "256": 256}
    resume(run.folder, steps=320)
    resume(run.folder, steps=384, stretch=True)
    assert load_run(run.folder).policies


def test_a_horizon_that_no_stretch_made_is_refused(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", updates=1, anneal=True)
    path = run.folder / "config.json"
    path.write_text(path.read_text().replace('"horizon": 64', '"horizon": 640'))
    with refused(CheckpointError, "horizon", 640, 64, "--stretch"):
        resume(run.folder)
    assert load_run(run.folder).policies  # they only play
    resume(run.folder, steps=128, stretch=True)
    resume(run.folder, steps=192)


def test_a_trainer_that_saves_a_document_of_the_runs_own_is_told(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", updates=1)
    content = run.content("latest")
    assert "configuration" not in content.documents
    content.documents["configuration"] = {}
    with refused(CheckpointError, run.folder, "configuration"):
        run.save_checkpoint(64, content, {})
