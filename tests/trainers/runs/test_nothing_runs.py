"""Whatever a file of a run, or a settings file, says: nothing is imported or run because of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corral.data import write_trace
from corral.trainers.driver import train
from corral.trainers.runs.env_config import is_remade_by_id
from corral.trainers.runs.run_config import HARMLESS
from support.command import ENVIRONMENT
from support.loads import small_trace
from support.planted import FILE, MODULE, SECRET, places_in

TESTS = Path(__file__).parents[2]
CODE = "from pathlib import Path\nPath('zqplant_ran').touch()\ndef boom(*_, **__): ...\n"
EVALUATE = ("evaluate", "run", "--policies", "random", "--optimum-windows", "0")
PRINT = ("train", "--config", "run/config.json", "--print-config")
OTHERS = (
    ("train", "--resume", "run"),
    ("doctor", "run", "--no-audit", "--no-clone"),
    ("export", "run", "--format", "numpy", "--out", "exported"),
    ("watch", "run", "--steps", "1", "--ansi"),
    ("replay", "zq_load.csv", "--policies", "run", "--out", "replayed"),
    ("compare", "run", "--against", "other"),
    ("train", "dfaas_v0", "--init", "run", "--print-config"),
)


def world(folder: Path) -> Path:
    """A folder with a run of dfaas_v0, a module and a file that must not be run, and a secret."""
    write_trace(small_trace(), folder / "zq_load.csv")
    small = {"num_envs": 4, "n_steps": 16, "n_epochs": 1, "net_arch": (16,)}
    load = {"trace": str(folder / "zq_load.csv"), "max_cycles": 5}
    train("dfaas_v0", steps=128, env_kwargs=load, out=folder / "run", progress=False, **small)
    shutil.copytree(folder / "run", folder / "other")
    for name in (f"{MODULE}.py", FILE):
        (folder / name).write_text(CODE, encoding="utf-8")
    write_trace(small_trace(), folder / SECRET)
    return folder


def taken(folder: Path, **plan: Any) -> list[dict[str, Any]]:
    """The texts that were taken for code, or for files, under a plan of ``support.planted``."""
    path = folder / "plan.json"
    path.write_text(json.dumps({"folder": str(folder), **plan}), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(TESTS / "support" / "planted.py"), str(path)],
        env={**ENVIRONMENT, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert rows.pop()["done"] >= len(plan["places"]) * len(plan["commands"])
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return world(tmp_path_factory.mktemp("planted"))


KEYS = ("reward_fn", "trace", "templates", "callbacks", "sinks", "metrics", "model", "trainer")
"""Of which some stand in no file, and may be planted in any table."""


def places(values: dict[str, Any]) -> list[list[Any]]:
    """Where texts are planted: at every value, and under keys that are not there."""
    tables = [[], *([name] for name, value in values.items() if isinstance(value, dict))]
    more = [[*table, key] for table in tables for key in KEYS]
    return [*map(list, places_in(values)), *more]


def telling(values: dict[str, Any]) -> list[list[Any]]:
    """Where values stand, without those that a run may change (versions and the like): they are
    told, not used, and a command goes on to its end."""
    return [list(place) for place in places_in(values) if place[0] not in HARMLESS]


def config(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run" / "config.json").read_text())
    return found


def test_the_watch_sees_what_is_typed(tmp_path: Path) -> None:
    """The watch can fail: what a person types is imported and opened."""
    world(tmp_path)
    (tmp_path / "typed.json").write_text(json.dumps({"versions": {"corral": "1"}}))
    plan = {"file": "typed.json", "places": [["versions"]], "texts": ["module"], "warm": False}
    typed = {"--reward-fn": (f"{MODULE}:boom", "exec"), "--trace": (SECRET, "open")}
    train = ("train", "dfaas_v0", "--print-config")
    commands = [[*train, option, argument] for option, (argument, _) in typed.items()]
    rows = taken(tmp_path, commands=commands, **plan)
    assert [row["command"] for row in rows] == commands
    for row, (_, kind) in zip(rows, typed.values(), strict=True):
        assert any(each.startswith(kind) for each in row["taken"])
    assert (tmp_path / "zqplant_ran").exists()


@pytest.mark.slow
def test_no_value_of_a_config_is_run(folder: Path) -> None:
    work = copy(folder, "quick")
    plan = {"file": "run/config.json", "places": places(config(work)), "texts": ["module"]}
    assert taken(work, commands=[EVALUATE], sign=True, **plan) == []
    assert not (work / "zqplant_ran").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("command", "sign"), [(EVALUATE, True), (EVALUATE, False), (PRINT, False)])
def test_no_text_in_a_config_is_run(folder: Path, command: tuple[str, ...], sign: bool) -> None:
    work = copy(folder, f"{command[0]}-{sign}")
    texts = ["whole module", "function", "file of a trace"]
    plan = {"file": "run/config.json", "places": telling(config(work)), "texts": texts}
    assert taken(work, commands=[command], sign=sign, **plan) == []
    assert not (work / "zqplant_ran").exists()


@pytest.mark.slow
@pytest.mark.parametrize("command", OTHERS, ids=" ".join)
def test_no_other_command_runs_a_config(folder: Path, command: tuple[str, ...]) -> None:
    work = copy(folder, "-".join(command).replace("/", "-"))
    plan = {"file": "run/config.json", "places": telling(config(work)), "texts": ["module"]}
    assert taken(work, commands=[command], sign=True, **plan) == []
    assert not (work / "zqplant_ran").exists()


ID = "CartPole-v1"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (ID, True),
        (f"gymnasium:{ID}", False),
        (f"{MODULE}:{ID}", False),
        (f"{MODULE}:boom", False),
        (f"{FILE}:boom", False),
        (MODULE, False),
        (None, False),
        ([ID], False),
    ],
)
def test_of_all_texts_only_an_installed_id_is_resolved(
    tmp_path: Path, source: Any, found: bool
) -> None:
    run = train(ID, steps=64, out=tmp_path / "run", num_envs=2, n_steps=16, n_epochs=1)
    (tmp_path / f"{MODULE}.py").write_text(CODE, encoding="utf-8")
    (tmp_path / FILE).write_text(CODE, encoding="utf-8")
    values = json.loads((run.folder / "config.json").read_text())
    assert values["source"] == ID
    (run.folder / "config.json").write_text(json.dumps({**values, "source": source}))
    code = "from corral.trainers.runs.env_config import given_again\nimport json\n" + (
        "from pathlib import Path\nvalues = json.loads(Path('run/config.json').read_text())\n"
        "try: print(given_again(values, Path('run')).name)\n"
        "except Exception as error: print(type(error).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.stdout.split() == [values["env"] if found else "EnvNeededError"], done.stderr
    assert not (tmp_path / "zqplant_ran").exists()


@pytest.mark.parametrize("value", ["x", ["x"], {"a": "x"}, [1]])
def test_an_id_with_other_arguments_than_numbers_is_not_resolved(value: Any) -> None:
    assert is_remade_by_id(ID, {"a": 1, "b": 0.5, "c": True, "d": None})
    assert not is_remade_by_id(ID, {"a": value})
    assert not is_remade_by_id(ID, [value])


@pytest.mark.slow
def test_no_value_of_a_settings_file_is_run(folder: Path) -> None:
    work = copy(folder, "settings")
    values = {
        "env": "dfaas_v0",
        "trainer": "mappo",
        "steps": 128,
        "seed": 1,
        "init": None,
        "opponents": {"node_0": "local"},
        "policies": {"node_1": "shared", "node_2": "shared"},
        "self_play": None,
        "settings_of": {"shared": {"gamma": 0.5}},
        "env_kwargs": {"trace": "zq_load.csv", "max_cycles": 5, "reward_fn": None, "rows": [0, 20]},
        "settings": {"num_envs": 4, "net_arch": [16], "activation": "tanh"},
    }
    (work / "settings.json").write_text(json.dumps(values), encoding="utf-8")
    texts = ["module", "trace"]
    plan = {"file": "settings.json", "places": places(values), "texts": texts}
    words = ("train", "--config", "settings.json", "--print-config")
    assert taken(work, commands=[words], **plan) == []
    assert not (work / "zqplant_ran").exists()


def copy(folder: Path, name: str) -> Path:
    work = folder.with_name(f"{folder.name}-{name}")
    shutil.copytree(folder, work)
    return work
