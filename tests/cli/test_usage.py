"""Help, and mistakes of usage: other libraries' names, wrong order, wrong things, numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from corral.envs.registry import ENVIRONMENTS
from support.command import within
from support.messages import shown

COMMANDS = (
    *(
        ["envs"],
        ["trainers"],
        ["train"],
        ["evaluate"],
        ["replay"],
        ["rehearse"],
        ["export"],
        ["watch"],
        ["check"],
        ["doctor"],
        ["course"],
        [],
    ),
    *(["trace"], ["trace", "check"], ["trace", "show"], ["trace", "make"], ["trace", "import"]),
    *(["trace", "import", name] for name in ("series", "requests", "access-log")),
    ["trace", "import", "azure-functions"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_of_every_command_is_short_of_80_columns_and_of_private_words(
    command: list[str],
) -> None:
    text = within(*command, "-h")
    assert text == within(*command, "--help")
    assert max(map(len, text.splitlines())) <= 80
    assert not [
        line for line in text.splitlines() if line.startswith("  ") and line.endswith("...")
    ]
    for wrong in ("list[", " judge", "Judge", "leave a run behind", "(low, high)", "None"):
        assert wrong not in text, wrong


@pytest.mark.parametrize("trainer", ["mappo", "ippo", "sb3_ppo", "sb3_dqn", "rllib_ppo"])
@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_help_of_train_speaks_as_the_command_line_does(env: str, trainer: str) -> None:
    pytest.importorskip("torch", reason="needs the extra sb3")
    text = within("train", env, "--trainer", trainer, "--help")
    settings = text.partition("\nSettings of")[2]
    for wrong in ("(low, high)", "None", "True", "False", "max_cycles", "num_envs"):
        assert wrong not in settings, wrong


def test_help_lists_the_values_that_are_allowed() -> None:
    pytest.importorskip("torch", reason="needs the extra sb3")
    text = within("train", "dfaas_v0", "--help")
    shown(text, "--arrivals <known|unknown>")
    text = within("train", "dfaas_v0", "--trainer", "sb3_ppo", "--help")
    shown(text, "--vec-env <batch|supersuit>", "--rows <LOW:HIGH>")


def test_help_of_policy_iteration_lists_all_that_it_uses_and_no_empty_default() -> None:
    pytest.importorskip("torch", reason="needs the extra sb3")
    text = within("train", "dfaas_v0", "--trainer", "policy_iteration", "--help")
    for option in ("--num-envs", "--n-steps", "--gamma", "--learning-rate", "--n-epochs"):
        assert f"  {option} <" in text, option
    for option in ("--clip-range", "--memory", "--action-std", "--stay-target"):
        assert f"{option} <" not in text, option  # of ippo, and no use here
    assert "[default:]" not in "".join(text.split())
    assert "``" not in text


# --- Names ---------------------------------------------------------------------------------------

OPTIONS = (
    ("dfaas_v0", "sb3_ppo", "--total-timesteps", "did you mean '--steps'?"),
    ("dfaas_v0", "sb3_ppo", "--n-timesteps", "did you mean '--steps'?"),
    ("dfaas_v0", "sb3_ppo", "--n-envs", "did you mean '--num-envs'?"),
    ("dfaas_v0", "sb3_ppo", "--algo", "did you mean '--trainer'?"),
    ("dfaas_v0", "sb3_ppo", "--lr", "did you mean '--learning-rate'?"),
    ("dfaas_v0", "sb3_ppo", "--save-freq", "did you mean '--checkpoint-every'?"),
    ("dfaas_v0", "sb3_ppo", "--log-folder", "did you mean '--out'?"),
    ("dfaas_v0", "sb3_ppo", "--rollout-length", "did you mean '--n-steps'?"),
    ("dfaas_v0", "sb3_ppo", "--update-epochs", "did you mean '--n-epochs'?"),
    ("dfaas_v0", "sb3_ppo", "--clip-coef", "did you mean '--clip-range'?"),
    ("dfaas_v0", "sb3_ppo", "--num-minibatches", "did you mean '--batch-size'?"),
    ("dfaas_v0", "sb3_ppo", "--hidden-size", "did you mean '--net-arch'?"),
    ("dfaas_v0", "sb3_ppo", "--vf-loss-coeff", "did you mean '--vf-coef'?"),
    ("dfaas_v0", "sb3_ppo", "--max-episode-steps", "did you mean '--max-cycles'?"),
    ("dfaas_v0", "sb3_ppo", "--gama", "did you mean '--gamma'?"),
    ("dfaas_v0", "sb3_ppo", "--env-kwargs", "options, such as --queue 50"),
    ("dfaas_v0", "sb3_ppo", "--eval-freq", "corral evaluate RUN"),
    ("dfaas_v0", "sb3_ppo", "--tensorboard-log", "TensorBoard files"),
    ("dfaas_v0", "sb3_ppo", "--verbose", "progress.csv"),
    (
        "dfaas_v0",
        "sb3_ppo",
        "--memory",
        "sb3_ppo has no --memory; mappo, ippo, ppo_kl, a2c, pg and pg_episode have it",
    ),
    (
        "dfaas_v0",
        "mappo",
        "--vf-coef",
        "mappo has no --vf-coef; sb3_ppo, sb3_maskable_ppo, sb3_a2c",
    ),
    ("dfaas_v0", "mappo", "--batch-size", "--num-envs times --n-steps, is split into --n-minib"),
    ("dfaas_v0", "mappo", "--grad-clip", "did you mean '--max-grad-norm'?"),
    ("arena_v0", "mappo", "--clip-param", "did you mean '--clip-range'?"),
)


@pytest.mark.parametrize(("env", "trainer", "option", "message"), OPTIONS)
def test_options_of_other_libraries_are_understood(
    env: str, trainer: str, option: str, message: str
) -> None:
    pytest.importorskip("torch", reason="needs the extra sb3")
    printed = within("train", env, "--trainer", trainer, option, "32", code=2)
    assert message in printed
    assert f"--trainer {trainer} --help" in printed
    assert len(printed) < 500


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "dfaas"], "did you mean 'dfaas_v0'?"),
        (["train", "DFaaS-v0"], "did you mean 'dfaas_v0'?"),
        (["train", "tictactoe"], "did you mean 'tictactoe_v0'?"),
        (["train", "dfaas_v0", "--trainer", "MAPPO"], "did you mean 'mappo'?"),
        (["train", "dfaas_v0", "--trainer", "maskable_ppo"], "did you mean 'sb3_maskable_ppo'?"),
        (["train", "dfaas_v0", "--trainer", "ppo"], "did you mean 'ippo', 'mappo' or 'sb3_ppo'?"),
        (["evaluate", "run", "--n-eval-episodes", "3"], "did you mean '--episodes'?"),
        (["check", "arena_v0", "--width", "3"], "--arg name=value"),
        (["evaluate", "run", "--queue", "3"], "corral replay TRACE --policies RUN --queue"),
        (["evaluate", "run", "--width", "3"], "--arg name=value"),
        (["learn", "dfaas_v0"], "no command named 'learn'; did you mean 'train'?"),
        (["lern"], "did you mean 'train'?"),
        (["trace", "shw"], "did you mean 'show'?"),
    ],
)
def test_names_in_other_spellings(words: list[str], message: str) -> None:
    pytest.importorskip("torch", reason="needs the extra sb3")
    assert message in within(*words, code=2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train rps_v0 --lambda_ 1", "no option named '--lambda_'; did you mean '--gae-lambda'?"),
        ("train rps_v0 -n 5000", "no option named '-n'; did you mean '--steps'?"),
        ("train rps_v0 -f logs", "no option named '-f'; did you mean '--out'?"),
        ("train rps_v0 -i best.zip", "did you mean '--resume'?"),
        ("train rps_v0 -P", "no option named '-P'. Progress"),
        ("train rps_v0 -conf x.yml", "options, such as --gamma 0.9."),
        ("train rps_v0 --hyperparams gamma:0.9", "options, such as --gamma 0.9."),
        ("train rps_v0 --exp-name x", "did you mean '--out'?"),
        ("train rps_v0 --optimize", "corral tune"),
        ("train rps_v0 --norm-adv", "Advantages are always normalized."),
        ("train rps_v0 tictactoe_v0", "'tictactoe_v0'"),
        ("train rps_v0 --net-arch 64 64", "--net-arch 64 64: give 64,64"),
        ("train rps_v0 --net-arch dict(pi=[64])", "give whole numbers with commas, such as 64,64"),
        ("train rps_v0 --learning-rate lin_0.001", "such as 0.001; --anneal lowers it linearly"),
        ("train rps_v0 --policies-to-train foo", "--policies-to-train foo: "),
        ("train rps_v0 --help-all", "did you mean '--help'?"),
        ("train Cartpole-v1", "did you mean 'CartPole-v1'"),
        ("train my_env:tag --size 7", "--arg size=VALUE"),
        ("train my_env:tag --max-cycles 7", "--arg max_cycles=VALUE"),
        ("evaluate x -n 500", "no option named '-n'. See corral evaluate --help"),
        ("evaluate x --load-best", "RUN@best."),
        ("evaluate x --load-checkpoint 2048", "RUN@2048."),
        ("watch rps_v0 --load-best", "RUN@best."),
        ("watch rps_v0 --no-render", "--ansi prints an episode as text, --out FILE.gif"),
        ("watch rps_v0 --record-video", "--out FILE.gif"),
        ("enjoy", "corral watch RUN shows a run, corral evaluate RUN scores it"),
        ("record_video", "corral watch RUN --out clip.gif"),
        ("plot", "holds progress.csv"),
        ("export dfaas_v0", "corral train dfaas_v0 makes a run to export"),
        ("optimize", "no command named 'optimize': corral tune ENV searches settings"),
        ("resume runs/a", "corral train --resume RUN --steps N"),
        ("tensorboard", "holds progress.csv"),
        ("version", "corral --version"),
        ("--help-all", "did you mean '--help'?"),
    ],
)
def test_habits_of_other_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, message: str
) -> None:
    pytest.importorskip("torch", reason="needs the extra sb3")
    monkeypatch.chdir(tmp_path)
    printed = within(*words.split(), code=2)
    assert message in printed
    assert printed.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_arguments_of_a_third_party_environment_are_given_by_arg() -> None:
    pytest.importorskip("torch", reason="needs the extra sb3")
    where = "support.zoo_envs:FaultyEnv"
    printed = within("train", where, "--fault", "die", code=2)
    assert f"--fault is an argument of {where}: give --arg fault=VALUE" in printed


# --- Order, and things of another kind -----------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that looks like that of a run."""
    made = tmp_path / "made"
    made.mkdir()
    (made / "config.json").write_text("{}")
    return made


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train"], "as in: corral train dfaas_v0"),
        (["train", "RUN"], "is the folder of a run, not an environment: corral train --resume RUN"),
        (["train", "mappo", "dfaas_v0"], "is a trainer, not an environment: corral train ENV"),
        (["train", "edge3"], "is a trace, not an environment: corral train dfaas_v0 --trace edge3"),
        (["train", "dfaas_v0", "mappo"], "'mappo' has no option before it; give --trainer mappo"),
        (["train", "dfaas_v0", "trainer=mappo"], "give --trainer mappo"),
        (["train", "dfaas_v0", "-trainer", "mappo"], "two dashes; give --trainer"),
        (["train", "--queue", "5", "arena_v0"], "environment first, as in: corral train arena_v0"),
        (["train", "--resume", "dfaas_v0"], "is an environment, not the folder of a run"),
        (["evaluate"], "corral evaluate runs/NAME"),
        (["evaluate", "dfaas_v0"], "not the folder of a run: corral train dfaas_v0 makes a run"),
        (["evaluate", "edge3"], "corral evaluate RUN --trace edge3"),
        (["replay"], "corral replay edge3"),
        (["replay", "RUN"], "corral replay edge3 --policies RUN, or corral evaluate RUN"),
        (["replay", "dfaas_v0"], "is an environment, not a trace"),
        (["rehearse", "RUN"], "corral rehearse edge3 --policies RUN"),
        (["watch", "mappo"], "is a trainer, not an environment or the folder of a run"),
        (["check", "RUN"], "is the folder of a run, not an environment: corral evaluate RUN"),
        (["envs", "mappo"], "corral trainers mappo"),
        (["trainers", "dfaas_v0"], "corral envs dfaas_v0"),
        (["dfaas_v0"], "dfaas_v0 is not a command; type corral train dfaas_v0"),
        (["dfaas_v0", "train"], "the command comes first: corral train dfaas_v0"),
        (["--steps", "3", "train"], "'--steps' before a command"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_the_message_says_what_to_type(folder: Path, words: list[str], message: str) -> None:
    pytest.importorskip("torch", reason="needs the extra sb3")
    printed = within(*(str(folder) if word == "RUN" else word for word in words), code=2)
    assert message.replace("RUN", str(folder) if "RUN" in words else "RUN") in printed
    assert printed.count("\n") == 1


# --- Numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", ["1.28e2", "1_28", "128"])
def test_steps_are_whole_numbers_in_any_spelling(tmp_path: Path, steps: str) -> None:
    pytest.importorskip("torch", reason="needs the extra sb3")
    small = (
        "--seed",
        "1e3",
        "--num-envs",
        "1e0",
        "--n-steps",
        "6_4",
        "--max-cycles",
        "1e1",
        "--n-epochs",
        "1",
    )
    printed = within("train", "arena_v0", "--steps", steps, "--out", tmp_path / "run", *small)
    shown(printed, 128, 1000)


@pytest.mark.parametrize("steps", ["1.5", "1e-2", "many", "true", "1,2", ""])
def test_steps_that_are_no_whole_number(tmp_path: Path, steps: str) -> None:
    printed = within("train", "arena_v0", "--steps", steps, "--out", tmp_path / "run", code=2)
    shown(printed, repr(steps), "100_000", "1e5")
    assert "example" not in printed
    shown(within("replay", "edge3", "--window", "x", code=2), "--window")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "rps_v0", "--gamma"], "--gamma: give a value after it"),
        (["train", "rps_v0", "--learning-rate", "--out", "x"], "--learning-rate: give a value"),
        (["train", "dfaas_v0", "--forward-cost"], "--forward-cost: give a value after it"),
        (["watch", "dfaas_v0", "--queue"], "--queue: give a value after it"),
        (["train", "rps_v0", "--gamma", "true"], "--gamma true: "),
        (["train", "dfaas_v0", "--load-scale", "true"], "--load-scale true: give a finite number"),
        (["watch", "dfaas_v0", "--wait-cost", "true"], "--wait-cost true: give a finite number"),
        (
            ["train", "rps_v0", "--learning-rate", "0,001"],
            "--learning-rate '0,001': ",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_numbers_that_are_none_come_back_as_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    pytest.importorskip("torch", reason="needs the extra sb3")
    monkeypatch.chdir(tmp_path)
    assert message in within(*words, code=2)
    assert list(tmp_path.iterdir()) == []


# --- Tracebacks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [["--traceback", "envs", "dfaas_v1"], ["envs", "dfaas_v1", "--traceback"]]
)
def test_a_traceback_on_demand(words: list[str]) -> None:
    printed = within(*words, code=2)
    shown(printed, "Traceback (most recent call last)")
    shown(printed.splitlines()[-1], "corral", "'dfaas_v1'", "'dfaas_v0'")
    assert "Traceback" not in within("envs", "dfaas_v1", code=2)


