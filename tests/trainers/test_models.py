"""Runs with networks of a user's own: they are named again, and never imported by a file."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.errors import CheckpointError, ModelError, ModelNeededError, RunError, UnknownNameError
from corral.trainers.driver import resume, train
from corral.trainers.runs.own_model import OwnModel
from corral.trainers.runs.run import load_run
from support.command import within
from support.no_masks import NoMasks
from support.own_networks import make
from support.runs import weights

SMALL: dict[str, Any] = {"num_envs": 4, "n_steps": 16, "n_minibatches": 2, "n_epochs": 1}
ROLLOUT = 64

SOURCE = """
import torch
from torch import nn


class Net(nn.Module):
    out_features = {units}

    def __init__(self):
        super().__init__()
        self.layer = nn.LazyLinear(self.out_features)

    def forward(self, obs):
        entries = obs.values() if isinstance(obs, dict) else [obs]
        return self.layer(torch.cat([each.flatten(1) for each in entries], 1)).relu()


def make(observation_space, *, role):
    return Net()
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", sys.path[:])
    path = tmp_path / f"nets_{tmp_path.name[-30:]}".replace("-", "_").replace("[", "_")
    path = path.with_suffix(".py")
    path.write_text(SOURCE.format(units=8))
    return path


def trained(folder: Path, model: Any, updates: int = 2, **changes: Any) -> Any:
    given = {"trainer": "mappo", **SMALL, **changes}
    return train("arena_v0", model=model, steps=updates * ROLLOUT, out=folder, **given)


def forget(file: Path) -> None:
    """As in a new process: the file is read again."""
    sys.modules.pop(file.stem)


# --- Runs ----------------------------------------------------------------------------------------


def test_text_and_function_make_the_same_run(file: Path, tmp_path: Path) -> None:
    text = f"{file}:make"
    named = trained(tmp_path / "named", text)
    given = trained(tmp_path / "given", OwnModel.of(text).make)
    assert weights(named.folder) == weights(given.folder)
    saved = [json.loads((run.folder / "config.json").read_text()) for run in (named, given)]
    assert saved[0]["model"]["name"] == text
    assert saved[1]["model"]["name"] == f"{file.stem}:make"
    assert saved[0]["model"]["sha256"] == saved[1]["model"]["sha256"]
    assert len(saved[0]["model"]["sha256"]) == 64


def test_a_run_asks_for_its_model_and_plays_as_it_did(file: Path, tmp_path: Path) -> None:
    text = f"{file}:make"
    run = trained(tmp_path / "run", text)
    obs = _observation(run)
    played = run.policies["agent_1"].act(obs, deterministic=True).extra["probabilities"]
    forget(file)
    for read in (load_run, resume, corral.evaluate):
        with refused(ModelNeededError, f"--model {text}"):
            read(run.folder)
    assert file.stem not in sys.modules
    with refused(ModelNeededError, f"--model {text}"):
        corral.watch(run.folder, out=tmp_path / "clip.gif")
    again = load_run(run.folder, model=text)
    found = again.policies["agent_1"].act(obs, deterministic=True).extra["probabilities"]
    assert np.array_equal(played, found)
    assert corral.watch(run.folder, model=text, text=lambda words: None, steps=2).steps == 2
    assert corral.evaluate(run.folder, model=text, episodes=1).rows[0].policy.startswith("mappo")
    assert corral.evaluate(again, model=text, episodes=1).rows[0].policy.startswith("mappo")


def _observation(run: Any) -> Any:
    from corral.envs.batch import Batch

    return Batch(run.config.env_config.rules(), num_envs=3, seed=0).reset()["agent_1"]


def test_resumed_it_goes_on_as_if_it_had_never_stopped(file: Path, tmp_path: Path) -> None:
    text = f"{file}:make"
    whole = trained(tmp_path / "whole", text, updates=4)
    part = trained(tmp_path / "part", text, horizon=4 * ROLLOUT)
    resume(part.folder, model=text, steps=4 * ROLLOUT)
    assert weights(whole.folder) == weights(part.folder)


def test_a_changed_source_is_told_and_other_shapes_are_refused(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"{file}:make"
    run = trained(tmp_path / "run", text)
    before = (run.folder / "config.json").read_text()
    capsys.readouterr()
    assert load_run(run.folder, model=text).policies
    assert text not in capsys.readouterr().err
    file.write_text(SOURCE.format(units=8) + "# another line\n")
    forget(file)
    resume(run.folder, model=text, steps=3 * ROLLOUT)
    (said,) = (line for line in capsys.readouterr().err.splitlines() if text in line)
    shown(said, run.folder, "model")
    after = json.loads((run.folder / "config.json").read_text())
    assert after["model"] == json.loads(before)["model"]
    file.write_text(SOURCE.format(units=9))
    forget(file)
    with pytest.raises(CheckpointError, match=r"actor\.encoder\.module\.layer\.weight"):
        _ = load_run(run.folder, model=text).policies


def test_a_model_for_a_run_that_has_none_is_refused(tmp_path: Path) -> None:
    plain, own = trained(tmp_path / "plain", None), trained(tmp_path / "own", make)
    with refused(RunError, plain.folder, "model"):
        load_run(plain.folder, model=make)
    # Beside each other, the model is of those that have one.
    found = corral.evaluate(own.folder, model=make, beside=[plain.folder], episodes=1)
    assert len({row.policy for row in found.rows if row.policy.startswith(("own", "plain"))}) >= 2


def test_a_damaged_entry_of_the_config_is_named(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", make)
    path = run.folder / "config.json"
    values = json.loads(path.read_text())
    for damaged in (3, {"name": 3, "sha256": None}, {"name": "x"}, {"name": "x", "sha256": 4}):
        path.write_text(json.dumps({**values, "model": damaged}))
        with refused(RunError, path):
            load_run(run.folder, model=make)


# --- What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"net_arch": (8,)}, ("net_arch=(8,)",)),
        ({"activation": "relu"}, ("activation='relu'",)),
        ({"cnn_patch": 8}, ("cnn_patch=8",)),
        ({"cnn_arch": (8, 16)}, ("cnn_arch=",)),
    ],
)
def test_settings_of_layers_beside_a_model_are_refused(
    changes: dict[str, Any], named: tuple[object, ...], tmp_path: Path
) -> None:
    with refused(ValueError, *named):
        trained(tmp_path / "run", make, **changes)
    assert not (tmp_path / "run").exists()


