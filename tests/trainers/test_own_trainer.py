"""A trainer of one's own: a record or a class, by file.py:name, by module:name, from a package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral import algorithms as alg
from corral.errors import CheckpointError, RunError, UnknownNameError
from corral.trainers.base import find_trainer, trainer_class
from support import forked
from support.mappo_teams import SMALL

STEPS: dict[str, Any] = {"steps": 128, "progress": False, **SMALL}

OF_A2C = {key: value for key, value in STEPS.items() if key not in ("n_epochs", "n_minibatches")}

OWN = """
from corral import algorithms as alg

def loss(minibatch, outputs, settings):
    climb = -(outputs.log_prob * minibatch.advantage).mean()
    return alg.Losses({"climb": climb, "critic": alg.value_loss(minibatch, outputs, settings)})

own = alg.ippo.but(name="own", loss=loss)
number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / f"own_{tmp_path.name}.py"  # each test's is another module
    path.write_text(OWN)
    return path


def config_of(run: Any) -> Any:
    return json.loads((run.folder / "config.json").read_text())


# --- In Python -----------------------------------------------------------------------------------


def test_a_record_trains_and_is_given_again(tmp_path: Path) -> None:
    def loss(minibatch: Any, outputs: Any, settings: Any) -> Any:
        return alg.policy_gradient_loss(minibatch, outputs, settings)

    own = alg.ippo.but(name="own", loss=loss)
    run = corral.train("probe_p04_v0", trainer=own, out=tmp_path / "run", **STEPS)
    assert config_of(run)["trainer"] == "own"
    assert config_of(run)["trainer_source"]["text"] is None
    assert corral.load_run(run.folder, trainer=own).policies
    other = corral.train("probe_p04_v0", trainer="a2c", out=tmp_path / "other", **OF_A2C)
    found = corral.evaluate(run.folder, trainer=own, beside=[other.folder], episodes=2)
    assert {row.policy for row in found.rows} >= {"own, greedy", "a2c, greedy"}
    for wrong in (None, "mappo"):
        with refused((UnknownNameError, RunError), "own", "--trainer file.py:name"):
            _ = corral.load_run(run.folder, trainer=wrong).policies
    longer = corral.resume(run.folder, trainer=own, steps=256, progress=False)
    assert len(longer.progress) == 4


def test_a_record_that_is_registered_is_the_trainer_of_its_name(tmp_path: Path) -> None:
    assert find_trainer(alg.a2c).kind is trainer_class("a2c")
    assert find_trainer(alg.mappo).source is None
    run = corral.train("probe_p04_v0", trainer=alg.mappo, out=tmp_path / "run", **STEPS)
    assert config_of(run)["trainer_source"] is None
    assert corral.load_run(run.folder).policies


def test_another_algorithm_of_a_registered_name_is_not_taken_for_it(tmp_path: Path) -> None:
    """Else a run would go on with another loss than it was begun with."""
    own = alg.mappo.but(loss=alg.policy_gradient_loss)
    run = corral.train("probe_p04_v0", trainer=own, out=tmp_path / "run", **STEPS)
    with refused(UnknownNameError, "mappo", "--trainer file.py:name"):
        corral.resume(run.folder, steps=256, progress=False)
    with refused(RunError, run.folder, "mappo", "--trainer file.py:name"):
        corral.load_run(run.folder, trainer="mappo")


def test_a_changed_algorithm_without_a_name_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = alg.mappo.but(loss=alg.policy_gradient_loss)
    corral.train("probe_p04_v0", trainer=own, out=tmp_path / "run", **STEPS)
    assert capsys.readouterr().err.count(".but(name=...)") == 1
    corral.train("probe_p04_v0", trainer=own.but(name="own"), out=tmp_path / "own", **STEPS)
    corral.train("probe_p04_v0", trainer="mappo", out=tmp_path / "mappo", **STEPS)
    assert ".but(" not in capsys.readouterr().err