FAULTY = """
from support.zoo_envs import *

def missing(**arguments):
    import no_such_module

def refuses(pile=3):
    raise ValueError("too \\x1b[31mhigh a pile")

def divides():
    return 1 / 0
"""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("refuses", r"corral: ValueError in PLACE:8: too \x1b[31mhigh a pile"),
        ("divides", "corral: ZeroDivisionError in PLACE:11: division by zero"),
        ("missing", "corral: ModuleNotFoundError in PLACE:5: No module named 'no_such_module'"),
    ],
)
def test_errors_of_somebody_elses_code_keep_their_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, message: str
) -> None:
    pytest.importorskip("torch", reason="needs the extra sb3")
    (tmp_path / "faulty_games.py").write_text(FAULTY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "faulty_games", raising=False)
    printed = within("train", f"faulty_games:{function}", "--out", tmp_path / "run", code=1)
    assert f"in {function}" in printed
    assert printed.splitlines()[-1] == message.replace("PLACE", str(tmp_path / "faulty_games.py"))
    assert "\x1b" not in printed


def test_a_module_that_is_not_there_is_a_mistake_of_one_line() -> None:
    printed = within("check", "no_such_module:env", code=2)
    assert printed.startswith(
        "corral: environment 'no_such_module:env': no module named 'no_such_module'; give"
    )
    assert printed.count("\n") == 1


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "corral", "--version"], capture_output=True)
    assert done.returncode == 0
    assert done.stdout.decode() == within("--version")


def test_the_list_of_trainers_says_which_can_learn_here(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="needs the extra mappo")
    monkeypatch.setattr("corral.trainers.base.LEARNS_WITH", {"benchmarl": "no_such_module"})
    lines = within("trainers").splitlines()
    here = {line.split()[0]: line for line in lines if line.strip()}
    shown(here["mappo"], "yes", "default")
    shown(here["pg"], "yes")
    shown(here["benchmarl_iql"], "benchmarl")
    assert "yes" not in here["benchmarl_iql"]
