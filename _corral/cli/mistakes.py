"""Messages for usage mistakes: wrong options, commands or names, and what to type instead."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from corral.hints import answer, hint, meant
from corral.text import pasted

__all__ = ["SHORT", "expect", "kind_of", "option_of", "unknown_command", "unknown_option", "usage"]

EXAMPLES = {
    "train": "corral train dfaas_v0",
    "clone": "corral clone dfaas_v0 --from overflow/equal",
    "record": "corral record dfaas_v0 --policies overflow --out steps.npz",
    "evaluate": "corral evaluate runs/NAME",
    "runs": "corral runs --sort return",
    "compare": "corral compare runs/a-seed* --against runs/b-seed*",
    "duel": "corral duel runs/NAME runs/OTHER random",
    "watch": "corral watch arena_v0",
    "check": "corral check arena_v0",
    "course": "corral course 4",
    "doctor": "corral doctor runs/NAME",
    "bisect": "corral bisect runs/GOOD runs/BAD",
    "exploit": "corral exploit runs/NAME",
    "envs": "corral envs dfaas_v0",
    "trainers": "corral trainers mappo",
    "replay": "corral replay edge3",
    "rehearse": "corral rehearse edge3",
    "advise": "corral advise edge3",
    "serve": "corral serve runs/NAME",
    "export": "corral export runs/NAME",
    "show": "corral trace show edge3",
    "make": "corral trace make --out load.csv",
    "file": "corral trace import FILE --out load.csv",
    "series": "corral trace import series FILE.csv --out load.csv",
    "requests": "corral trace import requests FILE.csv --step 60 --out load.csv",
    "access-log": "corral trace import access-log FILE --step 60 --out load.csv",
    "azure-functions": "corral trace import azure-functions FILE.csv --nodes 8 --out load.csv",
}
"""Name of a command -> an example call."""

ARGUMENTS = {
    "train": ("environment", "an environment"),
    "clone": ("environment", "an environment"),
    "record": ("environment", "an environment"),
    "watch": ("environment", "an environment or the folder of a run"),
    "check": ("environment", "an environment"),
    "envs": ("environment", "an environment"),
    "trainers": ("trainer", "a trainer"),
    "evaluate": ("run", "the folder of a run"),
    "doctor": ("run", "the folder of a run"),
    "exploit": ("run", "the folder of a run"),
    "serve": ("run", "the folder of a run"),
    "export": ("run", "the folder of a run"),
    "--resume": ("run", "the folder of a run"),
    "replay": ("trace", "a trace"),
    "rehearse": ("trace", "a trace"),
    "advise": ("trace", "a trace"),
    "show": ("trace", "a trace"),
}
"""Name of a command -> kind of its first argument, and that kind in words."""

INSTEAD: dict[tuple[str, str], str] = {
    ("train", "run"): "corral train --resume {0} resumes it, corral evaluate {0} evaluates it",
    ("clone", "run"): "corral clone ENVIRONMENT --from {0}",
    ("record", "run"): "corral record ENVIRONMENT --policies {0} --out steps.npz",
    ("train", "trainer"): "corral train ENVIRONMENT --trainer {0}",
    ("train", "trace"): "corral train dfaas_v0 --trace {0}",
    ("watch", "trace"): "corral watch dfaas_v0 --trace {0}",
    ("check", "trace"): "corral trace check {0}",
    ("evaluate", "environment"): "corral train {0} makes a run and prints its folder",
    ("doctor", "environment"): "corral check {0} --learnable tests whether choices matter; "
    "corral train {0} makes a run",
    ("exploit", "environment"): "corral exploit random --env {0}; corral train {0} makes a run",
    ("--resume", "environment"): "corral train {0} starts a run",
    ("evaluate", "trace"): "corral evaluate RUN --trace {0}, or corral replay {0}",
    ("serve", "environment"): "corral train dfaas_v0 --trace loads.csv makes a run to serve",
    ("export", "environment"): "corral train {0} makes a run to export",
    ("serve", "trace"): "corral advise {0} makes a folder to serve",
    ("export", "trace"): "corral advise {0} trains a team to export",
    ("replay", "environment"): "corral replay edge3, or corral watch {0}",
    ("rehearse", "environment"): "corral rehearse edge3, or corral watch {0}",
    ("advise", "environment"): "corral advise edge3, or corral watch {0}",
    ("replay", "run"): "corral replay edge3 --policies {0}, or corral evaluate {0}",
    ("rehearse", "run"): "corral rehearse edge3 --policies {0}",
}
"""(command, kind of its argument) -> what to type instead; ``USE`` has the remaining kinds."""

USE = {
    "environment": "corral envs {0}",
    "trainer": "corral trainers {0}",
    "trace": "corral trace show {0}",
    "run": "corral evaluate {0}",
}


SHORT = {
    "-n": "--n-timesteps",
    "-i": "--trained-agent",
    "-f": "--log-folder",
    "-P": "--progress-bar",
    "-v": "--version",
    "-tb": "--tensorboard-log",
    "-conf": "--conf-file",
    "-params": "--hyperparams",
    "-optimize": "--optimize",
}
"""Short option of RL Zoo and other libraries -> its long form."""

EQUIVALENTS = {
    "enjoy": "corral watch RUN shows a run, corral evaluate RUN scores it",
    "record_video": "corral watch RUN --out clip.gif writes a clip",
    "plot": "a run's folder holds progress.csv, and TensorBoard files if TensorBoard is installed",
    "optimize": "corral tune ENV searches settings",
    "resume": "corral train --resume RUN --steps N continues a run",
    "version": "corral --version prints it",
}
"""Command of another library -> the corral command for the same purpose."""

EQUIVALENTS |= dict.fromkeys(["optimise", "hyperopt", "sweep"], EQUIVALENTS["optimize"])
EQUIVALENTS["video"] = EQUIVALENTS["record_video"]
EQUIVALENTS |= dict.fromkeys(
    ["plots", "plot_train", "plot_training", "all_plots", "plot_from_file", "tensorboard"],
    EQUIVALENTS["plot"],
)


def option_of(name: str) -> str:
    """Return the option of a setting or argument: --num-envs for num_envs."""
    return "--" + name.replace("_", "-")


# --- Kinds of arguments --------------------------------------------------------------------------


def kind_of(text: str) -> str | None:
    """Return the kind of a name: "run", "environment", "trainer", "trace", or None if unknown."""
    from corral.data import bundled
    from corral.envs.registry import registered_name
    from corral.trainers.base import trainers
    from corral.trainers.runs.run import is_run

    if registered_name(text) is not None:
        return "environment"
    if _safely(is_run, text):
        return "run"
    if text in trainers():
        return "trainer"
    is_file = text.endswith((".csv", ".csv.gz")) and _safely(Path.is_file, Path(text))
    return "trace" if text in bundled() or is_file else None


def _safely(predicate: Any, path: Any) -> bool:
    """Return ``question(path)``, or False if the operating system rejects the path."""
    try:
        return bool(predicate(path))
    except (OSError, ValueError):
        return False


def expect(command: str, given: str | None) -> None:
    """Raise ValueError, with what to type instead, if ``given`` is of the wrong kind or missing."""
    kind, expected = ARGUMENTS[command]
    if given is None:
        listed = {"environment": " (corral envs lists them)"}.get(kind, "")
        raise ValueError(f"name {expected}, as in: {EXAMPLES[command]}{listed}")
    actual = kind_of(given)
    if actual is None or actual == kind or (command == "watch" and actual == "run"):
        return
    if kind == "run" and Path(given).is_dir():
        return
    in_words = {"run": "the folder of a run", "environment": "an environment"}
    instead = INSTEAD.get((command, actual), USE[actual]).format(pasted(given))
    raise ValueError(f"{given} is {in_words.get(actual, f'a {actual}')}, not {expected}: {instead}")


# --- Commands ------------------------------------------------------------------------------------


def unknown_command(path: str, words: list[str], commands: Iterable[str]) -> str:
    """Return the message for an unknown command, the first of ``words``."""
    name, commands = words[0], list(commands)
    kind = kind_of(name)
    if kind is not None and path.split()[-1] in ("corral", "root"):
        if words[1:2] and words[1] in commands:
            return f"the command comes first: corral {words[1]} {name}"
        use = {"environment": "corral train {0}, corral watch {0} or corral envs {0}"}
        return f"{name} is not a command; type {use.get(kind, USE[kind]).format(pasted(name))}"
    if equivalent := EQUIVALENTS.get(name.lower().replace("-", "_")):
        return f"no command named {name!r}: {equivalent}"
    return f"no command named {name!r}{hint(name, commands)} Known: {', '.join(commands)}"


def usage(error: Any, words: list[str]) -> str:
    """Return the message for a usage error that Typer raised for the ``words`` of a command."""
    context = getattr(error, "ctx", None)
    if context is None:
        message = str(error.format_message())
        return message[:1].lower() + message[1:]
    name = context.info_name or ""
    if type(error).__name__ == "NoSuchOption":
        known = [option for one in context.command.params for option in one.opts]
        if hasattr(context.command, "commands"):
            if near := meant(SHORT.get(error.option_name, error.option_name), [*known, "--help"]):
                return f"no option named {error.option_name!r}; did you mean {near[0]!r}?"
            return (
                f"no option named {error.option_name!r} before a command: write options after it, "
                f"as in: {EXAMPLES['train']} --steps 1000"
            )
        see = f"See {context.command_path} --help"
        if name == "evaluate" and _is_of_loads(error.option_name):
            see = (
                "A run is evaluated with the arguments of its training. To use other arguments: "
                f"corral replay TRACE --policies RUN {error.option_name} ..."
            )
            return f"no option named {error.option_name!r}. {see}"
        return unknown_option(error.option_name, known, see)
    message = str(error.format_message()).rstrip(".")
    if "not a whole number;" in message:
        return f"{error.param.opts[0]}: {message.partition(': ')[2]}"
    if (value := _value_of(error, words)) is not None:
        kind = "a whole number" if "integer" in message else "a number"
        return f"{error.param.opts[0]} {value}: give {kind}; see {context.command_path} --help"
    example = f". Example: {EXAMPLES[name]}" if name in EXAMPLES else ""
    return f"{message[:1].lower()}{message[1:]}{example}; see {context.command_path} --help"


def _is_of_loads(option: str) -> bool:
    """Whether ``option`` is an argument of dfaas_v0 that corral replay accepts."""
    from corral.cli.commands.loads.replay import replay

    taken = inspect.signature(replay).parameters
    return option.removeprefix("--").removeprefix("no-").replace("-", "_") in taken


def _value_of(error: Any, words: list[str]) -> str | None:
    """Return what was typed for a numeric option, if the error is that it is not a number;
    otherwise None."""
    options = getattr(getattr(error, "param", None), "opts", [])
    if not re.search("valid (integer|number|float)", str(error.format_message())):
        return None
    for word, following in itertools.pairwise([*words, ""]):
        name, equals, text = word.partition("=")
        if name in options:
            return text if equals else following
    return None


def unknown_option(name: str, known: Iterable[str], see: str) -> str:
    """Return the message for an option that is not in ``known``."""
    known = list(known)
    suggestion = answer(SHORT.get(name, name), known, option_of)
    if suggestion == "." and "--arg" in known and name.startswith("--"):
        suggestion = ". Give an argument of the environment as --arg name=value."
    return f"no option named {name!r}{suggestion} {see}"
