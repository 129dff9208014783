"""Runs on disk: they stand alone, what does not fit is refused by name, and no code is loaded."""

from __future__ import annotations

import dataclasses
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra sb3")

import torch

from corral.data import Trace, write_trace
from corral.errors import CheckpointError, CorralError, RunError, TraceError
from corral.trainers.driver import resume
from corral.trainers.runs.run import is_run, load_run
from corral.trainers.runs.run_config import CONFIG, RunConfig
from support.loads import small_trace
from support.runs import PaidRules, observations, rows, small_run, trace_file


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a CSV file that is no longer there."""
    folder = tmp_path_factory.mktemp("runs")
    trace = trace_file(folder)
    small_run(folder / "run", env_kwargs={"trace": str(trace)}, updates=2, policies="separate")
    trace.unlink()
    return folder / "run"


@pytest.fixture
def run_folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def test_a_folder_that_is_not_a_run_names_a_run_inside(run_folder: Path) -> None:
    with refused(RunError, run_folder.parent, CONFIG, run_folder):
        load_run(run_folder.parent)
    with refused(RunError, run_folder / "none") as caught:
        load_run(run_folder / "none")
    assert CONFIG not in str(caught.value)  # nothing is missing in a folder that does not exist


def played(folder: Path) -> list[list[int]]:
    run = load_run(folder)
    seen = observations(run)
    return [
        run.policies[agent].act(seen[agent], deterministic=True).action.tolist() for agent in seen
    ]


def test_a_run_stands_alone(made: Path, run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run_folder.parent)
    assert sorted(path.name for path in run_folder.iterdir()) == [
        ".lock",
        "checkpoints",
        "config.json",
        "progress.csv",
        "tensorboard",
        "trace.csv.gz",
    ]
    assert played(Path("run")) == played(made)
    assert load_run(run_folder).config.env_config.trace == small_trace()
    assert len(rows(resume(run_folder, steps=192))) == 3


def test_a_run_of_a_trace_object_stands_alone(tmp_path: Path) -> None:
    load = small_trace()
    named = Trace(load.nodes, load.arrivals, load.capacity, load.times, name="edge3")
    run = small_run(tmp_path / "run", env_kwargs={"trace": named}, updates=1)
    assert load_run(run.folder).config.env_config.trace == load
    assert played(run.folder)


def test_a_load_that_changed_is_refused(run_folder: Path) -> None:
    (run_folder / "trace.csv.gz").unlink()
    with pytest.raises(TraceError, match=r"trace\.csv\.gz"):
        load_run(run_folder)
    write_trace(small_trace(seed=8), run_folder / "trace.csv.gz")
    with refused(TraceError, "trace.csv.gz", small_trace(seed=8).digest[:12]):
        load_run(run_folder)
    with refused(TraceError, "trace.csv.gz", small_trace(seed=8).digest[:12]):
        resume(run_folder)


def test_a_config_says_all(made: Path) -> None:
    read = load_run(made).config
    assert read.versions["torch"] == torch.__version__
    assert int(read.versions["torch threads"]) == torch.get_num_threads()
    assert read.settings["gamma"] == 0.5  # the preset of dfaas_v0
    assert read.policies == {f"node_{i}": f"node_{i}" for i in range(3)}
    assert read.steps == 128
    assert repr(load_run(made)) == f"<Run {str(made)!r}: sb3_ppo on dfaas_v0>"


# --- What is refused -----------------------------------------------------------------------------


def test_folders_that_are_no_runs(tmp_path: Path) -> None:
    assert not is_run(tmp_path)
    for folder in (tmp_path, tmp_path / "nowhere"):
        with refused(RunError, folder):
            load_run(folder)
        with pytest.raises(RunError):
            resume(folder)
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "arena").mkdir()
    (tmp_path / "arena" / "config.json").write_text("{}")
    with refused(RunError, tmp_path / "aren", f"did you mean {tmp_path / 'arena'}?"):
        load_run(tmp_path / "aren")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", ("config.json",)),
        ("{", ("config.json",)),
        ("[]", ("config.json", "format")),
        ("{}", ("config.json", "format")),
        ('{"format": "1"}', ("config.json", "format")),
        ('{"format": 1}', ("config.json", 1, 2)),
        ('{"format": 2}', ("config.json", "env")),
        ('{"format": 3}', ("3", "2")),
        ('{"format": 2, "steps": NaN}', ("NaN",)),
        ('{"format": 2, "steps": 1, "steps": 2}', ("'steps'",)),
        (100_000 * "[", ("config.json",)),
        ("\udcff", ("config.json",)),
    ],
)
def test_configs_that_cannot_be_read(tmp_path: Path, text: str, named: tuple[object, ...]) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert is_run(tmp_path)
    with refused(RunError, *named):
        load_run(tmp_path)


WRONG: list[Any] = [None, True, -1, 10**400, 0.5, "x", [], ["x"], {}, {"x": 1}, [[1, 2]]]


def changed(values: Any, places: list[str]) -> list[tuple[str, Any]]:
    """Every copy of ``values`` in which one thing is missing or of another kind."""
    found = []
    for place in places:
        *path, last = place.split("/")
        for wrong in [..., *WRONG]:
            copy = json.loads(json.dumps(values))
            holder = copy
            for key in path:
                holder = holder[key]
            if wrong is ...:
                del holder[last]
            elif holder[last] == wrong:
                continue
            else:
                holder[last] = wrong
            found.append((f"{place} = {wrong!r:.20}", copy))
    return found


def test_a_damaged_config_never_ends_in_anything_but_an_error_of_corral(run_folder: Path) -> None:
    path = run_folder / "config.json"
    values = json.loads(path.read_text())
    places = [*values, "env_kwargs/trace", "env_kwargs/trace/digest", "env_kwargs/trace/file"]
    places += [
        "env_kwargs/trace/name",
        "env_kwargs/trace/type",
        "env_kwargs/rows",
        "env_kwargs/queue",
        "held_out/rows",
    ]
    places += ["policies/node_1", "settings/net_arch", "settings/num_envs", "settings/gamma"]
    loaded = []
    for what, damaged in changed(values, places):
        path.write_text(json.dumps(damaged))
        try:
            assert load_run(run_folder).policies
        except CorralError:
            continue
        except Exception as error:
            raise AssertionError(f"{what}: {error!r}") from error
        loaded.append(what)
    # What a run plays does not hang on these.
    harmless = ("steps", "horizon", "keep", "versions", "defaults", "validation")
    harmless += ("settings_of", "trainer_source", "init")  # missing, they are what they were
    assert [what for what in loaded if not what.startswith(harmless)] == []


def test_missing_and_damaged_checkpoints(run_folder: Path) -> None:
    newest = run_folder / "checkpoints" / "step_000000000128"
    weights = newest / "policy_node_0.safetensors"
    held = weights.read_bytes()
    weights.write_bytes(held[:-1] + bytes([held[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=r"policy_node_0\.safetensors"):
        load_run(run_folder).policies["node_0"]
    with pytest.raises(CheckpointError, match=r"policy_node_0\.safetensors"):
        resume(run_folder)
    weights.unlink()
    with pytest.raises(CheckpointError, match=r"policy_node_0\.safetensors"):
        load_run(run_folder).policies["node_0"]
    shutil.rmtree(run_folder / "checkpoints")
    with refused(CheckpointError, run_folder / "checkpoints"):
        load_run(run_folder).policies["node_0"]
    with refused(CheckpointError, run_folder / "checkpoints"):
        load_run(run_folder).export("weights", run_folder / "export")


def test_weights_of_another_run_are_refused(run_folder: Path, tmp_path: Path) -> None:
    other = small_run(tmp_path / "other", updates=2, policies="separate", net_arch=(17,))
    shutil.rmtree(run_folder / "checkpoints")
    shutil.copytree(other.folder / "checkpoints", run_folder / "checkpoints")
    named = ("settings.net_arch", "[16]", "[17]", "--init")
    with refused(CheckpointError, *named):
        load_run(run_folder).policies["node_0"]
    with refused(CheckpointError, *named):
        resume(run_folder)


def test_nothing_that_is_loaded_can_run_code(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a pickle was loaded")

    for module, name in [
        (pickle, "load"),
        (pickle, "loads"),
        (pickle, "Unpickler"),
        (pickle, "_Unpickler"),
        (torch, "load"),
        (torch.jit, "load"),
    ]:
        monkeypatch.setattr(module, name, refuse)
    with refused(AssertionError, "pickle"):
        pickle.loads(b"")
    assert played(run_folder)
    resume(run_folder, steps=192)
    # An export is for others; corral does not read it.
    names = [path.name for path in load_run(run_folder).export("weights", run_folder / "export")]
    assert names == ["node_0.zip", "node_1.zip", "node_2.zip", "manifest.json"]
    assert {path.name for path in (run_folder / "export").iterdir()} == {*names}
    assert played(run_folder)


# --- Parts ---------------------------------------------------------------------------------------


def test_a_config_is_written_whole_or_not_at_all(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (run_folder / "config.json").read_bytes()
    config = load_run(run_folder).config
    config.settings["gamma"] = np.nan
    with pytest.raises(ValueError):
        config.write(run_folder)
    assert (run_folder / "config.json").read_bytes() == before
    config.settings["gamma"] = 0.5
    config.write(run_folder)
    assert (run_folder / "config.json").read_bytes() == before
    assert RunConfig.read(run_folder) == load_run(run_folder).config


def test_policies_are_those_of_the_latest_checkpoint(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", env=PaidRules(), updates=1, anneal=False)
    seen = observations(run)["agent_0"]
    first = run.policies["agent_0"].act(seen, deterministic=True).extra["probabilities"]
    later = resume(run.folder, env=PaidRules(), steps=192)
    second = later.policies["agent_0"].act(seen, deterministic=True).extra["probabilities"]
    assert not np.array_equal(first, second)


def test_an_export_replaces_nothing_unasked(run_folder: Path, tmp_path: Path) -> None:
    run, target = load_run(run_folder), tmp_path / "export"
    target.mkdir()
    (target / "node_1.zip").write_text("mine")
    with refused(FileExistsError, target / "node_1.zip", "--overwrite", "overwrite=True"):
        run.export("weights", target)
    assert [(path.name, path.read_text()) for path in target.iterdir()] == [("node_1.zip", "mine")]
    assert len(run.export("weights", target, overwrite=True)) == 4
    assert (target / "node_1.zip").read_bytes()[:2] == b"PK"


def test_who_learns(run_folder: Path) -> None:
    config = load_run(run_folder).config
    assert config.learners == ("node_0", "node_1", "node_2")
    policies = {"node_0": "a", "node_1": "b", "node_2": "overflow"}
    some = dataclasses.replace(
        config,
        policies=policies,
        policies_to_train=("b", "overflow"),
        opponents={"node_2": "overflow"},
    )
    assert some.learners == ("node_1",)