def test_commands_name_a_trainer_of_ones_own_again(file: Path, tmp_path: Path) -> None:
    text = f"{file}:own"
    run = corral.train("probe_p04_v0", trainer=text, out=tmp_path / "run", **STEPS)
    assert run.config.named(run.folder) == f"{run.folder} --trainer {text}"
    assert "--trainer" not in corral.train(
        "probe_p04_v0", trainer="ippo", out=tmp_path / "other", **STEPS
    ).config.named(run.folder)


def test_whoever_reads_a_run_is_told_once_that_its_trainer_has_changed(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"{file}:own"
    run = corral.train("probe_p04_v0", trainer=text, out=tmp_path / "run", **STEPS)
    corral.evaluate(run.folder, trainer=text, episodes=2)
    assert text not in capsys.readouterr().err
    file.write_text(OWN + "# another line\n")
    corral.evaluate(run.folder, trainer=text, episodes=2)
    assert capsys.readouterr().err.count(text) == 1


def test_text_names_a_record_and_a_run_asks_for_it_again(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"{file}:own"
    run = corral.train("probe_p04_v0", trainer=text, out=tmp_path / "run", **STEPS)
    assert config_of(run)["trainer_source"]["text"] == text
    assert len(config_of(run)["trainer_source"]["sha256"]) == 64
    assert {"climb", "critic"} < set(run.progress)
    for read in (lambda: corral.load_run(run.folder).policies, lambda: corral.resume(run.folder)):
        with refused(UnknownNameError, f"--trainer {text}", f"'{text}'"):
            read()
    assert corral.load_run(run.folder, trainer=text).policies
    corral.resume(run.folder, trainer=text, steps=256, progress=False)
    assert text not in capsys.readouterr().err
    file.write_text(OWN + "# another line\n")
    corral.resume(run.folder, trainer=text, steps=384, progress=False)
    (said,) = (line for line in capsys.readouterr().err.splitlines() if text in line)
    shown(said, "trainer")


def test_what_config_json_names_is_never_imported(file: Path, tmp_path: Path) -> None:
    run = corral.train("probe_p04_v0", trainer="ippo", out=tmp_path / "run", **STEPS)
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\nown = None\n")
    for changed in (
        {"trainer": f"{trap}:own"},
        {"trainer_source": {"text": f"{trap}:own", "sha256": None}},
    ):
        text = json.dumps({**config_of(run), **changed})
        (run.folder / "config.json").write_text(text)
        with pytest.raises(CheckpointError):  # another configuration made it
            corral.load_run(run.folder)
        assert not (tmp_path / "sprung").exists()


def test_what_is_no_trainer_is_refused(file: Path) -> None:
    for text, named in (
        (f"{file}:owm", (file, "'owm'", "'own'")),
        (f"{file.with_name('none.py')}:own", (file.with_name("none.py"),)),
        (f"{file}:", (f"'{file}:'", "module:name", "file.py:name")),
    ):
        with refused(UnknownNameError, *named):
            corral.train("probe_p04_v0", trainer=text)
    with refused(TypeError, f"{file}:number", "int", "file.py:name"):
        corral.train("probe_p04_v0", trainer=f"{file}:number")
    with refused(TypeError, f"{file}:loss", "file.py:name"):
        corral.train("probe_p04_v0", trainer=f"{file}:loss")


# --- Settings of single policies, and schedules --------------------------------------------------


def test_settings_of_policies_are_kept_and_checked(tmp_path: Path) -> None:
    given: dict[str, Any] = {"trainer": "ippo", "policies": "separate", **STEPS}
    own = {"agent_1": {"learning_rate": 1e-4, "anneal": False, "net_arch": [8]}}
    run = corral.train("probe_p04_v0", settings_of=own, out=tmp_path / "run", **given)
    longer = corral.resume(run.folder, steps=256, progress=False)
    assert longer.config.settings_of["agent_1"]["learning_rate"] == 1e-4
    assert set(longer.progress["agent_1/learning_rate"]) == {1e-4}
    assert len(set(longer.progress["agent_0/learning_rate"])) > 1
    for wrong, error, named in (
        ({"agent_2": {}}, UnknownNameError, ("'agent_2'", "agent_0", "agent_1")),
        ({"agent_1": {"lr": 1}}, TypeError, ("agent_1", "'lr'", "'learning_rate'")),
        ({"agent_1": {"num_envs": 4}}, ValueError, ("agent_1.num_envs", "num_envs=")),
        ({"agent_1": {"n_steps": 4}}, ValueError, ("agent_1.n_steps", "n_steps=")),
        ({"agent_1": {"gamma": 2}}, ValueError, ("agent_1", "gamma=2", "0", "1")),
        ({"agent_1": 3}, TypeError, ("settings_of['agent_1']=3",)),
    ):
        with refused(error, *named):
            corral.train("probe_p04_v0", settings_of=wrong, out=tmp_path / "no", **given)
    assert not (tmp_path / "no").exists()


# --- On the command line -------------------------------------------------------------------------


def corral_command(folder: Path, *words: str, **environment: str) -> Any:
    env = {**os.environ, "COLUMNS": "300", **environment}
    return forked.run(["-m", "corral", *words], folder=folder, env=env)


SMALL_OPTIONS = ("--num-envs", "4", "--n-steps", "16", "--device", "cpu", "--net-arch", "8")


def test_the_command_line_takes_a_trainer_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    train = ("train", "probe_p04_v0", "--trainer", "mine.py:own", "--steps", "128", "--out", "run")
    more = ("--set", "agent_0.learning-rate=1e-3", "--set", "agent_1.clip_range=0:0.2,1e3:0.1")
    done = corral_command(
        tmp_path, *train, *SMALL_OPTIONS, *more, "--policies", "separate", "--ent-coef", "0:0.1"
    )
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["trainer_source"]["text"] == "mine.py:own"
    assert config["settings"]["ent_coef"] == "0:0.1"
    assert config["settings_of"] == {
        "agent_0": {"learning_rate": 1e-3},
        "agent_1": {"clip_range": "0:0.2,1e3:0.1"},
    }
    done = corral_command(tmp_path, "evaluate", "run")
    assert done.returncode == 2
    shown(done.stderr, "--trainer mine.py:own", "'mine.py:own'")
    own = ("--trainer", "mine.py:own")
    for words in (("evaluate", "run", "--episodes", "2"), ("train", "--resume", "run")):
        done = corral_command(tmp_path, *words, *own)
        assert done.returncode == 0, done.stderr
    shown(done.stderr + done.stdout, "--trainer mine.py:own")
    done = corral_command(tmp_path, "train", "--resume", "run", "--trainer", "mappo")
    shown(done.stderr, "mappo", "--trainer mine.py:own")


PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "corral-own"
version = "1.0"

[project.entry-points."corral.trainers"]
packaged = "corral_own:Packaged"

[tool.setuptools]
py-modules = ["corral_own"]
"""


@pytest.mark.slow
def test_a_package_registers_a_trainer(tmp_path: Path) -> None:
    """Built and installed as a package is, into a folder of its own, and trained with by name."""
    pytest.importorskip("setuptools", reason="builds the package")
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "pyproject.toml").write_text(PROJECT)
    packaged = OWN + 'Packaged = alg.trainer_of(own.but(name="packaged"))\n'
    (source / "corral_own.py").write_text(packaged)
    install = "-m pip install -q --no-deps --no-build-isolation --no-index --target"
    done = subprocess.run(
        [sys.executable, *install.split(), str(target), str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    with_it = {"PYTHONPATH": os.pathsep.join([str(target), os.environ.get("PYTHONPATH", "")])}
    train = ("train", "probe_p04_v0", "--trainer", "packaged", "--steps", "128", "--out", "run")
    done = corral_command(tmp_path, *train, *SMALL_OPTIONS, **with_it)
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["trainer"], config["trainer_source"]) == ("packaged", None)
    done = corral_command(tmp_path, "evaluate", "run", "--episodes", "2", **with_it)
    assert done.returncode == 0, done.stderr
    without = corral_command(tmp_path, *train, *SMALL_OPTIONS, "--out", "other")
    shown(without.stderr, "'packaged'", "mappo")