def test_a_preset_of_layers_gives_way_to_a_model(tmp_path: Path) -> None:
    """tiles_v0 has one for its images."""
    run = train(
        "tiles_v0", model=make, policies="separate", steps=ROLLOUT, out=tmp_path / "run", **SMALL
    )
    assert run.config.settings["cnn_patch"] == 0
    assert run.config.settings["gamma"] == 0.95


@pytest.mark.parametrize("trainer", ["sb3_ppo", "sb3_maskable_ppo"])
def test_trainers_of_others_take_no_model(trainer: str, tmp_path: Path) -> None:
    pytest.importorskip("sb3_contrib")
    with refused(ValueError, trainer, "net_arch", "features_extractor_class"):
        train("arena_v0", trainer=trainer, model=make, steps=64, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def faulty(space: Any, *, role: str) -> Any:
    network: Any = make(space, role=role)
    if role == "critic":
        network.out_features = 7
    return network


def test_a_faulty_network_leaves_no_folder(tmp_path: Path) -> None:
    with refused(ModelError, "critic", "agent_1", "(3, 6)", "(3, 7)"):
        trained(tmp_path / "run", faulty)
    with refused(ModelError, "model=3", "'my_file.py:make'"):
        trained(tmp_path / "run", 3)
    with refused(UnknownNameError, tmp_path / "none.py"):
        trained(tmp_path / "run", str(tmp_path / "none.py:make"))

    def idle(space: Any, *, role: str) -> Any:
        from torch import nn

        network: Any = make(space, role=role)
        network.more = nn.Linear(1, 1)
        return network

    with refused(ModelError, "actor", "agent_1", "more.weight"):
        trained(tmp_path / "run", idle)
    assert not (tmp_path / "run").exists()


# --- On the command line -------------------------------------------------------------------------


def test_the_command_takes_it_and_says_how_to_go_on(file: Path, tmp_path: Path) -> None:
    text, folder = f"{file}:make", tmp_path / "run"
    options = ("--num-envs", "4", "--n-steps", "16", "--steps", "64")
    said = within("train", "arena_v0", "--model", text, *options, "--out", folder)
    assert f"corral evaluate {folder} --model {text}" in said
    shown(within("evaluate", folder, "--model", text, "--episodes", "1"), "mappo, greedy")
    said = within("train", "--resume", folder, "--steps", "128", code=None)
    assert f"--model {text}" in said
    within("train", "--resume", folder, "--steps", "128", "--model", text)
    watched = within("watch", folder, "--ansi", "--steps", "2", "--model", text)
    shown(watched.splitlines()[-1], "arena_v0", "mappo", 2)
    said = within("train", "arena_v0", "--model", text, "--net-arch", "8,8", code=None)
    shown(said, "--net-arch", "8,8")


def test_a_replay_takes_it(file: Path, tmp_path: Path) -> None:
    text, folder = f"{file}:make", tmp_path / "run"
    train("dfaas_v0", model=text, steps=ROLLOUT, out=folder, **SMALL)
    command = ["replay", "edge3", "--rows", "0:60", "--out", tmp_path / "played"]
    both = ["--policies", f"{folder},local"]
    assert f"--model {text}" in within(*command, *both, code=None).replace("\n", "")
    assert "Report: " in within(*command, *both, "--model", text)
    said = within(*command, "--overwrite", "--policies", "local", "--model", text, code=None)
    shown(said, f"--model {text}", "--policies")


# --- Integers ------------------------------------------------------------------------------------

NUMBERS = """
import torch
from torch import nn


class Net(nn.Module):
    out_features = 4

    def forward(self, obs):
        return nn.functional.one_hot(obs, 4).float()


def make(observation_space, *, role):
    return Net()
"""


def test_a_network_for_numbers_is_told_once_that_they_are_not_one_hot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "number_nets.py").write_text(NUMBERS)
    given: dict[str, Any] = {"trainer": "ippo", "preset": "none", **SMALL}
    number = functools.partial(NoMasks, "number")
    model = f"{tmp_path / 'number_nets.py'}:make"
    train(number, model=model, steps=2 * ROLLOUT, out=tmp_path / "own", **given)
    text = shown(capsys.readouterr().err, "Discrete", "int64", "one-hot")
    assert text.count("one-hot") == 1
    for kind in ({"model": make}, {}):  # a network for a Box, and the default layers
        env = number if not kind else functools.partial(NoMasks, "box")
        train(env, steps=ROLLOUT, out=tmp_path / f"other{len(kind)}", **given, **kind)
        assert "one-hot" not in capsys.readouterr().err
    (tmp_path / "linear_nets.py").write_text(SOURCE.format(units=4))
    model = f"{tmp_path / 'linear_nets.py'}:make"
    with refused(ModelError, "Discrete", "int64", "one-hot"):  # a Linear cannot read them
        train(number, model=model, steps=ROLLOUT, out=tmp_path / "failing", **given)
