"""Configuration files: what they may hold, what is refused and how, and the run that they make."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.envs.core import Array
from corral.errors import ConfigError, CorralError
from corral.trainers.config_files.read import MAX_BYTES, decoded, load_config
from corral.trainers.config_files.write import config_text, resolved
from corral.trainers.driver import train
from support.loads import small_trace
from support.runs import weights

SMALL = {"num_envs": 4, "n_steps": 16, "n_epochs": 1, "net_arch": (16,)}


def toml(folder: Path, text: str, name: str = "run.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


GOOD = """
env = "dfaas_v0"
steps = 128
seed = 3

[env_kwargs]
queue = 5
link_limit = "none"
max_cycles = 30

[settings]
num_envs = 4
n_steps = 16
gamma = 0.9
net_arch = [16]
"""


def test_a_file_holds_the_arguments_of_train(tmp_path: Path) -> None:
    found = corral.read_config(toml(tmp_path, GOOD))
    assert found == {
        "env": "dfaas_v0",
        "steps": 128,
        "seed": 3,
        "env_kwargs": {"queue": 5, "link_limit": None, "max_cycles": 30},
        "num_envs": 4,
        "n_steps": 16,
        "gamma": 0.9,
        "net_arch": [16],
    }


def test_what_is_given_stands_over_the_file(tmp_path: Path) -> None:
    path = toml(tmp_path, GOOD)
    found = corral.read_config(path, seed=4, gamma=0.5, env_kwargs={"queue": 6})
    assert (found["seed"], found["gamma"], found["steps"]) == (4, 0.5, 128)
    assert found["env_kwargs"] == {"queue": 6, "link_limit": None, "max_cycles": 30}


def test_json_of_the_same_layout_is_the_same(tmp_path: Path) -> None:
    values = {
        "env": "rps_v0",
        "steps": 64,
        "opponents": {"player_1": "random"},
        "settings": {"gamma": 0.9, "target_kl": None},
    }
    path = toml(tmp_path, json.dumps(values), "run.json")
    found = corral.read_config(path)
    settings = values.pop("settings")
    assert isinstance(settings, dict)
    assert found == {**values, **settings}


# --- What is refused -----------------------------------------------------------------------------

REFUSED = [
    ('env = "dfaas_v0"\nstepz = 5', ("'stepz'", "'steps'")),
    ('env = "dfaas_v0"\ngamma = 0.5', ('gamma', '[settings]')),
    ('env = "dfaas_v0"\nqueue = 5', ('queue', '[env_kwargs]')),
    ('env = "dfaas_v0"\ngama = 0.5', ("'gama'", "'gamma'", '[settings]')),
    ('env = "dfaas_v0"\n[settings]\nsteps = 5', ('[settings]', 'steps')),
    ('env = "dfaas_v0"\n[settings]\ngama = 5', ('[settings]', "'gama'", "'gamma'")),
    ('env = "dfaas_v0"\n[env_kwargs]\nque = 5', ('[env_kwargs]', "'que'", "'queue'")),
    ('env = "dfaas_v0"\n[env_kwargs]\nillegal = "raise"', ('[env_kwargs]', "'illegal'")),
    ('env = "dfaas_v0"\nsteps = "many"', ('steps = "many"',)),
    ('env = "dfaas_v0"\nsteps = 1.5', ('steps = 1.5',)),
    ('env = "dfaas_v0"\nsteps = true', ('steps = true',)),
    ('env = "dfaas_v0"\nseed = [1]', ('seed = [1]',)),
    ('env = "dfaas_v0"\nkeep = "some"', ('keep = "some"', '"all"')),
    ('env = "dfaas_v0"\nheld_out = [1, 2, 3]', ('held_out = [1, 2, 3]', '"none"')),
    ('env = "dfaas_v0"\npolicies_to_train = 1', ('policies_to_train = 1', '"none"')),
    ('env = "dfaas_v0"\n[settings]\ngamma = "x"', ('[settings]', 'gamma = "x"')),
    ('env = "dfaas_v0"\n[settings]\ngamma = nan', ('settings.gamma = nan',)),
    ('env = "dfaas_v0"\n[settings]\nanneal = 1', ('[settings]', 'anneal = 1', 'true', 'false')),
    ('env = "dfaas_v0"\n[settings]\nnet_arch = 5', ('net_arch = 5',)),
    ('env = "dfaas_v0"\n[env_kwargs]\nqueue = "x"', ('[env_kwargs]', 'queue = "x"', '--queue x')),
    ('env = "dfaas_v0"\nsettings = 5', ('settings', '[settings]')),
    ('env = "dfaas_v0"\nout = 1979-05-27', ('out = 1979-05-27',)),
    ('env = "dfaas_v0"\nseed = 1\nseed = 2\n', ('TOML', 3, 9)),
    ("env = dfaas_v0", ('TOML', 1, 7)),
    ("steps = 5", ('env = "dfaas_v0"',)),
    ("env = 5", ('env = 5',)),
    ('env = "dfaas_v0"\ntrainer = "mapo"', ("'mapo'", "'mappo'", '--trainer file.py:name')),
    ('env = "classic/tictactoe-v3"', ('corral train classic/tictactoe-v3 --config',)),
    ('env = "my_games:make"', ('corral train my_games:make --config',)),
    ('env = "rps_v0"\ntrainer = "mine.py:pg"', ('--trainer mine.py:pg',)),
    ("a" + ".a" * 5_000 + " = 1", ('levels', 20)),
    ("a = " + "[" * 200 + "]" * 200, ('levels', 20)),
    ("a = " + "[" * 100_000, ('TOML',)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "named"), REFUSED, ids=[text[:50] for text, _ in REFUSED])
def test_what_is_refused_names_file_key_and_remedy(
    tmp_path: Path, text: str, named: tuple[object, ...]
) -> None:
    path = toml(tmp_path, text)
    with refused(ConfigError, *named) as raised:
        corral.read_config(path)
    assert str(raised.value).startswith(str(path))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"env": "rps_v0", "seed": 1, "seed": 2}', ("'seed'",)),
        (
            '{"env": "rps_v0", "settings": {"gamma": NaN}}',
            ("NaN",),
        ),
        ("[1, 2]", ("[1, 2]",)),
        ('{"env": ', ("JSON", "1", "9")),
        ("[" * 100_000, ("JSON",)),
        ('{"format": 9}', ("9",)),
        ('{"format": 2, "env": 5}', ("run.json", "env", 5)),
    ],
)
def test_json_that_is_refused(tmp_path: Path, text: str, named: tuple[object, ...]) -> None:
    with refused(CorralError, *named):
        corral.read_config(toml(tmp_path, text, "run.json"))


def test_files_that_are_no_configuration(tmp_path: Path) -> None:
    with refused(ConfigError, tmp_path / "nowhere.toml", os.strerror(errno.ENOENT)):
        corral.read_config(tmp_path / "nowhere.toml")
    with refused(ConfigError, tmp_path):
        corral.read_config(tmp_path)
    with refused(ConfigError, "4,194,304", "4,194,305"):
        corral.read_config(toml(tmp_path, "#" * (MAX_BYTES + 1)))
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe")
    with refused(ConfigError, path, "TOML"):
        corral.read_config(path)


def test_a_trace_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = toml(tmp_path, 'env = "dfaas_v0"\n[env_kwargs]\ntrace = "nowhere.csv"')
    with pytest.raises(CorralError, match=r"nowhere\.csv"):
        train(**corral.read_config(path), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# --- A run's own config.json ---------------------------------------------------------------------


def rewards() -> Array:
    return np.array([[1.0, 0.5], [0.5, 0.25]])


CASES: dict[str, dict[str, Any]] = {
    "a trace of its own": {
        "env": "dfaas_v0",
        "env_kwargs": {"trace": small_trace(), "max_cycles": 30},
        "held_out": (28, 40),
    },
    "nothing held out": {"env": "dfaas_v0", "env_kwargs": {"max_cycles": 30}, "held_out": 0},
    "opponents": {"env": "rps_v0", "opponents": {"player_1": "random"}},
    "policies": {"env": "two_step_v0", "policies": {"agent_0": "a", "agent_1": "b"}},
    "some learn": {"env": "arena_v0", "policies": "separate", "policies_to_train": ["agent_2"]},
}


def small(case: str, out: Path, **more: Any) -> corral.trainers.Run:
    given = {"trainer": "mappo", "steps": 128, "seed": 2, **SMALL, **CASES[case], **more}
    return train(out=out, **given)


@pytest.mark.parametrize("case", CASES)
def test_a_config_of_a_run_repeats_it_in_a_new_folder(tmp_path: Path, case: str) -> None:
    first = small(case, tmp_path / "first", horizon=256)
    moved = shutil.copytree(first.folder, tmp_path / "elsewhere")
    again = train(**corral.read_config(moved / "config.json"), out=tmp_path / "again")
    assert weights(again) == weights(first)
    texts = [json.loads((run.folder / "config.json").read_text()) for run in (first, again)]
    for values in texts:  # of the first some settings came by themselves
        del values["defaults"]
    assert texts[0] == texts[1]
    assert again.config.canonical() == first.config.canonical()


@pytest.mark.parametrize("case", CASES)
def test_what_is_printed_makes_the_same_run(tmp_path: Path, case: str) -> None:
    first = small(case, tmp_path / "first", horizon=256)
    values = load_config(first.folder / "config.json")
    planned = train(**decoded(values), dry_run=True)
    path = toml(tmp_path, config_text(resolved(planned.config, values)))
    found = train(**corral.read_config(path), dry_run=True)
    assert found.config.canonical() == first.config.canonical()
    assert (found.config.steps, found.config.keep) == (first.config.steps, first.config.keep)
    # All defaults are in it, and the text of the text is the text.
    assert any(line.startswith("gamma") for line in path.read_text().splitlines())
    again = load_config(path)
    assert config_text(resolved(found.config, again)) == path.read_text()


def test_a_dry_run_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = train("rps_v0", dry_run=True, out="there")
    assert run.config.settings["gamma"] == train("rps_v0", dry_run=True).config.settings["gamma"]
    assert list(tmp_path.iterdir()) == []
    with refused(ValueError, "gamma=2", 0, 1):
        train("rps_v0", dry_run=True, gamma=2)


def test_a_trace_that_changed_beside_its_config_is_refused(tmp_path: Path) -> None:
    run = small("a trace of its own", tmp_path / "run")
    path = run.folder / "config.json"
    values = json.loads(path.read_text())
    digest = values["env_kwargs"]["trace"]["digest"]
    path.write_text(path.read_text().replace(digest, digest[::-1]))
    with refused(CorralError, "trace.csv.gz", digest[::-1][:12]):
        corral.read_config(path)


def test_a_config_of_a_run_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    run = small("opponents", tmp_path / "run")
    path = run.folder / "config.json"
    path.write_text(path.read_text().replace('"seed":', '"sead":'))
    with pytest.raises(CorralError, match="seed"):
        corral.read_config(path)
    path.write_text(path.read_text().replace('"sead":', '"seed": 1, "sead":'))
    with refused(ConfigError, path, "'sead'", "'seed'"):
        corral.read_config(path)


def test_an_environment_of_others_is_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("pettingzoo.classic.tictactoe_v3", exc_type=ImportError)
    env = "classic/tictactoe-v3"
    run = train(env, steps=64, out=tmp_path / "run", **SMALL)
    path = run.folder / "config.json"
    with refused(ConfigError, f"corral train {env} --config {path}"):
        corral.read_config(path)
    again = train(**corral.read_config(path, env=env), out=tmp_path / "again")
    assert weights(again) == weights(run)


def test_other_steps_than_the_files_are_planned_anew(tmp_path: Path) -> None:
    path = toml(tmp_path, 'env = "rps_v0"\nsteps = 64\nhorizon = 64')
    assert "horizon" not in corral.read_config(path, steps=128)
    path = toml(tmp_path, 'env = "rps_v0"\nsteps = 64\nhorizon = 640')
    assert corral.read_config(path, steps=128)["horizon"] == 640


def test_texts_survive(tmp_path: Path) -> None:
    odd = 'a "b" \\ \n \t \x7f \x01 é 😀 # x'
    path = toml(tmp_path, "", "odd.toml")
    path.write_text(config_text({"env": odd, "env_kwargs": {odd: [odd, None, {"x y": 1e-05}]}}))
    import tomllib

    found = tomllib.loads(path.read_text())
    assert found == {"env": odd, "env_kwargs": {odd: [odd, "none", {"x y": 1e-05}]}}
