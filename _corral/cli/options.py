"""Parsing of command line options: values, settings of trainers, arguments of environments."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, fields
from typing import Annotated, Any

import typer

from corral.cli.mistakes import SHORT, kind_of, option_of, unknown_option
from corral.cli.output import in_options
from corral.errors import CorralError, UnknownNameError

__all__ = [
    "ANY_OPTION",
    "Capacity",
    "OptimumWindows",
    "Window",
    "arguments_known",
    "arguments_of",
    "capacity_of",
    "import_from_here",
    "is_third_party",
    "keep_of",
    "listed",
    "named_as_options",
    "names",
    "opponents_of",
    "policies_of",
    "read_options",
    "row_range",
    "settings_of",
    "settings_of_policies",
    "share_or_rows",
    "train_options",
    "value_of",
    "whole",
    "whole_number",
]

AGENT = re.compile(r"[^/\\:@]+")
"""An agent's name before the "=" of --opponent. The folder of a run may also contain a "="."""

ANY_OPTION = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Settings of a command that accepts options which depend on the environment and trainer."""

Capacity = Annotated[
    str | None,
    typer.Option(
        help="Capacity of a node: requests per step, or 1.25x: 1.25 times its mean load in the "
        "whole trace."
    ),
]
Window = Annotated[
    int | None,
    typer.Option(
        help="Steps per window; default: one day, or 288 if the trace has no step length."
    ),
]
OptimumWindows = Annotated[
    int,
    typer.Option(help="Number of windows to compute the optimum for, if that needs an LP solver."),
]


# --- Values --------------------------------------------------------------------------------------


def arguments_of(pairs: list[str]) -> dict[str, Any]:
    """Return the values of key=value pairs; see ``value_of``."""
    arguments = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise ValueError(f"--arg {pair}: give key=value")
        arguments[key] = value_of(text)
    return arguments


def value_of(text: str) -> Any:
    """Return a number, bool, None, range (LOW:HIGH), tuple of ints or JSON value; else the text."""
    words = {"true": True, "on": True, "false": False, "off": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    if re.fullmatch(r"-?\d+(_\d+)+", text):
        return int(text)
    if re.fullmatch(r"\d+:\d+", text):
        return tuple(int(part) for part in text.split(":"))
    if re.fullmatch(r"\d+(,\d+)*,?", text) and "," in text:
        return tuple(int(part) for part in text.split(",") if part)
    try:
        return json.loads(text)
    except ValueError:
        return text


def whole_number(text: str | int) -> int:
    """Return a whole number in any spelling of the command line: 100000, 100_000 or 1e5."""
    value = _whole(value_of(str(text)))
    if isinstance(value, bool) or not isinstance(value, int):
        raise typer.BadParameter(f"{text!r} is not a whole number; write 100000, 100_000 or 1e5")
    return value


def whole(help: str) -> Any:
    """Return a Typer option that parses its text by ``whole_number``."""
    return typer.Option(parser=whole_number, metavar="<int>", help=help)


def _whole(value: Any) -> Any:
    """Return a float such as 1e5 as an int; return any other value unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def row_range(rows: str | None, split: float | None, length: int) -> tuple[int, int] | None:
    """Return the rows that --rows or --split selects in a trace of ``length`` rows, or None."""
    if rows is not None and split is not None:
        raise ValueError("give --rows or --split, not both")
    if split is not None:
        if not 0 <= split < 1:
            raise ValueError(f"--split {split}: give a share of 0 or more, below 1")
        return int(split * length), length
    if rows is None:
        return None
    low, colon, high = rows.partition(":")
    if not colon or not all(part.isdigit() for part in (low or "0", high or "0")):
        raise ValueError(f"--rows {rows}: give LOW:HIGH, for example 0:288")
    return int(low or 0), int(high or length)


def names(text: str, is_run: Callable[[str], bool]) -> list[str]:
    """Return the named policies and runs without duplicates; "overflow" means "overflow/equal"."""
    unique: dict[str, str] = {}
    for name in filter(None, map(str.strip, text.split(","))):
        unique.setdefault(name if "/" in name or is_run(name) else f"{name}/equal", name)
    if not unique:
        raise ValueError("--policies is empty; omit it to play all policies")
    return list(unique.values())


def capacity_of(text: str | None) -> int | str | None:
    """Return the value of --capacity as an int if it is a number, else as text."""
    return int(text) if text is not None and text.isdigit() else text


def listed(text: str) -> list[str]:
    """Return the names in a comma-separated text."""
    return [name for name in map(str.strip, text.split(",")) if name]


