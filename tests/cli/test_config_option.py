"""corral train --config and --print-config: what stands over what, and what is said of mistakes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from support.messages import shown

pytest.importorskip("torch", reason="needs the extra mappo")

from typer.testing import CliRunner

from corral.cli.app import app
from corral.cli.train_options import OPTIONS
from corral.trainers.driver import train
from corral.trainers.runs.run import load_run
from support.runs import trace_file, weights

CONFIG = """
env = "dfaas_v0"
steps = 64
seed = 3

[env_kwargs]
queue = 5
max_cycles = 30

[settings]
num_envs = 4
n_steps = 16
n_epochs = 1
gamma = 0.9
"""


def within(*arguments: str | Path, code: int = 0) -> str:
    """The output of ``corral train ARGUMENTS``, run in this process."""
    result = CliRunner().invoke(app, ["train", *map(str, arguments)], terminal_width=80)
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result.output


def written(folder: Path, text: str = CONFIG) -> Path:
    path = folder / "run.toml"
    path.write_text(text)
    return path


def test_the_command_line_stands_over_the_file_and_that_over_what_suits(tmp_path: Path) -> None:
    path = written(tmp_path)
    within("--config", path, "--gamma", "0.8", "--queue", "6", "--out", tmp_path / "run")
    config = load_run(tmp_path / "run").config
    assert (config.trainer, config.seed, config.steps) == ("mappo", 3, 64)
    assert (config.settings["gamma"], config.settings["num_envs"]) == (0.8, 4)
    assert config.env_config.env_kwargs["queue"] == 6
    assert config.env_config.env_kwargs["max_cycles"] == 30
    # What neither says is what suits the environment.
    suited = train("dfaas_v0", dry_run=True).config.settings
    assert config.settings["learning_rate"] == suited["learning_rate"]


def test_options_may_stand_before_or_after_the_file(tmp_path: Path) -> None:
    path = written(tmp_path)
    one = within("--gamma", "0.8", "--config", path, "--print-config")
    assert one == within("--config", path, "--print-config", "--gamma", "0.8")
    assert one == within("dfaas_v0", "--config", path, "--gamma=0.8", "--print-config")
    assert tomllib.loads(one)["settings"]["gamma"] == 0.8


def test_what_is_printed_makes_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trace_file(tmp_path)
    given = ("--config", written(tmp_path), "--trace", "small.csv", "--keep", "all")
    printed = within(*given, "--print-config")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.toml", "small.csv"]
    assert tomllib.loads(printed)["env_kwargs"]["trace"] == "small.csv"
    (tmp_path / "all.toml").write_text(printed)
    assert within("--config", "all.toml", "--print-config") == printed
    within(*given, "--out", "one")
    within("--config", "all.toml", "--out", "two")
    within("--config", Path("one", "config.json"), "--out", "three")
    one, two, three = (load_run(name) for name in ("one", "two", "three"))
    assert weights(one) == weights(two) == weights(three)
    assert one.config.canonical() == two.config.canonical() == three.config.canonical()
    assert one.config.keep == two.config.keep == three.config.keep == "all"


def test_what_is_printed_of_a_start_from_a_run_names_its_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    within("--config", written(tmp_path), "--trace", trace_file(tmp_path), "--out", "one")
    printed = within("dfaas_v0", "--init", "one", "--print-config")
    assert tomllib.loads(printed)["env_kwargs"]["trace"] == str(Path("one", "trace.csv.gz"))
    (tmp_path / "all.toml").write_text(printed)
    assert within("--config", "all.toml", "--print-config") == printed


MISTAKES = [
    (["--gama", "0.9"], "", "no option named '--gama'; did you mean '--gamma'?"),
    (["--gamma", "1.5"], "", "corral: --gamma 1.5: "),
    ([], "entropy = 1", "run.toml: [settings] no setting named 'entropy'"),
    ([], "clip_range = -1", "run.toml: clip_range = -1: "),
    ([], 'clip_range = "x"', "run.toml: clip_range = 'x': "),
    ([], "clip_range = \n", "run.toml is not valid TOML: Invalid value (at line 15, column 14)"),
    (["arena_v0"], "", "run.toml: [env_kwargs] no key named 'queue'"),
    (["--trainer", "sb3_ppo"], "huber_delta = 1.0", "trainer sb3_ppo has no huber_delta"),
    (["--horizon", "0"], "", "--horizon 0: give a whole number"),
    (["--stretch"], "", "--stretch requires --resume"),
]


@pytest.mark.parametrize(("options", "more", "message"), MISTAKES)
def test_mistakes_end_in_one_message(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    more: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, CONFIG + more)
    printed = within(*options, "--config", "run.toml", code=2)
    assert message in printed
    assert printed.startswith("corral: ")
    assert [path.name for path in tmp_path.iterdir()] == ["run.toml"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    printed = within("--config", tmp_path / "nowhere.toml", code=2)
    shown(printed, "nowhere.toml")


def test_a_run_that_goes_on_takes_no_file(tmp_path: Path) -> None:
    path = written(tmp_path)
    within("--config", path, "--out", tmp_path / "run")
    for option in (("--config", path), ("--print-config",)):
        printed = within("--resume", tmp_path / "run", *option, code=2)
        assert f"leave out {option[0]}" in printed


def test_an_environment_of_others_is_named_beside_the_file(tmp_path: Path) -> None:
    pytest.importorskip("pettingzoo.classic.tictactoe_v3", exc_type=ImportError)
    env, settings = "classic/tictactoe-v3", "[settings]\nnum_envs = 4\nn_steps = 16\n"
    path = written(tmp_path, f'env = "{env}"\nsteps = 64\n{settings}')
    assert f"corral train {env} --config {path}" in within("--config", path, code=2)
    within(env, "--config", path, "--out", tmp_path / "one")
    config = tmp_path / "one" / "config.json"
    assert f"corral train {env} --config {config}" in within("--config", config, code=2)
    within(env, "--config", config, "--out", tmp_path / "two")
    assert weights(tmp_path / "one") == weights(tmp_path / "two")


def test_every_option_is_an_argument_of_the_library() -> None:
    import inspect

    from corral.trainers.driver import resume

    names = {function: {*inspect.signature(function).parameters} for function in (train, resume)}
    for option in OPTIONS:
        argument = option.argument or option.name
        used = {"train": [train], "resume": [resume], "both": [train, resume], "command": []}
        for function in used[option.used]:
            assert argument in names[function], option.name


@pytest.mark.parametrize("preset", ["none", "auto"])
def test_a_pool_and_the_preset_none_go_through_a_file(preset: str, tmp_path: Path) -> None:
    given = ["tictactoe_v0", "--self-play", "past=0.5,every=64,keep=2", "--preset", preset]
    small = ["--num-envs", "4", "--n-steps", "16", "--steps", "64", "--trainer", "ippo"]
    path = written(tmp_path, within(*given, *small, "--print-config"))
    within("--config", path, "--out", tmp_path / "run")
    config = load_run(tmp_path / "run").config
    assert config.self_play is not None
    assert (config.self_play["past"], config.self_play["every"]) == (0.5, 64)
    assert (config.defaults["kind"] is not None) == (preset == "auto")
