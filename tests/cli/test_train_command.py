"""corral train and corral trainers: options of two origins, signals, what is printed, mistakes."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from corral.cli.options import opponents_of, settings_of_policies
from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra sb3")
pytest.importorskip("psutil")

import psutil
from typer.testing import CliRunner

from corral.cli.app import app
from corral.cli.help import text_of
from corral.cli.output import last_of
from corral.envs.registry import make_rules, rules_class
from corral.trainers.base import trainer_class
from corral.trainers.driver import resume
from corral.trainers.kinds import defaults_for
from corral.trainers.runs.run import load_run
from corral.trainers.sb3.settings import SB3A2CSettings, SB3DQNSettings, SB3Settings
from corral.trainers.settings import about
from support.command import run as command
from support.runs import OPTIONS, everything, rows, small_run, start, trace_file, wait_for_rows


def within(*arguments: str | Path, code: int = 0) -> str:
    """The output of ``corral ARGUMENTS``, run in this process."""
    result = CliRunner().invoke(app, [*map(str, arguments)], terminal_width=80)
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result.output


def require_80_columns(printed: str) -> None:
    """Of all lines but those with paths, which are printed whole."""
    lines = [line for line in printed.splitlines() if "/" not in line or "/s)" in line]
    assert lines
    assert max(map(len, lines)) <= 80, max(lines, key=len)


# --- Options -------------------------------------------------------------------------------------


def test_a_run_from_the_command_line(tmp_path: Path) -> None:
    printed = command(
        *("train", "dfaas_v0", "--trace", trace_file(tmp_path), "--steps", "128", "--seed", "3"),
        *("--out", tmp_path / "run", *OPTIONS),
    )
    require_80_columns(printed)
    shown(printed, "sb3_ppo", "dfaas_v0", 3)
    shown(printed, "small", "0:28", "28:40")  # they hold no two windows of 288 steps
    shown(printed, 64, 128)  # progress, where there is no terminal
    ended = int(load_run(tmp_path / "run").progress["episodes"].iloc[-1])
    assert 1 < ended <= 100
    shown(printed, ended, f"corral evaluate {tmp_path / 'run'}")
    same = small_run(
        tmp_path / "same", env_kwargs={"trace": str(tmp_path / "small.csv")}, updates=2, seed=3
    )
    assert everything(tmp_path / "run") == everything(same)


@pytest.mark.parametrize(
    ("episodes", "said"),
    [(1, "1 episode"), (100, "100 episodes"), (1234, "the last 100 of 1,234 episodes")],
)
def test_a_summary_says_which_episodes_it_is_over(episodes: int, said: str) -> None:
    assert last_of(episodes) == said


def test_a_summary_says_if_the_return_rose(tmp_path: Path) -> None:
    words = ("probe_p05_v0", "--steps", "3072", "--num-envs", "8", "--n-steps", "32")
    words += ("--preset", "none", "--net-arch", "16", "--gamma", "0", "--learning-rate", "0.01")
    shown(within("train", *words, "--out", tmp_path / "run"), "rose", "p")
    few = within("train", *words[:2], "256", *words[3:], "--out", tmp_path / "few")
    assert "rose" not in few
    assert "fell" not in few


def test_options_are_settings_and_arguments(tmp_path: Path) -> None:
    printed = within(
        *("train", "dfaas_v0", "--trace", trace_file(tmp_path), "--steps", "64"),
        *("--out", tmp_path / "run", *OPTIONS, "--trainer=sb3_maskable_ppo"),
        *("--queue", "5", "--gamma=0.9", "--no-second-offer", "--net-arch", "16,8"),
        *("--rows", "0:20", "--held-out", "30:40", "--no-anneal", "--load-scale", "20"),
        *("--target-kl", "none", "--reward", "team", "--link-limit=none", "--max-level", "10"),
        *("--policies", "node_0=a, node_1=b,node_2=a", "--policies-to-train", "b"),
    )
    require_80_columns(printed)
    config = load_run(tmp_path / "run").config
    arguments = config.env_config.env_kwargs
    assert {key: arguments[key] for key in ("queue", "second_offer", "rows", "load_scale")} == {
        "queue": 5,
        "second_offer": False,
        "rows": (0, 20),
        "load_scale": 20,
    }
    assert (arguments["reward"], arguments["link_limit"], arguments["max_level"]) == (
        "team",
        None,
        10,
    )
    assert config.env_config.held_out == {"rows": (30, 40)}
    settings = config.settings
    assert (settings["gamma"], settings["net_arch"]) == (0.9, [16, 8])
    assert settings["anneal"] is False
    assert settings["target_kl"] is None
    assert config.trainer == "sb3_maskable_ppo"
    assert config.policies == {"node_0": "a", "node_1": "b", "node_2": "a"}
    assert config.policies_to_train == ("b",)


def test_capacity_as_a_multiple_of_the_load(tmp_path: Path) -> None:
    lines = ["time,node,arrivals"]
    lines += [
        f"{t},{node},{5 + (t * n) % 7}" for t in range(30) for n, node in ((2, "a"), (3, "b"))
    ]
    (tmp_path / "loads.csv").write_text("\n".join(lines) + "\n")
    arguments = ("train", "dfaas_v0", "--trace", tmp_path / "loads.csv", "--steps", "64", *OPTIONS)
    assert "--capacity" in within(*arguments, "--out", tmp_path / "run", code=2)
    within(*arguments, "--capacity", "1.25x", "--out", tmp_path / "run")
    assert load_run(tmp_path / "run").config.env_config.env_kwargs["capacity"] == "1.25x"


def test_rows_that_are_judged_again_are_not_called_held_out(tmp_path: Path) -> None:
    arguments = ("train", "dfaas_v0", "--trace", trace_file(tmp_path), "--steps", "64", *OPTIONS)
    printed = within(*arguments, "--held-out", "0", "--out", tmp_path / "run")
    assert "held out" not in printed
    shown(" ".join(printed.split()), "0:40 to train on, none for validation, 0:40")
    require_80_columns(printed)


def test_rows_for_validation(tmp_path: Path) -> None:
    arguments = ("train", "dfaas_v0", "--trace", trace_file(tmp_path), "--steps", "64", *OPTIONS)
    arguments = (*arguments, "--max-cycles", "6")
    printed = within(*arguments, "--out", tmp_path / "run")
    shown(printed, "small", "0:22", "22:28", "28:40")
    printed = within(*arguments, "--validation", "0:12", "--out", tmp_path / "other")
    shown(printed, "small", "12:28", "0:12", "28:40")
    assert load_run(tmp_path / "other").config.env_config.validation == {"rows": (0, 12)}
    within(*arguments, "--validation", "0", "--out", tmp_path / "none")
    assert load_run(tmp_path / "none").config.env_config.validation == {}
    shown(within(*arguments, "--validation", "0.1.2", code=2), "--validation 0.1.2")
    told = within("train", "--resume", tmp_path / "run", "--validation", "0", code=2)
    shown(told, "--resume", "--validation")


MISTAKES: list[tuple[list[str], str]] = [
    (["train"], "name an environment, as in: corral train dfaas_v0 (corral envs lists them)"),
    (["train", "dfaas_v1"], "did you mean 'dfaas_v0'"),
    (
        ["train", "--queue", "5", "dfaas_v0"],
        "name the environment first, as in: corral train dfaas",
    ),
    (["train", "dfaas_v0", "--trainer", "sb3_po"], "did you mean 'sb3_ppo'"),
    (["train", "dfaas_v0", "--gama", "0.9"], "'--gama'; did you mean '--gamma'"),
    (["train", "dfaas_v0", "--que=5"], "'--que'; did you mean '--queue'"),
    (["train", "dfaas_v0", "--no-queues"], "no option named '--no-queues'"),
    (["train", "dfaas_v0", "5"], "'5'"),
    (["train", "dfaas_v0", "--gamma", "1.5"], "--gamma 1.5: "),
    (["train", "dfaas_v0", "--gamma", "high"], "--gamma 'high': "),
    (["train", "dfaas_v0", "--num-envs", "2.5"], "--num-envs 2.5: give a whole number"),
    (["train", "dfaas_v0", "--net-arch", "x"], "--net-arch x: give whole numbers with commas"),
    (["train", "dfaas_v0", "--anneal", "maybe"], "--anneal 'maybe': "),
    (["train", "dfaas_v0", "--queue", "-1"], "--queue -1: give a whole number"),
    (["train", "dfaas_v0", "--trace", "nowhere.csv"], "nowhere.csv"),
    (["train", "dfaas_v0", "--stepz", "9"], "no option named '--stepz'; did you mean '--steps'?"),
    (["train", "dfaas_v0", "--steps", "0"], "--steps 0: give a whole number"),
    (["train", "dfaas_v0", "--checkpoint-every", "0"], "--checkpoint-every 0: give"),
    (["train", "dfaas_v0", "--held-out", "1.5"], "--held-out 1.5: give a share"),
    (["train", "dfaas_v0", "--held-out", "much"], "--held-out much: give a share"),
    (["train", "dfaas_v0", "--policies", "both"], "--policies 'both': "),
    (["train", "dfaas_v0", "--policies", "node_0=a"], "the agents are"),
    (["train", "dfaas_v0", "--policies-to-train", "node_0"], "--policies-to-train node_0: "),
    (["train", "probe_p04_v0", "--trainer", "corral.algorithms:gae"], "corral.algorithms:gae"),
    (
        ["train", "probe_p04_v0", "--policies", "separate", "--set", "agent_0.lr=1"],
        "agent_0: no setting named 'lr'; did you mean 'learning_rate'?",
    ),
    (
        ["train", "probe_p04_v0", "--policies", "separate", "--set", "agent_0.num_envs=4"],
        "agent_0.num_envs",
    ),
    (
        ["train", "probe_p04_v0", "--policies", "separate", "--set", "agent_0.anneal=maybe"],
        "--anneal 'maybe': ",
    ),
    (["train", "--resume", "nowhere"], "nowhere is not a run: it does not exist"),
    (["train", "--resume", "nowhere", "--gamma", "0.9"], "leave out --gamma"),
    (["train", "dfaas_v0", "--resume", "nowhere"], "leave out dfaas_v0"),
    (["trainers", "sb3_po"], "did you mean 'sb3_ppo'"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=lambda value: str(value)[:60])
def test_mistakes_end_in_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = within(*arguments, code=2)
    assert message in printed
    assert printed.startswith("corral: ")
    assert list(tmp_path.iterdir()) == []


def test_on_and_off_are_values_as_help_prints_them() -> None:
    given = settings_of_policies(["a.anneal=off", "a.agent_id=on"])
    assert given == {"a": {"anneal": False, "agent_id": True}}


def test_a_run_needs_a_folder_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    printed = within("train", "rps_v0", "--steps", "64", "--out", tmp_path / "file", code=2)
    assert printed.startswith(f"corral: {tmp_path / 'file'} ")


def test_settings_given_on_resuming_are_refused(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", updates=1)
    for word in ("--seed", "--trainer", "--policies", "--policies-to-train", "--held-out", "--out"):
        value = "7" if word == "--seed" else "sb3_maskable_ppo"
        printed = within("train", "--resume", run.folder, word, value, code=2)
        assert f"leave out {word}" in printed
    printed = within("train", "--resume", run.folder, "--steps", "128")
    assert [row["env_steps"] for row in rows(run)] == ["64", "128"]
    require_80_columns(printed)


# --- corral trainers -----------------------------------------------------------------------------


def test_trainers_are_listed_and_explained() -> None:
    printed = within("trainers")
    require_80_columns(printed)
    of_sb3 = {"sb3_ppo": SB3Settings, "sb3_maskable_ppo": SB3Settings}
    of_sb3 |= {"sb3_a2c": SB3A2CSettings, "sb3_dqn": SB3DQNSettings}
    for name, settings in of_sb3.items():
        assert name in printed
        manual = within("trainers", name)
        require_80_columns(manual)
        for field in dataclasses.fields(settings):
            option = "--" + field.name.replace("_", "-")
            row = next(line for line in manual.splitlines() if line.split()[:1] == [option])
            default = field.default
            assert row.split()[1] == text_of(default)
            assert len(row.split()) > 2
        shown(manual, "dfaas_v0", "gamma 0.5")
        # It plays no game in turns: what suits those is none of its defaults.
        assert "tictactoe_v0" not in manual
    manual = within("trainers", "mappo")
    for env in ("dfaas_v0", "tictactoe_v0", "tiles_v0"):
        shown(manual, env)


@pytest.mark.parametrize(("env", "trainer"), [("dfaas_v0", "mappo"), ("tictactoe_v0", "sb3_ppo")])
def test_help_lists_all_that_can_be_set(env: str, trainer: str) -> None:
    # The default is the value that the setting has here: that of the environment, if it has one.
    printed = within("train", env, "--trainer", trainer, "--gamma", "0.9", "--help")
    require_80_columns(printed)
    settings, _, arguments = printed.partition(f"Settings of {trainer}:")[2].partition(
        f"Arguments of {env}:"
    )
    suited = defaults_for(make_rules(env), trainer_class(trainer), seed=0).settings
    for field in dataclasses.fields(trainer_class(trainer).Settings):
        entry = entry_of(settings, field.name)
        assert about(field)["help"].split()[0] in entry
        default = suited.get(field.name, field.default)
        assert f": {text_of(default)}]" in entry or "none:" in entry
    parameters = inspect.signature(rules_class(env)).parameters
    for name, parameter in parameters.items():
        listed = name not in ("illegal", "keep_flow")
        assert (f"--{name.replace('_', '-')} " in arguments) == listed
        if listed:
            entry = entry_of(arguments, name)
            told = f"[default: {text_of(parameter.default)}]"
            assert told in entry or re.search(r"default: the\b|none:", entry)
            assert len(entry.split()) > 6


def entry_of(printed: str, name: str) -> str:
    """The entry of an option in a page of help, on one line."""
    option = "--" + name.replace("_", "-")
    entries = re.split(r"\n  (?=--)", printed)
    found = next(entry for entry in entries if entry.split()[:1] == [option])
    return " ".join(found.split())


def test_help_says_where_more_is() -> None:
    printed = within("train", "--help")
    shown(printed, "mappo", "corral train dfaas_v0 --help")
    shown(within("train", "dfaas", "--help"), "'dfaas_v0'")
    shown(within("train", "dfaas_v0", "--trainer", "mapo", "--help"), "'mappo'")
    shown(within("train", "some.module:env", "--help"), "--arg key=value")


# --- Signals -------------------------------------------------------------------------------------

STEPS = 64 * 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "workers", "to_all"),
    [
        (signal.SIGINT, 0, False),
        (signal.SIGTERM, 0, False),
        (signal.SIGINT, 2, True),  # Ctrl-C in a terminal reaches the workers too
        (signal.SIGTERM, 2, True),
    ],
)
def test_a_signal_ends_training_with_a_checkpoint(
    tmp_path: Path, number: int, workers: int, to_all: bool
) -> None:
    folder = tmp_path / "run"
    vec_env = ("--vec-env", "supersuit", "--cpus", workers) if workers else ()
    given = (*("--trace", trace_file(tmp_path), "--steps", STEPS), *OPTIONS, *vec_env)
    process = start("train", "dfaas_v0", "--out", folder, *map(str, given))
    wait_for_rows(folder, 2, process)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) == workers
    (os.killpg if to_all else os.kill)(process.pid, number)
    try:
        printed = process.communicate(timeout=300)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert "Traceback" not in printed
    assert process.returncode == 128 + number
    assert not any(child.is_running() for child in children)
    done = int(rows(folder)[-1]["env_steps"])
    shown(printed, f"{done:,}", f"corral train --resume {folder}")
    assert 128 <= done < STEPS
    assert load_run(folder).policies["node_0"] is not None
    resume(folder, steps=done + 64)
    assert int(rows(folder)[-1]["env_steps"]) == done + 64


@pytest.mark.slow
def test_workers_do_not_outlive_a_kill(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    given = ("--trace", trace_file(tmp_path), "--vec-env", "supersuit", "--cpus", "2", *OPTIONS)
    process = start("train", "dfaas_v0", "--out", folder, *given)
    wait_for_rows(folder, 1, process)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) == 2
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(children, timeout=120)
    for child in alive:
        child.kill()
    assert alive == []


def test_config_is_plain_json(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", updates=1)
    values: dict[str, Any] = json.loads((run.folder / "config.json").read_text())
    assert values["format"] == 2
    assert values["env_kwargs"]["trace"]["file"] == "trace.csv.gz"


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        (["a=random,b=perfect"], {"a": "random", "b": "perfect"}),
        (["a=random:2,perfect:1,b=x"], {"a": "random:2,perfect:1", "b": "x"}),
        (["a=random, perfect", "b=runs/c@best"], {"a": "random,perfect", "b": "runs/c@best"}),
        (["a=random,runs/lr=3e-4:2,b=y"], {"a": "random,runs/lr=3e-4:2", "b": "y"}),
        ([r"a=C:\runs\lr=1"], {"a": r"C:\runs\lr=1"}),
    ],
)
def test_opponents_of_several_agents_and_mixes(pairs: list[str], expected: Any) -> None:
    assert opponents_of(pairs) == expected


@pytest.mark.parametrize("pairs", [["a"], ["a=x", "random"], ["=x"], ["a="], ["a=x,a=y"]])
def test_opponents_without_an_agent_or_twice(pairs: list[str]) -> None:
    with refused(ValueError, "--opponent"):
        opponents_of(pairs)