def keep_of(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def share_or_rows(option: str, text: str | None) -> float | tuple[int, int] | None:
    """Return the value of --held-out or --validation: a share or a range of rows."""
    value = None if text is None else value_of(text)
    if value is None or isinstance(value, int | float | tuple):
        return value
    raise ValueError(f"{option} {text}: give a share such as 0.3, or rows LOW:HIGH")


def opponents_of(pairs: list[str]) -> dict[str, str]:
    """Return agent -> players from "agent=player" or "agent=player:2,other:1".

    One text may hold several agents, separated by commas. A new agent starts at a name with "="
    that contains no slash and no colon.
    """
    players_of: dict[str, str] = {}
    for pair in pairs:
        agent = ""
        for text in listed(pair):
            before, equals, player = (part.strip() for part in text.partition("="))
            if agent and not (equals and AGENT.fullmatch(before)):
                players_of[agent] += f",{text}"
                continue
            agent = before
            if not (agent and equals and player):
                raise ValueError(f"--opponent {text}: give agent=player, such as player_1=random")
            if agent in players_of:
                raise ValueError(
                    f"--opponent {text}: {agent} already has {players_of[agent]}; give one"
                )
            players_of[agent] = player
    return players_of


def settings_of_policies(pairs: list[str]) -> dict[str, dict[str, Any]]:
    """Return policy -> setting -> value from "policy.setting=value"; see ``value_of``."""
    settings: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        place, equals, text = pair.partition("=")
        policy, dot, name = place.strip().rpartition(".")
        if not (equals and dot and policy and name):
            raise ValueError(
                f"--set {pair}: give policy.setting=value, such as shared.learning_rate=3e-4"
            )
        value = value_of(text)
        if isinstance(value, tuple) and ":" in text:
            value = text  # a schedule
        settings.setdefault(policy, {})[name.replace("-", "_")] = value
    return settings


def policies_of(text: str) -> str | Mapping[str, str]:
    if "=" not in text:
        return text
    pairs = [part.partition("=") for part in listed(text)]
    return {agent.strip(): policy.strip() for agent, _, policy in pairs}


# --- Options from settings and arguments ---------------------------------------------------------


def train_options(
    context: typer.Context, env: str, trainer: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the environment arguments and the trainer settings on the command line."""
    from corral.trainers.runs.env_config import SET_BY_TRAINING
    from corral.trainers.settings import unknown_setting

    def unknown(name: str, known: list[str]) -> str:
        if is_third_party(env) and name in _parameters(env):
            return f"{option_of(name)} is an argument of {env}: give --arg {name}=VALUE"
        see = f"All options: corral train {env} --trainer {trainer} --help"
        if is_third_party(env):
            see = f"Give an argument of the environment as --arg {name}=VALUE. {see}"
        known = known if is_third_party(env) else [option for option in known if option != "arg"]
        return f"{unknown_setting(name, trainer, known, option_of)} {see}"

    return read_options(
        context,
        arguments_known(env),
        settings_of(trainer),
        unlisted=SET_BY_TRAINING,
        unknown=unknown,
    )


def _parameters(env: str) -> Iterable[str]:
    """Return the argument names of module:function, or an empty tuple if they are unreadable."""
    from corral.envs.registry import NamedEnv

    try:
        import_from_here()
        return inspect.signature(NamedEnv(env).find()).parameters
    except (CorralError, TypeError, ValueError):
        return ()


def read_options(
    context: typer.Context,
    arguments: Mapping[str, inspect.Parameter],
    settings: Iterable[Field[Any]] = (),
    *,
    unlisted: Iterable[str] = (),
    unknown: Callable[[str, list[str]], str] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the environment arguments and trainer settings among a command's extra words.

    An unknown option raises UnknownNameError, which suggests the nearest option that is not
    ``unlisted``. ``unknown`` makes the message from the name and the known names.
    """
    from corral.trainers.settings import type_of

    setting_types = {field.name: type_of(field) for field in settings}
    types = {
        name: str(parameter.annotation) for name, parameter in arguments.items()
    } | setting_types
    env_kwargs: dict[str, Any] = {}
    settings_given: dict[str, Any] = {}
    typed = context.meta.setdefault("corral.typed", {})
    options = [
        option for parameter in context.command.get_params(context) for option in parameter.opts
    ]
    command_options = [option[2:] for option in options if option.startswith("--")]
    known = [*command_options, *(option for option in types if option not in unlisted)]
    see = f"See {context.command_path} --help"
    for name, raw in _named_options(context.args, types, map(option_of, known), see):
        key, text = name.replace("-", "_"), raw
        if raw is None and key.startswith("no_") and key[3:] in types:
            key, text = key[3:], "false"
        if key not in types:
            if unknown is not None:
                message = unknown(key, known)
                raise UnknownNameError(message.replace(option_of(key), f"--{name}", 1))
            raise UnknownNameError(unknown_option(f"--{name}", map(option_of, known), see))
        kind = types[key].partition(" | ")[0]
        if kind != "bool" and raw is None:
            raise ValueError(f"{option_of(name)}: give a value after it")
        value = (text or "") if key == "trace" else value_of("true" if text is None else text)
        if kind == "int":
            value = _whole(value)
        if types[key] == "float | str" and isinstance(value, tuple):
            value = text  # 0:1 is a point of a schedule
        if isinstance(value, str) and (remedy := _remedy(key, kind, value)):
            raise ValueError(f"{option_of(name)} {text}: {remedy}")
        typed[key] = (value, raw)
        if key in setting_types:
            if kind.startswith("tuple") and not isinstance(value, tuple | None):
                value = tuple(value) if isinstance(value, list) else (value,)
            settings_given[key] = value
        else:
            env_kwargs[key] = value
    return env_kwargs, settings_given


def _remedy(key: str, kind: str, text: str) -> str | None:
    """Return advice for a text given to a numeric option; None leaves it to the later check."""
    if kind.startswith("tuple["):
        return "give whole numbers with commas, such as 64,64"
    if kind == "float" and (number := text.removeprefix("lin_")) != text:
        falls = "; --anneal lowers it linearly to 0" if key == "learning_rate" else ""
        return f"give a number, such as {number}{falls}"
    return None


@contextlib.contextmanager
def named_as_options(context: typer.Context, names: Iterable[str]) -> Iterator[None]:
    """In errors, spell ``names`` and values as the user typed them: queue=-1 as --queue -1."""
    try:
        yield
    except (CorralError, ValueError) as error:
        message = str(error)
        for name, (value, text) in context.meta.get("corral.typed", {}).items():
            if text is not None and not isinstance(value, str):
                message = message.replace(f"{name}={value!r}:", f"{name}={text}:")
        if (spelled_message := in_options(message, names)) == str(error):
            raise
        spelled = ValueError(spelled_message)
        # The traceback still shows the code that raised the error.
        raise spelled.with_traceback(error.__traceback__) from error


def _named_options(
    words: list[str], types: Mapping[str, str], known: Iterable[str], see: str
) -> list[tuple[str, str | None]]:
    """Return (name, text) of "--name text" and "--name=text"; for "--name" alone, text is None."""
    pairs: list[tuple[str, str | None]] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            if word in SHORT:
                raise UnknownNameError(unknown_option(word, known, see))
            name, text = pairs[-1] if pairs else ("", None)
            if text and word.isdigit() and "tuple" in types.get(name.replace("-", "_"), ""):
                more = itertools.takewhile(str.isdigit, rest)
                raise ValueError(f"--{name} {text} {word}: give {','.join([text, word, *more])}")
            raise ValueError(_stray_word(word))
        name, equals, after = word.removeprefix("--").partition("=")
        text = after
        if not equals:
            is_value = bool(rest) and not re.match(r"--[a-z]", rest[0])
            text = rest.pop(0) if is_value else None
        pairs.append((name, text))
    return pairs


def _stray_word(word: str) -> str:
    """Return the message for a word that is neither an option nor an option's value."""
    name, equals, text = word.lstrip("-").partition("=")
    if equals and name.isidentifier():
        return f"write options as --name value: give {option_of(name)} {text}"
    if word.startswith("-") and len(word) > 2:
        return f"{word}: options have two dashes; give -{word}"
    kinds = {"trainer": "--trainer", "trace": "--trace", "run": "--resume"}
    if (kind := kind_of(word)) == "environment":
        return f"{word!r} is a second environment; give only one"
    if (option := kinds.get(kind or "")) is not None:
        return f"{word!r} has no option before it; give {option} {word}"
    return f"{word!r} has no option before it; write --name value"


def arguments_known(env: str) -> Mapping[str, inspect.Parameter]:
    """Return the arguments of a built-in environment; {} for a third-party one, which has --arg."""
    from corral.envs.registry import rules_class

    return {} if is_third_party(env) else inspect.signature(rules_class(env)).parameters


def settings_of(trainer: str) -> tuple[Field[Any], ...]:
    from corral.trainers.base import settings_source

    if ":" in trainer:
        import_from_here()
    return fields(settings_source(trainer).Settings)


# --- Third-party environments --------------------------------------------------------------------


def is_third_party(env: str) -> bool:
    """Whether the text names a third-party environment: an id, a module, or module:function."""
    from corral.envs.registry import NamedEnv, registered_name

    return registered_name(env) is None and NamedEnv.is_one(env)


def import_from_here() -> None:
    """Let module:function import modules from the current folder, as python -m does."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
